package argocd

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// Argo CD reads every option of a sync as it is rendered.
func TestRealArgoCDReadsEveryOption(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			w := newArgoLabWith(t, "options-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{Version: version})
			kubeconfig, err := os.ReadFile(w.cluster.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			env := fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}
			space := "fresh-" + w.spaceA
			rows := w.foundation(env, space)
			project := projectObject(acme)
			project.Project.SourceRepos = []string{w.repo.URL}
			project.Project.ClusterResources = []fleet.GroupKind{{Kind: "Namespace"}}
			project.Project.Destinations = []fleet.Destination{
				{Server: fleet.ServerKey(w.cluster.Server, env), Namespace: space}}
			rows[0] = w.row(project, "")
			for _, row := range rows {
				w.apply(row, fleet.NewSecret(map[string][]byte{"kubeconfig": kubeconfig}))
			}
			w.ignoresAndKeeps(space)
			w.retriesAsOften(space)
		})
	}
}

func optionsFiles(value string) map[string]string {
	return map[string]string{
		"options/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
			"data: {value: " + value + ", pointer: git, path: git}\n",
		"options/b.yaml": configMap("b", "git"),
		"broken/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" +
			"data: [no, map]\n",
	}
}

// ignoresAndKeeps: changes of ignored fields are no difference, and a sync of the rest keeps them;
// when they are ignored no longer, Argo CD heals them.
func (w *argoLab) ignoresAndKeeps(space string) {
	w.Helper()
	first := w.commit(optionsFiles("one"))
	id := fleet.ApplicationID{Tenant: acme, Deployment: "options", Environment: "prod-eu"}
	limit := 1
	row := w.app(id, "options", space, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Sync = fleet.Sync{Automated: true, Prune: true, SelfHeal: true, AllowEmpty: true,
			CreateNamespace: true, ServerSideApply: true, ApplyOutOfSyncOnly: true, PruneLast: true,
			PrunePropagation: fleet.PropagateBackground, RespectIgnoreDifferences: true,
			SkipValidation: true, SkipDryRunOnMissingResource: true, FailOnSharedResource: true,
			Retry: &fleet.Retry{Limit: fleet.RetryForever, Backoff: &fleet.Backoff{
				Duration: fleet.Duration(time.Second), Factor: 1,
				MaxDuration: fleet.Duration(time.Second)}},
			ManagedNamespaceMetadata: &fleet.NamespaceMetadata{
				Labels:      map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
				Annotations: map[string]string{"example.com/cost-center": "4711"}}}
		a.IgnoreDifferences = []fleet.IgnoreDifference{
			{Kind: "ConfigMap", Name: "a", Namespace: space,
				JSONPointers:      []string{"/data/pointer"},
				JQPathExpressions: []string{`.data | select(.value != "") | .["path"]`}},
			{Group: fleet.AnyKind, Kind: fleet.AnyKind, ManagedFieldsManagers: []string{"by-hand"}}}
		a.RevisionHistoryLimit = &limit
		a.Info = []fleet.Info{{Name: "team", Value: "payments"}}
		a.Links = []fleet.Link{{Title: "dashboard", URL: "https://grafana.example.com/d/a"}}
	})
	w.apply(row, fleet.Secret{})
	w.observed("Synced at the first commit", row.Key, atRevision(first))
	w.settles(row.Key.Name) // a sync that heals would overwrite what is edited below
	ns, err := w.cluster.Client().CoreV1().Namespaces().Get(w.Context(), space, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" ||
		ns.Annotations["example.com/cost-center"] != "4711" {
		w.Errorf("metadata of the created namespace: %v, %v", ns.Labels, ns.Annotations)
	}
	if !slices.ContainsFunc(w.configMap(space, "a").ManagedFields,
		func(f metav1.ManagedFieldsEntry) bool {
			return f.Operation == metav1.ManagedFieldsOperationApply
		}) {
		w.Error("nothing is applied on the API server's side")
	}

	w.edit(space, "a", map[string]string{"pointer": "live", "path": "live"})
	w.edit(space, "b", map[string]string{"value": "live"})
	second := w.commit(optionsFiles("two"))
	w.refresh(row.Key.Name)
	w.observed("Synced at the second commit", row.Key, atRevision(second))
	if got := w.configMap(space, "a").Data; !maps.Equal(got, map[string]string{"value": "two",
		"pointer": "live", "path": "live"}) {
		w.Errorf("after the sync: %v", got)
	}
	if got, _ := w.value(space, "b"); got != "live" {
		w.Errorf("a field of an ignored manager is %q", got)
	}
	w.until("finished", func() bool {
		l, _ := w.e.Live(row.Key)
		return l.Finished()
	})
	live := w.live(row.Key)
	if history, _, _ := unstructured.NestedSlice(live, "status", "history"); len(history) != 1 {
		w.Errorf("the history has %d entries, not 1", len(history))
	}
	if out := w.apply(row, fleet.Secret{}); out.Changed {
		w.Error("Argo CD's own work is taken for a drift")
	}

	plain := w.app(id, "options", space, fleet.DeletionDelete, nil)
	w.apply(plain, fleet.Secret{})
	w.until("fields that are no longer ignored are healed", func() bool {
		b, _ := w.value(space, "b")
		a := w.configMap(space, "a").Data
		return b == "git" && a["pointer"] == "git" && a["path"] == "git"
	})
	live = w.live(row.Key)
	for _, field := range []string{"ignoreDifferences", "revisionHistoryLimit", "info"} {
		if _, kept, _ := unstructured.NestedFieldNoCopy(live, "spec", field); kept {
			w.Errorf("spec.%s is not removed", field)
		}
	}
	if link, kept, _ := unstructured.NestedString(live, "metadata", "annotations",
		linkAnnotations[0]); kept {
		w.Errorf("link %q is not removed", link)
	}
	w.remove(plain)
}

// retriesAsOften: a failed automated sync is repeated as often as its retry allows.
func (w *argoLab) retriesAsOften(space string) {
	w.Helper()
	id := fleet.ApplicationID{Tenant: acme, Deployment: "broken", Environment: "prod-eu"}
	row := w.app(id, "broken", space, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Sync.Retry = &fleet.Retry{Limit: 2, Backoff: &fleet.Backoff{
			Duration: fleet.Duration(time.Second), Factor: 1}}
	})
	w.apply(row, fleet.Secret{})
	w.until("the sync fails after two repetitions", func() bool {
		live := w.live(row.Key)
		phase, _, _ := unstructured.NestedString(live, "status", "operationState", "phase")
		n, _, _ := unstructured.NestedInt64(live, "status", "operationState", "retryCount")
		if n > 2 {
			w.Fatalf("%d repetitions", n)
		}
		return phase == "Failed" && n == 2
	})
	w.remove(row)
}

func atRevision(revision string) func(mirror.Observation) bool {
	return func(o mirror.Observation) bool { return synced(o) && o.SyncedRevision == revision }
}

func (w *argoLab) configMap(space, name string) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.cluster.Client().CoreV1().ConfigMaps(space).Get(w.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return cm
}

// edit changes a ConfigMap on the cluster as another field manager.
func (w *argoLab) edit(space, name string, data map[string]string) {
	w.Helper()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm := w.configMap(space, name)
		maps.Copy(cm.Data, data)
		_, err := w.cluster.Client().CoreV1().ConfigMaps(space).Update(w.Context(), cm,
			metav1.UpdateOptions{FieldManager: "by-hand"})
		return err
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *argoLab) live(key fleet.ObjectKey) map[string]any {
	w.Helper()
	o, err := w.applications().Get(w.Context(), key.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o.Object
}
