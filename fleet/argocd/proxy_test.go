package argocd

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// faulty stands between an engine and the real API server and does to its requests what a test orders.
type faulty struct {
	config *rest.Config // for the engine
	drop   func()       // cuts every connection
	real   http.Handler // the API server

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	log   []string                                          // method and path of what came through
}

// between starts a proxy to the shared API server.
func between(t testing.TB) *faulty {
	t.Helper()
	real := apiServer(t).REST()
	transport, err := rest.TransportFor(real)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(real.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f.real = proxy
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		fault := f.fault
		f.log = append(f.log, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
		f.mu.Unlock()
		if fault == nil || !fault(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	f.drop = server.CloseClientConnections
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f.config = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return f
}

func (f *faulty) order(fault func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// count is how many requests so far contain all the words.
func (f *faulty) count(words ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.log {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "1" }

func isList(r *http.Request, plural string) bool {
	return r.Method == http.MethodGet && !isWatch(r) && strings.HasSuffix(r.URL.Path, "/"+plural)
}

// faultBench is an engine behind a proxy.
type faultBench struct {
	*testing.T
	e       *Engine
	f       *faulty
	out     *outside
	lease   fleet.Lease
	stopped atomic.Bool
	mu      sync.Mutex
	seen    []fleet.Observation
	woken   map[fleet.ObjectKey]int
}

func newFaultBench(t *testing.T, options Options) *faultBench {
	t.Helper()
	f := between(t)
	b := &faultBench{T: t, f: f, lease: fleet.Lease{Epoch: 5}, woken: map[fleet.ObjectKey]int{}}
	spec := engineSpec()
	spec.ArgoCD.Namespace = space(t, apiServer(t))
	b.out = benchOn(t, apiServer(t).REST(), spec.ArgoCD.Namespace).Outside.(*outside)
	options.Stopped = func(fleet.TenantName) bool { return b.stopped.Load() }
	options.Window, options.Retry = 10*time.Millisecond, 10*time.Millisecond
	var err error
	if b.e, err = Connect(t.Context(), testEngine, spec, f.config, options); err != nil {
		t.Fatal(err)
	}
	if _, err := b.e.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// watch follows until the test ends.
func (b *faultBench) watch() {
	ctx := b.Context()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.e.Watch(ctx, engine.Sink{Observe: func(all []fleet.Observation) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen = append(b.seen, all...)
		}, Wake: func(keys []fleet.ObjectKey) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, k := range keys {
				b.woken[k]++
			}
		}})
	}()
	b.Cleanup(func() { <-ended })
}

func (b *faultBench) synced() {
	b.Helper()
	b.watch()
	b.until("read completely", b.e.Synced)
}

func (b *faultBench) until(what string, ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.Fatalf("still not: %s; health %v", what, b.e.Health())
		}
		<-tick.C
	}
}

// goneTold reports whether anything was told as gone or woken for.
func (b *faultBench) goneTold() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.seen {
		if o.Gone {
			return true
		}
	}
	return false
}

func (b *faultBench) row(o fleet.Object) fleet.Row {
	b.Helper()
	r := rowOf(b.T, o, 1)
	m, err := Renderer{}.Render(fleet.EngineSpec{ArgoCD: fleet.ArgoCDInstance{Namespace: b.e.namespace, InstallationID: "eu-1"}}, o)
	if err != nil {
		b.Fatal(err)
	}
	r.Manifest = m
	return r
}

func (b *faultBench) app(revision string) fleet.Row {
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Source.TargetRevision = revision
	o.Application.DeletionPolicy = fleet.DeletionOrphan
	return b.row(o)
}

func (b *faultBench) apply(row fleet.Row) (engine.Outcome, error) {
	return b.e.Apply(b.Context(), row, fleet.Secret{}, b.lease)
}

func (b *faultBench) applied(row fleet.Row) {
	b.Helper()
	if out, err := b.apply(row); err != nil || !out.Changed {
		b.Fatalf("%+v, %v", out, err)
	}
}
