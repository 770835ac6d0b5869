package hub

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const hubURL = "https://hub.example"

// fakeSecrets returns preset secrets.
type fakeSecrets struct {
	mu    sync.Mutex
	all   map[string]fleet.Secret
	hangs bool
}

func (f *fakeSecrets) Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	f.mu.Lock()
	s, ok := f.all[string(ref.Tenant)+"/"+ref.Name]
	hangs := f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fleet.Secret{}, ctx.Err()
	}
	if !ok {
		return s, fmt.Errorf("secret %s of tenant %s is not there", ref.Name, ref.Tenant)
	}
	return s, nil
}

func (f *fakeSecrets) set(name, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[name] = fleet.NewSecret(map[string][]byte{"password": []byte(value)})
}

// fakeStops holds the emergency stops of a replica.
type fakeStops struct {
	mu      sync.Mutex
	loaded  bool
	stops   []mirror.Stop
	ends    []mirror.StopEnd
	changed chan struct{}
}

func (f *fakeStops) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeStops) On(engine fleet.EngineName) []mirror.Stop {
	f.mu.Lock()
	defer f.mu.Unlock()
	var on []mirror.Stop
	for _, s := range f.stops {
		if s.Scope != mirror.StopEngine || s.Name == string(engine) {
			on = append(on, s)
		}
	}
	return on
}

func (f *fakeStops) Ends(fleet.EngineName) []mirror.StopEnd {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ends
}

func (f *fakeStops) Stopped(engine fleet.EngineName) func(fleet.TenantName) bool {
	return func(tenant fleet.TenantName) bool {
		f.mu.Lock()
		loaded := f.loaded
		f.mu.Unlock()
		for _, s := range f.On(engine) {
			if s.Scope != mirror.StopTenant || s.Name == string(tenant) {
				return true
			}
		}
		return !loaded
	}
}

func (f *fakeStops) set(stops ...mirror.Stop) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops, f.loaded = stops, true
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeStops) ended(ends ...mirror.StopEnd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = ends
	close(f.changed)
	f.changed = make(chan struct{})
}

// testHub is a hub with its dependencies in memory.
type testHub struct {
	t       testing.TB
	hub     *Hub
	store   *fakeStore
	secrets *fakeSecrets
	stops   *fakeStops
	mux     *http.ServeMux
	log     *logged
}

func newTestHub(t testing.TB, change ...func(*Config)) *testHub {
	t.Helper()
	o := &testHub{
		t: t, store: newFakeStore(), secrets: &fakeSecrets{all: map[string]fleet.Secret{}},
		log:   &logged{},
		stops: &fakeStops{changed: make(chan struct{}), loaded: true}, mux: http.NewServeMux()}
	return o.replica(change...)
}

// replica returns another hub on the same store.
func (o *testHub) replica(change ...func(*Config)) *testHub {
	o.t.Helper()
	r := *o
	r.mux = http.NewServeMux()
	c := Config{Store: r.store.parts(), Secrets: r.secrets, Stops: r.stops, PublicURL: hubURL + "/",
		Replica: "replica-1", Version: "v1",
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&c)
	}
	var err error
	if r.hub, err = New(c); err != nil {
		o.t.Fatal(err)
	}
	r.hub.Register(r.mux)
	for range 2 { // until the rows are confirmed
		r.hub.feed.poll(o.t.Context())
	}
	r.store.do(func() {
		for _, call := range []string{"AgentNews", "WantConfirmed", "Notify"} {
			delete(r.store.calls, call)
		}
	})
	return &r
}

// logged records log output.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// withAgent runs the test in a synctest bubble, on a running hub with the agent of acme.edge.
func withAgent(t *testing.T, test func(t *testing.T, o *testHub, d *testAgent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		test(t, o, o.newAgent("acme.edge", "acme"))
	})
}

