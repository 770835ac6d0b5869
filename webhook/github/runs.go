package github

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	api "github.com/google/go-github/v60/github"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// Limits of a check run. See GitHub's "Create a check run".
const (
	longestSummary = 65535 // characters
	longestMessage = 16384 // characters of an annotation: 64 KB whatever they are
	mostNotes      = 50    // annotations in one request
)

// reportRuns reports check runs. GitHub only adds annotations to a run, and a completed run stays
// completed. So reportRuns updates a run as long as that leads to the check, and otherwise creates
// a new one of the same name.
func (f checks) reportRuns(ctx context.Context, r repository, head string,
	checks []forge.Check) error {
	existing, err := f.runs(ctx, r, head)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if err := f.reportRun(ctx, r, head, c, existing[c.Name]); err != nil {
			return err
		}
	}
	return nil
}

type runList struct {
	Total int    `json:"total_count"`
	Runs  *[]run `json:"check_runs"`
}

func (l runList) check() error {
	if l.Runs == nil || l.Total < 0 {
		return errors.New("there is no list of check runs")
	}
	for _, r := range *l.Runs {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// runs are the newest check runs of the commit by name, of those that our App made. Any other App's
// is as a stranger's.
func (f checks) runs(ctx context.Context, r repository, head string) (map[string]run, error) {
	pages, err := leaf(ctx, func(ctx context.Context, page int) (sheet[run], error) {
		q, err := f.paged(ctx, url.Values{"app_id": {number(f.appID)}, "filter": {"all"}}, page,
			new(int(names)))
		if err != nil {
			return sheet[run]{}, err
		}
		a, err := f.get(ctx, in(r.FullName, "commits", head, "check-runs"), q)
		if err != nil {
			return sheet[run]{}, err
		}
		l, err := read[runList](a)
		if err != nil {
			return sheet[run]{}, err
		}
		return sheet[run]{items: *l.Runs, next: a.next, total: l.Total, bytes: len(a.body)}, nil
	})
	newest := map[string]run{}
	for _, p := range pages {
		for _, v := range p.items {
			if v.App != nil && v.App.ID == f.appID && v.HeadSHA == head &&
				v.ID > newest[v.Name].ID {
				newest[v.Name] = v
			}
		}
	}
	return newest, err
}

// reportRun brings one run to the check. With more annotations than one request takes, the run
// stays in progress until the last.
func (f checks) reportRun(ctx context.Context, r repository, head string, c forge.Check,
	now run) error {
	want, err := outcome(c)
	if err != nil {
		return err
	}
	if now.ID != 0 && now.ExternalID == want.id && now.Status == want.status &&
		now.Conclusion == want.conclusion {
		return nil
	}
	if now.Output.Annotations > 0 || now.Status == "completed" && want.status != "completed" {
		now = run{}
	}
	for first := true; first || len(want.notes) > 0; first = false {
		batch := want.notes[:min(mostNotes, len(want.notes))]
		want.notes = want.notes[len(batch):]
		if now, err = f.writeRun(ctx, r, head, c, want, batch, now); err != nil {
			return err
		}
	}
	return nil
}

// wanted is the desired run.
type wanted struct {
	id         string // hash of the whole run: a partly written run has another
	status     string
	conclusion string
	notes      []*api.CheckRunAnnotation // left to send
}

func outcome(c forge.Check) (wanted, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return wanted{}, err
	}
	sum := sha256.Sum256(text)
	w := wanted{id: "argosy-" + hex.EncodeToString(sum[:16]), status: "completed",
		notes: annotations(c.Annotations)}
	switch c.State {
	case forge.CheckPending:
		w.status = "in_progress"
	case forge.CheckSuccess, forge.CheckFailure, forge.CheckNeutral:
		w.conclusion = string(c.State)
	default:
		return wanted{}, fmt.Errorf("check %s is neither pending, success, failure nor neutral",
			c.Name)
	}
	return w, nil
}

// writeRun makes or updates a run with one batch of annotations.
func (f checks) writeRun(ctx context.Context, r repository, head string, c forge.Check, w wanted,
	batch []*api.CheckRunAnnotation, now run) (run, error) {
	summary, title := shorten(c.Summary, longestSummary), cmp.Or(c.Title, c.Name)
	o := api.CreateCheckRunOptions{
		Name: c.Name, HeadSHA: head, Status: api.String("in_progress"),
		Output: &api.CheckRunOutput{Title: &title, Summary: &summary, Annotations: batch},
	}
	if target := link(c.URL); target != "" {
		o.DetailsURL = &target
	}
	if len(w.notes) == 0 { // the last one
		o.ExternalID, o.Status = &w.id, &w.status
		if w.conclusion != "" {
			o.Conclusion = &w.conclusion
		}
	}
	method, at, body := http.MethodPost, in(r.FullName, "check-runs"), any(o)
	if now.ID != 0 {
		method, at = http.MethodPatch, in(r.FullName, "check-runs", number(now.ID))
		body = api.UpdateCheckRunOptions{Name: o.Name, DetailsURL: o.DetailsURL,
			ExternalID: o.ExternalID, Status: o.Status, Conclusion: o.Conclusion, Output: o.Output}
	}
	a, err := f.write(ctx, method, at, body)
	if err != nil {
		return run{}, err
	}
	return read[run](a)
}

// annotations leaves out problems without a file: the summary lists them.
func annotations(problems []fleet.Problem) []*api.CheckRunAnnotation {
	notes := []*api.CheckRunAnnotation{}
	for _, p := range problems {
		at := strings.TrimPrefix(p.Path, "/")
		if at == "" {
			continue
		}
		level, line, message := "notice", max(p.Line, 1), p.Message
		switch p.Severity {
		case fleet.SeverityError:
			level = "failure"
		case fleet.SeverityWarning:
			level = "warning"
		}
		if p.Fix != "" {
			message += "\nfix: " + p.Fix
		}
		note := &api.CheckRunAnnotation{
			Path: &at, StartLine: &line, EndLine: &line, AnnotationLevel: &level,
			Message: api.String(shorten(cmp.Or(message, p.Code, "a problem"), longestMessage)),
		}
		if p.Line > 0 && p.Column > 0 {
			note.StartColumn, note.EndColumn = api.Int(p.Column), api.Int(p.Column)
		}
		if p.Code != "" {
			note.Title = api.String(shorten(p.Code, 255))
		}
		notes = append(notes, note)
	}
	return notes
}
