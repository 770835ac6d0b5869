package reconciler_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/worker"
)

// plant is an environment with an agent, and a deployment there.
func plant() map[string]string {
	return together(map[string]string{
		"tenants/acme/environments/edge.yaml": document("ManagedEnvironment", "edge",
			"agent: {}\n  namespaces: [acme-web]\n  region: eu")},
		deployment("acme", "plc", "v1", "Delete", "edge"))
}

func farEngine() map[string]string {
	return map[string]string{"fleet/engines/far.yaml": document("Engine", "far",
		"argocd: {namespace: argocd-far, installationID: far}\n  connection: {agent: {}}\n  "+
			"region: eu\n  capacity: {applications: 500, environments: 50}\n  dedicatedTo: [acme]")}
}

func (h *house) rowsOn(name fleet.EngineName) map[fleet.ObjectKey]mirror.Row {
	h.t.Helper()
	rows := map[fleet.ObjectKey]mirror.Row{}
	all, err := h.store.Work.Changed(context.Background(), name, 0, 10_000)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range all {
		rows[r.Key] = r
	}
	return rows
}

// oneEngine lists the one engine of an agent.
type oneEngine map[fleet.EngineName]fleet.EngineSpec

func (b oneEngine) EngineSpecs(context.Context) (map[fleet.EngineName]fleet.EngineSpec, error) {
	return b, nil
}

// join runs an agent's worker over a cluster of its own, until the test ends.
func (h *house) join(name fleet.EngineName) *site {
	h.t.Helper()
	s, board := newSite(name), worker.NewStopBoard()
	metrics := worker.NewMetrics(prometheus.NewRegistry())
	m := worker.NewManager(oneEngine{name: {ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd"},
		Connection: fleet.Connection{InCluster: true}}}, 50*time.Millisecond, quiet(),
		func(e fleet.EngineName, spec fleet.EngineSpec) worker.Config {
			return worker.Config{Engine: e, Spec: spec, Holder: "agent", Rows: h.store.Work,
				Reports: h.store.Work,
				Leases:  h.store.Leases, Secrets: h.secrets, Stops: board, Metrics: metrics,
				Log:  quiet(),
				Poll: 50 * time.Millisecond, Flight: 4,
				Dial: func(_ context.Context, _ fleet.EngineName, _ fleet.EngineSpec,
					stopped func(fleet.TenantName) bool) (engine.Engine, error) {
					return s.dial(new(atomic.Bool), stopped, nil)
				}}
		})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { m.Run(ctx) })
	all.Go(func() { board.Run(ctx, h.store.Decisions, quiet()) })
	h.t.Cleanup(func() { cancel(); all.Wait() })
	return s
}

