package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	api "github.com/google/go-github/v60/github"
)

const longestBody = 65536 // characters of a comment; GitHub refuses longer ones

var errVanished = errors.New("our comment was deleted while it was edited")

// SetComment implements webhook.Writer. It writes only to a comment of our own on that pull request
// whose body begins with the marker. Of several, as two replicas can post at the same moment, it
// keeps the oldest and deletes the others.
func (f conversations) SetComment(ctx context.Context, n int, id int64, marker, body string) (int64,
	error) {
	id, err := f.setComment(ctx, n, id, marker, body)
	if err != nil {
		return 0, fmt.Errorf("our comment on pull request %d: %w", n, err)
	}
	return id, nil
}

func (f conversations) setComment(ctx context.Context, n int, id int64, marker, body string) (int64,
	error) {
	body, err := marked(marker, body)
	if err != nil {
		return 0, err
	}
	r, err := f.here(ctx)
	if err != nil {
		return 0, err
	}
	us, err := f.self(ctx)
	if err != nil {
		return 0, err
	}
	if id != 0 {
		done, err := f.updateComment(ctx, r, us, n, id, marker, body)
		if done || err != nil {
			return id, err
		}
	}
	return f.findOrPostComment(ctx, r, us, n, marker, body)
}

func marked(marker, body string) (string, error) {
	if !strings.HasPrefix(marker, "<!--") || !strings.HasSuffix(marker, "-->") ||
		strings.ContainsAny(marker, "\r\n") {
		return "", errors.New("the marker is one line with an HTML comment")
	}
	if !strings.HasPrefix(body, marker) {
		body = marker + "\n" + body
	}
	if length := utf8.RuneCountInString(body); length > longestBody {
		return "", fmt.Errorf("it has %d characters, and the Git host takes %d", length,
			longestBody)
	}
	return body, nil
}

// updateComment edits the comment with the ID if it still exists and is ours.
func (f conversations) updateComment(ctx context.Context, r repository, us account, n int, id int64,
	marker,
	body string) (bool, error) {
	a, err := f.get(ctx, in(r.FullName, "issues", "comments", number(id)), nil)
	if isGone(err) || err == nil && len(a.body) == 0 { // Gitea answers 204 for a missing comment
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c, err := read[comment](a)
	if err != nil {
		return false, err
	}
	if c.ID != id || !f.own(c, us) || !strings.HasPrefix(c.Body, marker) || !belongsTo(c, n) {
		return false, nil
	}
	err = f.edit(ctx, r, c, body)
	if errors.Is(err, errVanished) {
		return false, nil
	}
	return err == nil, err
}

// findOrPostComment finds our comment among all, and posts one if there is none.
func (f conversations) findOrPostComment(ctx context.Context, r repository, us account, n int,
	marker,
	body string) (int64, error) {
	all, err := f.comments(ctx, r, n)
	if err != nil {
		return 0, err
	}
	var ours []comment
	for _, c := range all {
		if f.own(c, us) && strings.HasPrefix(c.Body, marker) {
			ours = append(ours, c)
		}
	}
	if len(ours) == 0 {
		return f.post(ctx, r, n, body)
	}
	if err := f.edit(ctx, r, ours[0], body); err != nil {
		return 0, err
	}
	for _, c := range ours[1:] {
		_, err := f.write(ctx, http.MethodDelete, in(r.FullName, "issues", "comments",
			number(c.ID)), nil)
		if err != nil && !isGone(err) {
			return 0, err
		}
	}
	return ours[0].ID, nil
}

func (f conversations) post(ctx context.Context, r repository, n int, body string) (int64, error) {
	a, err := f.write(ctx, http.MethodPost, in(r.FullName, "issues", number(n), "comments"),
		&api.IssueComment{Body: &body})
	if err != nil {
		return 0, err
	}
	c, err := read[comment](a)
	return c.ID, err
}

// edit does not write an unchanged comment: an edit is one more request, and one more mark on the
// page.
func (f conversations) edit(ctx context.Context, r repository, c comment, body string) error {
	if sameText(c.Body, body) {
		return nil
	}
	a, err := f.write(ctx, http.MethodPatch, in(r.FullName, "issues", "comments", number(c.ID)),
		&api.IssueComment{Body: &body})
	if isGone(err) {
		return errVanished
	}
	if err != nil {
		return err
	}
	now, err := read[comment](a)
	if err == nil && now.ID != c.ID {
		err = errors.New("the Git host has edited another comment")
	}
	return err
}

func sameText(a, b string) bool {
	tidy := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }
	return tidy(a) == tidy(b)
}

// belongsTo reports whether the comment belongs to the pull request. Gitea links the pull request,
// GitHub the issue that it also is.
func belongsTo(c comment, n int) bool {
	return strings.HasSuffix(c.IssueURL, "/"+number(n)) || strings.HasSuffix(c.PullURL,
		"/"+number(n))
}
