package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/webhook/review"
)

// This file is the way of one review job, from the record of the pull request to the report on it,
// in the order of the calls.

// pull reviews one pull request; again reports its checks even if they have not changed.
func (r *Reviewer) pull(ctx context.Context, number int, again bool) error {
	leave, ok := r.enter(number)
	if !ok {
		return errActive
	}
	defer leave()
	record, known, err := r.Records.PullRecord(ctx, number)
	if err != nil {
		return err
	}
	if known && record.State == forge.PullMerged && record.MergeCommit != "" &&
		record.Base == r.Branch {
		// final on the Git host: the rest of the report comes from the store
		return r.merged(ctx, record)
	}
	pull, err := r.Forge.Pull(ctx, number)
	switch {
	case errors.Is(err, forge.ErrNoSuchPull) && known:
		record.State, record.Finished = forge.PullClosed, true
		return r.Records.SavePull(ctx, record)
	case errors.Is(err, forge.ErrNoSuchPull):
		return nil
	case err != nil:
		return err
	}
	ours := pull.Base == r.Branch
	if !known && (!ours || pull.State != forge.PullOpen) {
		return nil // Argosy never reported on it
	}
	if again || record.Head != pull.Head {
		record.Marked = ""
	}
	if record.Head != pull.Head {
		record.Seen = &forge.Sighting{Head: pull.Head}
	}
	record.Pull = pull
	switch {
	case pull.State == forge.PullMerged && ours:
		return r.merged(ctx, record)
	case pull.State == forge.PullOpen && ours:
		record.Finished, record.FollowedAt = false, nil
		return r.open(ctx, record)
	default:
		return r.closed(ctx, record)
	}
}

// enter begins the review of a pull request, which leave ends; false if another job reviews it.
func (r *Reviewer) enter(number int) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[number] {
		return nil, false
	}
	r.active[number] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.active, number)
	}, true
}

// open reviews an open pull request and reports the outcome. The store gets each text before the
// Git host, and once more after it: a job that was interrupted in between runs again with the same
// outcome.
func (r *Reviewer) open(ctx context.Context, record forge.PullRecord) error {
	comments, reviews, err := r.Forge.Conversation(ctx, record.Number)
	if err != nil {
		return err
	}
	if record.Seen != nil && record.Seen.At.IsZero() {
		record.Seen = sighting(record.Head, r.Now(), comments, reviews)
		if err := r.Records.SavePull(ctx, record); err != nil {
			return err // the sighting counts even if the rest of the review fails
		}
	}
	commands, newest := review.Commands(comments, record)
	facts, preview, err := r.facts(ctx, record, reviews, commands)
	if err != nil {
		return err
	}
	if onBranch(record, facts, preview) {
		return nil // the record stays as the merge must find it
	}
	if len(commands) > 0 {
		if facts, preview, err = r.obey(ctx, facts, preview, commands, newest); err != nil {
			return err
		}
	}
	if preview.outdated && facts.Record.Marked != "" {
		return mirror.ErrNotReady // the last report stays until the head can be planned
	}
	verdict := review.Decide(facts)
	if err := r.save(ctx, &facts.Record, preview, verdict); err != nil {
		return err
	}
	if facts.Collisions, err = r.collisions(ctx, &facts.Record, facts.Files); err != nil {
		return err
	}
	if len(facts.Collisions) > 0 {
		verdict = review.Decide(facts)
	}
	if err := r.report(ctx, facts, verdict); err != nil {
		return err
	}
	if preview.applying {
		return mirror.ErrNotReady // plan it as soon as possible
	}
	return nil
}

// onBranch reports that the applied revision has all of the head, although the Git host does not
// call the pull request merged yet: somebody pushed the merge, or merged it during this review. The
// head shows nothing then, which would replace what its owners agreed to.
func onBranch(record forge.PullRecord, f review.Facts, p Preview) bool {
	return f.Unmergeable == "" && len(p.Shown) == 0 && len(record.Agreed(record.Head)) > 0
}

// sighting is the first review of a head, with the newest comment and review at that time.
func sighting(head fleet.Revision, now time.Time, comments []forge.Comment,
	reviews []forge.Review) *forge.Sighting {
	s := &forge.Sighting{Head: head, At: now}
	for _, c := range comments {
		s.Comment = max(s.Comment, c.ID)
	}
	for _, v := range reviews {
		if v.Head == head && v.At.After(s.Review) {
			s.Review = v.At
		}
	}
	return s
}

