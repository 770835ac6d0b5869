package argocd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// The API server restarts at the same address with its earlier state: it accepts a watch from a
// version that it has not reached yet, and stays silent.
func TestAnEngineRestoredFromABackupIsListedAgain(t *testing.T) {
	c, err := stack.StartCluster(t.Context(), stack.ClusterOptions{Name: "restored"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	if err := c.InstallArgoCRDs(t.Context(), "3.5"); err != nil {
		t.Fatal(err)
	}
	bench := fixtureOn(t, c.REST(), space(t, c))
	e := bench.Engine.(*Engine)
	if _, err := e.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	var back atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Watch(ctx, engine.Sink{WentBack: func(string) { back.Add(1) }})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	b := &faultRig{T: t, e: e, lease: mirror.Lease{Epoch: 5}}
	b.until("read completely", e.Synced)

	app := func(deployment, revision string) mirror.Row {
		id := fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(deployment),
			Environment: "prod-eu"}
		o := applicationObject(id, exampleServer)
		o.Application.Sources[0].TargetRevision, o.Application.DeletionPolicy = revision,
			fleet.DeletionOrphan
		return b.row(o)
	}
	changed, removed, added := app("changed", "v1"), app("removed", "v1"), app("added", "v1")
	b.applied(changed)
	b.applied(removed)
	restore, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.until("followed again", func() bool { return e.Health() == nil })
	if n := back.Load(); n != 0 {
		t.Errorf("a mere restart was reported as going back %d times", n)
	}
	// Other writes advance the version, so that the restored server stays behind it.
	v2 := app("changed", "v2")
	b.until("v2 is written", func() bool {
		out, err := b.apply(v2)
		return err == nil &&
			out.Changed
	})
	b.until("the deletion is done", func() bool {
		done, err := e.Delete(t.Context(), removed, b.lease)
		return done && err == nil
	})
	b.applied(added)
	b.until("the watch has shown it all", func() bool {
		_, there := e.Live(removed.Key)
		live, ok := e.Live(v2.Key)
		return !there && ok && live.Hash == v2.Manifest.Hash
	})
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	b.until("the restore is detected", func() bool { return back.Load() > 0 })
	b.until("what it holds now is known", func() bool {
		old, ok := e.Live(changed.Key)
		_, there := e.Live(removed.Key)
		_, still := e.Live(added.Key)
		return ok && old.Hash == changed.Manifest.Hash && there && !still
	})
	if took := time.Since(begun); took > 2*time.Minute {
		t.Errorf("noticed after %s", took)
	}
	t.Logf("noticed after %s", time.Since(begun).Round(time.Millisecond))
	b.until("v2 is written again", func() bool {
		out, err := b.apply(v2)
		return err == nil &&
			out.Changed
	})
}