// run starts the hub and returns a function that stops it and waits.
func (o *testHub) run() func() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { o.hub.Run(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

func (o *testHub) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	o.mux.ServeHTTP(w, r)
	return w
}

// testAgent is an agent from the hub's perspective.
type testAgent struct {
	o        *testHub
	keys     agent.PrivateKeys
	id       string
	instance string
	token    string
	epoch    int64
}

// testAgent stores an identity and an access token.
func (o *testHub) newAgent(engine fleet.EngineName, tenant fleet.TenantName) *testAgent {
	o.t.Helper()
	keys, err := agent.NewKeys()
	if err != nil {
		o.t.Fatal(err)
	}
	d := &testAgent{o: o, keys: keys, id: "agent-" + strings.ReplaceAll(string(engine), ".", "-"),
		instance: strings.Repeat("i", 22)}
	o.store.do(func() {
		o.store.agents[d.id] = registry.Agent{ID: d.id, Engine: engine, Tenant: tenant,
			Keys: keys.Public(), ExpiresAt: time.Now().Add(90 * 24 * time.Hour)}
	})
	d.renew()
	return d
}

// renew stores an access token without asking the hub.
func (d *testAgent) renew() {
	sum := sha256.Sum256(fmt.Append(nil, d.id, d.instance, time.Now().UnixNano()))
	d.token = hex.EncodeToString(sum[:])[:tokenLength]
	d.o.store.do(func() { d.o.store.access[sha256.Sum256([]byte(d.token))] = d.id })
}

func (d *testAgent) session(cursor int64) agent.Session {
	return agent.Session{Protocol: agent.Protocol, Instance: d.instance, Epoch: d.epoch,
		Version: "v1", Cursor: cursor}
}

// get returns a GET with a proof.
func (d *testAgent) get(path string, cursor int64) *http.Request {
	d.o.t.Helper()
	s := d.session(cursor)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	s.Set(r.Header)
	return d.proven(r, path, s.Bytes())
}

// post returns a POST with a proof.
func (d *testAgent) post(path string, body []byte) *http.Request {
	d.o.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	d.session(0).Set(r.Header)
	return d.proven(r, path, body)
}

func (d *testAgent) proven(r *http.Request, path string, statement []byte) *http.Request {
	proof, err := agent.Prove(d.keys, r.Method, path, d.token, statement, d.o.hub.now())
	if err != nil {
		d.o.t.Fatal(err)
	}
	r.Header.Set("Authorization", "DPoP "+d.token)
	r.Header.Set(agent.HeaderProof, proof)
	return r
}

func (d *testAgent) report(report agent.Report) *httptest.ResponseRecorder {
	d.o.t.Helper()
	body, err := json.Marshal(report)
	if err != nil {
		d.o.t.Fatal(err)
	}
	return d.o.serve(d.post(agent.PathStatus, body))
}

// open takes the lease like a stream.
func (d *testAgent) open() int64 {
	d.o.t.Helper()
	opening, err := d.o.store.OpenAgent(context.Background(), registry.Session{
		Agent: d.id, Instance: d.instance, Replica: "r", Floor: d.epoch, Proof: rand.Text()})
	if err != nil {
		d.o.t.Fatal(err)
	}
	d.epoch = opening.Lease.Epoch
	return d.epoch
}

func tokenRequest(assertion string) *http.Request {
	form := url.Values{"grant_type": {grantType}, "client_assertion_type": {assertionType},
		"client_assertion": {assertion}}
	r := httptest.NewRequest(http.MethodPost, agent.PathToken, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func (d *testAgent) assertion() string {
	raw, err := agent.Assertion(d.keys, d.id, hubURL, d.o.hub.now())
	if err != nil {
		d.o.t.Fatal(err)
	}
	return raw
}

func problemOf(t testing.TB, w *httptest.ResponseRecorder) agent.Problem {
	t.Helper()
	var p agent.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %q is no problem document: %v", w.Code, w.Body, err)
	}
	return p
}

func wantRefusal(t testing.TB, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	if p := problemOf(t, w); w.Code != status || p.Code != code || p.Status != status {
		t.Errorf("answered %d %s, want %d with code %s", w.Code, w.Body, status, code)
	}
}

// application returns a row with its own manifest.
func application(engine fleet.EngineName, tenant fleet.TenantName, name string) mirror.Row {
	body := []byte(
		`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"` + name +
			`"},"spec":{"note":"<a & b>"}}`)
	sum := sha256.Sum256(body)
	return mirror.Row{Key: fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication,
		Name: name}, Tenant: tenant, Environment: "edge", Deployment: "d",
		Manifest: fleet.Manifest{Body: body, Hash: hex.EncodeToString(sum[:])}, Revision: "r1"}
}

func repository(engine fleet.EngineName, tenant fleet.TenantName, name, secret string) mirror.Row {
	r := application(engine, tenant, name)
	r.Key.Kind = fleet.ObjectRepository
	r.Credential = &fleet.CredentialSource{Tenant: tenant, Name: secret}
	return r
}

// testStream is the client end of a stream: it accepts writes, or hangs until the write's deadline.
type testStream struct {
	mu       sync.Mutex
	head     http.Header
	status   int
	text     bytes.Buffer
	size     int
	forget   bool // record only the size
	hangs    bool
	reading  time.Time // read deadline of the request's body
	deadline time.Time
	moved    chan struct{} // closed when the deadline changes
	expiry   *time.Timer   // fires at the deadline
	expired  bool
	cancel   context.CancelFunc
	ended    chan struct{}
}

func (w *testStream) Header() http.Header { return w.head }
func (w *testStream) WriteHeader(s int)   { w.mu.Lock(); w.status = s; w.mu.Unlock() }
func (w *testStream) FlushError() error   { return nil }

func (w *testStream) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = t
	return nil
}

