package enginetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var cases = map[string]func(*testing.T, *Fixture){
	"applies each kind with one write, and an unchanged row with none": appliesOnce,
	"applies a changed row with one write and keeps its identity":      appliesChange,
	"writes nothing after a restart":                                   restarts,
	"recovers every identity from the objects alone":                   inventories,
	"writes a rotated credential once and refuses an empty one":        rotates,
	"wakes for a drift and reverts it":                                 revertsDrift,
	"removes foreign fields":                                           removesForeignFields,
	"removes a foreign cascade finalizer":                              removesForeignFinalizer,
	"does not chase a manager that keeps changing a field":             conflicts,
	"wakes for a deleted object and recreates it":                      recreates,
	"neither adopts nor deletes an object that is not ours":            leavesForeign,
	"refuses every write of an older lease":                            fences,
	"refuses every write while an emergency stop is in force":          stops,
	"keeps objects that an Application still needs":                    keepsInUse,
	"deletes with Orphan and proves it":                                orphans,
	"reports a missing object as deleted":                              deletesNothing,
	"does not cascade into an unknown destination":                     needsDestination,
	"reports the last state of an Application":                         observes,
	"requests a sync once, and never during a running operation":       syncs,
	"carries out each action of a person once, and reports its end":    actions,
	"begins no action on an object of others, or under an old lease":   actionsRefused,
	"stores emergency stops":                                           storesStops,
	"refuses to write before everything is read":                       waitsForRead,
	"retries a write after a conflict":                                 retriesConflicts,
	"wakes for an object that another control plane has written":       wakesForOthers,
	"does not wake for its own writes":                                 ignoresOwnWrites,
	"parks, unparks and deletes an Application":                        parks,
	"finishes when the engine has compared the last apply":             finishes,
	"deletes only the object with the given UID":                       deletesOneUID,
}

func appliesOnce(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range everything(t, b) {
		if n := r.writes(func() { r.mustApply(row) }); n != 1 {
			t.Errorf("%s took %d writes", row.Key.Kind, n)
		}
		if n := r.writes(func() {
			if out := r.apply(row, secretFor(row)); out.Changed ||
				out.State != mirror.ApplyApplied {
				t.Errorf("%s again: %+v", row.Key.Kind, out)
			}
		}); n != 0 {
			t.Errorf("%s again took %d writes", row.Key.Kind, n)
		}
		r.waitApplied(row)
		if n := r.writes(func() { r.apply(row, secretFor(row)) }); n != 0 {
			t.Errorf("%s after the watch took %d writes", row.Key.Kind, n)
		}
		if got := r.External.Field(row.Key, "metadata.annotations|argosy.dev/epoch"); got != "7" {
			t.Errorf("%s carries epoch %q", row.Key.Kind, got)
		}
		if got := r.External.Field(row.Key,
			"metadata.annotations|argosy.dev/revision"); got != string(commit) {
			t.Errorf("%s carries revision %q", row.Key.Kind, got)
		}
	}
	if got := r.External.Field(application(t, b, nil).Key, "metadata.finalizers"); got != "" {
		t.Errorf("the Application has finalizers %s", got)
	}
}

func appliesChange(t *testing.T, b *Fixture) {
	r := start(t, b)
	first, second := application(t, b, at("v1")), application(t, b, func(a *fleet.Application) {
		at("v2")(a)
		a.Sync = fleet.Sync{}
	})
	r.mustApply(first)
	uid := r.External.Field(first.Key, "metadata.uid")
	if n := r.writes(func() { r.mustApply(second) }); n != 1 {
		t.Errorf("the change took %d writes", n)
	}
	if got := r.External.Field(first.Key, "spec.source.targetRevision"); got != "v2" {
		t.Errorf("target revision is %q", got)
	}
	if got := r.External.Field(first.Key, "spec.syncPolicy"); got != "" {
		t.Errorf("a field that is no longer declared stays: %s", got)
	}
	if got := r.External.Field(first.Key, "metadata.uid"); got != uid {
		t.Error("the object was recreated")
	}
	r.waitApplied(second)
	if n := r.writes(func() { r.mustApply(first) }); n != 1 {
		t.Errorf("the way back took %d writes", n)
	}
}

