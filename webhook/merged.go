package webhook

import (
	"context"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/webhook/review"
)

const (
	// A result is looked for in the store after a quarter of its age, within these bounds, and no
	// longer once nobody waits for it any more.
	followEvery  = 2 * time.Second
	followSlowly = time.Minute
	followLong   = 24 * time.Hour

	mostSteps = 64 // of the branch that are remembered
)

// Step is one revision as it was recorded, of a branch that went on by one commit.
type Step struct {
	Head    fleet.Revision
	Effects []mirror.Effect
}

// remember keeps what a step did, to hold it against what was reviewed. What was forgotten since,
// as after a restart, is told from how objects stand.
func (r *Reviewer) remember(s Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	if len(r.steps) > mostSteps {
		r.steps = slices.Delete(r.steps, 0, len(r.steps)-mostSteps)
	}
}

func (r *Reviewer) step(head fleet.Revision) []mirror.Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if s.Head == head {
			return s.Effects
		}
	}
	return nil
}

// merged tells of the result as far as it has come.
func (r *Reviewer) merged(ctx context.Context, record forge.PullRecord) error {
	if record.Settled {
		return r.Records.SavePull(ctx, record)
	}
	if err := r.part(ctx, &record); err != nil {
		return err
	}
	now := r.Now()
	if record.FollowedAt == nil {
		record.FollowedAt = &now
	}
	age := now.Sub(*record.FollowedAt)
	facts := review.Facts{Now: now, Record: record, Link: r.link(record.Number)}
	outcomes, err := r.outcome(ctx, &facts, age > followLong)
	if err != nil {
		return err
	}
	result := review.Result(facts, outcomes, review.MostComment)
	record.Verdict, record.Settled = result.Line, result.Settled
	r.follow(record, now, age)
	if record.Sticky == 0 && len(record.Tenants) == 0 {
		return r.Records.SavePull(ctx, record) // nothing of ours was in it
	}
	return r.say(ctx, record, result.Text)
}

// outcome gathers what became of what was reviewed.
func (r *Reviewer) outcome(ctx context.Context, f *review.Facts, over bool) ([]forge.Outcome,
	error) {
	applied, includes, err := r.Planner.Applied(ctx, f.Record.MergeCommit)
	if err != nil {
		return nil, err
	}
	merge := &review.Merge{Over: over}
	f.Merge = merge
	if includes {
		merge.Applied = applied
		merge.Effects = r.step(f.Record.MergeCommit)
	}
	reviewed, known, err := r.Records.Reviewed(ctx, f.Record.Number, f.Record.Head)
	if err != nil {
		return nil, err
	}
	if known {
		merge.Reviewed = &reviewed
	}
	keys, engines := map[fleet.ObjectKey]bool{}, map[fleet.EngineName]bool{}
	for _, e := range slices.Concat(merge.Effects, reviewed.Effects) {
		keys[e.Key], engines[e.Key.Engine] = true, true
	}
	if merge.Holds, err = r.holds(ctx, keys, changedBy(f.Record, reviewed)); err != nil ||
		len(keys) == 0 {
		return nil, err
	}
	if f.Engines, err = r.engines(ctx, engines); err != nil {
		return nil, err
	}
	if f.Stops, err = r.Records.Stops(ctx, view.Scope{}); err != nil {
		return nil, err
	}
	return r.Records.Outcomes(ctx, slices.Collect(maps.Keys(keys)))
}

// changedBy is the files that a pull request changes, as far as that is known.
func changedBy(record forge.PullRecord, p forge.ReviewedPlan) map[string]bool {
	files := map[string]bool{}
	for path := range record.Shown {
		files[path] = true
	}
	for _, path := range p.Touches {
		files[path] = true
	}
	return files
}

// holds is what holds back something of these objects and files, and only as far as it does.
func (r *Reviewer) holds(ctx context.Context, keys map[fleet.ObjectKey]bool,
	files map[string]bool) ([]mirror.Hold, error) {
	all, _, err := r.Records.Holds(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 1000})
	if err != nil {
		return nil, err
	}
	var out []mirror.Hold
	for _, h := range all {
		h.Items = slices.DeleteFunc(slices.Clone(h.Items), func(k fleet.ObjectKey) bool {
			return !keys[k]
		})
		h.Paths = slices.DeleteFunc(slices.Clone(h.Paths), func(p string) bool { return !files[p] })
		if len(h.Items)+len(h.Paths) > 0 {
			out = append(out, h)
		}
	}
	return out, nil
}

// follow says when the result is looked at next.
func (r *Reviewer) follow(record forge.PullRecord, now time.Time, age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record.Settled {
		delete(r.following, record.Number)
		return
	}
	r.following[record.Number] = now.Add(min(max(age/4, followEvery), followSlowly))
}

// resume goes on following what another replica followed.
func (r *Reviewer) resume(ctx context.Context) {
	records, err := r.Records.UnsettledPulls(ctx)
	if err != nil {
		r.Log.Warn("results of merged pull requests are followed from the next sweep on", "error",
			err)
		return
	}
	for _, record := range records {
		if record.State == forge.PullMerged {
			r.follow(record, r.Now(), 0)
		}
	}
}

// due is the looks at results that it is time for.
func (r *Reviewer) due() []forge.Recheck {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var looks []forge.Recheck
	for _, number := range slices.Sorted(maps.Keys(r.following)) {
		if !now.Before(r.following[number]) {
			looks = append(looks, forge.Recheck{Kind: forge.RecheckPull, Number: number})
			r.following[number] = now.Add(followSlowly) // until the look says otherwise
		}
	}
	return looks
}

// closed ends the work on a pull request that was closed without a merge, or that is to be merged
// elsewhere now.
func (r *Reviewer) closed(ctx context.Context, record forge.PullRecord) error {
	if record.State == forge.PullOpen {
		record.State = forge.PullClosed // of no concern to the branch that is applied
	}
	if record.Settled {
		return r.Records.SavePull(ctx, record)
	}
	if err := r.part(ctx, &record); err != nil {
		return err
	}
	record.Settled = true
	if record.Sticky == 0 {
		return r.Records.SavePull(ctx, record)
	}
	facts := review.Facts{Now: r.Now(), Record: record}
	return r.say(ctx, record, review.Comment(facts, review.Decide(facts), review.MostComment))
}
