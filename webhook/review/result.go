package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Merge is everything known about a pull request after its merge, except the outcomes.
type Merge struct {
	Applied  fleet.Revision      // applied revision that includes the merge; empty: none does yet
	Reviewed *forge.ReviewedPlan // of the merged head; nil: no plan was shown
	// effects of the plan of the merged tree; nil: unknown, and the reviewed effects replace them
	Effects []mirror.Effect
	Holds   []mirror.Hold // on its objects and files
	Over    bool          // it is not followed any longer, whatever is still open
}

// Report is the state of a merged pull request.
type Report struct {
	Text  string // of the comment
	Line  string // one line without markup, at most 140 characters
	Final bool   // final: nothing will change any more, or Argosy no longer rechecks it
}

// phase is how far one object has come, what needs people first.
type phase int

const (
	failed phase = iota
	waits
	progressing
	superseded
	removed
	well
)

// resultRow is the state of one object of the result.
type resultRow struct {
	mirror.Effect
	phase phase
	text  string // Markdown of one cell
}

// Result returns the text of the comment after the merge, of at most budget bytes (12,000 at
// least): differences from the reviewed plan, holds, and the state of each Application. outcomes
// are of the objects of Merge.Effects and Merge.Reviewed, in any order; a missing one counts as not
// there yet.
func Result(f Facts, outcomes []forge.Outcome, budget int) Report {
	m := f.Merge
	if m == nil {
		m = &Merge{}
	}
	r := result{f: f, m: m, differs: differences(m, f.Record.MergeCommit, outcomes),
		rows: resultRows(m, outcomes), rollouts: rolloutsOf(m, outcomes)}
	out := Report{Line: plain(r.headline(), mostTitle), Final: m.Over || r.final()}
	out.Text = fit(budget, len(r.rows), 0, r.render)
	return out
}

type result struct {
	f       Facts
	m       *Merge
	differs []string // prose
	rows    []resultRow
	// of the Applications, sorted
	rollouts []rolledChange
}

// expected is what the merge is to bring.
func (m *Merge) expected() []mirror.Effect {
	switch {
	case m.Effects != nil:
		return m.Effects
	case m.Reviewed != nil:
		return m.Reviewed.Effects
	}
	return nil
}

// resultRows returns the state of the Applications, and of all other objects those that failed.
func resultRows(m *Merge, outcomes []forge.Outcome) []resultRow {
	by := byKey(outcomes)
	var out []resultRow
	for _, e := range m.expected() {
		s := resultRow{Effect: e}
		s.phase, s.text = progress(m, e, by[e.Key])
		if h, frozen := m.freezes(e.Key); frozen && s.phase != removed && by[e.Key].Hash != e.Hash {
			s.phase, s.text = waits, "**waits**: "+words(h.Message)
		}
		if late := s.phase == superseded || s.phase == progressing && !by[e.Key].Present; late &&
			m.holdsFileOf(e.Tenant) {
			s.phase, s.text = waits, "**held**: its file is unreviewed"
		}
		if e.Key.Kind == fleet.ObjectApplication || s.phase == failed {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b resultRow) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Environment, b.Environment))
	})
	return out
}

// freezes returns the hold of a freeze that has an object.
func (m *Merge) freezes(k fleet.ObjectKey) (mirror.Hold, bool) {
	i := slices.IndexFunc(m.Holds, func(h mirror.Hold) bool {
		return h.Reason == mirror.HoldFrozen && slices.Contains(h.Items, k)
	})
	if m.Applied == "" || i < 0 {
		return mirror.Hold{}, false
	}
	return m.Holds[i], true
}

// holdsFileOf reports whether a file of the tenant or the platform that the pull request changes is
// held.
func (m *Merge) holdsFileOf(tenant fleet.TenantName) bool {
	return m.Applied != "" && slices.ContainsFunc(m.Holds, func(h mirror.Hold) bool {
		return slices.ContainsFunc(h.Paths, func(path string) bool {
			of := reviews.TenantOf(path)
			return of == tenant || of == ""
		})
	})
}

