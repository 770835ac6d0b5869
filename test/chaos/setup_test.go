package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

var (
	tenants      = []string{"acme", "globex"}
	environments = map[string][]string{"acme": {"prod", "staging"}, "globex": {"prod"}}
	engineNames  = []string{"eu-1", "eu-2"}
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "applications"}
	projects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "appprojects"}
	setups atomic.Int64
)

const (
	databaseName = "argosy"
	bootstrap    = "argosy-chaos-token-that-is-long-enough"
)

func canary(tenant string) string { return "canary-of-" + tenant }

// setup is everything that a history runs on. Only the API server is shared with other histories.
type setup struct {
	t     testing.TB
	ctx   context.Context
	dir   string
	model *model

	engines  map[string]*stack.ArgoCD // by name; installed, not running
	primary  *stack.Postgres
	standby  *stack.Standby // nil once it was promoted
	promoted *stack.Standby // the primary since a fail-over
	database *stack.Outlet  // the address that every replica knows
	direct   atomic.Pointer[string]
	git      *stack.GitServer
	repo     *stack.Repo
	host     *host             // in place of git and repo, in histories that have a Git host
	head     string            // of the config repo's branch
	content  map[string]string // by path: what the platform last wrote
	front    *httptest.Server  // before the Git server or the Git host
	lie      atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	replicas []*replica

	background sync.WaitGroup
	end        context.CancelFunc
}

// replica is one `argosy serve` with ways of its own to the database and to each engine.
type replica struct {
	name     string
	config   string
	address  string
	ops      string
	client   *client.Client
	process  *stack.Process
	database *stack.Outlet
	proxies  map[string]*stack.Proxy
	faults   map[string]*faults // by engine
}

// faults are what a replica's requests to one engine meet.
type faults struct {
	mu     sync.Mutex
	refuse int           // so many mutating requests are answered 429
	lose   int           // so many mutating requests are carried out, and their answers are lost
	delay  time.Duration // of every request
	away   bool
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newSetup(t testing.TB, hosted bool) *setup {
	t.Helper()
	dir, err := os.MkdirTemp("", "argosy-history-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	w := &setup{t: t, dir: dir, model: newModel(), engines: map[string]*stack.ArgoCD{},
		content: map[string]string{}}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.startEngines()
	w.startDatabase()
	w.startGit(hosted)
	for _, name := range []string{"a", "b"} {
		w.replicas = append(w.replicas, w.newReplica(name))
	}
	w.background.Go(w.endCascades)
	return w
}

// close ends everything and removes what the history left on the API server.
func (w *setup) close() {
	w.end()
	for _, r := range w.replicas {
		if r.process != nil {
			r.process.Kill()
		}
		for _, p := range r.proxies {
			p.Stop()
		}
		r.database.Close()
	}
	w.background.Wait()
	w.front.Close()
	var errs []error
	for _, e := range w.engines {
		errs = append(errs, cluster.Client().CoreV1().Namespaces().Delete(context.Background(),
			e.Namespace, metav1.DeleteOptions{}), e.Stop())
	}
	for _, s := range []*stack.Standby{w.standby, w.promoted} {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	w.database.Close()
	if w.host != nil {
		w.host.hooks.Close()
		errs = append(errs, w.host.repo.Delete(context.Background()))
	} else {
		errs = append(errs, w.git.Stop())
	}
	errs = append(errs, w.primary.Stop(), os.RemoveAll(w.dir))
	if err := errors.Join(errs...); err != nil {
		w.t.Log(err)
	}
}

func (w *setup) startEngines() {
	n := setups.Add(1)
	for _, name := range engineNames {
		namespace := fmt.Sprintf("argocd-%s-%d", name, n)
		w.engines[name] = must(stack.InstallArgoCD(w.ctx, stack.ArgoOptions{
			Cluster: cluster, Version: "3.5", Namespace: namespace}))(w.t)
	}
}

func (w *setup) startDatabase() {
	w.primary = must(stack.StartPostgresWith(w.ctx, stack.PostgresOptions{Replicated: true}))(w.t)
	must(w.primary.NewDatabase(w.ctx, databaseName))(w.t)
	w.standby = must(w.primary.StartStandby(w.ctx, ""))(w.t)
	w.database = must((*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil, w.primary.Address()))(w.t)
	w.directly(w.primary.DatabaseURL(databaseName))
}

// directly is the URL by which the rules read the store themselves.
func (w *setup) directly(url string) { w.direct.Store(&url) }

// startGit starts the Git server, or makes a repository on the Git host, and the front that lies.
func (w *setup) startGit(hosted bool) {
	address := ""
	if hosted {
		w.startHost()
		address = w.host.URL
	} else {
		w.git = must(stack.StartGit(w.ctx, ""))(w.t)
		w.repo = must(w.git.CreateRepo(w.ctx, "config"))(w.t)
		w.push(stack.Change{Message: "begin", Write: w.platform()})
		address = w.git.URL
	}
	forward := httputil.NewSingleHostReverseProxy(must(url.Parse(address))(w.t))
	w.front = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if lie := w.lie.Load(); lie != nil && (*lie)(rw, r) {
			return
		}
		forward.ServeHTTP(rw, r)
	}))
}

