package rings

import (
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// shadow changes the shadow of an engine.
func (w *engines) shadow(e fleet.EngineName, change func(*mirror.Shadow)) {
	w.set(e, func(i *mirror.InstanceFacts) {
		s := *i.Shadow
		change(&s)
		i.Shadow = &s
	})
}

// compared is a fleet on 2.14.21 whose rings have got 3.5.7, and whose shadows compare on request.
func compared(t *testing.T) *engines {
	w := newFleet(t)
	w.pass(300)
	w.log, w.slow = nil, true
	w.declare("3.5.7")
	w.step()
	return w
}

func (w *engines) finish(e fleet.EngineName, pending int, tenants ...fleet.TenantName) {
	w.shadow(e, func(s *mirror.Shadow) {
		now := w.now
		s.State, s.ComparedAt, s.Applications = mirror.ShadowCompared, &now, 9
		s.Differences, s.Pending, s.Tenants = pending, pending, tenants
	})
	w.step()
}

func TestARingRendersBeforeItChangesAnEngine(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.want("nothing is compared", "")
	w.state("canary", mirror.RingRendering, "engine c-1 gets a repo-server of 3.5.7")
	w.state("stable", mirror.RingWaiting, "ring canary")
	w.step()
	w.state("canary", mirror.RingRendering, "engine c-1 renders its Applications with 3.5.7")
	if s := w.ring("stable").Known["s-1"].Shadow; s != nil {
		t.Errorf("a ring that waits has a shadow: %+v", s)
	}
	w.finish("c-1", 0)
	w.want("no difference", "c-1 3.5.7")
	if s := w.ring("canary").Known["c-1"].Shadow; s.State != mirror.ShadowEnding {
		t.Errorf("the changed engine keeps its shadow: %+v", s)
	}
}

func TestDifferencesNeedAnApprovalBeyondThePermittedNumber(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.finish("c-1", 2, "beta", "acme")
	w.state("canary", mirror.RingDiffers, "3.5.7 renders 2 of 9 Applications differently, of acme, "+
		"beta; their owners approve: `argosy rings differences canary`")
	w.want("they gate the ring", "")
	w.finish("c-1", 1, "beta")
	w.state("canary", mirror.RingDiffers, "of beta")
	w.ring("canary").Gates.Differences = 1
	w.step()
	w.want("permitted", "c-1 3.5.7")
}

func TestAllEnginesOfARingAreComparedBeforeTheFirstOneChanges(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.slow = false
	w.pass(61) // canary is Done
	w.log, w.slow = nil, true
	w.ring("stable").AtOnce = 3
	for _, e := range []fleet.EngineName{"s-1", "s-2", "s-3"} {
		w.set(e, func(i *mirror.InstanceFacts) {
			i.State, i.Version, i.Digest = mirror.InstanceRunning, "2.14.21", "sha256:2.14.21"
			i.GoodVersion, i.GoodDigest, i.Shadow = i.Version, i.Digest, nil
		})
	}
	w.step()
	w.finish("s-1", 0)
	w.finish("s-2", 0)
	w.state("stable", mirror.RingRendering, "engine s-3")
	w.want("s-3 renders", "")
	w.finish("s-3", 1, "acme")
	w.state("stable", mirror.RingDiffers, "1 of 27")
	w.finish("s-3", 0)
	w.want("none differs", "s-1 3.5.7", "s-2 3.5.7", "s-3 3.5.7")
}

func TestAShadowThatFailsOrIsOldProvesNothing(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.finish("c-1", 1, "acme")
	w.shadow("c-1", func(s *mirror.Shadow) {
		s.State, s.Message = mirror.ShadowFailed, "the repo-server does not answer"
	})
	w.step()
	w.state("canary", mirror.RingUnavailable,
		"engine c-1 cannot render with 3.5.7: the repo-server does not answer")
	w.shadow("c-1", func(s *mirror.Shadow) {
		s.State, s.Pending = mirror.ShadowCompared, 0
		old := w.now.Add(-Fresh - time.Second)
		s.ComparedAt = &old
	})
	w.step()
	w.state("canary", mirror.RingRendering, "has not compared its Applications recently")
	w.set("c-1", func(i *mirror.InstanceFacts) { i.Followed = false })
	w.finish("c-1", 0)
	w.state("canary", mirror.RingRendering, "engine c-1 is not reachable")
	w.want("nothing changes", "")
}

func TestNothingIsRenderedWithoutAnotherVersion(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.ring("canary").Gates.SkipShadow = true
	w.step()
	w.want("skipped", "c-1 3.5.7")
	w.pass(61)
	w.log, w.slow = nil, true
	w.ring("canary").Manifests.Digest = "sha256:other" // of the same version
	w.ring("canary").Gates.SkipShadow = false
	w.step()
	w.want("the same version", "c-1 3.5.7")
}

// An agent that cannot compare leaves the shadow Failed: its engine does not move.
func TestAnEngineBehindAnAgentIsComparedLikeAnyOther(t *testing.T) {
	t.Parallel()
	w := newFleet(t)
	w.pass(300)
	w.log, w.slow = nil, true
	w.ring("canary").Behind = map[fleet.EngineName]bool{"c-1": true}
	w.declare("3.5.7")
	w.step()
	w.want("nothing changes before the comparison", "")
	w.shadow("c-1", func(s *mirror.Shadow) {
		s.State, s.Message = mirror.ShadowFailed, "its agent has version 0.4.0, which compares nothing"
	})
	w.step()
	w.state("canary", mirror.RingUnavailable, "its agent has version 0.4.0")
	w.want("nor with an agent that does not compare", "")
	w.finish("c-1", 1, "acme")
	w.step()
	w.state("canary", mirror.RingDiffers, "of acme")
	w.finish("c-1", 0)
	w.step()
	w.want("after the approval", "c-1 3.5.7")
}

func TestAPausedRingKeepsNoShadow(t *testing.T) {
	t.Parallel()
	w := compared(t)
	w.finish("c-1", 1, "acme")
	at := w.now
	w.ring("canary").Stored.PausedAt = &at
	w.step()
	if s := w.ring("canary").Known["c-1"].Shadow; s.State != mirror.ShadowEnding {
		t.Errorf("the shadow is %+v", s)
	}
	w.ring("canary").Stored.PausedAt = nil
	w.step()
	if s := w.ring("canary").Known["c-1"].Shadow; s.State != mirror.ShadowRendering ||
		s.ComparedAt != nil {
		t.Errorf("the shadow is %+v", s)
	}
}
