package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Bounds of the list that a person confirms.
const (
	coverTime  = 5 * time.Second
	coverLines = 20
)

// confirmStop lists what a stop covers, and asks. A list that cannot be read stops no stop.
func (a *app) confirmStop(ctx context.Context, c *client.Client, scope mirror.StopScope,
	name string) error {
	a.hint("stop %s: Argosy creates, changes and deletes nothing there; workloads keep running",
		covers(scope, name))
	a.showCovered(ctx, c, scope, name)
	return a.confirm("stop " + covers(scope, name) + "?")
}

// confirmResume lists the stop that ends with what it covers, and asks. A script has named it.
func (a *app) confirmResume(ctx context.Context, c *client.Client, scope mirror.StopScope,
	name string) error {
	if !isTerminal(a.in) {
		return nil
	}
	brief, cancel := context.WithTimeout(ctx, coverTime)
	defer cancel()
	stops, err := c.Stops(brief)
	if err != nil {
		a.hint("failed to read the stops: %v", err)
	}
	for _, s := range stops {
		if s.Scope == scope && s.Name == name {
			a.hint("the stop by %s of %s (%s) ends; pending changes are written at once", s.By,
				s.At.Local().Format(time.DateTime), s.Reason)
		}
	}
	a.showCovered(ctx, c, scope, name)
	return a.confirm("resume " + covers(scope, name) + "?")
}

// showCovered lists how many Applications of which tenants and engines a stop covers.
func (a *app) showCovered(ctx context.Context, c *client.Client, scope mirror.StopScope,
	name string) {
	ctx, cancel := context.WithTimeout(ctx, coverTime)
	defer cancel()
	var of view.Filter
	switch scope {
	case mirror.StopTenant:
		of.Tenant = fleet.TenantName(name)
	case mirror.StopEngine:
		of.Engine = fleet.EngineName(name)
	}
	counts, err := c.ApplicationCounts(ctx, of)
	if err != nil {
		a.hint("failed to read which Applications that are: %v", err)
		return
	}
	a.hint("it covers %s", plural(counts.Total, "Application"))
	if scope != mirror.StopTenant {
		a.showFacets("tenant", counts.Tenants)
	}
	if scope != mirror.StopEngine {
		a.showFacets("engine", counts.Engines)
	}
}

func (a *app) showFacets(of string, facets []view.Facet) {
	for i, f := range facets {
		if i == coverLines {
			a.hint("  and %d more", len(facets)-i)
			return
		}
		a.hint("  %s %s: %d", of, f.Value, f.Count)
	}
}

// confirmRelease lists the held changes of a revision, and asks. A script has named the revision,
// and a release takes exactly what is held.
func (a *app) confirmRelease(holds []mirror.Hold, revision fleet.Revision) error {
	items := 0
	for _, h := range holds {
		if h.Revision != revision {
			continue
		}
		items += len(h.Items) + len(h.Paths)
		a.hint("%s of %s: %s", h.Reason, covers(mirror.StopTenant, string(h.Tenant)), h.Message)
		a.showHeldChanges(h)
	}
	return a.confirm(fmt.Sprintf("release %s of %s?", plural(items, "change"), revision.Short()))
}

func (a *app) showHeldChanges(h mirror.Hold) {
	for _, item := range h.Items {
		a.hint("  %s %s on %s", item.Kind, item.Name, item.Engine)
	}
	for _, path := range h.Paths {
		a.hint("  %s", path)
	}
}

// confirmWave lists the environments that an approval of a rollout lets change, and asks. A script
// has named the rollout.
func (a *app) confirmWave(ctx context.Context, c *client.Client, id fleet.DeploymentID) error {
	if !isTerminal(a.in) {
		return nil
	}
	brief, cancel := context.WithTimeout(ctx, coverTime)
	defer cancel()
	rollouts, err := c.Rollouts(brief, view.Filter{Tenant: id.Tenant, Deployment: id.Name}, 0)
	if err != nil {
		a.hint("failed to read the rollout: %v", err)
	}
	for _, r := range rollouts {
		if r.Of() == id && r.State == mirror.RolloutAwaits {
			a.showAwaitedWave(r)
		}
	}
	return a.confirm(fmt.Sprintf("approve the next wave of %s?", id))
}

func (a *app) showAwaitedWave(r mirror.Rollout) {
	for i, w := range r.Waves {
		if w.State != mirror.WaveAwaits {
			continue
		}
		var in []string
		for _, m := range r.Members {
			if m.Wave == i {
				in = append(in, string(m.Environment))
			}
		}
		a.hint("wave %s of %s at %s: %s (%s)", w.Name, r.Of(), r.Revision.Short(),
			plural(len(in), "environment"), strings.Join(in, ", "))
	}
}
