package adoption

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func deploymentDraft() *draft {
	d := newDraft(fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: "acme", Name: "app"})
	d.set("spec.source.repoURL", "https://git.example.com/acme/app")
	d.set("spec.source.path", "deploy")
	d.set("spec.source.targetRevision", "main")
	d.set("spec.destination.environments", []any{"prod"})
	d.set("spec.destination.namespace", "app")
	return d
}

func TestAFieldThatTheSchemaLacksIsRemovedWithItsReason(t *testing.T) {
	t.Parallel()
	d := deploymentDraft()
	d.set("spec.nonsense.of", "a later version")
	d.set(`metadata.labels["kubernetes.io/part"]`, "x")
	d.fit()
	if d.refusal != "" || d.has("spec.nonsense") || d.has("metadata.labels") {
		t.Errorf("refusal %q, document %v", d.refusal, d.document)
	}
	if why := d.reason("spec.nonsense.of"); !strings.HasSuffix(why,
		"; see https://argosy.dev/docs/config-reference.md#gitopsdeployment") {
		t.Errorf("the removal has the reason %q", why)
	}
}

func TestTheNextSpellingReplacesARefusedOne(t *testing.T) {
	t.Parallel()
	d := deploymentDraft()
	d.set("spec.source.repoURL", "https://GIT.example.com/acme/app/",
		spellingsOf("https://GIT.example.com/acme/app/")...)
	d.fit()
	if got := text(d.document, "spec", "source", "repoURL"); d.refusal != "" ||
		got != "https://git.example.com/acme/app" {
		t.Errorf("%q, refusal %q", got, d.refusal)
	}
}

func TestAMissingPartRefusesTheDeclarationWithTheFirstReason(t *testing.T) {
	t.Parallel()
	d := deploymentDraft()
	d.set("spec.source.repoURL", "file:///etc/passwd")
	d.fit()
	if !strings.HasPrefix(d.refusal, "spec.source.repoURL: ") ||
		!strings.HasSuffix(d.refusal, "config-reference.md#gitopsdeployment") {
		t.Errorf("refusal %q", d.refusal)
	}
}

func TestAnOptionalObjectWithAMissingPartIsRemoved(t *testing.T) {
	t.Parallel()
	d := deploymentDraft()
	d.set("spec.source.helm.parameters", []any{map[string]any{"value": "without a name"}})
	d.fit()
	if d.refusal != "" || d.has("spec.source.helm") {
		t.Errorf("refusal %q, document %v", d.refusal, d.document)
	}
}

func TestStepsOfAField(t *testing.T) {
	t.Parallel()
	for field, want := range map[string][]string{
		"spec.source":                         {"spec", "source"},
		"spec.sources[1].helm":                {"spec", "sources", "[1]", "helm"},
		`metadata.labels["example.com/x.y"]`:  {"metadata", "labels", "example.com/x.y"},
		`metadata.labels["example.com/x"].of`: {"metadata", "labels", "example.com/x", "of"},
	} {
		if got := steps(field); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}

func TestNamesOfDeclarations(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"checkout": "checkout", "Check_Out.App": "check-out-app", "default": "default-app",
		"--": "app", strings.Repeat("a", 80): strings.Repeat("a", 63),
	} {
		if got := validName(in, "app"); got != want || fleet.ValidateName(got) != nil {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestDifferencesOfTwoTrees(t *testing.T) {
	t.Parallel()
	from := map[string]any{"a": "1", "l": []any{"x", "y"}, "m": map[string]any{"gone": true},
		"syncOptions": []any{"A=true", "B=true"}}
	to := map[string]any{"a": "2", "l": []any{"x"}, "syncOptions": []any{"B=true"}, "new": "n"}
	var diffs []Difference
	diff("spec", from, to, &diffs)
	var paths []string
	for _, d := range diffs {
		paths = append(paths, d.Path)
	}
	want := []string{"spec.a", "spec.l[1]", "spec.m.gone", "spec.new", "spec.syncOptions[A=true]"}
	if !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
}

// A secret in clear refuses the declaration: no difference repeats it.
func TestASecretInClearRefusesTheDeclaration(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]any{
		"spec.source.helm.values": "password: hunter22-hunter22\n",
		"spec.source.helm.parameters": []any{map[string]any{"name": "db.password",
			"value": "hunter22-hunter22"}},
	} {
		d := deploymentDraft()
		d.set(field, value)
		d.fit()
		if d.refusal == "" || strings.Contains(d.refusal, "hunter22") {
			t.Errorf("%s: refusal %q", field, d.refusal)
		}
	}
}
