package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"argosy.dev/argosy/fleet"
)

// report is a plan as people and programs read it. Text, Markdown and JSON are three forms of it.
type report struct {
	Base     fleet.Revision     `json:"base,omitempty"`
	Head     fleet.Revision     `json:"head"`
	Hash     string             `json:"hash"`
	Summary  string             `json:"summary"`
	Counts   Counts             `json:"counts"`
	Waiting  *fleet.Hold        `json:"waiting,omitempty"`
	Radius   []fleet.TenantName `json:"otherTenants"`       // that the plan touches without a change of theirs
	Platform []string           `json:"platform,omitempty"` // declarations of the platform that change
	Tenants  []tenantReport     `json:"tenants"`
	Holds    []fleet.Hold       `json:"holds,omitempty"`
	Problems []fleet.Problem    `json:"problems,omitempty"`
}

type tenantReport struct {
	Name       fleet.TenantName  `json:"name"`
	Quota      quotaUse          `json:"quota"`
	Placements []fleet.Placement `json:"placements,omitempty"`
	Unplaced   []string          `json:"unplaced,omitempty"`
	Engines    []engineReport    `json:"engines,omitempty"`
	Syncs      []syncReport      `json:"syncs,omitempty"`
}

type engineReport struct {
	Name    fleet.EngineName `json:"name"`
	Changes []changeReport   `json:"changes"`
}

type changeReport struct {
	Action  Action           `json:"action"`
	Kind    fleet.ObjectKind `json:"kind"`
	Subject string           `json:"subject"`
	Object  string           `json:"object"` // its name on the engine
	Note    string           `json:"note,omitempty"`
	Fields  []Field          `json:"fields,omitempty"` // of an update, when Request.Explain asked for it
}

type syncReport struct {
	SyncRun     fleet.SyncRunName `json:"syncRun"`
	Application string            `json:"application"`
	Engine      fleet.EngineName  `json:"engine"`
	Revision    string            `json:"revision"`
}

func (p *Plan) report() (report, error) {
	r := report{Base: p.Base, Head: p.Head, Hash: p.Hash, Summary: p.summary(), Counts: p.Counts, Waiting: p.Waiting, Holds: p.Holds, Problems: p.Problems, Radius: []fleet.TenantName{}, Tenants: []tenantReport{}}
	if p.Waiting != nil {
		r.Holds = nil
	}
	asked := map[fleet.TenantName]bool{}
	for _, c := range p.Declarations {
		asked[tenantOf(c.Key)] = true
		if c.Key.Tenant == "" {
			r.Platform = append(r.Platform, verb(c.Before == nil, c.After == nil)+" "+c.Key.String())
		}
	}
	for _, u := range p.quotas {
		t := tenantReport{Name: u.Tenant, Quota: u}
		if err := p.tenantInto(&t); err != nil {
			return r, err
		}
		if !asked[t.Name] && len(t.Placements)+len(t.Engines)+len(t.Unplaced) > 0 {
			r.Radius = append(r.Radius, t.Name)
		}
		r.Tenants = append(r.Tenants, t)
	}
	return r, nil
}

func (p *Plan) tenantInto(t *tenantReport) error {
	for _, pl := range p.Placements {
		if pl.Environment.Tenant == t.Name {
			t.Placements = append(t.Placements, pl)
		}
	}
	for _, id := range p.Unplaced {
		if id.Tenant == t.Name {
			t.Unplaced = append(t.Unplaced, string(id.Name))
		}
	}
	for _, c := range p.Rows {
		if c.Row.Tenant != t.Name {
			continue
		}
		if n := len(t.Engines); n == 0 || t.Engines[n-1].Name != c.Row.Key.Engine {
			t.Engines = append(t.Engines, engineReport{Name: c.Row.Key.Engine})
		}
		e := &t.Engines[len(t.Engines)-1]
		change := changeReport{Action: c.Action, Kind: c.Row.Key.Kind, Subject: c.Subject, Object: c.Row.Key.Name, Note: p.note(c)}
		if c.Action == Update && c.Before != nil {
			fields, err := Fields(c.Before, c.Row.Manifest.Body)
			if err != nil {
				return fmt.Errorf("%s %s: %w", change.Kind, change.Object, err)
			}
			change.Fields = fields
		}
		e.Changes = append(e.Changes, change)
	}
	for i := range t.Engines {
		slices.SortStableFunc(t.Engines[i].Changes, func(a, b changeReport) int {
			return cmp.Or(a.Kind.Rank()-b.Kind.Rank(), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
		})
	}
	for _, s := range p.Syncs {
		if s.Tenant == t.Name {
			t.Syncs = append(t.Syncs, syncReport{s.SyncRun, string(s.Deployment) + "@" + string(s.Environment), s.Key.Engine, s.Revision})
		}
	}
	return nil
}

// note is what a reader should know of a change beside its fields.
func (p *Plan) note(c RowChange) string {
	switch {
	case c.Action == Hold:
		if h, ok := p.draft.held.get(fleet.ApplicationID{Tenant: c.Row.Tenant, Deployment: c.Row.Deployment, Environment: c.Row.Environment}); ok {
			return "its deletion waits for argosy approve " + h.Revision.Short()
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
	c := p.Counts
	if c.Rows+c.Held == 0 && len(p.Problems) == 0 && p.Empty() {
		return "nothing changes"
	}
	s := fmt.Sprintf("Applications: %d to create, %d to change, %d to delete", c.Created, c.Changed, c.Deleted)
	if c.Held > 0 {
		s += fmt.Sprintf(", %d held", c.Held)
	}
	return s
}

// WriteJSON writes the plan as one JSON document.
func (p *Plan) WriteJSON(w io.Writer) error {
	r, err := p.report()
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
