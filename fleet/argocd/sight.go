package argocd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Argo CD reads every kind in every namespace of a cluster Secret before it compares or deletes an
// Application there. If its account may not list one of them, Argo CD fails, which is safe. With
// resource.respectRBAC it goes on without them instead, and a running workload is absent to it.

// respectRBACKey of argocd-cm makes Argo CD skip what an account may not list. Argo CD reads it
// when it first reads a cluster.
const respectRBACKey = "resource.respectRBAC"

// sightFindings reports an Argo CD that takes a namespace for empty if its account may not list it.
// Argo CD ends a deletion when it finds no resource of the Application (appcontroller.go,
// finalizeApplicationDeletion), so there the workload would go on without a record. "strict" skips
// a kind as well, once the account may list it in no namespace of the cluster Secret.
func (e preflight) sightFindings(settings map[string]string) []engine.Finding {
	value := settings[respectRBACKey]
	if value == "" {
		return nil
	}
	return []engine.Finding{{Code: "respect-rbac", Blind: true,
		Message: fmt.Sprintf(
			"Argo CD takes a namespace that its account may not list for an empty "+
				"one (%s: %s in argocd-cm), and would end the deletion of an Application there while "+
				"its workload runs: no Application is deleted with its workload", respectRBACKey,
			clip(value, 64)),
		Fix: fmt.Sprintf(
			"let each account list every kind (docs/clusters.md), remove the key with "+
				`kubectl -n %s patch configmap argocd-cm --type merge --patch '{"data":{"%s":null}}', `+
				"and restart the application-controller, which reads it only when it starts",
			e.namespace, respectRBACKey)}}
}

// checkSight rejects the beginning of a deletion whose workload Argo CD may overlook: it skips what
// its account may not list, or it does not read a namespace with resources of the Application. It
// reports whether there is no workload, although Argo CD does not read the namespace.
func (e *Engine) checkSight(live *entry, cluster fleet.ObjectKey) (without bool, err error) {
	if live.Deleting {
		return false, nil // Argo CD has begun
	}
	if why := e.blind.Load(); why != nil {
		return false, *why
	}
	c := e.cache.get(cluster)
	if c == nil || len(c.namespaces) == 0 {
		return false, nil
	}
	for _, namespace := range append([]string{live.namespace}, live.elsewhere...) {
		if slices.Contains(c.namespaces, namespace) {
			continue
		}
		if live.untouched() && !c.Drifted {
			return true, nil
		}
		return false, fmt.Errorf("%w: cluster Secret %s does not list namespace %s, so that Argo "+
			"CD does not read the workload there; see why the Secret does not list it (argosy "+
			"describe environment %s), or set deletionPolicy: Orphan", engine.ErrDestination,
			cluster.Name, namespace, live.In())
	}
	return false, nil
}

// untouched reports whether the Application was never synced, has no result of a comparison, and
// was neither adopted nor moved here: it has created no workload.
func (e *entry) untouched() bool {
	return !e.acted && e.Sync == mirror.SyncUnknown && e.before == "" && e.move == ""
}

// namespacesIn returns the namespaces of a cluster Secret; none: all.
func namespacesIn(data map[string]any) []string {
	list, err := dataValue(data, "namespaces")
	if err != nil || len(list) == 0 {
		return nil
	}
	return strings.Split(string(list), ",")
}

