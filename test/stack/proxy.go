package stack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy sits between clients and the API server of a cluster and acts on single requests as a test
// orders: it holds them and delivers them later whether or not the client is still there, answers
// in their place, or loses them. A request without a token of its own is made as an administrator.
type Proxy struct {
	Server string // e.g. "https://127.0.0.1:23456"
	CA     []byte // PEM

	server *httptest.Server
	next   http.Handler

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) bool
	holds []*Held
	log   []string
}

// StartProxy begins to serve. The cluster may be stopped and started behind it.
func StartProxy(c *Cluster) (*Proxy, error) {
	admin := c.REST()
	target, err := url.Parse(admin.Host)
	if err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", c.Name, err)
	}
	asAdmin, err := rest.TransportFor(admin)
	if err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", c.Name, err)
	}
	asClient, err := rest.TransportFor(rest.AnonymousClientConfig(admin))
	if err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", c.Name, err)
	}
	p := &Proxy{}
	p.next = &httputil.ReverseProxy{
		Transport: either{asClient, asAdmin}, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	p.Server = p.server.URL
	p.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return p, nil
}

// either makes requests with a token as they are, and others as an administrator.
type either struct{ client, admin http.RoundTripper }

func (e either) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return e.client.RoundTrip(r)
	}
	return e.admin.RoundTrip(r)
}

// Stop ends the proxy. Requests that are still held are lost.
func (p *Proxy) Stop() {
	p.mu.Lock()
	holds := p.holds
	p.holds = nil
	p.mu.Unlock()
	for _, h := range holds {
		h.Drop()
	}
	p.Cut()
	p.server.Close()
}

// Cut closes every connection of the clients.
func (p *Proxy) Cut() { p.server.CloseClientConnections() }

// REST is a client configuration that goes through the proxy, as an administrator.
func (p *Proxy) REST() *rest.Config {
	return &rest.Config{Host: p.Server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: p.CA}}
}

// KubeconfigFor is a kubeconfig that goes through the proxy with a bearer token.
func (p *Proxy) KubeconfigFor(token, namespace string) ([]byte, error) {
	k := clientcmdapi.NewConfig()
	k.CurrentContext = "proxy"
	k.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.Server, CertificateAuthorityData: p.CA}
	k.AuthInfos["proxy"] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", AuthInfo: "proxy",
		Namespace: namespace}
	return clientcmd.Write(*k)
}

// Order makes fault see every request first; it returns true when it has answered. Nil ends that.
func (p *Proxy) Order(fault func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Forward passes a request on to the API server, for a fault that changes it.
func (p *Proxy) Forward(w http.ResponseWriter, r *http.Request) { p.next.ServeHTTP(w, r) }

// Count is how many requests so far contain all the words in their method, path and query.
func (p *Proxy) Count(words ...string) int {
	n := 0
	for _, line := range p.Requests() {
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

// Requests are the method, path and query of every request so far.
func (p *Proxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// Held is one request that the proxy keeps to itself.
type Held struct {
	Arrived chan struct{} // closed when the proxy has the whole request
	Over    chan struct{} // closed when it was delivered and answered, or dropped

	match   func(*http.Request) bool
	decided chan struct{}
	once    sync.Once
	deliver bool
	Status  int // of the answer, once it is over; 0: dropped
}

// Hold keeps the next request that matches. Neither the end of its client nor its timeout takes it
// back: the bytes are on their way.
func (p *Proxy) Hold(match func(*http.Request) bool) *Held {
	h := &Held{Arrived: make(chan struct{}), Over: make(chan struct{}), decided: make(chan struct {
	}), match: match}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Release delivers the request, now or as soon as it arrives.
func (h *Held) Release() { h.decide(true) }

// Drop loses the request; its connection breaks.
func (h *Held) Drop() { h.decide(false) }

func (h *Held) decide(deliver bool) {
	h.once.Do(func() {
		h.deliver = deliver
		close(h.decided)
	})
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	fault, held := p.fault, p.takeHold(r)
	p.log = append(p.log, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	p.mu.Unlock()
	switch {
	case held != nil:
		p.hold(held, w, r)
	case fault == nil || !fault(w, r):
		p.next.ServeHTTP(w, r)
	}
}

func (p *Proxy) takeHold(r *http.Request) *Held {
	for i, h := range p.holds {
		if h.match(r) {
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			return h
		}
	}
	return nil
}

func (p *Proxy) hold(h *Held, w http.ResponseWriter, r *http.Request) {
	defer close(h.Over)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	close(h.Arrived)
	<-h.decided
	if !h.deliver {
		panic(http.ErrAbortHandler)
	}
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	seen := &statusWriter{ResponseWriter: w}
	p.next.ServeHTTP(seen, late)
	h.Status = seen.status
}

// statusWriter remembers the status; the client may be gone.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
