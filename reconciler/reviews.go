package reconciler

import (
	"context"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Reviews know who reviewed a change before its merge.
type Reviews interface {
	// Reviewed are the changes that merged pull requests of the commits between base and head have
	// shown, with the consent of their owners. With an error the result is incomplete.
	Reviewed(ctx context.Context, base, head fleet.Revision) (reviews.Reviewed, error)
}

// review adds the reviews of the head to a request. Without a Git host, anyone who may push to the
// branch has reviewed it.
func (l *Loop) review(ctx context.Context, r *plan.Request) {
	base := l.stored.state.Revision()
	if l.asker == nil {
		return
	}
	if base == "" {
		r.Rebuilt = l.rebuilt()
		return
	}
	if base == r.Revision || len(r.Files) == 0 || r.Relation != mirror.RelationDescendant {
		return
	}
	seen, err := l.asker.ask(ctx, reviews.Span{Base: base, Head: r.Revision})
	if err != nil && ctx.Err() == nil {
		l.Log.Warn(
			"failed to ask who reviewed a revision; changes without a known review are "+
				"held until it succeeds",
			"revision", r.Revision.Short(), "error", err)
	}
	r.DeletionReviews = &reviews.Deletions{Reviewed: seen.Deletions, Unknown: err}
	r.FileReviews = &reviews.Files{Reviewed: seen.Paths, Trusted: seen.Trusted, Unknown: err}
}

// rebuilt explains why a start without a mirror needs an approval, or is "". If no engine has an
// object of this fleet, nothing was ever applied, and so nothing was held.
func (l *Loop) rebuilt() string {
	const lost = "the mirror that knew which files were held is gone: "
	switch unread := l.recovery.Unread(); {
	case l.stored.state.Rebuilt():
		return lost + "it was dropped by argosy rebuild"
	case l.recovery.FoundObjects():
		return lost + "engines hold objects of this fleet"
	case len(unread) > 0:
		return "engine " + string(unread[0]) + " is not read yet: it may hold objects of this fleet"
	}
	return ""
}

// takeReviews plans the applied revision again with new reviews of held files and deletions.
func (l *Loop) takeReviews(ctx context.Context, lease mirror.Lease) error {
	if l.asker == nil || l.stored.state == nil || l.stored.state.Revision() == "" ||
		l.recovery.Pending() {
		return nil
	}
	news := l.asker.news()
	if len(news) == 0 {
		return nil
	}
	review := &reviews.Deletions{
		Earlier: map[reviews.Span]map[fleet.ObjectKey]mirror.ReviewedDeletion{}}
	paths := &reviews.Files{Earlier: map[reviews.Span]map[string]string{},
		EarlierTrusted: map[reviews.Span]map[string]bool{}}
	for span, seen := range news {
		review.Earlier[span], paths.Earlier[span], paths.EarlierTrusted[span] = seen.Deletions,
			seen.Paths, seen.Trusted
	}
	r := &plan.Request{
		Revision: l.stored.state.Revision(), Relation: mirror.RelationSame, DeletionReviews: review,
		FileReviews: paths,
	}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	if _, err := l.planAndRecord(ctx, lease, Head{Revision: r.Revision}, r); err != nil {
		return err
	}
	l.asker.taken(news)
	return nil
}

// followReviews requests reviews for held changes until they are reviewed.
func (l *Loop) followReviews() {
	if l.asker != nil {
		l.asker.follow(l.stored.state.AwaitsReview())
	}
}

// AskReviews requests reviews of held changes soon: a review, a merge or a push may have happened.
func (l *Loop) AskReviews() {
	if l.asker != nil {
		l.asker.hasten()
	}
}
