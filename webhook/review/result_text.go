package review

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

func (r result) counts() map[phase]int {
	n := map[phase]int{}
	for _, s := range r.rows {
		n[s.phase]++
	}
	return n
}

// settled reports whether nothing is left to come. What fails is tried again, and what is held may
// be let go.
func (r result) settled() bool {
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
	case n[failed] > 0:
		return fmt.Sprintf("Merged: %s", failing(n[failed], len(r.rows)))
	case r.m.holdsFiles():
		return "Merged, and held: nobody reviewed a file of it"
	case n[waits] > 0:
		return "Merged: " + count(n[waits], "deletion") + " held"
	case n[progressing] > 0:
		return fmt.Sprintf("Merged: %d of %s done", len(r.rows)-n[progressing],
			count(len(r.rows), "Application"))
	case len(r.rows) == 0:
		return "Merged and applied: no Application changes"
	}
	return "Merged: " + done(n)
}

func failing(n, of int) string {
	if of == 1 {
		return "1 Application is not well"
	}
	return fmt.Sprintf("%d of %d Applications %s not well", n, of, plural(n, "is", "are"))
}

func done(n map[phase]int) string {
	var parts []string
	for _, p := range []struct {
		phase phase
		what  string
	}{{well, "Synced and Healthy"}, {removed, "deleted"}, {superseded, "superseded"}} {
		if n[p.phase] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", count(n[p.phase], "Application"), p.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (r result) symbol() string {
	n := r.counts()
	switch {
	case n[failed] > 0:
		return symbols[forge.CheckFailure]
	case n[waits] > 0:
		return symbols[forge.CheckNeutral]
	case !r.settled():
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
	if len(r.differs) > 0 { // before anything is told as done
		p.para("**⚠️ What came is not what was reviewed**")
		p.items(each(r.differs, func(s string) string { return prose(upper(s)) }), d.list)
	}
	r.holds(p, d)
	r.obstructions(p, d)
	r.table(p, d)
	if r.m.Over && !r.settled() {
		p.para("This is not followed any longer; `argosy get applications` tells how it stands.")
	}
	p.para(r.smallPrint())
	return p.String()
}

func (r result) holds(p *page, d detail) {
	var list []string
	for _, h := range r.m.Holds {
		text := count(len(h.Items), "deletion") + ": " + words(h.Message) + ". To let " +
			plural(len(h.Items), "it", "them") + " go: " +
			code("argosy release "+string(h.Revision)) + "."
		if n := len(h.Paths); n > 0 {
			text = series(each(h.Paths, tick), 5) + ": " + words(h.Message) + ". " + plural(n,
				"It stays", "They stay") +
				" as applied before; to apply " + plural(n, "it", "them") + ": " +
				code("argosy release "+string(h.Revision)) + "."
		}
		list = append(list, text)
	}
	if len(list) == 0 && r.counts()[waits] > 0 {
		list = append(list, "`argosy get holds` lists them, and `argosy release` lets them go.")
	}
	if len(list) > 0 {
		p.para("**Held until somebody lets it go**")
	}
	p.items(list, d.list)
}

// obstructions is what keeps engines from being written to meanwhile.
func (r result) obstructions(p *page, d detail) {
	if r.settled() {
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
	needy := slices.IndexFunc(r.rows, func(s standing) bool { return s.phase > waits })
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

func (r result) lines(p *page, rows []standing) {
	many := slices.ContainsFunc(r.rows, func(s standing) bool {
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

// tally counts what stands how.
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
