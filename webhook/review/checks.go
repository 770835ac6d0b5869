package review

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/reconciler/plan/report"
)

const (
	mostTitle       = 140    // characters of a check's title, and of the status that stands for it
	mostSummary     = 60_000 // bytes of a check's summary
	mostAnnotations = 500    // of a check; the forge takes 50 at a time
)

// headline is the verdict in one line of prose: the gravest obstacle, or what the merge changes.
func (f Facts) headline(v Verdict) string {
	if !f.Ours() {
		return "Nothing that Argosy manages changes"
	}
	// That a fork is not planned says more than that nobody has approved it.
	for _, state := range []forge.CheckState{forge.CheckFailure, forge.CheckNeutral,
		forge.CheckPending} {
		if first, n := first(v.Obstacles, state); n > 0 {
			return upper(first.What) + more(n-1)
		}
	}
	return "Ready to merge: " + f.tally(v)
}

func first(obstacles []Obstacle, state forge.CheckState) (Obstacle, int) {
	i := slices.IndexFunc(obstacles, func(o Obstacle) bool { return o.State == state })
	if i < 0 {
		return Obstacle{}, 0
	}
	n := 0
	for _, o := range obstacles {
		if o.State == state {
			n++
		}
	}
	return obstacles[i], n
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// tally is what the plan comes to, in Applications.
func (f Facts) tally(v Verdict) string {
	if f.Plan == nil {
		return "nothing is planned"
	}
	counts, cleared := f.Plan.Counts, min(len(v.Cleared), f.Plan.Counts.Held)
	counts.Held, counts.Deleted = counts.Held-cleared, counts.Deleted+cleared
	return tally(counts, moved(f.Plan.Tenants))
}

func moved(tenants []report.Tenant) (n int) {
	for _, t := range tenants {
		for _, m := range t.Moves {
			n += m.Applications
		}
	}
	return n
}

func tally(c report.Counts, moved int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Created, "added"}, {c.Changed, "changed"}, {moved, "moved"}, {c.Deleted, "deleted"},
		{c.Held, "held back from deletion"}} {
		switch {
		case p.n > 0 && len(parts) == 0:
			parts = append(parts, count(p.n, "Application")+" "+p.what)
		case p.n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no Application changes"
	}
	return strings.Join(parts, ", ")
}

// upper begins a sentence.
func upper(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

func (f Facts) checks(v Verdict) []forge.Check {
	out := make([]forge.Check, 0, 3)
	for _, c := range []struct {
		name           string
		title, summary func(Verdict) string
	}{
		{forge.CheckValidate, f.valid, f.problemsSummary},
		{forge.CheckPlan, f.planned, f.planSummary},
		{forge.CheckOwners, f.approved, f.ownersSummary},
	} {
		check := forge.Check{Name: c.name, State: worst(v.Obstacles, c.name), URL: f.link()}
		check.Title = plain(title(v.Obstacles, c.name, check.State, c.title(v)), mostTitle)
		if own, _ := f.problems(); c.name == forge.CheckValidate && errorsOf(own) > 0 &&
			f.Unmergeable == "" {
			check.Title = plain(firstError(own), mostTitle)
		}
		switch {
		case f.Unmergeable != "":
			// a commit status shows no more than the title
			check.Title = plain(upper(f.Unmergeable), mostTitle)
			check.Summary = prose(reason(f.Unmergeable))
		case f.Ours():
			check.Summary = c.summary(v)
		}
		out = append(out, check)
	}
	own, _ := f.problems()
	out[0].Annotations = annotations(own)
	return out
}

// title is the first obstacle of a check, or what is good about it.
func title(obstacles []Obstacle, check string, state forge.CheckState, good string) string {
	if state == forge.CheckSuccess {
		return good
	}
	own := slices.DeleteFunc(slices.Clone(obstacles), func(o Obstacle) bool { return !o.of(check) })
	o, n := first(own, state)
	return upper(o.What) + more(n-1)
}

// firstError is the line to go to, for a forge that shows no more of a check than its title.
func firstError(own []fleet.Problem) string {
	p := own[0]
	place := path.Base(p.Path)
	if p.Line > 0 {
		place += fmt.Sprintf(":%d", p.Line)
	}
	return place + ": " + p.Message + more(errorsOf(own)-1)
}

func (f Facts) valid(Verdict) string {
	own, _ := f.problems()
	switch warnings := len(own); {
	case !f.Ours():
		return "Nothing that Argosy manages changes"
	case warnings > 0:
		return upper(count(len(f.Files), "file")) + " valid, with " + count(warnings, "warning")
	}
	return upper(count(len(f.Files), "file")) + " valid"
}

func (f Facts) planned(v Verdict) string {
	if !f.Ours() {
		return "Nothing that Argosy manages changes"
	}
	return upper(f.tally(v))
}

func (f Facts) approved(v Verdict) string {
	switch {
	case !f.Ours():
		return "Nothing that Argosy manages changes"
	case f.queued():
		return "Each pull request was approved before it came into the queue"
	}
	var parts []string
	for _, w := range v.Ownership {
		parts = append(parts, tenant(w.Tenant)+" by "+series(each(w.Approved, login), 2))
	}
	return "Approved for " + strings.Join(parts, ", ")
}

// annotations are the problems of the files that it changes: no other file can be annotated in this
// pull request.
func annotations(own []fleet.Problem) []fleet.Problem {
	var out []fleet.Problem
	for _, p := range own[:min(len(own), mostAnnotations)] {
		p.Message, p.Fix, p.Field = clean(p.Message, 4*mostSentence), clean(p.Fix, mostSentence),
			clean(p.Field, mostSentence)
		out = append(out, p)
	}
	return out
}

func (f Facts) problemsSummary(v Verdict) string {
	own, others := f.problems()
	if len(own)+len(others) == 0 {
		return count(len(f.Files), "file") + " of this pull request: no problem found."
	}
	return fit(mostSummary, 0, 0, func(d detail) string {
		p := &page{}
		p.problems(own, others, d.list*4)
		return p.String()
	})
}

func (f Facts) planSummary(v Verdict) string {
	c := newComment(f, v)
	return fit(mostSummary, len(c.rows), len(c.diffs), func(d detail) string {
		p := &page{}
		p.obstacles(v.Obstacles, forge.CheckPlan, d)
		c.warnings(p, d)
		c.changes(p, d)
		c.after(p)
		return p.String()
	})
}

func (f Facts) ownersSummary(v Verdict) string {
	return fit(mostSummary, 0, 0, func(d detail) string {
		p := &page{}
		p.table("", "who may approve", "approved this head", "")
		for _, w := range v.Ownership[:min(len(v.Ownership), d.list)] {
			note := ""
			if len(w.TookBack) > 0 {
				note = series(each(w.TookBack, login), 3) + " asked for changes"
			} else if !w.Met() {
				note = "missing"
			}
			who := w.who(5)
			if silent := w.silent(5); silent != "" {
				who += "; not counted: " + silent
			}
			p.row(prose(tenant(w.Tenant)), prose(who), prose(series(each(w.Approved, login), 5)),
				prose(note))
		}
		p.rest(len(v.Ownership)-d.list, "more")
		if f.queued() {
			return "Each pull request was approved before it came into the queue."
		}
		return p.String()
	})
}
