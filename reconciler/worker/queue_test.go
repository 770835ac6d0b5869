package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

func rowOf(kind fleet.ObjectKind, name string, seq int64, absent bool) mirror.Row {
	return mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: kind, Name: name}, Seq: seq,
		Unwanted: absent}
}

func TestQueueHandsOutWhatOthersNeedFirstAndRemovesItLast(t *testing.T) {
	q := newQueue(4)
	for i, r := range []mirror.Row{
		rowOf(fleet.ObjectProject, "old", 1, true), rowOf(fleet.ObjectCluster, "old", 2, true),
		rowOf(fleet.ObjectApplication, "old", 3, true),
		rowOf(fleet.ObjectApplication, "new", 4, false), rowOf(fleet.ObjectRepository, "new", 5,
			false), rowOf(fleet.ObjectProject, "new", 6, false),
	} {
		r.Seq = int64(i)
		q.put(r)
	}
	want := []string{"AppProject new", "Repository new", "Application new", "Application old",
		"Cluster old", "AppProject old"}
	for _, w := range want {
		task, _ := q.take(t.Context())
		if got := fmt.Sprintf("%s %s", task.row.Key.Kind, task.row.Key.Name); got != w {
			t.Fatalf("got %s, want %s", got, w)
		}
	}
}

func TestQueueKeepsTheNewestRowOfAnObject(t *testing.T) {
	q := newQueue(4)
	q.put(rowOf(fleet.ObjectApplication, "a", 2, false))
	q.put(rowOf(fleet.ObjectApplication, "a", 1, false)) // older: dropped
	task, _ := q.take(t.Context())
	if task.row.Seq != 2 {
		t.Fatalf("an older row replaced a newer one: seq %d", task.row.Seq)
	}
	q.put(rowOf(fleet.ObjectApplication, "a", 3, false)) // while in hand
	q.done(task, 0)
	task, _ = q.take(t.Context())
	if task.row.Seq != 3 {
		t.Fatalf("the row that came while its object was in hand is lost: seq %d", task.row.Seq)
	}
	q.done(task, 0)
	if q.size() != 0 {
		t.Fatalf("%d tasks are left", q.size())
	}
}

func TestQueueLetsNoOlderRowReplaceOneThatCameWhileInHand(t *testing.T) {
	q := newQueue(4)
	q.put(rowOf(fleet.ObjectApplication, "a", 1, false))
	task, _ := q.take(t.Context())
	q.put(rowOf(fleet.ObjectApplication, "a", 3, false))
	q.put(rowOf(fleet.ObjectApplication, "a", 2, false)) // read before the other was committed
	q.done(task, 0)
	if task, _ = q.take(t.Context()); task.row.Seq != 3 {
		t.Fatalf("row %d is handed out, and 3 is lost", task.row.Seq)
	}
}

func TestQueueTriesAgainAfterItsTimeAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		q.put(rowOf(fleet.ObjectApplication, "a", 1, false))
		task, _ := q.take(t.Context())
		q.done(task, 10*time.Second)
		start := time.Now()
		if _, ok := q.take(t.Context()); !ok || time.Since(start) != 10*time.Second {
			t.Fatalf("taken after %s", time.Since(start))
		}
		q.done(task, time.Hour)
		time.AfterFunc(time.Second, q.hasten)
		start = time.Now()
		if _, ok := q.take(t.Context()); !ok || time.Since(start) != time.Second {
			t.Fatalf("taken %s after it was hastened", time.Since(start))
		}
	})
}

// A worker that has a task may have read the state from before the change.
func TestQueueHastensATaskInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		q.put(rowOf(fleet.ObjectApplication, "a", 1, false))
		task, _ := q.take(t.Context())
		q.hasten()
		q.done(task, time.Hour)
		if again, _, _ := q.next(); again != task {
			t.Fatal("it waits for an hour")
		}
		q.done(task, time.Hour)
		if again, _, _ := q.next(); again != nil {
			t.Error("it is due a second time")
		}
	})
}

