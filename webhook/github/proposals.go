package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	api "github.com/google/go-github/v60/github"

	"argosy.dev/argosy/fleet/forge"
)

// proposals opens pull requests of Argosy's own.
type proposals struct{ pulls }

// Propose implements webhook.Proposals. A branch, a file or a pull request that is there is changed
// only where it differs, so that a repeated call changes nothing.
func (f proposals) Propose(ctx context.Context, p forge.Proposal) (forge.Proposed, error) {
	done, err := f.propose(ctx, p)
	if err != nil {
		return done, fmt.Errorf("propose a change of %s: %w", p.Path, err)
	}
	return done, nil
}

func (f proposals) propose(ctx context.Context, p forge.Proposal) (forge.Proposed, error) {
	if p.Branch == p.Base || !commitID.MatchString(string(p.From)) {
		return forge.Proposed{}, errors.New("a proposal has a branch of its own, from a commit")
	}
	r, err := f.here(ctx)
	if err != nil {
		return forge.Proposed{}, err
	}
	if err := f.branch(ctx, r, p); err != nil {
		return forge.Proposed{}, err
	}
	if err := f.file(ctx, r, p); err != nil {
		return forge.Proposed{}, err
	}
	return f.request(ctx, r, p)
}

// branch makes sure that there is the branch.
func (f proposals) branch(ctx context.Context, r repository, p forge.Proposal) error {
	_, err := f.get(ctx, in(r.FullName, "branches", p.Branch), nil)
	if !isGone(err) {
		return err
	}
	at, body := in(r.FullName, "git", "refs"), map[string]string{
		"ref": "refs/heads/" + p.Branch, "sha": string(p.From)}
	if f.gitea {
		at, body = in(r.FullName, "branches"), map[string]string{"new_branch_name": p.Branch,
			"old_ref_name": string(p.From)}
	}
	_, err = f.write(ctx, http.MethodPost, at, body)
	return err
}

// file makes sure that the branch has the text. It replaces only the version that it has read.
func (f proposals) file(ctx context.Context, r repository, p forge.Proposal) error {
	at := in(r.FullName, append([]string{"contents"}, strings.Split(p.Path, "/")...)...)
	a, err := f.get(ctx, at, url.Values{"ref": {p.Branch}})
	if err != nil {
		return err
	}
	now, err := read[content](a)
	if err != nil {
		return err
	}
	if bytes.Equal(now.Content, p.Text) {
		return nil
	}
	_, err = f.write(ctx, http.MethodPut, at, &api.RepositoryContentFileOptions{
		Message: &p.Title, Content: p.Text, SHA: &now.SHA, Branch: &p.Branch})
	return err
}

// request makes sure that there is an open pull request of the branch, and that it has the texts.
func (f proposals) request(ctx context.Context, r repository, p forge.Proposal) (forge.Proposed,
	error) {
	open, found, err := f.openOf(ctx, r, p)
	if err != nil {
		return forge.Proposed{}, err
	}
	var a answer
	switch {
	case !found:
		a, err = f.write(ctx, http.MethodPost, in(r.FullName, "pulls"), map[string]string{
			"title": p.Title, "head": p.Branch, "base": p.Base, "body": p.Body})
	case open.Title != p.Title || !sameText(open.Body, p.Body):
		a, err = f.write(ctx, http.MethodPatch, in(r.FullName, "pulls", number(open.Number)),
			map[string]string{"title": p.Title, "body": p.Body})
	default:
		return forge.Proposed{Number: open.Number, URL: link(open.HTMLURL)}, nil
	}
	if err != nil {
		return forge.Proposed{}, err
	}
	made, err := read[pull](a)
	if err == nil {
		err = f.ours(made.Base.Repo.ID)
	}
	return forge.Proposed{Number: made.Number, URL: link(made.HTMLURL)}, err
}

// openOf returns the open pull request of the proposal's branch, if there is one.
func (f proposals) openOf(ctx context.Context, r repository, p forge.Proposal) (open pull,
	found bool, err error) {
	owner, _, _ := cutName(r.FullName)
	query := url.Values{"state": {"open"}, "base": {p.Base}, "head": {owner + ":" + p.Branch}}
	if f.gitea {
		query = url.Values{"state": {"open"}, "base_branch": {p.Base}}
	}
	all, err := every(ctx, func(p pull) int64 { return int64(p.Number) },
		pagesOf[pull](f.connection, in(r.FullName, "pulls"), query, texts))
	if err != nil {
		return open, false, err
	}
	for _, one := range all {
		if one.Head.Ref == p.Branch && !isFork(one) && one.Base.Ref == p.Base {
			return one, true, f.ours(one.Base.Repo.ID)
		}
	}
	return open, false, nil
}

// Withdraw implements webhook.Proposals.
func (f proposals) Withdraw(ctx context.Context, n int, branch string) error {
	if err := f.withdraw(ctx, n, branch); err != nil {
		return fmt.Errorf("close pull request %d: %w", n, err)
	}
	return nil
}

func (f proposals) withdraw(ctx context.Context, n int, branch string) error {
	p, err := f.pull(ctx, n)
	if errors.Is(err, forge.ErrNoSuchPull) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := f.here(ctx)
	if err != nil {
		return err
	}
	if p.State == forge.PullOpen {
		if _, err := f.write(ctx, http.MethodPatch, in(r.FullName, "pulls", number(n)),
			map[string]string{"state": "closed"}); err != nil {
			return err
		}
	}
	_, err = f.get(ctx, in(r.FullName, "branches", branch), nil)
	if err == nil {
		at := in(r.FullName, "git", "refs", "heads", branch)
		if f.gitea {
			at = in(r.FullName, "branches", branch)
		}
		_, err = f.write(ctx, http.MethodDelete, at, nil)
	}
	if isGone(err) {
		return nil
	}
	return err
}

// content is a file of a repository.
type content struct {
	Type    string `json:"type"`
	SHA     string `json:"sha"` // of its blob
	Content []byte `json:"content"`
}

func (c content) check() error {
	if c.Type != "file" || !commitID.MatchString(c.SHA) {
		return errors.New("the path is no file")
	}
	return nil
}
