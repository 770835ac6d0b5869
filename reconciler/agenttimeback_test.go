package reconciler_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/agent/edge/edgetest"
	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/worker"
)

// hubStore counts how often the hub has asked what is new.
type hubStore struct {
	*postgres.Agents
	looks atomic.Int64
}

func (s *hubStore) AgentNews(ctx context.Context, after int64, since time.Time) (registry.News,
	error) {
	news, err := s.Agents.AgentNews(ctx, after, since)
	if err == nil {
		s.looks.Add(1)
	}
	return news, err
}

// remote is an agent that follows a real hub over TLS, with a cluster of its own.
type remote struct {
	*site
	house    *house
	hub      *hub.Hub
	store    *hubStore
	board    *worker.StopBoard
	follower *edge.Follower
}

// agent joins an agent for an environment of acme and runs it until the test ends.
func (h *house) agent(environment fleet.EnvironmentName) *remote {
	h.t.Helper()
	name := fleet.AgentEngine(fleet.EnvironmentID{Tenant: "acme", Name: environment})
	r := &remote{site: newSite(name), house: h, store: &hubStore{Agents: h.store.Agents},
		board: worker.NewStopBoard()}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	mux := http.NewServeMux()
	front := httptest.NewTLSServer(mux)
	h.t.Cleanup(func() { cancel(); all.Wait(); front.Close() }) // streams end with the hub
	of := worker.NewStopBoard()
	var err error
	if r.hub, err = hub.New(hub.Config{Store: hub.Store{Identities: r.store, Sessions: r.store,
		Rows: r.store, Changes: r.store, Reports: struct {
			*postgres.Agents
			*postgres.Work
		}{h.store.Agents, h.store.Work}, Inspections: h.store.Inspections()},
		Secrets: h.secrets, Stops: of, PublicURL: front.URL, Replica: "hub",
		Log: quiet()}); err != nil {
		h.t.Fatal(err)
	}
	r.hub.Register(mux)
	all.Go(func() { of.Run(ctx, h.store.Decisions, quiet()) })
	all.Go(func() { r.hub.Run(ctx) })
	all.Go(func() { h.store.Listen(ctx, func(string) { r.hub.Wake(); of.Wake() }) })

	_, token, err := h.store.Agents.CreateAgentToken(h.t.Context(), registry.Token{
		Tenant: "acme", Environment: environment,
		CreatedBy: "token:test", ExpiresAt: time.Now().Add(time.Hour)}, "")
	if err != nil {
		h.t.Fatal(err)
	}
	identities := edge.NewIdentityStore(&edgetest.ObjectStore{})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	client, err := edge.NewClient(edge.Settings{Hub: front.URL, CA: ca, Version: "v1",
		Log: quiet()}, identities)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := identities.Join(h.t.Context(), front.URL, client, token, "cluster",
		"v1"); err != nil {
		h.t.Fatal(err)
	}
	metrics := worker.NewMetrics(prometheus.NewRegistry())
	spec := fleet.EngineSpec{ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd"},
		Connection: fleet.Connection{InCluster: true}}
	manager := worker.NewManager(oneEngine{name: spec}, 50*time.Millisecond, quiet(),
		func(e fleet.EngineName, spec fleet.EngineSpec) worker.Config {
			return worker.Config{Engine: e, Spec: spec, Holder: "agent", Rows: r.follower,
				Reports: r.follower,
				Leases:  edge.LeasesOf(r.follower), Secrets: edge.CredentialsOf(r.follower),
				Stops:   r.board,
				Metrics: metrics, Log: quiet(), Poll: 50 * time.Millisecond, Flight: 4,
				Dial: func(_ context.Context, _ fleet.EngineName, _ fleet.EngineSpec,
					stopped func(fleet.TenantName) bool) (engine.Engine, error) {
					return r.dial(new(atomic.Bool), stopped, nil)
				}}
		})
	r.follower = edge.NewFollower(edge.FollowerConfig{Client: client, Namespace: "argocd",
		Version: "v1", Log: quiet(), Wake: manager.Wake,
		Rotated: manager.Rotated, Stopped: r.board.Wake, Local: func() edge.Local {
			return edge.Local{Inventory: r.inventory()}
		}})
	all.Go(func() { manager.Run(ctx) })
	all.Go(func() { r.board.Run(ctx, edge.StopsOf(r.follower), quiet()) })
	all.Go(func() { _ = r.follower.Run(ctx) })
	return r
}

// inSync returns an error while the cluster does not hold what the rows of its engine want, each of
// them acknowledged.
func (r *remote) inSync() error {
	head := r.house.head()
	if source, err := r.house.store.Views.Source(context.Background()); err != nil ||
		source.Applied != head {
		return fmt.Errorf("revision %s is applied, not %s: %w", source.Applied.Short(),
			head.Short(), err)
	}
	wanted := r.house.rowsOn(r.name)
	for key, row := range wanted {
		if row.Unwanted || row.Apply != mirror.ApplyApplied || !r.server.Exists(key) {
			return fmt.Errorf("%s %s is %s (absent: %v)", key.Kind, key.Name, row.Apply,
				row.Unwanted)
		}
	}
	for _, live := range r.inventory() {
		if row, ok := wanted[live.Key]; !ok || live.Hash != row.Manifest.Hash {
			return fmt.Errorf("%s %s is not what a row wants (wanted: %v)", live.Key.Kind,
				live.Key.Name, ok)
		}
	}
	return nil
}

