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

// payload is what deliveries say of what there is to look at. Whatever else they say is not
// believed: it is read from the forge.
type payload struct {
	Action     string `json:"action"`
	Ref        string `json:"ref"`
	Number     int    `json:"number"`
	Context    string `json:"context"`
	SHA        string `json:"sha"`
	Repository *struct {
		ID int64 `json:"id"`
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

const mostPulls = 20 // that one delivery names; more are found by a sweep

// Parse says what a signed delivery asks to look at: nothing for events and repositories that are
// not ours (repository 0: any). An error says that the body is no JSON object; one whose fields are
// not what they should be asks for a look at everything.
func Parse(event string, body []byte, branch string, repository int64) ([]forge.Recheck, error) {
	see, ours := events[event]
	if !ours {
		return nil, nil
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		var typed *json.UnmarshalTypeError
		if !errors.As(err, &typed) || typed.Field == "" {
			return nil, errors.New("the payload is no JSON object")
		}
		return sweep(), nil
	}
	if p.Repository != nil && repository != 0 && p.Repository.ID != repository {
		return nil, nil
	}
	return see(p, branch), nil
}

// events is what each event asks for.
var events = map[string]func(p payload, branch string) []forge.Recheck{
	"push": func(p payload, branch string) []forge.Recheck {
		if p.Ref != "refs/heads/"+branch {
			return nil
		}
		return []forge.Recheck{{Kind: forge.RecheckBranch}}
	},
	"pull_request": func(p payload, _ string) []forge.Recheck {
		if p.PullRequest != nil && p.PullRequest.Number > 0 {
			return pulls(p.PullRequest.Number)
		}
		return pulls(p.Number)
	},
	"pull_request_review":   reviewed,
	"pull_request_approved": reviewed, // Gitea's words
	"pull_request_rejected": reviewed,
	"pull_request_comment":  reviewed,
	"issue_comment": func(p payload, _ string) []forge.Recheck {
		// what is edited is ignored, and issues are not ours
		if p.Action != "created" || p.Issue == nil || p.Issue.PullRequest == nil {
			return nil
		}
		return pulls(p.Issue.Number)
	},
	"check_run":   func(p payload, _ string) []forge.Recheck { return rerun(p.Action, p.CheckRun) },
	"check_suite": func(p payload, _ string) []forge.Recheck { return rerun(p.Action, p.CheckSuite) },
	"merge_group": group,
	"status": func(p payload, _ string) []forge.Recheck {
		if !strings.HasPrefix(p.Context, "argosy/") || !commitID.MatchString(p.SHA) {
			return nil
		}
		return []forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(p.SHA)}}
	},
	"installation":              func(payload, string) []forge.Recheck { return sweep() },
	"installation_repositories": func(payload, string) []forge.Recheck { return sweep() },
}

var commitID = regexp.MustCompile(`^[0-9a-f]{40}$`)

func reviewed(p payload, _ string) []forge.Recheck {
	if p.PullRequest == nil {
		return sweep()
	}
	return pulls(p.PullRequest.Number)
}

func sweep() []forge.Recheck { return []forge.Recheck{{Kind: forge.RecheckAll}} }

func pulls(numbers ...int) []forge.Recheck {
	if len(numbers) == 0 || len(numbers) > mostPulls || slices.Min(numbers) <= 0 {
		return sweep()
	}
	looks := make([]forge.Recheck, 0, len(numbers))
	for _, n := range numbers {
		looks = append(looks, forge.Recheck{Kind: forge.RecheckPull, Number: n})
	}
	return looks
}

// rerun answers "Re-run" on the forge's page: what was reported is reported again. The forge names
// no pull request of a fork.
func rerun(action string, c *checked) []forge.Recheck {
	if action != "rerequested" || c == nil {
		return nil
	}
	if !commitID.MatchString(c.HeadSHA) {
		return sweep()
	}
	return []forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(c.HeadSHA)}}
}

func group(p payload, branch string) []forge.Recheck {
	if p.Action != "checks_requested" || p.MergeGroup == nil ||
		p.MergeGroup.BaseRef != "refs/heads/"+branch {
		return nil
	}
	if !commitID.MatchString(p.MergeGroup.HeadSHA) || !strings.HasPrefix(p.MergeGroup.HeadRef,
		"refs/heads/") {
		return sweep()
	}
	return []forge.Recheck{{Kind: forge.RecheckGroup, Head: fleet.Revision(p.MergeGroup.HeadSHA),
		Ref: p.MergeGroup.HeadRef}}
}