// platform is what the config repo begins with.
func (w *setup) platform() map[string]string {
	files := map[string]string{"fleet/fleet.yaml": document("Fleet", "fleet", fmt.Sprintf(
		"guards: {maxDeletes: %d, maxDeletePercent: 100, alwaysAllowed: 1, window: %s}\n  "+
			"gitHosts: [git.example.com]", maxDeletes, guardWindow))}
	for name, e := range w.engines {
		files["fleet/engines/"+name+".yaml"] = document("Engine", name, fmt.Sprintf(
			"argocd: {namespace: %s, installationID: %s}\n  connection: {kubeconfigRef: {name: "+
				"engine-%s}}\n  region: eu\n  capacity: {applications: 500, environments: 50}",
			e.Namespace, e.InstallationID, name))
	}
	for _, tenant := range tenants {
		files["fleet/tenants/"+tenant+".yaml"] = document("Tenant", tenant, fmt.Sprintf(
			"owners: [\"group:%s\"]\n  quota: {environments: 10, deployments: 300, "+
				"applications: 400}\n  repositories: [\"https://git.example.com/%s/\"]\n  "+
				"clusters: [.%s.example.com]\n  placement: {regions: [eu]}",
			tenant, tenant, tenant))
		for _, environment := range environments[tenant] {
			files["tenants/"+tenant+"/environments/"+environment+".yaml"] = document(
				"ManagedEnvironment", environment, fmt.Sprintf(
					"cluster: {server: \"https://%s.%s.example.com:6443\", credentialsRef: {name: "+
						"cluster}}\n  namespaces: [%s-web]\n  region: eu", environment, tenant,
					tenant))
		}
	}
	return files
}

func document(kind, name, spec string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec:\n  %s\n", kind,
		name, spec)
}

func deployment(tenant, name string, version int, policy string, in []string) (path, text string) {
	return "tenants/" + tenant + "/deployments/" + name + ".yaml",
		document("GitOpsDeployment", name, fmt.Sprintf(
			"source: {repoURL: \"https://git.example.com/%s/%s\", path: deploy, targetRevision: "+
				"v%d}\n  destination: {environments: [%s], namespace: %s-web}\n  deletionPolicy: %s",
			tenant, name, version, strings.Join(in, ", "), tenant, policy))
}

func (w *setup) newReplica(name string) *replica {
	r := &replica{name: name, config: filepath.Join(w.dir, name+".yaml"),
		proxies: map[string]*stack.Proxy{}, faults: map[string]*faults{}}
	r.database = must((*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil, w.database.Address))(w.t)
	secrets := filepath.Join(w.dir, name+"-secrets")
	for engine, argo := range w.engines {
		f := &faults{}
		p := must(stack.StartProxy(cluster))(w.t)
		p.Order(func(rw http.ResponseWriter, q *http.Request) bool {
			return w.request(p, f, engine, rw, q)
		})
		r.proxies[engine], r.faults[engine] = p, f
		writeSecret(w.t, secrets, "_fleet", "engine-"+engine, "kubeconfig",
			throughProxy(w.t, argo.Kubeconfig, p))
	}
	for _, tenant := range tenants {
		writeSecret(w.t, secrets, tenant, "cluster", "token", []byte(canary(tenant)))
	}
	listen, ops := must(stack.FreeAddress())(w.t), must(stack.FreeAddress())(w.t)
	token := filepath.Join(w.dir, "token")
	if err := os.WriteFile(token, []byte(bootstrap), 0o600); err != nil {
		w.t.Fatal(err)
	}
	text := fmt.Sprintf(`source: {url: %q, allowHTTP: true, poll: 1s}
database: {url: %q}
dataDir: %q
secrets: {directory: %q}
listen: {address: %q, ops: %q}
engines: {poll: 1s}
bootstrapTokenFile: %q
%s`, w.front.URL+w.source(), w.primary.Through(r.database, databaseName), filepath.Join(w.dir, name+"-data"), secrets, listen, ops, token, w.forgeSettings())
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	r.address, r.ops = "http://"+listen, "http://"+ops
	r.client = must(client.New(r.address, bootstrap, "chaos"))(w.t)
	w.start(r)
	return r
}

