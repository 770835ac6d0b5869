package argocd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// Options configures one connection. A zero field takes the default named here.
type Options struct {
	Window time.Duration // between two calls of the sink; default 150ms
	// a watch without an event for that long is restarted; default 10m
	IdleTimeout time.Duration
	Timeout     time.Duration // of one request; default 30s
	// maximum concurrent requests; default 16. The limit starts at 8 and halves when the API server
	// throttles
	InFlight int
	// a second drift of an object within it is a conflict, and its first pause; default 1m
	Conflict time.Duration
	// first pause after a failed read; doubles up to 30s; default 500ms
	Retry time.Duration
	// called immediately before each write; true rejects the write; required
	Stopped func(fleet.TenantName) bool
	// neither read nor write Secrets, so that no right on them is needed: a row that needs one is
	// engine.ErrRefused
	Public bool
	// findings about the isolation of tenants in the repo-server do not block: the caller does not
	// know how many tenants use it
	Advise bool
	// skip argocd-cmd-params-cm, which may not be read
	NoParams bool
	// Preflight reads every Application too: for a single check by a person
	Thorough bool
	// components that Restart may be called for: Preflight names a missing right
	Restarts []fleet.Component
	// the platform allows a fence: Preflight names a missing right
	Fences bool
	// Applications of a managed instance are rendered under its ring's next version: Preflight
	// names a missing right
	Shadows bool
	// resources of Applications are read: Preflight names a missing right
	Inspects bool
	// NoRestarts is why no workload is restarted; "": they are
	NoRestarts string
	Now        func() time.Time // default time.Now
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Window, 150*time.Millisecond)
	set(&o.IdleTimeout, 10*time.Minute)
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

// Engine is one Argo CD instance. It implements engine.Engine, and its methods are safe for
// concurrent use.
type Engine struct {
	name         fleet.EngineName
	namespace    string
	places       places
	installation string
	tenants      int // number of tenants that the engine is dedicated to; 0: shared by all
	options      Options
	client       *client
	ca           []byte // of the API server; empty: the system's
	cache        *cache
	health       health
	pages        atomic.Int64 // pages of lists that were read
	conflicts    fieldConflicts
	pauses       sync.Map // of adoptions; by tenant, of the AppProjects' last rows
	// why writes are forbidden; nil until the first Preflight and after a good one
	unfit           atomic.Pointer[error]
	blind           atomic.Pointer[error] // why no workload may be deleted; nil as in unfit
	fit             atomic.Bool
	argoCD          atomic.Pointer[string] // version that the last Preflight found
	rightsCheckedAt atomic.Int64           // Unix time of the last complete rights; 0: never

	config  *rest.Config        // for the instance
	managed bool                // Argosy installs and upgrades the instance
	size    *fleet.InstanceSize // of a managed instance; nil: Argosy sets none
	// probes of an earlier, larger size are removed
	probesKnown atomic.Bool

	opening sync.Mutex
	opened  *instance.Target
	// port forwards that the API server has not answered yet
	forwarding chan struct{}
	inspection inspection
}

// Connect configures the connection to an engine's Argo CD instance with a Kubernetes client
// configuration (Kubeconfig or InCluster). It sends no request: a wrong address shows in Preflight
// and Health. Each Engine has its own connections. An environment's own cluster needs no
// installationID: its Argo CD belongs to the cluster's users, and is the only one that we use
// there.
func Connect(name fleet.EngineName, spec fleet.EngineSpec, config *rest.Config,
	options Options) (*Engine, error) {
	if options.Stopped == nil {
		return nil, fmt.Errorf("engine %s: Options.Stopped is required", name)
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
	loaded := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return nil, fmt.Errorf("engine %s: TLS settings: %w", name, err)
	}
	in := places{spec.ArgoCD.Namespace, map[string]fleet.TenantName{}}
	for _, n := range spec.ApplicationNamespaces {
		in.further[n.Namespace] = n.Tenant
	}
	e := &Engine{name: name, namespace: spec.ArgoCD.Namespace, places: in, ca: loaded.CAData,
		installation: spec.ArgoCD.InstallationID, tenants: len(spec.DedicatedTo), options: options,
		cache:  newCache(followed(options), in),
		health: health{broken: map[*resource]failure{}}, conflicts: fieldConflicts{
			of: map[fleet.ObjectKey]fieldConflict{}}}
	e.forwarding, e.inspection = make(chan struct{}, maxForwarding), newInspection()
	e.config, e.managed, e.size = config, spec.ArgoCD.Managed, spec.ArgoCD.Size
	e.client = &client{
		http: &http.Client{Transport: transport, CheckRedirect: noRedirect},
		base: base, flow: newFlow(8, options.InFlight), timeout: options.Timeout, retries: 4,
	}
	return e, nil
}

// noRedirect makes a client return a redirect as the response.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newTransport returns a transport with its own connections, so that a slow engine delays no other.
// HTTP/2 pings detect dead connections.
func newTransport(config *rest.Config, o Options) (http.RoundTripper, error) {
	return newTransportVia(config, o, nil)
}