func restarts(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range everything(t, b) {
		r.mustApply(row)
	}
	again := b.Reopen(t)
	r2 := start(t, again)
	r2.lease.Epoch = 8
	if n := r2.writes(func() {
		for _, row := range everything(t, b) {
			if out := r2.apply(row, secretFor(row)); out.Changed {
				t.Errorf("%s was written again", row.Key.Kind)
			}
		}
	}); n != 0 {
		t.Errorf("the restart took %d writes", n)
	}
}

func inventories(t *testing.T, b *Fixture) {
	r := start(t, b)
	rows := everything(t, b)
	rows[3] = application(t, b, func(a *fleet.Application) { a.Hold = "rollback-1" })
	for _, row := range rows {
		r.mustApply(row)
	}
	foreign := fleet.ObjectKey{Engine: b.Name, Kind: fleet.ObjectApplication, Name: "stranger"}
	r.External.CreateForeign(foreign)
	for _, row := range rows {
		r.waitApplied(row)
	}
	live := b.Reopen(t)
	r2 := start(t, live)
	all := r2.Engine.Inventory()
	if len(all) != len(rows) {
		t.Fatalf("%d objects are ours, want %d: %+v", len(all), len(rows), all)
	}
	byKind := map[fleet.ObjectKind]engine.Live{}
	for _, l := range all {
		byKind[l.Key.Kind] = l
	}
	for _, row := range rows {
		l := byKind[row.Key.Kind]
		if l.Key != row.Key || l.Tenant != tenant || l.Environment != row.Environment ||
			l.Deployment != row.Deployment ||
			l.Engine != b.Name || l.Revision != commit || l.Epoch != 7 ||
			l.Hash != row.Manifest.Hash || l.Drifted || !l.Ours {
			t.Errorf("%s comes back as %+v", row.Key.Kind, l)
		}
	}
	if hold := byKind[fleet.ObjectApplication].Hold; hold != "rollback-1" {
		t.Errorf("the hold comes back as %q", hold)
	}
}

func rotates(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range []mirror.Row{cluster(t, b), repo(t, b)} {
		r.mustApply(row)
		if n := r.writes(func() {
			if out := r.apply(row, secretOf(row, "canary-2")); !out.Changed {
				t.Errorf("%s: the rotated credential was not written", row.Key.Kind)
			}
		}); n != 1 {
			t.Errorf("%s: the rotation took %d writes", row.Key.Kind, n)
		}
		r.waitApplied(row)
		if n := r.writes(func() {
			r.apply(row, secretOf(row, "canary-2"))
			_, err := r.Engine.Apply(r.ctx, row, fleet.Secret{}, r.lease)
			if !errors.Is(err, engine.ErrCredential) {
				t.Errorf("%s: an empty credential gives %v", row.Key.Kind, err)
			}
			_, err = r.Engine.Apply(r.ctx, row,
				fleet.NewSecret(map[string][]byte{"other": []byte("canary-3")}), r.lease)
			if !errors.Is(err, engine.ErrCredential) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: a credential of no known form gives %v", row.Key.Kind, err)
			}
		}); n != 0 {
			t.Errorf("%s: %d writes for nothing", row.Key.Kind, n)
		}
	}
}

func revertsDrift(t *testing.T, b *Fixture) {
	r := start(t, b)
	changes := map[fleet.ObjectKind]string{
		fleet.ObjectProject:     `{"spec":{"sourceRepos":["*"]}}`,
		fleet.ObjectCluster:     `{"data":{"namespaces":"Kg=="}}`,
		fleet.ObjectRepository:  `{"data":{"project":"Z2xvYmV4"}}`,
		fleet.ObjectApplication: `{"spec":{"source":{"targetRevision":"evil"}}}`,
	}
	for _, row := range everything(t, b) {
		r.mustApply(row)
		r.waitApplied(row)
		before := r.woken(row.Key)
		r.External.Merge(row.Key, changes[row.Key.Kind])
		r.until("woken for the drift of "+row.Key.Name, func() bool {
			return r.woken(row.Key) > before
		})
		r.waitDrifted(row)
		r.mustApply(row)
		r.waitApplied(row)
		if n := r.writes(func() { r.apply(row, secretFor(row)) }); n != 0 {
			t.Errorf("%s: %d writes after it was taken back", row.Key.Kind, n)
		}
	}
	if got := r.External.Field(application(t, b, nil).Key,
		"spec.source.targetRevision"); got != "v1" {
		t.Errorf("target revision is %q", got)
	}
	if got := r.External.Field(project(t, b).Key, "spec.sourceRepos"); strings.Contains(got, "*") {
		t.Errorf("sourceRepos are %s", got)
	}
}

