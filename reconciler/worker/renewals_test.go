package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

func TestRenewalsAreDueAtTheirLatestTime(t *testing.T) {
	start := time.Now()
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	key := func(name string) fleet.ObjectKey {
		return fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectCluster, Name: name}
	}
	r := newRenewals()
	r.set(key("a"), at(30))
	r.set(key("b"), at(10))
	r.set(key("c"), at(20))
	r.set(key("b"), at(40)) // later
	r.set(key("a"), at(15)) // sooner
	r.set(key("a"), at(15).Add(time.Millisecond))
	for _, step := range []struct {
		minutes int
		want    []fleet.ObjectKey
	}{{9, nil}, {14, nil}, {20, []fleet.ObjectKey{key("a"), key("c")}}, {39, nil},
		{41, []fleet.ObjectKey{key("b")}}, {90, nil}} {
		if got := r.due(at(step.minutes)); !slices.Equal(got, step.want) {
			t.Errorf("after %d minutes %v are due, want %v", step.minutes, got, step.want)
		}
	}
	if len(r.heap)+len(r.at) != 0 {
		t.Errorf("left over: %v, %v", r.heap, r.at)
	}
}

// storedRows has rows, unless it fails.
type storedRows struct {
	reports
	rows []mirror.Row
	err  error
}

func (s *storedRows) RowsByKey(_ context.Context, _ fleet.EngineName,
	keys []fleet.ObjectKey) ([]mirror.Row, error) {
	var found []mirror.Row
	for _, row := range s.rows {
		if slices.Contains(keys, row.Key) {
			found = append(found, row)
		}
	}
	return found, s.err
}

func TestADueRowIsQueuedAsItIsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, time.Minute)
		kept := mirror.Row{Seq: 7, Key: fleet.ObjectKey{Engine: "eu-1",
			Kind: fleet.ObjectCluster, Name: "kept"}}
		left := mirror.Row{Seq: 8, Unwanted: true, Key: fleet.ObjectKey{Engine: "eu-1",
			Kind: fleet.ObjectCluster, Name: "left"}}
		store := &storedRows{rows: []mirror.Row{kept, left}, err: errors.New("no database")}
		s.Rows = store
		for _, row := range store.rows {
			s.renewals.set(row.Key, time.Now().Add(time.Hour))
		}
		if err := s.renew(t.Context()); err != nil || s.queue.size() != 0 {
			t.Fatalf("too early: %v, %d tasks", err, s.queue.size())
		}
		time.Sleep(time.Hour)
		if err := s.renew(t.Context()); err == nil || s.queue.size() != 0 {
			t.Fatalf("without rows: %v, %d tasks", err, s.queue.size())
		}
		store.err = nil
		if err := s.renew(t.Context()); err != nil || s.queue.size() != 1 {
			t.Fatalf("after an hour: %v, %d tasks", err, s.queue.size())
		}
		if task, ok := s.queue.take(t.Context()); !ok || task.row.Key != kept.Key || !task.check {
			t.Errorf("the task is %+v", task)
		}
	})
}