// newTransportVia is newTransport with a control of the addresses that are dialed; nil: none.
func newTransportVia(config *rest.Config, o Options,
	control func(network, address string, c syscall.RawConn) error) (http.RoundTripper, error) {
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
		ResponseHeaderTimeout: 0, // a watch may be silent; other requests have a deadline
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second,
			Control: control}).DialContext,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
			PingTimeout: 15 * time.Second},
	}
	wrapped := rest.CopyConfig(config)
	wrapped.UserAgent = "argosy"
	return rest.HTTPWrappersForConfig(wrapped, base)
}

// Synced reports whether every resource has been read completely.
func (e *Engine) Synced() bool { return e.cache.synced() }

// Pages returns the number of list pages read so far: while it grows, a read makes progress.
func (e *Engine) Pages() int64 { return e.pages.Load() }

// fieldConflicts tracks objects whose fields other managers change.
type fieldConflicts struct {
	mu sync.Mutex
	of map[fleet.ObjectKey]fieldConflict
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Renderer = Renderer{}
)

// Live returns the last known state of one object: from the watch or from our own last write.
func (e *Engine) Live(key fleet.ObjectKey) (engine.Live, bool) {
	if known := e.cache.get(key); known != nil {
		return known.Live, true
	}
	return engine.Live{}, false
}

// Waves reports whether one of our Applications of the environment has a wave other than 0.
func (e *Engine) Waves(id fleet.EnvironmentID) bool { return e.cache.waves(id) }

// Environment lists our Applications of one environment. It costs these alone.
func (e *Engine) Environment(id fleet.EnvironmentID) []engine.Live {
	return e.cache.inEnvironment(id)
}

// Inventory lists all our objects, ordered by kind and name. It is meaningful only when Synced.
func (e *Engine) Inventory() []engine.Live { return e.cache.inventory() }

// Watch follows the engine's Applications, AppProjects and our Secrets until ctx ends. It reports
// each Application's latest state at most once per window, and the objects to recheck. It recovers
// from failures by itself and returns only ctx's error.
func (e *Engine) Watch(ctx context.Context, sink engine.Sink) error {
	var all sync.WaitGroup
	for _, r := range slices.Concat(e.cache.wanted, e.cache.further) {
		all.Go(func() { e.follow(r).run(ctx) })
	}
	e.deliver(ctx, sink)
	all.Wait()
	return context.Cause(ctx)
}

// deliver calls the sink once per window. It collects changes while the sink is busy, and keeps
// only the latest state of an Application.
func (e *Engine) deliver(ctx context.Context, sink engine.Sink) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.cache.dirty:
		}
		p := e.cache.take()
		if p.wentBack != "" && sink.WentBack != nil {
			sink.WentBack(p.wentBack)
		}
		if len(p.observed) > 0 && sink.Observe != nil {
			sink.Observe(p.observed)
		}
		if len(p.contacts) > 0 && sink.Contact != nil {
			sink.Contact(p.contacts)
		}
		if len(p.wakes) > 0 && sink.Wake != nil {
			sink.Wake(p.wakes)
		}
		pacing.Sleep(ctx, e.options.Window)
	}
}

// health holds the failures of resources that are not followed.
type health struct {
	mu     sync.Mutex
	broken map[*resource]failure
}

type failure struct {
	err   error
	since time.Time
}

func (h *health) clear(r *resource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.broken, r)
}

func (h *health) set(r *resource, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := time.Now()
	if before, ok := h.broken[r]; ok {
		since = before.since
	}
	h.broken[r] = failure{err, since}
}

// Health returns nil while everything is followed, and otherwise the failure with its start.
func (e *Engine) Health() error {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	if len(e.health.broken) == 0 {
		return nil
	}
	var own []*resource // a broken namespace of one tenant concerns no other: see namespaceError
	for r := range e.health.broken {
		if r.namespace == "" {
			own = append(own, r)
		}
	}
	if len(own) == 0 {
		return nil
	}
	first := slices.MinFunc(own, func(a, b *resource) int {
		return strings.Compare(a.plural, b.plural)
	})
	f := e.health.broken[first]
	return &brokenError{f}
}

// namespaceError returns why the Applications of a further namespace are unknown, or not followed;
// nil while they are followed.
func (e *Engine) namespaceError(namespace string) error {
	if namespace == "" {
		return nil
	}
	e.health.mu.Lock()
	var broken error
	for r, f := range e.health.broken {
		if r.namespace == namespace {
			broken = &brokenError{f}
		}
	}
	e.health.mu.Unlock()
	switch {
	case codeOf(broken) == http.StatusForbidden:
		return fmt.Errorf("%w: %w; create a Role there that grants get, list, watch and patch on "+
			"applications.argoproj.io to %s, and delete (docs/adopting.md)", engine.ErrRefused,
			broken, preflight{e}.actor())
	case broken != nil:
		return fmt.Errorf("%w: %w", engine.ErrUnreachable, broken)
	case !e.cache.knows(namespace):
		return fmt.Errorf("%w: the Applications of namespace %s are not read yet",
			engine.ErrUnknown, namespace)
	}
	return nil
}

type brokenError struct{ failure }

func (b *brokenError) Error() string {
	return b.err.Error() + " (since " + b.since.UTC().Format(time.RFC3339) + ")"
}

func (b *brokenError) Unwrap() error { return b.err }
