package fleet

import (
	"strings"
	"testing"
)

func TestTheNamespaceOfATenantIsItsOwn(t *testing.T) {
	long := func(name string) string { return strings.Repeat("payments-", 6) + name }
	names := map[string]string{
		"acme":                  "argosy-tenant-acme",
		strings.Repeat("x", 49): "argosy-tenant-" + strings.Repeat("x", 49),
		strings.Repeat("x", 50): "argosy-long-tenant-xxxxxxxxxxxxxxxxxxxxxxx-",
		strings.Repeat("x", 20) + "---" + strings.Repeat("y", 30): "argosy-long-tenant-xxxxxxxxxxxxxxxxxxxx-",
		long("eu"): "argosy-long-tenant-payments-payments-payme-",
		long("us"): "argosy-long-tenant-payments-payments-payme-",
	}
	of := map[string]string{}
	for name, want := range names {
		got := TenantNamespace(TenantName(name))
		if !strings.HasPrefix(got, want) || len(name) < 50 && got != want || len(got) > maxName ||
			!isLabel(got) {
			t.Errorf("%s: %s", name, got)
		}
		if other, taken := of[got]; taken {
			t.Errorf("%s and %s have the namespace %s", name, other, got)
		}
		of[got] = name
		// what follows the prefix of the plain form is no other tenant's name
		if rest, plain := strings.CutPrefix(got, "argosy-tenant-"); plain && rest != name {
			t.Errorf("%s has the namespace of tenant %s", name, rest)
		}
		if account := AccountOf(EnvironmentID{Tenant: TenantName(name),
			Name: "prod"}); account.Namespace != got {
			t.Errorf("the service accounts of %s are in %s", name, account.Namespace)
		}
	}
}
