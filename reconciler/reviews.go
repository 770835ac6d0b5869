package reconciler

import (
	"context"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Reviews says what people saw before it was merged.
type Reviews interface {
	// Reviewed is what the merged pull requests of the commits between base and head showed, and
	// their owners consented to. With an error it is incomplete: what it lacks is not known.
	Reviewed(ctx context.Context, base, head fleet.Revision) (reviews.Reviewed, error)
}

// review asks who saw what the head brings. Without a Git host to ask, whoever may push to the
// branch has reviewed it.
func (l *Loop) review(ctx context.Context, r *plan.Request) {
	base := l.state.Revision()
	if l.asker == nil {
		return
	}
	if base == "" {
		r.Rebuilt = l.rebuilt()
		return
	}
	if base == r.Revision || len(r.Files) == 0 || r.Relation != plan.RelationDescendant {
		return
	}
	seen, err := l.asker.ask(ctx, reviews.Span{Base: base, Head: r.Revision})
	if err != nil && ctx.Err() == nil {
		l.Log.Warn(
			"failed to ask who reviewed a revision; what nobody is known to have reviewed is "+
				"held until it is known",
			"revision", r.Revision.Short(), "error", err)
	}
	r.Review = &reviews.Deletions{Reviewed: seen.Deletions, Unknown: err}
	r.Paths = &reviews.Files{Reviewed: seen.Paths, Trusted: seen.Trusted, Unknown: err}
}

// rebuilt says why a start without a mirror waits for an approval, or "". Where nothing of this
// fleet stands on any engine, nothing was ever applied, and so nothing was held.
func (l *Loop) rebuilt() string {
	const lost = "the mirror that knew which files were held is gone: "
	switch unread := l.recovery.Unread(); {
	case l.state.Rebuilt():
		return lost + "it was dropped by argosy rebuild"
	case l.recovery.FoundObjects():
		return lost + "engines hold objects of this fleet"
	case len(unread) > 0:
		return "engine " + string(unread[0]) + " is not read yet: it may hold objects of this fleet"
	}
	return ""
}

// takeReviews plans the applied revision again with what has become known of the reviews of held
// files and deletions.
func (l *Loop) takeReviews(ctx context.Context, lease mirror.Lease) error {
	if l.asker == nil || l.state == nil || l.state.Revision() == "" || l.recovery.Pending() {
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
		Revision: l.state.Revision(), Relation: plan.RelationSame, Review: review, Paths: paths,
	}
	l.unrecovered(r)
	if err := l.lately(ctx, r); err != nil {
		return err
	}
	if _, err := l.step(ctx, lease, Head{Revision: r.Revision}, r); err != nil {
		return err
	}
	l.asker.taken(news)
	return nil
}

// followReviews has what is held asked about until somebody turns out to have reviewed it.
func (l *Loop) followReviews() {
	if l.asker != nil {
		l.asker.follow(l.state.AwaitsReview())
	}
}

// AskReviews says that a review, a merge or a push may have become known: what is held is asked
// about soon.
func (l *Loop) AskReviews() {
	if l.asker != nil {
		l.asker.hasten()
	}
}
