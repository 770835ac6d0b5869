package edge

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge/edgetest"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const testEngine fleet.EngineName = "acme.prod"

// hubDouble is a hub in memory that verifies proofs, over TLS through pipes, so that a bubble's
// clock drives both sides. fault injects faults and may respond in the hub's place.
type hubDouble struct {
	*testing.T
	ahead atomic.Int64 // nanoseconds of its clock

	listener *pipeListener
	ca       *x509.Certificate
	caKey    *ecdsa.PrivateKey
	leaf     func() tls.Certificate

	mu        sync.Mutex
	fault     func(w http.ResponseWriter, r *http.Request) bool
	keys      registry.Keys
	tokens    map[string]bool
	asserted  map[string]bool
	proofs    map[string]bool
	rows      map[string]agent.Row
	cursor    int64
	epoch     int64
	holder    string
	reportSeq int64
	reports   []agent.Report
	requests  map[string]int // by path
	begun     []int64        // cursors of opened streams
	streams   map[chan string]bool
	namespace string
	life      time.Duration // of an identity
}

func newHub(t *testing.T) *hubDouble {
	h := &hubDouble{T: t, listener: newPipeListener(), tokens: map[string]bool{},
		asserted: map[string]bool{}, proofs: map[string]bool{}, rows: map[string]agent.Row{},
		epoch: 3, requests: map[string]int{}, streams: map[chan string]bool{}, namespace: "argocd",
		life: 90 * 24 * time.Hour}
	h.ca, h.caKey = authority(t, "test authority")
	h.leaf = sync.OnceValue(func() tls.Certificate {
		return h.certificate("hub.example.com", time.Now().Add(240*time.Hour))
	})
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+agent.PathJoin, h.join)
	mux.HandleFunc("POST "+agent.PathToken, h.token)
	mux.HandleFunc("POST "+agent.PathKeys, h.rotate)
	mux.HandleFunc("GET "+agent.PathSnapshot, h.snapshot)
	mux.HandleFunc("GET "+agent.PathStream, h.stream)
	mux.HandleFunc("POST "+agent.PathStatus, h.status)
	mux.Handle("GET "+agent.PathProbe, agent.Probe())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", h.now().UTC().Format(http.TimeFormat))
		h.mu.Lock()
		h.requests[r.URL.Path]++
		fault := h.fault
		h.mu.Unlock()
		if fault == nil || !fault(w, r) {
			mux.ServeHTTP(w, r)
		}
	}), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
			error) {
			c := h.leaf()
			return &c, nil
		}}}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(h.listener, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return h
}

func (h *hubDouble) now() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }

func authority(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-240 * time.Hour), NotAfter: time.Now().Add(24000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (h *hubDouble) certificate(host string, until time.Time) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host},
		DNSNames: []string{host}, NotBefore: until.Add(-48000 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, h.ca, key.Public(), h.caKey)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (h *hubDouble) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.ca.Raw})
}

func (h *hubDouble) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *hubDouble) order(fault func(http.ResponseWriter, *http.Request) bool) {
	h.set(func() { h.fault = fault })
}

// asked counts requests to a path; "": to all.
func (h *hubDouble) asked(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for p, one := range h.requests {
		if path == "" || p == path {
			n += one
		}
	}
	return n
}

func (h *hubDouble) taken() []agent.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.reports)
}

func (h *hubDouble) known() registry.Keys {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keys
}

// left returns the number of rows.
func (h *hubDouble) left() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rows)
}

// lastBegun returns the cursor of the last opened stream.
func (h *hubDouble) lastBegun() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun[len(h.begun)-1]
}

