package argocd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/inspect"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Bounds of what is read from an environment's cluster, which the tenant may run.
const (
	clusterTime    = 15 * time.Second // of one request
	maxClusterBody = 16 << 20         // bytes of one response
	maxEventSpaces = 8                // namespaces whose events are read
	eventPage      = 500
	maxEventPages  = 4
)

// cluster is the connection to the cluster of an environment, with the credential that Argo CD has
// for it.
type cluster struct {
	*client
	own bool // the engine's own connection, which stays open
}

func (c cluster) close() {
	if !c.own {
		c.http.CloseIdleConnections()
	}
}

// clusterOf connects to the cluster that an Application deploys to. It takes the server, the CA and
// the credential from the Secret that Argosy has written for Argo CD, and never a credential of its
// own, except behind an agent, whose own cluster it is.
func (e *Engine) clusterOf(ctx context.Context, s *subject) (cluster, error) {
	if e.name.OfEnvironment() {
		return cluster{e.client, true}, nil
	}
	id := s.of.ID.In()
	if e.options.Public {
		return cluster{}, refusedRead("engine %s keeps no credential of environment %s that "+
			"Argosy may read", e.name, id)
	}
	var secret struct {
		Metadata liveMetadata
		Data     map[string][]byte
	}
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: secrets.object(e.namespace, fleet.ClusterName(id))}, &secret)
	if codeOf(err) == http.StatusNotFound {
		return cluster{}, refusedRead("engine %s has no cluster for environment %s yet", e.name, id)
	}
	if err != nil {
		return cluster{}, e.unread("the Secret of the environment's cluster", err)
	}
	l := secret.Metadata.Labels
	server := string(secret.Data["server"])
	if l[labelManagedBy] != managedBy || l[labelTenant] != string(id.Tenant) ||
		l[labelEnvironment] != string(id.Name) || server != s.Spec.Destination.Server {
		return cluster{}, refusedRead("the cluster of environment %s on engine %s is not the one "+
			"that its Application deploys to", id, e.name)
	}
	return e.connectCluster(id, server, secret.Data["config"])
}

// connectCluster returns a connection that is made with the content of a cluster Secret.
func (e *Engine) connectCluster(id fleet.EnvironmentID, key string, raw []byte) (cluster, error) {
	var config v1alpha1.ClusterConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		return cluster{}, refusedRead("the cluster of environment %s has a config that is not JSON",
			id)
	}
	switch {
	case config.ExecProviderConfig != nil || config.AWSAuthConfig != nil:
		return cluster{}, refusedRead("environment %s authenticates with a cloud identity of "+
			"Argo CD's Pod, which only Argo CD can use; use the cloud's own access to the cluster "+
			"(docs/resources.md)", id)
	case config.Insecure || config.Username != "" || config.ProxyUrl != "":
		return cluster{}, refusedRead("the cluster of environment %s has settings that Argosy does "+
			"not write", id)
	}
	given := kubeconfig{token: config.BearerToken, cert: config.CertData, key: config.KeyData}
	if err := checkClusterCredential(given); err != nil {
		return cluster{}, refusedRead("the credential of environment %s: %v", id, err)
	}
	server, _, _ := strings.Cut(key, "?")
	to := &rest.Config{Host: server, BearerToken: given.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CertData: given.cert,
			KeyData: given.key}}
	control := addressControl(server)
	if server == fleet.InClusterServer { // the engine's own cluster, as the engine is reached
		to.Host, control = e.config.Host, nil
		to.CAData, to.ServerName = e.ca, e.config.ServerName
	} else if err := fleet.CheckServerURL(server); err != nil {
		return cluster{}, refusedRead("the server of environment %s: %v", id, err)
	}
	transport, err := newTransportVia(to, e.options, control)
	if err != nil {
		return cluster{}, refusedRead("the credential of environment %s cannot be used", id)
	}
	base, err := url.Parse(to.Host)
	if err != nil {
		return cluster{}, refusedRead("the server of environment %s is not a URL", id)
	}
	return cluster{client: &client{http: &http.Client{Transport: transport,
		CheckRedirect: noRedirect}, base: base, flow: newFlow(2, 2), timeout: clusterTime,
		retries: 1, most: maxClusterBody}}, nil
}