func TestAnAgentsOwnClusterIsBroughtToItsRowsByItsWorker(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), plant()))
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	rows := h.rowsOn("acme.edge")
	var kinds []string
	for _, r := range rows {
		kinds = append(kinds, string(r.Key.Kind)+" "+string(r.Apply))
	}
	slices.Sort(kinds)
	if got := strings.Join(kinds, ", "); got != "AppProject Pending, Application Pending" {
		t.Fatalf("rows of the own cluster: %s", got)
	}
	s := h.join("acme.edge")
	applied := func() error {
		for key, r := range h.rowsOn("acme.edge") {
			if r.Apply != mirror.ApplyApplied || !s.server.Exists(key) {
				return fmt.Errorf("%s %s is %s", key.Kind, key.Name, r.Apply)
			}
		}
		return nil
	}
	h.eventually("the agent applies them, without a cluster Secret", applied)
	h.commit("the next version", deployment("acme", "plc", "v2", "Delete", "edge"))
	h.eventually("the mirror shows it", func() error {
		if a := h.application("acme/plc@edge"); a.TargetRevision != "v2" ||
			a.Apply != mirror.ApplyApplied {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	h.commit("it goes", gone(deployment("acme", "plc", "v2", "Delete", "edge")))
	h.eventually("the Application is gone and its project stays", func() error {
		if rows := h.rowsOn("acme.edge"); len(rows) != 1 || len(s.inventory()) != 1 {
			return fmt.Errorf("%d rows, %d objects", len(rows), len(s.inventory()))
		}
		return nil
	})
}

// agentReports are the reports of agents that a test sets.
type agentReports struct {
	mu      sync.Mutex
	agents  map[fleet.EngineName]view.Agent
	engines map[fleet.EngineName]view.Engine
	orphans []fleet.EnvironmentID // nil: not reported
}

func (f *agentReports) OrphanEnvironments(_ context.Context,
	_ fleet.EngineName) ([]fleet.EnvironmentID,
	bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orphans, f.orphans != nil, nil
}

func (f *agentReports) Agents(_ context.Context, _ view.Scope, by view.Filter,
	_ view.Page) ([]view.Agent, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a, ok := f.agents[by.Engine]; ok {
		return []view.Agent{a}, "", nil
	}
	return nil, "", nil
}

func (f *agentReports) Engines(_ context.Context, _ view.Scope, by view.Filter,
	_ view.Page) ([]view.Engine, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.engines[by.Engine]; ok {
		return []view.Engine{e}, "", nil
	}
	return nil, "", nil
}

func (f *agentReports) set(orphans int, since time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now().Add(-since)
	f.agents = map[fleet.EngineName]view.Agent{
		"far": {Engine: "far", ID: "a", Connected: true, Orphans: orphans}}
	f.engines = map[fleet.EngineName]view.Engine{
		"far": {Name: "far", Reachable: true, Since: &at}}
}

// Neither a worker nor a rebuild dials an engine behind an agent: an engine without a site would
// end the test. After a start without a mirror, environments that the agent's engine may have wait
// until the agent has reported for a while that the engine has none.
func TestEnvironmentsWaitForAnAgentThatMayHaveThem(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), plant(), farEngine()))
	agents := &agentReports{}
	h.start("a", options{agents: agents})
	is := func(want map[string]bool) func() error {
		return func() error {
			placed := map[string]bool{}
			for id, name := range h.placements() {
				placed[id] = name != ""
			}
			if !maps.Equal(placed, want) {
				return fmt.Errorf("placed: %v", placed)
			}
			return nil
		}
	}
	waiting := map[string]bool{"acme/prod": false, "acme/staging": false, "acme/edge": true,
		"globex/prod": true}
	h.eventually("environments that cannot be there are placed", is(waiting))
	for _, report := range []func(){func() { agents.set(2, time.Hour) },
		func() { agents.set(0, time.Second) }} {
		report()
		head := h.commit("another commit", map[string]string{"README.md": fmt.Sprint(time.Now())})
		h.eventually("it is looked at", func() error {
			if source, err := h.store.Views.Source(t.Context()); err != nil ||
				source.Applied != head {
				return fmt.Errorf("%+v, %w", source, err)
			}
			return nil
		})
		if err := is(waiting)(); err != nil {
			t.Fatal(err)
		}
	}
	agents.set(0, time.Hour)
	h.eventually("it is placed when the agent has nothing",
		is(map[string]bool{"acme/prod": true, "acme/staging": true, "acme/edge": true,
			"globex/prod": true}))
}

// The environments of orphans that an agent reports are placed there: its engine already has them,
// and no other Argo CD must have them. Other environments are free to be placed.
func TestAnEnvironmentBehindAnAgentIsPlacedThere(t *testing.T) {
	t.Parallel()
	cordoned := farEngine() // it takes only the environments that it has
	for path, text := range cordoned {
		cordoned[path] = strings.Replace(text, "region: eu", "region: eu\n  state: Cordoned", 1)
	}
	h := newHouse(t, together(small(), plant(), cordoned))
	staging := fleet.EnvironmentID{Tenant: "acme", Name: "staging"}
	agents := &agentReports{
		orphans: []fleet.EnvironmentID{staging, {Tenant: "acme", Name: "long-gone"}}}
	agents.set(2, time.Hour)
	h.start("a", options{agents: agents})
	h.eventually("each environment is placed", func() error {
		at := h.placements()
		if at["acme/staging"] != "far" || at["acme/prod"] == "" || at["globex/prod"] == "" {
			return fmt.Errorf("placed: %v", at)
		}
		return nil
	})
}
