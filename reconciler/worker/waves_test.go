package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAWaveWaitsForTheFirstOneBeforeItThatIsNotReady(t *testing.T) {
	members := []member{{-1, "crds", ""}, {0, "web", "is Degraded"}, {0, "cart", "is OutOfSync"},
		{2, "tests", "is not applied yet"}, {5, "report", "is not applied yet"}}
	for _, c := range []struct {
		wave     int
		deletion bool
		want     string
	}{
		{-1, false, ""}, {0, false, ""}, {1, false, "cart"}, {2, false, "cart"}, {9, false, "cart"},
		{5, true, ""}, {2, true, "report"}, {0, true, "report"}, {-1, true, "report"},
	} {
		m, waits := firstBefore(c.wave, c.deletion, members)
		if string(m.deployment) != c.want || waits != (c.want != "") {
			t.Errorf("wave %d, deletion %v: waits for %q, want %q", c.wave, c.deletion,
				m.deployment, c.want)
		}
	}
}

// waveRow is a row of an Application of environment prod.
func waveRow(t *testing.T, deployment string, wave int, revision string, seq int64) mirror.Row {
	t.Helper()
	id := fleet.ApplicationID{Tenant: "acme", Deployment: fleet.DeploymentName(deployment),
		Environment: "prod"}
	key := fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)}
	manifest, err := argocd.Renderer{}.Render(fleet.EngineSpec{
		ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"}}, fleet.Object{
		Key: key, Application: &fleet.Application{
			ID: id, Name: key.Name, Project: fleet.ProjectName("acme"), Wave: wave,
			Sources: []fleet.Source{{RepoURL: "https://git.example.com/acme/" + deployment,
				Path: "deploy", TargetRevision: revision}},
			Destination: fleet.Destination{
				Server:    fleet.ServerKey("https://api.example.com", id.In()),
				Namespace: "web"}}})
	if err != nil {
		t.Fatal(err)
	}
	return mirror.Row{Key: key, Tenant: "acme", Environment: "prod", Deployment: id.Deployment,
		Deletion: fleet.DeletionOrphan, Manifest: manifest, Revision: "4f1c9e2a", Seq: seq}
}

// wavesKit is a session whose rows are handled one by one.
type wavesKit struct {
	*testing.T
	s      *session
	server *enginetest.Server
}

func newWavesKit(t *testing.T) *wavesKit {
	server := enginetest.NewServer()
	s := workOn(t, server, 0, 10*time.Hour)
	s.Stops.set(records(), time.Now().Add(10*time.Hour))
	s.confirmed.Store(true)
	for _, key := range []fleet.ObjectKey{
		{Engine: "eu-1", Kind: fleet.ObjectProject, Name: fleet.ProjectName("acme")},
		{Engine: "eu-1", Kind: fleet.ObjectCluster, Name: fleet.ClusterName(fleet.EnvironmentID{
			Tenant: "acme", Name: "prod"})}} {
		s.setPresent(key, true)
	}
	return &wavesKit{t, s, server}
}

// poll makes the engine read its server.
func (k *wavesKit) poll() {
	k.Helper()
	once, cancel := context.WithCancel(k.Context())
	cancel()
	_ = k.s.target.Watch(once, engine.Sink{})
}

// report sets the status of an Application, compared with its present source.
func (k *wavesKit) report(row mirror.Row, sync, health string) {
	k.Helper()
	k.server.Merge(row.Key, fmt.Sprintf(
		`{"status":{"health":{"status":%q},"sync":{"status":%q,"comparedTo":{"source":%s}}}}`,
		health, sync, k.server.Field(row.Key, "spec.source")))
	k.poll()
}

// attempt handles the queued row of a deployment, and returns what it waits for.
func (k *wavesKit) attempt(row mirror.Row) (reason string) {
	k.Helper()
	k.s.queue.mu.Lock()
	task := k.s.queue.tasks[row.Key]
	k.s.queue.mu.Unlock()
	if task == nil {
		k.Fatalf("%s is not queued", row.Key.Name)
	}
	task.reason = ""
	pause, err := k.s.handle(k.Context(), task)
	if err != nil {
		k.Fatal(err)
	}
	if pause == 0 {
		k.s.queue.mu.Lock()
		delete(k.s.queue.tasks, row.Key)
		k.s.queue.leave(row)
		k.s.queue.mu.Unlock()
	}
	k.poll()
	return task.reason
}

