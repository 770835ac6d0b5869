package configschema

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// The example has each way in which a change goes in steps.
func TestTheExampleOfGradualChanges(t *testing.T) {
	files := repoFiles(t, "../examples/gradual-changes")
	for _, p := range Check(files) {
		t.Error(p)
	}
	s := catalog.New().Prepare(Inputs(files))
	of := s.Fleet()
	if len(of.Rings) != 2 || of.Rings[0].SecuritySoak >= of.Rings[0].Soak || len(of.Freezes) != 1 {
		t.Errorf("rings and freezes of the Fleet: %+v, %+v", of.Rings, of.Freezes)
	}
	access := s.Declaration(fleet.Key{Kind: fleet.KindAccess, Name: "access"})
	if access == nil || len(access.Access.Operators) != 1 {
		t.Errorf("roles of the platform: %+v", access)
	}
	shop := s.Tenant("shop")
	if len(s.Pools()) != 1 || shop == nil || len(shop.Tenant.Freezes) != 1 {
		t.Errorf("%d pools, tenant %+v", len(s.Pools()), shop)
	}
	for name, waves := range map[fleet.DeploymentName]int{"search": 2, "checkout": 3} {
		d := s.Deployment(fleet.DeploymentID{Tenant: "shop", Name: name})
		if d == nil {
			t.Fatalf("no deployment %s", name)
		}
		if r := d.Deployment.RolloutIn(s.Defaults("shop")); r == nil || len(r.Waves) != waves {
			t.Errorf("%s goes in %+v, not in %d waves", name, r, waves)
		}
	}
}
