package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A deployment's texts may hold variables, which Argosy replaces for each environment:
//
//	${environment.name}  ${environment.region}  ${environment.labels.<label>}
//	${environment.variables.<name>}
//	${cluster.name}  ${deployment.name}  ${tenant.name}
//
// The value of a variable is the name, region or label of a declaration: letters, digits, '-', '_'
// and '.'; or a value of the environment's own variables: see CheckVariableValue. It is not
// expanded again.

// VariableNames are the variables as a message lists them.
const VariableNames = "${environment.name}, ${environment.region}, " +
	"${environment.labels.<label>}, ${environment.variables.<name>}, ${cluster.name}, " +
	"${deployment.name}, ${tenant.name}"

// variable matches a variable, or an escaped one, which has one more '$' in front.
var variable = regexp.MustCompile(`\$?\$\{(environment\.name|environment\.region|` +
	`environment\.(?:labels|variables)\.[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?|` +
	`cluster\.name|deployment\.name|tenant\.name)\}`)

const (
	labelVariable = "environment.labels."
	ownVariable   = "environment.variables."
)

// MaxVariableValue is the most bytes of a value of an environment's variables.
const MaxVariableValue = 1024

// variableName is the form of the name of an environment's variable: that of a label's key, so that
// annotations of a cluster keep their keys.
var variableName = regexp.MustCompile(`^[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?$`)

// CheckVariableName reports why s may not name a variable of an environment, or nil.
func CheckVariableName(s string) error {
	if len(s) > 253 || !variableName.MatchString(s) {
		return errors.New("a variable's name is at most 253 letters, digits, '-', '_', '.' and " +
			"'/', beginning and ending with a letter or digit")
	}
	return nil
}

// CheckVariableValue reports why s may not be the value of an environment's variable, or nil. A
// value stays one plain scalar wherever YAML has one, and holds no "${".
func CheckVariableValue(s string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	for i, r := range s {
		switch {
		case plain(r) || strings.ContainsRune("_./", r):
		case i == 0 || !strings.ContainsRune("-:@+=,", r):
			return errors.New("a variable's value is letters, digits and any of _ . / - : @ + = , " +
				"and does not begin with one of the last six")
		}
	}
	if strings.HasSuffix(s, ":") {
		return errors.New("a variable's value does not end in ':'")
	}
	return nil
}

// HasVariables reports whether a text holds a variable.
func HasVariables(s string) bool {
	if !strings.Contains(s, "${") {
		return false
	}
	for _, found := range variable.FindAllString(s, -1) {
		if !strings.HasPrefix(found, "$$") {
			return true
		}
	}
	return false
}

// CheckVariables returns the offset and the text of the first "${" of a text that begins no
// variable, with "" if there is none. Fields other than values may hold no other "${".
func CheckVariables(s string) (offset int, found string) {
	for at := 0; ; {
		i := strings.Index(s[at:], "${")
		if i < 0 {
			return 0, ""
		}
		at += i
		if m := variable.FindStringIndex(s[at:]); m != nil && m[0] == 0 {
			at += m[1]
			continue
		}
		rest := s[at:]
		if end := strings.IndexByte(rest, '}'); end >= 0 {
			rest = rest[:end+1]
		}
		return at, rest
	}
}

// SampleVariables returns the text with a letter in place of each variable: the text has the form
// that its field demands if the sample has it, for values that do not break the form.
func SampleVariables(s string) string {
	return variable.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			return found // no field but values has an escape
		}
		return "a"
	})
}

// scope is where variables get their values: a deployment in an environment.
type scope struct {
	deployment Key
	env        *Declaration
}

func (sc scope) value(name string) (string, error) {
	switch name {
	case "cluster.name":
		if c := sc.env.Environment.Cluster; c != nil && c.Ref != "" {
			return string(c.Ref), nil
		}
		return sc.env.Key.Name, nil
	case "environment.name":
		return sc.env.Key.Name, nil
	case "environment.region":
		return sc.env.Environment.Region, nil
	case "deployment.name":
		return sc.deployment.Name, nil
	case "tenant.name":
		return string(sc.env.Key.Tenant), nil
	}
	if own, ok := strings.CutPrefix(name, ownVariable); ok {
		v, ok := sc.env.Environment.Variables[own]
		if !ok {
			return "", fmt.Errorf("environment %q has no variable %q", sc.env.Key.Name, own)
		}
		return v, nil
	}
	label := strings.TrimPrefix(name, labelVariable)
	v, ok := sc.env.Labels[label]
	if !ok {
		return "", fmt.Errorf("environment %q has no label %q", sc.env.Key.Name, label)
	}
	return v, nil
}

// expand replaces the variables of a text. "$${environment.name}" is the text
// "${environment.name}"; a "${" that begins no variable stays as it is. An error names the first
// variable without a value; it stays as well.
func (sc scope) expand(s string) (string, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	var missing error
	out := variable.ReplaceAllStringFunc(s, func(found string) string {
		if rest, escaped := strings.CutPrefix(found, "$$"); escaped {
			return "$" + rest
		}
		v, err := sc.value(found[len("${") : len(found)-1])
		if err != nil {
			if missing == nil {
				missing = err
			}
			return found
		}
		return v
	})
	return out, missing
}
