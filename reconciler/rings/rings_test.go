package rings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

var begin = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// engines plays store and workers: it carries out the steps.
type engines struct {
	*testing.T
	now   time.Time
	rings []Ring
	log   []string
	slow  bool // no shadow compares anything
}

func (w *engines) ring(name string) *Ring {
	for i := range w.rings {
		if w.rings[i].Name == name {
			return &w.rings[i]
		}
	}
	w.Fatalf("no ring %s", name)
	return nil
}

func newFleet(t *testing.T) *engines {
	w := &engines{T: t, now: begin}
	for _, r := range []struct {
		name string
		of   []fleet.EngineName
	}{{"canary", []fleet.EngineName{"c-1"}}, {"stable", []fleet.EngineName{"s-1", "s-2", "s-3"}}} {
		w.rings = append(w.rings, Ring{Ring: fleet.Ring{Name: r.name}.OrDefaults(),
			Engines: r.of, Known: map[fleet.EngineName]mirror.InstanceFacts{}})
	}
	w.declare("2.14.21")
	return w
}

func (w *engines) declare(version string) {
	for i := range w.rings {
		w.rings[i].Version, w.rings[i].Manifests.Digest = version, "sha256:"+version
	}
}

// step records the steps that are due now, and those that are due once the shadows have compared.
func (w *engines) step() {
	w.record()
	compared := false
	for _, r := range w.rings {
		for e, i := range r.Known {
			if i.Shadow != nil && i.Shadow.Active() && !w.slow {
				shadow, now := *i.Shadow, w.now
				compared = compared || shadow.ComparedAt == nil
				shadow.State, shadow.ComparedAt = mirror.ShadowCompared, &now
				i.Shadow = &shadow
				r.Known[e] = i
			}
		}
	}
	if compared {
		w.record()
	}
}

func (w *engines) record() {
	for _, s := range Next(w.now, w.rings, []string{"group:platform"}) {
		r := w.ring(s.Name)
		r.Stored = mirror.Ring{Name: s.Name, State: s.State, Message: s.Message, Halted: s.Halted,
			Version: s.Version, Digest: s.Digest, AgentVersion: s.Agent.Version,
			AgentDigest: s.Agent.Digest, PausedAt: r.Stored.PausedAt,
			PausedBy: r.Stored.PausedBy}
		for _, e := range s.Good {
			i := r.Known[e]
			i.GoodVersion, i.GoodDigest = i.Version, i.Digest
			i.GoodAgentVersion, i.GoodAgentDigest = i.AgentVersion, i.AgentDigest
			r.Known[e] = i
		}
		for _, t := range s.Targets {
			i := r.Known[t.Engine]
			i.Engine, i.State, i.Version, i.Digest, i.Since = t.Engine,
				mirror.InstanceInstalling, t.Version, t.Digest, w.now
			i.AgentVersion, i.AgentDigest = t.Agent.Version, t.Agent.Digest
			i.Followed, i.DegradedBefore, i.UnknownBefore = true, i.Degraded, i.Unknown
			r.Known[t.Engine] = i
			w.log = append(w.log, strings.TrimSpace(fmt.Sprintf("%s %s %s", t.Engine, t.Version,
				t.Agent.Digest)))
		}
		for e, i := range r.Known {
			switch wants := slices.Contains(s.Shadows, e); {
			case wants && (i.Shadow == nil || !i.Shadow.Active() || i.Shadow.Digest != s.Digest):
				i.Shadow = &mirror.Shadow{Engine: e, State: mirror.ShadowRendering,
					Version: s.Version, Digest: s.Digest, Since: w.now}
			case slices.Contains(s.EndShadows, e):
				ended := *i.Shadow
				ended.State = mirror.ShadowEnding
				i.Shadow = &ended
			}
			r.Known[e] = i
		}
	}
}

// runs makes every installing engine run.
func (w *engines) runs() {
	for _, r := range w.rings {
		for e, i := range r.Known {
			if i.State == mirror.InstanceInstalling {
				i.State, i.Since = mirror.InstanceRunning, w.now
				r.Known[e] = i
			}
		}
	}
}

