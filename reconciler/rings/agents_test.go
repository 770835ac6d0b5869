package rings

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// withAgents makes canary a ring of agents alone, of which e-3 is not connected.
func withAgents(t *testing.T) (w *engines, declare func(digest string)) {
	t.Helper()
	w = newFleet(t)
	names := []fleet.EngineName{"e-1", "e-2", "e-3"}
	r := w.ring("canary")
	r.Engines, r.Behind, r.AgentOnly = names, map[fleet.EngineName]bool{},
		map[fleet.EngineName]bool{}
	r.Connected = map[fleet.EngineName]bool{"e-1": true, "e-2": true}
	for _, e := range names {
		r.Behind[e], r.AgentOnly[e] = true, true
	}
	return w, func(digest string) {
		w.ring("canary").Agent = &fleet.RingAgent{Version: "0.5.0", Digest: digest}
	}
}

// An agent that is not connected holds no ring. It gets the version when it is back, and later
// rings do not wait for it then.
func TestAnAgentThatIsNotConnectedGetsTheVersionWhenItIsBack(t *testing.T) {
	w, declare := withAgents(t)
	declare("d1")
	w.step()
	w.want("one at a time", "e-1  d1")
	if m := w.ring("canary").Stored.Message; m != "0 of 2 engines run agent 0.5.0; now e-1" {
		t.Errorf("message %q", m)
	}
	w.pass(200)
	w.want("those that are connected", "e-1  d1", "e-2  d1", "s-1 2.14.21", "s-2 2.14.21",
		"s-3 2.14.21")
	w.state("canary", mirror.RingDone, "")
	w.log = nil
	w.declare("3.5.7")
	w.ring("canary").Connected["e-3"] = true
	w.step()
	w.want("it is back, and the next ring goes on", "e-3  d1", "s-1 3.5.7")
	w.pass(200)
	w.state("canary", mirror.RingDone, "")
	if i := w.ring("canary").Known["e-3"]; !i.Passed() || i.Digest != "" {
		t.Errorf("%+v", i)
	}
}

// The failure of one agent returns it, also without a version that a ring has brought before, and
// reaches no other one.
func TestAFailedAgentReturnsAndReachesNoOther(t *testing.T) {
	w, declare := withAgents(t)
	declare("d1")
	w.step()
	w.set("e-1", func(i *mirror.InstanceFacts) {
		i.State, i.Message = mirror.InstanceRefused, "proved no session"
	})
	w.pass(100)
	w.want("the first one returns", "e-1  d1", "e-1  previous")
	w.state("canary", mirror.RingHalted, "engine e-1 cannot have agent 0.5.0: proved no session; "+
		"group:platform decide")
	declare("d2")
	w.pass(200)
	w.log = nil
	declare("d3")
	w.step()
	w.want("with a good version", "e-1  d3")
	w.now = w.now.Add(time.Hour)
	w.step()
	w.want("it returns to that", "e-1  d3", "e-1  d2")
}

// An agent that falls silent after its change is judged when it is back, if another one was judged
// meanwhile: a cluster that is switched off holds no ring. A silent agent alone proves nothing.
func TestASilentAgentIsJudgedWhenItIsBack(t *testing.T) {
	w, declare := withAgents(t)
	declare("d1")
	w.pass(10)
	silent := func(e fleet.EngineName, is bool) {
		w.set(e, func(i *mirror.InstanceFacts) { i.Followed = !is })
		w.ring("canary").Connected[e] = !is
	}
	silent("e-1", true)
	silent("e-2", true)
	w.pass(200)
	w.state("canary", mirror.RingSoaking, "engine e-2 is not reachable")
	silent("e-2", false)
	w.pass(2)
	w.state("canary", mirror.RingDone, "")
	if w.ring("canary").Known["e-1"].Passed() {
		t.Error("a silent agent has passed the gates")
	}
	silent("e-1", false)
	w.set("e-1", func(i *mirror.InstanceFacts) { i.Degraded = 7 })
	w.step()
	if m := w.ring("canary").Stored.Message; !strings.Contains(m, "engine e-1 has 7 Degraded") {
		t.Errorf("it is not judged: %q", m)
	}
}

// An agent that stays at its image is no reason to wait while its Argo CD is given back.
func TestAnAgentFollowsOnceItsArgoCDIsGivenBack(t *testing.T) {
	w, declare := withAgents(t)
	w.ring("canary").Known["e-1"] = mirror.InstanceFacts{Instance: mirror.Instance{Engine: "e-1",
		State: mirror.InstanceReleasing, Digest: "sha256:2.14.21"}, Followed: true}
	declare("d1")
	w.step()
	w.want("another one begins", "e-2  d1")
}
