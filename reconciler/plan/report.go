package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/printable"
)

// Report is a plan as people and programs read it. Text, Markdown, JSON and the comment of a pull
// request are forms of it. It is the same after a round trip through its JSON.
type Report struct {
	Base    fleet.Revision `json:"base,omitempty"` // empty: head is the first revision
	Head    fleet.Revision `json:"head"`
	Hash    string         `json:"hash"`
	Summary string         `json:"summary"` // one sentence
	Counts  Counts         `json:"counts"`
	// the whole revision waits, and nothing else is to be done
	Waiting *fleet.Hold `json:"waiting,omitempty"`
	// that the plan touches without a change of theirs
	Radius []fleet.TenantName `json:"otherTenants"`
	// declarations of the platform that change: "new Tenant acme"
	Platform []string        `json:"platform,omitempty"`
	Tenants  []TenantReport  `json:"tenants"`            // that the plan touches, sorted
	Holds    []fleet.Hold    `json:"holds,omitempty"`    // new or changed
	Problems []fleet.Problem `json:"problems,omitempty"` // of every declaration that was judged
}

// TenantReport is what a plan does for one tenant.
type TenantReport struct {
	Name       fleet.TenantName  `json:"name"`
	Quota      QuotaUse          `json:"quota"`
	Placements []fleet.Placement `json:"placements,omitempty"` // new or changed
	// those of Placements that had another engine before
	Moves    []Move         `json:"moves,omitempty"`
	Unplaced []string       `json:"unplaced,omitempty"` // environments that are gone
	Engines  []EngineReport `json:"engines,omitempty"`  // sorted
	Syncs    []SyncReport   `json:"syncs,omitempty"`
}

// Move is an environment that goes from one engine to another, with its Applications.
type Move struct {
	Environment  fleet.EnvironmentName `json:"environment"`
	From         fleet.EngineName      `json:"from"`
	To           fleet.EngineName      `json:"to"`
	Applications int                   `json:"applications"`
}

// EngineReport is what a plan changes of one tenant's objects on one engine.
type EngineReport struct {
	Name    fleet.EngineName `json:"name"`
	Changes []ChangeReport   `json:"changes"` // what others need first, then by subject
}

// ChangeReport is one object that changes.
type ChangeReport struct {
	Action  Action           `json:"action"`
	Kind    fleet.ObjectKind `json:"kind"`
	Subject string           `json:"subject"` // as RowChange.Subject
	Object  string           `json:"object"`  // its name on the engine
	Note    string           `json:"note,omitempty"`
	// of an update, when Request.Explain asked for it
	Fields []Field `json:"fields,omitempty"`
	// of an Application's deletion, also of a held one: its workload stays
	Keeps bool `json:"keeps,omitempty"`
}

// SyncReport is one sync that a SyncRun asks for.
type SyncReport struct {
	SyncRun     fleet.SyncRunName `json:"syncRun"`
	Application string            `json:"application"`
	Engine      fleet.EngineName  `json:"engine"`
	Revision    string            `json:"revision"`
}

