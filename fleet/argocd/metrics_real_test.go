package argocd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/metering"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/test/stack"
)

// ownAddress is an address of this machine that an API server connects to: its proxy refuses
// loopback and link-local ones.
func ownAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no address besides loopback, which an API server's proxy refuses: " +
		"connect it to a network")
	return ""
}

// published serves a handler at an address that an API server connects to, and returns its port.
func published(t testing.TB, h http.Handler) int {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ownAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}}
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().(*net.TCPAddr).Port
}

// pod declares a Pod that no node runs, with an address.
func pod(t testing.TB, c *stack.Cluster, namespace, name, ip string) {
	t.Helper()
	pods := c.Client().CoreV1().Pods(namespace)
	p, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}},
			Containers:      []corev1.Container{{Name: "c", Image: "example.com/none"}}}},
		metav1.CreateOptions{})
	if err == nil {
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		_, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// metricsPort is the port of all Services, and none of their Pods'.
const metricsPort = 8082

// service declares a Service with the endpoints that its controller would give it: the proxy
// follows only those of Pods.
func service(t testing.TB, c *stack.Cluster, namespace, name string,
	subsets ...corev1.EndpointSubset) {
	t.Helper()
	client, meta := c.Client().CoreV1(), metav1.ObjectMeta{Name: name}
	_, err := client.Services(namespace).Create(t.Context(), &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "metrics",
			Port: metricsPort}}}}, metav1.CreateOptions{})
	if err == nil {
		_, err = client.Endpoints(namespace).Create(t.Context(), &corev1.Endpoints{
			ObjectMeta: meta, Subsets: subsets}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// behind is the endpoint of a Service: a port of a Pod; without one, of an address alone.
func behind(namespace, pod, ip string, port int) corev1.EndpointSubset {
	at := corev1.EndpointAddress{IP: ip}
	if pod != "" {
		at.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod}
	}
	return corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{at},
		Ports: []corev1.EndpointPort{{Name: "metrics", Port: int32(port)}}}
}

// metricsReader is an account whose only right is the one that docs/load.md asks for.
func metricsReader(t testing.TB, c *stack.Cluster, namespace string, names ...string) *rest.Config {
	t.Helper()
	return accountWith(t, c, namespace, "metrics-reader", rbacv1.PolicyRule{APIGroups: []string{""},
		Resources: []string{"services/proxy", "pods/proxy"}, ResourceNames: names,
		Verbs: []string{"get"}})
}

// accountWith creates a service account with these rights in the namespace.
func accountWith(t testing.TB, c *stack.Cluster, namespace, account string,
	rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	client, meta := c.Client(), metav1.ObjectMeta{Name: account, Namespace: namespace}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace,
			Name: account}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: c.Server, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}
}

func TestMetricsArriveThroughTheProxyOfARealAPIServer(t *testing.T) {
	const body = "process_start_time_seconds 1\nprocess_cpu_seconds_total 2\n" +
		"workqueue_depth{name=\"app_reconciliation_queue\"} 3\n"
	c := apiServer(t)
	namespace := space(t, c)
	ip := ownAddress(t)
	var sent http.Header
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Clone()
		_, _ = io.WriteString(w, body)
	})
	good := published(t, mux)
	redirects := published(t, http.RedirectHandler("http://169.254.169.254/latest", 302))
	missing := published(t, http.NotFoundHandler())
	broken := published(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	release := make(chan struct{})
	defer close(release)
	silent := published(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	closed, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	refuses := closed.Addr().(*net.TCPAddr).Port
	_ = closed.Close()
	pod(t, c, namespace, "controller-0", ip)
	pod(t, c, namespace, "loopback-0", "127.0.0.1")
	names := []string{"nowhere:8082", fmt.Sprintf("controller-0:%d", good),
		fmt.Sprintf("loopback-0:%d", good)}
	for name, subsets := range map[string][]corev1.EndpointSubset{
		"good":      {behind(namespace, "controller-0", ip, good)},
		"redirects": {behind(namespace, "controller-0", ip, redirects)},
		"missing":   {behind(namespace, "controller-0", ip, missing)},
		"broken":    {behind(namespace, "controller-0", ip, broken)},
		"silent":    {behind(namespace, "controller-0", ip, silent)},
		"refuses":   {behind(namespace, "controller-0", ip, refuses)},
		"forbidden": {behind(namespace, "controller-0", ip, good)},
		"no-pod":    {behind(namespace, "", ip, good)},
		"empty":     nil,
	} {
		service(t, c, namespace, name, subsets...)
		if name != "forbidden" {
			names = append(names, fmt.Sprintf("%s:%d", name, metricsPort))
		}
	}
	spec := engineSpec()
	spec.ArgoCD.Namespace = namespace
	e, err := Connect(testEngine, spec, metricsReader(t, c, namespace, names...),
		Options{Stopped: func(fleet.TenantName) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	read := func(from fleet.MetricsEndpoint) (metering.Sample, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		body, err := e.ReadMetrics(ctx, from)
		if err != nil {
			return metering.Sample{}, err
		}
		defer func() { _ = body.Close() }()
		s, _, err := metering.Parse(fleet.ApplicationController, body)
		return s, err
	}
	in := func(name string) fleet.MetricsEndpoint {
		return fleet.MetricsEndpoint{Service: &fleet.MetricsPort{Name: name, Port: metricsPort}}
	}
	for what, from := range map[string]fleet.MetricsEndpoint{"a Service": in("good"), "a Pod": {
		Pod: &fleet.MetricsPort{Name: "controller-0", Port: good}}} {
		s, err := read(from)
		if err != nil || s.Started != 1 || s.CPU != 2 || s.Queue != 3 {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
		if sent.Get("Authorization") != "" {
			t.Errorf("%s: the component gets the engine's credential", what)
		}
	}
	for name, want := range map[string]string{
		"forbidden": "grant get on services/proxy or pods/proxy of it (docs/load.md); 403",
		"empty":     "no endpoints available for service",
		"no-pod":    "no endpoints available for service",
		"nowhere":   `services "nowhere" not found`,
		"refuses":   "connection refused",
		"missing":   "404",
		"redirects": "302",
		"broken":    "truncated",
		"silent":    "deadline exceeded",
	} {
		_, err := read(in(name))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		// the worker shows as many bytes of it
		if shown := printable.Truncate(err.Error(), 160); !strings.Contains(shown, want) {
			t.Errorf("%s: %v, want %q", name, shown, want)
		}
	}
	_, err = read(fleet.MetricsEndpoint{Pod: &fleet.MetricsPort{Name: "loopback-0", Port: good}})
	if err == nil || !strings.Contains(err.Error(), "address not allowed") {
		t.Errorf("a Pod at a loopback address: %v", err)
	}
}