func (k *wavesKit) wants(what, got, want string) {
	k.Helper()
	if got != want {
		k.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestALaterWaveIsAppliedAfterTheEarlierOneIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		database, web := waveRow(t, "database", 0, "v1", 1), waveRow(t, "web", 1, "v1", 2)
		k.s.queue.put(database)
		k.s.queue.put(web)
		k.wants("before the database", k.attempt(web),
			"waits for wave 0: database is not applied yet")
		k.wants("the database", k.attempt(database), "")
		k.wants("a new database", k.attempt(web), "waits for wave 0: database is not compared yet")
		k.report(database, "Synced", "Progressing")
		k.wants("a starting database", k.attempt(web), "waits for wave 0: database is Progressing")
		k.report(database, "Synced", "Degraded")
		k.wants("a broken database", k.attempt(web), "waits for wave 0: database is Degraded")
		if k.server.Exists(web.Key) {
			t.Fatal("the later wave is applied")
		}
		k.report(database, "Synced", "Healthy")
		k.wants("a healthy database", k.attempt(web), "")
		if !k.server.Exists(web.Key) {
			t.Fatal("the later wave is not applied")
		}
		k.report(web, "Synced", "Healthy")

		// A new revision of the earlier wave is not taken for the one that was healthy.
		database, web = waveRow(t, "database", 0, "v2", 3), waveRow(t, "web", 1, "v2", 4)
		k.s.queue.put(database)
		k.s.queue.put(web)
		k.wants("the next database", k.attempt(database), "")
		if reason := k.attempt(web); !strings.HasPrefix(reason, "waits for wave 0: database is") {
			t.Errorf("the status of the revision before lets a later wave go: %q", reason)
		}
		k.report(database, "Synced", "Healthy")
		k.wants("the next database is healthy", k.attempt(web), "")

		// The worker repairs drift and waits for no other wave.
		k.report(database, "OutOfSync", "Degraded")
		k.server.Merge(web.Key, `{"spec":{"source":{"targetRevision":"meddled"}}}`)
		k.poll()
		k.s.queue.put(web)
		k.wants("a drift", k.attempt(web), "")
		if got := k.server.Field(web.Key, "spec.source.targetRevision"); got != "v2" {
			t.Errorf("the drift remains: %s", got)
		}
	})
}

func TestAWaveIsNotBlockedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		database, web := waveRow(t, "database", -5, "v1", 1), waveRow(t, "web", 0, "v1", 2)
		k.s.queue.put(database)
		k.attempt(database)
		k.report(database, "Synced", "Degraded")
		k.s.queue.put(web)
		k.wants("at once", k.attempt(web), "waits for wave -5: database is Degraded")
		time.Sleep(waveLimit - time.Second)
		k.wants("before the limit", k.attempt(web), "waits for wave -5: database is Degraded")
		time.Sleep(time.Second)
		k.wants("at the limit", k.attempt(web), "")
		if !k.server.Exists(web.Key) {
			t.Error("the later wave is not applied")
		}
	})
}

func TestWavesAreDeletedInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		database, web := waveRow(t, "database", 0, "v1", 1), waveRow(t, "web", 1, "v1", 2)
		for _, row := range []mirror.Row{database, web} {
			k.s.queue.put(row)
			k.attempt(row)
			k.report(row, "Synced", "Healthy")
		}
		database.Unwanted, database.Seq, web.Unwanted, web.Seq = true, 3, true, 4
		k.s.queue.put(database)
		k.s.queue.put(web)
		k.s.Rows = reports{absent: database}
		k.wants("first the later wave", k.attempt(database),
			"waits for wave 1: web is not deleted yet")
		k.s.Rows = reports{absent: web}
		for k.server.Exists(web.Key) {
			k.attempt(web)
		}
		k.s.queue.mu.Lock()
		delete(k.s.queue.tasks, web.Key)
		k.s.queue.leave(web)
		k.s.queue.mu.Unlock()
		k.s.Rows = reports{absent: database}
		k.wants("then the earlier", k.attempt(database), "")
	})
}

func TestTheQueueCountsWhatWaitsForAWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		database, web := waveRow(t, "database", 0, "v1", 1), waveRow(t, "web", 1, "v1", 2)
		k.s.queue.put(web)
		k.s.queue.put(database)
		handled := func(want fleet.ObjectKey) time.Duration {
			t.Helper()
			task, _ := k.s.queue.take(t.Context())
			if task.row.Key != want {
				t.Fatalf("the task is %s, want %s", task.row.Key.Name, want.Name)
			}
			pause, err := k.s.handle(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			k.s.queue.done(task, pause)
			k.poll()
			return pause
		}
		waiting := func(want int) {
			t.Helper()
			if got := k.s.queue.waitingForWave(); got != want {
				t.Errorf("%d wait, want %d", got, want)
			}
		}
		handled(database.Key)
		waiting(0)
		handled(web.Key)
		waiting(1)
		handled(web.Key)
		waiting(1)
		web.Seq = 3
		k.s.queue.put(web) // a newer row has not been tried
		waiting(0)
		handled(web.Key)
		waiting(1)
		k.report(database, "Synced", "Healthy")
		if pause := handled(web.Key); pause != 0 {
			t.Errorf("tried again after %s", pause)
		}
		waiting(0)
	})
}

// An environment without waves costs no list of its Applications.
func TestApplicationsWithoutWavesAreNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newWavesKit(t)
		counting := &countingEngine{Engine: k.s.target}
		k.s.target = counting
		for i := range 20 {
			row := waveRow(t, fmt.Sprintf("a%d", i), 0, "v1", int64(i+1))
			k.s.queue.put(row)
			k.wants("without waves", k.attempt(row), "")
		}
		if counting.lists != 0 {
			t.Errorf("%d lists of Applications", counting.lists)
		}
		if len(k.s.queue.environments) != 0 {
			t.Errorf("the queue keeps %d environments", len(k.s.queue.environments))
		}
	})
}

type countingEngine struct {
	engine.Engine
	lists int
}

func (e *countingEngine) Environment(id fleet.EnvironmentID) []engine.Live {
	e.lists++
	return e.Engine.Environment(id)
}
