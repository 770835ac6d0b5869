package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/view"
)

// agentName is how people call an agent: by its environment, or by its engine.
func agentName(a view.Agent) string {
	if a.Environment != "" {
		return string(a.Tenant) + "/" + string(a.Environment)
	}
	return string(a.Engine)
}

var agentColumns = []column[view.Agent]{
	{head: "AGENT", of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Cell{Text: agentName(a)}
	}},
	{head: "CONNECTED", of: func(a view.Agent, now time.Time) table.Cell {
		return agentState(a, now)
	}},
	{head: "SEEN", of: func(a view.Agent, now time.Time) table.Cell {
		return agePtr(a.SeenAt, now)
	}},
	{head: "LAG", of: func(a view.Agent, _ time.Time) table.Cell { return waits(a.Lag) }},
	{head: "PENDING", of: func(a view.Agent, _ time.Time) table.Cell {
		return waits(a.Pending)
	}},
	{head: "DELETIONS", of: func(a view.Agent, _ time.Time) table.Cell {
		return agentDeletions(a)
	}},
	{head: "VERSION", of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.Version)
	}},
	{head: "ARGOCD", of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.ArgoCD)
	}},
	{head: "MODE", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.Mode)
	}},
	{head: "ENGINE", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.Engine)
	}},
	{head: "ID", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.ID)
	}},
	{head: "JOINED", wide: true, of: func(a view.Agent, now time.Time) table.Cell {
		return agePtr(a.JoinedAt, now)
	}},
	{head: "EXPIRES", wide: true, of: func(a view.Agent, now time.Time) table.Cell {
		return expires(a.ExpiresAt, now)
	}},
	{head: "STRAYS", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return waits(a.Orphans)
	}},
	{head: "OWN", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Number(a.Own)
	}},
	{head: "MESSAGE", wide: true, of: func(a view.Agent, _ time.Time) table.Cell {
		return table.Text(a.Message)
	}},
}

// agentState is whether an agent is there, and if not, why.
func agentState(a view.Agent, now time.Time) table.Cell {
	switch {
	case a.ID == "":
		return table.Cell{Text: "not joined", Tone: table.Faint}
	case a.Cloned:
		return table.Cell{Text: "cloned", Tone: table.Bad}
	case a.RevokedAt != nil:
		return table.Cell{Text: "revoked", Tone: table.Bad}
	case a.ExpiresAt != nil && a.ExpiresAt.Before(now):
		return table.Cell{Text: "expired", Tone: table.Bad}
	case a.Connected:
		return table.State("yes")
	}
	return table.State("no")
}

// waits is a number that is not bad, but not the end of it either.
func waits(n int) table.Cell {
	if n == 0 {
		return table.Number(0)
	}
	return table.Cell{Text: fmt.Sprint(n), Tone: table.Busy}
}

func agentDeletions(a view.Agent) table.Cell {
	if a.HeldDeletions > 0 {
		return table.Cell{Text: fmt.Sprintf("%d (%d held)", a.PendingDeletions, a.HeldDeletions),
			Tone: table.Bad}
	}
	return waits(a.PendingDeletions)
}

func expires(at *time.Time, now time.Time) table.Cell {
	switch {
	case at == nil:
		return table.Cell{}
	case at.Before(now):
		return table.Cell{Text: "expired", Tone: table.Bad}
	}
	return table.Cell{Text: "in " + fleet.Age(at.Sub(now))}
}

var agentTokenColumns = []column[registry.Token]{
	{head: "ID", of: func(t registry.Token, _ time.Time) table.Cell { return table.Text(t.ID) }},
	{head: "FOR", of: func(t registry.Token, _ time.Time) table.Cell {
		return table.Cell{
			Text: agentName(view.Agent{Engine: t.Engine, Tenant: t.Tenant,
				Environment: t.Environment})}
	}},
	{head: "AGE", of: func(t registry.Token, now time.Time) table.Cell {
		return age(t.CreatedAt, now)
	}},
	{head: "STATE", of: func(t registry.Token, now time.Time) table.Cell {
		return agentTokenState(t, now)
	}},
	{head: "BY", of: func(t registry.Token, _ time.Time) table.Cell {
		return table.Text(t.CreatedBy)
	}},
}

