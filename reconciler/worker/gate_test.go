package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// slowEngine takes its time between a call and the write that it leads to.
type slowEngine struct {
	*enginetest.Fake
	takes time.Duration
}

func (e slowEngine) Apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	pacing.Sleep(context.WithoutCancel(ctx), e.takes)
	return e.Fake.Apply(ctx, row, secret, lease)
}

func (e slowEngine) Delete(ctx context.Context, row mirror.Row, lease mirror.Lease) (bool, error) {
	pacing.Sleep(context.WithoutCancel(ctx), e.takes)
	return e.Fake.Delete(ctx, row, lease)
}

func (e slowEngine) Sync(ctx context.Context, q engine.SyncRequest,
	lease mirror.Lease) (engine.Outcome, error) {
	pacing.Sleep(context.WithoutCancel(ctx), e.takes)
	return e.Fake.Sync(ctx, q, lease)
}

func (e slowEngine) SetStop(ctx context.Context, stop mirror.Stop) error {
	pacing.Sleep(context.WithoutCancel(ctx), e.takes)
	return e.Fake.SetStop(ctx, stop)
}

// reports takes the reports of an engine, and has the one row of the deletion.
type reports struct {
	noRows
	absent mirror.Row
}

type noRows interface {
	Rows
	Reports
}

func (reports) ReportEngine(context.Context, mirror.Lease, mirror.EngineReport) error { return nil }

func (r reports) LeasedRow(context.Context, mirror.Lease, fleet.ObjectKey) (mirror.Row, bool,
	error) {
	return r.absent, true, nil
}

// workOn is a shift on a server, whose lease lasts for so long.
func workOn(t *testing.T, server *enginetest.Server, takes, lasts time.Duration) *session {
	t.Helper()
	board := NewStopBoard()
	board.set(records(), time.Now().Add(time.Hour)) // which is as good as reading them every second
	w := &Worker{Config: Config{Engine: "eu-1", Rows: reports{}, Reports: reports{}, Stops: board,
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		Dial: func(_ context.Context, name fleet.EngineName, _ fleet.EngineSpec,
			stopped func(fleet.TenantName) bool) (engine.Engine, error) {
			f := server.Connect(name)
			f.Stopped = stopped
			return slowEngine{f, takes}, nil
		}}}
	held := lease.NewHeld(mirror.Lease{Name: "engine/eu-1", Holder: "a", Epoch: 1},
		time.Now().Add(lasts))
	target, err := w.connect(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	_ = target.Watch(once, engine.Sink{}) // one list
	return newSession(w, held, target)
}

func renderedRow(t *testing.T) mirror.Row {
	t.Helper()
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	key := fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)}
	manifest, err := argocd.Renderer{}.Render(fleet.EngineSpec{
		ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"}}, fleet.Object{
		Key: key, Application: &fleet.Application{
			ID: id, Name: key.Name, Project: fleet.ProjectName("acme"), Sources: []fleet.Source{{
				RepoURL: "https://git.example.com/acme/web", Path: "deploy", TargetRevision: "v1"}},
			Destination: fleet.Destination{
				Server:    fleet.ServerKey("https://api.example.com", id.In()),
				Namespace: "web"}}})
	if err != nil {
		t.Fatal(err)
	}
	return mirror.Row{Key: key, Tenant: "acme", Environment: "prod", Deployment: "web",
		Deletion: fleet.DeletionOrphan, Manifest: manifest, Revision: "4f1c9e2a"}
}

// A worker was paused past its lease, in the middle of its work. It does not even send the next
// write.
func TestNothingIsSentAfterTheLeaseRanOut(t *testing.T) {
	row := renderedRow(t)
	key := row.Key
	gone, stop := row, mirror.Stop{Scope: mirror.StopFleet}
	gone.Unwanted = true
	for name, write := range map[string]func(context.Context, *session) error{
		"apply": func(ctx context.Context, s *session) error {
			_, _, err := s.write(ctx, row)
			return err
		},
		"delete": func(ctx context.Context, s *session) error {
			s.Rows = reports{absent: gone}
			_, _, err := s.write(ctx, gone)
			return err
		},
		"sync": func(ctx context.Context, s *session) error {
			_, err := s.syncs.askSync(
				ctx, mirror.SyncRequest{ID: "acme/run", Key: key, Tenant: "acme",
					Revision: "v2"})
			return err
		},
		"two stops": func(ctx context.Context, s *session) error {
			return s.stopMirror.update(
				ctx, []mirror.Stop{stop, {Scope: mirror.StopTenant, Name: "acme"}},
				nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := enginetest.NewServer()
				if name != "apply" {
					if _, _, err := workOn(t, server, 0, time.Minute).write(t.Context(),
						row); err != nil {
						t.Fatal(err)
					}
				}
				before := server.Writes()
				if err := write(t.Context(),
					workOn(t, server, time.Minute, time.Hour)); err != nil {
					t.Fatalf("slow, within the lease: %v", err)
				}
				if server.Writes() == before && name != "two stops" {
					t.Fatal("nothing was written within the lease")
				}

				server = enginetest.NewServer()
				if name != "apply" {
					if _, _, err := workOn(t, server, 0, time.Minute).write(t.Context(),
						row); err != nil {
						t.Fatal(err)
					}
				}
				before = server.Writes()
				late := workOn(t, server, time.Minute, 10*time.Second)
				if err := write(t.Context(), late); !errors.Is(err, lease.ErrLost) {
					t.Errorf("got %v, want the loss of the lease", err)
				}
				stops, err := late.target.ReadStops(t.Context())
				if err != nil || len(stops) > 1 || server.Writes() != before {
					t.Errorf("%d writes and %d stops, %v", server.Writes()-before, len(stops), err)
				}
			})
		})
	}
}
