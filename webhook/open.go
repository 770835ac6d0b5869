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
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/webhook/review"
)

// refOf is where a forge keeps the head of a pull request, also of one from a fork, within the
// config repo itself.
func refOf(number int) string { return fmt.Sprintf("refs/pull/%d/head", number) }

// open judges an open pull request and reports what it comes to. What is said is kept before it is
// said, and that it was said after: whatever is cut off in between is done again, and has the same
// outcome.
func (r *Reviewer) open(ctx context.Context, record forge.PullRecord) error {
	comments, reviews, err := r.Forge.Conversation(ctx, record.Number)
	if err != nil {
		return err
	}
	if record.Seen != nil && record.Seen.At.IsZero() {
		record.Seen = sighting(record.Head, r.Now(), comments, reviews)
		if err := r.Records.SavePull(ctx, record); err != nil {
			return err // whatever ends this look, the head was seen now
		}
	}
	said, newest := review.Commands(comments, record)
	facts, preview, err := r.facts(ctx, record, reviews, said)
	if err != nil {
		return err
	}
	if len(said) > 0 {
		if facts, preview, err = r.obey(ctx, facts, preview, said, newest); err != nil {
			return err
		}
	}
	if preview.outdated && facts.Record.Marked != "" {
		return ErrUnsettled // what was said of this head stands until there is more to say
	}
	verdict := review.Decide(facts)
	if err := r.keep(ctx, &facts.Record, preview, verdict); err != nil {
		return err
	}
	if facts.Collisions, err = r.collisions(ctx, &facts.Record, facts.Files); err != nil {
		return err
	}
	if len(facts.Collisions) > 0 {
		verdict = review.Decide(facts) // it tells of them
	}
	if err := r.report(ctx, facts, verdict); err != nil {
		return err
	}
	if preview.unsettled {
		return ErrUnsettled // it is planned as soon as that is possible
	}
	return nil
}

// sighting is the first look at a head, with what had been said by then.
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

// obey carries out commands, once: the record is stored before anything comes of them.
func (r *Reviewer) obey(ctx context.Context, facts review.Facts, preview Preview,
	said []review.Said, newest int64) (review.Facts, Preview, error) {
	if facts.Plan == nil && facts.Unplanned != "" {
		return facts, preview, ErrUnsettled // whether somebody may depends on what the plan touches
	}
	record := facts.Record
	for _, s := range said {
		facts.Record = record
		var reply string
		record, reply = review.Judge(s.Command, s.By, review.RightsOf(s.By.By, facts), record)
		r.Log.Info("a command was given", "pull", record.Number, "command", s.Word, "by",
			s.By.By.Login, "id", s.By.By.ID, "answer", reply)
	}
	record.Commented = newest
	if err := r.Records.SavePull(ctx, record); err != nil {
		return facts, preview, err
	}
	return r.facts(ctx, record, facts.Reviews, nil)
}

// facts gathers what is known of an open pull request.
func (r *Reviewer) facts(ctx context.Context, record forge.PullRecord, reviews []forge.Review,
	said []review.Said) (review.Facts, Preview, error) {
	f := review.Facts{Now: r.Now(), Record: record, Reviews: reviews,
		Permissions: map[int64]forge.Permission{}}
	preview, err := r.preview(ctx, &f, refOf(record.Number))
	if err != nil {
		return f, preview, err
	}
	askers := review.Voices(reviews, record)
	for _, s := range said {
		askers = append(askers, s.By.By)
	}
	for _, p := range askers {
		if _, ok := f.Permissions[p.ID]; ok {
			continue
		}
		if f.Permissions[p.ID], err = r.Forge.Permission(ctx, p); err != nil {
			return f, preview, err
		}
	}
	return f, preview, r.surroundings(ctx, &f, preview)
}

