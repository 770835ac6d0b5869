package agentruntime_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/agentruntime"
	"argosy.dev/argosy/cmd/argosy/server"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

func TestMain(m *testing.M) {
	code := m.Run()
	err := stack.StopShared()
	if cluster != nil {
		err = cluster.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// One API server serves all tests; each has namespaces of its own.
var (
	cluster   *stack.Cluster
	clusterMu sync.Mutex
)

func apiServer(t *testing.T) *stack.Cluster {
	t.Helper()
	clusterMu.Lock()
	defer clusterMu.Unlock()
	if cluster == nil {
		c, err := stack.StartCluster(context.Background(), stack.ClusterOptions{
			Name: "agentruntime"})
		if err != nil {
			t.Fatal(err)
		}
		cluster = c
		if err := c.InstallArgoCRDs(context.Background(), "3.5"); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

const (
	patience  = 3 * time.Minute
	bootstrap = "bootstrap-token-of-this-test-and-no-other"
)

// site is a control plane over a real Git server and a real PostgreSQL, behind something that ends
// TLS, and a cluster with an Argo CD that does not run.
type site struct {
	*testing.T
	config   *stack.Repo
	cluster  *stack.Cluster
	client   *client.Client
	database string // URL
	hub      string // URL, as the agent knows it
	ca       []byte
	argocd   string // namespace
	agent    string // namespace
	sessions sessionFilter
	older    olderHub
}

// sessionFilter refuses the sessions of one version of the agent, and nothing else of it.
type sessionFilter struct{ refused atomic.Value }

func (f *sessionFilter) refuse(version string) { f.refused.Store(version) }

func (f *sessionFilter) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := r.Header.Get(agent.HeaderVersion)
		if version != "" && version == f.refused.Load() &&
			(r.URL.Path == agent.PathStream || r.URL.Path == agent.PathSnapshot) {
			http.Error(w, "no session for "+version, http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// declared is the config repo: one tenant with one environment whose cluster deploys to itself.
func declared(argocd, mode string) map[string]string {
	return map[string]string{
		"fleet/fleet.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: Fleet\nmetadata: {name: " +
			"fleet}\nspec:\n  owners: [\"github:example/platform\"]\n  gitHosts: " +
			"[git.example.com]\n",
		"fleet/tenants/acme.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: Tenant\nmetadata: " +
			"{name: acme}\nspec:\n  owners: [\"github:example/acme\"]\n" +
			"  quota: {environments: 5, deployments: 5, applications: 5}\n  repositories: " +
			"[\"https://git.example.com/acme/\"]\n  clusters: [.example.com]\n",
		"tenants/acme/environments/edge.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: " +
			"ManagedEnvironment\nmetadata: {name: edge}\nspec:\n" +
			"  agent: {argocdNamespace: " + argocd + ", mode: " + mode +
			"}\n  namespaces: [web]\n  region: eu\n",
	}
}

const web = "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: web}\nspec:\n  source: {repoURL: \"https://git.example.com/acme/web\", path: deploy, targetRevision: main}\n" +
	"  destination: {environments: [edge], namespace: web}\n"

func newSite(t *testing.T, mode, name string) *site {
	t.Helper()
	ctx := t.Context()
	s := &site{T: t, cluster: apiServer(t), argocd: "argocd-" + name, agent: "agent-" + name}
	for _, namespace := range []string{s.argocd, s.agent} {
		s.must(s.cluster.CreateNamespace(ctx, namespace))
	}
	s.must(s.cluster.Apply(ctx, object("v1", "ConfigMap", "argocd-cm", s.argocd, map[string]any{
		"data": map[string]any{"application.resourceTrackingMethod": "annotation"}}),
		object("argoproj.io/v1alpha1", "AppProject", "default", s.argocd, map[string]any{
			"spec": map[string]any{"sourceRepos": []any{}, "destinations": []any{}}})))
	git, err := stack.StartGit(ctx, t.TempDir())
	s.must(err)
	t.Cleanup(func() { _ = git.Stop() })
	s.config, err = git.CreateRepo(ctx, "platform/config")
	s.must(err)
	s.commit(declared(s.argocd, mode))
	s.serve(ctx, strings.ReplaceAll(name, "-", "_"))
	return s
}

func object(apiVersion, kind, name, namespace string,
	more map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
		"name": name, "namespace": namespace}}
	for k, v := range more {
		o[k] = v
	}
	return &unstructured.Unstructured{Object: o}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) commit(files map[string]string) {
	s.Helper()
	_, err := s.config.Commit(s.Context(), "a change", files)
	s.must(err)
}

// serve runs the control plane, and TLS in front of it.
func (s *site) serve(ctx context.Context, name string) {
	s.Helper()
	postgres, err := stack.SharedPostgres(ctx)
	s.must(err)
	database, err := postgres.NewDatabase(ctx, "agentruntime_"+name)
	s.must(err)
	s.database = database
	behind := &httputil.ReverseProxy{FlushInterval: -1}
	front := httptest.NewTLSServer(s.sessions.before(s.older.before(behind)))
	s.hub, s.ca = front.URL,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	dir := s.TempDir()
	s.must(os.WriteFile(filepath.Join(dir, "token"), []byte(bootstrap), 0o600))
	file := filepath.Join(dir, "argosy.yaml")
	s.must(
		os.WriteFile(file,
			fmt.Appendf(nil,
				"source: {url: %q, allowHTTP: true, poll: 1s}\ndatabase: {url: %q}\ndataDir: "+
					"data\nlisten: {address: \"127.0.0.1:0\", ops: \"127.0.0.1:0\", publicURL: %q}\n"+
					"engines: {poll: 1s}\nbootstrapTokenFile: token\n", s.config.URL, database,
				s.hub),
			0o600))
	read, err := settings.Load(file)
	s.must(err)
	v, err := server.New(ctx, read, slog.New(slog.NewTextHandler(testWriter{s.T}, nil)), "test")
	s.must(err)
	address := "http://" + v.Address()
	target, err := url.Parse(address)
	s.must(err)
	behind.ModifyResponse = s.older.rewrite
	behind.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(target) }
	s.start("control plane", v.Run)
	s.Cleanup(front.Close)
	s.client, err = client.New(address, bootstrap, "test")
	s.must(err)
}

// start runs something until the test ends, and waits for its end.
func (s *site) start(what string, run func(context.Context) error) <-chan error {
	ctx, cancel := context.WithCancel(context.Background())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- run(ctx)
	}()
	s.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			s.Errorf("the %s does not end", what)
		}
	})
	return result
}

