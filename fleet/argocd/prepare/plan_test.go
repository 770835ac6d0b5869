package prepare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const shop = `
metadata: {name: shop, namespace: NAMESPACE, annotations: {ANNOTATIONS}}
spec:
  project: PROJECT
  destination: {server: "https://kubernetes.default.svc", namespace: web}
  syncPolicy: {POLICY}
status:
  sync: {status: SYNC, revision: abc}
  operationState: {phase: Succeeded, startedAt: "2026-01-01T00:00:00Z"}
  resources:
  - {kind: ConfigMap, version: v1, namespace: web, name: one, status: SYNC}
  - {group: rbac.authorization.k8s.io, kind: ClusterRole, version: v1, name: role, status: Synced}
  - {group: apiextensions.k8s.io, kind: CustomResourceDefinition, version: v1, name: a.example.com}
`

// fixture is one Application with the metadata of its ConfigMap and ClusterRole.
type fixture struct {
	method, id                           string
	namespace, project, policy, sync, at string // of the Application
	set                                  string
	labels, annotations                  map[string]string // of its resources
	settings                             map[string]string // annotations of argocd-cm
	locked                               bool
	change                               func(*application)
}

func (f fixture) state(t *testing.T) *state {
	t.Helper()
	object := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	u := object(strings.NewReplacer("NAMESPACE", first(f.namespace, "argocd"), "PROJECT",
		first(f.project, "people"), "POLICY", f.policy, "SYNC", first(f.sync, "Synced"),
		"ANNOTATIONS", f.at).Replace(shop))
	if f.set != "" {
		u.SetOwnerReferences([]metav1.OwnerReference{{Kind: "ApplicationSet", Name: f.set}})
	}
	a := newApplication(u, "argocd", nil)
	for _, r := range a.resources {
		r.live = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: f.labels,
			Annotations: f.annotations}}
	}
	if f.change != nil {
		f.change(a)
	}
	destinations := "[{server: '*', namespace: '*'}]"
	if f.locked {
		destinations = "[]"
	}
	settings := object("metadata: {name: argocd-cm, namespace: argocd}")
	settings.SetAnnotations(f.settings)
	return &state{settings: settings, method: f.method, installation: f.id,
		label: "app.kubernetes.io/instance", apps: []*application{a}, project: object(
			"{metadata: {name: default}, spec: {sourceRepos: ['*'], destinations: " +
				destinations + "}}")}
}

var (
	byShop    = map[string]string{"app.kubernetes.io/instance": "shop"}
	automates = "automated: {prune: true}"
)

// tracked returns the annotations of a resource.
func tracked(by, id string) map[string]string {
	return map[string]string{trackingID: by + ":/ConfigMap:web/one", installationID: id}
}

// deploys adds an object of Argo CD's namespace to the Application.
func deploys(kind string) func(*application) {
	return func(a *application) {
		r := *a.resources[0]
		r.key = key{"", kind, "argocd", settingsName}
		if kind == "AppProject" {
			r.key.group, r.key.name = "argoproj.io", "default"
		}
		a.resources = append(a.resources, &r)
	}
}

func verbs(steps []step) string {
	var all []string
	for _, s := range steps {
		all = append(all, string(s.verb))
	}
	return strings.Join(all, " ")
}