// progress is how far one object has come.
func progress(m *Merge, e mirror.Effect, o forge.Outcome) (phase, string) {
	switch {
	case m.Applied == "":
		return progressing, "waits for the merge to be applied"
	case e.Deletes:
		return removal(o)
	case !o.Present:
		return progressing, "not there yet"
	case o.Held || o.Unwanted:
		return superseded, "superseded: to be deleted by " + code(o.Revision.Short())
	case o.Hash != e.Hash && o.Rollout.Hash == e.Hash:
		return rolling(e, o)
	case o.Hash != e.Hash:
		return superseded, "superseded: it is as " + code(o.Revision.Short()) + " has it"
	case o.Apply == mirror.ApplyFailed:
		return failed, "rejected by its engine" + because(o.ApplyMessage)
	case o.Apply == mirror.ApplyConflict:
		return failed, "another manager keeps changing it" + because(o.ApplyMessage)
	case o.Apply != mirror.ApplyApplied && o.LastSeenAt != nil:
		return progressing, "waits: " + silence(e, o)
	case o.Apply != mirror.ApplyApplied:
		return progressing, "waits for its engine"
	case e.Key.Kind != fleet.ObjectApplication:
		return well, "applied"
	case o.LastSeenAt != nil:
		return progressing, "Unknown: " + silence(e, o)
	case o.Stale:
		return progressing, "accepted by its engine, which has not reported its state yet"
	}
	return health(o)
}

// silence names the last sign of a silent engine or cluster, for one row of many: the engine is the
// same in all of them. The time stays the same, so that no comment changes with it.
func silence(e mirror.Effect, o forge.Outcome) string {
	return "engine " + code(string(e.Key.Engine)) + " or its cluster was last seen at " +
		utc(*o.LastSeenAt)
}

func removal(o forge.Outcome) (phase, string) {
	switch {
	case !o.Present:
		return removed, "deleted"
	case o.Held:
		return waits, "**deletion held**"
	case o.Apply == mirror.ApplyFailed:
		return failed, "its deletion fails" + because(o.ApplyMessage)
	case o.Unwanted:
		return progressing, "is being deleted"
	}
	return superseded, "superseded: " + code(o.Revision.Short()) + " keeps it"
}

// health returns the health of an Application whose engine has its desired state.
func health(o forge.Outcome) (phase, string) {
	state := string(cmp.Or(o.Sync, mirror.SyncUnknown)) + ", " +
		string(cmp.Or(o.Health, mirror.HealthUnknown))
	if o.SyncedRevision != "" {
		state += " at " + code(short(o.SyncedRevision))
	}
	switch {
	case o.Health == mirror.HealthDegraded:
		return failed, state + because(o.Message)
	case o.Sync != mirror.SyncSynced:
		return progressing, state + because(o.Message)
	case o.Health == mirror.HealthHealthy || o.Health == mirror.HealthSuspended:
		return well, state
	}
	return progressing, state + because(o.Message)
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + words(message)
}

// short is a commit id as people read it; a tag or a chart's version stays as it is.
func short(revision string) string {
	if len(revision) == 40 && strings.Trim(revision, "0123456789abcdef") == "" {
		return revision[:8]
	}
	return revision
}

// differences holds what came against what was reviewed, object by object. A project is made of
// everything that its tenant has on an engine: what others merge changes it too, and it is left
// out.
func differences(m *Merge, merge fleet.Revision, outcomes []forge.Outcome) []string {
	switch {
	case m.Reviewed == nil && len(m.Effects) == 0:
		return nil
	case m.Reviewed == nil:
		return []string{"no plan of the merged head was shown"}
	}
	d := drift{reviewed: map[fleet.ObjectKey]mirror.Effect{}}
	for _, e := range m.Reviewed.Effects {
		d.reviewed[e.Key] = e
	}
	if m.Effects == nil {
		d.rows(m.Reviewed.Effects, merge, outcomes)
		return d.found
	}
	for _, e := range m.Effects {
		d.compare(e)
		delete(d.reviewed, e.Key)
	}
	for _, e := range m.Reviewed.Effects {
		if _, left := d.reviewed[e.Key]; left && e.Deletes {
			d.add(e, "its deletion was reviewed, and it stays")
		} else if left {
			d.add(e, "its change was reviewed, and does not come")
		}
	}
	return d.found
}

// drift is what was found to differ from what was reviewed.
type drift struct {
	reviewed map[fleet.ObjectKey]mirror.Effect
	found    []string // prose
}

func (d *drift) add(e mirror.Effect, what string) {
	if e.Key.Kind != fleet.ObjectProject {
		d.found = append(d.found, named(e)+" on "+tick(string(e.Key.Engine))+": "+what)
	}
}

func (d *drift) compare(e mirror.Effect) {
	switch was, ok := d.reviewed[e.Key]; {
	case !ok && e.Deletes:
		d.add(e, "its deletion was in no plan that was reviewed")
	case !ok:
		d.add(e, "its change was in no plan that was reviewed")
	case was.Deletes && !e.Deletes:
		d.add(e, "its deletion was reviewed, and it stays")
	case !was.Deletes && e.Deletes:
		d.add(e, "a change was reviewed, and it will be deleted")
	case was.Hash != e.Hash:
		d.add(e, "its manifest is not the one that was reviewed")
	}
}

