package catalog

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAManagedEngineFollowsADeclaredRing(t *testing.T) {
	t.Parallel()
	managed := func(ring string, edits ...edit) Input {
		return engine("eu-1", append([]edit{func(d *fleet.Declaration) {
			d.Engine.ArgoCD.Managed, d.Engine.Ring = true, ring
		}}, edits...)...)
	}
	ringed := func(names ...string) Input {
		return theFleet(func(d *fleet.Declaration) {
			for _, name := range names {
				d.Fleet.Rings = append(d.Fleet.Rings, fleet.Ring{Name: name, Version: "3.5.7"})
			}
		})
	}
	c := New()
	s := c.Prepare([]Input{theFleet(), managed("canary")})
	if got := codes(s.Problems()); got != "Engine eu-1 spec.ring "+codeUnknownRing {
		t.Errorf("problems %v", s.Problems())
	}
	commit(t, c, s)
	// the ring that is declared later brings the engine into effect
	good(t, c, ringed("canary", "stable"))
	if c.Engine("eu-1") == nil {
		t.Error("the engine waits although its ring is declared")
	}
	good(t, c, managed("")) // ring stable
	good(t, c, managed("canary", func(d *fleet.Declaration) {
		d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
	}))
}
