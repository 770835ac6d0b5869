package argocd

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// own collects the reports of a watch of own Applications.
type own struct {
	t       *testing.T
	reports chan ownReport
	known   map[string]mirror.OwnApplication
}

type ownReport struct {
	apps  []mirror.OwnApplication
	whole bool
}

func watchOwn(t *testing.T, e *Engine) *own {
	t.Helper()
	o := &own{t: t, reports: make(chan ownReport), known: map[string]mirror.OwnApplication{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.WatchOwn(ctx, func(apps []mirror.OwnApplication, whole bool) {
			select {
			case o.reports <- ownReport{apps, whole}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return o
}

// until collects reports until the condition holds.
func (o *own) until(what string, so func(map[string]mirror.OwnApplication) bool) {
	o.t.Helper()
	late := time.After(2 * time.Minute)
	for !so(o.known) {
		select {
		case got := <-o.reports:
			if got.whole {
				clear(o.known)
			}
			for _, a := range got.apps {
				o.known[a.Name] = a
				if a.Gone {
					delete(o.known, a.Name)
				}
			}
		case <-late:
			o.t.Fatalf("not so: %s; known is %+v", what, o.known)
		}
	}
}

func ownKey(name string) fleet.ObjectKey {
	return fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication, Name: name}
}

func (o *outside) makeOwn(name string, spec map[string]any) {
	o.t.Helper()
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": argoAPI, "kind": "Application",
			"metadata": map[string]any{"name": name}, "spec": spec}}
	if _, err := o.of(ownKey(name)).Create(context.Background(), u,
		metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func ownSpecOf(repo string) map[string]any {
	return map[string]any{"project": "default", "destination": map[string]any{
		"server": fleet.InClusterServer, "namespace": "shop"},
		"source":     map[string]any{"repoURL": repo, "path": "deploy", "targetRevision": "main"},
		"syncPolicy": map[string]any{"syncOptions": []any{"ServerSideApply=true"}}}
}

func TestOwnApplicationsAreReportedAndOursAreNot(t *testing.T) {
	b := openFixture(t)
	e, out := b.Engine.(*Engine), b.External.(*outside)
	out.makeOwn("shop", ownSpecOf("https://ana:hunter2@git.example.com/shop?token=hunter2"))
	ours := rowOf(t, applicationObject(checkoutID, exampleServer), 1)
	body, err := decodeTree(ours.Manifest.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.of(ours.Key).Create(t.Context(), &unstructured.Unstructured{Object: body},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := watchOwn(t, e)
	o.until("the own one is known, ours is not", func(known map[string]mirror.OwnApplication) bool {
		return len(known) == 1
	})
	got := o.known["shop"]
	if got.RepoURL != "https://git.example.com/shop" || got.Path != "deploy" ||
		got.TargetRevision != "main" || got.Namespace != out.namespace || got.UID == "" {
		t.Errorf("it is reported as %+v", got)
	}
	out.makeOwn("cart", ownSpecOf("git@git.example.com:cart"))
	out.Merge(ownKey("shop"),
		`{"status":{"sync":{"status":"Synced","revision":"9b2d77c1"},"health":{"status":"Degraded","message":"no pods"},"resources":[{"kind":"Service"}]}}`)
	o.until("both are known with their status", func(known map[string]mirror.OwnApplication) bool {
		return len(known) == 2 && known["shop"].Health == mirror.HealthDegraded &&
			known["shop"].Sync == mirror.SyncSynced && known["shop"].Resources == 1 &&
			known["shop"].Message == "no pods" && known["cart"].RepoURL == "git.example.com:cart"
	})
	out.Remove(ownKey("shop"))
	o.until("the one is deleted", func(known map[string]mirror.OwnApplication) bool {
		return len(known) == 1
	})
	if writes := out.Writes(); writes != 0 {
		t.Errorf("watching wrote %d times", writes)
	}
}

func TestSyncOfAnOwnApplicationWritesAnOperationAndNothingElse(t *testing.T) {
	b := openFixture(t)
	e, out := b.Engine.(*Engine), b.External.(*outside)
	out.makeOwn("shop", ownSpecOf("https://git.example.com/shop"))
	q := engine.SyncRequest{Key: ownKey("shop"), Tenant: acme, ID: "01J1", Revision: "v2",
		Prune: true}
	before := out.get(q.Key)
	got, err := e.SyncOwn(t.Context(), q)
	if err != nil || got.State != mirror.ApplyApplied || !got.Changed {
		t.Fatalf("%+v, %v", got, err)
	}
	after := out.get(q.Key)
	for _, field := range []string{"operation.sync.revision", "operation.sync.prune",
		"operation.sync.syncOptions", "operation.initiatedBy.username"} {
		if out.Field(q.Key, field) == "" {
			t.Errorf("the operation has no %s", field)
		}
	}
	if a, b := before.GetLabels(), after.GetLabels(); len(a) != len(b) ||
		len(after.GetAnnotations()) != len(before.GetAnnotations()) ||
		after.GetGeneration() > before.GetGeneration()+1 {
		t.Errorf("more than the operation was written: %v %v", b, after.GetAnnotations())
	}
	writes := out.Writes()
	if got, err = e.SyncOwn(t.Context(), q); err != nil || got.Changed ||
		got.State != mirror.ApplyApplied || out.Writes() != writes {
		t.Errorf("asked again: %+v, %v, %d writes", got, err, out.Writes()-writes)
	}
	q.ID = "01J2"
	if got, err = e.SyncOwn(t.Context(), q); err != nil || got.State != mirror.ApplyPending ||
		out.Writes() != writes {
		t.Errorf("while another runs: %+v, %v", got, err)
	}
}

func TestSyncOfAnOwnApplicationIsRejected(t *testing.T) {
	b := openFixture(t)
	e, out := b.Engine.(*Engine), b.External.(*outside)
	out.makeOwn("shop", ownSpecOf("https://git.example.com/shop"))
	ours := rowOf(t, applicationObject(checkoutID, exampleServer), 1)
	body, err := decodeTree(ours.Manifest.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.of(ours.Key).Create(t.Context(), &unstructured.Unstructured{Object: body},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		q    engine.SyncRequest
		want error
	}{
		"when it is ours": {engine.SyncRequest{Key: ours.Key, Tenant: acme, ID: "1"},
			engine.ErrForeign},
		"when there is none": {engine.SyncRequest{Key: ownKey("nothing"), Tenant: acme,
			ID: "1"}, engine.ErrRefused},
		"at a pattern": {engine.SyncRequest{Key: ownKey("shop"), Tenant: acme, ID: "1",
			Revision: "v*"}, nil},
		"by a request unnamed": {engine.SyncRequest{Key: ownKey("shop"), Tenant: acme}, nil},
		"of what is no such kind": {
			engine.SyncRequest{Key: fleet.ObjectKey{Kind: fleet.ObjectProject, Name: "default"},
				ID: "1"}, nil},
	} {
		if _, err := e.SyncOwn(t.Context(), c.q); err == nil || c.want != nil &&
			!errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Stop(true)
	if _, err := e.SyncOwn(t.Context(), engine.SyncRequest{Key: ownKey("shop"), Tenant: acme,
		ID: "1"}); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("while stopped: %v", err)
	}
	if n := out.Writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
}