// facts gathers everything that the decision on an open pull request depends on.
func (r *Reviewer) facts(ctx context.Context, record forge.PullRecord, reviews []forge.Review,
	commands []review.GivenCommand) (review.Facts, Preview, error) {
	f := review.Facts{Now: r.Now(), Record: record, Reviews: reviews,
		Permissions: map[int64]forge.Permission{}}
	// forks' heads too
	preview, err := r.preview(ctx, &f, fmt.Sprintf("refs/pull/%d/head", record.Number))
	if err != nil {
		return f, preview, err
	}
	people := review.Voices(reviews, record)
	for _, s := range commands {
		people = append(people, s.By.By)
	}
	for _, p := range people {
		if _, ok := f.Permissions[p.ID]; ok {
			continue
		}
		if f.Permissions[p.ID], err = r.Forge.Permission(ctx, p); err != nil {
			return f, preview, err
		}
	}
	return f, preview, r.surroundings(ctx, &f, preview)
}

// preview adds to the facts what the head would change.
func (r *Reviewer) preview(ctx context.Context, f *review.Facts, ref string) (Preview, error) {
	p, err := r.planned(ctx, f, ref)
	switch {
	case errors.Is(err, mirror.ErrUnmergeable):
		f.Unmergeable = strings.TrimPrefix(err.Error(), mirror.ErrUnmergeable.Error()+": ")
		return p, nil
	case err != nil:
		return p, fmt.Errorf("pull request %d: %w", f.Record.Number, err)
	case p.applying && p.Report == nil:
		f.Unplanned = fmt.Sprintf("what `%s` has is applied", r.Branch)
	}
	f.Base, f.Files, f.Problems, f.Conflicts, f.Behind, f.Plan = p.Base, p.Files, p.Problems,
		p.Conflicts, p.Behind, p.Report
	f.Beside = p.Beside
	for path := range p.Shown {
		if !slices.Contains(p.Files, path) && !slices.Contains(p.Conflicts, path) {
			f.Kept = append(f.Kept, path)
		}
	}
	slices.Sort(f.Kept)
	if f.Record.Number > 0 {
		f.Link = link(r.Public, f.Record.Number)
	}
	return p, nil
}

// link is the page of a pull request; "" without a public URL.
func link(public string, number int) string {
	if public == "" {
		return ""
	}
	return fmt.Sprintf("%s/pulls/%d", public, number)
}

// planned plans the head. It only parses the files of a fork without permission to be planned.
// While the loop applies the branch's head, it returns the stored plan of the same head and base.
func (r *Reviewer) planned(ctx context.Context, f *review.Facts, ref string) (Preview, error) {
	record := f.Record
	if record.Fork && (record.Tested == nil || record.Tested.Head != record.Head) {
		return r.Planner.Parse(ctx, ref, record.Head)
	}
	var unknown error
	p, err := r.Planner.Preview(ctx, ref, record.Head, func(t fleet.TenantName) bool {
		owned, err := r.owned(ctx, []fleet.TenantName{t})
		unknown = errors.Join(unknown, err)
		return err == nil && f.MayList(t, owned)
	})
	if unknown != nil {
		return Preview{}, unknown
	}
	if !errors.Is(err, mirror.ErrNotReady) {
		return p, err
	}
	if p, err = r.Planner.Parse(ctx, ref, record.Head); err != nil {
		return p, err
	}
	p.applying = true
	stored, known, err := r.Records.Reviewed(ctx, record.Number, record.Head)
	if err != nil || !known {
		return p, err
	}
	if stored.Base != p.Base {
		p.outdated = true
		return p, nil
	}
	var decoded report.Report
	if err := json.Unmarshal(stored.Report, &decoded); err != nil {
		return p, fmt.Errorf("decode its stored plan: %w", err)
	}
	p.Report, p.Hash, p.Effects, p.Problems, p.Behind = &decoded, stored.Hash, stored.Effects,
		decoded.Problems, record.Behind
	return p, nil
}