// rows compares the current state with the review where there is no plan of the merged tree.
func (d *drift) rows(reviewed []mirror.Effect, merge fleet.Revision, outcomes []forge.Outcome) {
	by := byKey(outcomes)
	for _, e := range reviewed {
		if o := by[e.Key]; !e.Deletes && o.Present && o.Revision == merge && o.Hash != e.Hash {
			d.add(e, "its manifest is not the one that was reviewed")
		}
	}
}

func byKey(outcomes []forge.Outcome) map[fleet.ObjectKey]forge.Outcome {
	by := map[fleet.ObjectKey]forge.Outcome{}
	for _, o := range outcomes {
		by[o.Key] = o
	}
	return by
}

// named is an object in a sentence, as prose.
func named(e mirror.Effect) string {
	c := change{kind: e.Key.Kind, name: string(e.Deployment), environment: e.Environment}
	if e.Key.Kind == fleet.ObjectRepository {
		c.name = e.Key.Name
	}
	return c.subject()
}

func (r result) counts() map[phase]int {
	n := map[phase]int{}
	for _, s := range r.rows {
		n[s.phase]++
	}
	return n
}

// final reports whether the result can no longer change. Failures are retried, and holds may be
// released.
func (r result) final() bool {
	n := r.counts()
	return r.m.Applied != "" && n[failed]+n[waits]+n[progressing] == 0 && !r.m.holdsFiles()
}

// holdsFiles reports whether a file that the pull request changes is held.
func (m *Merge) holdsFiles() bool {
	return slices.ContainsFunc(m.Holds, func(h mirror.Hold) bool { return len(h.Paths) > 0 })
}

func (r result) headline() string {
	n := r.counts()
	switch {
	case r.m.Applied == "":
		return "Merged, not applied yet"
	case r.returned():
		return "Merged, and returned to the last good state"
	case n[failed] > 0:
		return fmt.Sprintf("Merged: %s", failing(n[failed], len(r.rows)))
	case r.m.holdsFiles():
		return "Merged, and held: a file of it is unreviewed"
	case n[waits] > 0 && slices.ContainsFunc(r.m.Holds, func(h mirror.Hold) bool {
		return h.Reason == mirror.HoldFrozen
	}):
		return "Merged: " + report.Count(n[waits], "Application") + " " +
			report.Plural(n[waits], "waits", "wait") + " for the end of a freeze"
	case n[waits] > 0:
		return "Merged: " + report.Count(n[waits], "deletion") + " held"
	case r.awaits() != nil:
		return "Merged: " + r.awaits().waiting()
	case n[progressing] > 0:
		return fmt.Sprintf("Merged: %d of %s done", len(r.rows)-n[progressing],
			report.Count(len(r.rows), "Application"))
	case len(r.rows) == 0:
		return "Merged and applied: no Application changes"
	}
	return "Merged: " + done(n)
}

func failing(n, of int) string {
	if of == 1 {
		return "1 Application is not well"
	}
	return fmt.Sprintf("%d of %d Applications %s not well", n, of, report.Plural(n, "is", "are"))
}

