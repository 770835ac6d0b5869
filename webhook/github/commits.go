package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	api "github.com/google/go-github/v60/github"
)

// commitAnswerBytes limits one answer of a Git host that a tenant has chosen.
const commitAnswerBytes = 2 << 20

// Commits reports on commits of a repository that is not the config repo: one of a tenant's
// Applications, at a Git host that the tenant has chosen, with the tenant's token. It follows no
// redirect: a repository that was renamed is another than the declared one.
type Commits struct{ *connection }

// NewCommits returns Commits that send through the round tripper, without a request.
func NewCommits(c Config, through http.RoundTripper) (*Commits, error) {
	base, err := c.base()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, err
	}
	conn := newConnection(c, base, through)
	conn.client = api.NewClient(&http.Client{
		Transport: &authorized{token: c.Auth.Token, next: &wire{base: base, next: through,
			most: commitAnswerBytes}},
		Timeout: callTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the Git host redirects, as for a repository that was renamed: " +
				"declare the URL that it has now")
		},
	})
	conn.client.BaseURL, conn.client.UserAgent = base, agent
	return &Commits{conn}, nil
}

// CommitReport is what is written beside a commit.
type CommitReport struct {
	Commit      string
	Context     string // the name of the status
	State       string // of a commit status: pending, success, failure or error
	Description string
	Target      string // link, or ""
	// Deployment is the deployment of GitHub that is written too; nil: none
	Deployment *Deployment
}

// Deployment is a deployment of GitHub.
type Deployment struct {
	Environment, Task string
	State             string // queued, in_progress, success, failure or inactive
	// Create creates one that does not exist. Without, only the one that exists is updated, so that
	// an older commit never gets the latest deployment of an environment.
	Create bool
}

// Report writes what is not written yet, and returns in a few words what the commit has now. A
// report that was written before is found, and is not written again.
func (c *Commits) Report(ctx context.Context, r CommitReport) (string, error) {
	if !commitID.MatchString(r.Commit) {
		return "", fmt.Errorf("status of %q: it is no commit", r.Commit)
	}
	repo, err := c.here(ctx)
	if err != nil {
		return "", err
	}
	if !strings.EqualFold(repo.FullName, c.name) {
		return "", fmt.Errorf("the repository %s is named %s now: declare that URL", c.name,
			repo.FullName)
	}
	written, err := c.reportCommit(ctx, repo, r)
	if err != nil {
		return "", fmt.Errorf("status of %s: %w", r.Commit[:7], err)
	}
	answer := "status " + r.State
	if !written {
		answer += " is there already"
	}
	if r.Deployment == nil {
		return answer, nil
	}
	done, err := c.reportDeployment(ctx, repo, r)
	if err != nil {
		return "", fmt.Errorf("deployment of %s: %w", r.Commit[:7], err)
	}
	return answer + ", deployment " + done, nil
}

// reportCommit writes a commit status unless the newest of its name is equal.
func (c *Commits) reportCommit(ctx context.Context, repo repository, r CommitReport) (bool, error) {
	description, target := shorten(r.Description, longestDescription), link(r.Target)
	a, err := c.get(ctx, in(repo.FullName, "commits", r.Commit, "statuses"), c.first())
	if err != nil {
		return false, err
	}
	all, err := read[listOf[status]](a)
	if err != nil {
		return false, err
	}
	var newest status
	for _, s := range all {
		if s.Context == r.Context && s.ID > newest.ID {
			newest = s
		}
	}
	if newest.ID > 0 && (newest.State == r.State || newest.State == "" &&
		newest.Status == r.State) && newest.Description == description &&
		newest.TargetURL == target {
		return false, nil
	}
	body := &api.RepoStatus{State: &r.State, Context: &r.Context, Description: &description}
	if target != "" {
		body.TargetURL = &target
	}
	a, err = c.write(ctx, http.MethodPost, in(repo.FullName, "statuses", r.Commit), body)
	if err != nil {
		return false, err
	}
	_, err = read[status](a)
	return true, err
}

// first asks for the first page of a list, whose items are the newest.
func (c *Commits) first() url.Values {
	if c.gitea {
		return url.Values{"limit": {"50"}, "sort": {"recentupdate"}}
	}
	return url.Values{"per_page": {"100"}}
}

