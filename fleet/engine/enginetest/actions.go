package enginetest

import (
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// act takes one step of an action, and returns the writes that it took.
func (r *harness) act(q engine.ActionRequest) (out engine.ActionProgress, writes int) {
	r.Helper()
	writes = r.writes(func() {
		var err error
		actor, ok := engine.As[engine.Actor](r.Engine)
		if !ok {
			r.Fatal("the engine carries out no actions")
		}
		if out, err = actor.Act(r.ctx, q, r.lease); err != nil {
			r.Fatal(err)
		}
	})
	return out, writes
}

// finish takes the last steps of an action, and stores its outcome in between as a worker does.
func (r *harness) finish(q engine.ActionRequest) (out engine.ActionProgress) {
	r.Helper()
	out, _ = r.act(q)
	if out.Outcome == "" {
		return out
	}
	q.Outcome = out.Outcome
	last, _ := r.act(q)
	out.State = last.State
	if again, writes := r.act(q); again.State != last.State || writes != 0 {
		r.Errorf("repeated: %+v with %d writes", again, writes)
	}
	return out
}

func actions(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	ask := func(id string, kind mirror.ActionKind) engine.ActionRequest {
		return engine.ActionRequest{ID: id, Kind: kind, Key: row.Key, Tenant: tenant}
	}
	want := func(q engine.ActionRequest, state mirror.OperationState, writes int) (
		out engine.ActionProgress) {
		t.Helper()
		out, n := r.act(q)
		if out.State != state || n != writes {
			t.Errorf("%s %s: %+v with %d writes, not %s with %d", q.Kind, q.ID, out, n, state,
				writes)
		}
		return out
	}
	refresh := ask("refresh-1", mirror.ActionRefresh)
	refresh.Options.Hard = true
	want(refresh, mirror.OperationPending, 0) // the Application is not there
	r.mustApply(row)

	want(refresh, mirror.OperationRunning, 1)
	want(refresh, mirror.OperationRunning, 0)
	if got := r.External.Field(row.Key,
		"metadata.annotations|argocd.argoproj.io/refresh"); got != "hard" {
		t.Errorf("the refresh is %q", got)
	}
	r.External.Merge(row.Key, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":null}}}`)
	want(refresh, mirror.OperationSucceeded, 0)

	dry := ask("sync-1", mirror.ActionSync)
	dry.Options = mirror.ActionOptions{DryRun: true, Revision: "v9"}
	want(dry, mirror.OperationRunning, 1)
	want(dry, mirror.OperationRunning, 0)
	for field, value := range map[string]string{"operation.sync.revision": "v9",
		"operation.sync.dryRun": "true"} {
		if got := r.External.Field(row.Key, field); got != value {
			t.Errorf("%s is %q, not %q", field, got, value)
		}
	}
	want(ask("sync-2", mirror.ActionSync), mirror.OperationPending, 0)
	stop := ask("terminate-1", mirror.ActionTerminate)
	want(stop, mirror.OperationPending, 0) // Argo CD has not begun it
	const by = `"operation":{"initiatedBy":{"username":"argosy"},"sync":{"dryRun":true},` +
		`"info":[{"name":"argosy.dev/sync","value":"sync-1"}]},"startedAt":"2026-01-01T00:00:00Z"`
	r.External.Merge(row.Key, `{"status":{"operationState":{"phase":"Running",`+by+`}}}`)
	want(dry, mirror.OperationRunning, 0)
	want(stop, mirror.OperationRunning, 1)
	want(stop, mirror.OperationRunning, 0)
	if got := r.External.Field(row.Key, "status.operationState.phase"); got != "Terminating" {
		t.Errorf("the operation is %q", got)
	}
	r.External.Merge(row.Key, `{"operation":null,"status":{"operationState":{"phase":"Failed",`+
		`"message":"Operation terminated",`+by+`}}}`)
	want(stop, mirror.OperationSucceeded, 0)
	if out := r.finish(dry); out.State != mirror.OperationFailed ||
		out.Message != "Operation terminated" {
		t.Errorf("the ended sync: %+v", out)
	}

	again := ask("sync-3", mirror.ActionSync)
	again.Options.Prune = true
	want(again, mirror.OperationRunning, 1)
	if got := r.External.Field(row.Key, "status.operationState"); got != "" {
		t.Errorf("the state of an older operation remains: %s", got)
	}
	r.External.Merge(row.Key, `{"operation":null,"status":{"operationState":{"phase":"Succeeded",`+
		strings.ReplaceAll(by, "sync-1", "sync-3")+`,"syncResult":{"revision":"v9","resources":[`+
		`{"group":"apps","kind":"Deployment","namespace":"web","name":"web","version":"v1",`+
		`"syncPhase":"Sync","status":"Synced","message":"configured"}]}}}}`)
	out := want(again, mirror.OperationSucceeded, 0)
	if len(out.Results) != 1 || out.Results[0].String() != "apps/Deployment/web/web" ||
		out.Results[0].Status != "Synced" || out.Results[0].Message != "configured" {
		t.Errorf("results %+v", out.Results)
	}
	if out := r.apply(row, fleet.Secret{}); out.State != mirror.ApplyApplied || out.Changed {
		t.Errorf("an action is taken for a drift: %+v", out)
	}
}

func actionsRefused(t *testing.T, b *Fixture) {
	r := start(t, b)
	row := application(t, b, nil)
	q := engine.ActionRequest{ID: "a", Kind: mirror.ActionTerminate, Key: row.Key, Tenant: tenant}
	actor, _ := engine.As[engine.Actor](r.Engine)
	refused := func(with error) {
		t.Helper()
		if n := r.writes(func() {
			if out, err := actor.Act(r.ctx, q, r.lease); !errors.Is(err, with) {
				t.Errorf("%s: %+v, %v, not %v", q.Kind, out, err, with)
			}
		}); n != 0 {
			t.Errorf("%d writes", n)
		}
	}
	r.External.CreateForeign(row.Key)
	refused(engine.ErrForeign)
	r.External.Remove(row.Key)
	r.until("the foreign object is gone", func() bool {
		_, there := r.Engine.Live(row.Key)
		return !there
	})
	r.mustApply(row)
	refused(engine.ErrRefused) // no operation runs
	q.Kind = "dance"
	refused(engine.ErrRefused)
	q.Kind = mirror.ActionRefresh
	b.Stop(true)
	refused(engine.ErrStopped)
	b.Stop(false)
	q.Tenant = "globex"
	refused(engine.ErrForeign)
	q.Tenant = tenant
	r.lease.Epoch--
	refused(engine.ErrFenced)
}
