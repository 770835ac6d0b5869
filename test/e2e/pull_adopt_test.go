package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// legacyApplications run on us-1 before Argosy knows of them.
const legacyApplications = 6

const globexTenant = "fleet/tenants/globex.yaml"

func legacyName(i int) string { return fmt.Sprintf("legacy-%d", i) }

func legacyFile(i int) string { return "tenants/globex/deployments/" + legacyName(i) + ".yaml" }

// adoptionInBatches adopts Applications that people made by commits, pauses between two batches,
// and undoes the adoption by reverts. No request writes to their workloads.
func adoptionInBatches(t *testing.T, w *forged) {
	a := &adoptees{forged: w, place: w.Place("us-1").Cluster}
	a.create(t)
	before := a.read(t)
	written := len(a.writes(t))

	files, err := stack.Files(os.DirFS("../../examples/config-repo"))
	check(t, err)
	tenant := w.Rewrite(files[globexTenant])
	allowed := strings.Replace(tenant, "\nspec:\n", "\nspec:\n  allow: {adopt: true}\n", 1)
	paused := strings.Replace(allowed, "\nspec:\n", "\nspec:\n  pauseAdoption: true\n", 1)

	w.bring(t, "the first batch", a.batch(0, 3, globexTenant, allowed))
	a.adopted(t, 0, 3)
	w.bring(t, "the second batch, paused", a.batch(3, 6, globexTenant, paused))
	eventually(t, "the second batch waits", func() string {
		waiting := 0
		for _, app := range list[view.Application](t, w.system, "applications", "--apply",
			string(mirror.ApplyFailed)) {
			if strings.Contains(app.ApplyMessage, "adoptions of tenant globex are paused") {
				waiting++
			}
		}
		if waiting != 3 {
			return fmt.Sprintf("%d of 3 wait", waiting)
		}
		return ""
	})
	a.adopted(t, 0, 3)
	w.bring(t, "go on", map[string]string{globexTenant: allowed})
	a.adopted(t, 0, 6)

	var undone []string
	for i := 3; i < 6; i++ {
		undone = append(undone, legacyFile(i))
	}
	w.bring(t, "undo the second batch", nil, undone...)
	a.adopted(t, 0, 3)
	w.bring(t, "undo the first batch", map[string]string{globexTenant: tenant}, legacyFile(0),
		legacyFile(1), legacyFile(2))
	a.adopted(t, 0, 0)

	if after := a.read(t); !maps.Equal(before, after) {
		t.Errorf("the Applications were\n%v\nand are\n%v", before, after)
	}
	if all := a.writes(t); len(all) != written {
		t.Errorf("writes to the workloads: %v", all[written:])
	}
	a.remove(t)
	w.nothingHeld(t)
	w.allHealthy(t)
}

type adoptees struct {
	*forged
	place *stack.Cluster
}

var applicationsResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

// create makes the Applications as people do, in a project and on a cluster Secret of their own.
func (a *adoptees) create(t *testing.T) {
	t.Helper()
	repo, err := a.forge.Repo(t.Context(), "globex/web")
	check(t, err)
	folders := map[string]string{}
	for i := range legacyApplications {
		folders["legacy/"+legacyName(i)+"/cm.yaml"] = waveConfig(legacyName(i))
	}
	_, err = repo.Push(t.Context(), a.forge.Admin, stack.Change{Branch: "main",
		Message: "legacy", Write: folders})
	check(t, err)
	token, err := os.ReadFile(filepath.Join(a.Secrets, "globex", "prod-us", "token"))
	check(t, err)
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": "argocd-us-1"}
	}
	destination := map[string]any{"server": a.place.Server, "namespace": "globex-web"}
	check(t, a.place.Apply(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "legacy", Namespace: "argocd-us-1",
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		StringData: map[string]string{"name": "legacy", "server": a.place.Server,
			"namespaces": "globex-web", "config": fmt.Sprintf(
				`{"bearerToken":%q,"tlsClientConfig":{"caData":%q}}`, token,
				base64.StdEncoding.EncodeToString(a.place.CA))},
	}, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1",
		"kind": "AppProject", "metadata": meta("legacy"), "spec": map[string]any{
			"sourceRepos":  []any{a.Git.URL + "/globex/web"},
			"destinations": []any{destination}}}}))
	for i := range legacyApplications {
		m := meta(legacyName(i))
		m["finalizers"] = []any{"resources-finalizer.argocd.argoproj.io"}
		check(t, a.place.Apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": m,
			"spec": map[string]any{"project": "legacy", "destination": destination,
				"source": map[string]any{"repoURL": a.Git.URL + "/globex/web",
					"path": "legacy/" + legacyName(i), "targetRevision": "main"},
				"syncPolicy": map[string]any{"automated": map[string]any{"prune": true,
					"selfHeal": true}}}}}))
	}
	a.compared(t, "the Applications made by hand are synced", func(int) bool { return false })
}