func done(n map[phase]int) string {
	var parts []string
	for _, p := range []struct {
		phase phase
		what  string
	}{{well, "Synced and Healthy"}, {removed, "deleted"}, {superseded, "superseded"}} {
		if n[p.phase] > 0 {
			parts = append(
				parts, fmt.Sprintf("%s %s", report.Count(n[p.phase], "Application"), p.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (r result) symbol() string {
	n := r.counts()
	switch {
	case n[failed] > 0:
		return symbols[forge.CheckFailure]
	case n[waits] > 0, r.awaits() != nil:
		return symbols[forge.CheckNeutral]
	case !r.final():
		return symbols[forge.CheckPending]
	}
	return symbols[forge.CheckSuccess]
}

func (r result) render(d detail) string {
	p := &page{}
	p.para(Marker)
	if len(r.rows)+len(r.differs)+len(r.m.Holds)+len(r.f.Record.Tenants) == 0 {
		p.para("Nothing that Argosy manages changed.")
		return p.String()
	}
	p.para("### " + r.symbol() + " " + prose(r.headline()))
	if len(r.differs) > 0 { // before anything is reported as done
		p.para("**⚠️ What came is not what was reviewed**")
		p.items(each(r.differs, func(s string) string { return prose(upper(s)) }), d.list)
	}
	r.holds(p, d)
	r.obstructions(p, d)
	r.strips(p, d)
	r.table(p, d)
	if r.m.Over && !r.final() {
		p.para("Argosy no longer follows this; `argosy get applications` shows the state.")
	}
	p.para(r.smallPrint())
	return p.String()
}

// passer names who lets a change pass the freeze that holds it.
func passer(h mirror.Hold) string {
	if h.Tenant == "" {
		return "the platform"
	}
	return "an owner of tenant " + code(string(h.Tenant)) + " or the platform"
}

func (r result) holds(p *page, d detail) {
	var list []string
	for _, h := range r.m.Holds {
		text := report.Count(len(h.Items), "deletion") + ": " + words(h.Message) + ". To let " +
			report.Plural(len(h.Items), "it", "them") + " go: " +
			code("argosy release "+string(h.Revision)) + "."
		if h.Reason == mirror.HoldFrozen {
			text = report.Count(len(h.Items), "Application") + ": " + words(h.Message) +
				". To let " + report.Plural(len(h.Items), "it", "them") + " pass, " + passer(h) +
				" runs " + code("argosy release "+string(h.Revision)) + "."
		}
		if n := len(h.Paths); n > 0 {
			text = series(each(h.Paths, tick), 5) + ": " + words(h.Message) + ". " +
				report.Plural(n,
					"It stays", "They stay") +
				" as applied before; to apply " + report.Plural(n, "it", "them") + ": " +
				code("argosy release "+string(h.Revision)) + "."
		}
		list = append(list, text)
	}
	if len(list) == 0 && r.counts()[waits] > 0 {
		list = append(list, "`argosy get holds` lists them, and `argosy release` lets them go.")
	}
	switch others := slices.ContainsFunc(r.m.Holds, func(h mirror.Hold) bool {
		return h.Reason != mirror.HoldFrozen
	}); {
	case len(list) > 0 && !others && len(r.m.Holds) > 0:
		p.para("**Held until the freeze ends, or until somebody lets it go**")
	case len(list) > 0:
		p.para("**Held until somebody lets it go**")
	}
	p.items(list, d.list)
}

// obstructions is what keeps engines from being written to meanwhile.
func (r result) obstructions(p *page, d detail) {
	if r.final() {
		return
	}
	var tenants []fleet.TenantName
	var engines []fleet.EngineName
	for _, s := range r.rows {
		tenants, engines = append(tenants, s.Tenant), append(engines, s.Key.Engine)
	}
	slices.Sort(engines)
	p.items(slices.Concat(r.f.stopsOf(tenants, engines), r.f.away(slices.Compact(engines))), d.list)
}

func (r result) table(p *page, d detail) {
	if len(r.rows) == 0 {
		return
	}
	if d.rows == perTenant || d.rows == noRows {
		p.para(upper(r.tally()) + ".")
		return
	}
	needy := slices.IndexFunc(r.rows, func(s resultRow) bool { return s.phase > waits })
	if needy < 0 {
		needy = len(r.rows)
	}
	switch {
	case len(r.rows) <= manyRows && d.rows == eachRow:
		r.lines(p, r.rows)
		return
	case needy > 0:
		r.lines(p, r.rows[:min(needy, manyRows, d.list)])
	}
	p.para("Of all of them: " + r.tally() + ".")
	if d.rows == eachRow {
		p.fold(fmt.Sprintf("%d rows", len(r.rows)), func() { r.lines(p, r.rows) })
	}
}

func (r result) lines(p *page, rows []resultRow) {
	many := slices.ContainsFunc(r.rows, func(s resultRow) bool {
		return s.Tenant != r.rows[0].Tenant
	})
	p.table("what", "environment", "engine", "state")
	for _, s := range rows {
		c := change{kind: s.Key.Kind, name: string(s.Deployment), environment: s.Environment}
		what := c.what()
		if many {
			what = "tenant " + tick(string(s.Tenant)) + ": " + what
		}
		p.row(prose(what), environment(c), code(string(s.Key.Engine)), s.text)
	}
}

// tally counts the objects by state.
func (r result) tally() string {
	n := r.counts()
	var parts []string
	for _, p := range []struct {
		phase phase
		what  string
	}{{well, "Synced and Healthy"}, {removed, "deleted"}, {superseded, "superseded"},
		{progressing, "under way"}, {waits, "held"}, {failed, "not well"}} {
		if n[p.phase] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[p.phase], p.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (r result) smallPrint() string {
	var parts []string
	if c := r.f.Record.MergeCommit; c != "" {
		parts = append(parts, "merged as "+code(c.Short()))
	}
	if r.m.Reviewed != nil {
		parts = append(parts, "reviewed plan "+code(fleet.Revision(r.m.Reviewed.Hash).Short()))
	}
	if link := r.f.link(); link != "" {
		parts = append(parts, "[the reviewed plan]("+link+")")
	}
	return "<sub>" + strings.Join(append(parts, "`argosy get applications` has the newest state"),
		" · ") + "</sub>"
}
