package github

import (
	"errors"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/forge"
)

// These structs are the decoded parts of responses. The names are GitHub's, with Gitea's where they
// differ. A null field is an absent one, and check verifies the required fields.

type account struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"` // User, Organization, Bot; empty on Gitea
}

func (a account) check() error {
	if a.ID <= 0 || a.Login == "" {
		return errors.New("an account has no id or no login")
	}
	return nil
}

func (a account) person() forge.Person { return forge.Person{ID: a.ID, Login: a.Login} }

// author returns the author of a text. A deleted account has ID 0, which matches no account.
func author(a *account) forge.Person {
	if a == nil || a.check() != nil {
		return forge.Person{Login: "ghost"}
	}
	return a.person()
}

type repository struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
}

func (r repository) check() error {
	if r.ID <= 0 || !isRepository(r.FullName) {
		return errors.New("a repository has no id or no name")
	}
	return nil
}

type side struct {
	Ref   string      `json:"ref"`
	SHA   string      `json:"sha"`
	Label string      `json:"label"`
	Repo  *repository `json:"repo"`
}

type pull struct {
	Number      int        `json:"number"`
	Title       string     `json:"title"`
	Body        string     `json:"body"`
	State       string     `json:"state"`
	Draft       bool       `json:"draft"`
	Merged      bool       `json:"merged"` // lists have only merged_at
	MergedAt    *time.Time `json:"merged_at"`
	MergeCommit string     `json:"merge_commit_sha"` // of one that is not merged: a try
	User        *account   `json:"user"`
	Head        side       `json:"head"`
	Base        side       `json:"base"`
	HTMLURL     string     `json:"html_url"`
	UpdatedAt   time.Time  `json:"updated_at"`
}

func (p pull) check() error {
	switch {
	case p.Number <= 0:
		return errors.New("a pull request has no number")
	case p.State != "open" && p.State != "closed":
		return errors.New("a pull request is neither open nor closed")
	case !commitID.MatchString(p.Head.SHA):
		return errors.New("a pull request has no head")
	case p.Base.Ref == "" || p.Base.Repo == nil || p.Base.Repo.ID <= 0:
		return errors.New("a pull request has no base")
	case p.MergeCommit != "" && !commitID.MatchString(p.MergeCommit):
		return errors.New("a pull request has a merge commit that is none")
	}
	return nil
}

type app struct {
	ID   int64  `json:"id"`
	Slug string `json:"slug"`
}

func (a app) check() error {
	if a.ID <= 0 || !segment.MatchString(a.Slug) {
		return errors.New("the App has no id or no slug")
	}
	return nil
}

type comment struct {
	ID        int64     `json:"id"`
	User      *account  `json:"user"`
	Body      string    `json:"body"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	IssueURL  string    `json:"issue_url"`
	PullURL   string    `json:"pull_request_url"` // Gitea's
	App       *app      `json:"performed_via_github_app"`
}

func (c comment) check() error {
	if c.ID <= 0 || c.CreatedAt.IsZero() || c.UpdatedAt.IsZero() {
		return errors.New("a comment has no id or no time")
	}
	return nil
}

type review struct {
	ID          int64     `json:"id"`
	User        *account  `json:"user"`
	State       string    `json:"state"`
	Commit      string    `json:"commit_id"`
	SubmittedAt time.Time `json:"submitted_at"`
	Dismissed   bool      `json:"dismissed"` // Gitea's: the state stays what it was
}

func (r review) check() error {
	switch {
	case r.ID <= 0 || r.State == "":
		return errors.New("a review has no id or no state")
	case r.Commit != "" && !commitID.MatchString(r.Commit):
		return errors.New("a review is of a commit that is none")
	}
	return nil
}

type team struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`

	UnitsMap map[string]string `json:"units_map"` // Gitea's: "repo.code" to "write"
}

func (t team) check() error {
	if t.ID <= 0 || t.Name == "" {
		return errors.New("a team has no id or no name")
	}
	return nil
}

type permission struct {
	Permission string   `json:"permission"`
	User       *account `json:"user"`
}

func (p permission) check() error {
	if p.User == nil {
		return errors.New("a permission has no user")
	}
	return p.User.check()
}

// level maps what the forges call permissions. GitHub answers the nearest of these for roles of an
// organization's own.
func (p permission) level() (forge.Permission, error) {
	switch strings.ToLower(p.Permission) {
	case "admin", "owner":
		return forge.PermissionAdmin, nil
	case "write", "maintain":
		return forge.PermissionWrite, nil
	case "read", "triage":
		return forge.PermissionRead, nil
	case "none":
		return forge.PermissionNone, nil
	}
	return "", errors.New("it is none of admin, write, read and none")
}

type status struct {
	ID          int64    `json:"id"`
	State       string   `json:"state"`
	Status      string   `json:"status"` // Gitea's name of the state
	Context     string   `json:"context"`
	Description string   `json:"description"`
	TargetURL   string   `json:"target_url"`
	Creator     *account `json:"creator"`
}

func (s status) check() error {
	if s.ID <= 0 {
		return errors.New("a status has no id")
	}
	return nil
}

type run struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	HeadSHA    string `json:"head_sha"`
	ExternalID string `json:"external_id"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion"`
	App        *app   `json:"app"`
	Output     struct {
		Annotations int `json:"annotations_count"`
	} `json:"output"`
}

func (r run) check() error {
	if r.ID <= 0 {
		return errors.New("a check run has no id")
	}
	return nil
}

type hook struct {
	ID     int64 `json:"id"`
	Config struct {
		URL string `json:"url"`
	} `json:"config"`
}

func (h hook) check() error {
	if h.ID <= 0 {
		return errors.New("a webhook has no id")
	}
	return nil
}

type delivery struct {
	ID          int64     `json:"id"`
	GUID        string    `json:"guid"`
	DeliveredAt time.Time `json:"delivered_at"`
	StatusCode  int       `json:"status_code"`
	Repository  int64     `json:"repository_id"`
}

func (d delivery) check() error {
	if d.ID <= 0 || d.GUID == "" || d.DeliveredAt.IsZero() {
		return errors.New("a delivery has no id or no time")
	}
	return nil
}