// batch is the declarations of some Applications, with one more file.
func (a *adoptees) batch(from, to int, path, content string) map[string]string {
	files := map[string]string{path: content}
	for i := from; i < to; i++ {
		files[legacyFile(i)] = fmt.Sprintf("apiVersion: argosy.dev/v1alpha1\n"+
			"kind: GitOpsDeployment\nmetadata: {name: %[1]s}\nspec:\n"+
			"  source: {repoURL: %[2]q, path: legacy/%[1]s, targetRevision: main}\n"+
			"  destination: {environments: [prod-us], namespace: globex-web}\n"+
			"  sync: {mode: automated, prune: true, selfHeal: true}\n"+
			"  deletionPolicy: Release\n  adopt: [{environment: prod-us, application: %[1]s}]\n",
			legacyName(i), a.Git.URL+"/globex/web")
	}
	return files
}

func (a *adoptees) live(t *testing.T) map[string]map[string]any {
	t.Helper()
	found, err := a.place.Dynamic().Resource(applicationsResource).Namespace("argocd-us-1").List(
		t.Context(), metav1.ListOptions{})
	check(t, err)
	all := map[string]map[string]any{}
	for _, o := range found.Items {
		if strings.HasPrefix(o.GetName(), "legacy-") {
			all[o.GetName()] = o.Object
		}
	}
	return all
}

func at(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// adopted waits until exactly some Applications are ours, and each is compared where it belongs.
func (a *adoptees) adopted(t *testing.T, from, to int) {
	t.Helper()
	a.compared(t, fmt.Sprintf("Applications %d to %d are adopted", from, to),
		func(i int) bool { return i >= from && i < to })
	eventually(t, "Argosy shows them Synced and Healthy", func() string {
		var shown []string
		for _, app := range list[view.Application](t, a.system, "applications", "--tenant",
			"globex") {
			if strings.HasPrefix(string(app.Deployment), "legacy-") &&
				app.Apply == mirror.ApplyApplied && app.Sync == mirror.SyncSynced &&
				app.Health == mirror.HealthHealthy {
				shown = append(shown, string(app.Deployment))
			}
		}
		slices.Sort(shown)
		if len(shown) != to-from {
			return fmt.Sprintf("%v", shown)
		}
		return ""
	})
}

func (a *adoptees) compared(t *testing.T, what string, ours func(int) bool) {
	t.Helper()
	eventually(t, what, func() string {
		all := a.live(t)
		for i := range legacyApplications {
			o := all[legacyName(i)]
			project, server := "legacy", a.place.Server
			adopted := at(o, "metadata", "labels", "argosy.dev/tenant") != ""
			if ours(i) {
				project, server = at(o, "spec", "project"), at(o, "spec", "destination", "server")
			}
			finalizers, _, _ := unstructured.NestedStringSlice(o, "metadata", "finalizers")
			if adopted != ours(i) || ours(i) != strings.HasPrefix(project, "globex-") ||
				ours(i) == (len(finalizers) > 0) || at(o, "spec", "project") != project ||
				at(o, "status", "sync", "comparedTo", "destination", "server") != server ||
				at(o, "status", "sync", "status") != "Synced" || o["operation"] != nil {
				return fmt.Sprintf("%s: adopted %t, project %s, compared on %s, %s, %v",
					legacyName(i), adopted, at(o, "spec", "project"), at(o, "status", "sync",
						"comparedTo", "destination", "server"), at(o, "status", "sync", "status"),
					finalizers)
			}
		}
		return ""
	})
}

// read returns what an adoption must not change: UID, last sync, project, server and annotations.
func (a *adoptees) read(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, o := range a.live(t) {
		history, _, _ := unstructured.NestedSlice(o, "status", "history")
		annotations, _, _ := unstructured.NestedStringMap(o, "metadata", "annotations")
		maps.DeleteFunc(annotations, func(key, _ string) bool {
			return !strings.HasPrefix(key, "argosy.dev/")
		})
		all[name] = fmt.Sprint(at(o, "metadata", "uid"), at(o, "status", "operationState",
			"startedAt"), len(history), at(o, "spec", "project"), o["spec"], annotations)
	}
	return all
}

// writes are the requests of anyone that wrote to the workloads of the Applications.
func (a *adoptees) writes(t *testing.T) (all []string) {
	t.Helper()
	entries, err := stack.ReadAudit(filepath.Join(a.Dir, "us-1.audit"))
	check(t, err)
	for _, e := range entries {
		if e.Writes() && e.ObjectRef.Resource == "configmaps" && e.ObjectRef.Namespace ==
			"globex-web" && strings.HasPrefix(e.ObjectRef.Name, "legacy-") {
			all = append(all, e.User.Username+" "+e.Verb+" "+e.ObjectRef.Name)
		}
	}
	if len(all) < legacyApplications {
		t.Fatalf("the audit log lacks the writes of the first syncs: %v", all)
	}
	return all
}

func (a *adoptees) remove(t *testing.T) {
	t.Helper()
	applications := a.place.Dynamic().Resource(applicationsResource).Namespace("argocd-us-1")
	for i := range legacyApplications {
		check(t, applications.Delete(t.Context(), legacyName(i), metav1.DeleteOptions{}))
	}
	eventually(t, "the Applications made by hand are deleted", func() string {
		return strings.Join(slices.Sorted(maps.Keys(a.live(t))), " ")
	})
}
