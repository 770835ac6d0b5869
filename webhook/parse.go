package webhook

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// Asks is what a delivery requests.
type Asks struct {
	Pushed bool // the branch may have moved: reconcile
	// its commits, and the account that pushed them; nil: unknown, or not trusted
	Push     *forge.Push
	Rechecks []forge.Recheck
	Moved    *Moved // a ref of any repository, in a push
}

// Moved is a ref that a push names, with the URLs of its repository. A set may list it.
type Moved struct {
	Ref  string
	URLs []string
}

// payload is the part of a delivery that selects what to do. All facts are read from the Git host.
type payload struct {
	Action     string `json:"action"`
	Ref        string `json:"ref"`
	Number     int    `json:"number"`
	Context    string `json:"context"`
	SHA        string `json:"sha"`
	Repository *struct {
		ID       int64  `json:"id"`
		CloneURL string `json:"clone_url"`
		SSHURL   string `json:"ssh_url"`
	} `json:"repository"`
	PullRequest *numbered `json:"pull_request"`
	Issue       *struct {
		numbered
		PullRequest *json.RawMessage `json:"pull_request"`
	} `json:"issue"`
	CheckRun   *checked `json:"check_run"`
	CheckSuite *checked `json:"check_suite"`
	MergeGroup *struct {
		HeadSHA string `json:"head_sha"`
		HeadRef string `json:"head_ref"`
		BaseRef string `json:"base_ref"`
	} `json:"merge_group"`
}

type numbered struct {
	Number int `json:"number"`
}

type checked struct {
	HeadSHA      string     `json:"head_sha"`
	PullRequests []numbered `json:"pull_requests"`
}

const maxPulls = 20 // named by one delivery; a resync finds the others

// Parse returns what a signed delivery requests: nothing for unknown events; for other repositories
// (repository 0: any) only what a push moves. It fails if the body is no JSON object; a field of
// another type than expected requests a resync.
func Parse(event string, body []byte, branch string, repository int64) (Asks, error) {
	rechecks, known := events[event]
	if !known && event != pushEvent {
		return Asks{}, nil
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		var typed *json.UnmarshalTypeError
		if !errors.As(err, &typed) || typed.Field == "" {
			return Asks{}, errors.New("the payload is no JSON object")
		}
		return Asks{Rechecks: resync()}, nil
	}
	other := p.Repository != nil && repository != 0 && p.Repository.ID != repository
	switch {
	case other && event == pushEvent:
		return Asks{Moved: movedIn(p)}, nil
	case other:
		return Asks{}, nil
	case event == pushEvent:
		return Asks{Pushed: p.Ref == branchRef(branch), Push: pushIn(body, branch, repository),
			Moved: movedIn(p)}, nil
	}
	return Asks{Rechecks: rechecks(p, branch)}, nil
}

const pushEvent = "push"

// movedIn returns the ref of a push with the URLs of its repository; nil if it has none.
func movedIn(p payload) *Moved {
	if p.Repository == nil || p.Ref == "" {
		return nil
	}
	m := &Moved{Ref: p.Ref}
	for _, url := range []string{p.Repository.CloneURL, p.Repository.SSHURL} {
		if _, err := fleet.NormalizeRepoURL(url); err == nil {
			m.URLs = append(m.URLs, url)
		}
	}
	if len(m.URLs) == 0 {
		return nil
	}
	return m
}

func branchRef(branch string) string { return "refs/heads/" + branch }

