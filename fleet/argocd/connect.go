package argocd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
)

// Options tune one connection. Zero values take the defaults that stand with each field.
type Options struct {
	Window time.Duration // between two reports to the sink; default 150ms
	// after which a watch without a word is not trusted; default 10m
	Silence time.Duration
	Timeout time.Duration // of one request; default 30s
	// requests at a time, at most; default 16. It begins with 8, and halves when the API server
	// throttles
	InFlight int
	// within which a second drift of one object is a conflict, and its first pause; default 1m
	Conflict time.Duration
	// first pause after a failed read; doubles up to 30s; default 500ms
	Retry time.Duration
	// asked immediately before each write; true refuses it; required
	Stopped func(fleet.TenantName) bool
	// Secrets are neither read nor written, and no right on them is needed: a row that asks for one
	// is engine.ErrRefused
	Public bool
	// what lets tenants reach each other through the repo-server does not block: whoever connects
	// is not told how many tenants use it
	Advise bool
	// argocd-cmd-params-cm may not be read: nothing is said of what it holds
	NoParams bool
	Now      func() time.Time // default time.Now
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Window, 150*time.Millisecond)
	set(&o.Silence, 10*time.Minute)
	set(&o.Timeout, 30*time.Second)
	set(&o.Conflict, time.Minute)
	set(&o.Retry, 500*time.Millisecond)
	if o.InFlight <= 0 {
		o.InFlight = 16
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Engine is one Argo CD instance. Its methods may be called at the same time; it implements
// engine.Engine.
type Engine struct {
	name         fleet.EngineName
	namespace    string
	installation string
	tenants      int // how many the engine is dedicated to; 0: shared by all
	options      Options
	client       *client
	cache        *cache
	health       health
	pages        atomic.Int64 // of lists that were read
	quarrels     quarrels
	// why nothing may be written; nil until a Preflight found it fit
	unfit      atomic.Pointer[error]
	fit        atomic.Bool
	rightsSeen atomic.Int64 // when all rights were found, in Unix seconds; 0: not yet
}

// Connect prepares to reach the Argo CD instance of an engine through a Kubernetes client
// configuration (Kubeconfig or InCluster). No request is sent: a wrong address shows in Preflight
// and Health. Each Engine has connections of its own. An environment's own cluster needs no
// installationID: its Argo CD belongs to its own people, and no other one of ours is there.
func Connect(_ context.Context, name fleet.EngineName, spec fleet.EngineSpec, config *rest.Config,
	options Options) (*Engine, error) {
	if options.Stopped == nil {
		return nil, fmt.Errorf("engine %s: no way to ask for emergency stops", name)
	}
	if spec.ArgoCD.Namespace == "" || spec.ArgoCD.InstallationID == "" && !name.OfEnvironment() {
		return nil,
			fmt.Errorf("engine %s: namespace and installationID of its Argo CD are required", name)
	}
	options = options.withDefaults()
	base, err := url.Parse(config.Host)
	if err != nil || base.Scheme != "https" {
		return nil, fmt.Errorf("engine %s: its server %q is not an https URL", name, config.Host)
	}
	transport, err := newTransport(config, options)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", name, err)
	}
	e := &Engine{name: name, namespace: spec.ArgoCD.Namespace,
		installation: spec.ArgoCD.InstallationID, tenants: len(spec.DedicatedTo), options: options,
		cache:  newCache(followed(options)),
		health: health{broken: map[*resource]failure{}}, quarrels: quarrels{
			of: map[fleet.ObjectKey]quarrel{}}}
	e.client = &client{
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
		base: base, flow: newFlow(8, options.InFlight), timeout: options.Timeout, retries: 4,
	}
	return e, nil
}

// newTransport has its own connections, so that a slow engine slows nobody else, and notices a dead
// one by HTTP/2 pings.
func newTransport(config *rest.Config, o Options) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("TLS settings: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	base := &http.Transport{
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: o.InFlight, MaxIdleConns: 2 * o.InFlight,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: 0, // a watch may take its time; other requests have a deadline
		DialContext: (&net.Dialer{Timeout: 10 * time.Second,
			KeepAlive: 30 * time.Second}).DialContext,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
			PingTimeout: 15 * time.Second},
	}
	wrapped := rest.CopyConfig(config)
	wrapped.UserAgent = "argosy"
	return rest.HTTPWrappersForConfig(wrapped, base)
}

// Synced reports whether every resource has been read completely.
func (e *Engine) Synced() bool { return e.cache.synced() }

// Pages is how many pages of lists were read so far: while it grows, a read gets on.
func (e *Engine) Pages() int64 { return e.pages.Load() }

// quarrels remembers where other managers change our fields.
type quarrels struct {
	mu sync.Mutex
	of map[fleet.ObjectKey]quarrel
}
