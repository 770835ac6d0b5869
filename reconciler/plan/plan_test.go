package plan

import (
	"testing"
)

func TestAFirstRevisionCreatesTheDeclaredObjects(t *testing.T) {
	h := newHouse(t)
	p := h.apply(small())
	if len(p.Problems) > 0 || p.Counts.Created != 3 || p.Counts.Placed != 2 {
		t.Errorf("counts %+v, problems %v", p.Counts, p.Problems)
	}
	if p := h.apply(small()); !p.Empty() {
		t.Errorf("the same files again: %s", actions(p))
	}
}

func TestOneChangedFileChangesItsRowsOnly(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	p := h.apply(
		h.files.edit("tenants/acme/deployments/cart.yaml", "targetRevision: v1",
			"targetRevision: v2"))
	wantActions(t, p, "update Application cart@prod")
}