// bears reports whether the Application of a deployment bears the revision.
func (r *remote) bears(deployment fleet.DeploymentName, revision string) error {
	for _, live := range r.inventory() {
		if live.Key.Kind == fleet.ObjectApplication && live.Deployment == deployment {
			if at := r.server.Field(live.Key, "spec.source.targetRevision"); at != revision {
				return fmt.Errorf("%s is at %s, not %s", live.Key.Name, at, revision)
			}
			return nil
		}
	}
	return fmt.Errorf("deployment %s is not there", deployment)
}

// polls waits until the hub has polled for news that often.
func (r *remote) polls(n int64) {
	r.house.t.Helper()
	from := r.store.looks.Load()
	r.house.eventually("the hub polls", func() error {
		r.hub.Wake()
		if got := r.store.looks.Load() - from; got < n {
			return fmt.Errorf("%d looks", got)
		}
		return nil
	})
}

func (r *remote) stopped(want bool) func() error {
	return func() error {
		if got := r.board.Stopped(r.name)("acme"); got != want {
			return fmt.Errorf("stopped: %v", got)
		}
		return nil
	}
}

// A standby that lacks the last commits is promoted while an agent is connected. Its
// cluster keeps its objects: none is put back to an earlier revision or deleted. Stops still reach
// the agent, and it catches up once the config repo has confirmed the rows.
func TestAnAgentKeepsWhatItHasWhenTheDatabaseGoesBack(t *testing.T) {
	t.Parallel()
	for name, slowly := range map[string]bool{"fast, with its leases": false,
		"slow, without": true} {
		t.Run(name, func(t *testing.T) {
			f := newFailover(t,
				together(small(), plant(), deployment("acme", "scada", "v1", "Delete", "edge")))
			a := f.start("a", options{})
			f.eventually("the fleet is in sync", f.converged)
			r := f.agent("edge")
			f.eventually("the agent's cluster is in sync", r.inSync)
			f.commit("an Application goes",
				gone(deployment("acme", "scada", "v1", "Delete", "edge")))
			f.eventually("it is gone", r.inSync)
			if err := f.standby.CaughtUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.standby.Pause()
			f.commit("it is back, and another is newer",
				together(deployment("acme", "scada", "v2", "Delete", "edge"),
					deployment("acme", "plc", "v2", "Delete", "edge")))
			f.eventually("the tail is applied", r.inSync)
			deleted, written := len(r.deleted), r.writes()
			a.source.away.Store(true)
			f.promote(slowly)
			f.eventually("the hub reads the new primary", func() error {
				_, err := f.store.Mirror(t.Context())
				return err
			})
			r.polls(40)
			if err := errors.Join(r.bears("plc", "v2"), r.bears("scada", "v2")); err != nil {
				t.Error("while Git is away:", err)
			}
			f.setStop(mirror.Stop{Scope: mirror.StopTenant, Name: "acme"})
			f.eventually("a stop reaches the agent while Git is away", r.stopped(true))
			if _, err := f.store.Decisions.ClearStop(t.Context(), mirror.StopTenant, "acme", "",
				"token:test"); err != nil {
				t.Fatal(err)
			}
			f.eventually("and so does its end", r.stopped(false))
			if n := r.writes() - written; n != 0 || len(r.deleted) != deleted {
				t.Errorf("%d writes, %v deleted while Git is away", n, r.deleted[deleted:])
			}
			f.commit("another change, which takes a number that was given before",
				deployment("acme", "plc", "v3", "Delete", "edge"))
			a.source.away.Store(false)
			f.eventually("the agent has caught up", r.inSync)
			if err := errors.Join(r.bears("plc", "v3"), r.bears("scada", "v2")); err != nil {
				t.Error(err)
			}
			if n := r.writes() - written; n != 1 || len(r.deleted) != deleted {
				t.Errorf("%d writes, %v deleted for one change", n, r.deleted[deleted:])
			}
		})
	}
}

// An orphan on a cluster behind an agent is listed with those of engines, and removed by the same
// decision about its UID.
func TestAnAgentsOrphanIsListedAndRemovedByADecisionAboutItsUID(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), plant(), deployment("acme", "scada", "v1", "Delete",
		"edge")))
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	r := h.agent("edge")
	h.eventually("the agent's cluster is in sync", r.inSync)
	var scada mirror.Row
	for _, row := range h.rowsOn(r.name) {
		if row.Deployment == "scada" {
			scada = row
		}
	}
	h.commit("scada goes", gone(deployment("acme", "scada", "v1", "Delete", "edge")))
	h.eventually("it is gone", r.inSync)
	h.exec(`DELETE FROM argosy.tombstones`) // it was long ago
	h.engines[r.name] = r.site
	h.late(scada, 1)
	delete(h.engines, r.name)
	s := h.orphan()
	if s.Engine != r.name || s.Name != scada.Key.Name || s.Tenant != "acme" ||
		s.Deployment != "scada" || s.UID == "" {
		t.Errorf("listed as %+v", s)
	}
	removal := mirror.OrphanRemoval{Engine: s.Engine, Kind: s.Kind, Name: s.Name, UID: "another",
		Deletion: fleet.DeletionOrphan, By: "token:test"}
	if _, err := h.store.Decisions.RemoveOrphan(t.Context(), removal); !errors.Is(
		err, mirror.ErrNotFound) ||
		!r.server.Exists(scada.Key) {
		t.Errorf("a decision about another UID: %v", err)
	}
	removal.UID = s.UID
	if _, err := h.store.Decisions.RemoveOrphan(t.Context(), removal); err != nil {
		t.Fatal(err)
	}
	h.eventually("the agent removes it", func() error {
		if r.server.Exists(scada.Key) {
			return errors.New("it is there")
		}
		return nil
	})
	h.eventually("it is listed no more", h.orphans(0))
	h.eventually("the agent's cluster is in sync without it", r.inSync)
}