func writeSecret(t testing.TB, root, tenant, name, key string, value []byte) {
	t.Helper()
	dir := filepath.Join(root, tenant, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
		t.Fatal(err)
	}
}

// throughProxy is the kubeconfig with the proxy in place of the API server.
func throughProxy(t testing.TB, file string, p *stack.Proxy) []byte {
	t.Helper()
	config := must(clientcmd.LoadFromFile(file))(t)
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthorityData = p.Server, p.CA
	}
	return must(clientcmd.Write(*config))(t)
}

// start runs the replica unless it runs.
func (w *setup) start(r *replica) {
	w.t.Helper()
	if r.process != nil {
		select {
		case <-r.process.Done():
		default:
			return
		}
	}
	r.process = must(stack.StartProcess(stack.Command{Name: "argosy-" + r.name, Path: binary,
		Args: []string{"serve", "-f", r.config}, Log: filepath.Join(w.dir, r.name+".log")}))(w.t)
}

// request is what a replica's request to an engine meets: first its faults, then the rules.
func (w *setup) request(p *stack.Proxy, f *faults, engine string, rw http.ResponseWriter,
	q *http.Request) bool {
	f.mu.Lock()
	delay, away, refuse, lose := f.delay, f.away, false, false
	mutates := q.Method != http.MethodGet
	if mutates && f.refuse > 0 {
		f.refuse--
		refuse = true
	} else if mutates && f.lose > 0 {
		f.lose--
		lose = true
	}
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-q.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	switch {
	case away:
		panic(http.ErrAbortHandler)
	case refuse:
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	case !mutates:
		return false
	}
	w.write(p, engine, rw, q, lose, false)
	return true
}

// write passes a mutating request on and reports it to the model when it was carried out.
func (w *setup) write(p *stack.Proxy, engine string, rw http.ResponseWriter, q *http.Request, lose,
	late bool) {
	content, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	q.Body = io.NopCloser(bytes.NewReader(content))
	if q.Method == http.MethodDelete && !late {
		w.mayDelete(engine, q.URL.Path)
	}
	seen := &statusWriter{ResponseWriter: rw, muted: lose}
	if lose {
		q = q.WithContext(context.WithoutCancel(q.Context()))
	}
	p.Forward(seen, q)
	if seen.status < 300 {
		w.model.wrote(q.Method, q.URL.Path, content, late)
	}
	if lose {
		panic(http.ErrAbortHandler)
	}
}

// statusWriter remembers the status. Muted, it keeps the answer to itself.
type statusWriter struct {
	http.ResponseWriter
	status int
	muted  bool
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	if !s.muted {
		s.ResponseWriter.WriteHeader(status)
	}
}

func (s *statusWriter) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.muted {
		return len(b), nil
	}
	return s.ResponseWriter.Write(b)
}

func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// inFlight is how long ago a row may have come back while a deletion that was right when it was
// sent is still on its way. The object's resourceVersion and the finalizer that such a deletion has
// set beforehand keep it from doing harm: the row's next write takes both away.
const inFlight = 5 * time.Second

// mayDelete holds a deletion of an Application against the store at this instant: the row must be
// absent, or have been until just now, or the config repo must not have it and nothing but a
// tombstone be left.
func (w *setup) mayDelete(engine, path string) {
	kind, name := kindOf(path)
	if kind != "applications" {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, *w.direct.Load())
	if err != nil {
		return // the store itself is being replaced; the end of the history judges
	}
	defer conn.Close(ctx)
	var absent bool
	err = conn.QueryRow(ctx, `SELECT absent OR changed_at > now() - $3::interval FROM desired
		WHERE engine = $1 AND kind = 'Application' AND name = $2`, engine, name, inFlight).Scan(&absent)
	if err == nil && !absent {
		w.model.violated("DELETE of Application %s on %s while its row is wanted", name, engine)
	}
}

// endCascades plays Argo CD's part in a deletion: it takes the finalizers off.
func (w *setup) endCascades() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		for _, e := range w.engines {
			w.endCascade(e.Namespace)
		}
	}
}

