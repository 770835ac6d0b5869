package adoption

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const byHand = `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: checkout
  namespace: argocd
  labels: {team: shop, app.kubernetes.io/managed-by: hand}
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: shop
  source: {repoURL: "https://git.example.com/acme/checkout", path: deploy, targetRevision: main}
  destination: {name: prod, namespace: shop}
`

const byArgosy = `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: checkout
  namespace: argocd
  labels: {team: shop, app.kubernetes.io/managed-by: argosy, argosy.dev/tenant: shop,
    argosy.dev/environment: prod, argosy.dev/deployment: checkout}
  annotations:
    argosy.dev/adopted: checkout
    argosy.dev/before: '{"project":"shop","destination":{"name":"prod","namespace":"shop"},
      "finalizers":["resources-finalizer.argocd.argoproj.io"],
      "labels":{"app.kubernetes.io/managed-by":"hand"}}'
spec:
  project: shop-4711
  source: {repoURL: "https://git.example.com/acme/checkout", path: deploy, targetRevision: main}
  destination: {server: "https://prod?managedEnvironment=shop-prod", namespace: shop}
`

func TestAnAdoptedApplicationIsReadAsItWas(t *testing.T) {
	want, _ := Read("a.yaml", []byte(byHand))
	live, _ := Read("a.yaml", []byte(byArgosy))
	got := beforeAdoption(live)
	if len(got) != 1 || !got[0].adopted {
		t.Fatalf("%+v", got)
	}
	meta := object(got[0].Object, "metadata")
	if a := object(meta, "annotations"); len(a) > 0 {
		t.Errorf("annotations %v stay", a)
	}
	delete(meta, "annotations")
	if !reflect.DeepEqual(got[0].Object, want[0].Object) {
		a, _ := json.Marshal(got[0].Object)
		b, _ := json.Marshal(want[0].Object)
		t.Errorf("%s\nwant %s", a, b)
	}
	if spec := object(live[0].Object, "spec"); spec["project"] != "shop-4711" {
		t.Error("the original has changed")
	}
	if got := beforeAdoption(want); len(got) != 1 || got[0].adopted {
		t.Errorf("not adopted: %+v", got)
	}
}

func TestWhatArgosyCreatedIsNotImported(t *testing.T) {
	for name, text := range map[string]string{
		"an Application": strings.Replace(byArgosy, "argosy.dev/before", "other/before", 1),
		"an unreadable state": strings.Replace(byArgosy, `'{"project"`, `'{"project`,
			1),
		"an AppProject": `{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: a,
			labels: {app.kubernetes.io/managed-by: argosy, argosy.dev/tenant: shop}}}`,
	} {
		found, refused := Read("a.yaml", []byte(strings.ReplaceAll(text, "\t", " ")))
		if len(found) != 1 || len(refused) > 0 {
			t.Fatalf("%s: %+v %+v", name, found, refused)
		}
		if got := beforeAdoption(found); len(got) != 0 {
			t.Errorf("%s is imported", name)
		}
	}
	// the manager's label alone is no mark: others use it too
	other := strings.Replace(byArgosy, "argosy.dev/tenant", "other/tenant", 1)
	if found, _ := Read("a.yaml", []byte(other)); len(beforeAdoption(found)) != 1 {
		t.Error("an Application without a tenant is left out")
	}
}

// Adoption changes nothing of what an import proposes.
func TestAnImportProposesTheSameDuringAdoption(t *testing.T) {
	files := func(text string) map[string]string {
		im, files := converged(t, strings.Replace(text, "name: prod, ",
			`server: "https://kubernetes.default.svc", `, 1))
		if len(im.apps) != 1 || im.apps[0].refused() {
			t.Fatalf("%+v", im.apps)
		}
		return files
	}
	adopted := strings.Replace(byArgosy, `"name":"prod",`,
		`"server":"https://kubernetes.default.svc",`, 1)
	before, during := files(byHand), files(adopted)
	if !reflect.DeepEqual(before, during) {
		t.Errorf("%v\nwant %v", during, before)
	}
	if paths := slices.Sorted(func(yield func(string) bool) {
		for p := range before {
			if !yield(p) {
				return
			}
		}
	}); !slices.Contains(paths, "tenants/shop/deployments/checkout.yaml") {
		t.Errorf("%v", paths)
	}
}
