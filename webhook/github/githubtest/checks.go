package githubtest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
)

// Status is a commit status.
type Status struct {
	ID                                  int64
	Commit                              string
	Context, State, Description, Target string
	creator                             *Account
}

// Run is a check run.
type Run struct {
	ID                 int64
	Commit, Name       string
	Status, Conclusion string
	Title, Summary     string
	Target, External   string
	Annotations        []Annotation
	app                *App
}

// Annotation is a note of a check run on a line of a file.
type Annotation struct {
	Path, Level, Message, Title string
	Line, Column                int
}

// SetStatus sets a commit status as the account.
func (r *Repository) SetStatus(by *Account, commit, context, state string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.statuses = append(r.statuses, &Status{ID: r.s.id(), Commit: commit, Context: context,
		State: state, creator: by})
}

// Statuses are the commit statuses of a commit that count: the newest of each name.
func (r *Repository) Statuses(commit string) map[string]Status {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	newest := map[string]Status{}
	for _, s := range r.statuses {
		if s.Commit == commit {
			newest[s.Context] = *s
		}
	}
	return newest
}

// SetRun adds a check run of an App's.
func (r *Repository) SetRun(app *App, commit, name, conclusion string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.runs = append(r.runs, &Run{ID: r.s.id(), Commit: commit, Name: name, Status: "completed",
		Conclusion: conclusion, app: app})
}

// Runs are the check runs of the App's for a commit that count: the newest of each name.
func (r *Repository) Runs(app *App, commit string) map[string]Run {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	newest := map[string]Run{}
	for _, v := range r.runs {
		if v.Commit == commit && v.app == app {
			run := *v
			run.Annotations = slices.Clone(v.Annotations)
			newest[v.Name] = run
		}
	}
	return newest
}

// Rerun clicks "Re-run" on the page: the App's runs are queued again.
func (r *Repository) Rerun(app *App, commit string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, v := range r.runs {
		if v.Commit == commit && v.app == app {
			v.Status, v.Conclusion = "queued", ""
		}
	}
}

func (s *Server) statusObject(v *Status) object {
	o := object{
		"id": v.ID, "context": v.Context, "state": v.State, "creator": s.accountObject(v.creator),
		"avatar_url":  "https://github.test/avatar",
		"description": optional(v.Description), "target_url": optional(v.Target),
	}
	return o
}

func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func listStatuses(s *Server, r *request) answer {
	if a, ok := r.may("statuses", "read", "read"); !ok {
		return a
	}
	list := []object{}
	for _, v := range slices.Backward(r.repo.statuses) {
		if v.Commit == r.inPath["ref"] {
			list = append(list, s.statusObject(v))
		}
	}
	return answer{status: http.StatusOK, list: list}
}

func postStatus(s *Server, r *request) answer {
	if a, ok := r.may("statuses", "write", "write"); !ok {
		return a
	}
	v := &Status{
		ID: s.id(), Commit: r.inPath["sha"], Context: cmp.Or(r.text("context"), "default"),
		State:       r.text("state"),
		Description: r.text("description"), Target: r.text("target_url"), creator: r.as(),
	}
	switch {
	case len([]rune(v.Description)) > 140:
		return problem(http.StatusUnprocessableEntity,
			"description is too long (maximum is 140 characters)")
	case s.count(r.repo, v) >= 1000:
		return problem(http.StatusUnprocessableEntity,
			"This SHA and context has reached the maximum number of statuses.")
	}
	r.repo.statuses = append(r.repo.statuses, v)
	return answer{status: http.StatusCreated, body: s.statusObject(v)}
}

func (s *Server) count(r *Repository, like *Status) int {
	n := 0
	for _, v := range r.statuses {
		if v.Commit == like.Commit && v.Context == like.Context {
			n++
		}
	}
	return n
}