func removesForeignFields(t *testing.T, b *Fixture) {
	additions := map[string]struct {
		kind        fleet.ObjectKind
		patch, path string
	}{
		"a second source": {fleet.ObjectApplication,
			`{"spec":{"sources":[{"repoURL":"https://evil.example.com/x","path":".","targetRevision":"x"}]}}`, "spec.sources"},
		"ignored differences": {fleet.ObjectApplication,
			`{"spec":{"ignoreDifferences":[{"group":"apps","kind":"Deployment","jsonPointers":["/spec"]}]}}`, "spec.ignoreDifferences"},
		"a hold": {fleet.ObjectApplication,
			`{"metadata":{"annotations":{"argosy.dev/hold":"x"}}}`,
			"metadata.annotations|argosy.dev/hold"},
		"a role": {fleet.ObjectProject, `{"spec":{"roles":[{"name":"root"}]}}`,
			"spec.roles"},
		"every cluster kind": {fleet.ObjectProject,
			`{"spec":{"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}}`,
			"spec.clusterResourceWhitelist"},
		"cluster-wide rights": {fleet.ObjectCluster, `{"data":{"clusterResources":"dHJ1ZQ=="}}`,
			"data.clusterResources"},
		"a repository's proxy": {fleet.ObjectRepository, `{"data":{"proxy":"aHR0cDovL2V2aWw="}}`,
			"data.proxy"},
		"another syncPolicy": {fleet.ObjectApplication,
			`{"spec":{"syncPolicy":{"syncOptions":["Replace=true"]}}}`,
			"spec.syncPolicy.syncOptions"},
		"a deeper field of one": {fleet.ObjectApplication,
			`{"spec":{"source":{"plugin":{"name":"evil"}}}}`, "spec.source.plugin"},
	}
	r := start(t, b)
	rows := map[fleet.ObjectKind]mirror.Row{}
	for _, row := range everything(t, b) {
		r.mustApply(row)
		r.waitApplied(row)
		rows[row.Key.Kind] = row
	}
	for _, a := range additions {
		r.External.Merge(rows[a.kind].Key, a.patch)
	}
	for _, row := range rows {
		r.waitDrifted(row)
		r.until("foreign fields removed from "+row.Key.Name, func() bool {
			r.apply(row, secretFor(row))
			for _, a := range additions {
				if a.kind == row.Key.Kind && r.External.Field(row.Key, a.path) != "" {
					return false
				}
			}
			return true
		})
		r.waitApplied(row)
	}
	for name, a := range additions {
		if got := r.External.Field(rows[a.kind].Key, a.path); got != "" {
			t.Errorf("%s stays: %s", name, got)
		}
	}
}