// Report makes the report. An error means that a manifest that the renderer made is no JSON.
func (p *Plan) Report() (Report, error) {
	r := Report{Base: p.Base, Head: p.Head, Hash: p.Hash, Summary: p.summary(), Counts: p.Counts,
		Waiting: p.Waiting, Holds: p.Holds, Problems: p.Problems, Radius: []fleet.TenantName{},
		Tenants: []TenantReport{}}
	if p.Waiting != nil {
		r.Holds = nil
	}
	asked := map[fleet.TenantName]bool{}
	for _, c := range p.Declarations {
		asked[tenantOf(c.Key)] = true
		if c.Key.Tenant == "" {
			r.Platform = append(r.Platform, verb(c.Before == nil, c.After == nil)+" "+
				c.Key.String())
		}
	}
	rows := map[fleet.TenantName][]RowChange{}
	for _, c := range p.Rows {
		rows[c.Row.Tenant] = append(rows[c.Row.Tenant], c)
	}
	for _, u := range p.quotas {
		t := TenantReport{Name: u.Tenant, Quota: u}
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

func (p *Plan) tenantInto(t *TenantReport, rows []RowChange) error {
	for _, pl := range p.Placements {
		if pl.Environment.Tenant == t.Name {
			t.Placements = append(t.Placements, pl)
			if m, ok := p.moves[pl.Environment]; ok {
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
			t.Engines = append(t.Engines, EngineReport{Name: c.Row.Key.Engine})
		}
		change, err := p.change(c)
		if err != nil {
			return err
		}
		e := &t.Engines[len(t.Engines)-1]
		e.Changes = append(e.Changes, change)
	}
	for i := range t.Engines {
		slices.SortStableFunc(t.Engines[i].Changes, func(a, b ChangeReport) int {
			return cmp.Or(a.Kind.Rank()-b.Kind.Rank(), cmp.Compare(a.Kind, b.Kind),
				cmp.Compare(a.Subject, b.Subject))
		})
	}
	for _, s := range p.Syncs {
		if s.Tenant == t.Name {
			t.Syncs = append(t.Syncs, SyncReport{
				s.SyncRun, string(s.Deployment) + "@" + string(s.Environment), s.Key.Engine,
				s.Revision})
		}
	}
	return nil
}

// moves is those of the placements that had another engine before.
func (d *draft) moves(placements []fleet.Placement) map[fleet.EnvironmentID]Move {
	out := map[fleet.EnvironmentID]Move{}
	for _, pl := range placements {
		if from := d.w.placements.base[pl.Environment].Engine; from != "" && pl.Engine != "" &&
			from != pl.Engine {
			out[pl.Environment] = Move{Environment: pl.Environment.Name, From: from, To: pl.Engine,
				Applications: pl.Applications}
		}
	}
	return out
}

func (p *Plan) change(c RowChange) (ChangeReport, error) {
	out := ChangeReport{Action: c.Action, Kind: c.Row.Key.Kind, Subject: c.Subject,
		Object: c.Row.Key.Name, Note: c.note}
	out.Keeps = (c.Action == Delete || c.Action == Hold) &&
		c.Row.Key.Kind == fleet.ObjectApplication && c.Row.Deletion == fleet.DeletionOrphan
	if c.Action != Update || c.Before == nil {
		return out, nil
	}
	fields, err := Fields(c.Before, c.Row.Manifest.Body)
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", out.Kind, out.Object, err)
	}
	out.Fields = fields
	return out, nil
}

// note is what a reader should know of a change beside its fields.
func (d *draft) note(c *RowChange) string {
	switch {
	case c.Action == Hold:
		if h, ok := d.held.get(fleet.ApplicationID{Tenant: c.Row.Tenant,
			Deployment: c.Row.Deployment, Environment: c.Row.Environment}); ok {
			waits := "its deletion waits for argosy approve " + h.Revision.Short()
			if h.Reason == fleet.HoldUnreviewed {
				waits = "nobody is known to have reviewed it; " + waits
			}
			return waits
		}
	case c.Row.Key.Kind != fleet.ObjectApplication:
	case c.Action == Delete && c.Row.Deletion == fleet.DeletionOrphan:
		return "its workload stays (deletionPolicy Orphan)"
	case c.Action == Delete:
		return "its workload is deleted"
	}
	if c.Action == Update && c.BeforeHash == c.Row.Manifest.Hash {
		return "same manifest; its deletion policy or the place of its credential changes"
	}
	return ""
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
	if p.Waiting != nil {
		return "the whole revision waits for an approval: " + p.Waiting.Message
	}
	if p.Counts.Rows+p.Counts.Held == 0 && len(p.Problems) == 0 && p.Empty() {
		return "nothing changes"
	}
	return p.Counts.summary()
}

func (c Counts) summary() string {
	s := fmt.Sprintf("Applications: %d to create, %d to change, %d to delete", c.Created, c.Changed,
		c.Deleted)
	if c.Held > 0 {
		s += fmt.Sprintf(", %d held", c.Held)
	}
	return s
}

// WriteJSON writes the plan as one JSON document.
func (p *Plan) WriteJSON(w io.Writer) error {
	r, err := p.Report()
	if err != nil {
		return err
	}
	return r.WriteJSON(w)
}

// WriteJSON writes the report as one JSON document.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(r)
}