// events maps each event to the review jobs that it requests.
var events = map[string]func(p payload, branch string) []forge.Recheck{
	"pull_request": func(p payload, _ string) []forge.Recheck {
		if p.PullRequest != nil && p.PullRequest.Number > 0 {
			return pulls(p.PullRequest.Number)
		}
		return pulls(p.Number)
	},
	"pull_request_review":   reviewed,
	"pull_request_approved": reviewed, // Gitea's names
	"pull_request_rejected": reviewed,
	"pull_request_comment":  reviewed,
	"issue_comment": func(p payload, _ string) []forge.Recheck {
		// Edited comments are ignored, and so are comments on issues.
		if p.Action != "created" || p.Issue == nil || p.Issue.PullRequest == nil {
			return nil
		}
		return pulls(p.Issue.Number)
	},
	"check_run": func(p payload, _ string) []forge.Recheck { return rerun(p.Action, p.CheckRun) },
	"check_suite": func(p payload, _ string) []forge.Recheck {
		return rerun(p.Action, p.CheckSuite)
	},
	"merge_group": mergeGroup,
	"status": func(p payload, _ string) []forge.Recheck {
		if !strings.HasPrefix(p.Context, "argosy/") || !commitID.MatchString(p.SHA) {
			return nil
		}
		return []forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(p.SHA)}}
	},
	"installation":              func(payload, string) []forge.Recheck { return resync() },
	"installation_repositories": func(payload, string) []forge.Recheck { return resync() },
}

var commitID = regexp.MustCompile(`^[0-9a-f]{40}$`)

func reviewed(p payload, _ string) []forge.Recheck {
	if p.PullRequest == nil {
		return resync()
	}
	return pulls(p.PullRequest.Number)
}

func resync() []forge.Recheck { return []forge.Recheck{{Kind: forge.RecheckAll}} }

func pulls(numbers ...int) []forge.Recheck {
	if len(numbers) == 0 || len(numbers) > maxPulls || slices.Min(numbers) <= 0 {
		return resync()
	}
	jobs := make([]forge.Recheck, 0, len(numbers))
	for _, n := range numbers {
		jobs = append(jobs, forge.Recheck{Kind: forge.RecheckPull, Number: n})
	}
	return jobs
}

// rerun handles "Re-run" on the Git host's page: the checks are reported again. For a fork's head
// the Git host names no pull request, so the job names the head.
func rerun(action string, c *checked) []forge.Recheck {
	if action != "rerequested" || c == nil {
		return nil
	}
	if !commitID.MatchString(c.HeadSHA) {
		return resync()
	}
	return []forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(c.HeadSHA)}}
}

func mergeGroup(p payload, branch string) []forge.Recheck {
	if p.Action != "checks_requested" || p.MergeGroup == nil || p.MergeGroup.BaseRef != branchRef(
		branch) {
		return nil
	}
	if !commitID.MatchString(p.MergeGroup.HeadSHA) ||
		!strings.HasPrefix(p.MergeGroup.HeadRef, "refs/heads/") {
		return resync()
	}
	return []forge.Recheck{
		{Kind: forge.RecheckGroup, Head: fleet.Revision(p.MergeGroup.HeadSHA),
			Ref: p.MergeGroup.HeadRef}}
}

// pushPayload is the part of a push delivery about the account that pushed. The sender is an
// account of the Git host, which signed the delivery; the author of a commit is free text.
type pushPayload struct {
	Ref        string `json:"ref"`
	Before     string `json:"before"`
	After      string `json:"after"`
	Forced     bool   `json:"forced"`
	Repository *struct {
		ID int64 `json:"id"`
	} `json:"repository"`
	Sender *struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	} `json:"sender"`
	Pusher *struct {
		Name  string `json:"name"`  // GitHub
		Login string `json:"login"` // Gitea
	} `json:"pusher"`
}

// pushIn returns the push to the branch that a signed delivery describes; nil if it describes none,
// comes from a repository other than this one, or was made with a deploy key: then sender and
// pusher differ, and no account made it.
func pushIn(body []byte, branch string, repository int64) *forge.Push {
	var p pushPayload
	if json.Unmarshal(body, &p) != nil {
		return nil
	}
	switch {
	case p.Ref != branchRef(branch), p.Forced, !commitID.MatchString(p.Before),
		!commitID.MatchString(p.After):
		return nil
	case repository == 0, p.Repository == nil, p.Repository.ID != repository:
		return nil
	case p.Sender == nil, p.Sender.ID <= 0, p.Pusher == nil,
		p.Pusher.Name != p.Sender.Login && p.Pusher.Login != p.Sender.Login:
		return nil
	}
	return &forge.Push{
		Before: fleet.Revision(p.Before), After: fleet.Revision(p.After),
		By: forge.Person{ID: p.Sender.ID, Login: p.Sender.Login},
	}
}