func removesForeignFinalizer(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	r.mustApply(row)
	r.waitApplied(row)
	r.External.Merge(row.Key,
		`{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	r.waitDrifted(row)
	r.mustApply(row)
	r.waitApplied(row)
	if got := r.External.Field(row.Key, "metadata.finalizers"); strings.Contains(got,
		"resources-finalizer") {
		t.Errorf("the finalizer stays: %s", got)
	}
}

func conflicts(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	r.mustApply(row)
	r.waitApplied(row)
	meddle := func() {
		r.External.Merge(row.Key, `{"spec":{"source":{"targetRevision":"meddled"}}}`)
		r.waitDrifted(row)
	}
	meddle()
	if out := r.apply(row, fleet.Secret{}); out.State != mirror.ApplyApplied || !out.Changed {
		t.Fatalf("the first drift: %+v, want one overwrite", out)
	}
	r.waitApplied(row)
	meddle()
	n := r.writes(func() {
		for range 20 {
			out := r.apply(row, fleet.Secret{})
			if out.State != mirror.ApplyConflict || out.RetryAfter <= 0 || out.Changed {
				t.Fatalf("the second drift: %+v, want a conflict with a pause", out)
			}
			if !strings.Contains(out.Message, "meddler") {
				t.Fatalf("the conflict does not name the other manager: %q", out.Message)
			}
		}
	})
	if n != 0 {
		t.Errorf("%d writes within the pause", n)
	}
	r.until("overwritten once more after the pause", func() bool {
		return r.apply(row, fleet.Secret{}).Changed
	})
	r.waitApplied(row)
	if out := r.apply(row, fleet.Secret{}); out.State != mirror.ApplyApplied {
		t.Errorf("without further changes: %+v", out)
	}
}

func recreates(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range everything(t, b) {
		r.mustApply(row)
		r.waitApplied(row)
		r.External.Remove(row.Key)
		r.until("woken for the loss of "+row.Key.Name, func() bool { return r.woken(row.Key) > 0 })
		r.until("no longer known: "+row.Key.Name, func() bool {
			_, ok := r.Engine.Live(row.Key)
			return !ok
		})
		if row.Key.Kind == fleet.ObjectApplication {
			r.until("reported as deleted", func() bool {
				o, ok := r.last(row.Key)
				return ok && o.Deleted
			})
		}
		if n := r.writes(func() { r.mustApply(row) }); n != 1 {
			t.Errorf("%s took %d writes", row.Key.Kind, n)
		}
	}
}

func leavesForeign(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range everything(t, b) {
		r.External.CreateForeign(row.Key)
		uid := r.External.Field(row.Key, "metadata.uid")
		_, err := r.Engine.Apply(r.ctx, row, secretFor(row), r.lease)
		if !errors.Is(err, engine.ErrForeign) {
			t.Errorf("%s: apply gives %v", row.Key.Kind, err)
		}
		row.Unwanted = true
		if done, err := r.Engine.Delete(r.ctx, row, r.lease); done ||
			!errors.Is(err, engine.ErrForeign) {
			t.Errorf("%s: delete gives %v, %v", row.Key.Kind, done, err)
		}
		if got := r.External.Field(row.Key, "metadata.uid"); got != uid || uid == "" {
			t.Errorf("%s: the foreign object was changed", row.Key.Kind)
		}
		if got := r.External.Field(row.Key,
			"metadata.labels|app.kubernetes.io/managed-by"); got != "" {
			t.Errorf("%s: the foreign object was adopted", row.Key.Kind)
		}
	}
}

func fences(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, at("v1"))
	r.mustApply(row)
	newer := b.Reopen(t)
	r2 := start(t, newer)
	r2.lease.Epoch = 8
	r2.mustApply(application(t, b, at("v2")))

	// The old holder resumes: first with an outdated view, then with a current one.
	for range 2 {
		_, err := r.Engine.Apply(r.ctx, application(t, b, at("v3")), fleet.Secret{}, r.lease)
		if !errors.Is(err, engine.ErrFenced) {
			t.Fatalf("apply of the older lease gives %v", err)
		}
		if _, err := r.Engine.Delete(r.ctx, row, r.lease); !errors.Is(err, engine.ErrFenced) {
			t.Fatalf("delete of the older lease gives %v", err)
		}
		_, err = r.Engine.Sync(r.ctx, engine.SyncRequest{Key: row.Key, Tenant: tenant, ID: "s",
			Revision: "v3"}, r.lease)
		if !errors.Is(err, engine.ErrFenced) {
			t.Fatalf("sync of the older lease gives %v", err)
		}
		r.until("the newer epoch is known", func() bool {
			l, _ := r.Engine.Live(row.Key)
			return l.Epoch == 8
		})
	}
	if got := r.External.Field(row.Key, "spec.source.targetRevision"); got != "v2" {
		t.Errorf("target revision is %q", got)
	}
}

func stops(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, at("v1"))
	r.mustApply(row)
	r.waitApplied(row)
	b.Stop(true)
	n := r.writes(func() {
		if _, err := r.Engine.Apply(r.ctx, application(t, b, at("v2")), fleet.Secret{},
			r.lease); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("apply gives %v", err)
		}
		if _, err := r.Engine.Apply(r.ctx, project(t, b), fleet.Secret{}, r.lease); !errors.Is(err,
			engine.ErrStopped) {
			t.Errorf("create gives %v", err)
		}
		if _, err := r.Engine.Delete(r.ctx, row, r.lease); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("delete gives %v", err)
		}
		if _, err := r.Engine.Sync(r.ctx, engine.SyncRequest{Key: row.Key, Tenant: tenant, ID: "s",
			Revision: "v2"}, r.lease); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("sync gives %v", err)
		}
	})
	if n != 0 {
		t.Errorf("%d writes during the stop", n)
	}
	b.Stop(false)
	r.mustApply(application(t, b, at("v2")))
}

func keepsInUse(t *testing.T, b *Fixture) {
	r := start(t, b)
	rows := everything(t, b)
	for _, row := range rows {
		r.mustApply(row)
	}
	for _, row := range rows[:2] {
		if done, err := r.Engine.Delete(r.ctx, row, r.lease); done ||
			!errors.Is(err, engine.ErrInUse) {
			t.Errorf("%s in use: %v, %v", row.Key.Kind, done, err)
		}
		if !r.External.Exists(row.Key) {
			t.Fatalf("%s is deleted", row.Key.Kind)
		}
	}
	for i := len(rows) - 1; i >= 0; i-- {
		r.deleteFully(rows[i])
	}
}

func orphans(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	r.mustApply(row)
	r.waitApplied(row)
	r.External.Merge(row.Key,
		`{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io/background","post-delete-finalizer.argocd.argoproj.io","post-delete-finalizer.argocd.argoproj.io/cleanup"]}}`)
	r.deleteFully(row)
	r.until("reported as deleted", func() bool { o, ok := r.last(row.Key); return ok && o.Deleted })
}

func deletesNothing(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range everything(t, b) {
		if n := r.writes(func() {
			if done, err := r.Engine.Delete(r.ctx, row, r.lease); !done || err != nil {
				t.Errorf("%s: %v, %v", row.Key.Kind, done, err)
			}
		}); n != 0 {
			t.Errorf("%s: %d writes", row.Key.Kind, n)
		}
	}
}

func needsDestination(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, func(a *fleet.Application) { a.DeletionPolicy = fleet.DeletionDelete })
	r.mustApply(row)
	if n := r.writes(func() {
		if done, err := r.Engine.Delete(r.ctx, row, r.lease); done ||
			!errors.Is(err, engine.ErrDestination) {
			t.Errorf("%v, %v", done, err)
		}
	}); n != 0 {
		t.Errorf("%d writes", n)
	}
	r.mustApply(cluster(t, b))
	done, err := r.Engine.Delete(r.ctx, row, r.lease)
	if done || err != nil {
		t.Fatalf("with its destination: %v, %v", done, err)
	}
	if got := r.External.Field(row.Key, "metadata.finalizers"); !strings.Contains(got,
		"resources-finalizer.argocd.argoproj.io") {
		t.Errorf("the workload is not deleted: finalizers %q", got)
	}
	if got := r.External.Field(row.Key, "metadata.deletionTimestamp"); got == "" {
		t.Error("no deletion was asked for")
	}
	if out := r.apply(row, fleet.Secret{}); out.State != mirror.ApplyPending || out.Changed {
		t.Errorf("apply while it is being deleted: %+v", out)
	}
	r.External.Remove(row.Key)
	r.deleteFully(row)
}

func observes(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	r.mustApply(row)
	r.waitApplied(row)
	states := []string{"Progressing", "Degraded", "Progressing", "Healthy"}
	for _, health := range states {
		r.External.Merge(row.Key, `{"status":{"health":{"status":"`+health+
			`"},"sync":{"status":"Synced","revision":"abc"},"resources":[{"kind":"Service","name":"a"}]}}`)
	}
	r.until("last state reported", func() bool {
		o, ok := r.last(row.Key)
		return ok && o.Health == mirror.HealthHealthy && o.Sync == mirror.SyncSynced &&
			o.SyncedRevision == "abc" && o.Resources == 1 && o.UID != "" && !o.Deleted
	})
	if n := r.writes(func() { r.apply(row, fleet.Secret{}) }); n != 0 {
		t.Errorf("a status is taken for a drift: %d writes", n)
	}
	r.External.Merge(row.Key,
		`{"status":{"health":{"status":"Splendid"},"sync":{"status":"Sideways"}}}`)
	r.until("unknown values are reported as unknown", func() bool {
		o, _ := r.last(row.Key)
		return o.Health == mirror.HealthUnknown && o.Sync == mirror.SyncUnknown
	})
}

func finishes(t *testing.T, b *Fixture) {
	r := start(t, b)
	inWave := func(revision string) mirror.Row {
		return application(t, b, func(a *fleet.Application) { at(revision)(a); a.Wave = -2 })
	}
	row := inWave("v1")
	r.mustApply(row)
	r.waitApplied(row)
	finished := func() bool {
		l, _ := b.Engine.Live(row.Key)
		return l.Finished() && l.Wave == -2
	}
	compare := func() {
		target := `"source":` + r.External.Field(row.Key, "spec.source")
		if d := r.External.Field(row.Key, "spec.destination"); d != "" {
			target += `,"destination":` + d
		}
		r.External.Merge(row.Key, `{"status":{"health":{"status":"Healthy"},"sync":{`+
			`"status":"Synced","comparedTo":{`+target+`}}}}`)
	}
	if finished() {
		t.Error("an Application without status is finished")
	}
	compare()
	r.until("finished", finished)
	if !b.Engine.Waves(envID()) || len(b.Engine.Environment(envID())) != 1 {
		t.Errorf("of the environment: %v, %+v", b.Engine.Waves(envID()),
			b.Engine.Environment(envID()))
	}

	row = inWave("v2")
	r.mustApply(row)
	r.waitApplied(row)
	if finished() {
		t.Error("the result of the revision before is taken for that of the last apply")
	}
	compare()
	r.until("finished again", finished)
	r.External.Merge(row.Key, `{"status":{"health":{"status":"Degraded"}}}`)
	r.until("not finished while it is degraded", func() bool { return !finished() })
	r.deleteFully(row)
	r.until("no Application of the environment is left", func() bool {
		return !b.Engine.Waves(envID()) && len(b.Engine.Environment(envID())) == 0
	})
}

func syncs(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	ask := func(id string) engine.Outcome {
		t.Helper()
		out, err := r.Engine.Sync(r.ctx, engine.SyncRequest{Key: row.Key, Tenant: tenant, ID: id,
			Revision: "v9", Prune: true}, r.lease)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := ask("run-0"); out.State != mirror.ApplyPending || out.Changed {
		t.Errorf("of an Application that is not there: %+v", out)
	}
	r.mustApply(row)
	r.External.Merge(row.Key,
		`{"status":{"operationState":{"phase":"Succeeded","startedAt":"2026-01-01T00:00:00Z","operation":{"sync":{"resources":[{"kind":"Service","name":"old"}]}}}}}`)
	r.until("old operation reported", func() bool {
		o, ok := r.last(row.Key)
		return ok &&
			o.OperationPhase == "Succeeded"
	})
	if n := r.writes(func() {
		if out := ask("run-1"); out.State != mirror.ApplyApplied || !out.Changed {
			t.Errorf("asked: %+v", out)
		}
		if out := ask("run-1"); out.State != mirror.ApplyApplied || out.Changed {
			t.Errorf("asked again: %+v", out)
		}
		if out := ask("run-2"); out.State != mirror.ApplyPending || out.Changed ||
			out.RetryAfter <= 0 {
			t.Errorf("another one meanwhile: %+v", out)
		}
	}); n != 1 {
		t.Errorf("%d writes", n)
	}
	if got := r.External.Field(row.Key, "status.operationState"); got != "" {
		t.Errorf("the state of an older operation remains: %s", got)
	}
	if got := r.External.Field(row.Key, "operation.sync.revision"); got != "v9" {
		t.Errorf("it asks for revision %q", got)
	}
	r.External.Merge(row.Key,
		`{"operation":null,"status":{"operationState":{"phase":"Failed","message":"no","startedAt":"2026-01-01T00:00:00Z","syncResult":{"revision":"c0ffee"},"operation":{"initiatedBy":{"username":"argosy"},"info":[{"name":"argosy.dev/sync","value":"run-1"}]}}}}`)
	r.until("result reported", func() bool {
		o, _ := r.last(row.Key)
		return o.OperationID == "run-1" && o.OperationPhase == "Failed" &&
			o.OperationError == "no" && o.OperationRevision == "c0ffee"
	})
	if out := r.apply(row, fleet.Secret{}); out.State != mirror.ApplyApplied || out.Changed {
		t.Errorf("a sync is taken for a drift: %+v", out)
	}
	r.until("the next sync is requested", func() bool { return ask("run-2").Changed })
	if out := ask("run-1"); out.Changed {
		t.Error("a completed sync is requested again")
	}
}

func storesStops(t *testing.T, b *Fixture) {
	r := start(t, b)
	if got, err := r.Engine.ReadStops(r.ctx); err != nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := r.Engine.ClearStop(r.ctx, mirror.StopFleet, ""); err != nil {
		t.Fatalf("clearing what is not there: %v", err)
	}
	all := []mirror.Stop{
		{Scope: mirror.StopFleet, By: "token:ops", Reason: "incident 7",
			At: time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC)},
		{Scope: mirror.StopTenant, Name: "acme", By: "token:ops", At: time.Date(2026, 11, 20, 1, 2,
			4, 0, time.UTC)},
	}
	b.Stop(true) // a stop must be writable during a stop
	for _, s := range all {
		if err := r.Engine.SetStop(r.ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	again := start(t, b.Reopen(t))
	got, err := again.Engine.ReadStops(r.ctx)
	if err != nil || len(got) != 2 || got[0] != all[0] || got[1] != all[1] {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := r.Engine.ClearStop(r.ctx, mirror.StopFleet, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := again.Engine.ReadStops(r.ctx); err != nil || len(got) != 1 || got[0] != all[1] {
		t.Fatalf("%+v, %v", got, err)
	}
}

func waitsForRead(t *testing.T, b *Fixture) {
	ctx := t.Context()
	lease := mirror.Lease{Epoch: 7}
	row := application(t, b, nil)
	if _, err := b.Engine.Apply(ctx, row, fleet.Secret{}, lease); !errors.Is(err, engine.ErrUnfit) {
		t.Errorf("before the preflight: %v", err)
	}
	if _, err := b.Engine.Preflight(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Engine.Apply(ctx, row, fleet.Secret{}, lease); !errors.Is(err,
		engine.ErrUnknown) {
		t.Errorf("apply before the first read: %v", err)
	}
	if done, err := b.Engine.Delete(ctx, row, lease); done || !errors.Is(err, engine.ErrUnknown) {
		t.Errorf("delete before the first read: %v, %v", done, err)
	}
	if _, err := b.Engine.Sync(ctx, engine.SyncRequest{Key: row.Key, Tenant: tenant, ID: "s",
		Revision: "v1"}, lease); !errors.Is(err, engine.ErrUnknown) {
		t.Errorf("sync before the first read: %v", err)
	}
	if b.Engine.Synced() {
		t.Error("synced without a watch")
	}
}

func retriesConflicts(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, at("v1"))
	r.mustApply(row)
	for _, next := range []string{"v2", "v3", "v4"} {
		r.External.Merge(row.Key, `{"status":{"health":{"status":"Progressing"},"sync":{"status":"`+
			next+`"}}}`)
		// most likely with an outdated resourceVersion
		out := r.apply(application(t, b, at(next)), fleet.Secret{})
		if !out.Changed || out.State != mirror.ApplyApplied {
			t.Fatalf("%+v", out)
		}
		if got := r.External.Field(row.Key, "spec.source.targetRevision"); got != next {
			t.Fatalf("target revision is %q, want %q", got, next)
		}
	}
}

// A write of another lease may arrive long after the lease was lost. The object is consistent then,
// but its row, or the lack of one, must be checked.
func wakesForOthers(t *testing.T, b *Fixture) {
	r := start(t, b)
	v1, v2 := application(t, b, at("v1")), application(t, b, at("v2"))
	other := start(t, b.Reopen(t))
	other.mustApply(v1)
	r.until("woken for an object that another has created", func() bool {
		return r.woken(v1.Key) == 1
	})
	if out := r.apply(v1, secretFor(v1)); out.Changed {
		t.Errorf("an unchanged object was written again: %+v", out)
	}
	other.mustApply(v2)
	r.until("woken for an object that another has changed", func() bool {
		return r.woken(v1.Key) == 2
	})
	if live, ok := r.Engine.Live(v1.Key); !ok || live.Drifted {
		t.Errorf("another's write is no drift: %+v, %t", live, ok)
	}
}

// Waking for each of our own writes would read its row again.
func ignoresOwnWrites(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range []string{"v1", "v2", "v3"} {
		app := application(t, b, at(row))
		r.mustApply(app)
		r.waitApplied(app)
	}
	app := application(t, b, nil)
	r.External.Merge(app.Key, `{"status":{"health":{"status":"Healthy"}}}`)
	r.until("the watch has shown what came after the writes", func() bool {
		seen, ok := r.last(app.Key)
		return ok && seen.Health == "Healthy"
	})
	if n := r.woken(app.Key); n != 0 {
		t.Errorf("woken %d times for what it wrote itself", n)
	}
}

// A decision about one object does not apply to another one that has its name now.
func deletesOneUID(t *testing.T, b *Fixture) {
	r := start(t, b)
	app := application(t, b, nil)
	r.mustApply(app)
	r.waitApplied(app)
	app.Unwanted, app.UID = true, "that-of-another-object"
	if n := r.writes(func() { r.mustBeDeleted(app) }); n != 0 || !r.External.Exists(app.Key) {
		t.Errorf("%d writes for an object that is gone; its successor is there: %t", n,
			r.External.Exists(app.Key))
	}
	app.UID = r.External.Field(app.Key, "metadata.uid")
	r.deleteFully(app)
}

// mustBeDeleted calls Delete once, and expects that nothing is left to do.
func (r *harness) mustBeDeleted(row mirror.Row) {
	r.Helper()
	if done, err := r.Engine.Delete(r.ctx, row, r.lease); err != nil || !done {
		r.Errorf("%s: done %t, %v", row.Key.Name, done, err)
	}
}

// A parked object is still ours: it has not drifted, later applies persist, and it can be deleted.
func parks(t *testing.T, b *Fixture) {
	r := start(t, b)
	v1, v2 := application(t, b, at("v1")), application(t, b, at("v2"))
	for _, row := range everything(t, b) {
		if row.Key.Kind != fleet.ObjectApplication {
			r.mustApply(row)
		}
	}
	r.mustApply(v1)
	r.waitApplied(v1)
	since := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	q := engine.ParkRequest{Key: v1.Key, UID: r.External.Field(v1.Key, "metadata.uid"),
		Tenant: v1.Tenant, Since: since}
	park := func(q engine.ParkRequest, lease mirror.Lease) error {
		return r.Engine.Park(r.ctx, q, lease)
	}
	other := q
	other.UID = "that-of-another-object"
	if n := r.writes(func() {
		if err := park(other, r.lease); err != nil {
			t.Errorf("another UID: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes for an object that is gone", n)
	}
	older := r.lease
	older.Epoch--
	if err := park(q, older); !errors.Is(err, engine.ErrFenced) {
		t.Errorf("under an earlier lease: %v", err)
	}
	b.Stop(true)
	if err := park(q, r.lease); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	for range 2 {
		if err := park(q, r.lease); err != nil {
			t.Fatal(err)
		}
	}
	parked := func(want bool) {
		t.Helper()
		r.until("parked as expected", func() bool {
			c, ok := r.contact(v1.Key)
			return ok && c.Parked.Equal(since) == want && c.Parked.IsZero() != want
		})
		if live, ok := r.Engine.Live(v1.Key); !ok || live.Parked != want || live.Drifted {
			t.Errorf("known as %+v", live)
		}
	}
	parked(true)
	r.mustApply(v2)
	parked(true)
	if got := r.External.Field(v1.Key, "spec.source.targetRevision"); got != "v2" {
		t.Errorf("applied while parked: %s", got)
	}
	ask := engine.SyncRequest{Key: v1.Key, Tenant: v1.Tenant, ID: "sync-1", Revision: "v2"}
	if out, err := r.Engine.Sync(r.ctx, ask, r.lease); err != nil ||
		out.State != mirror.ApplyPending {
		t.Errorf("a sync while parked: %+v, %v", out, err)
	}
	q.Since = time.Time{}
	if err := park(q, r.lease); err != nil {
		t.Fatal(err)
	}
	parked(false)
	q.Since = since
	if err := park(q, r.lease); err != nil {
		t.Fatal(err)
	}
	v2.Unwanted, v2.Deletion = true, fleet.DeletionDelete
	if done, err := r.Engine.Delete(r.ctx, v2, r.lease); done || err != nil {
		t.Fatalf("done %t, %v", done, err)
	}
	r.until("it is being deleted, and parked", func() bool {
		live, ok := r.Engine.Live(v1.Key)
		return ok && live.Deleting && live.Parked
	})
	v2.Deletion = fleet.DeletionOrphan // like an admin who does not want to wait
	r.deleteFully(v2)
	r.until("nothing is left to be parked", func() bool {
		c, ok := r.contact(v1.Key)
		return ok &&
			c.Gone
	})
}