// addressControl refuses connections to addresses that the server must not have, whatever its name
// resolves to.
func addressControl(server string) func(string, string, syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !fleet.ConnectsTo(server, to.Addr()) {
			return fmt.Errorf("the name of the server leads to the address %s, which no cluster has",
				address)
		}
		return nil
	}
}

func refusedRead(format string, args ...any) error {
	return &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: fmt.Sprintf(format, args...)}
}

// clusterRefusal is the error of a request to the environment's cluster.
func clusterRefusal(id fleet.EnvironmentID, what, right string, err error) error {
	switch codeOf(err) {
	case http.StatusForbidden:
		return &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: fmt.Sprintf("the "+
			"credential of environment %s may not read %s; grant it %s", id, what, right),
			Cause: err}
	case http.StatusUnauthorized:
		return &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: fmt.Sprintf("the "+
			"cluster of environment %s does not accept the credential; renew it", id), Cause: err}
	case http.StatusNotFound:
		return &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: what + " does not exist any " +
			"more; read the tree again", Cause: err}
	case http.StatusBadRequest: // of a log: the container waits, or has no previous one
		var s *statusError
		errors.As(err, &s)
		return &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: clip(s.Message, maxText),
			Cause: err}
	}
	return &mirror.InspectError{Kind: mirror.ErrInspectUnreachable, Text: fmt.Sprintf("the "+
		"cluster of environment %s has not answered (%s)", id, what), Cause: err}
}

// liveResource reads a node from the cluster. Of a Secret it reads the metadata alone. A cluster
// that Argosy cannot use itself gives a detail with a note.
func (e *Engine) liveResource(ctx context.Context, s *subject, n mirror.TreeNode) (
	mirror.ResourceDetail, error) {
	d := mirror.ResourceDetail{ResourceRef: n.ResourceRef, Version: n.Version}
	if n.Missing || n.UID == "" {
		d.Note = "it does not exist; a sync creates it"
		return d, nil
	}
	c, err := e.clusterOf(ctx, s)
	if errors.Is(err, mirror.ErrInspectRefused) {
		d.Note = err.Error()
		return d, nil
	}
	if err != nil {
		return d, err
	}
	defer c.close()
	manifest, err := c.object(ctx, s.of.ID.In(), n)
	if errors.Is(err, mirror.ErrInspectRefused) {
		d.Note = err.Error()
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d = inspect.Live(n, manifest)
	if isSecret(n) {
		d.Masked, d.Note = true, "the values of a Secret are not read"
	}
	return d, nil
}

func isSecret(n mirror.TreeNode) bool { return n.Group == "" && n.Kind == "Secret" }

// object reads a node's object. Another object of its name is not returned.
func (c cluster) object(ctx context.Context, id fleet.EnvironmentID, n mirror.TreeNode) (
	map[string]any, error) {
	path, err := c.pathOf(ctx, id, n)
	if err != nil {
		return nil, err
	}
	return c.objectAt(ctx, id, n, path)
}

// objectAt is object with the path of the node's object.
func (c cluster) objectAt(ctx context.Context, id fleet.EnvironmentID, n mirror.TreeNode,
	path string) (map[string]any, error) {
	accept := plainJSON
	if isSecret(n) {
		accept = metadataOnly
	}
	var raw json.RawMessage
	what := n.ResourceRef.String()
	if err := c.do(ctx, request{method: http.MethodGet, path: path, accept: accept},
		&raw); err != nil {
		return nil, clusterRefusal(id, what, "get on "+strings.ToLower(n.Kind)+"s in namespace "+
			n.Namespace, err)
	}
	var manifest map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&manifest); err != nil || manifest == nil {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectRefused,
			Text: what + ": the cluster's answer is not an object"}
	}
	meta, _ := manifest["metadata"].(map[string]any)
	if uid, _ := meta["uid"].(string); uid != n.UID {
		return nil, &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: what +
			" was replaced by another object of its name; read the tree again"}
	}
	return manifest, nil
}

var podResource = &resource{kind: "Pod", prefix: "/api/v1", plural: "pods"}