// surroundings adds owners and quotas of the applied base, the state of the affected Applications
// and engines, and emergency stops.
func (r *Reviewer) surroundings(ctx context.Context, f *review.Facts, p Preview) (err error) {
	if f.Owned, err = r.owned(
		ctx, review.Touched(slices.Concat(f.Files, f.Conflicts, f.Kept))); err != nil {
		return err
	}
	if f.Stops, err = r.Status.Stops(ctx, view.Scope{}); err != nil {
		return err
	}
	if p.Report == nil {
		return nil
	}
	var digests []string
	for _, ring := range p.Report.Rings {
		digests = append(digests, ring.Digest)
	}
	if len(digests) > 0 {
		if f.Rendered, err = r.Status.Rendered(ctx, digests); err != nil {
			return err
		}
	}
	keys, engines := []fleet.ObjectKey{}, map[fleet.EngineName]bool{}
	for _, e := range p.Effects {
		engines[e.Key.Engine] = true
		if e.Key.Kind == fleet.ObjectApplication {
			keys = append(keys, e.Key)
		}
	}
	f.Outcomes = map[fleet.ObjectKey]forge.Outcome{}
	if len(keys) > 0 {
		outcomes, err := r.Status.Outcomes(ctx, keys)
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			f.Outcomes[o.Key] = o
		}
	}
	f.Engines, err = r.engines(ctx, engines)
	return err
}

// owned resolves the owners of the platform and of the tenants, by the applied base.
func (r *Reviewer) owned(ctx context.Context, tenants []fleet.TenantName) ([]review.Owned, error) {
	platform, err := r.Planner.Platform()
	if err != nil {
		return nil, err
	}
	owners, err := r.people.owners(ctx, platform.Owners)
	if err != nil {
		return nil, err
	}
	out := []review.Owned{{Owners: owners}}
	for _, name := range tenants {
		if name == "" {
			continue
		}
		spec, declared, err := r.Planner.Tenant(name)
		if err != nil {
			return nil, err
		}
		owned := review.Owned{Tenant: name}
		if declared {
			owned.Quota = &spec.Quota
			if owned.Owners, err = r.people.owners(ctx, spec.Owners); err != nil {
				return nil, err
			}
		}
		out = append(out, owned)
	}
	return out, nil
}

func (r *Reviewer) engines(ctx context.Context,
	names map[fleet.EngineName]bool) (map[fleet.EngineName]review.Engine, error) {
	out := map[fleet.EngineName]review.Engine{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e, err := r.engine(ctx, name)
		if err != nil {
			return nil, err
		}
		out[name] = e
	}
	return out, nil
}

// engine returns the state of one engine. A new engine that no worker has connected to counts as
// reachable; no agent has joined for a new one in pull mode.
func (r *Reviewer) engine(ctx context.Context, name fleet.EngineName) (review.Engine, error) {
	e := review.Engine{Reachable: true}
	if name.OfEnvironment() {
		return r.withAgent(ctx, name, e)
	}
	spec, declared, err := r.Planner.Engine(name)
	if err != nil || !declared {
		return e, err
	}
	e.State = spec.State
	views, _, err := r.Status.Engines(ctx, view.Scope{}, view.Filter{Engine: name},
		view.Page{Limit: 1})
	if err != nil {
		return e, err
	}
	if len(views) == 1 {
		e.Reachable, e.Since = views[0].Reachable, views[0].Since
	}
	if spec.Connection.Agent != nil {
		return r.withAgent(ctx, name, e)
	}
	return e, nil
}

// withAgent adds the state of the engine's agent. An agent that never reported leaves its Argo CD
// unknown, which counts as reachable.
func (r *Reviewer) withAgent(ctx context.Context, name fleet.EngineName,
	e review.Engine) (review.Engine, error) {
	e.Agent = &review.Agent{}
	views, _, err := r.Status.Agents(ctx, view.Scope{}, view.Filter{Engine: name},
		view.Page{Limit: 2})
	if err != nil {
		return e, err
	}
	for _, a := range views {
		if a.Engine != name || a.ID == "" {
			continue
		}
		e.Agent = &review.Agent{
			Joined: true, Connected: a.Connected, LastSeen: a.SeenAt,
			Over: a.RevokedAt != nil || a.Cloned || a.ExpiresAt != nil &&
				a.ExpiresAt.Before(r.Now()),
		}
		e.Reachable = a.Reachable || a.ArgoCD == "" && a.Message == ""
	}
	return e, nil
}

