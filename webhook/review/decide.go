package review

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Obstacle is one thing that stands between a pull request and its merge. Both texts are prose: one
// line, names in backticks.
type Obstacle struct {
	Check string           // the check that reports it; empty: each of the three
	State forge.CheckState // of that check: failure, pending or neutral
	What  string           // what is wrong
	Todo  string           // what to do about it
}

// of says whether a check reports it; every obstacle is one of "".
func (o Obstacle) of(check string) bool { return check == "" || o.Check == "" || o.Check == check }

// Verdict is what the Facts come to.
type Verdict struct {
	State     forge.CheckState   // the worst of the checks
	Line      string             // one line without markup, at most 140 characters
	Tenants   []fleet.TenantName // whose files it changes, sorted; "" is the platform
	Ownership []Ownership        // of each of Tenants
	Obstacles []Obstacle         // check by check
	// deletions beyond the guards that nobody who may has approved; Items are those
	Held    []mirror.Hold
	Cleared []fleet.ObjectKey // deletions beyond the guards that somebody who may has approved
	Checks  []forge.Check     // validate, plan, owners: always all three
}

// Consented reports whether an owner of everything that it touches has approved this head. Of a
// commit of the merge queue nothing is known.
func (v Verdict) Consented() bool {
	return len(v.Ownership) == len(v.Tenants) && !slices.ContainsFunc(v.Ownership,
		func(o Ownership) bool { return !o.Met() })
}

// Agreed is those of the files whose own owners have approved this head.
func (v Verdict) Agreed(files map[string]string) map[string]string {
	out := map[string]string{}
	for path, blob := range files {
		owner := reviews.TenantOf(path)
		if slices.ContainsFunc(v.Ownership, func(o Ownership) bool {
			return o.Tenant == owner &&
				o.Met()
		}) {
			out[path] = blob
		}
	}
	return out
}

// Decide judges a pull request, or a commit of the merge queue.
func Decide(f Facts) Verdict {
	v := Verdict{Tenants: f.touched()}
	v.Held, v.Cleared = f.deletions()
	v.Obstacles = slices.Concat(f.unmergeable(), f.invalid(), f.unplanned(), f.stopped(v.Held),
		f.beyondQuota())
	if !f.queued() { // each was approved before it came into the queue
		v.Ownership = f.ownership()
		v.Obstacles = append(v.Obstacles, f.unowned(v.Ownership)...)
	} else if n := len(f.Unapproved); n > 0 {
		v.Obstacles = append(v.Obstacles, Obstacle{forge.CheckOwners, forge.CheckFailure,
			count(n, "file") + " that nobody approved",
			"No approved pull request has " + series(each(f.Unapproved, tick), 5) +
				" as this commit of the merge queue does. Take the pull " +
				"request out of the queue, bring " + tick(f.branch()) +
				" into its branch, and have it approved anew."})
	}
	v.State = worst(v.Obstacles, "")
	v.Line = plain(f.headline(v), mostTitle)
	v.Checks = f.checks(v)
	return v
}

// gravity orders states, the worst last.
var gravity = []forge.CheckState{forge.CheckSuccess, forge.CheckNeutral, forge.CheckPending,
	forge.CheckFailure}

// worst is the gravest state among the obstacles of one check, or of all.
func worst(obstacles []Obstacle, check string) forge.CheckState {
	state := forge.CheckSuccess
	for _, o := range obstacles {
		if o.of(check) && slices.Index(gravity, o.State) > slices.Index(gravity, state) {
			state = o.State
		}
	}
	return state
}

// unmergeable fails all three checks: which files a merge would change is unknown, so none of them
// can pass.
func (f Facts) unmergeable() []Obstacle {
	if f.Unmergeable == "" {
		return nil
	}
	return []Obstacle{{"", forge.CheckFailure, "cannot be merged as it is", reason(f.Unmergeable)}}
}

