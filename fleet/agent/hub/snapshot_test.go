package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

func TestASnapshotIsCompleteAndItsDigestMatches(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	o.secrets.set("acme/git", "canary-1")
	for i := range 300 {
		r := application("acme.edge", "acme", fmt.Sprintf("app-%d", i))
		r.Unwanted = i == 7
		o.store.put(r)
	}
	key := o.store.put(repository("acme.edge", "acme", "repo", "git")).Key
	o.store.put(repository("acme.edge", "acme", "lost", "nowhere"))
	o.store.put(application("globex.edge", "globex", "foreign"))
	d.epoch = 41 // the epoch on an object of the cluster
	w := o.serve(d.get(agent.PathSnapshot, 0))
	var s agent.Snapshot
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 {
		t.Fatalf("%d: %v", w.Code, err)
	}
	if !s.Complete || s.Epoch != 42 || s.Cursor != 303 || len(s.Rows) != 302 ||
		s.Digest != agent.Digest(&s) {
		t.Errorf("complete %v, epoch %d, cursor %d, %d rows, digest %s want %s", s.Complete,
			s.Epoch, s.Cursor, len(s.Rows), s.Digest, agent.Digest(&s))
	}
	if s.Rows[7].Operation != agent.OperationRemove || s.Rows[8].Operation != agent.OperationApply {
		t.Error("a tombstone is not one")
	}
	if want := application("acme.edge", "acme", "app-8"); string(s.Rows[8].Manifest) != string(
		want.Manifest.Body) {
		t.Errorf("manifest %s", s.Rows[8].Manifest)
	}
	secret, err := agent.Open(d.keys, key, s.Rows[300].Credential.Sealed)
	if err != nil || string(secret.Value("password")) != "canary-1" ||
		s.Rows[301].Credential.Problem == "" {
		t.Errorf("credentials: %v, %+v", err, s.Rows[301].Credential)
	}
	if text := w.Body.String(); strings.Contains(text, "canary") ||
		strings.Contains(text, "foreign") {
		t.Error("it holds what it must not")
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Error("it may be cached")
	}
	if len(o.store.open) != 0 {
		t.Error("after the snapshot the agent is taken for connected")
	}
	o.serve(d.get(agent.PathSnapshot, 0))
	if len(o.hub.snapshots)+len(o.hub.reads)+len(o.hub.admission.unknownReads) != 0 {
		t.Error("slots were not given back")
	}
}

func TestAnEmptySnapshotIsCompleteToo(t *testing.T) {
	o := newTestHub(t)
	w := o.serve(o.newAgent("acme.edge", "acme").get(agent.PathSnapshot, 0))
	var s agent.Snapshot
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || !s.Complete || len(s.Rows) != 0 ||
		s.Digest != agent.Digest(&s) {
		t.Errorf("%s: %v", w.Body, err)
	}
}

func TestATruncatedSnapshotIsNeverComplete(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	for i := range 2000 {
		o.store.put(application("acme.edge", "acme", fmt.Sprintf("app-%d", i)))
	}
	server := httptest.NewServer(cutAfter(o.mux, 60<<10))
	defer server.Close()
	r := d.get(agent.PathSnapshot, 0)
	request, _ := http.NewRequest(http.MethodGet, server.URL+agent.PathSnapshot, nil)
	request.Header = r.Header
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the connection ended as if it were all: %v", err)
	}
	var s agent.Snapshot
	if err := json.Unmarshal(text, &s); err == nil || len(text) == 0 {
		t.Errorf("%d bytes pass as complete: %v, %d rows", len(text), s.Complete, len(s.Rows))
	}
	o.store.failWith(func(call string) error {
		if call == "AgentRows" {
			return errors.New("no connection")
		}
		return nil
	})
	wantRefusal(t, o.serve(d.get(agent.PathSnapshot, 0)), 503, agent.CodeBusy)
}

// cutAfter fails a response's writes after most bytes.
func cutAfter(next http.Handler, most int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&cutting{w, most}, r)
	})
}

type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		return 0, errors.New("cut")
	}
	return c.ResponseWriter.Write(b)
}

func TestASlowAgentsSnapshotHoldsNoReadOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t, func(c *Config) { c.Limits.Reads = 1 })
		o.store.put(application("slow.edge", "slow", "a"))
		d := o.newAgent("slow.edge", "slow")
		slow := o.stream(d.get(agent.PathSnapshot, 0), func(w *testStream) { w.hangs = true })
		synctest.Wait()
		if w := o.serve(
			o.newAgent("quick.edge", "quick").get(agent.PathSnapshot, 0)); w.Code != 200 {
			t.Errorf("another agent: %d", w.Code)
		}
		<-slow.ended
	})
}

func TestASnapshotAboveTheAgentsLimitIsNotSent(t *testing.T) {
	s := newSpool(100)
	if err := s.add(make([]byte, 99)); err != nil {
		t.Fatal(err)
	}
	if err := s.add([]byte("x")); !errors.Is(err, errSnapshotTooLarge) {
		t.Errorf("101 bytes: %v", err)
	}
}