func TestStepsFollowFromTheLiveState(t *testing.T) {
	for name, c := range map[string]struct {
		fixture
		steps, blocked, note string
	}{
		"by label": {fixture{method: byLabel, labels: byShop, policy: automates},
			"annotate settings lock", "", ""},
		"by label, annotated": {fixture{method: byLabel, labels: byShop, policy: automates,
			annotations: tracked("shop", "eu-1")}, "settings lock", "", ""},
		"prepared": {fixture{method: byBoth, id: "eu-1", labels: byShop, policy: automates,
			annotations: tracked("shop", "eu-1"), locked: true}, "", "", ""},
		"changed by hand in the wrong order": {fixture{method: byAnnotation, id: "eu-1",
			labels: byShop, policy: automates, locked: true}, "annotate", "", ""},
		"by annotation without an installationID": {fixture{method: byAnnotation,
			policy: automates, annotations: map[string]string{
				trackingID: "shop:/ConfigMap:web/one"}},
			"pause annotate settings resume lock", "", ""},
		"the same, without automation": {
			fixture{method: byAnnotation, annotations: map[string]string{
				trackingID: "shop:/ConfigMap:web/one"}}, "annotate settings lock", "", ""},
		"interrupted after the settings": {fixture{method: byAnnotation, id: "eu-1", locked: true,
			at:          `"argosy.dev/paused-automation": "{}"`,
			annotations: tracked("shop", "eu-1")}, "resume", "", ""},
		"a resource of another": {fixture{method: byLabel, locked: true, labels: map[string]string{
			"app.kubernetes.io/instance": "cart"}}, "settings", "", ""},
		"in project default": {fixture{method: byBoth, id: "eu-1", project: "default",
			annotations: tracked("shop", "eu-1")}, "", "", "1 Application is in it: argocd/shop"},

		"an ApplicationSet restores what must pause": {fixture{method: byAnnotation, set: "all",
			policy: automates, annotations: map[string]string{trackingID: "shop:a/b:c/d"}}, "*",
			"ApplicationSet all restores the automation of Application argocd/shop", ""},
		"an ApplicationSet, and no pause": {fixture{method: byLabel, set: "all", policy: automates,
			labels: byShop, locked: true}, "annotate settings", "", ""},
		"another Argo CD": {fixture{method: byLabel, labels: byShop,
			annotations: tracked("shop", "us-1")}, "*", `installation-id "us-1"`, ""},
		"another Application": {fixture{method: byLabel, labels: byShop,
			annotations: tracked("cart", "")}, "*", `tracking-id "cart:`, ""},
		"no comparison": {fixture{method: byLabel, sync: "Unknown"}, "*",
			"--leave-out argocd/shop", ""},
		"left out": {fixture{method: byLabel, sync: "Unknown", locked: true,
			change: func(a *application) { a.leftOut, a.resources = true, nil }}, "settings", "",
			""},
		"left out with automation": {fixture{method: byLabel, policy: automates,
			change: func(a *application) { a.leftOut = true }}, "*",
			"is left out and has automation", ""},
		"Argo CD deploys its own settings": {fixture{method: byLabel, labels: byShop,
			policy: automates, annotations: tracked("shop", "eu-1"), change: deploys("ConfigMap")},
			"*", "set application.resourceTrackingMethod: annotation+label and installationID: " +
				"eu-1 in its repository", ""},
		"the same, before the annotations": {fixture{method: byLabel, labels: byShop,
			policy: automates, change: deploys("ConfigMap")}, "annotate settings lock", "",
			"the command stops before it changes it"},
		"Argo CD deploys its own project": {fixture{method: byBoth, id: "eu-1", labels: byShop,
			policy: automates, annotations: tracked("shop", "eu-1"),
			change: deploys("AppProject")}, "", "", "argocd/shop deploys it"},
		"syncing": {fixture{method: byLabel, change: func(a *application) {
			a.object.Object["operation"] = map[string]any{}
		}}, "*", "argocd/shop is syncing", ""},
		"being deleted": {fixture{method: byLabel, change: func(a *application) {
			now := metav1.Now()
			a.object.SetDeletionTimestamp(&now)
		}}, "*", "argocd/shop is being deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.fixture.state(t).next("eu-1", "eu-1")
			if got := verbs(p.steps); got != c.steps && c.steps != "*" {
				t.Errorf("steps are %q, want %q", got, c.steps)
			}
			if got := strings.Join(p.blockers, "; "); (got == "") != (c.blocked == "") ||
				!strings.Contains(got, c.blocked) {
				t.Errorf("blockers are %q, want %q", got, c.blocked)
			}
			if got := strings.Join(p.notes, "; "); !strings.Contains(got, c.note) {
				t.Errorf("notes are %q, want %q", got, c.note)
			}
		})
	}
}

func TestTheTrackingAnnotationIsTheOneThatArgoCDWrites(t *testing.T) {
	for namespace, want := range map[string][]string{
		"argocd": {"shop:/ConfigMap:web/one",
			"shop:rbac.authorization.k8s.io/ClusterRole:web/role"},
		"team-a": {"team-a_shop:/ConfigMap:web/one",
			"team-a_shop:rbac.authorization.k8s.io/ClusterRole:web/role"},
	} {
		s := fixture{method: byLabel, namespace: namespace}.state(t)
		var got []string
		for _, r := range s.apps[0].resources {
			got = append(got, s.apps[0].tracking(r))
		}
		if !slices.Equal(got, want) {
			t.Errorf("in namespace %s: %q, want %q", namespace, got, want)
		}
	}
}