func (w *engines) set(e fleet.EngineName, change func(*mirror.InstanceFacts)) {
	for _, r := range w.rings {
		if i, ok := r.Known[e]; ok {
			change(&i)
			r.Known[e] = i
		}
	}
}

// pass lets minutes pass in which every engine succeeds.
func (w *engines) pass(minutes int) {
	for range minutes {
		w.step()
		w.runs()
		w.now = w.now.Add(time.Minute)
	}
	w.step()
}

func (w *engines) want(what string, want ...string) {
	w.Helper()
	if got, want := strings.Join(w.log, ", "), strings.Join(want, ", "); got != want {
		w.Fatalf("%s: engines began with [%s], want [%s]", what, got, want)
	}
}

func (w *engines) state(ring string, want mirror.RingState, message string) {
	w.Helper()
	if r := w.ring(ring); r.Stored.State != want || !strings.Contains(r.Stored.Message, message) {
		w.Fatalf("ring %s is %s: %s; want %s: %s", ring, r.Stored.State, r.Stored.Message, want,
			message)
	}
}

// installed is a fleet whose rings have 2.14.21 and begin with 3.5.7.
func installed(t *testing.T) *engines {
	w := newFleet(t)
	w.pass(300)
	w.state("stable", mirror.RingDone, "")
	w.log = nil
	w.declare("3.5.7")
	w.step()
	w.want("begin", "c-1 3.5.7")
	return w
}

func TestTheRingsChangeInTheirOrderOneEngineAtATime(t *testing.T) {
	t.Parallel()
	w := installed(t)
	w.state("canary", mirror.RingMoving, "now c-1")
	w.state("stable", mirror.RingWaiting, "ring canary is not Done")
	w.pass(59)
	w.want("soak of canary", "c-1 3.5.7")
	w.state("canary", mirror.RingSoaking, "until 2026")
	w.pass(1)
	w.want("canary is Done", "c-1 3.5.7", "s-1 3.5.7")
	w.pass(4)
	w.want("one after another", "c-1 3.5.7", "s-1 3.5.7", "s-2 3.5.7", "s-3 3.5.7")
	w.pass(70)
	w.state("stable", mirror.RingDone, "")
	if steps := Next(w.now, w.rings, nil); len(steps) > 0 {
		t.Errorf("rings that are Done have steps: %+v", steps)
	}
}

func TestAFailedGateHaltsAndReturnsTheRing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(*mirror.InstanceFacts)
		why  string
	}{
		"the Pods do not start": {func(i *mirror.InstanceFacts) {
			i.State, i.Message, i.Since = mirror.InstanceInstalling, "Pod 0 is pending",
				begin
		}, "does not run 3.5.7 after 15m0s: Pod 0 is pending"},
		"a right is missing": {func(i *mirror.InstanceFacts) {
			i.State, i.Message = mirror.InstanceRefused, "forbidden"
		}, "cannot have 3.5.7: forbidden"},
		"the controller is stuck": {func(i *mirror.InstanceFacts) {
			i.Work.State = mirror.ControllerStuck
		}, "is ControllerStuck under 3.5.7"},
		"an Application is Degraded": {func(i *mirror.InstanceFacts) {
			i.Degraded = i.DegradedBefore + 1
		}, "has 1 Degraded Applications under 3.5.7, and had 0"},
		"an Application is not compared": {func(i *mirror.InstanceFacts) {
			i.Unknown = i.UnknownBefore + 1
		}, "has 1 Applications in an unknown state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := installed(t)
			w.pass(10)
			w.set("c-1", c.fail)
			w.step()
			w.want("return", "c-1 3.5.7", "c-1 2.14.21")
			w.state("canary", mirror.RingHalted, "engine c-1 "+c.why)
			w.state("canary", mirror.RingHalted, "group:platform decide")
			w.set("c-1", func(i *mirror.InstanceFacts) { i.Degraded, i.Unknown = 0, 0 })
			w.set("c-1", func(i *mirror.InstanceFacts) { i.Work.State = mirror.Working })
			w.pass(300)
			w.want("no ring goes on", "c-1 3.5.7", "c-1 2.14.21")
			w.state("stable", mirror.RingWaiting, "ring canary")
			w.ring("canary").Stored.Halted = "" // a person resumes it
			w.step()
			w.want("resumed", "c-1 3.5.7", "c-1 2.14.21", "c-1 3.5.7")
		})
	}
}

