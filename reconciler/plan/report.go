package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Report returns the plan's report. An error means that the renderer made a manifest that is not
// JSON.
func (p *Plan) Report() (report.Report, error) {
	r := report.Report{Base: p.Base, Head: p.Head, Hash: p.Hash, Summary: p.summary(),
		Counts: p.Counts, RevisionHold: p.RevisionHold, Holds: p.Holds, Problems: p.Problems,
		Radius: []fleet.TenantName{}, Tenants: []report.Tenant{}}
	if p.RevisionHold != nil {
		r.Holds = nil
	}
	asked := map[fleet.TenantName]bool{}
	for _, c := range p.Declarations {
		asked[applied.TenantOf(c.Key)] = true
		if c.Key.Tenant == "" {
			r.Platform = append(r.Platform, verb(c.Before == nil, c.After == nil)+" "+
				c.Key.String())
		}
	}
	r.Rings, r.Drains = p.rings(), p.outcome.drains
	rows := map[fleet.TenantName][]diff.RowChange{}
	for _, c := range p.Rows {
		rows[c.Row.Tenant] = append(rows[c.Row.Tenant], c)
	}
	for _, u := range p.outcome.quotas {
		t := report.Tenant{Name: u.Tenant, Quota: u}
		if err := p.tenantInto(&t, rows[u.Tenant]); err != nil {
			return r, err
		}
		if !asked[t.Name] && len(t.Placements)+len(t.Engines)+len(t.Unplaced) > 0 {
			r.Radius = append(r.Radius, t.Name)
		}
		r.Tenants = append(r.Tenants, t)
	}
	return r, nil
}

func (p *Plan) tenantInto(t *report.Tenant, rows []diff.RowChange) error {
	for _, pl := range p.Placements {
		if pl.Environment.Tenant == t.Name {
			t.Placements = append(t.Placements, pl)
			if m, ok := p.outcome.moves[pl.ID()]; ok {
				t.Moves = append(t.Moves, m)
			}
		}
	}
	for _, id := range p.Unplaced {
		if id.Tenant == t.Name {
			t.Unplaced = append(t.Unplaced, string(id.Name))
		}
	}
	for _, c := range rows {
		if n := len(t.Engines); n == 0 || t.Engines[n-1].Name != c.Row.Key.Engine {
			t.Engines = append(t.Engines, report.Engine{Name: c.Row.Key.Engine})
		}
		change, err := p.change(c)
		if err != nil {
			return err
		}
		e := &t.Engines[len(t.Engines)-1]
		e.Changes = append(e.Changes, change)
	}
	for i := range t.Engines {
		slices.SortStableFunc(t.Engines[i].Changes, func(a, b report.Change) int {
			return cmp.Or(a.Kind.Rank()-b.Kind.Rank(), cmp.Compare(a.Kind, b.Kind),
				cmp.Compare(a.Subject, b.Subject))
		})
	}
	for _, s := range p.Syncs {
		if s.Tenant == t.Name {
			t.Syncs = append(
				t.Syncs, report.Sync{
					SyncRun: s.SyncRun, Application: string(s.Deployment) + "@" +
						string(s.Environment), Engine: s.Key.Engine, Revision: s.Revision})
		}
	}
	return nil
}

func (p *Plan) change(c diff.RowChange) (report.Change, error) {
	out := report.Change{Action: c.Action, Kind: c.Row.Key.Kind, Subject: c.Subject,
		Object: c.Row.Key.Name, Note: c.Note}
	out.Keeps = (c.Action == report.Delete || c.Action == report.Hold) &&
		c.Row.Key.Kind == fleet.ObjectApplication && (c.Row.Deletion == fleet.DeletionOrphan ||
		c.Row.Deletion == fleet.DeletionRelease)
	if c.Action != report.Update && c.Action != report.Freeze && c.Action != report.Wave ||
		c.Before == nil {
		return out, nil
	}
	fields, err := report.Fields(c.Before, c.Row.Manifest.Body)
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", out.Kind, out.Object, err)
	}
	out.Fields = fields
	return out, nil
}

func verb(created, removed bool) string {
	switch {
	case created:
		return "new"
	case removed:
		return "removed"
	}
	return "changed"
}

func (p *Plan) summary() string {
	if p.RevisionHold != nil {
		return "the whole revision waits for an approval: " + p.RevisionHold.Message
	}
	if p.Counts.Rows+p.Counts.Held == 0 && len(p.Problems) == 0 && p.Empty() {
		return "nothing changes"
	}
	return p.Counts.Summary()
}

// WriteJSON writes the plan as one JSON document.
func (p *Plan) WriteJSON(w io.Writer) error {
	r, err := p.Report()
	if err != nil {
		return err
	}
	return r.WriteJSON(w)
}

// WriteText writes the plan for a terminal. Without Request.Explain it lists changed objects
// without their fields.
func (p *Plan) WriteText(w io.Writer) error {
	r, err := p.Report()
	if err != nil {
		return err
	}
	return r.WriteText(w)
}

// WriteMarkdown writes the plan for a comment on GitHub.
func (p *Plan) WriteMarkdown(w io.Writer) error {
	r, err := p.Report()
	if err != nil {
		return err
	}
	return r.WriteMarkdown(w)
}