// obey runs commands once: the record is stored before they take effect.
func (r *Reviewer) obey(ctx context.Context, facts review.Facts, preview Preview,
	commands []review.GivenCommand, newest int64) (review.Facts, Preview, error) {
	if facts.Plan == nil && facts.Unplanned != "" {
		return facts, preview, mirror.ErrNotReady // the plan decides who may give a command
	}
	record := facts.Record
	for _, s := range commands {
		facts.Record = record
		var reply string
		record, reply = review.Judge(s.Command, s.By, review.RightsOf(s.By.By, facts), record)
		r.Log.Info("ran a command of a comment", "pull", record.Number, "command", s.Word,
			"by", s.By.By.Login, "id", s.By.By.ID, "answer", reply)
	}
	record.Commented = newest
	if err := r.Records.SavePull(ctx, record); err != nil {
		return facts, preview, err
	}
	return r.facts(ctx, record, facts.Reviews, nil)
}

// save stores the plan before reviewers see it, and the verdict.
func (r *Reviewer) save(ctx context.Context, record *forge.PullRecord, p Preview,
	v review.Verdict) error {
	record.Verdict, record.Tenants, record.Consented, record.Shown, record.ShownAt = v.Line,
		v.Tenants, "", nil, ""
	if p.Report != nil && v.Consented() {
		record.Consented = record.Head
	}
	if p.Report != nil {
		if record.Shown = v.Agreed(p.Shown); len(record.Shown) > 0 {
			record.ShownAt = record.Head
		}
	}
	if p.Report == nil {
		return r.Records.SavePull(ctx, *record)
	}
	record.Behind = p.Behind
	if err := r.Records.SavePull(ctx, *record); err != nil {
		return err
	}
	report, err := json.Marshal(p.Report)
	if err != nil {
		return fmt.Errorf("pull request %d: encode its plan: %w", record.Number, err)
	}
	return r.Records.SaveReviewed(ctx, forge.ReviewedPlan{
		Number: record.Number, Base: p.Base, Head: record.Head, Hash: p.Hash, Report: report,
		Effects: p.Effects, Touches: p.Files, At: r.Now(),
	})
}

// collisions returns the other open pull requests that change the same files. The plan is stored
// before: of two that are reviewed at the same time, one finds the other.
func (r *Reviewer) collisions(ctx context.Context, record *forge.PullRecord,
	files []string) ([]forge.Collision, error) {
	found, err := r.Records.Colliding(ctx, record.Number, files)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, 0, len(found))
	for _, c := range found {
		numbers = append(numbers, c.Number)
	}
	return found, r.setCollisions(ctx, record, numbers)
}

