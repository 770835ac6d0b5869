package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/fleet/agent"
)

// Level is the result of a check.
type Level string

// Levels of a check.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // it works, or may work
	LevelFail Level = "fail" // it will not work
)

// Result is one line of `argosy agent join --check`: the check, the finding and the next step. All
// texts are printable.
type Result struct {
	Check  string `json:"check"` // e.g. "dns"
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Next   string `json:"next,omitempty"` // the next step and who has to take it, if any
	Millis int64  `json:"millis"`
}

// Failed reports whether any check has failed.
func Failed(results []Result) bool {
	for _, r := range results {
		if r.Level == LevelFail {
			return true
		}
	}
	return false
}

// Checks verifies everything that joining needs. It changes nothing.
type Checks struct {
	Settings Settings
	Cluster  *ClusterCheck // nil: skip the cluster

	results []Result
}

// checkTimeout bounds one check. A stream that delivers nothing for that long counts as buffered.
const checkTimeout = 15 * time.Second

// Run runs the checks in order and reports each result at once. It skips checks that an earlier
// failure makes meaningless.
func (c *Checks) Run(ctx context.Context, report func(Result)) []Result {
	c.results = nil
	add := func(r Result) {
		c.results = append(c.results, r)
		if report != nil {
			report(r)
		}
	}
	c.checkHub(ctx, add)
	if c.Cluster != nil {
		c.Cluster.run(ctx, add)
	}
	return c.results
}

// runCheck runs one check with a deadline. It reports whether the next one is meaningful.
func runCheck(ctx context.Context, name string, report func(Result),
	check func(context.Context) Result) bool {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s",
		checkTimeout))
	defer cancel()
	r := check(ctx)
	r.Check, r.Millis = name, time.Since(began).Milliseconds()
	report(r)
	return r.Level != LevelFail
}

func ok(format string, args ...any) Result {
	return Result{Level: LevelOK, Found: fmt.Sprintf(format, args...)}
}

func warn(next, format string, args ...any) Result {
	return Result{Level: LevelWarn, Next: next, Found: fmt.Sprintf(format, args...)}
}

func fail(next, format string, args ...any) Result {
	return Result{Level: LevelFail, Next: next, Found: fmt.Sprintf(format, args...)}
}

// route is the route to the hub: direct, or through a proxy.
type route struct {
	base      *url.URL
	proxy     *url.URL // nil: direct
	transport *http.Transport
}

// endpoint returns the host and address that a connection dials.
func (w route) endpoint() (host, address string) {
	u := w.base
	if w.proxy != nil {
		u = w.proxy
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return u.Hostname(), net.JoinHostPort(u.Hostname(), port)
}

// hub verifies the route to the hub, from the name to a stream.
func (c *Checks) checkHub(ctx context.Context, report func(Result)) {
	var w route
	if !runCheck(ctx, "url", report, func(context.Context) Result { return c.settings(&w) }) {
		return
	}
	defer w.transport.CloseIdleConnections()
	for _, one := range []struct {
		name  string
		check func(context.Context) Result
	}{{"proxy", w.checkProxy}, {"dns", w.checkDNS}, {"tcp", w.checkTCP}, {"tls", w.checkTLS},
		{"http", w.checkHTTP}} {
		if !runCheck(ctx, one.name, report, one.check) {
			return
		}
	}
	runCheck(ctx, "clock", report, w.checkClock)
	runCheck(ctx, "stream", report, w.checkStream)
}

func (c *Checks) settings(w *route) Result {
	var err error
	if w.base, err = ParseHub(c.Settings.Hub); err != nil {
		return fail("use the URL from the hub's operators, e.g. https://argosy.example.com",
			"%s", err)
	}
	if w.transport, err = c.Settings.newTransport(); err != nil {
		return fail("pass a file of PEM certificates with --ca-file", "%s", err)
	}
	w.transport.ResponseHeaderTimeout = checkTimeout
	if w.proxy, err = w.transport.Proxy(&http.Request{URL: w.base}); err != nil {
		return fail("correct HTTPS_PROXY in the environment, or set the proxy with --proxy",
			"the proxy of the environment is not a URL")
	}
	return ok("%s", w.base.Host)
}

func (w route) checkProxy(context.Context) Result {
	if w.proxy == nil {
		return ok("none: the hub is reached directly")
	}
	// only the host: the URL may contain a user name and password
	return ok("through %s", plain(w.proxy.Host))
}

func (w route) checkDNS(ctx context.Context) Result {
	host, _ := w.endpoint()
	if _, err := netip.ParseAddr(host); err == nil {
		return ok("%s is an address", host)
	}
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		var dns *net.DNSError
		reason := plain(err.Error())
		if errors.As(err, &dns) {
			reason = dnsReason(dns)
		}
		return fail(
			"ask the operators of the cluster's DNS, or set a proxy with --proxy",
			"%s: %s", plain(host), reason)
	}
	return ok("%s is %s", plain(host), plain(strings.Join(all, ", ")))
}

