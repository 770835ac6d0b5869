package charts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/agent/edge"
)

// manifest returns the output of `argosy agent manifest` as objects.
func manifest(t *testing.T, in edge.Install) []object {
	t.Helper()
	made, err := in.Objects()
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for _, m := range made {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// essence returns the effects of an object: its rights, its subjects, its network rules and how its
// process runs. It omits labels and the user ID, which comes from the image.
func essence(t *testing.T, o object) string {
	t.Helper()
	var parts []any
	switch o.at("kind") {
	case "Role", "ClusterRole":
		var rules []string
		for _, r := range o.list("rules") {
			rules = append(rules, text(t, r))
		}
		slices.Sort(rules)
		parts = append(parts, rules)
	case "RoleBinding", "ClusterRoleBinding":
		parts = append(parts, o.get("roleRef"), o.get("subjects"))
	case "Deployment":
		pod := o.pod()
		c := pod.list("containers")[0]
		parts = append(parts, o.get("spec", "replicas"), o.get("spec", "strategy"),
			o.get("spec", "selector"), pod.get("serviceAccountName"), pod.get("enableServiceLinks"),
			pod.get("volumes"),
			pod.get("securityContext", "runAsNonRoot"),
			pod.get("securityContext", "seccompProfile"), len(pod.list("containers")))
		for _, field := range []string{"args", "env", "volumeMounts", "securityContext",
			"resources", "terminationMessagePolicy", "readinessProbe"} {
			parts = append(parts, c.get(field))
		}
	case "ConfigMap":
		parts = append(parts, strings.TrimSpace(o.at("data", "ca.pem")))
	default:
		parts = append(parts, o.get("spec"))
	}
	return text(t, parts)
}

func TestTheAgentChartMatchesTheManifest(t *testing.T) {
	ca := testCA(t)
	for name, c := range map[string]struct {
		in   edge.Install
		args []string
	}{
		"plain": {edge.Install{Hub: "https://argosy.example.com"}, nil},
		"elsewhere": {edge.Install{Hub: "https://argosy.example.com:8443", Namespace: "edge",
			ArgoCDNamespace: "gitops", Proxy: "http://proxy.example.com:3128",
			NoProxy: "10.0.0.0/8", MaxDeletions: 5, CA: ca, PublicOnly: true},
			[]string{
				"--set",
				"hub.url=https://argosy.example.com:8443,argocd.namespace=gitops,proxy.url=http://proxy.example.com:3128,proxy.noProxy=10.0.0.0/8,maxDeletions=5,repositories.private=false",
				"--set-string", "hub.caBundle=" + string(ca)}},
		"further namespaces": {edge.Install{Hub: "https://argosy.example.com",
			ApplicationNamespaces: []string{"shop-apps", "more"}}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.applicationNamespaces={shop-apps,more}"}},
		"an Argo CD of the rings": {edge.Install{Hub: "https://argosy.example.com",
			InstallArgoCD: true}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.install=true"}},
		"one without secrets": {edge.Install{Hub: "https://argosy.example.com",
			InstallArgoCD: true, PublicOnly: true}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.install=true,repositories.private=false"}},
		"an agent that upgrades itself": {edge.Install{Hub: "https://argosy.example.com",
			SelfUpgrade: true}, []string{"--set",
			"hub.url=https://argosy.example.com,selfUpgrade=true"}},
		"one that shows resources": {edge.Install{Hub: "https://argosy.example.com",
			Reads: true, ReadNamespaces: []string{"shop", "apps"},
			ApplicationNamespaces: []string{"apps"}}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.reads=true,argocd.readNamespaces={shop,apps},argocd.applicationNamespaces={apps}"}},
		"one that restarts workloads": {edge.Install{Hub: "https://argosy.example.com",
			Reads: true, ReadNamespaces: []string{"shop"}, Restarts: true}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.reads=true,argocd.readNamespaces={shop},argocd.restarts=true"}},
		"one that shows resources without secrets": {edge.Install{
			Hub: "https://argosy.example.com", Reads: true, PublicOnly: true}, []string{"--set",
			"hub.url=https://argosy.example.com,argocd.reads=true,repositories.private=false"}},
		"another port": {edge.Install{Hub: "https://argosy.example.com:8443"},
			[]string{"--set", "hub.url=https://argosy.example.com:8443"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Image, c.in.EgressOnly = "argosy.dev/argosy:0.1.0", true
			namespace := c.in.Namespace
			if namespace == "" {
				namespace = "argosy-agent"
			}
			got, want := map[string]string{}, map[string]string{}
			for _, o := range objects(t, "argosy-agent", namespace,
				append(ci("argosy-agent", "min"), c.args...)...) {
				got[o.String()+" in "+o.at("metadata", "namespace")] = essence(t, o)
			}
			for _, o := range manifest(t, c.in) {
				if o.at("kind") != "Namespace" { // helm's --create-namespace
					want[o.String()+" in "+o.at("metadata", "namespace")] = essence(t, o)
				}
			}
			for key := range want {
				if got[key] != want[key] {
					t.Errorf("%s is\n%s, and in the manifest\n%s", key, got[key], want[key])
				}
				delete(got, key)
			}
			if len(got) > 0 {
				t.Errorf("the chart has more: %v", got)
			}
		})
	}
}

// testCA returns a certificate in PEM form.
func testCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
