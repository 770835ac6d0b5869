package fleet

import (
	"slices"
	"strings"
	"testing"
)

// FuzzCheckNamespaceEntry: an accepted entry holds no character that Argo CD reads as a pattern,
// and covers no namespace that is reserved or Argosy's own, unless it is that name itself.
func FuzzCheckNamespaceEntry(f *testing.F) {
	for _, entry := range []string{"acme", "acme-", "kube-", "kube-system", "argosy-x", "a--", "-",
		"*", "acme-*", "!x", "ACME-", "default-", "x-\n"} {
		f.Add(entry, "acme-shop")
	}
	f.Fuzz(func(t *testing.T, entry, namespace string) {
		if CheckNamespaceEntry(entry) != nil {
			return
		}
		if strings.ContainsAny(entry, "*?[]{}!\\,/ \n") || strings.HasPrefix(entry, "argosy-") {
			t.Errorf("accepted: %q", entry)
		}
		env := &EnvironmentSpec{Namespaces: []string{entry}}
		used := []string{namespace, entry + "x", "default", "kube-system", "argosy-tenant-x"}
		for _, ns := range env.NamespacesWith(used) {
			if !env.Lists(ns) || IsNamespacePrefix(ns) ||
				ns != entry && (ReservedNamespace(ns) || !strings.HasPrefix(ns, entry)) {
				t.Errorf("%q covers %q", entry, ns)
			}
			if slices.Contains(used[1:], ns) && CheckNamespace(ns) != nil {
				t.Errorf("%q covers %q", entry, ns)
			}
		}
	})
}

func TestAnEnginesOwnClusterIsGrantedByItsAddressAlone(t *testing.T) {
	near := &ClusterSpec{Engine: "eu-1"}
	if near.Address() != "engine:eu-1" || near.URL(nil) != InClusterServer {
		t.Errorf("%s, %s", near.Address(), near.URL(nil))
	}
	for grant, want := range map[string]bool{"engine:eu-1": true, "engine:eu-2": false,
		"https://kubernetes.default.svc": false, ".default.svc": false, ".svc": false} {
		if ServerGranted([]string{grant}, near.Address()) != want {
			t.Errorf("%s grants it: %t", grant, !want)
		}
	}
	if ServerGranted([]string{"engine:eu-1"}, "https://eu-1") {
		t.Error("the grant covers an API server")
	}
	for grant, good := range map[string]bool{"engine:eu-1": true, "engine:": false,
		"engine:*": false, "engine:eu-1.x": false, "engine:EU": false} {
		if err := CheckServerGrant(grant); (err == nil) != good {
			t.Errorf("%s: %v", grant, err)
		}
	}
}