func TestAnUndoFollowsFromTheLiveState(t *testing.T) {
	wasLabel := map[string]string{beforePrepare: fmt.Sprintf(`{%q:"label",%q:null}`, methodKey,
		installationKey)}
	for name, c := range map[string]struct {
		fixture
		steps, blocked, note string
	}{
		"prepared": {fixture{method: byBoth, id: "eu-1", settings: wasLabel, policy: automates,
			annotations: tracked("shop", "eu-1")}, "pause strip reset resume", "", ""},
		"interrupted after the settings": {fixture{method: byLabel, labels: byShop,
			at: `"argosy.dev/paused-automation": "{}"`, annotations: tracked("shop", "eu-1")},
			"strip resume", "", ""},
		"interrupted before the settings": {fixture{method: byAnnotation,
			at: `"argosy.dev/paused-automation": "{}"`, annotations: tracked("shop", "eu-1")}, "*",
			"finish it with `argosy prepare eu-1`", ""},
		"interrupted before the end": {fixture{method: byAnnotation,
			at: `"argosy.dev/paused-automation": "{}"`, annotations: tracked("shop", "")}, "resume",
			"", ""},
		"never prepared": {fixture{method: byAnnotation, id: "eu-1"}, "", "", "nothing to undo"},
		"in use": {fixture{method: byBoth, id: "eu-1", settings: wasLabel,
			change: func(a *application) {
				a.object.SetLabels(map[string]string{"argosy.dev/tenant": "acme"})
			}}, "*", "argocd/shop belongs to Argosy", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.fixture.state(t).back("eu-1", "eu-1")
			if err != nil {
				t.Fatal(err)
			}
			if got := verbs(p.steps); got != c.steps && c.steps != "*" {
				t.Errorf("steps are %q, want %q", got, c.steps)
			}
			if got := strings.Join(p.blockers, "; "); (got == "") != (c.blocked == "") ||
				!strings.Contains(got, c.blocked) {
				t.Errorf("blockers are %q, want %q", got, c.blocked)
			}
			if got := strings.Join(p.notes, "; "); !strings.Contains(got, c.note) {
				t.Errorf("notes are %q, want %q", got, c.note)
			}
		})
	}
	broken := fixture{method: byBoth, id: "eu-1", settings: map[string]string{beforePrepare: "{"}}
	if _, err := broken.state(t).back("eu-1", "eu-1"); err == nil {
		t.Error("an unreadable record is taken for none")
	}
}

func TestDamageOfAStepIsFound(t *testing.T) {
	good := fixture{method: byBoth, id: "eu-1", policy: automates,
		annotations: tracked("shop", "eu-1")}
	for name, c := range map[string]struct {
		change  func(*fixture)
		between bool
		want    string
	}{
		"nothing": {func(*fixture) {}, false, ""},
		"OutOfSync": {func(f *fixture) { f.sync = "OutOfSync" }, false,
			"was Synced and is OutOfSync at the same revision: ConfigMap web/one"},
		"OutOfSync at a new revision": {func(f *fixture) {
			f.sync = "OutOfSync"
			f.change = func(a *application) {
				_ = unstructured.SetNestedField(a.object.Object, "def", "status", "sync",
					"revision")
			}
		}, false, ""},
		"a sync": {func(f *fixture) {
			f.change = func(a *application) {
				_ = unstructured.SetNestedField(a.object.Object, "2026-01-02T00:00:00Z", "status",
					"operationState", "startedAt")
			}
		}, true, "began a sync"},
		"untracked": {func(f *fixture) { f.annotations = tracked("shop", "") }, true,
			"no longer tracks ConfigMap web/one"},
		"untracked while no automation is on": {func(f *fixture) {
			f.annotations, f.policy = tracked("shop", ""), ""
		}, true, ""},
		"untracked at the end": {func(f *fixture) {
			f.annotations, f.policy = tracked("shop", ""), ""
		}, false, "no longer tracks"},
	} {
		t.Run(name, func(t *testing.T) {
			after := good
			c.change(&after)
			got := strings.Join(after.state(t).damage(good.state(t).baseline(), c.between), "; ")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("damage is %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnUndoCorrectsTheConfigurationThatWasAppliedLast(t *testing.T) {
	names := map[string]any{trackingID: nil, installationID: nil}
	for text, want := range map[string]string{
		`{"metadata":{"annotations":{"` + trackingID + `":"a"},"name":"b"},"n":1}`: "" +
			`{"metadata":{"name":"b"},"n":1}`,
		`{"metadata":{"annotations":{"` + installationID + `":"a","x":"y"}}}`: "" +
			`{"metadata":{"annotations":{"x":"y"}}}`,
		`{"metadata":{"annotations":{"x":"y"}}}`: "",
		`{"metadata":{}}`:                        "", `{`: "", ``: "", `[]`: "",
	} {
		if got, changed := withoutAnnotations(text, names); got != want || changed != (want != "") {
			t.Errorf("%s gives %q", text, got)
		}
	}
}

func TestClusterSecretsGiveConnections(t *testing.T) {
	for text, want := range map[string]string{
		`{"bearerToken":"t","tlsClientConfig":{"caData":"Y2E="}}`: "",
		`{"username":"a","password":"b"}`:                         "",
		`{}`:                                                      "no credential",
		`{`:                                                       "not JSON",
		`{"execProviderConfig":{"command":"aws"}}`:  "program",
		`{"awsAuthConfig":{"clusterName":"a"}}`:     "program",
		`{"bearerToken":"t","proxyUrl":"http://p"}`: "proxy",
	} {
		config, err := restConfig("https://a.example.com", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err == nil && config.Host != "https://a.example.com" {
			t.Errorf("%s: host %s", text, config.Host)
		}
	}
	if got := serverURL("https://a.example.com/?managedEnvironment=x"); got !=
		"https://a.example.com" {
		t.Errorf("got %s", got)
	}
}
