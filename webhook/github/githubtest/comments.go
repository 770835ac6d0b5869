package githubtest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Comment is a comment of a pull request.
type Comment struct {
	ID   int64
	Body string

	pull    int
	author  *Account
	via     *App // the comment was written through
	created time.Time
	updated time.Time
}

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Comment adds a comment to a pull request.
func (r *Repository) Comment(pull int, author *Account, body string) *Comment {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.addComment(pull, author, nil, body)
}

// CommentThrough adds a comment that the account writes with the App's help.
func (r *Repository) CommentThrough(pull int, author *Account, via *App, body string) *Comment {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.addComment(pull, author, via, body)
}

func (r *Repository) addComment(pull int, author *Account, via *App, body string) *Comment {
	now := r.s.tick()
	c := &Comment{ID: r.s.id(), Body: body, pull: pull, author: author, via: via, created: now,
		updated: now}
	r.comments = append(r.comments, c)
	return c
}

// Edit changes the text of a comment.
func (r *Repository) Edit(id int64, body string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	c := r.comment(id)
	c.Body, c.updated = body, r.s.tick()
}

// DeleteComment deletes a comment.
func (r *Repository) DeleteComment(id int64) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.drop(id)
}

func (r *Repository) drop(id int64) {
	r.comments = slices.DeleteFunc(r.comments, func(c *Comment) bool { return c.ID == id })
}

// Comments returns the texts of a pull request's comments.
func (r *Repository) Comments(pull int) []string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var all []string
	for _, c := range r.comments {
		if c.pull == pull {
			all = append(all, c.Body)
		}
	}
	return all
}

// CommentID finds a comment by its text; 0 if there is none.
func (r *Repository) CommentID(pull int, body string) int64 {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, c := range r.comments {
		if c.pull == pull && c.Body == body {
			return c.ID
		}
	}
	return 0
}

func (r *Repository) comment(id int64) *Comment {
	for _, c := range r.comments {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (s *Server) commentObject(r *Repository, c *Comment) object {
	o := object{
		"id": c.ID, "body": c.Body, "user": s.accountObject(c.author),
		"created_at": stamp(c.created), "updated_at": stamp(c.updated),
		"issue_url": s.URL + "repos/" + r.Name + "/issues/" + number(c.pull),
	}
	if c.via != nil {
		o["performed_via_github_app"] = s.appObject(c.via)
	}
	return o
}

func listComments(s *Server, r *request) answer {
	if a, ok := r.may("issues", "read", "read"); !ok {
		return a
	}
	if r.repo.pull(r.number("issue_number")) == nil {
		return notFound
	}
	list := []object{}
	for _, c := range r.repo.comments {
		if int64(c.pull) == r.number("issue_number") {
			list = append(list, s.commentObject(r.repo, c))
		}
	}
	return answer{status: http.StatusOK, list: list}
}

func getComment(s *Server, r *request) answer {
	if a, ok := r.may("issues", "read", "read"); !ok {
		return a
	}
	c := r.repo.comment(r.number("comment_id"))
	if c == nil {
		return notFound
	}
	return answer{status: http.StatusOK, body: s.commentObject(r.repo, c)}
}

const longestBody = 65536

func tooLong(text string) bool { return utf8.RuneCountInString(text) > longestBody }

func postComment(s *Server, r *request) answer {
	if a, ok := r.may("issues", "write", "read"); !ok {
		return a
	}
	p := r.repo.pull(r.number("issue_number"))
	switch {
	case p == nil:
		return notFound
	case tooLong(r.text("body")):
		return problem(http.StatusUnprocessableEntity,
			"Body is too long (maximum is 65536 characters)")
	}
	var via *App
	if r.install != nil {
		via = r.install.app
	}
	return answer{status: http.StatusCreated,
		body: s.commentObject(r.repo, r.repo.addComment(p.Number, r.as(), via, r.text("body")))}
}

// change finds the comment to change: for its author, and for accounts with write access.
func change(r *request) (*Comment, answer) {
	if a, ok := r.may("issues", "write", "read"); !ok {
		return nil, a
	}
	c := r.repo.comment(r.number("comment_id"))
	if c == nil {
		return nil, notFound
	}
	if r.user != nil && c.author.ID != r.user.ID && levels[r.repo.level(r.user)] < levels["write"] {
		return nil, problem(http.StatusForbidden, "Must have write rights to Repository.")
	}
	return c, answer{}
}

func patchComment(s *Server, r *request) answer {
	c, no := change(r)
	switch {
	case c == nil:
		return no
	case tooLong(r.text("body")):
		return problem(http.StatusUnprocessableEntity,
			"Body is too long (maximum is 65536 characters)")
	}
	c.Body, c.updated = r.text("body"), s.tick()
	return answer{status: http.StatusOK, body: s.commentObject(r.repo, c)}
}

func deleteComment(_ *Server, r *request) answer {
	c, no := change(r)
	if c == nil {
		return no
	}
	r.repo.drop(c.ID)
	return answer{status: http.StatusNoContent}
}