func (w route) checkTCP(ctx context.Context) Result {
	_, address := w.endpoint()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		next := "allow TCP to it in the cluster's firewall, or set a proxy with --proxy"
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fail(next, "%s does not respond: a firewall may drop the connection",
				address)
		}
		return fail(next, "%s: %s", address, plain(err.Error()))
	}
	defer conn.Close()
	return ok("%s answers", address)
}

// checkTLS connects like the agent, through a proxy if there is one, and reports the certificate.
func (w route) checkTLS(ctx context.Context) Result {
	answer, err := w.get(ctx, "/readyz")
	if err != nil {
		err = explain(w.base.Host, err)
		return fail("see above; the agent cannot disable verification", "%s",
			plain(err.Error()))
	}
	defer answer.Body.Close()
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return fail("use the hub's https:// URL", "the response did not arrive over TLS")
	}
	cert := answer.TLS.PeerCertificates[0]
	left := time.Until(cert.NotAfter)
	text := fmt.Sprintf("%s, issued by %q, until %s", tls.VersionName(answer.TLS.Version),
		issuer(cert), stamp(cert.NotAfter))
	if left < 7*24*time.Hour {
		return warn("ask the hub's operators to renew its certificate", "%s", text)
	}
	return ok("%s", text)
}

// get sends an unauthenticated GET.
func (w route) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base.String()+path, nil)
	if err != nil {
		return nil, err
	}
	// not a process: only a check
	agent.Session{Protocol: agent.Protocol, Instance: strings.Repeat("0", 32),
		Version: "check"}.Set(request.Header)
	client := &http.Client{Transport: w.transport, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return answer, nil
}

// checkHTTP requests a snapshot without a proof. A hub rejects that with a problem document.
func (w route) checkHTTP(ctx context.Context) Result {
	answer, err := w.get(ctx, agent.PathSnapshot)
	if err != nil {
		return fail("try again; if it persists, ask the operators of the proxy or the hub", "%s",
			plain(explain(w.base.Host, err).Error()))
	}
	refusal := refusalOf(answer)
	var r *Refusal
	if !errors.As(refusal, &r) || r.Status != http.StatusUnauthorized {
		return fail("is this the hub's URL, and does the hub's version support agents?",
			"%s, but a hub requires a proof: %s", answer.Status, plain(refusal.Error()))
	}
	if answer.ProtoMajor < 2 {
		return warn(
			"nothing, if a proxy does not support HTTP/2; the agent then needs two connections",
			"the hub responds over %s", answer.Proto)
	}
	return ok("the hub responds over %s", answer.Proto)
}

// maxSkew is the clock skew above which TLS and other programs on this machine fail.
const maxSkew = 2 * time.Minute

func (w route) checkClock(ctx context.Context) Result {
	began := time.Now()
	answer, err := w.get(ctx, "/readyz")
	if err != nil {
		return warn("", "the hub's time is unknown: %s", plain(err.Error()))
	}
	answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return fail("let the proxy forward the Date header: the agent takes the time from it",
			"the response has no Date header")
	}
	skew := began.Add(time.Since(began) / 2).Sub(date).Round(time.Second)
	if skew > maxSkew || skew < -maxSkew {
		return warn(
			"the agent uses the hub's time anyway; correct this machine's clock, because "+
				"certificates are verified with it", "this machine's clock is %s off the hub's",
			skew)
	}
	return ok("within %s of the hub's", max(skew.Abs(), time.Second))
}

