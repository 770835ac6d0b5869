package stack

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ForgePull is a pull request as the forge's API returns it.
type ForgePull struct {
	Number      int
	State       string // open or closed
	Merged      bool
	Draft       bool
	MergeCommit string `json:"merge_commit_sha"`
	Title       string
	User        Account
	Base, Head  struct {
		Ref, SHA string
		RepoID   int64 `json:"repo_id"`
	}
}

// ForgeComment is a comment of a pull request.
type ForgeComment struct {
	ID      int64
	User    Account
	Body    string
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
}

// ForgeReview is a review of a pull request.
type ForgeReview struct {
	ID        int64
	User      Account
	State     string // as for Review
	Commit    string `json:"commit_id"`
	Stale     bool   // of an older head
	Official  bool
	Dismissed bool
}

// ForgeStatus is a commit status.
type ForgeStatus struct {
	Context     string  `json:"context"`
	State       string  `json:"status"` // pending, success, error, failure or warning
	Description string  `json:"description"`
	URL         string  `json:"target_url"`
	Creator     Account `json:"creator"`
}

// OpenPull asks, as the account, to merge head into the branch base: "branch",
// or "login:branch" of a fork. It returns the number.
func (r *ForgeRepo) OpenPull(ctx context.Context, as Account, title, head, base string) (int,
	error) {
	var p ForgePull
	err := r.forge.Call(ctx, as, http.MethodPost, r.path("pulls"), map[string]any{
		"title": title, "head": head, "base": base}, &p)
	return p.Number, err
}

// Pull returns the current state of the pull request.
func (r *ForgeRepo) Pull(ctx context.Context, number int) (p ForgePull, err error) {
	return p, r.forge.Call(ctx, r.forge.Admin, http.MethodGet, r.path("pulls/%d", number), nil, &p)
}

// Comment writes a comment as the account and returns its id.
func (r *ForgeRepo) Comment(ctx context.Context, as Account, number int, body string) (int64,
	error) {
	var c ForgeComment
	err := r.forge.Call(ctx, as, http.MethodPost, r.path("issues/%d/comments", number),
		map[string]any{"body": body}, &c)
	return c.ID, err
}

// EditComment replaces a comment's text, as the account.
func (r *ForgeRepo) EditComment(ctx context.Context, as Account, id int64, body string) error {
	return r.forge.Call(ctx, as, http.MethodPatch, r.path("issues/comments/%d", id), map[string]any{
		"body": body}, nil)
}

// DeleteComment removes a comment, as the account.
func (r *ForgeRepo) DeleteComment(ctx context.Context, as Account, id int64) error {
	return r.forge.Call(ctx, as, http.MethodDelete, r.path("issues/comments/%d", id), nil, nil)
}

// Comments are those of the pull request, oldest first. The forge gives them all
// at once.
func (r *ForgeRepo) Comments(ctx context.Context, number int) (all []ForgeComment, err error) {
	return all, r.forge.Call(ctx, r.forge.Admin, http.MethodGet,
		r.path("issues/%d/comments", number), nil, &all)
}

// The verdicts of a review.
const (
	Approve        = "APPROVED"
	RequestChanges = "REQUEST_CHANGES"
	OnlyComment    = "COMMENT"
)

// Review reviews the commit as the account and returns the review's id. An empty commit is the pull
// request's head. No account may approve its own pull request.
func (r *ForgeRepo) Review(ctx context.Context, as Account, number int, verdict, commit,
	body string) (int64, error) {
	var review struct{ ID int64 }
	err := r.forge.Call(ctx, as, http.MethodPost, r.path("pulls/%d/reviews", number),
		map[string]any{"event": verdict, "commit_id": commit, "body": body}, &review)
	return review.ID, err
}

// Reviews are those of the pull request, oldest first.
func (r *ForgeRepo) Reviews(ctx context.Context, number int) ([]ForgeReview, error) {
	return list[ForgeReview](ctx, r.forge, r.forge.Admin, r.path("pulls/%d/reviews", number))
}

// DismissReview takes a review's weight, as an admin of the repository may.
func (r *ForgeRepo) DismissReview(ctx context.Context, as Account, number int, review int64) error {
	return r.forge.Call(ctx, as, http.MethodPost, r.path("pulls/%d/reviews/%d/dismissals", number,
		review), map[string]any{"message": "dismissed"}, nil)
}

// ClosePull closes the pull request without a merge, as the account.
func (r *ForgeRepo) ClosePull(ctx context.Context, as Account, number int) error {
	return r.forge.Call(ctx, as, http.MethodPatch, r.path("pulls/%d", number), map[string]any{
		"state": "closed"}, nil)
}

// ReopenPull opens it again.
func (r *ForgeRepo) ReopenPull(ctx context.Context, as Account, number int) error {
	return r.forge.Call(ctx, as, http.MethodPatch, r.path("pulls/%d", number), map[string]any{
		"state": "open"}, nil)
}

// EditTitle changes a pull request's title, as the account. The prefix "WIP:" makes it a draft.
func (r *ForgeRepo) EditTitle(ctx context.Context, as Account, number int, title string) error {
	return r.forge.Call(ctx, as, http.MethodPatch, r.path("pulls/%d", number), map[string]any{
		"title": title}, nil)
}

// mergeLimit bounds Merge with its wait for the forge to find out whether it can.
const mergeLimit = 5 * time.Minute

// Merge merges the pull request as the account and returns the commit that main
// has for it. The style is merge, squash or rebase. It waits until the forge has
// looked at the newest head.
func (r *ForgeRepo) Merge(ctx context.Context, as Account, number int, style string) (string,
	error) {
	ctx, cancel := context.WithTimeout(ctx, mergeLimit)
	defer cancel()
	var refused error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := r.forge.Call(ctx, as, http.MethodPost, r.path("pulls/%d/merge", number),
			map[string]any{"do": style}, nil)
		if err == nil {
			p, err := r.Pull(ctx, number)
			return p.MergeCommit, err
		}
		if problem := (*ForgeError)(nil); !errors.As(err, &problem) ||
			problem.Status != http.StatusMethodNotAllowed {
			return "", errors.Join(err, refused)
		}
		refused = err
		// Gitea finds out again whether it can merge when it is asked for a pull request.
		if _, err := r.Pull(ctx, number); err != nil {
			return "", errors.Join(err, refused)
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), refused)
		case <-time.After(pause):
		}
	}
}

// SetStatus reports a commit status, as the account.
func (r *ForgeRepo) SetStatus(ctx context.Context, as Account, commit string, s ForgeStatus) error {
	return r.forge.Call(ctx, as, http.MethodPost, r.path("statuses/%s", commit), map[string]any{
		"context": s.Context, "state": s.State, "description": s.Description, "target_url": s.URL,
	}, nil)
}

// Statuses are all that were ever reported for the commit, newest first. Only
// the first of each context counts. Gitea sorts by index downwards when asked for
// the least first.
func (r *ForgeRepo) Statuses(ctx context.Context, commit string) ([]ForgeStatus, error) {
	return list[ForgeStatus](ctx, r.forge, r.forge.Admin, r.path("statuses/%s?sort=leastindex",
		commit))
}