// invalid is the errors in the files that it changes. Warnings, and what it makes of other files,
// are told and stop nothing.
func (f Facts) invalid() []Obstacle {
	own, _ := f.problems()
	n := errorsOf(own)
	if n == 0 {
		return nil
	}
	o := Obstacle{Check: forge.CheckValidate, State: forge.CheckFailure, What: count(n, "error") +
		" in the files that this changes",
		Todo: "Mend what is listed below. Merged as it is, a file with an error has no effect: " +
			"what it declared before stays as it was."}
	if n == 1 {
		o.What = "1 error in " + tick(own[0].Path)
	}
	return []Obstacle{o}
}

func (f Facts) unplanned() []Obstacle {
	at := func(state forge.CheckState, what, todo string) []Obstacle {
		return []Obstacle{{forge.CheckPlan, state, what, todo}}
	}
	switch {
	case !f.Ours(), f.Unmergeable != "":
		return nil
	case len(f.Conflicts) > 0:
		return at(forge.CheckFailure, "conflicts with "+tick(f.branch()),
			"Both sides have changed "+series(each(f.Conflicts, tick), 5)+": bring "+
				tick(f.branch())+" into the pull request's branch.")
	case f.untested():
		return at(forge.CheckNeutral, "a fork: nothing is planned yet",
			"Its files were read and checked, no more. Somebody with write permission, or an "+
				"owner of the platform, looks through them and comments "+
				tick("/argosy ok-to-test "+string(f.Record.Head))+".")
	case f.Plan == nil:
		return at(forge.CheckPending, f.wait(), "It is planned then, without anybody asking. "+
			tick("argosy get revisions")+" tells what is applied.")
	case f.Plan.Waiting != nil:
		return at(forge.CheckFailure, "as a whole this would wait for an approval",
			reason(f.Plan.Waiting.Message))
	case f.Behind:
		return at(forge.CheckPending, tick(f.branch())+" has commits that are not applied yet",
			"They are being applied, or wait for an approval. It is planned anew then.")
	}
	return nil
}

// wait is what a plan that there is none of waits for.
func (f Facts) wait() string {
	if f.Unplanned == "" {
		return "not planned yet"
	}
	return "waits until " + f.Unplanned
}

func (f Facts) branch() string {
	if f.Record.Pull.Base == "" {
		return "the branch"
	}
	return f.Record.Pull.Base
}

// reason is a sentence that was made elsewhere.
func reason(why string) string {
	if why == "" {
		return ""
	}
	return upper(why) + "."
}

// stopped is what people have to let through: a lock by command, deletions beyond the guards.
func (f Facts) stopped(held []mirror.Hold) []Obstacle {
	var out []Obstacle
	for _, r := range f.records() {
		if r.Held != nil {
			out = append(out, Obstacle{forge.CheckPlan, forge.CheckFailure,
				"locked by " + login(r.Held.By), "Comment " + tick("/argosy unlock") +
					" to end the lock."})
		}
	}
	for _, h := range held {
		n := len(h.Items)
		todo := upper(h.Message) + ". " + clearers(h) + " may let them go: comment " +
			tick("/argosy approve-deletions "+string(f.Record.Head)) + "."
		out = append(out, Obstacle{forge.CheckPlan, forge.CheckFailure, count(n, "deletion") +
			" beyond the guards of " + scope(h.Tenant), todo})
	}
	return out
}

func scope(t fleet.TenantName) string {
	if t == "" {
		return "the fleet"
	}
	return tenant(t)
}

// beyondQuota holds what tenants would have against the quota of the base: a pull request does not
// raise the quota that it is judged by. A tenant that the base does not have is judged by the quota
// that it comes with, which the platform approves.
func (f Facts) beyondQuota() []Obstacle {
	if f.Plan == nil {
		return nil
	}
	var out []Obstacle
	for _, t := range f.Plan.Tenants {
		quota := t.Quota.Quota
		if base := f.owned(t.Name).Quota; base != nil {
			quota = *base
		}
		if over := exceeded(t.Quota, quota); len(over) > 0 {
			out = append(out, Obstacle{forge.CheckPlan, forge.CheckFailure, "beyond the quota of " +
				tenant(t.Name),
				upper(series(over, 3)) +
					". The platform can raise the quota in a pull request of its own that is " +
					"merged before."})
		}
	}
	return out
}