// setCollisions requests rechecks of the pull requests that collide now and did not before, or the
// other way around, and then stores the new ones.
func (r *Reviewer) setCollisions(ctx context.Context, record *forge.PullRecord,
	numbers []int) error {
	var jobs []forge.Recheck
	for _, n := range slices.Concat(numbers, record.Meets) {
		if !slices.Contains(numbers, n) || !slices.Contains(record.Meets, n) {
			jobs = append(jobs, forge.Recheck{Kind: forge.RecheckPull, Number: n})
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	if err := r.Records.Ask(ctx, jobs); err != nil {
		return fmt.Errorf("pull request %d: recheck those that it collides with: %w", record.Number,
			err)
	}
	record.Meets = numbers
	return r.Records.SavePull(ctx, *record)
}

// clearCollisions ends the collisions of a pull request that is no longer open. Its record must not
// be open before the others are rechecked.
func (r *Reviewer) clearCollisions(ctx context.Context, record *forge.PullRecord) error {
	if len(record.Meets) == 0 {
		return nil
	}
	if err := r.Records.SavePull(ctx, *record); err != nil {
		return err
	}
	return r.setCollisions(ctx, record, nil)
}

// report writes checks and comment to the Git host if they changed.
func (r *Reviewer) report(ctx context.Context, f review.Facts, v review.Verdict) error {
	record := f.Record
	if marked := digest(record.Head, v.Checks); marked != record.Marked {
		if err := r.Forge.ReportChecks(ctx, record.Head, v.Checks); err != nil {
			return fmt.Errorf("pull request %d: its checks: %w", record.Number, err)
		}
		record.Marked = marked
		if err := r.Records.SavePull(ctx, record); err != nil {
			return err
		}
	}
	if !f.Ours() && len(record.Replies) == 0 && record.Sticky == 0 {
		return nil // it changes nothing of ours, and gave no command
	}
	return r.comment(ctx, record, review.Comment(f, v, review.MostComment))
}

// comment brings Argosy's comment to this text.
func (r *Reviewer) comment(ctx context.Context, record forge.PullRecord, body string) error {
	hash := digest(body)
	if hash == record.CommentHash {
		return r.Records.SavePull(ctx, record)
	}
	id, err := r.Forge.SetComment(ctx, record.Number, record.Sticky, review.Marker, body)
	if err != nil {
		return fmt.Errorf("pull request %d: its comment: %w", record.Number, err)
	}
	record.Sticky, record.CommentHash = id, hash
	return r.Records.SavePull(ctx, record)
}

// digest returns the same short string for the same values.
func digest(values ...any) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			panic(err) // checks and texts always encode
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// merged reports the result of a merged pull request as far as it is known.
func (r *Reviewer) merged(ctx context.Context, record forge.PullRecord) error {
	if record.Finished {
		return r.Records.SavePull(ctx, record)
	}
	if err := r.clearCollisions(ctx, &record); err != nil {
		return err
	}
	now := r.Now()
	if record.FollowedAt == nil {
		record.FollowedAt = &now
	}
	age := now.Sub(*record.FollowedAt)
	facts := review.Facts{Now: now, Record: record, Link: link(r.Public, record.Number)}
	outcomes, err := r.outcome(ctx, &facts, age > maxFollow)
	if err != nil {
		return err
	}
	result := review.Result(facts, outcomes, review.MostComment)
	record.Verdict, record.Finished = result.Line, result.Final
	r.follow(record, now, age)
	if record.Sticky == 0 && len(record.Tenants) == 0 {
		return r.Records.SavePull(ctx, record) // it changed nothing of ours
	}
	return r.comment(ctx, record, result.Text)
}

// outcome gathers the state of the objects that were reviewed or changed.
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
		if merge.Effects, err = r.effects(ctx, f.Record.MergeCommit); err != nil {
			return nil, err
		}
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
	if merge.Holds, err = holdsOn(ctx, r.Status, keys, changedBy(f.Record, reviewed)); err != nil ||
		len(keys) == 0 {
		return nil, err
	}
	if f.Engines, err = r.engines(ctx, engines); err != nil {
		return nil, err
	}
	if f.Stops, err = r.Status.Stops(ctx, view.Scope{}); err != nil {
		return nil, err
	}
	return r.Status.Outcomes(ctx, slices.Collect(maps.Keys(keys)))
}

// effects returns what recording the merge changed, for the comparison with the reviewed effects;
// nil if the branch moved on by more than this commit, or if that is unknown: then the state of the
// objects alone decides the result.
func (r *Reviewer) effects(ctx context.Context, merge fleet.Revision) ([]mirror.Effect, error) {
	base, effects, known, err := r.Records.RecordedEffects(ctx, merge)
	if err != nil || !known {
		return nil, err
	}
	if parent, err := r.Planner.Parent(ctx, merge); err != nil || parent != base {
		return nil, nil //nolint:nilerr // a commit that cannot be read leaves the effects unknown
	}
	return effects, nil
}

// changedBy returns the files that a pull request is known to change.
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

// holdsOn returns the holds on these objects and files, each reduced to them, and also approved
// holds until the approval takes effect: until then, the objects are as they were before the merge.
func holdsOn(ctx context.Context, status Status, keys map[fleet.ObjectKey]bool,
	files map[string]bool) ([]mirror.Hold, error) {
	all, _, err := status.Holds(ctx, view.Scope{}, view.Filter{Approved: true},
		view.Page{Limit: 1000})
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

// closed ends the work on a pull request that was closed without a merge or moved to another
// branch.
func (r *Reviewer) closed(ctx context.Context, record forge.PullRecord) error {
	if record.State == forge.PullOpen {
		record.State = forge.PullClosed // against another branch
	}
	if record.Finished {
		return r.Records.SavePull(ctx, record)
	}
	if err := r.clearCollisions(ctx, &record); err != nil {
		return err
	}
	record.Finished = true
	if record.Sticky == 0 {
		return r.Records.SavePull(ctx, record)
	}
	facts := review.Facts{Now: r.Now(), Record: record}
	return r.comment(ctx, record, review.Comment(facts, review.Decide(facts), review.MostComment))
}
