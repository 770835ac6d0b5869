package adoption

import (
	"strings"
	"testing"
)

const application = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: NAME, namespace: argocd}
spec:
  project: default
  source: {repoURL: "https://git.example.com/acme/app", path: deploy, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: app}
`

func named(name string) string { return strings.Replace(application, "NAME", name, 1) }

func TestABrokenDocumentCostsOnlyItself(t *testing.T) {
	t.Parallel()
	found, refused := Read("apps.yaml", []byte(named("first")+"---\n"+
		"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: broken\n"+
		"spec: {{ .Values.spec }}\n---\n"+named("last")))
	if len(found) != 2 || found[0].Name != "first" || found[1].Name != "last" {
		t.Errorf("found %v", found)
	}
	if len(refused) != 1 || refused[0].Name != "broken" || refused[0].Status != Refused ||
		!strings.Contains(refused[0].Reason, "it is a template") {
		t.Errorf("refused %+v", refused)
	}
}

func TestListsAndJSONAreRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"List": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: argoproj.io/v1alpha1\n" +
			"  kind: Application\n  metadata: {name: a}\n- {apiVersion: v1, kind: ConfigMap}\n",
		"ApplicationList": "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationList\n" +
			"items:\n- metadata: {name: a}\n",
		"JSON": `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a"}}`,
		"another kind beside it": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n" +
			"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\n",
	} {
		found, refused := Read("x", []byte(text))
		if len(found) != 1 || found[0].Name != "a" || found[0].Kind != KindApplication ||
			len(refused) != 0 {
			t.Errorf("%s: %v, %v", name, found, refused)
		}
	}
}

func TestOnlySecretsOfArgoCDAreRead(t *testing.T) {
	t.Parallel()
	found, _ := Read("x", []byte("apiVersion: v1\nkind: Secret\nmetadata:\n  name: prod\n"+
		"  labels: {argocd.argoproj.io/secret-type: cluster}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: argoproj.io}\n"))
	if len(found) != 1 || found[0].Name != "prod" {
		t.Errorf("found %v", found)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{named("a"), named("a") + "---\n" + named("b"),
		"kind: Application\n# argoproj.io\nspec: {{ x }}", "- argoproj.io\n- [}",
		"argoproj.io: &a [*a]",
		`{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationList","items":[{"items":[]}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		found, refused := Read("fuzz.yaml", text)
		for _, o := range found {
			if o.Kind == "" || o.Object == nil {
				t.Errorf("an original without kind or object: %+v", o)
			}
		}
		for _, r := range refused {
			if r.Status != Refused || r.Reason == "" {
				t.Errorf("a refusal without reason: %+v", r)
			}
		}
	})
}
