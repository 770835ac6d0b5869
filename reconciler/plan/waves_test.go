package plan

import (
	"fmt"
	"slices"
	"testing"
)

// A worker reads rows in this order, so that it knows an earlier wave before a later one.
func TestRowsAreInTheOrderOfWaves(t *testing.T) {
	h := newHouse(t)
	files := small().without("tenants/acme/deployments/")
	h.apply(files)
	wave := map[string]int{"last": 7, "first": -3, "zero": 0, "next": 1}
	with := files
	for name, n := range wave {
		with = with.with("tenants/acme/deployments/"+name+".yaml", deploymentFile(name,
			"acme/"+name, "environments: [prod]", fmt.Sprintf("  wave: %d\n", n)))
	}
	order := func(p *Plan) (names []string) {
		for _, c := range p.Rows {
			if c.Row.Deployment != "" {
				names = append(names, string(c.Row.Deployment))
			}
		}
		return names
	}
	if got := order(h.apply(with)); !slices.Equal(got, []string{"first", "zero", "next", "last"}) {
		t.Errorf("created in the order %v", got)
	}
	if got := order(h.apply(files)); !slices.Equal(got, []string{"last", "next", "zero", "first"}) {
		t.Errorf("deleted in the order %v", got)
	}
}