func agentTokenState(t registry.Token, now time.Time) table.Cell {
	valid := table.Cell{Text: "valid for " + fleet.Age(t.ExpiresAt.Sub(now)), Tone: table.Good}
	switch {
	case t.RevokedAt != nil:
		return table.Cell{Text: "revoked", Tone: table.Faint}
	case t.ExpiresAt.Before(now):
		return table.Cell{Text: "expired", Tone: table.Faint}
	case t.UsedAt != nil && t.Legacy:
		return table.Cell{Text: "used, reads for " + fleet.Age(t.ExpiresAt.Sub(now)),
			Tone: table.Good}
	case t.UsedAt != nil:
		return table.Cell{Text: "used", Tone: table.Faint}
	}
	return valid
}

// shownApplication is an Application of the config repo, or one of an autonomous cluster's own
// people.
type shownApplication struct {
	view.Application
	Namespace string `json:"namespace,omitempty"` // on the cluster, of an own one
	// its cluster's own people made it: the mirror shows it and writes nothing
	Own bool `json:"own,omitempty"`
}

func (a shownApplication) name() string {
	if a.Own {
		return string(a.Tenant) + "/" + string(a.Environment) + ":" + a.Namespace + "/" + a.Name
	}
	return fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
		Environment: a.Environment}.String()
}

// shownApplications are those of the config repo, and behind them the own ones of autonomous
// clusters, which have no deployment, no revision of the config repo and no apply state.
func shownApplications(c *client.Client, ctx context.Context, f view.Filter,
	limit int) ([]shownApplication, error) { //nolint:revive // the shape of a method expression
	declared, err := c.Applications(ctx, f, limit)
	if err != nil {
		return nil, err
	}
	shown := make([]shownApplication, len(declared))
	for i, a := range declared {
		shown[i] = shownApplication{Application: a}
	}
	if f.Deployment != "" || f.Revision != "" || f.Apply != "" || limit > 0 && len(shown) == limit {
		return shown, nil
	}
	own, err := c.OwnApplications(ctx, view.Filter{Tenant: f.Tenant, Environment: f.Environment},
		0)
	var refused *wire.Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return shown, nil // a control plane that does not know of them yet
	}
	for _, o := range own {
		if wanted(f, o) && (limit == 0 || len(shown) < limit) {
			shown = append(shown, ownShown(o))
		}
	}
	return shown, err
}

// wanted holds an own Application against the filters that its list does not have.
func wanted(f view.Filter, o view.Own) bool {
	return (f.Engine == "" || f.Engine == o.Engine) && (f.Sync == "" || f.Sync == o.Sync) &&
		(f.Health == "" || f.Health == o.Health)
}

func ownShown(o view.Own) shownApplication {
	seen := o.ObservedAt
	return shownApplication{Own: true, Namespace: o.Namespace,
		Application: view.Application{
			Tenant: o.Tenant, Environment: o.Environment, Name: o.Name, Engine: o.Engine,
			RepoURL: o.RepoURL, TargetRevision: o.TargetRevision, Sync: o.Sync,
			Health: o.Health, SyncedRevision: o.SyncedRevision, OperationPhase: o.OperationPhase,
			Message: o.Message, Resources: o.Resources, ObservedAt: &seen,
		}}
}

// shownColumns are those of Applications; of an own one its name stands where others have their
// deployment, and "own" for the revision.
func shownColumns() []column[shownApplication] {
	columns := make([]column[shownApplication], len(applicationColumns))
	for i, c := range applicationColumns {
		columns[i] = column[shownApplication]{head: c.head, wide: c.wide,
			of: func(a shownApplication, now time.Time) table.Cell {
				switch {
				case a.Own && c.head == "DEPLOYMENT":
					return table.Cell{Text: a.Name}
				case a.Own && c.head == "REVISION":
					return table.Cell{Text: "own", Tone: table.Faint}
				}
				return c.of(a.Application, now)
			}}
	}
	return columns
}