// narrow returns the row of a cluster Secret without the namespaces that it adds to the live one
// and in which the account may not list every kind, and the reason: with them Argo CD would read
// nothing of the environment any more. Other changes stay. While the reviews fail, it adds none. A
// new Secret, one of another server and one without a namespace in use have nothing to protect.
func (e *Engine) narrow(ctx context.Context, row mirror.Row, known *entry) (mirror.Row, string,
	error) {
	if known == nil || !known.Ours || known.Tenant != row.Tenant || known.Deleting ||
		known.token == nil {
		return row, "", nil
	}
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		return row, "", err
	}
	o, err := e.readNamed(ctx, secrets, known.object)
	if err != nil || o == nil {
		return row, "", err
	}
	data := child(tree, "data")
	has, wants := namespacesIn(o.Data), namespacesIn(data)
	if len(has) == 0 || has[0] == unused || o.Data["server"] != data["server"] {
		return row, "", nil
	}
	added := slices.DeleteFunc(slices.Clone(wants), func(namespace string) bool {
		return namespace == unused || slices.Contains(has, namespace)
	})
	if len(wants) == 0 {
		added = []string{""}
	}
	if len(added) == 0 {
		return row, "", nil
	}
	denied, why := e.denied(ctx, row, o, added)
	if len(denied) == 0 {
		return row, "", nil
	}
	kept := slices.DeleteFunc(slices.Clone(wants), func(namespace string) bool {
		return slices.Contains(denied, namespace)
	})
	if len(kept) == 0 { // none means all
		kept = has
	}
	data["namespaces"] = base64.StdEncoding.EncodeToString([]byte(strings.Join(kept, ",")))
	body, err := canonical(tree)
	row.Manifest = fleet.Manifest{Body: body, Hash: hashOf(body)}
	return row, why, err
}

// denied returns the namespaces, of these, that a live cluster Secret must not get, and the reason.
func (e *Engine) denied(ctx context.Context, row mirror.Row, o *liveObject, added []string) (
	[]string, string) {
	a, ok := preflight{e}.accountIn(o.Metadata, o.Data)
	if !ok {
		return added, "the cluster Secret gets no further namespace: it has no token with which " +
			"to ask whether its account may list every kind; it is written again"
	}
	defer a.at.http.CloseIdleConnections()
	a.environment = fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}
	a.namespaces = added
	missing, err := a.missing(ctx)
	if err != nil {
		missing = added
	}
	if found := a.finding(missing, err); found != nil {
		return missing, "the cluster Secret does not get what its account may not list: " +
			found.Message + "; " + found.Fix
	}
	return nil, ""
}

// reviews is the number of access reviews of one account at a time.
const reviews = 4

// clientOf returns a client for an API server with a token.
func (e *Engine) clientOf(base *url.URL, ca []byte, token string) (*client, error) {
	transport, err := newTransport(&rest.Config{Host: base.String(), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, e.options)
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: transport, CheckRedirect: noRedirect},
		base: base, flow: newFlow(reviews, reviews), timeout: e.options.Timeout, retries: 1}, nil
}

// account is a service account whose token is in a cluster Secret.
type account struct {
	fleet.ServiceAccount
	environment fleet.EnvironmentID
	namespaces  []string // of the cluster Secret; an empty name: all
	at          *client  // the API server, with the token
}

// checkAccounts asks the API servers whether the service accounts whose tokens Argosy requested may
// list and watch every kind in the namespaces of their environments. Only a Thorough preflight does
// so, once for each namespace: Argo CD reports a missing right when it reads the cluster. It cannot
// ask with other credentials: Argosy sends no request to a server that a tenant names.
func (e preflight) checkAccounts(ctx context.Context, _ string) ([]engine.Finding, error) {
	if !e.options.Thorough || e.options.Public {
		return nil, nil
	}
	all, err := e.accounts(ctx)
	if err != nil {
		return nil, err
	}
	findings := make([][]engine.Finding, len(all))
	var asked sync.WaitGroup
	free := make(chan struct{}, 8)
	for i, a := range all {
		free <- struct{}{}
		asked.Go(func() {
			defer func() { <-free }()
			defer a.at.http.CloseIdleConnections()
			findings[i] = a.check(ctx)
		})
	}
	asked.Wait()
	return slices.Concat(findings...), nil
}

// check returns a finding if the account may not list every kind, or that is unknown.
func (a account) check(ctx context.Context) []engine.Finding {
	missing, err := a.missing(ctx)
	if found := a.finding(missing, err); found != nil {
		return []engine.Finding{*found}
	}
	return nil
}

// missing returns the namespaces in which the account may not list and watch every kind. An account
// that may do so in all namespaces costs two reviews.
func (a account) missing(ctx context.Context) ([]string, error) {
	may, err := a.reads(ctx, "")
	if err != nil || may {
		return nil, err
	}
	if slices.Contains(a.namespaces, "") {
		return []string{""}, nil
	}
	allowed, errs := make([]bool, len(a.namespaces)), make([]error, len(a.namespaces))
	var asked sync.WaitGroup
	free := make(chan struct{}, reviews)
	for i, namespace := range a.namespaces {
		free <- struct{}{}
		asked.Go(func() {
			defer func() { <-free }()
			allowed[i], errs[i] = a.reads(ctx, namespace)
		})
	}
	asked.Wait()
	var missing []string
	for i, namespace := range a.namespaces {
		if !allowed[i] {
			missing = append(missing, namespace)
		}
	}
	return missing, errors.Join(errs...)
}

