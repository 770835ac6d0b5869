package plan

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAPlannerPanicQuarantinesTheFileThatCausesIt(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
		with("tenants/globex/environments/shops.yaml", environmentFile("shops", "eu", "", "app")))
	const bad, beside, other = "tenants/acme/deployments/bad.yaml",
		"tenants/acme/deployments/new.yaml", "tenants/globex/deployments/shop.yaml"
	after := h.files.with(bad, deploymentFile("bad", "acme/bad", "environments: [prod]", "")).
		with(beside, deploymentFile("new", "acme/new", "environments: [prod]", "")).
		with(other, deploymentFile("shop", "globex/shop", "environments: [shops]", ""))
	h.render.refuses = func(o fleet.Object) bool {
		if o.Application != nil && o.Application.ID.Deployment == "bad" {
			panic("index out of range")
		}
		return false
	}
	p := h.apply(after)
	if p.Counts.Created != 2 || len(p.Quarantined) != 1 || p.Quarantined[0].Path != bad {
		t.Fatalf("%s, quarantined %+v", actions(p), p.Quarantined)
	}
	if m := p.Quarantined[0].Problems[0].Message; !strings.Contains(m, "cannot be planned") ||
		!strings.Contains(m, "index out of range") {
		t.Error(m)
	}
	h.restart()
	after = version(after, other, "v2")
	if p := h.apply(after); p.Counts.Changed != 1 {
		t.Errorf("the next commit: %s", actions(p))
	}
	h.render.refuses = nil
	if p := h.apply(version(after, bad, "v2")); p.Counts.Created != 1 || len(p.Cleared) != 1 {
		t.Errorf("fixed: %s, cleared %v", actions(p), p.Cleared)
	}
	checkState(t, h)
}

func TestAPanicWithoutAChangedFileAsCauseIsAnError(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	h.apply(small().without(checkout))
	h.render.refuses = func(fleet.Object) bool { panic("nil map") }
	r := Request{Revision: h.w.Revision(), Relation: mirror.RelationSame,
		Deleted: h.w.Terminating(),
		Now:     h.now}
	if _, err := h.w.Compute(r, &h.render); err == nil ||
		!strings.Contains(err.Error(), "nil map") {
		t.Error(err)
	}
}
