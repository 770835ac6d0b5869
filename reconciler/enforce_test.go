package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

const webFile, shopFile = "tenants/acme/deployments/web.yaml",
	"tenants/globex/deployments/shop.yaml"

// wants waits until the Application is wanted at the revision and applied.
func (h *house) wants(id, revision string) {
	h.t.Helper()
	h.eventually(id+" is at "+revision, func() error {
		if a := h.application(id); a.TargetRevision != revision || a.Apply != mirror.ApplyApplied {
			return fmt.Errorf("%s is at %s, %s", id, a.TargetRevision, a.Apply)
		}
		return nil
	})
}

func TestOnlyReviewedFilesAreAppliedOverRestartsAndLeaders(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{}
	r := h.start("a", options{reviews: people})
	h.atRest(r)
	base := h.head()
	head := h.commit("one reviewed, one not",
		together(deployment("acme", "web", "evil", "Delete", "prod", "staging"),
			deployment("globex", "shop", "v2", "Orphan", "prod")))
	people.sawFiles(t, h, base, head, shopFile)
	h.wants("globex/shop@prod", "v2")
	hold := h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	if hold.Tenant != "acme" || !slices.Equal(hold.Paths, []string{webFile}) ||
		len(hold.Items) != 0 {
		t.Fatalf("%+v", hold)
	}

	r.stop()
	b := h.start("b", options{reviews: people})
	next := h.commit("another tenant goes on", deployment("globex", "shop", "v3", "Orphan", "prod"))
	people.sawFiles(t, h, head, next, shopFile)
	h.wants("globex/shop@prod", "v3")
	h.kill(b)
	c := h.start("c", options{reviews: people})
	h.passes(c, 3)
	h.wants("acme/web@prod", "v1")
	if held := h.heldOf(head, "acme"); !slices.Equal(held.Paths, []string{webFile}) ||
		!held.Since.Equal(hold.Since) {
		t.Errorf("%+v, and before %+v", held, hold)
	}

	approve(t, h, head)
	h.wants("acme/web@prod", "evil")
	h.eventually("the hold ends", func() error {
		if held := h.heldOf(head, "acme"); held.Paths != nil {
			return fmt.Errorf("%+v", held)
		}
		return h.converged()
	})
}

func TestALaterReviewedCommitTakesThePlaceOfAHeldOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{}
	h.atRest(h.start("a", options{reviews: people}))
	head := h.commit("an unreviewed change", deployment("acme", "web", "evil", "Delete", "prod",
		"staging"))
	h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	next := h.commit("reviewed", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	people.sawFiles(t, h, head, next, webFile)
	h.wants("acme/web@prod", "v2")
	h.eventually("the hold ends", func() error {
		if held := h.heldOf(head, "acme"); held.Paths != nil {
			return fmt.Errorf("%+v", held)
		}
		return h.converged()
	})
}

// slowly does not answer about the slow commit until the test ends.
type slowly struct {
	*reviewers
	slow    atomic.Pointer[reviews.Span]
	waiting atomic.Bool
	over    chan struct{}
}

func (s *slowly) Reviewed(ctx context.Context, base, head fleet.Revision) (reviews.Reviewed,
	error) {
	if of := s.slow.Load(); of != nil && *of == (reviews.Span{Base: base, Head: head}) {
		s.waiting.Store(true)
		<-s.over
		return reviews.Reviewed{}, errors.New("the test is over")
	}
	return s.reviewers.Reviewed(ctx, base, head)
}

func TestAskingAboutAHeldCommitDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &slowly{reviewers: &reviewers{}, over: make(chan struct{})}
	h.atRest(h.start("a", options{reviews: people}))
	t.Cleanup(func() { close(people.over) })
	base := h.head()
	head := h.commit("an unreviewed change", deployment("acme", "web", "evil", "Delete", "prod",
		"staging"))
	h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	people.slow.Store(&reviews.Span{Base: base, Head: head})
	for i := range 3 {
		h.eventually("the held one is being asked about", func() error {
			if !people.waiting.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		begun, before := time.Now(), h.head()
		next := h.commit("another tenant's", deployment("globex", "shop", fmt.Sprintf("w%d", i),
			"Orphan", "prod"))
		people.sawFiles(t, h, before, next, shopFile)
		h.wants("globex/shop@prod", fmt.Sprintf("w%d", i))
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("it took %s", took)
		}
	}
}

func TestARebuildWaitsForAnApprovalWhereEnginesHoldObjects(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(h *house) *replica{
		"argosy rebuild": func(h *house) *replica {
			if err := h.store.Reset(h.t.Context()); err != nil {
				h.t.Fatal(err)
			}
			return nil
		},
		"the database is lost": func(h *house) *replica { h.newDatabase(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, small())
			people := &reviewers{}
			r := h.start("a", options{reviews: people})
			h.atRest(r)
			held := h.commit("an unreviewed change",
				deployment("acme", "web", "evil", "Delete", "prod",
					"staging"))
			h.heldFor(held, mirror.HoldUnreviewed, "not reviewed")
			r.stop()
			written := h.engines["eu-1"].writes() + h.engines["eu-2"].writes()
			lose(h)
			r = h.start("b", options{reviews: people})
			hold := h.heldFor(held, mirror.HoldUnreviewed,
				"the mirror that knew which files were held is gone")
			h.passes(r, 5)
			if s, _ := h.store.Views.Source(t.Context()); s.Applied != "" || hold.Tenant != "" {
				t.Errorf("%s is applied, held %+v", s.Applied.Short(), hold)
			}
			if n := h.engines["eu-1"].writes() + h.engines["eu-2"].writes() - written; n != 0 {
				t.Errorf("%d writes", n)
			}
			// The head moves while it waits, and the approval that counts is the new head's.
			held = h.commit("nor this", deployment("acme", "web", "v2", "Delete", "prod",
				"staging"))
			h.heldFor(held, mirror.HoldUnreviewed,
				"the mirror that knew which files were held is gone")
			r.stop()
			h.start("c", options{reviews: people})
			approve(t, h, held)
			h.eventually("it goes on once somebody has looked at all of it", h.converged)
		})
	}
}

func TestAFirstStartNeedsNoApproval(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{reviews: &reviewers{}})
	h.eventually("the fleet is in sync", h.converged)
}

func TestWithoutAGitHostThePusherHasReviewed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.atRest(h.start("a", options{}))
	h.commit("pushed", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.wants("acme/web@prod", "v2")
}

func TestApprovalsReviewsAndProofsCountWhileGitIsAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{}
	r := h.start("a", options{reviews: people})
	h.atRest(r)
	base := h.head()
	first := h.commit("an unreviewed change",
		deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.heldFor(first, mirror.HoldUnreviewed, "not reviewed")
	second := h.commit("nor this", together(deployment("globex", "shop", "v2", "Orphan", "prod")))
	h.heldFor(second, mirror.HoldUnreviewed, "not reviewed")
	third := h.commit("nor that", gone(tenant("acme", "staging")))
	h.eventually("it is recorded", func() error { return h.recorded(third) })
	r.source.away.Store(true)
	h.passes(r, 2)
	approve(t, h, first)
	h.wants("acme/web@prod", "v2")
	people.sawFiles(t, h, first, second, shopFile)
	r.AskReviews()
	h.wants("globex/shop@prod", "v2")
	if s, _ := h.store.Views.Source(t.Context()); !strings.Contains(s.Error, "away") ||
		base == s.Applied {
		t.Errorf("%+v", s)
	}
	r.source.away.Store(false)
	h.passes(r, 2)
}
