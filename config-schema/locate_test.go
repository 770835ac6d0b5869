package configschema

import "testing"

func TestLocateFindsFieldsAndTheNearestAboveWhatIsMissing(t *testing.T) {
	text := []byte(`# a comment
apiVersion: argosy.dev/v1alpha1
metadata:
  name: checkout
  labels:
    example.com/team: payments
spec:
  destination:
    environments: [staging, prod-eu]
  overrides:
    - environment: staging
      source: {targetRevision: main}
    - environment: ünï
      source:
        path: x
`)
	for field, want := range map[string][2]int{
		"": {2, 1}, "metadata.name": {4, 9}, "metadata.labels[\"example.com/team\"]": {6, 23},
		"spec.destination.environments":    {9, 19},
		"spec.destination.environments[1]": {9, 29}, "spec.destination.environments[7]": {9, 19},
		"spec.destination.namespace":    {9, 5},
		"spec.overrides[1].source.path": {15, 15}, "spec.overrides[0].source.targetRevision": {
			12, 32}, "spec.nothing.at.all": {8, 3},
		"metadata.name[0]": {4, 9}, "spec..destination": {8, 3}, "spec.overrides[x]": {11, 5},
		"spec.overrides[-1]": {11, 5}, "[": {2, 1}, "spec.overrides[\"": {11, 5},
	} {
		if line, column := Locate(text, field); line != want[0] || column != want[1] {
			t.Errorf("%q is at %d:%d, want %d:%d", field, line, column, want[0], want[1])
		}
	}
	for _, broken := range []string{"", "a: [", "\x00", "# nothing"} {
		if line, column := Locate([]byte(broken), "spec"); line != 1 || column != 1 {
			t.Errorf("%q: %d:%d", broken, line, column)
		}
	}
}

func TestLocateAgreesWithTheDecoder(t *testing.T) {
	text := []byte(
		"apiVersion: x\nkind: GitOpsDeployment\nmetadata:\n  name: '*'\n  labels: " +
			"{\"example.com/x\": \"\", z: \"a b\"}\nspec:\n  source: {repoURL: '*', path: /, " +
			"targetRevision: 5}\n  destination:\n    environments: [a, '*', '']\n    namespace: '*'\n")
	problems := Decode(File{Path: deploymentPath, Bytes: text}).Problems
	if len(problems) < 9 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	for _, p := range problems {
		if line, column := Locate(text, p.Field); line != p.Line || column != p.Column {
			t.Errorf("%s: the decoder reports %d:%d, Locate %d:%d", p.Field, p.Line, p.Column, line,
				column)
		}
	}
}