// exceeded is what grows beyond its quota, as prose.
func exceeded(u report.QuotaUse, quota fleet.Quota) []string {
	var over []string
	add := func(what string, before, after, limit int) {
		if after > limit && after > before {
			over = append(over, fmt.Sprintf("%d %s where %d are allowed", after, what, limit))
		}
	}
	add("environments", u.Before.Environments, u.After.Environments, quota.Environments)
	add("deployments", u.Before.Deployments, u.After.Deployments, quota.Deployments)
	add("Applications", u.Before.Applications, u.After.Applications, quota.Applications)
	return over
}

// unowned is the approvals that are missing. An owner's objection is a failure as long as no other
// owner approves.
func (f Facts) unowned(ownership []Ownership) []Obstacle {
	var out []Obstacle
	changed := Touched(slices.Concat(f.Files, f.Conflicts))
	for _, w := range ownership {
		if w.Met() {
			continue
		}
		o := Obstacle{Check: forge.CheckOwners, State: forge.CheckPending,
			What: "needs an approval for " + tenant(w.Tenant), Todo: missing(w, f.Record.Head)}
		if !slices.Contains(changed, w.Tenant) {
			o.Todo += fmt.Sprintf(
				" The commits of this pull request change %s, which %s has in the same way by "+
					"now: without them, after a rebase onto %s, "+
					"no approval is needed.", series(each(of(f.Kept, w.Tenant), tick), 3),
				tick(f.branch()), tick(f.branch()))
		}
		if len(w.TookBack) > 0 {
			o.State, o.What = forge.CheckFailure, series(each(w.TookBack, login), 3)+
				" asked for changes for "+tenant(w.Tenant)
		}
		out = append(out, o)
	}
	return out
}

// of picks the paths of one tenant.
func of(paths []string, t fleet.TenantName) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return Touched([]string{path})[0] != t
	})
}

// missing is how an approval is given, and by whom.
func missing(w Ownership, head fleet.Revision) string {
	s := upper(w.who(5)) + " has to approve this head: by a review, or with the comment " +
		tick("/argosy approve "+string(head)) + "."
	if len(w.Early) > 0 {
		s += " " + upper(series(each(w.Early, login), 3)) +
			" approved before this head was looked at, which counts for nothing."
	}
	if len(w.Earlier) > 0 {
		s += " " + upper(series(each(w.Earlier, login), 3)) + " approved an earlier head."
	}
	if changed := w.changed(3); changed != "" {
		s += " " + upper(changed) + "."
	}
	if silent := w.silent(5); silent != "" && (w.Platform || w.Admins) {
		s += " Not counted: " + silent + "."
	}
	return s
}

// records is the pull requests that are judged: one, or those of a commit of the merge queue.
func (f Facts) records() []forge.PullRecord {
	if f.queued() {
		return f.Queue
	}
	return []forge.PullRecord{f.Record}
}

// deletions parts those beyond the guards: what is still held, and what somebody who may has
// approved at the head that they saw it at. Whether they may is asked anew each time, and only what
// was listed then goes.
func (f Facts) deletions() (held []mirror.Hold, cleared []fleet.ObjectKey) {
	for _, h := range f.holds() {
		passed := map[fleet.ObjectKey]bool{}
		for _, r := range f.records() {
			if r.Cleared == nil || r.Cleared.Head != r.Head || !f.mayClear(r.Cleared.By, h) {
				continue
			}
			for _, k := range r.Cleared.Deletions {
				passed[k] = true
			}
		}
		var left []fleet.ObjectKey
		for _, k := range h.Items {
			if passed[k] {
				cleared = append(cleared, k)
			} else {
				left = append(left, k)
			}
		}
		if h.Items = left; len(left) > 0 {
			held = append(held, h)
		}
	}
	return held, cleared
}