// checkStream reads the hub's probe. A buffering proxy delivers both messages at once.
func (w route) checkStream(ctx context.Context) Result {
	answer, err := w.get(ctx, agent.PathProbe)
	if err != nil {
		return warn("try again", "failed to open a stream: %s", plain(err.Error()))
	}
	defer answer.Body.Close()
	if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"),
		";"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return warn("upgrade the hub to enable this check",
			"this hub has no probe for streams (%s)", answer.Status)
	}
	first, last, err := arrivals(answer.Body)
	switch {
	case err != nil:
		return fail("ask the operators of the proxy to disable buffering of text/event-stream",
			"a stream was interrupted: %s", plain(err.Error()))
	case last.Sub(first) < agent.ProbeGap/2:
		return fail(
			"ask the operators of the proxy to disable buffering of text/event-stream "+
				"(such as proxy_buffering off)",
			"a proxy buffers the stream until its end")
	}
	return ok("the stream is not buffered")
}

// arrivals returns when the first byte and the last one arrived.
func arrivals(body io.Reader) (first, last time.Time, err error) {
	buffer := make([]byte, 512)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			last = time.Now()
			if first.IsZero() {
				first = last
			}
		}
		if errors.Is(err, io.EOF) {
			if first.IsZero() {
				return first, last, io.ErrUnexpectedEOF
			}
			return first, last, nil
		}
		if err != nil {
			return first, last, err
		}
	}
}

// ClusterCheck verifies the agent's cluster with the rights of the caller.
type ClusterCheck struct {
	Client  kubernetes.Interface
	Install Install
}

func (c *ClusterCheck) run(ctx context.Context, report func(Result)) {
	in := *c
	in.Install = c.Install.withDefaults()
	if !runCheck(ctx, "kubernetes", report, in.checkServer) {
		return
	}
	for _, one := range []struct {
		name  string
		check func(context.Context) Result
	}{{"argocd", in.checkArgoCD}, {"rights", in.checkRights}, {"secrets policy", in.checkPolicy}} {
		runCheck(ctx, one.name, report, one.check)
	}
}

func (c *ClusterCheck) checkServer(context.Context) Result {
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return fail("is the kubeconfig, or the Pod's service account, that of the cluster?",
			"the API server is unreachable: %s", plain(err.Error()))
	}
	return ok("%s", plain(version.GitVersion))
}

// checkArgoCD verifies Argo CD's kinds, its settings in the namespace, and its version.
func (c *ClusterCheck) checkArgoCD(ctx context.Context) Result {
	install := "install Argo CD 2.14 or 3.x, or name its namespace with --argocd-namespace"
	if c.Install.InstallArgoCD {
		return c.checkNamespace(ctx)
	}
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion("argoproj.io/v1alpha1")
	switch {
	case apierrors.IsNotFound(err):
		return fail(install, "the cluster does not know Argo CD's kinds")
	case err != nil:
		return fail("try again", "failed to read Argo CD's kinds: %s", plain(err.Error()))
	}
	for _, plural := range []string{"applications", "appprojects"} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Name == plural
		}) {
			return fail(install, "the cluster does not know Argo CD's kind %s", plural)
		}
	}
	ns := c.Install.ArgoCDNamespace
	_, err = c.Client.CoreV1().ConfigMaps(ns).Get(ctx, "argocd-cm", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fail(install, "there is no ConfigMap argocd-cm in namespace %s", ns)
	case err != nil:
		return warn("repeat the check with the rights of an admin",
			"failed to check Argo CD in namespace %s: %s", ns, plain(err.Error()))
	}
	return ok("in namespace %s, %s", ns, c.version(ctx))
}

// checkNamespace verifies that the namespace exists in which the agent installs Argo CD.
func (c *ClusterCheck) checkNamespace(ctx context.Context) Result {
	ns := c.Install.ArgoCDNamespace
	_, err := c.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fail("kubectl create namespace "+ns, "there is no namespace %s", ns)
	case err != nil:
		return warn("repeat the check with the rights of an admin",
			"failed to read namespace %s: %s", ns, plain(err.Error()))
	}
	return ok("the control plane installs it in namespace %s", ns)
}