// pathOf returns the path of a node's object. It asks the cluster for the plural of its kind.
func (c cluster) pathOf(ctx context.Context, id fleet.EnvironmentID, n mirror.TreeNode) (string,
	error) {
	if n.Group == "" && n.Kind == "Pod" {
		return podResource.object(n.Namespace, n.Name), nil
	}
	prefix := "/api/" + url.PathEscape(n.Version)
	if n.Group != "" {
		prefix = "/apis/" + url.PathEscape(n.Group) + "/" + url.PathEscape(n.Version)
	}
	var list struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
		}
	}
	if err := c.do(ctx, request{method: http.MethodGet, path: prefix}, &list); err != nil {
		return "", clusterRefusal(id, "the API "+n.Group+"/"+n.Version, "discovery", err)
	}
	for _, r := range list.Resources {
		if r.Kind != n.Kind || strings.Contains(r.Name, "/") ||
			r.Namespaced != (n.Namespace != "") {
			continue
		}
		plural := &resource{prefix: prefix, plural: url.PathEscape(r.Name)}
		if r.Namespaced {
			return plural.object(n.Namespace, n.Name), nil
		}
		return prefix + "/" + plural.plural + "/" + url.PathEscape(n.Name), nil
	}
	return "", &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: "the cluster has no kind " +
		n.Kind + " in " + n.Group + "/" + n.Version}
}

// eventsOf reads the events of the namespaces of these nodes, and keeps those about them.
func (e *Engine) eventsOf(ctx context.Context, s *subject, nodes []mirror.TreeNode) (
	[]mirror.ResourceEvent, error) {
	of, spaces := map[string]bool{}, []string{}
	for _, n := range nodes {
		if n.UID == "" {
			continue
		}
		of[n.UID] = true
		namespace := n.Namespace
		if namespace == "" {
			namespace = "default" // events about cluster-scoped objects are there
		}
		if !slices.Contains(spaces, namespace) && len(spaces) < maxEventSpaces {
			spaces = append(spaces, namespace)
		}
	}
	if len(of) == 0 {
		return []mirror.ResourceEvent{}, nil
	}
	c, err := e.clusterOf(ctx, s)
	if err != nil {
		return nil, err
	}
	defer c.close()
	uid := ""
	if len(of) == 1 {
		for uid = range of {
		}
	}
	var all []corev1.Event
	var failed error
	for _, namespace := range spaces {
		found, err := c.events(ctx, s.of.ID.In(), namespace, uid)
		if err != nil {
			failed = err // of a namespace; others may be readable
			continue
		}
		all = append(all, found...)
	}
	if len(all) == 0 && failed != nil {
		return nil, failed
	}
	return inspect.Events(all, of), nil
}

// events lists the events of a namespace, about one object if uid is not empty.
func (c cluster) events(ctx context.Context, id fleet.EnvironmentID, namespace, uid string) (
	all []corev1.Event, err error) {
	query := url.Values{"limit": {strconv.Itoa(eventPage)}}
	if uid != "" {
		query.Set("fieldSelector", "involvedObject.uid="+uid)
	}
	for range maxEventPages {
		var list corev1.EventList
		if err := c.do(ctx, request{method: http.MethodGet, path: "/api/v1/namespaces/" +
			url.PathEscape(namespace) + "/events", query: query}, &list); err != nil {
			return nil, clusterRefusal(id, "events of namespace "+namespace,
				"list on events in namespace "+namespace, err)
		}
		all = append(all, list.Items...)
		if list.Continue == "" {
			break
		}
		query.Set("continue", list.Continue)
	}
	return all, nil
}

// podLog is an open stream of a container's log.
type podLog struct {
	cluster
	cancel context.CancelFunc
	body   io.ReadCloser
}