// preview tells the facts what the head would change.
func (r *Reviewer) preview(ctx context.Context, f *review.Facts, ref string) (Preview, error) {
	p, err := r.planned(ctx, f.Record, ref)
	switch {
	case errors.Is(err, ErrUnmergeable):
		f.Unmergeable = strings.TrimPrefix(err.Error(), ErrUnmergeable.Error()+": ")
		return p, nil
	case err != nil:
		return p, fmt.Errorf("pull request %d: %w", f.Record.Number, err)
	case p.unsettled && p.Report == nil:
		f.Unplanned = fmt.Sprintf("what `%s` has is applied", r.Branch)
	}
	f.Base, f.Files, f.Problems, f.Conflicts, f.Behind, f.Plan = p.Base, p.Files, p.Problems,
		p.Conflicts, p.Behind, p.Report
	for path := range p.Shown {
		if !slices.Contains(p.Files, path) && !slices.Contains(p.Conflicts, path) {
			f.Kept = append(f.Kept, path)
		}
	}
	slices.Sort(f.Kept)
	if f.Record.Number > 0 {
		f.Link = r.link(f.Record.Number)
	}
	return p, nil
}

// planned plans the head, or reads it only, if it is a fork's that nobody has looked at. While the
// branch's head is being applied the plan that was made of the same head and the same base stands:
// nothing else would come of it.
func (r *Reviewer) planned(ctx context.Context, record forge.PullRecord, ref string) (Preview,
	error) {
	if record.Fork && (record.Tested == nil || record.Tested.Head != record.Head) {
		return r.Planner.Parse(ctx, ref, record.Head)
	}
	p, err := r.Planner.Preview(ctx, ref, record.Head)
	if !errors.Is(err, ErrUnsettled) {
		return p, err
	}
	if p, err = r.Planner.Parse(ctx, ref, record.Head); err != nil {
		return p, err
	}
	p.unsettled = true
	was, known, err := r.Records.Reviewed(ctx, record.Number, record.Head)
	if err != nil || !known {
		return p, err
	}
	if was.Base != p.Base {
		p.outdated = true
		return p, nil
	}
	var report report.Report
	if err := json.Unmarshal(was.Report, &report); err != nil {
		return p, fmt.Errorf("the plan that was made of it: %w", err)
	}
	p.Report, p.Hash, p.Effects, p.Problems, p.Behind = &report, was.Hash, was.Effects,
		report.Problems, record.Behind
	return p, nil
}

func (r *Reviewer) link(number int) string {
	if r.Public == "" {
		return ""
	}
	return fmt.Sprintf("%s/pulls/%d", r.Public, number)
}

// surroundings is what the plan meets: owners and quotas of the base, how Applications and engines
// stand, stops.
func (r *Reviewer) surroundings(ctx context.Context, f *review.Facts, p Preview) (err error) {
	if f.Owned, err = r.owned(ctx,
		review.Touched(slices.Concat(f.Files, f.Conflicts, f.Kept))); err != nil {
		return err
	}
	if f.Stops, err = r.Records.Stops(ctx, view.Scope{}); err != nil {
		return err
	}
	if p.Report == nil {
		return nil
	}
	keys, engines := []fleet.ObjectKey{}, map[fleet.EngineName]bool{}
	for _, e := range p.Effects {
		engines[e.Key.Engine] = true
		if e.Key.Kind == fleet.ObjectApplication {
			keys = append(keys, e.Key)
		}
	}
	if f.Standing, err = r.standing(ctx, keys); err != nil {
		return err
	}
	f.Engines, err = r.engines(ctx, engines)
	return err
}