func TestAVersionThatMayNotReturnStays(t *testing.T) {
	t.Parallel()
	w := newFleet(t)
	w.pass(300)
	w.declare("9.0.0") // untested
	w.log = nil
	w.pass(3)
	w.set("c-1", func(i *mirror.InstanceFacts) { i.Degraded = 9 })
	w.pass(5)
	w.want("no return", "c-1 9.0.0")
	w.state("canary", mirror.RingHalted, "9 Degraded")
	w.declare("3.5.7") // another version begins again
	w.step()
	w.want("another version", "c-1 9.0.0", "c-1 3.5.7")
}

func TestThePauseAndMissingManifestsHoldTheNextEngine(t *testing.T) {
	t.Parallel()
	w := installed(t)
	w.pass(60)
	w.want("stable has begun", "c-1 3.5.7", "s-1 3.5.7")
	at := w.now
	w.ring("stable").Stored.PausedAt, w.ring("stable").Stored.PausedBy = &at, "ann"
	w.pass(30)
	w.want("paused", "c-1 3.5.7", "s-1 3.5.7")
	w.state("stable", mirror.RingPaused, "by ann")
	w.ring("stable").Stored.PausedAt, w.ring("stable").Unavailable = nil, "directory is empty"
	w.pass(30)
	w.want("unavailable", "c-1 3.5.7", "s-1 3.5.7")
	w.state("stable", mirror.RingUnavailable, "directory is empty")
	w.ring("stable").Unavailable = ""
	w.pass(1)
	w.want("goes on", "c-1 3.5.7", "s-1 3.5.7", "s-2 3.5.7")
}

func TestAnUnreachableEngineEndsNoSoak(t *testing.T) {
	t.Parallel()
	w := installed(t)
	w.pass(10)
	w.set("c-1", func(i *mirror.InstanceFacts) { i.Followed = false })
	w.pass(200)
	w.want("nothing follows", "c-1 3.5.7")
	w.state("canary", mirror.RingSoaking, "engine c-1 is not reachable")
}

// An agent is part of what a ring brings: it changes in the order of the rings, and a failed gate
// returns it.
func TestTheAgentsOfARingChangeAndReturnWithIt(t *testing.T) {
	w := newFleet(t)
	for i := range w.rings {
		w.rings[i].Behind = map[fleet.EngineName]bool{"c-1": true, "s-2": true}
	}
	w.pass(200)
	w.log = nil
	agent := func(digest string) {
		for i := range w.rings {
			w.rings[i].Agent = &fleet.RingAgent{Version: "0.5.0", Digest: digest}
		}
	}
	agent("d1")
	w.pass(200)
	w.want("agents alone", "c-1 2.14.21 d1", "s-2 2.14.21 d1")
	w.log = nil
	agent("d2")
	w.pass(1)
	w.set("c-1", func(i *mirror.InstanceFacts) { i.State = mirror.InstanceRefused })
	w.pass(2)
	w.want("a refused agent", "c-1 2.14.21 d2", "c-1 2.14.21 d1")
	if r := w.ring("canary").Stored; r.State != mirror.RingHalted || r.Halted == "" {
		t.Errorf("%+v", r)
	}
	w.pass(100)
	w.want("a halted ring", "c-1 2.14.21 d2", "c-1 2.14.21 d1")
	w.log = nil
	agent("d3") // begins again
	w.pass(200)
	w.want("another agent", "c-1 2.14.21 d3", "s-2 2.14.21 d3")
}

