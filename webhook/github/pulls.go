package github

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func cutName(full string) (owner, name string, ok bool) { return strings.Cut(full, "/") }

// pulls reads pull requests.
type pulls struct{ *connection }

// Pull implements webhook.Reader.
func (f pulls) Pull(ctx context.Context, n int) (forge.Pull, error) {
	p, err := f.pull(ctx, n)
	if err != nil {
		return forge.Pull{}, fmt.Errorf("pull request %d: %w", n, err)
	}
	return p, nil
}

func (f pulls) pull(ctx context.Context, n int) (forge.Pull, error) {
	r, err := f.here(ctx)
	if err != nil {
		return forge.Pull{}, err
	}
	a, err := f.get(ctx, in(r.FullName, "pulls", number(n)), nil)
	if isGone(err) {
		return forge.Pull{}, f.noPull(ctx, r, err)
	}
	if err != nil {
		return forge.Pull{}, err
	}
	p, err := read[pull](a)
	if err == nil && f.gitea && p.State == "closed" && !p.Merged {
		// Gitea reads whether it is merged before it reads whether it is closed: of a merge in
		// between it reports half
		if a, err = f.get(ctx, in(r.FullName, "pulls", number(n)), nil); err != nil {
			return forge.Pull{}, err
		}
		p, err = read[pull](a)
	}
	if err == nil && p.Number != n {
		err = fmt.Errorf("the Git host answers with number %d", p.Number)
	}
	if err != nil {
		return forge.Pull{}, err
	}
	return f.toPull(p)
}

// noPull proves that there is no such pull request: "not found" is also the answer for hidden
// objects.
func (f pulls) noPull(ctx context.Context, r repository, gone error) error {
	_, err := pagesOf[pull](f.connection, in(r.FullName, "pulls"), nil, 1)(ctx, 1)
	if err != nil {
		return fmt.Errorf("%w, and whether our account may read pull requests is not known: %w",
			gone, err)
	}
	if _, err := f.here(ctx); err != nil {
		return err
	}
	return forge.ErrNoSuchPull
}

// toPull converts the pull request of this repository.
func (f pulls) toPull(p pull) (forge.Pull, error) {
	if err := f.ours(p.Base.Repo.ID); err != nil {
		return forge.Pull{}, err
	}
	out := forge.Pull{
		Number: p.Number, Title: p.Title, Author: author(p.User), State: forge.PullOpen,
		Draft: p.Draft, Fork: isFork(p),
		Base: p.Base.Ref, Head: fleet.Revision(p.Head.SHA), URL: link(p.HTMLURL),
		UpdatedAt: p.UpdatedAt,
	}
	switch {
	case p.State == "closed" && (p.Merged || p.MergedAt != nil):
		out.State, out.MergeCommit = forge.PullMerged, fleet.Revision(p.MergeCommit)
	case p.State == "closed":
		out.State = forge.PullClosed
	}
	return out, nil
}

// isFork reports whether others than those who may write to the repository can have made the head.
// A pull request of Gitea's AGit flow has no branch: anybody who reads the repository may push one,
// and it claims the repository itself as its head's.
func isFork(p pull) bool {
	return p.Head.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID || p.Head.Label == ""
}

// link is the URL if a browser may be led to it, otherwise nothing.
func link(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return text
}

// OpenPulls implements webhook.Reader.
func (f pulls) OpenPulls(ctx context.Context, base string) ([]forge.Pull, error) {
	r, err := f.here(ctx)
	if err != nil {
		return nil, fmt.Errorf("open pull requests: %w", err)
	}
	query := url.Values{"state": {"open"}, "base": {base}, "sort": {"created"}, "direction": {
		"asc"}}
	if f.gitea {
		query = url.Values{"state": {"open"}, "base_branch": {base}, "sort": {"oldest"}}
	}
	all, err := every(ctx, func(p pull) int64 { return int64(p.Number) },
		pagesOf[pull](f.connection, in(r.FullName, "pulls"), query, texts))
	if err != nil {
		return nil, fmt.Errorf("open pull requests: %w", err)
	}
	var open []forge.Pull
	for _, p := range all {
		converted, err := f.toPull(p)
		if err != nil {
			return nil, fmt.Errorf("open pull requests: %w", err)
		}
		if converted.State == forge.PullOpen && converted.Base == base {
			open = append(open, converted)
		}
	}
	return open, nil
}

// PullsOf implements webhook.Reader. GitHub finds each merged pull request that brought the commit
// in; Gitea the one whose merge commit it is, which of a rebased pull request is the last of its
// commits.
func (f pulls) PullsOf(ctx context.Context, commit fleet.Revision) ([]int, error) {
	numbers, err := f.pullsOf(ctx, commit)
	if err != nil {
		return nil, fmt.Errorf("pull requests of commit %s: %w", commit, err)
	}
	return numbers, nil
}

func (f pulls) pullsOf(ctx context.Context, commit fleet.Revision) ([]int, error) {
	if !commitID.MatchString(string(commit)) {
		return nil, fmt.Errorf("it is no commit")
	}
	r, err := f.here(ctx)
	if err != nil {
		return nil, err
	}
	found, err := f.broughtBy(ctx, r, string(commit))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, p := range found {
		converted, err := f.toPull(p)
		if err != nil {
			return nil, err
		}
		if converted.State == forge.PullMerged {
			numbers = append(numbers, converted.Number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

func (f pulls) broughtBy(ctx context.Context, r repository, commit string) ([]pull, error) {
	if !f.gitea {
		return every(ctx, func(p pull) int64 { return int64(p.Number) },
			pagesOf[pull](f.connection, in(r.FullName, "commits", commit, "pulls"), nil, texts))
	}
	a, err := f.get(ctx, in(r.FullName, "commits", commit, "pull"), nil)
	if isGone(err) {
		first := pagesOf[pull](f.connection, in(r.FullName, "pulls"), nil, 1)
		if _, err := first(ctx, 1); err != nil {
			return nil, err
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := read[pull](a)
	return []pull{p}, err
}
