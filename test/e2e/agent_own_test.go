package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// TestAnAutonomousClustersOwnApplicationsAreShownAndSyncedWhenAsked makes an Application as the
// cluster's own people do.
func TestAnAutonomousClustersOwnApplicationsAreShownAndSyncedWhenAsked(t *testing.T) {
	f := edges.use(t)
	s := f.declareSite(t, "ranch", "{argocdNamespace: argocd, mode: autonomous}", nil, "acme-ranch")
	defer s.leave(t)
	s.join(t)
	untouched := f.ownWrites(t)
	before := s.made(t)
	defer s.unmade(t)
	eventually(t, "it is shown, as the cluster's own and not synced", s.own(t, "OutOfSync"))
	if out := f.must(t, "get", "applications", "--tenant", "acme", "--environment",
		"ranch"); !strings.Contains(out, "ranch-shop (own)") {
		t.Errorf("`get applications` does not mark it:\n%s", out)
	}
	if n := f.ownWrites(t) - untouched; n != 0 {
		t.Errorf("the agent has written to it %d times without a request", n)
	}
	succeeded := f.syncEnded(t, "ranch-shop")
	f.must(t, "sync", "acme/ranch", "ranch-shop")
	eventually(t, "the sync has succeeded", succeeded)
	eventually(t, "and shows", s.own(t, "Synced"))
	if got := s.motd(t, "acme-ranch"); got != "welcome" {
		t.Errorf("synced, and the workload has %q", got)
	}
	after, err := s.edge.Cluster.Dynamic().Resource(applications).Namespace("argocd").Get(
		t.Context(), "ranch-shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	was, _ := json.Marshal(before.Object["spec"])
	is, _ := json.Marshal(after.Object["spec"])
	if string(was) != string(is) {
		t.Errorf("what its people wrote was changed:\n%s\n%s", was, is)
	}
	if n := f.ownWrites(t) - untouched; n != 1 {
		t.Errorf("the agent has written to it %d times for one sync", n)
	}
}

// made is an Application of the cluster's own people, with a project that permits it.
func (s *site) made(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": kind,
				"metadata": map[string]any{"name": name, "namespace": "argocd"}, "spec": spec}}
	}
	project := object("AppProject", "ranch-shop", map[string]any{"sourceRepos": []any{"*"},
		"destinations": []any{
			map[string]any{"server": fleet.InClusterServer, "namespace": "acme-ranch"}}})
	app := object("Application", "ranch-shop", map[string]any{"project": "ranch-shop",
		"source": map[string]any{"repoURL": s.Git.URL + "/acme/storefront",
			"path": "deploy", "targetRevision": "v2.0.1"},
		"destination": map[string]any{"server": fleet.InClusterServer, "namespace": "acme-ranch"}})
	app.SetFinalizers([]string{"resources-finalizer.argocd.argoproj.io"})
	if err := s.edge.Cluster.Apply(t.Context(), project, app); err != nil {
		t.Fatal(err)
	}
	live, err := s.edge.Cluster.Get(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// unmade takes it away with what it deployed.
func (s *site) unmade(t *testing.T) {
	t.Helper()
	argo := s.edge.Cluster.Dynamic()
	if err := argo.Resource(applications).Namespace("argocd").Delete(t.Context(), "ranch-shop",
		metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "it is no longer shown", func() string {
		if missing := s.own(t, "")(); missing == "" {
			return "it is"
		}
		return ""
	})
	if err := argo.Resource(projects).Namespace("argocd").Delete(t.Context(), "ranch-shop",
		metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// own asks for the Application and returns what it lacks; "" is any state.
func (s *site) own(t *testing.T, state mirror.SyncState) func() string {
	return func() string {
		t.Helper()
		for _, a := range list[struct {
			view.Application
			Own bool
		}](t, s.system, "applications", "--environment", "ranch") {
			if a.Own && a.Name == "ranch-shop" && (state == "" || a.Sync == state) {
				return ""
			} else if a.Name == "ranch-shop" {
				return string(a.Sync)
			}
		}
		return "not there"
	}
}

// ownWrites counts what agents have changed of the cluster's own Application.
func (f *system) ownWrites(t *testing.T) int {
	t.Helper()
	n := 0
	for _, e := range f.agentRequests(t) {
		if e.ObjectRef.Resource == "applications" && e.ObjectRef.Name == "ranch-shop" &&
			e.Verb != "get" {
			n++
		}
	}
	return n
}
