package configschema

import (
	"errors"
	"reflect"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/policy"
)

var (
	formatExpression = &format{code: codeExpression, what: "an expression in CEL (https://cel.dev)",
		check: func(string) error { return nil }}
	formatSentence = &format{code: codeInvalidValue, what: "one line of text",
		pattern: `^[^\n]*$`, check: checkSentence}
	formatField = &format{code: codeInvalidValue,
		what: "the path of a field of the declaration, e.g. spec.overrides[0].source or " +
			"metadata.labels.team",
		pattern: `^[A-Za-z]`, check: checkFieldPath}
)

var kindPolicy = describe(kind{
	name: fleet.KindPolicy, place: "fleet/policies/<name>.yaml",
	doc: "A rule over what tenants declare, beyond what the kinds themselves demand. What " +
		"breaks it is quarantined alone, or told as a warning.",
}, object(
	field{
		name: "kinds",
		doc: "The kinds of declarations that it judges: `ManagedEnvironment`, " +
			"`GitOpsDeployment`, `RepositoryCredential`, `SyncRun`.", example: "[GitOpsDeployment]",
		required: true, value: listOf(wordOf(policedKinds()...))},
	field{name: "tenants", doc: "Whose declarations it judges. Left out: every tenant's.",
		example: "[acme]", value: listOf(textOf(formatName))},
	field{
		name: "severity",
		doc:  "`error` keeps a declaration that breaks it from taking effect, `warning` tells of it.", example: "error", fallback: "error",
		value: wordOf(string(fleet.SeverityError), string(fleet.SeverityWarning))},
	field{
		name: "rule",
		doc: "What must hold. It sees `declaration` (the file: kind, metadata, spec), its " +
			"`tenant` (name, labels and the fields of the Tenant's spec), `path`, and of a " +
			"deployment " +
			"`environments` (those that it reaches: name, labels and the fields of their spec) and " +
			"`applications` (what it is in each: environment, namespace, source, sync, " +
			"deletionPolicy; overrides and defaults resolved). " +
			"What is left out reads as \"\", false, 0 or []; has() tells.",
		example: `'!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")'`, required: true, value: textOf(formatExpression).atMost(4096)},
	field{name: "message", doc: "What is told when it does not hold.",
		example: "deployments to prod name their revision",
		value:   textOf(formatSentence).atMost(300)},
	field{name: "messageExpression",
		doc:     "The same as an expression that gives a text, over what the rule sees.",
		example: `'"deployments of " + tenant.name + " name a fixed revision"'`,
		value:   textOf(formatExpression).atMost(4096)},
	field{name: "fix", doc: "What to write instead.", example: "write a tag or a commit",
		value: textOf(formatSentence).atMost(300)},
	field{
		name: "field",
		doc: "The field whose line is shown; when the file does not write it, the nearest " +
			"above it.", example: "spec.source.targetRevision", value: textOf(formatField)},
).exactlyOneOf("message", "messageExpression").not(map[string]word{
	"expression": {codeUnknownField, "what must hold is written as rule",
		"use rule: '<expression>'"},
	"validations": {codeUnknownField, "a policy has one rule",
		"write one policy for each, with rule and message"},
	"match": {codeUnknownField, "what is judged is written as kinds and tenants",
		"use kinds: [GitOpsDeployment]"},
}).checked(compiles), func(d *fleet.Declaration, s *fleet.PolicySpec) { d.Policy = s })

func policedKinds() []string {
	var names []string
	for _, k := range fleet.PolicedKinds() {
		names = append(names, string(k))
	}
	return names
}

func checkSentence(s string) error {
	if strings.ContainsAny(s, "\r\n") {
		return errors.New("the text has several lines")
	}
	return nil
}

// checkFieldPath demands a path that Locate reads; whether there is such a field is for the
// policy's kinds to say.
func checkFieldPath(s string) error {
	for rest := s; rest != ""; {
		var ok bool
		if _, rest, ok = nextStep(rest); !ok {
			return errors.New("the text is no path of a field")
		}
	}
	return nil
}

// compiles tells what is wrong with the expressions, at the place in the file where each mistake
// stands.
func compiles(d *decoder, into reflect.Value, at node) {
	for _, f := range policy.Check(into.Addr().Interface().(*fleet.PolicySpec)) {
		n := child(at, f.In)
		place := *n
		place.Line, place.Column = within(d.bytes, n, f.Line, f.Column)
		code := codeExpression
		if f.In == "field" {
			code = codeInvalidValue
		}
		d.at(f.In, func() { d.problem(&place, code, f.Message, f.Fix) })
	}
}
