package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	api "github.com/google/go-github/v60/github"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

const longestDescription = 140 // characters of a commit status; GitHub refuses longer ones

// checks reports the checks of commits.
type checks struct{ *connection }

// ReportChecks implements webhook.Writer: an App reports check runs, a token commit statuses. It
// does not write an unchanged one again.
func (f checks) ReportChecks(ctx context.Context, head fleet.Revision, checks []forge.Check) error {
	if !commitID.MatchString(string(head)) {
		return fmt.Errorf("checks of %q: it is no commit", head)
	}
	r, err := f.here(ctx)
	if err == nil && f.app != nil {
		err = f.reportRuns(ctx, r, string(head), checks)
	} else if err == nil {
		err = f.reportStatuses(ctx, r, string(head), checks)
	}
	if err != nil {
		return fmt.Errorf("checks of %s: %w", head, err)
	}
	return nil
}

func (f checks) reportStatuses(ctx context.Context, r repository, head string,
	checks []forge.Check) error {
	us, err := f.self(ctx)
	if err != nil {
		return err
	}
	existing, err := leaf(ctx, pagesOf[status](f.connection,
		in(r.FullName, "commits", head, "statuses"), nil, names))
	if err != nil {
		return err
	}
	newest := map[string]status{}
	for _, page := range existing {
		for _, s := range page.items {
			if s.ID > newest[s.Context].ID {
				newest[s.Context] = s
			}
		}
	}
	for _, c := range checks {
		if err := f.reportStatus(ctx, r, head, us, c, newest[c.Name]); err != nil {
			return err
		}
	}
	return nil
}

// reportStatus writes a status unless the newest of its name is ours and equal: a stranger's would
// hide an older one of ours.
func (f checks) reportStatus(ctx context.Context, r repository, head string, us account,
	c forge.Check, now status) error {
	state, err := statusState(c.State)
	if err != nil {
		return err
	}
	description, target := shorten(c.Title, longestDescription), link(c.URL)
	if now.Creator != nil && now.Creator.ID == us.ID && (now.State == state || now.State == "" &&
		now.Status == state) &&
		now.Description == description && now.TargetURL == target {
		return nil
	}
	body := &api.RepoStatus{State: &state, Context: &c.Name, Description: &description}
	if target != "" {
		body.TargetURL = &target
	}
	a, err := f.write(ctx, http.MethodPost, in(r.FullName, "statuses", head), body)
	if err != nil {
		return err
	}
	_, err = read[status](a)
	return err
}

// statusState maps to the states of commit statuses. They have no neutral: it becomes success, and
// the description gives the reason.
func statusState(s forge.CheckState) (string, error) {
	switch s {
	case forge.CheckPending:
		return "pending", nil
	case forge.CheckSuccess, forge.CheckNeutral:
		return "success", nil
	case forge.CheckFailure:
		return "failure", nil
	}
	return "", errors.New("a check is neither pending, success, failure nor neutral")
}

// shorten cuts a text to so many characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