func (r *Reviewer) standing(ctx context.Context,
	keys []fleet.ObjectKey) (map[fleet.ObjectKey]forge.Outcome, error) {
	out := map[fleet.ObjectKey]forge.Outcome{}
	if len(keys) == 0 {
		return out, nil
	}
	outcomes, err := r.Records.Outcomes(ctx, keys)
	for _, o := range outcomes {
		out[o.Key] = o
	}
	return out, err
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

// engine is how one engine stands. What is new, and has not been tried, counts as reachable; nobody
// has joined for what is new behind an agent.
func (r *Reviewer) engine(ctx context.Context, name fleet.EngineName) (review.Engine, error) {
	e := review.Engine{Reachable: true}
	if name.OfEnvironment() {
		return r.behindAgent(ctx, name, e)
	}
	spec, declared, err := r.Planner.Engine(name)
	if err != nil || !declared {
		return e, err
	}
	e.State = spec.State
	views, _, err := r.Records.Engines(ctx, view.Scope{}, view.Filter{Engine: name}, view.Page{
		Limit: 1})
	if err != nil {
		return e, err
	}
	if len(views) == 1 {
		e.Reachable, e.Since = views[0].Reachable, views[0].Since
	}
	if spec.Connection.Agent != nil {
		return r.behindAgent(ctx, name, e)
	}
	return e, nil
}

// behindAgent adds how the agent stands that an engine is reached by. What an agent that has never
// reported says of its Argo CD is nothing.
func (r *Reviewer) behindAgent(ctx context.Context, name fleet.EngineName,
	e review.Engine) (review.Engine, error) {
	e.Agent = &review.Agent{}
	views, _, err := r.Records.Agents(ctx, view.Scope{}, view.Filter{Engine: name}, view.Page{
		Limit: 2})
	if err != nil {
		return e, err
	}
	for _, a := range views {
		if a.Engine != name || a.ID == "" {
			continue
		}
		e.Agent = &review.Agent{Joined: true, Connected: a.Connected, LastSeen: a.SeenAt,
			Over: a.RevokedAt != nil || a.Cloned || a.ExpiresAt != nil &&
				a.ExpiresAt.Before(r.Now())}
		e.Reachable = a.Reachable || a.ArgoCD == "" && a.Message == ""
	}
	return e, nil
}

// owned looks up whose word counts for what is touched, by the applied base; always for the
// platform too.
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

// keep stores the plan that reviewers are about to see, and what is known of the pull request.
func (r *Reviewer) keep(ctx context.Context, record *forge.PullRecord, p Preview,
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
		return fmt.Errorf("pull request %d: its plan: %w", record.Number, err)
	}
	return r.Records.SaveReviewed(ctx, forge.ReviewedPlan{
		Number: record.Number, Base: p.Base, Head: record.Head, Hash: p.Hash, Report: report,
		Effects: p.Effects, Touches: p.Files, At: r.Now(),
	})
}

// report says what has changed since it was said last.
func (r *Reviewer) report(ctx context.Context, f review.Facts, v review.Verdict) error {
	record := f.Record
	if marked := digest(record.Head, v.Checks); marked != record.Marked {
		if err := r.Forge.Mark(ctx, record.Head, v.Checks); err != nil {
			return fmt.Errorf("pull request %d: its checks: %w", record.Number, err)
		}
		record.Marked = marked
		if err := r.Records.SavePull(ctx, record); err != nil {
			return err
		}
	}
	if !f.Ours() && len(record.Replies) == 0 && record.Sticky == 0 {
		return nil // nothing of ours, and nobody has asked
	}
	return r.say(ctx, record, review.Comment(f, v, review.MostComment))
}

// say brings our comment to this text.
func (r *Reviewer) say(ctx context.Context, record forge.PullRecord, body string) error {
	said := digest(body)
	if said == record.Said {
		return r.Records.SavePull(ctx, record)
	}
	id, err := r.Forge.Say(ctx, record.Number, record.Sticky, review.Marker, body)
	if err != nil {
		return fmt.Errorf("pull request %d: its comment: %w", record.Number, err)
	}
	record.Sticky, record.Said = id, said
	return r.Records.SavePull(ctx, record)
}

// digest is a short name of values, the same for the same values.
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
