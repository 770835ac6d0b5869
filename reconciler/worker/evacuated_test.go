package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// awayRows knows which environments have left an evacuated engine.
type awayRows struct {
	reports
	away map[fleet.SliceID]bool
	fail int // so many reads
	read int
}

func (r *awayRows) Away(context.Context, fleet.EngineName) (map[fleet.SliceID]bool, error) {
	if r.read++; r.read <= r.fail {
		return nil, errors.New("no route")
	}
	return r.away, nil
}

func (r *awayRows) Recall(context.Context, mirror.Lease) (int, error) { return 0, nil }

// evacuatedSession has acme/web@prod, whose environment is away, on its engine.
func evacuatedSession(t *testing.T, server *enginetest.Server) (*session, *awayRows, mirror.Row) {
	t.Helper()
	row := renderedRow(t)
	before := workOn(t, server, 0, time.Hour)
	if _, err := before.target.Apply(t.Context(), row, fleet.Secret{},
		before.lease.Lease()); err != nil {
		t.Fatal(err)
	}
	s := workOn(t, server, 0, time.Hour)
	rows := &awayRows{away: map[fleet.SliceID]bool{{Tenant: "acme", Environment: "prod"}: true}}
	s.Evacuated, s.Rows, s.Flight = true, rows, 2
	return s, rows, row
}

func frozen(server *enginetest.Server, row mirror.Row) bool {
	return server.Field(row.Key,
		"metadata.annotations|argocd.argoproj.io/skip-reconcile") == "true"
}

// Without the answer of the store, nothing follows: the session waits before its first write.
func TestAnEvacuatedEngineIsFrozenOnceItIsKnownWhatLeftIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := enginetest.NewServer()
		s, rows, row := evacuatedSession(t, server)
		rows.fail = 3
		if err := s.freezeAway(t.Context()); err != nil || rows.read != 4 || !frozen(server, row) {
			t.Errorf("%v after %d reads, frozen %t", err, rows.read, frozen(server, row))
		}
	})
}

// The live objects decide: those of another environment, and those that are not ours, stay as they
// are. An engine that is not evacuated freezes nothing.
func TestAnEvacuatedEngineFreezesOnlyWhatLeftIt(t *testing.T) {
	for name, change := range map[string]func(*session, *awayRows, *engine.Live){
		"it is not evacuated": func(s *session, _ *awayRows, _ *engine.Live) {
			s.Evacuated = false
		},
		"its slice is still there": func(_ *session, rows *awayRows, _ *engine.Live) {
			other := fleet.Slice("0")
			if other.Holds("web") {
				other = other.Sibling()
			}
			rows.away = map[fleet.SliceID]bool{{Tenant: "acme", Environment: "prod",
				Slice: other}: true}
		},
		"its environment is still there": func(_ *session, rows *awayRows, _ *engine.Live) {
			rows.away = map[fleet.SliceID]bool{{Tenant: "acme", Environment: "staging"}: true}
		},
		"an object that is not ours": func(_ *session, _ *awayRows, l *engine.Live) {
			l.Ours = false
		},
		"no Application": func(_ *session, _ *awayRows, l *engine.Live) {
			l.Key.Kind = fleet.ObjectCluster
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := enginetest.NewServer()
				s, rows, row := evacuatedSession(t, server)
				live, ok := s.target.Live(row.Key)
				if !ok {
					t.Fatal("it is not there")
				}
				change(s, rows, &live)
				s.target = evacuee{listedEngine{s.target, []engine.Live{live}}, s.target}
				if err := s.freezeAway(t.Context()); err != nil || frozen(server, row) {
					t.Errorf("%v, frozen %t", err, frozen(server, row))
				}
			})
		})
	}
}

// evacuee shows a list of objects in place of its own.
type evacuee struct {
	listedEngine
	real engine.Engine
}

func (e evacuee) FreezeAway(ctx context.Context, row mirror.Row, l mirror.Lease) error {
	target, _ := engine.As[engine.Evacuee](e.real)
	return target.FreezeAway(ctx, row, l)
}

// An annotation by hand must not end the worker again and again: the error names it.
func TestAForgedEpochOnAnEvacuatedEngineIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := enginetest.NewServer()
		_, _, row := evacuatedSession(t, server)
		server.Merge(row.Key, `{"metadata":{"annotations":{"argosy.dev/epoch":"9007199254740993"}}}`)
		s := workOn(t, server, 0, time.Hour)
		if err := s.freezeRow(t.Context(), row); !errors.Is(err, engine.ErrForeign) ||
			!strings.Contains(err.Error(), "remove annotation argosy.dev/epoch") {
			t.Errorf("a forged epoch: %v", err)
		}
		server.Merge(row.Key, `{"metadata":{"annotations":{"argosy.dev/epoch":"2"}}}`)
		s = workOn(t, server, 0, time.Hour)
		if err := s.freezeRow(t.Context(), row); !errors.Is(err, engine.ErrFenced) {
			t.Errorf("the epoch of a later lease: %v", err)
		}
	})
}

// A row may still ask to delete the workload with the Application: another engine has it now.
func TestAnEvacuatedEngineNeverDeletesAWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := enginetest.NewServer()
		s, rows, row := evacuatedSession(t, server)
		row.Unwanted, row.Deletion = true, fleet.DeletionDelete
		rows.absent = row
		if _, _, err := s.remove(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if server.Exists(row.Key) {
			t.Errorf("it waits for the deletion of its workload: %s",
				server.Field(row.Key, "metadata.finalizers"))
		}
	})
}