// The first upgrade of an agent returns to an image that no ring has named.
func TestAFirstAgentReturnsToTheImageBefore(t *testing.T) {
	w := newFleet(t)
	w.rings[0].Behind = map[fleet.EngineName]bool{"c-1": true}
	w.pass(200)
	w.log = nil
	w.rings[0].Agent = &fleet.RingAgent{Version: "0.5.0", Digest: "d1"}
	w.step()
	w.now = w.now.Add(time.Hour)
	w.set("c-1", func(i *mirror.InstanceFacts) { i.Message = "the Pod is not ready" })
	w.step()
	w.want("it does not begin", "c-1 2.14.21 d1", "c-1 2.14.21 previous")
	if m := w.ring("canary").Stored.Message; !strings.Contains(m, "the Pod is not ready") {
		t.Errorf("halted with %q", m)
	}
	w.rings[0].Agent = nil
	w.pass(200)
	if r := w.ring("canary").Stored; r.State != mirror.RingDone {
		t.Errorf("%+v", r)
	}
	if steps := Next(w.now, w.rings, nil); len(steps) > 0 {
		t.Errorf("it does not rest: %+v", steps)
	}
}

// The first Applications of an engine that had none are no fault of its version. Those of an engine
// that was taken over are judged, and so is the next version of a fresh engine.
func TestAFreshEngineIsNotJudgedByItsFirstApplications(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{true, false} {
		w := newFleet(t)
		w.step()
		w.runs()
		w.set("c-1", func(i *mirror.InstanceFacts) {
			i.Fresh, i.Unknown, i.Degraded = fresh, 45, 1
		})
		w.now = w.now.Add(2 * Steady)
		w.step()
		if halted := w.ring("canary").Stored.State == mirror.RingHalted; halted == fresh {
			t.Errorf("fresh: %t, halted: %t", fresh, halted)
		}
		if !fresh {
			continue
		}
		w.pass(90)
		w.state("canary", mirror.RingDone, "")
		w.declare("3.5.7")
		w.step()
		w.runs()
		w.set("c-1", func(i *mirror.InstanceFacts) { i.Fresh, i.Degraded = false, i.Degraded+3 })
		w.now = w.now.Add(2 * Steady)
		w.step()
		w.state("canary", mirror.RingHalted, "has 4 Degraded Applications under 3.5.7, and had 1")
	}
}

// An engine that is fresh still has to work.
func TestAFreshEngineHaltsItsRingWhenItDoesNotWork(t *testing.T) {
	t.Parallel()
	w := newFleet(t)
	w.step()
	w.runs()
	w.set("c-1", func(i *mirror.InstanceFacts) {
		i.Fresh, i.Work.State = true, mirror.ControllerStuck
	})
	w.now = w.now.Add(2 * Steady)
	w.step()
	w.state("canary", mirror.RingHalted, "is ControllerStuck")
}

// An engine without Applications that gets the version which its ring has proven, as a new instance
// of a pool does, keeps no later ring from changing.
func TestANewEngineOfARingKeepsNoLaterRingBack(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*mirror.InstanceFacts)
		begins bool
	}{
		"without Applications": {func(i *mirror.InstanceFacts) { i.Fresh = true }, true},
		"with Applications":    {func(*mirror.InstanceFacts) {}, false},
		"with a failed gate": {func(i *mirror.InstanceFacts) {
			i.Fresh, i.State = true, mirror.InstanceRefused
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newFleet(t)
			w.pass(300)
			w.state("stable", mirror.RingDone, "")
			w.ring("canary").Engines = []fleet.EngineName{"c-1", "c-2"}
			w.log = nil
			w.step()
			w.want("the new engine", "c-2 2.14.21")
			w.set("c-2", c.change)
			stable := w.ring("stable")
			stable.Version, stable.Manifests.Digest = "3.5.7", "sha256:3.5.7"
			w.step()
			if began := slices.Contains(w.log, "s-1 3.5.7"); began != c.begins {
				t.Errorf("the later ring begins: %v", w.log)
			}
		})
	}
}
