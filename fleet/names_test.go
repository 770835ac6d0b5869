package fleet

import (
	"strings"
	"testing"
)

func TestObjectNamesNeverMeet(t *testing.T) {
	a := ObjectName(ObjectApplication, "a-b", "c", "d")
	b := ObjectName(ObjectApplication, "a", "b-c", "d")
	if a == b {
		t.Fatalf("two identities share the name %s", a)
	}
	if ObjectName(ObjectCluster, "a", "b") == ObjectName(ObjectRepository, "a", "b") {
		t.Fatal("two kinds share a name")
	}
}

func TestObjectNamesAreLabelsWhateverTheLength(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, parts := range [][]string{{"a"}, {long}, {long, long, long},
		{"a", strings.Repeat("b", 43) + "-c"}, {strings.Repeat("ab-", 20) + "a", "b"}} {
		n := ObjectName(ObjectApplication, parts...)
		if len(n) > 63 || !isLabel(n) {
			t.Errorf("ObjectName(%q) = %q (%d characters) is no DNS-1123 label", parts, n, len(n))
		}
	}
}

func TestNames(t *testing.T) {
	for _, ok := range []string{"a", "a-b", "0", strings.Repeat("x", 63)} {
		if err := ValidateName(ok); err != nil {
			t.Errorf("%q is refused: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "A", "a-", "-a", "a.b", "a_b", "ä", "a b", "default",
		"in-cluster", "argocd", "kube-system", strings.Repeat("x", 64), "a\x00"} {
		if ValidateName(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The readable part and the hash of a long name are valid names of a tenant and an environment.
// Anyone who computes the hash could declare them.
func TestNoEnvironmentIsNamedAsAnotherOnesHash(t *testing.T) {
	long := EnvironmentID{Tenant: "acme", Name: EnvironmentName(strings.Repeat("e", 60))}
	engine := string(AgentEngine(long))
	if len(engine) > 63 || !EngineName(engine).OfEnvironment() {
		t.Errorf("engine %q", engine)
	}
	for at := range engine {
		tenant, name := engine[:at], engine[at+1:]
		if engine[at] != '.' || ValidateName(tenant) != nil || ValidateName(name) != nil {
			continue
		}
		if other := (EnvironmentID{Tenant: TenantName(tenant),
			Name: EnvironmentName(name)}); AgentEngine(other) == AgentEngine(long) {
			t.Errorf("environments %s and %s have the engine %s", long, other, engine)
		}
	}
	if got := AgentEngine(EnvironmentID{Tenant: "acme", Name: "vault"}); got != "acme.vault" {
		t.Errorf("a name that fits became %q", got)
	}
}