func (h *hubDouble) refuse(w http.ResponseWriter, status int, p agent.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

func answerWith(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

func (h *hubDouble) join(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var join agent.Join
	_ = json.Unmarshal(body, &join)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := agent.CheckProof(r.Header.Get(agent.HeaderProof), join.Keys, r.Method,
		agent.PathJoin, "", body, h.now()); err != nil {
		h.refuse(w, 401, agent.Problem{Code: agent.CodeProof})
		return
	}
	h.keys = join.Keys
	answerWith(w, agent.Joined{Agent: "agent-1", Engine: testEngine, Time: h.now(),
		ExpiresAt: h.now().Add(h.life)})
}

func (h *hubDouble) token(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, err := agent.CheckAssertion(r.PostFormValue("client_assertion"), h.keys, "agent-1",
		"https://hub.example.com", h.now())
	if err != nil || h.asserted[id] || r.PostFormValue("grant_type") != "client_credentials" ||
		r.PostFormValue("client_assertion_type") != assertionType {
		h.refuse(w, 401, agent.Problem{Code: agent.CodeProof})
		return
	}
	h.asserted[id] = true
	token := rand.Text()
	h.tokens[token] = true
	answerWith(w, agent.Access{AccessToken: token, TokenType: "DPoP", ExpiresIn: 300})
}

// proven rejects requests without a valid proof by the agent's key, and replayed ones.
func (h *hubDouble) proven(w http.ResponseWriter, r *http.Request, statement []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	token := ""
	if auth := r.Header.Get("Authorization"); len(auth) > 5 {
		token = auth[5:]
	}
	id, err := agent.CheckProof(r.Header.Get(agent.HeaderProof), h.keys, r.Method, r.URL.Path,
		token, statement, h.now())
	if err != nil || !h.tokens[token] || h.proofs[id] {
		h.refuse(w, 401, agent.Problem{Code: agent.CodeProof})
		return false
	}
	h.proofs[id] = true
	return true
}

func (h *hubDouble) rotate(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !h.proven(w, r, body) {
		return
	}
	var rotate agent.Rotate
	_ = json.Unmarshal(body, &rotate)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := agent.CheckRotation(rotate.Proof, rotate.Keys, h.keys.Thumb(), h.now()); err != nil {
		h.refuse(w, 401, agent.Problem{Code: agent.CodeProof})
		return
	}
	h.keys = rotate.Keys
	clear(h.tokens)
	answerWith(w, agent.Joined{Agent: "agent-1", Engine: testEngine, Time: h.now(),
		ExpiresAt: h.now().Add(h.life)})
}

// session opens the lease like the store: another process, or a floor, raises the epoch.
func (h *hubDouble) session(w http.ResponseWriter, r *http.Request) (agent.Session, bool) {
	s, err := agent.ReadSession(r.Header)
	if err != nil || !h.proven(w, r, s.Bytes()) {
		if err != nil {
			h.refuse(w, 400, agent.Problem{Code: agent.CodeInvalid, Detail: err.Error()})
		}
		return s, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder != s.Instance {
		h.holder = s.Instance
		h.epoch++
	}
	h.epoch = max(h.epoch, s.Epoch+1)
	return s, true
}

func (h *hubDouble) snapshot(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.session(w, r); !ok {
		return
	}
	h.mu.Lock()
	s := agent.Snapshot{Epoch: h.epoch, Cursor: h.cursor, Complete: true}
	for _, row := range h.rows {
		s.Rows = append(s.Rows, row)
	}
	h.mu.Unlock()
	s.Digest = agent.Digest(&s)
	answerWith(w, s)
}

func (h *hubDouble) stream(w http.ResponseWriter, r *http.Request) {
	s, ok := h.session(w, r)
	if !ok {
		return
	}
	events := make(chan string, 1000)
	h.mu.Lock()
	h.begun = append(h.begun, s.Cursor)
	h.streams[events] = true
	hello := agent.Hello{Protocol: 1, Hub: "v1", Time: h.now(), Engine: testEngine,
		ArgoCD: fleet.ArgoCDInstance{Namespace: h.namespace}, Mode: fleet.AgentManaged,
		Epoch:  h.epoch,
		Holder: "agent/agent-1/" + s.Instance, ReportSeq: h.reportSeq,
		ExpiresAt: h.now().Add(time.Hour), Cursor: min(s.Cursor, h.cursor)}
	missed := agent.Rows{Cursor: h.cursor}
	for _, row := range h.rows {
		if row.Seq > s.Cursor {
			missed.Rows = append(missed.Rows, row)
		}
	}
	h.mu.Unlock()
	defer h.set(func() { delete(h.streams, events) })
	w.Header().Set("Content-Type", "text/event-stream")
	flow := http.NewResponseController(w)
	send := func(text string) { _, _ = io.WriteString(w, text); _ = flow.Flush() }
	send(message(agent.EventHello, hello) + message(agent.EventRows, missed) +
		message(agent.EventSyncs, []agent.Sync{}) + message(agent.EventStops, []mirror.Stop{}))
	beat := time.NewTicker(agent.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-events:
			if text == "" {
				return
			}
			send(text)
		case <-beat.C:
			send(": alive\n\n")
		}
	}
}

func message(name string, v any) string {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", name, body)
}

// send sends a message on every stream; "" ends the streams.
func (h *hubDouble) send(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		s <- text
	}
}

func (h *hubDouble) status(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !h.proven(w, r, body) {
		return
	}
	var report agent.Report
	h.mu.Lock()
	defer h.mu.Unlock()
	switch err := json.Unmarshal(body, &report); {
	case err != nil:
		h.refuse(w, 400, agent.Problem{Code: agent.CodeInvalid})
	case report.Epoch != h.epoch:
		h.refuse(w, 409, agent.Problem{Code: agent.CodeSuperseded})
	case report.Seq <= h.reportSeq:
		h.refuse(w, 409, agent.Problem{Code: agent.CodeReplay, ReportSeq: h.reportSeq})
	default:
		h.reportSeq = report.Seq
		h.reports = append(h.reports, report)
		for _, a := range report.Acks {
			if key := string(a.Kind) + "/" + a.Name; a.Removed && h.rows[key].Seq == a.Seq {
				delete(h.rows, key)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// put changes a row and sends it on the streams.
func (h *hubDouble) put(row agent.Row) agent.Row {
	h.mu.Lock()
	h.cursor++
	row.Seq = h.cursor
	h.rows[string(row.Kind)+"/"+row.Name] = row
	h.mu.Unlock()
	h.send(message(agent.EventRows, agent.Rows{Rows: []agent.Row{row}, Cursor: row.Seq}))
	return row
}

// object returns a row with an Application.
func object(name string) agent.Row {
	body := fmt.Appendf(nil, `{"metadata":{"name":%q,"annotations":{"x":"a<b>&c"}}}`, name)
	row := agent.Row{Kind: fleet.ObjectApplication, Name: name, Tenant: "acme", Environment: "prod",
		Deployment: fleet.DeploymentName(name), Operation: agent.OperationApply, Revision: "r1"}
	return manifest(row, string(body))
}

// manifest sets the body of a row, as encoding/json would write it.
func manifest(row agent.Row, body string) agent.Row {
	row.Manifest, _ = json.Marshal(json.RawMessage(body))
	sum := sha256.Sum256(row.Manifest)
	row.Hash = hex.EncodeToString(sum[:])
	return row
}

// pipeListener returns pipes; cut closes all of them, freeze blocks them.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	open   []net.Conn
	refuse bool
	frozen bool
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	l.mu.Lock()
	refuse := l.refuse
	l.mu.Unlock()
	if refuse {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	frozen := &frozenConn{Conn: theirs, of: l}
	select {
	case l.conns <- frozen:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, net.ErrClosed
	}
	l.mu.Lock()
	l.open = append(l.open, ours, theirs)
	l.mu.Unlock()
	return newBuffered(ours), nil
}

// buffered does not wait for the peer to read, like a network: both sides of a handshake may write
// at once.
type buffered struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func newBuffered(c net.Conn) *buffered {
	b := &buffered{Conn: c, out: make(chan []byte, 256), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-b.out:
				if _, err := c.Write(p); err != nil {
					return
				}
			case <-b.closed:
				return
			}
		}
	}()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, net.ErrClosed
	case b.out <- bytes.Clone(p):
		return len(p), nil
	}
}

func (b *buffered) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// frozenConn drops the hub's writes while the listener is frozen: a half-open connection.
type frozenConn struct {
	net.Conn
	of *pipeListener
}

func (c *frozenConn) Write(p []byte) (int, error) {
	c.of.mu.Lock()
	frozen := c.of.frozen
	c.of.mu.Unlock()
	if frozen {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (l *pipeListener) cut(refuse bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

func (l *pipeListener) freeze(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
}

// site is a cluster with an agent that has joined the double.
type site struct {
	*testing.T
	hub        *hubDouble
	store      *edgetest.ObjectStore
	identities *IdentityStore
	client     *Client
	f          *Follower
	woken      chan struct{}
	ended      chan error
	lease      mirror.Lease
}

func newSite(t *testing.T, h *hubDouble) *site {
	t.Helper()
	s := &site{T: t, hub: h, store: newObjectStore(), woken: make(chan struct{}, 1)}
	s.begin()
	if _, err := s.identities.Join(t.Context(), testHub, s.client, "token-1", "uid-1",
		"v1"); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin starts a new process on the cluster.
func (s *site) begin() {
	s.Helper()
	s.identities = NewIdentityStore(s.store)
	client, err := NewClient(Settings{Hub: testHub, CA: s.hub.bundle(), Version: "v1", Log: quiet},
		s.identities)
	if err != nil {
		s.Fatal(err)
	}
	client.transport.DialContext, client.transport.Proxy = s.hub.listener.dial, nil
	client.relay.DialContext, client.relay.Proxy = s.hub.listener.dial, nil
	s.client = client
	s.Cleanup(client.Close)
	s.f = NewFollower(FollowerConfig{Client: client, Namespace: "argocd", Version: "v1", Log: quiet,
		Wake: func() {
			select {
			case s.woken <- struct{}{}:
			default:
			}
		}})
}

// follow runs the agent until the test ends, and acquires the lease once it has read everything.
func (s *site) follow() {
	s.Helper()
	s.run()
	if _, err := s.f.Await(s.Context()); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
	s.acquire()
}

func (s *site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended, f := make(chan error, 1), s.f
	s.ended = ended
	go func() { ended <- f.Run(ctx); close(ended) }()
	s.Cleanup(func() {
		cancel()
		for range ended {
		}
	})
}

func (s *site) acquire() {
	s.Helper()
	lease, held, err := LeasesOf(s.f).Acquire(s.Context(), "engine/acme.prod", "x", time.Minute)
	if err != nil || !held {
		s.Fatalf("no lease: %v", err)
	}
	s.lease = lease
}

func (s *site) rows() map[string]mirror.Row {
	s.Helper()
	var keys []fleet.ObjectKey
	err := s.f.RowHeads(s.Context(), testEngine, func(h mirror.RowHead) error {
		keys = append(keys, h.Key)
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	all, err := s.f.RowsByKey(s.Context(), testEngine, keys)
	if err != nil {
		s.Fatal(err)
	}
	rows := map[string]mirror.Row{}
	for _, row := range all {
		rows[row.Key.Name] = row
	}
	return rows
}

// wait advances the bubble's clock.
func wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

// bubble runs a test with a hub and a joined agent.
func bubble(t *testing.T, test func(t *testing.T, h *hubDouble, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		test(t, h, newSite(t, h))
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// readAll reads a request's body and restores it.
func readAll(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return string(body)
}