// A step of one Application makes no other one read its move.
func TestQueueHastensOnlyTheApplicationsOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		for _, name := range []string{"web", "api", "job"} {
			row := rowOf(fleet.ObjectApplication, name, 1, false)
			row.Tenant, row.Environment, row.Moving = "acme", "prod", name != "job"
			row.Deployment = fleet.DeploymentName(name)
			q.put(row)
		}
		tasks := map[fleet.DeploymentName]*task{}
		for range 3 {
			task, _ := q.take(t.Context())
			tasks[task.row.Deployment] = task
		}
		steps := mirror.Stepped{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"},
			Deployments: []fleet.DeploymentName{"web", "job"}}
		q.hastenSteps(steps) // while the workers have them
		due := func(want ...fleet.DeploymentName) {
			t.Helper()
			for _, name := range want {
				task, _, _ := q.next()
				if task == nil || task.row.Deployment != name {
					t.Fatalf("%+v is due, not %s", task, name)
				}
			}
			if task, _, _ := q.next(); task != nil {
				t.Fatalf("%s is due", task.row.Key.Name)
			}
		}
		for _, name := range []fleet.DeploymentName{"web", "api", "job"} {
			q.done(tasks[name], time.Hour)
		}
		due("web")
		q.done(tasks["web"], time.Hour)
		due()
		q.hastenMove(tasks["api"].row.Key)
		due("api")
		q.hastenMove(tasks["job"].row.Key) // it does not move
		due()
		q.done(tasks["api"], time.Hour)
		steps.Deployments = nil
		q.hastenSteps(steps)
		for range 2 {
			if task, _, _ := q.next(); task == nil || task == tasks["job"] {
				t.Errorf("%+v is due", task)
			}
		}
	})
}

func TestQueueTakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, ok := newQueue(4).take(ctx); ok {
			t.Fatal("an empty queue handed out a task")
		}
	})
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	for attempts, bounds := range map[int][2]time.Duration{
		1: {375 * time.Millisecond, 500 * time.Millisecond},
		2: {750 * time.Millisecond, time.Second}, 50: {90 * time.Second, 2 * time.Minute},
	} {
		if d := pacing.Backoff(attempts); d < bounds[0] || d > bounds[1] {
			t.Errorf("attempt %d: %s is outside %v", attempts, d, bounds)
		}
	}
}

func credentialRow(name string, seq int64) mirror.Row {
	row := rowOf(fleet.ObjectCluster, name, seq, false)
	row.Credential = &fleet.CredentialSource{Tenant: "acme", Name: name}
	return row
}

func TestQueueComparesCredentialsAfterEveryChange(t *testing.T) {
	q := newQueue(4)
	for i := range 2000 {
		q.check(credentialRow(fmt.Sprintf("c%d", i), int64(i)))
	}
	q.put(rowOf(fleet.ObjectApplication, "web", 5000, false))
	if task, _ := q.take(t.Context()); task.row.Key.Name != "web" {
		t.Fatalf("the change waits behind the comparison of %s", task.row.Key.Name)
	}
	q.put(credentialRow("c1999", 1999)) // a rotation: no longer a mere comparison
	q.check(credentialRow("c1999", 1999))
	if task, _ := q.take(t.Context()); task.row.Key.Name != "c1999" {
		t.Fatalf("the rotated credential waits behind the comparison of %s", task.row.Key.Name)
	}
}

func TestQueueKeepsWorkersForRowsThatReadNoSecret(t *testing.T) {
	q := newQueue(2)
	for i := range 4 {
		q.put(credentialRow(fmt.Sprintf("c%d", i), int64(i)))
	}
	q.put(rowOf(fleet.ObjectApplication, "web", 5, false))
	var reading []*task
	for range 2 {
		task, _ := q.take(t.Context())
		reading = append(reading, task)
	}
	task, _ := q.take(t.Context())
	if task.row.Key.Name != "web" {
		t.Fatalf("%s takes a third worker while two wait for their secrets", task.row.Key.Name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if task, ok := q.take(ctx); ok {
		t.Fatalf("%s is handed out while two wait for their secrets", task.row.Key.Name)
	}
	q.done(reading[0], time.Hour)
	if task, _ := q.take(t.Context()); task.row.Key.Name != "c2" {
		t.Fatalf("%s is handed out, want c2", task.row.Key.Name)
	}
}
