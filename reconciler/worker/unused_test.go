package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// usedEngine has Applications that use every object.
type usedEngine struct {
	engine.Engine
	users string
}

func (e *usedEngine) Delete(context.Context, mirror.Row, mirror.Lease) (bool, error) {
	return false, fmt.Errorf("%w by Applications: %s", engine.ErrInUse, e.users)
}

// A worker reports a deletion that waits for longer than a moment with the users of its object, and
// again when they change, but not each time that one of many goes.
func TestADeletionReportsTheUsersThatItWaitsFor(t *testing.T) {
	row := mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectProject,
		Name: fleet.ProjectName("acme")}, Tenant: "acme", Unwanted: true, Seq: 7}
	s := workOn(t, enginetest.NewServer(), 0, time.Hour)
	used := &usedEngine{s.target, "by-hand, other"}
	s.target, s.Rows = used, reports{absent: row}
	s.confirmed.Store(true)
	var seen []mirror.Ack
	s.acks = pacing.NewBatch(pacing.BatchConfig[fleet.ObjectKey, mirror.Ack]{Every: time.Hour,
		Size: 100, Key: func(a mirror.Ack) fleet.ObjectKey { return a.Key },
		Write: func(_ context.Context, acks []mirror.Ack) error {
			seen = append(seen, acks...)
			return nil
		}})
	once, cancel := context.WithCancel(t.Context())
	cancel()
	task := &task{row: row}
	attempt := func(times int) {
		t.Helper()
		for range times {
			if pause, err := s.handle(t.Context(), task); err != nil || pause == 0 {
				t.Fatalf("pause %v, %v", pause, err)
			}
			if err := s.acks.Run(once); err != nil {
				t.Fatal(err)
			}
		}
	}
	attempt(reportedWaits - 1)
	if len(seen) > 0 {
		t.Errorf("it reports at once: %+v", seen)
	}
	attempt(10)
	for n := 1500; n > 1490; n-- {
		used.users = fmt.Sprintf("app-%d and %d more", 1600-n, n)
		attempt(1)
	}
	used.users = "by-hand"
	task.reported = task.reported.Add(-usersReport)
	attempt(10)
	var messages []string
	for _, a := range seen {
		messages = append(messages, a.Message)
		if a.State != mirror.ApplyDeleting || a.Key != row.Key || a.Seq != row.Seq || a.Removed {
			t.Errorf("%+v", a)
		}
	}
	if want := []string{"the object is still in use by Applications: by-hand, other",
		"the object is still in use by Applications: by-hand"}; !slices.Equal(messages, want) {
		t.Errorf("it reports %q, want %q", messages, want)
	}
}

// partly is an engine on which a cluster Secret lacks namespaces of its row.
type partly struct{ engine.Engine }

func (partly) Apply(context.Context, mirror.Row, fleet.Secret, mirror.Lease) (engine.Outcome,
	error) {
	return engine.Outcome{State: mirror.ApplyFailed, Message: "held back", RetryAfter: time.Minute,
		Renew: time.Hour}, nil
}

// An Application waits for a cluster Secret that is missing, and not for one that is there without
// all its namespaces, which a new session has not written.
func TestApplicationsDoNotWaitForAClusterSecretThatLacksANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		web := waveRow(t, "web", 0, "v1", 2)
		cluster := mirror.Row{Seq: 1, Tenant: "acme", Environment: "prod", Key: fleet.ObjectKey{
			Engine: "eu-1", Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: "acme", Name: "prod"})}}
		k.s.setPresent(cluster.Key, false)
		if need, ok := k.s.missingDependency(web); ok || need != cluster.Key {
			t.Fatalf("without it: %v, %t", need, ok)
		}
		k.s.target = partly{k.s.target}
		ack, retry, err := k.s.write(t.Context(), cluster)
		if err != nil || retry != time.Minute || ack.State != mirror.ApplyFailed ||
			ack.Message != "held back" {
			t.Errorf("%+v, %s, %v", ack, retry, err)
		}
		if need, ok := k.s.missingDependency(web); !ok {
			t.Errorf("it waits for %v", need)
		}
	})
}