func (w *testStream) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expired {
		return nil
	}
	w.deadline = t
	close(w.moved)
	w.moved = make(chan struct{})
	if w.expiry != nil {
		w.expiry.Stop()
	}
	if !t.IsZero() {
		w.expiry = time.AfterFunc(time.Until(t), w.expire)
	}
	return nil
}

// expire ends the stream at its deadline even without a write, as HTTP/2 does.
func (w *testStream) expire() {
	w.mu.Lock()
	w.expired = true
	w.mu.Unlock()
	w.cancel()
}

func (w *testStream) Write(b []byte) (int, error) {
	for {
		w.mu.Lock()
		if !w.hangs {
			if !w.forget {
				w.text.Write(b)
			}
			w.size += len(b)
			w.mu.Unlock()
			return len(b), nil
		}
		deadline, moved := w.deadline, w.moved
		w.mu.Unlock()
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-time.After(left):
		case <-moved:
		}
	}
}

// stream opens a stream that runs until it ends or the connection is cut.
func (d *testAgent) stream(cursor int64, change ...func(*testStream)) *testStream {
	d.o.t.Helper()
	return d.o.stream(d.get(agent.PathStream, cursor), change...)
}

func (o *testHub) stream(r *http.Request, change ...func(*testStream)) *testStream {
	w := &testStream{head: http.Header{}, moved: make(chan struct{}), ended: make(chan struct{})}
	for _, f := range change {
		f(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() {
		defer close(w.ended)
		defer cancel()
		defer func() {
			cause := recover()
			// as http.Server does
			if err, ok := cause.(error); cause != nil &&
				(!ok || !errors.Is(err, http.ErrAbortHandler)) {
				panic(cause)
			}
		}()
		o.mux.ServeHTTP(w, r.WithContext(ctx))
	}()
	return w
}

// output returns everything received so far.
func (w *testStream) output() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

type event struct {
	id, name string
	data     string
}

// events returns the events received so far.
func (w *testStream) events() []event {
	var all []event
	for block := range strings.SplitSeq(w.output(), "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			}
		}
		if e.name != "" {
			all = append(all, e)
		}
	}
	return all
}

// last decodes the last event of a name; false without one.
func (w *testStream) last(name string, into any) bool {
	events := w.events()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].name == name {
			return json.Unmarshal([]byte(events[i].data), into) == nil
		}
	}
	return false
}

// rows returns all rows of the events of a name.
func (w *testStream) rows(name string) (all []agent.Row) {
	for _, e := range w.events() {
		var rows agent.Rows
		if e.name == name && json.Unmarshal([]byte(e.data), &rows) == nil {
			all = append(all, rows.Rows...)
		}
	}
	return all
}

func (w *testStream) goAway() string {
	var goAway agent.GoAway
	w.last(agent.EventGoAway, &goAway)
	return goAway.Code
}

func (w *testStream) isOpen() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}
