package instance_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

func TestWhatArgosyDependsOnIsLaidOverTheManifests(t *testing.T) {
	t.Parallel()
	for _, minor := range fleet.TestedArgoCD {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, _ := published(t, minor)
			s, err := m.Stages(instance.Settings{Namespace: "argocd-eu", InstallationID: "eu-1"})
			check(t, err)
			objects := map[string]*unstructured.Unstructured{}
			for _, o := range s.Objects {
				if o.GetNamespace() != "argocd-eu" ||
					o.GetLabels()["argosy.dev/instance"] != "eu-1" {
					t.Errorf("%s %s has the namespace %q and the labels %v", o.GetKind(),
						o.GetName(), o.GetNamespace(), o.GetLabels())
				}
				for _, part := range []string{"dex", "notifications", "applicationset",
					"argocd-server"} {
					if strings.Contains(o.GetName(), part) {
						t.Errorf("%s %s is installed", o.GetKind(), o.GetName())
					}
				}
				objects[o.GetKind()+" "+o.GetName()] = o
			}
			value := func(object string, path ...string) any {
				t.Helper()
				v, _, err := unstructured.NestedFieldNoCopy(objects[object].Object, path...)
				check(t, err)
				return v
			}
			for key, want := range map[string]string{"installationID": "eu-1",
				"application.resourceTrackingMethod": "annotation", "admin.enabled": "false"} {
				if got := value("ConfigMap argocd-cm", "data", key); got != want {
					t.Errorf("%s is %v", key, got)
				}
			}
			for _, workload := range []string{"StatefulSet argocd-application-controller",
				"Deployment argocd-repo-server"} {
				if n := value(workload, "spec", "replicas"); n != nil {
					t.Errorf("%s has %v replicas, which a fence sets", workload, n)
				}
			}
			subjects, _ := value("RoleBinding argocd-application-controller",
				"subjects").([]any)
			if len(subjects) != 1 || subjects[0].(map[string]any)["namespace"] != "argocd-eu" {
				t.Errorf("subjects %v", subjects)
			}
			if len(s.Definitions) != 2 || len(s.Projects) != 1 {
				t.Errorf("%d definitions, %d projects", len(s.Definitions), len(s.Projects))
			}
		})
	}
}

func TestManifestsOfAnotherVersionOrWithoutAPartAreRejected(t *testing.T) {
	t.Parallel()
	version, files, err := stack.ArgoManifests("3.5")
	check(t, err)
	_, err = instance.Parse("3.5.6", files)
	wantError(t, err, "is not of version 3.5.6")
	without := maps.Clone(files)
	delete(without, "crds/appproject-crd.yaml")
	_, err = instance.Parse(version, without)
	wantError(t, err, "lack CustomResourceDefinition appprojects.argoproj.io")
	twice := maps.Clone(files)
	twice["more/again.yaml"] = files["crds/appproject-crd.yaml"]
	_, err = instance.Parse(version, twice)
	wantError(t, err, "more/again.yaml: CustomResourceDefinition appprojects.argoproj.io is also in")
	broken := maps.Clone(files)
	broken["namespace-install.yaml"] = bytes.Replace(files["namespace-install.yaml"],
		[]byte("kind: StatefulSet"), []byte("kind: [StatefulSet"), 1)
	_, err = instance.Parse(version, broken)
	wantError(t, err, "namespace-install.yaml: ")
}
