package github

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// conversations reads the comments and reviews of pull requests, and writes our comment.
type conversations struct{ pulls }

// Conversation implements webhook.Reader. Reviews that are not submitted are left out, and so is
// Gitea's request for a review.
func (f conversations) Conversation(ctx context.Context, n int) ([]forge.Comment, []forge.Review,
	error) {
	comments, reviews, err := f.conversation(ctx, n)
	if err != nil {
		return nil, nil, fmt.Errorf("comments and reviews of pull request %d: %w", n, err)
	}
	return comments, reviews, nil
}

func (f conversations) conversation(ctx context.Context, n int) ([]forge.Comment, []forge.Review,
	error) {
	r, err := f.here(ctx)
	if err != nil {
		return nil, nil, err
	}
	us, err := f.self(ctx)
	if err != nil {
		return nil, nil, err
	}
	reviews, err := every(ctx, func(v review) int64 { return v.ID },
		pagesOf[review](f.connection, in(r.FullName, "pulls", number(n), "reviews"), nil, texts))
	if isGone(err) { // of any page: only the pull request itself can be proven not to be there
		if _, none := f.pull(ctx, n); none != nil {
			err = none
		}
	}
	if err != nil {
		return nil, nil, err
	}
	comments, err := f.comments(ctx, r, n)
	if err != nil {
		return nil, nil, err
	}
	converted := make([]forge.Comment, 0, len(comments))
	for _, c := range comments {
		converted = append(converted, forge.Comment{
			ID: c.ID, Author: author(c.User), Own: f.own(c, us),
			Edited: c.UpdatedAt.After(c.CreatedAt), Body: c.Body, At: c.CreatedAt,
		})
	}
	judged, err := judgements(reviews)
	return converted, judged, err
}

// comments are those of a pull request's conversation, oldest first.
func (f conversations) comments(ctx context.Context, r repository, n int) ([]comment, error) {
	all, err := every(ctx, func(c comment) int64 { return c.ID },
		wholeOf[comment](f.connection, in(r.FullName, "issues", number(n), "comments"), nil, texts))
	slices.SortFunc(all, func(a, b comment) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// own reports whether we wrote the comment. Comments of another App under our account's name are
// not ours.
func (f conversations) own(c comment, us account) bool {
	return c.User != nil && c.User.ID == us.ID && (f.appID == 0 || c.App == nil ||
		c.App.ID == f.appID)
}

func judgements(reviews []review) ([]forge.Review, error) {
	slices.SortFunc(reviews, func(a, b review) int {
		return cmp.Or(a.SubmittedAt.Compare(b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	judged := make([]forge.Review, 0, len(reviews))
	for _, v := range reviews {
		state, given, err := v.judgement()
		if err != nil {
			return nil, err
		}
		if given {
			judged = append(judged, forge.Review{Author: author(v.User), State: state,
				Head: fleet.Revision(v.Commit), At: v.SubmittedAt})
		}
	}
	return judged, nil
}

// judgement maps what both forges call the states of a review. A word that is none of theirs is an
// error: it could take an approval back.
func (r review) judgement() (state forge.ReviewState, given bool, err error) {
	if r.Dismissed {
		return forge.ReviewDismissed, true, nil
	}
	switch strings.ToUpper(r.State) {
	case "APPROVED":
		return forge.ReviewApproved, true, nil
	case "CHANGES_REQUESTED", "REQUEST_CHANGES":
		return forge.ReviewChanges, true, nil
	case "DISMISSED":
		return forge.ReviewDismissed, true, nil
	case "COMMENTED", "COMMENT":
		return forge.ReviewCommented, true, nil
	case "PENDING", "REQUEST_REVIEW":
		return "", false, nil
	}
	return "", false, fmt.Errorf("review %d is %q, which is no state of a review", r.ID,
		plain(r.State))
}