// openLog opens the log of a Pod. brief bounds everything but the stream.
func (e *Engine) openLog(brief context.Context, s *subject, n mirror.TreeNode,
	r mirror.LogRequest) (*podLog, error) {
	c, err := e.clusterOf(brief, s)
	if err != nil {
		return nil, err
	}
	id := s.of.ID.In()
	fail := func(err error) (*podLog, error) {
		c.close()
		return nil, err
	}
	pod, err := c.object(brief, id, n)
	if err != nil {
		return fail(err)
	}
	container, err := inspect.LogContainer(pod, r.Container)
	if err != nil {
		return fail(&mirror.InspectError{Kind: mirror.ErrInspectRefused,
			Text: n.ResourceRef.String() + ": " + err.Error()})
	}
	query := url.Values{"container": {container}, "timestamps": {"true"},
		"limitBytes": {strconv.Itoa(2 * mirror.MaxLogBytes)},
		"tailLines":  {strconv.Itoa(mirror.MaxLogTail)}}
	if r.Tail > 0 && r.Tail < mirror.MaxLogTail {
		query.Set("tailLines", strconv.Itoa(r.Tail))
	}
	if r.Since > 0 {
		query.Set("sinceSeconds", strconv.FormatInt(int64(max(r.Since, time.Second)/time.Second),
			10))
	}
	if r.Previous {
		query.Set("previous", "true")
	}
	follows := r.Follow && !r.Previous
	if follows {
		query.Set("follow", "true")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(brief))
	// The kubelet answers a followed log with its first line. Any other answers at once.
	if !follows {
		defer time.AfterFunc(clusterTime, cancel).Stop()
	}
	stop := context.AfterFunc(brief, func() {
		if !follows {
			cancel()
		}
	})
	defer stop()
	l := &podLog{cluster: c, cancel: cancel}
	l.body = &lazyLog{open: func() (io.ReadCloser, error) {
		resp, err := c.send(ctx, request{method: http.MethodGet, accept: "*/*", query: query,
			path: podResource.object(n.Namespace, n.Name) + "/log"})
		if err == nil && resp.StatusCode != http.StatusOK {
			defer func() { _ = resp.Body.Close() }()
			err = refusal(resp)
		}
		if err != nil {
			return nil, clusterRefusal(id, "the log of "+n.ResourceRef.String(),
				"get on pods/log in namespace "+n.Namespace, err)
		}
		return resp.Body, nil
	}}
	if follows {
		return l, nil
	}
	if err := l.body.(*lazyLog).begin(); err != nil {
		cancel()
		return fail(err)
	}
	return l, nil
}

// lazyLog opens a log with its first read.
type lazyLog struct {
	open   func() (io.ReadCloser, error)
	body   io.ReadCloser
	failed error // to open it
}

func (l *lazyLog) begin() error {
	if l.body == nil && l.failed == nil {
		l.body, l.failed = l.open()
	}
	return l.failed
}

// Read reads the log.
func (l *lazyLog) Read(p []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	return l.body.Read(p)
}

// Close closes the log if it was opened.
func (l *lazyLog) Close() error {
	if l.body == nil {
		return nil
	}
	return l.body.Close()
}

// copy sends the log until it ends or ctx does.
func (l *podLog) copy(ctx context.Context, sink func([]mirror.LogLine) error) (mirror.LogEnd,
	error) {
	defer l.close()
	defer l.cancel()
	defer context.AfterFunc(ctx, l.cancel)()
	end := inspect.CopyLog(ctx, l.body, sink)
	_ = l.body.Close() // read to its end, or given up
	if lazy, ok := l.body.(*lazyLog); ok && lazy.failed != nil && ctx.Err() == nil {
		return "", lazy.failed
	}
	return end, nil
}

// inspectFindings names the missing rights with which resources of Applications are read.
func (e preflight) inspectFindings(ctx context.Context) ([]engine.Finding, error) {
	if !e.options.Inspects {
		return nil, nil
	}
	missing, err := e.missingRights(ctx, []right{{resource: "pods", verb: "list"},
		{resource: "pods/portforward", verb: "create"},
		{resource: "secrets", name: redisSecret, verb: "get"}})
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return []engine.Finding{{Code: "inspect-rights",
		Message: e.actor() + " may not " + strings.Join(missing, ", ") + " in namespace " +
			e.namespace + ", and cannot show the resources of Applications",
		Fix: "grant the rights of docs/resources.md (rbac.engineReads of the chart argosy)"}}, nil
}