// version returns the tag of the controller's image or, without a tag, the version label of the
// controller.
func (c *ClusterCheck) version(ctx context.Context) string {
	selector := metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=argocd,app.kubernetes.io/component=application-controller"}
	sets, err := c.Client.AppsV1().StatefulSets(c.Install.ArgoCDNamespace).List(ctx, selector)
	if err == nil {
		for _, set := range sets.Items {
			for _, container := range set.Spec.Template.Spec.Containers {
				image, _, _ := strings.Cut(container.Image, "@")
				if _, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":"); ok {
					return plain(tag)
				}
			}
			if v := set.Labels["app.kubernetes.io/version"]; v != "" {
				return plain(v)
			}
		}
	}
	return "of an unknown version"
}

// need is one right that the agent's Roles grant.
type need struct{ namespace, group, resource, name, verb string }

func (n need) String() string {
	s := n.verb + " " + n.resource
	if n.name != "" {
		s += "/" + n.name
	}
	if n.namespace != "" {
		s += " in " + n.namespace
	}
	return s
}

// needs lists exactly the rights that the manifest's Roles grant.
func (in Install) needs() []need {
	in = in.withDefaults()
	var all []need
	granted := map[string][]rbac.PolicyRule{in.Namespace: in.ownRules(),
		in.ArgoCDNamespace: in.argoRules(), "": in.clusterRules()}
	for _, namespace := range in.furtherNamespaces() {
		granted[namespace] = in.furtherRules(namespace)
	}
	for namespace, rules := range granted {
		for _, rule := range rules {
			all = append(all, rightsOf(namespace, rule)...)
		}
	}
	slices.SortFunc(all, func(a, b need) int {
		return strings.Compare(a.namespace+a.String(), b.namespace+b.String())
	})
	return all
}

func rightsOf(namespace string, rule rbac.PolicyRule) []need {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []need
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, need{namespace, group, resource, name, verb})
				}
			}
		}
	}
	return all
}

// checkRights verifies each right of the manifest's Roles for the caller: the agent itself, or an
// admin, who may only grant rights that they have.
func (c *ClusterCheck) checkRights(ctx context.Context) Result {
	var missing []string
	all := c.Install.needs()
	for _, n := range all {
		review := &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorization.ResourceAttributes{
					Namespace: n.namespace, Group: n.group, Resource: n.resource, Name: n.name,
					Verb: n.verb}}}
		answer, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
			metav1.CreateOptions{})
		if err != nil {
			return fail("try again", "failed to check rights: %s", plain(err.Error()))
		}
		if !answer.Status.Allowed {
			missing = append(missing, n.String())
		}
	}
	if len(missing) == 0 {
		return ok("all %d that the agent needs", len(all))
	}
	return fail("apply the output of `argosy agent manifest` as an admin of the cluster",
		"missing: %s", firstNames(missing, 5))
}

func firstNames(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// checkPolicy verifies that the API server serves ValidatingAdmissionPolicy, which keeps the agent
// away from other Secrets.
func (c *ClusterCheck) checkPolicy(context.Context) Result {
	if !c.Install.writesSecrets() {
		return ok("not needed: the agent has no right on Secrets of Argo CD")
	}
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion(
		"admissionregistration.k8s.io/v1")
	if err != nil {
		return warn("repeat the check with the rights of an admin", "cannot be read: %s",
			plain(err.Error()))
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "validatingadmissionpolicies"
	}) {
		return warn(
			"upgrade to Kubernetes 1.30, or use --no-secrets; without it RBAC alone would let "+
				"the agent write to any Secret of Argo CD's namespace",
			"the API server has no ValidatingAdmissionPolicy")
	}
	return ok("the API server can restrict the agent to its own Secrets")
}

// ClusterUID returns the identity of a cluster: the UID of its namespace kube-system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("namespace kube-system, whose UID names the cluster: %w", err)
	}
	return string(ns.UID), nil
}