// testWriter logs into the test, until it has ended.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

// join makes a token where the environment is declared, and swaps it on the cluster.
func (s *site) join() {
	s.Helper()
	var made wire.CreatedAgentToken
	s.until("a token is made for the declared environment", func() (err error) {
		made, err = s.client.CreateAgentToken(s.Context(), wire.AgentTokenRequest{
			Tenant: "acme", Environment: "edge"})
		return err
	})
	identities := edge.NewIdentityStore(edge.SecretStore(s.cluster.Client(), s.agent, edge.Name))
	to, err := edge.NewClient(edge.Settings{Hub: s.hub, CA: s.ca, Version: "test"}, identities)
	s.must(err)
	defer to.Close()
	uid, err := edge.ClusterUID(s.Context(), s.cluster.Client())
	s.must(err)
	_, err = identities.Join(s.Context(), s.hub, to, made.Plaintext, uid, "test")
	s.must(err)
}

// run runs the agent; the channel returns its error.
func (s *site) run() <-chan error {
	s.Helper()
	a, err := agentruntime.New(
		agentruntime.Config{Hub: s.hub, Namespace: s.agent, ArgoCDNamespace: s.argocd,
			CA: s.ca, MaxDeletions: 20, InFlight: 8,
			Cluster: rest.CopyConfig(s.cluster.REST()), Ops: "127.0.0.1:0", Version: "test",
			Log: slog.New(slog.NewTextHandler(testWriter{s.T}, nil))})
	s.must(err)
	return s.start("agent", a.Run)
}

// until asks again until there is no error.
func (s *site) until(what string, so func() error) {
	s.Helper()
	tick, late := time.NewTicker(50*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-late:
			s.Fatalf("not so within %s: %s: %v", patience, what, err)
		case <-tick.C:
		}
	}
}

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "applications"}
	appProjects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "appprojects"}
)

// agentView is the one agent, as people see it.
func (s *site) agentView() (view.Agent, error) {
	return s.client.Agent(s.Context(), "acme.edge")
}
