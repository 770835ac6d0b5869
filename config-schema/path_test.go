package configschema

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAPathIsReadFromItsKeyAndTheKeyFromIt(t *testing.T) {
	for _, path := range []string{
		"fleet/fleet.yaml", "fleet/engines/eu-1.yaml", "fleet/tenants/acme.yaml",
		"tenants/acme/environments/prod.yaml",
		"tenants/acme/deployments/web.yaml", "tenants/acme/credentials/git.yaml",
		"tenants/acme/syncs/now.yaml",
		"tenants/acme/credentials/git.sops.yaml", "tenants/acme/README",
	} {
		key, ours, _ := Classify(path)
		if got := PathOf(key); !ours || got != path {
			t.Errorf("%s: %v is at %q", path, key, got)
		}
	}
	if got := PathOf(fleet.Key{Name: "web"}); got != "" {
		t.Errorf("a key without a kind is at %q", got)
	}
}
