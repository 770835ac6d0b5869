// Package configschema turns the files of a config repo into declarations, and into problems that a
// person can mend.
//
// It holds the kinds' descriptions: one declarative description per kind (kind_*.go) says for each
// field its meaning, type, bounds and rule. The strict decoder, the JSON Schemas, the reference
// page and the templates are all made from it, so that they cannot disagree.
//
// Rules of this package:
//   - bytes in, values out: no I/O, and no answer depends on anything but the arguments;
//   - one decode feeds everyone: validate, plan, the reconciler and the database read what Decode returned and nothing else;
//   - the path is the identity; what a file says of itself must agree with it;
//   - strict: an unknown field, a blank, a coerced type or a feature of YAML that one does not see (anchors, merges, tags) is an error;
//   - all problems of a file are told at once, each with line, column, code, message and what to write instead;
//   - no message repeats a value that may be a secret;
//   - no input makes it panic, and its cost is bounded by the caps of limits.go.
package configschema

//go:generate go run ./generate
