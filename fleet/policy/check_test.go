package policy

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAMistakeHasItsPositionAndAFix(t *testing.T) {
	for _, c := range []struct {
		rule          string
		line, column  int
		message, hint string
	}{
		{`declration.spec.source.path == ""`, 1, 1, `there is no variable or function "declration"`,
			"did you mean declaration?"},
		{`declaration.spec.source.targetRevison != "HEAD"`, 1, 25,
			`there is no field "targetRevison" in Source`, "did you mean targetRevision?"},
		{"true &&\n  environments.all(e, e.lables.tier == \"prod\")", 2, 25,
			`there is no field "lables" in Environment`, "did you mean labels?"},
		{`environments.all(e, e.server != "")`, 1, 23, `there is no field "server" in Environment`,
			"fields here: name, labels, cluster"},
		{`declaration.spec.source.targetRevision != 3`, 1, 40,
			`!= cannot be applied to (string, int)`, "fix the types"},
		{`tenant.name.startWith("a")`, 1, 22, `there is no variable or function "startWith"`,
			"did you mean startsWith?"},
		{`declaration.metadata.name.first == ""`, 1, 26, "a string has no fields",
			"use a function on it"},
		{`declaration.metadata.name`, 0, 0, "the expression gives a text, not a boolean",
			"write what must hold"},
		{`1 + 2`, 0, 0, "the expression gives a number, not a boolean", "write what must hold"},
		{`true &&`, 1, 8, "the expression is not CEL: mismatched input the end",
			"see https://cel.dev"},
		{`"a".matches("(")`, 1, 13, "invalid matches argument", "see https://cel.dev"},
		{`dyn(tenant).anything == 1`, 1, 4, `there is no variable or function "dyn"`,
			"variables: declaration, tenant"},
		{`timestamp("2020-01-01T00:00:00Z") < timestamp("2021-01-01T00:00:00Z")`, 1, 10,
			`there is no variable or function "timestamp"`, "variables: "},
		{`declaration.metadata.labels == {"a": "b"}`, 1, 29,
			"objects and maps are not compared as a whole", "compare their fields"},
		{`{"a": "b"} in [declaration.metadata.labels]`, 1, 12,
			"objects and maps are not compared as a whole", "compare their fields"},
		{`environments[0] == environments[1]`, 1, 17,
			"objects and maps are not compared as a whole", "compare their fields"},
		{`Source{path: "x"}.path == "x"`, 1, 7, "a rule cannot create objects", "use the fields"},
		{`[1, "a"].size() == 2`, 1, 5, "expected type 'int' but found 'string'",
			"see https://cel.dev"},
		{`environments.all(a, environments.all(b, environments.all(c, environments.all(d, true))))`,
			1, 77, "loops are nested deeper than 3", "nest fewer loops"},
	} {
		faults := Check(&fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
			Rule: c.rule, Message: "m"})
		if len(faults) == 0 {
			t.Errorf("%s: no mistake", c.rule)
			continue
		}
		f := faults[0]
		if f.In != "rule" || f.Line != c.line || f.Column != c.column ||
			!strings.Contains(f.Message, c.message) || !strings.Contains(f.Fix, c.hint) {
			t.Errorf("%s\n  got  %d:%d %s (%s)\n  want %d:%d %s (%s)", c.rule, f.Line, f.Column,
				f.Message, f.Fix, c.line, c.column, c.message, c.hint)
		}
	}
}

func TestAPolicyIsCompiledForEachOfItsKinds(t *testing.T) {
	p := &fleet.PolicySpec{
		Kinds: []fleet.Kind{fleet.KindGitOpsDeployment, fleet.KindManagedEnvironment},
		Rule:  `declaration.spec.region == "eu"`, Message: "m", Field: "spec.region"}
	faults := Check(p)
	if len(faults) != 2 || !strings.HasPrefix(faults[0].Message,
		`of a GitOpsDeployment: there is no field "region"`) || faults[1].In != "field" {
		t.Errorf("a field of one kind only: %+v", faults)
	}
	p.Rule, p.Field = `declaration.metadata.labels.team != ""`, "metadata.labels"
	if faults := Check(p); len(faults) > 0 {
		t.Errorf("what both have: %+v", faults)
	}
	p.MessageExpression = "1"
	if faults := Check(p); len(faults) != 1 || faults[0].In != "messageExpression" ||
		faults[0].Message != "the expression gives a number, not a text" {
		t.Errorf("a message that is a number: %+v", faults)
	}
}

func TestAPolicysFieldIsOneOfItsKinds(t *testing.T) {
	for path, want := range map[string]string{
		"spec.source.targetRevision":         "",
		"spec.overrides[0].source":           "",
		"spec.overrides":                     "",
		"metadata.labels":                    "",
		"metadata.labels.team":               "",
		`metadata.labels["example.com/x"]`:   "",
		"spec.source.targetRevison":          "did you mean targetRevision?",
		"spec.source.targetRevision.x":       "name the field above it",
		"spec.overrides.source":              "name the field above it",
		"spec.source[0]":                     "name the field above it",
		"metadata.labels.team.x":             "name the field above it",
		"spec..source":                       "write it as",
		"spec.destination.environments[x]":   "write it as",
		"spec.destination.environments[0].x": "name the field above it",
	} {
		faults := Check(&fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
			Rule: "true", Message: "m", Field: path})
		switch {
		case want == "" && len(faults) > 0:
			t.Errorf("%s: %+v", path, faults)
		case want != "" && (len(faults) != 1 || !strings.Contains(faults[0].Fix, want)):
			t.Errorf("%s: %+v, want %q", path, faults, want)
		}
	}
}
