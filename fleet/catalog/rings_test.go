package catalog

import (
	"reflect"
	"slices"
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
	sized := managed("canary", func(d *fleet.Declaration) {
		d.Engine.ArgoCD.Managed, d.Engine.ArgoCD.Size = false, &fleet.InstanceSize{Shards: 2}
	})
	if got := codes(c.Prepare([]Input{sized}).Problems()); got !=
		"Engine eu-1 spec.argocd.size "+codeUnmanagedSize {
		t.Errorf("problems %s", got)
	}
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

// A Fleet without a ring that a managed engine follows has no effect, unless the engine follows
// another one, is not managed any more, or is removed in the same commit.
func TestARingThatEnginesFollowStays(t *testing.T) {
	t.Parallel()
	managed := func(on bool, ring string) Input {
		return engine("eu-1", func(d *fleet.Declaration) {
			d.Engine.ArgoCD.Managed, d.Engine.Ring = on, ring
		})
	}
	ringed := func(names ...string) Input {
		return theFleet(func(d *fleet.Declaration) {
			for _, name := range names {
				d.Fleet.Rings = append(d.Fleet.Rings, fleet.Ring{Name: name, Version: "3.5.7"})
			}
		})
	}
	removed := engine("eu-1")
	removed.Removed, removed.Declaration = true, nil
	const refused = "Fleet fleet spec.rings " + codeReferenced
	for name, tc := range map[string]struct {
		commit []Input
		want   string
	}{
		"alone":          {[]Input{ringed("stable")}, refused},
		"with all rings": {[]Input{theFleet()}, refused},
		"with a stuck engine": {[]Input{ringed("stable"), managed(true, "gone")},
			"Engine eu-1 spec.ring unknown-ring; " + refused},
		"beside another engine": {[]Input{ringed("stable"), engine("us-1")}, refused},
		"and the engine moves":  {[]Input{ringed("stable"), managed(true, "")}, ""},
		"and is given back":     {[]Input{ringed("stable"), managed(false, "")}, ""},
		"and is removed":        {[]Input{ringed("stable"), removed}, ""},
		"of another order":      {[]Input{ringed("stable", "canary")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := New()
			good(t, c, ringed("canary", "stable"), managed(true, "canary"))
			s := c.Prepare(tc.commit)
			if got := codes(s.Problems()); got != tc.want {
				t.Errorf("problems %v", s.Problems())
			}
			commit(t, c, s)
			declared := c.Fleet()
			_, has := declared.RingNamed("canary")
			if e := c.Engine("eu-1"); tc.want != "" && (!has || e.Engine.Ring != "canary") {
				t.Errorf("the Fleet has %v, the engine follows %q", declared.Rings, e.Engine.Ring)
			}
		})
	}
}

// A refused removal of a ring takes effect once no engine follows the ring.
func TestARefusedRemovalOfARingEndsWithItsEngine(t *testing.T) {
	t.Parallel()
	c := New()
	good(t, c, theFleet(func(d *fleet.Declaration) {
		d.Fleet.Rings = []fleet.Ring{{Name: "canary", Version: "3.5.7"}}
	}), engine("eu-1", func(d *fleet.Declaration) {
		d.Engine.ArgoCD.Managed, d.Engine.Ring = true, "canary"
	}))
	s := c.Prepare([]Input{theFleet()})
	if got := codes(s.Problems()); got != "Fleet fleet spec.rings "+codeReferenced {
		t.Errorf("problems %q", got)
	}
	commit(t, c, s)
	removed := engine("eu-1")
	removed.Removed, removed.Declaration = true, nil
	s = c.Prepare([]Input{removed})
	commit(t, c, s)
	if len(c.Fleet().Rings) != 0 || c.Engine("eu-1") != nil {
		t.Errorf("rings %v, engine %v, problems %v", c.Fleet().Rings, c.Engine("eu-1"),
			s.Problems())
	}
}

func TestARingWithoutManagedIsAWarning(t *testing.T) {
	t.Parallel()
	c := New()
	s := c.Prepare([]Input{theFleet(), engine("eu-1", func(d *fleet.Declaration) {
		d.Engine.Ring = "canary"
	})})
	if got := codes(s.Problems()); got != "Engine eu-1 spec.ring "+codeRingUnused ||
		s.Problems()[0].Severity != fleet.SeverityWarning {
		t.Errorf("problems %v", s.Problems())
	}
}

// The agents of a tenant's environments follow the rings that the platform names in the Tenant;
// the agent of an Engine follows the ring of the Engine.
func TestAgentsFollowDeclaredRings(t *testing.T) {
	t.Parallel()
	ringed := func(names ...string) Input {
		return theFleet(func(d *fleet.Declaration) {
			for _, name := range names {
				d.Fleet.Rings = append(d.Fleet.Rings, fleet.Ring{Name: name, Version: "3.5.7"})
			}
		})
	}
	following := func(ring, one string) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.AgentRing = ring
			d.Tenant.Environments = []fleet.EnvironmentGrant{{Name: "dev", AgentRing: one}}
		})
	}
	behind := func(d *fleet.Declaration) {
		d.Environment.Cluster, d.Environment.Agent = nil, &fleet.AgentSpec{}
	}
	c := New()
	s := c.Prepare([]Input{ringed("stable"), following("edges", "canary")})
	const unknown = "Tenant acme spec.agentRing unknown-ring; " +
		"Tenant acme spec.environments[0].agentRing unknown-ring"
	if got := codes(s.Problems()); got != unknown {
		t.Errorf("problems %q", got)
	}
	commit(t, c, s)
	good(t, c, ringed("stable", "edges", "canary")) // which brings the tenant into effect
	good(t, c, environment("acme/dev", behind), environment("acme/yard", behind),
		environment("acme/eu"), engine("plant", func(d *fleet.Declaration) {
			d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
		}), engine("managed", func(d *fleet.Declaration) {
			d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
			d.Engine.ArgoCD.Managed = true
			d.Engine.ArgoCD.InstallationID, d.Engine.ArgoCD.Namespace = "managed", "managed"
		}))
	got := c.AgentsFollowing()
	want := map[string][]fleet.EngineName{"stable": {"plant"}, "edges": {"acme.yard"},
		"canary": {"acme.dev"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("agents follow %v, want %v", got, want)
	}
	const refused = "Fleet fleet spec.rings " + codeReferenced
	if got := codes(c.Prepare([]Input{ringed("stable", "edges")}).Problems()); got != refused {
		t.Errorf("a ring of agents is removed: %q", got)
	}
	s = c.Prepare([]Input{ringed("stable", "edges"), following("edges", "")})
	if got := codes(s.Problems()); got != "" {
		t.Errorf("a ring that no agent follows any more: %q", got)
	}
	commit(t, c, s)
	if got := c.AgentsFollowing()["edges"]; !slices.Equal(got, []fleet.EngineName{"acme.dev",
		"acme.yard"}) {
		t.Errorf("agents follow %v", got)
	}
	if s := c.Prepare([]Input{following("", "")}); codes(s.Problems()) != "" {
		t.Errorf("problems %v", s.Problems())
	}
}

func TestTheRingOfAnEngineBehindAnAgentNeedsNoManaged(t *testing.T) {
	t.Parallel()
	plant := engine("plant", func(d *fleet.Declaration) {
		d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
		d.Engine.Ring = "canary"
	})
	c := New()
	s := c.Prepare([]Input{theFleet(), plant})
	if got := codes(s.Problems()); got != "Engine plant spec.ring "+codeRingUnused ||
		s.Problems()[0].Severity != fleet.SeverityWarning {
		t.Errorf("problems %v", s.Problems())
	}
	s = c.Prepare([]Input{theFleet(func(d *fleet.Declaration) {
		d.Fleet.Rings = []fleet.Ring{{Name: "canary", Version: "3.5.7"}}
	}), plant})
	if got := codes(s.Problems()); got != "" {
		t.Errorf("problems %v", s.Problems())
	}
}