// reads reports whether the account may list and watch every kind in a namespace; "": in all.
func (a account) reads(ctx context.Context, namespace string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		may, err := a.at.allowed(ctx, right{namespace, "*", "*", "", verb})
		if err != nil || !may {
			return false, err
		}
	}
	return true, nil
}

// finding reports what an account may not list; nil: nothing.
func (a account) finding(missing []string, err error) *engine.Finding {
	if err != nil {
		return &engine.Finding{Code: "account-unknown", Message: fmt.Sprintf("it is unknown "+
			"whether service account %s of environment %s may list every kind: %v",
			a.ServiceAccount, a.environment, err),
			Fix: "see whether Argo CD reads its cluster: argosy describe environment " +
				a.environment.String()}
	}
	if len(missing) == 0 {
		return nil
	}
	where, bind := "in all namespaces", "kubectl create clusterrolebinding"
	if missing[0] != "" {
		where = "in namespace " + named(slices.Clone(missing))
		bind = "kubectl -n " + missing[0] + " create rolebinding"
	}
	return &engine.Finding{Code: "account",
		Message: fmt.Sprintf("service account %s of environment %s may not list and watch every "+
			"kind %s, and Argo CD reads nothing of a cluster of which it may not list a kind",
			a.ServiceAccount, a.environment, where),
		Fix: fmt.Sprintf("kubectl create clusterrole argosy-reads --verb=list,watch "+
			"'--resource=*.*'; %s argosy-%s-%s-argosy-reads --clusterrole=argosy-reads "+
			"--serviceaccount=%s:%s, in each of these namespaces (docs/clusters.md)", bind,
			a.environment.Tenant, a.environment.Name, a.Namespace, a.Name)}
}

// accounts lists the cluster Secrets with a requested token.
func (e preflight) accounts(ctx context.Context) (all []account, err error) {
	query := url.Values{"limit": {"500"}, "labelSelector": {labelManagedBy + "=" + managedBy +
		"," + labelSecretType + "=cluster"}}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []struct {
				Metadata liveMetadata
				Data     map[string]any
			}
		}
		err := e.client.do(ctx, request{method: http.MethodGet,
			path: secrets.collection(e.namespace), query: query}, &page)
		if codeOf(err) == http.StatusForbidden {
			return nil, nil // checkRights reports it
		}
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			if a, ok := e.accountIn(item.Metadata, item.Data); ok {
				all = append(all, a)
			}
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// accountIn returns the service account of a cluster Secret; false if the Secret has no requested
// token, or no namespace in use.
func (e preflight) accountIn(m liveMetadata, data map[string]any) (a account, ok bool) {
	id := identityOf(m.Labels)
	a.environment = fleet.EnvironmentID{Tenant: id.tenant, Name: id.environment}
	a.ServiceAccount = fleet.AccountOf(a.environment)
	var config v1alpha1.ClusterConfig
	raw, err := dataValue(data, "config")
	if m.Annotations[fleet.AccountAnnotation] != a.String() || err != nil ||
		json.Unmarshal(raw, &config) != nil || config.BearerToken == "" {
		return a, false
	}
	if a.namespaces = namespacesIn(data); len(a.namespaces) == 0 {
		a.namespaces = []string{""}
	} else if a.namespaces[0] == unused {
		return a, false
	}
	key, _ := dataValue(data, "server")
	server, _, _ := strings.Cut(string(key), "?")
	ca := config.CAData
	if server == fleet.InClusterServer {
		server, ca = e.client.base.String(), e.ca
	} else if fleet.CheckServerURL(server) != nil {
		return a, false
	}
	base, err := url.Parse(server)
	if err != nil {
		return a, false
	}
	a.at, err = e.clientOf(base, ca, config.BearerToken)
	return a, err == nil
}
