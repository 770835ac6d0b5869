package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const agentNamespace = "argosy-agent"

// site is what an agent behind the firewall serves: an environment of acme, or a whole engine.
type site struct {
	*system
	edge   *example.Edge
	name   string // as people name it: acme/yard, or the engine
	engine fleet.EngineName
	// files that come first and go last: the environment, or the engine and who uses it
	around []string
	files  map[string]string // of what is deployed there
	agent  *stack.Process
	left   bool
}

// environment is a declaration of one that deploys to itself.
func environment(name, agent string, namespaces ...string) string {
	return fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata:
  name: %s
  labels: {tier: staging}
spec:
  agent: %s
  namespaces: [%s]
  region: eu
`, name, agent, strings.Join(namespaces, ", "))
}

// declareSite commits an environment of acme with its deployments, by their names. leave has to
// follow.
func (f *system) declareSite(t *testing.T, name, agent string, deployments map[string]string,
	namespaces ...string) *site {
	t.Helper()
	s := &site{
		system: f, edge: f.Edge, name: "acme/" + name, engine: fleet.EngineName("acme." + name),
		files: map[string]string{}}
	for _, namespace := range namespaces {
		if err := s.edge.Cluster.CreateNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	file := "tenants/acme/environments/" + name + ".yaml"
	s.around = []string{file}
	for deployed, content := range deployments {
		s.files["tenants/acme/deployments/"+deployed+".yaml"] = content
	}
	all := maps.Clone(s.files)
	all[file] = environment(name, agent, namespaces...)
	f.commit(t, "the site "+name, all)
	return s
}

// join joins the cluster with a new token, and runs its agent until it is up to date.
func (s *site) join(t *testing.T) {
	t.Helper()
	if _, err := s.edge.Join(binary, s.token(t)); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	eventually(t, "the agent of "+s.name+" is connected and up to date", s.shows(t, upToDate))
}

func (s *site) token(t *testing.T) string {
	t.Helper()
	args := []string{"agent", "token", "create", s.name}
	if !s.engine.OfEnvironment() {
		args = []string{"agent", "token", "create", "--engine", s.name}
	}
	return strings.TrimSpace(s.must(t, args...))
}

// start runs the command of the cluster's Deployment.
func (s *site) start(t *testing.T) {
	t.Helper()
	var err error
	if s.agent, err = s.edge.StartAgent(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
}

// shows asks for the agent and returns what the check finds missing.
func (s *site) shows(t *testing.T, look func(view.Agent) string) func() string {
	return func() string {
		t.Helper()
		for _, a := range list[view.Agent](t, s.system, "agents") {
			if a.Engine == s.engine {
				return look(a)
			}
		}
		return "not in `get agents`"
	}
}

// leave ends the site: what is deployed goes, then what is declared around it, then the agent. To
// be deferred; a second time does nothing.
func (s *site) leave(t *testing.T) {
	t.Helper()
	if s.left {
		return
	}
	s.left = true
	defer func() {
		if t.Failed() && s.agent != nil {
			t.Logf("the agent's log ends with\n%s", s.log(4000))
		}
	}()
	if s.agent != nil && ended(s.agent) { // it has something to remove yet
		if _, err := s.edge.Join(binary, s.token(t)); err != nil {
			t.Error(err)
		}
		s.start(t)
	}
	defer func() { s.agent.Stop() }()
	if len(s.files) > 0 {
		s.remove(t, s.name+" is emptied", slices.Sorted(maps.Keys(s.files))...)
	}
	if s.agent != nil {
		eventually(t, "no Application of "+s.name+" is left",
			s.kept(t, s.bare(t, applications)))
	}
	s.remove(t, s.name+" ends", s.around...)
	if s.agent != nil {
		eventually(t, "nothing of "+s.name+" is left",
			s.kept(t, s.bare(t, applications, projects, secrets)))
		// An agent that stops before it has reported this leaves its engine in use.
		eventually(t, "the control plane knows it", s.kept(t, func() string {
			var left int
			s.query(t, &left, `SELECT count(*) FROM desired WHERE engine = $1`, s.engine)
			if left > 0 {
				return fmt.Sprintf("%d rows of %s", left, s.engine)
			}
			return ""
		}))
	}
	s.agent.Stop()
	s.clear(t)
}

// kept starts an agent that has ended again, as its cluster would, before the check.
func (s *site) kept(t *testing.T, check func() string) func() string {
	return func() string {
		t.Helper()
		if ended(s.agent) {
			s.start(t)
		}
		return check()
	}
}

// clear takes off the cluster what an agent keeps there.
func (s *site) clear(t *testing.T) {
	t.Helper()
	core := s.edge.Cluster.Client().CoreV1()
	for _, err := range []error{
		core.Secrets(agentNamespace).Delete(t.Context(), agentNamespace, metav1.DeleteOptions{}),
		core.ConfigMaps(agentNamespace).Delete(t.Context(), "argosy-agent-deletions",
			metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

func ended(p *stack.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func (s *site) log(most int) string {
	text, err := os.ReadFile(s.agent.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

var (
	projects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "appprojects"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// ours are the site's objects of one kind on its cluster.
func (s *site) ours(t *testing.T, kind schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	found, err := s.edge.Cluster.Dynamic().Resource(kind).Namespace("argocd").List(t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=argosy"})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found.Items, func(o unstructured.Unstructured) bool {
		return o.GetAnnotations()["argosy.dev/engine"] != string(s.engine)
	})
}

func (s *site) bare(t *testing.T, kinds ...schema.GroupVersionResource) func() string {
	return func() string {
		t.Helper()
		var left []string
		for _, kind := range kinds {
			for _, o := range s.ours(t, kind) {
				left = append(left, o.GetKind()+" "+o.GetName())
			}
		}
		return strings.Join(left, ", ")
	}
}

// pods are the UIDs of a namespace's Pods behind the firewall.
func (s *site) pods(t *testing.T, namespace string) string {
	t.Helper()
	list, err := s.edge.Cluster.Client().CoreV1().Pods(namespace).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var uids []string
	for _, pod := range list.Items {
		uids = append(uids, string(pod.UID))
	}
	if len(uids) == 0 {
		t.Error("no Pod runs in " + namespace)
	}
	return strings.Join(slices.Sorted(slices.Values(uids)), " ")
}

// query asks the control plane's database.
func (f *system) query(t *testing.T, into any, sql string, args ...any) {
	t.Helper()
	conn := f.connect(t)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (f *system) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(),
		strings.TrimSuffix(strings.TrimPrefix(f.database, `{url: "`), `"}`))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// dump is every table of the database, as COPY writes it.
func (f *system) dump(t *testing.T) []byte {
	t.Helper()
	ctx, conn := t.Context(), f.connect(t)
	defer conn.Close(ctx)
	var all bytes.Buffer
	rows, err := conn.Query(ctx,
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if _, err := conn.PgConn().CopyTo(ctx, &all, "COPY "+table+" TO STDOUT"); err != nil {
			t.Fatalf("COPY %s: %v", table, err)
		}
	}
	return all.Bytes()
}

// logs are all that the control planes and what ran at the edge have printed.
func (f *system) logs(t *testing.T) []byte {
	t.Helper()
	var all bytes.Buffer
	for _, pattern := range []string{filepath.Join(f.Dir, "*.log"),
		filepath.Join(f.Edge.Dir, "*.log")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.Bytes()
}

// places are where a secret could have been left: name to content. Each has to hold the mark, so
// that one that was read wrongly is noticed.
func (f *system) places(t *testing.T, mark string, tapped []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"the database": f.dump(t), "the logs": f.logs(t),
		"what a proxy reads": tapped}
	for place, content := range all {
		if !bytes.Contains(content, []byte(mark)) {
			t.Errorf("%s (%d bytes) do not even name %s", place, len(content), mark)
		}
	}
	return all
}

// nowhere holds places against a secret, in whatever form they write such things.
func nowhere(t *testing.T, what, secret string, places map[string][]byte) {
	t.Helper()
	forms := [][]byte{[]byte(secret), []byte(hex.EncodeToString([]byte(secret)))}
	for shift := range 3 { // base64 of something that holds it
		in := append(make([]byte, shift), secret...)
		for _, code := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			text := code.EncodeToString(in)
			forms = append(forms, []byte(text[4:len(text)-4]))
		}
	}
	for place, content := range places {
		for _, form := range forms {
			if bytes.Contains(content, form) {
				t.Errorf("%s: it is in %s, as %.6s…", what, place, form)
			}
		}
	}
}

// canary is a secret that appears nowhere by chance.
func canary() string { return "canary-" + rand.Text() + rand.Text() }