// reportDeployment writes the state of the deployment of a commit.
func (c *Commits) reportDeployment(ctx context.Context, repo repository, r CommitReport) (string,
	error) {
	want := r.Deployment
	a, err := c.get(ctx, in(repo.FullName, "deployments"), url.Values{"sha": {r.Commit},
		"task": {want.Task}, "environment": {want.Environment}, "per_page": {"100"}})
	if err != nil {
		return "", err
	}
	all, err := read[listOf[deployment]](a)
	if err != nil {
		return "", err
	}
	var found deployment
	for _, d := range all {
		if d.SHA == r.Commit && d.Task == want.Task && d.Environment == want.Environment &&
			d.ID > found.ID {
			found = d
		}
	}
	if found.ID == 0 && !want.Create {
		return "none", nil
	}
	state := ""
	if found.ID == 0 {
		if found, err = c.createDeployment(ctx, repo, r); err != nil {
			return "", err
		}
	} else if state, err = c.deploymentState(ctx, repo, found); err != nil {
		return "", err
	}
	if state == want.State {
		return want.State + " is there already", nil
	}
	no, description := false, shorten(r.Description, longestDescription)
	body := &api.DeploymentStatusRequest{State: &want.State, Description: &description,
		AutoInactive: &no}
	if target := link(r.Target); target != "" {
		body.LogURL = &target
	}
	a, err = c.write(ctx, http.MethodPost, in(repo.FullName, "deployments",
		fmt.Sprint(found.ID), "statuses"), body)
	if err != nil {
		return "", err
	}
	_, err = read[deploymentStatus](a)
	return want.State, err
}

// createDeployment creates the deployment of a commit, whose checks are not Argosy's to wait for.
func (c *Commits) createDeployment(ctx context.Context, repo repository, r CommitReport) (
	d deployment, err error) {
	no, none := false, []string{}
	description := shorten(r.Description, longestDescription)
	a, err := c.write(ctx, http.MethodPost, in(repo.FullName, "deployments"),
		&api.DeploymentRequest{Ref: &r.Commit, Task: &r.Deployment.Task, AutoMerge: &no,
			RequiredContexts: &none, Environment: &r.Deployment.Environment,
			Description: &description})
	if err != nil {
		return d, err
	}
	if d, err = read[deployment](a); err == nil && d.SHA != r.Commit {
		err = errors.New("the Git host made a deployment of another commit")
	}
	return d, err
}

// deploymentState is the last state of a deployment; "": it has none yet.
func (c *Commits) deploymentState(ctx context.Context, repo repository, d deployment) (string,
	error) {
	a, err := c.get(ctx, in(repo.FullName, "deployments", fmt.Sprint(d.ID), "statuses"),
		url.Values{"per_page": {"100"}})
	if err != nil {
		return "", err
	}
	all, err := read[listOf[deploymentStatus]](a)
	if err != nil {
		return "", err
	}
	var last deploymentStatus
	for _, s := range all {
		if s.ID > last.ID {
			last = s
		}
	}
	return last.State, nil
}

// listOf is one page of a list.
type listOf[T interface{ check() error }] []T

func (l listOf[T]) check() error {
	for _, v := range l {
		if err := v.check(); err != nil {
			return err
		}
	}
	return nil
}

type deployment struct {
	ID          int64  `json:"id"`
	SHA         string `json:"sha"`
	Task        string `json:"task"`
	Environment string `json:"environment"`
}

func (d deployment) check() error {
	if d.ID <= 0 || d.SHA == "" {
		return errors.New("a deployment has no id or no commit")
	}
	return nil
}

type deploymentStatus struct {
	ID    int64  `json:"id"`
	State string `json:"state"`
}

func (s deploymentStatus) check() error {
	if s.ID <= 0 || s.State == "" {
		return errors.New("the status of a deployment has no id or no state")
	}
	return nil
}

// IsRefusal reports whether the Git host refused a request itself: another attempt alone does not
// help.
func IsRefusal(err error) bool {
	var r *refused
	return errors.As(err, &r) && r.api && r.status >= 400 && r.status < 500
}