func (s *Server) runObject(v *Run) object {
	return object{
		"id": v.ID, "name": v.Name, "head_sha": v.Commit, "external_id": v.External,
		"status": v.Status, "conclusion": optional(v.Conclusion),
		"details_url": optional(v.Target), "app": s.appObject(v.app),
		"output": object{"title": optional(v.Title), "summary": optional(v.Summary),
			"annotations_count": len(v.Annotations)},
	}
}

func listRuns(s *Server, r *request) answer {
	if a, ok := r.may("checks", "read", "read"); !ok {
		return a
	}
	q, list := r.URL.Query(), []object{}
	seen := map[string]bool{}
	for _, v := range slices.Backward(r.repo.runs) {
		key := v.Name + "/" + number(v.app.ID)
		wanted := v.Commit == r.inPath["ref"] &&
			(q.Get("app_id") == "" || q.Get("app_id") == strconv.FormatInt(v.app.ID, 10)) &&
			(q.Get("check_name") == "" || q.Get("check_name") == v.Name) &&
			(q.Get("filter") == "all" || !seen[key])
		if wanted {
			seen[key] = true
			list = append(list, s.runObject(v))
		}
	}
	return answer{status: http.StatusOK, list: list, wrap: func(page []object, total int) any {
		return object{"total_count": total, "check_runs": page}
	}}
}

func postRun(s *Server, r *request) answer {
	if r.install == nil {
		return problem(http.StatusForbidden, "You must authenticate via a GitHub App.")
	}
	if a, ok := r.may("checks", "write", "write"); !ok {
		return a
	}
	v := &Run{ID: s.id(), Commit: r.text("head_sha"), Name: r.text("name"), Status: "queued",
		app: r.install.app}
	if no, ok := v.set(r.body); !ok {
		return no
	}
	r.repo.runs = append(r.repo.runs, v)
	return answer{status: http.StatusCreated, body: s.runObject(v)}
}

func patchRun(s *Server, r *request) answer {
	if r.install == nil {
		return problem(http.StatusForbidden, "You must authenticate via a GitHub App.")
	}
	if a, ok := r.may("checks", "write", "write"); !ok {
		return a
	}
	for _, v := range r.repo.runs {
		if v.ID != r.number("check_run_id") {
			continue
		}
		if v.app != r.install.app {
			return problem(http.StatusForbidden, "Invalid app_id `"+number(r.install.app.ID)+
				"` - check run can only be modified by the GitHub App that created it.")
		}
		if no, ok := v.set(r.body); !ok {
			return no
		}
		return answer{status: http.StatusOK, body: s.runObject(v)}
	}
	return notFound
}

// set applies a request. A completed run stays completed, and annotations are only added.
func (v *Run) set(body object) (answer, bool) {
	take := func(from object, field string, to *string) {
		if text, ok := from[field].(string); ok {
			*to = text
		}
	}
	completed := v.Status == "completed"
	take(body, "status", &v.Status)
	take(body, "conclusion", &v.Conclusion)
	take(body, "details_url", &v.Target)
	take(body, "external_id", &v.External)
	if completed || v.Conclusion != "" {
		v.Status = "completed"
	}
	if v.Status == "completed" && v.Conclusion == "" {
		return problem(http.StatusUnprocessableEntity,
			"Invalid request.\n\nconclusion is required"), false
	}
	output, _ := body["output"].(object)
	take(output, "title", &v.Title)
	take(output, "summary", &v.Summary)
	notes, _ := output["annotations"].([]any)
	for _, n := range notes {
		v.Annotations = append(v.Annotations, annotation(n.(object)))
	}
	return answer{}, true
}

func annotation(o object) Annotation {
	text := func(field string) string { s, _ := o[field].(string); return s }
	count := func(field string) int { n, _ := o[field].(float64); return int(n) }
	return Annotation{Path: text("path"), Level: text("annotation_level"), Message: text("message"),
		Title: text("title"), Line: count("start_line"), Column: count("start_column")}
}