func (w *setup) endCascade(namespace string) {
	all, err := cluster.Dynamic().Resource(applications).Namespace(namespace).List(w.ctx,
		metav1.ListOptions{})
	if err != nil {
		return // the API server is away; the next tick asks again
	}
	for _, o := range all.Items {
		if o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) == 0 {
			continue
		}
		_, _ = cluster.Dynamic().Resource(applications).Namespace(namespace).Patch(w.ctx,
			o.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}

// live are the Applications of all engines.
func (w *setup) live() (map[app][]*unstructured.Unstructured, error) {
	out := map[app][]*unstructured.Unstructured{}
	for _, e := range w.engines {
		all, err := cluster.Dynamic().Resource(applications).Namespace(e.Namespace).List(w.ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=argosy"})
		if err != nil {
			return nil, err
		}
		for i := range all.Items {
			l := all.Items[i].GetLabels()
			at := app{l["argosy.dev/tenant"], l["argosy.dev/deployment"],
				l["argosy.dev/environment"]}
			out[at] = append(out[at], &all.Items[i])
		}
	}
	return out, nil
}

// settled returns an error unless the engines hold exactly the head's objects, each acknowledged,
// according to a replica and to the engines themselves.
func (w *setup) converged() error {
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	r := w.replicas[0]
	source, err := r.client.Source(ctx)
	if err != nil {
		return err
	}
	if string(source.Applied) != w.head {
		return fmt.Errorf("revision %s is applied, not the head %s; the source reports %q",
			source.Applied.Short(), w.head[:8], source.Error)
	}
	views, err := r.client.Applications(ctx, view.Filter{}, 1000)
	if err != nil {
		return err
	}
	for _, v := range views {
		if v.Apply != mirror.ApplyApplied {
			return fmt.Errorf("%s/%s@%s is %s: %s", v.Tenant, v.Deployment, v.Environment, v.Apply,
				v.ApplyMessage)
		}
	}
	return w.same()
}

// same compares what lives with the config repo.
func (w *setup) same() error {
	live, err := w.live()
	if err != nil {
		return err
	}
	wanted := w.model.wanted()
	for a, version := range wanted {
		switch objects := live[a]; {
		case len(objects) != 1:
			return fmt.Errorf("%s/%s@%s: %d Applications live, want 1", a.tenant, a.name,
				a.environment, len(objects))
		default:
			got, _, _ := unstructured.NestedString(objects[0].Object, "spec", "source",
				"targetRevision")
			if got != fmt.Sprintf("v%d", version) {
				return fmt.Errorf("%s/%s@%s is at %s, want v%d", a.tenant, a.name, a.environment,
					got, version)
			}
		}
	}
	known, err := w.known()
	if err != nil {
		return err
	}
	for _, a := range slices.SortedFunc(maps.Keys(live), func(a, b app) int {
		return strings.Compare(a.name, b.name)
	}) {
		_, ok := wanted[a]
		for _, o := range live[a] {
			if !ok && !known[o.GetName()].orphan {
				return fmt.Errorf("%s/%s@%s lives, and the config repo does not have it", a.tenant,
					a.name, a.environment)
			}
		}
	}
	return w.accounted(known)
}

// record is the store's record of an object's name.
type record struct{ row, orphan bool }

// known are the names of all rows and listed orphans.
func (w *setup) known() (map[string]record, error) {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	rows, err := conn.Query(w.ctx,
		`SELECT name, false FROM desired UNION ALL SELECT name, true FROM strays`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]record{}
	for rows.Next() {
		var name string
		var orphan bool
		if err := rows.Scan(&name, &orphan); err != nil {
			return nil, err
		}
		s := out[name]
		s.row, s.orphan = s.row || !orphan, s.orphan || orphan
		out[name] = s
	}
	return out, rows.Err()
}

// accounted: every object of ours on an engine has a row or is a listed orphan.
func (w *setup) accounted(known map[string]record) error {
	for _, e := range w.engines {
		for _, r := range []schema.GroupVersionResource{applications, projects,
			{Version: "v1", Resource: "secrets"}} {
			all, err := cluster.Dynamic().Resource(r).Namespace(e.Namespace).List(w.ctx,
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=argosy"})
			if err != nil {
				return err
			}
			for _, o := range all.Items {
				if s := known[o.GetName()]; !s.row && !s.orphan {
					return fmt.Errorf("%s %s in %s has no row and is no listed orphan", r.Resource,
						o.GetName(), e.Namespace)
				}
			}
		}
	}
	return nil
}
