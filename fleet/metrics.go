package fleet

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxMetricsEndpoints bounds the endpoints of one component.
const MaxMetricsEndpoints = 16

// Component is a component of an Argo CD that is measured and restarted.
type Component string

// Components of an Argo CD.
const (
	ApplicationController Component = "applicationController"
	RepoServer            Component = "repoServer"
)

// Label returns what Argo CD's manifests call the component (app.kubernetes.io/component).
func (c Component) Label() string {
	if c == RepoServer {
		return "repo-server"
	}
	return "application-controller"
}

// EngineMetrics are the endpoints from which the load of an engine's components is measured.
type EngineMetrics struct {
	ApplicationController []MetricsEndpoint `json:"applicationController,omitempty"`
	RepoServer            []MetricsEndpoint `json:"repoServer,omitempty"`
}

// Of returns the endpoints of a component.
func (m *EngineMetrics) Of(c Component) []MetricsEndpoint {
	switch {
	case m == nil:
		return nil
	case c == ApplicationController:
		return m.ApplicationController
	}
	return m.RepoServer
}

// ThroughAPIServer returns the endpoints that the engine's API server leads to: an agent follows no
// address of the hub.
func (m *EngineMetrics) ThroughAPIServer() *EngineMetrics {
	if m == nil {
		return nil
	}
	address := func(e MetricsEndpoint) bool { return e.URL != "" }
	return &EngineMetrics{
		ApplicationController: slices.DeleteFunc(slices.Clone(m.ApplicationController), address),
		RepoServer:            slices.DeleteFunc(slices.Clone(m.RepoServer), address)}
}

// MetricsEndpoint serves the metrics of one component. Exactly one of Service, Pod and URL is set.
type MetricsEndpoint struct {
	// in the namespace of the Argo CD, reached through the engine's API server
	Service *MetricsPort `json:"service,omitempty"`
	Pod     *MetricsPort `json:"pod,omitempty"`
	// reached directly, without a credential
	URL string `json:"url,omitempty"`
}

// MetricsPort is a port of a Service or Pod.
type MetricsPort struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

func (p *MetricsPort) String() string { return p.Name + ":" + strconv.Itoa(p.Port) }

// ProxyPath returns the path of the endpoint below its API server; false if it names no valid
// Service or Pod.
func (e MetricsEndpoint) ProxyPath(namespace string) (string, bool) {
	plural, at := "services", e.Service
	if e.Pod != nil {
		plural, at = "pods", e.Pod
	}
	if at == nil || len(at.Name) > maxName || !isLabel(at.Name) || at.Port < 1 || at.Port > 65535 {
		return "", false
	}
	return "/api/v1/namespaces/" + namespace + "/" + plural + "/" + at.String() +
		"/proxy/metrics", true
}

// String returns how messages name the endpoint.
func (e MetricsEndpoint) String() string {
	switch {
	case e.Service != nil:
		return "service " + e.Service.String()
	case e.Pod != nil:
		return "pod " + e.Pod.String()
	}
	return e.URL
}

// CheckMetricsURL checks the address of a component's metrics: http(s)://host[:port], in canonical
// form. Addresses of metadata services and link-local ones are refused; a name that resolves to one
// is refused when it is read.
func CheckMetricsURL(raw string) error {
	if err := plainURL(raw); err != nil {
		return err
	}
	scheme, host, _ := strings.Cut(raw, "://")
	port := "443"
	switch {
	case scheme == "http":
		port = "80"
	case scheme != "https":
		return errors.New("the address begins with http:// or https://")
	}
	switch {
	case strings.Contains(host, "@"):
		return errors.New("the address must not carry a user or password")
	case strings.Contains(host, "/"):
		return errors.New("leave out the path: /metrics is read")
	}
	if err := checkHostPort(host, port); err != nil {
		return err
	}
	if h := hostOf(host); h == "kubernetes" || strings.HasPrefix(h, "kubernetes.default") {
		return errors.New("that is an API server; write service or pod")
	}
	return neverACluster(hostOf(host))
}

// MayReach reports whether a host that the platform has declared, and that resolves to the address,
// may be asked for metrics or manifests. Only a host that is written as a loopback
// address leads to one.
func MayReach(host string, ip netip.Addr) bool {
	ip = ip.Unmap()
	if neverACluster(ip.String()) != nil {
		return false
	}
	if ip.IsLoopback() {
		literal, err := netip.ParseAddr(host)
		return host == "localhost" || err == nil && literal.IsLoopback()
	}
	return true
}
