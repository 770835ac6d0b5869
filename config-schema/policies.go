package configschema

import (
	"errors"
	"reflect"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/policy"
)

var kindPolicy = describe(kind{
	name: fleet.KindPolicy, place: "fleet/policies/<name>.yaml",
	doc: "A rule over tenants' declarations, beyond the rules of the kinds themselves. Only the " +
		"declaration that breaks it is quarantined, or gets a warning.",
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
		doc: "`error` keeps a declaration that breaks the rule from taking effect, `warning` " +
			"only reports it.", example: "error", fallback: "error",
		value: wordOf(string(fleet.SeverityError), string(fleet.SeverityWarning))},
	field{
		name: "rule",
		doc: "What must hold. It sees `declaration` (the file: kind, metadata, spec), its " +
			"`tenant` (name, labels and the fields of the Tenant's spec), `path`, and of a " +
			"deployment " +
			"`environments` (that it reaches: name, labels and the fields of their spec) and " +
			"`applications` (one for each, and of several sources one for each source: " +
			"environment, namespace, source, sync, deletionPolicy; overrides and defaults " +
			"resolved). " +
			"An omitted field reads as \"\", false, 0 or []; has() tests for it.",
		example: `'!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")'`, required: true, value: textOf(formatExpression).atMost(4096)},
	field{name: "message", doc: "Message for a declaration that breaks the rule.",
		example: "deployments to prod name their revision",
		value:   textOf(formatSentence).atMost(300)},
	field{
		name:    "messageExpression",
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
	"validations": {
		codeUnknownField, "a policy has one rule",
		"write one policy for each, with rule and message"},
	"match": {codeUnknownField, "kinds and tenants choose the declarations",
		"use kinds: [GitOpsDeployment]"},
}).checked(compiles), func(d *fleet.Declaration, s *fleet.PolicySpec) { d.Policy = s })

func policedKinds() []string {
	var names []string
	for _, k := range fleet.PolicedKinds() {
		names = append(names, string(k))
	}
	return names
}

var (
	formatExpression = &format{code: codeExpression, what: "an expression in CEL (https://cel.dev)",
		check: func(string) error { return nil }}
	formatSentence = &format{code: codeInvalidValue, what: "one line of text",
		pattern: `^[^\n]*$`, check: checkSentence}
	formatField = &format{
		code: codeInvalidValue,
		what: "the path of a field of the declaration, e.g. spec.overrides[0].source or " +
			"metadata.labels.team",
		pattern: `^[A-Za-z]`, check: checkFieldPath}
)

func checkSentence(s string) error {
	if strings.ContainsAny(s, "\r\n") {
		return errors.New("the text has several lines")
	}
	return nil
}

// checkFieldPath demands a path that Locate can read. It does not check that the policy's kinds
// have the field.
func checkFieldPath(s string) error {
	for rest := s; rest != ""; {
		var ok bool
		if _, rest, ok = nextStep(rest); !ok {
			return errors.New("the text is no path of a field")
		}
	}
	return nil
}

// compiles reports errors of the expressions, each at its position in the file.
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