func TestTheOlderRouteNeverLeaksItsToken(t *testing.T) {
	on := func(c *Config) { c.LegacyTokenPath = true }
	o := newTestHub(t, on)
	o.store.tokens[oneTime] = registry.Token{Engine: "acme.edge", Tenant: "acme", Legacy: true}
	o.store.tokens["not-for-this-0123456789"] = registry.Token{Engine: "acme.edge",
		Tenant: "acme"}
	o.store.put(application("acme.edge", "acme", "mine"))
	deleted := application("acme.edge", "acme", "gone")
	deleted.Unwanted = true
	o.store.put(deleted)
	o.store.put(repository("acme.edge", "acme", "repo", "git"))
	o.store.put(application("globex.edge", "globex", "foreign"))
	path := func(token string) string { return "/api/v1/cluster/" + token + "/applications" }
	get := func(o *testHub, target string) *httptest.ResponseRecorder {
		return o.serve(httptest.NewRequest(http.MethodGet, target, nil))
	}

	w := get(o, path(oneTime))
	var list struct {
		Kind  string
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 ||
		list.Kind != "List" || len(list.Items) != 1 || list.Items[0].Metadata.Name != "mine" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Deprecation") != "@1767225600" ||
		w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Sunset") != "" {
		t.Errorf("headers %v", w.Header())
	}

	unknown := get(o, "/api/v1/no/such/path")
	off := o.replica()
	for name, w := range map[string]*httptest.ResponseRecorder{
		"unknown":      get(o, path("unknown-token-0123456789")),
		"not for this": get(o, path("not-for-this-0123456789")), "short": get(o, path("x")),
		"long": get(o, path(strings.Repeat("x", 300))),
		"HEAD": o.serve(httptest.NewRequest(http.MethodHead, path(oneTime), nil)),
		"off":  get(off, path(oneTime)),
	} {
		if w.Code != 404 || w.Body.String() != unknown.Body.String() ||
			fmt.Sprint(w.Header()) != fmt.Sprint(unknown.Header()) {
			t.Errorf("%s: %d %q %v, unlike an unknown path: %q %v", name, w.Code, w.Body,
				w.Header(), unknown.Body, unknown.Header())
		}
	}
	// the literal is the protocol's
	wantRefusal(t, get(o, agent.PathSnapshot), 400, agent.CodeInvalid)

	o.stops.set(mirror.Stop{Scope: mirror.StopTenant, Name: "acme"})
	if w := get(o, path(oneTime)); w.Code != 503 || strings.Contains(w.Body.String(), "mine") {
		t.Errorf("while stopped: %d %s", w.Code, w.Body)
	}
	o.stops.set()
	for _, call := range []string{"LegacyToken", "AgentRows"} {
		o.store.failWith(func(c string) error {
			if c == call {
				return fmt.Errorf("query for %s failed", oneTime)
			}
			return nil
		})
		if w := get(o, path(oneTime)); w.Code != 503 || strings.Contains(w.Body.String(), oneTime) {
			t.Errorf("%s fails: %d %s", call, w.Code, w.Body)
		}
	}
	if strings.Contains(o.log.String(), oneTime) || !strings.Contains(o.log.String(), "redacted") {
		t.Errorf("log: %s", o.log)
	}
}

// body replaces the manifest of a row.
func body(r mirror.Row, manifest string) mirror.Row {
	sum := sha256.Sum256([]byte(manifest))
	r.Manifest = fleet.Manifest{Body: []byte(manifest), Hash: hex.EncodeToString(sum[:])}
	return r
}

// An earlier agent must leave alone what it would apply by half: an AppProject that opens a
// namespace of which the agent knows nothing, and the Applications there.
func TestAnEarlierAgentLeavesObjectsOfFurtherNamespacesAlone(t *testing.T) {
	row := application("acme.edge", "acme", "web")
	project := row
	project.Key.Kind = fleet.ObjectProject
	there := body(row, `{"metadata":{"annotations":{"argosy.dev/adopted":"apps/shop"},`+
		`"name":"shop","namespace":"apps"}}`)
	removed := there
	removed.Unwanted = true
	for name, c := range map[string]struct {
		row  mirror.Row
		want agent.Operation
	}{
		"an Application": {row, agent.OperationApply},
		"an adopted Application": {body(row, `{"metadata":{"annotations":`+
			`{"argosy.dev/adopted":"shop"},"name":"shop"},"spec":{"namespace":"apps"}}`),
			agent.OperationApply},
		"an Application elsewhere": {there, agent.OperationApplyFurther},
		"the removal of one":       {removed, agent.OperationRemove},
		"an AppProject":            {body(project, `{"spec":{}}`), agent.OperationApply},
		"an AppProject that opens it": {body(project, `{"spec":{"sourceNamespaces":["apps"]}}`),
			agent.OperationApplyFurther},
	} {
		if got := wireRow(c.row).Operation; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}

	o := newTestHub(t, func(c *Config) { c.LegacyTokenPath = true })
	o.store.tokens[oneTime] = registry.Token{Engine: "acme.edge", Tenant: "acme", Legacy: true}
	o.store.put(application("acme.edge", "acme", "mine"))
	o.store.put(there)
	w := o.serve(httptest.NewRequest(http.MethodGet, "/api/v1/cluster/"+oneTime+"/applications",
		nil))
	if w.Code != 503 || strings.Contains(w.Body.String(), "mine") {
		t.Errorf("the older route: %d %s", w.Code, w.Body)
	}
}
