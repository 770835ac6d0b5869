package fleet

import (
	"net/netip"
	"testing"
)

func TestCheckMetricsURL(t *testing.T) {
	for raw, want := range map[string]bool{
		"http://argocd-metrics:8082":                  true,
		"https://metrics.example.com":                 true,
		"http://10.1.2.3:8082":                        true,
		"http://127.0.0.1:8082":                       true,
		"http://metrics.example.com:80":               false, // the default
		"https://metrics.example.com/metrics":         false,
		"https://metrics.example.com/":                false,
		"https://user:pass@metrics.example.com":       false,
		"http://169.254.169.254":                      false,
		"http://metadata.google.internal":             false,
		"http://kubernetes.default.svc":               false,
		"http://[fe80::1]:8082":                       false,
		"http://metrics.example.com?redirect=http://": false,
		"ftp://metrics.example.com":                   false,
		"metrics.example.com:8082":                    false,
		"":                                            false,
	} {
		if err := CheckMetricsURL(raw); (err == nil) != want {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestOnlyADeclaredLoopbackAddressServesMetrics(t *testing.T) {
	for _, c := range []struct {
		host, ip string
		want     bool
	}{
		{"metrics.example.com", "10.1.2.3", true},
		{"metrics.example.com", "2001:db8::1", true},
		{"metrics.example.com", "127.0.0.1", false},
		{"metrics.example.com", "::1", false},
		{"metrics.example.com", "::ffff:127.0.0.1", false},
		{"metrics.example.com", "169.254.169.254", false},
		{"metrics.example.com", "::ffff:169.254.169.254", false},
		{"metrics.example.com", "fe80::1", false},
		{"metrics.example.com", "0.0.0.0", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"localhost", "::1", true},
		{"127.0.0.1.example.com", "127.0.0.1", false},
	} {
		if got := MayReach(c.host, netip.MustParseAddr(c.ip)); got != c.want {
			t.Errorf("%s at %s: %v", c.host, c.ip, got)
		}
	}
}

// A hub may send an agent any name: it must not lead to another path of the API server.
func TestAProxyPathHasNoOtherPartThanItsNameAndPort(t *testing.T) {
	for _, c := range []struct {
		of   MetricsEndpoint
		want string
	}{
		{MetricsEndpoint{Service: &MetricsPort{"argocd-metrics", 8082}},
			"/api/v1/namespaces/argocd/services/argocd-metrics:8082/proxy/metrics"},
		{MetricsEndpoint{Pod: &MetricsPort{"argocd-application-controller-0", 8082}},
			"/api/v1/namespaces/argocd/pods/argocd-application-controller-0:8082/proxy/metrics"},
		{MetricsEndpoint{Service: &MetricsPort{"../../x", 8082}}, ""},
		{MetricsEndpoint{Service: &MetricsPort{"x/y", 8082}}, ""},
		{MetricsEndpoint{Service: &MetricsPort{"https:x", 8082}}, ""},
		{MetricsEndpoint{Pod: &MetricsPort{"x", 0}}, ""},
		{MetricsEndpoint{URL: "http://x"}, ""},
		{MetricsEndpoint{}, ""},
	} {
		got, ok := c.of.ProxyPath("argocd")
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q %v, want %q", c.of, got, ok, c.want)
		}
	}
	m := EngineMetrics{ApplicationController: []MetricsEndpoint{{URL: "http://10.0.0.1"},
		{Service: &MetricsPort{"argocd-metrics", 8082}}}}
	if got := m.ThroughAPIServer(); len(got.ApplicationController) != 1 ||
		got.ApplicationController[0].URL != "" || len(m.ApplicationController) != 2 {
		t.Errorf("an agent follows %+v of %+v", got, m)
	}
}
