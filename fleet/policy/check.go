package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"

	"argosy.dev/argosy/fleet"
)

// Fault is an error in a policy.
type Fault struct {
	In           string // the field of its spec: rule, messageExpression, field
	Line, Column int    // within that text, both from 1; 0: the whole
	Message, Fix string
}

// Check compiles a policy's expressions for each of its kinds, and checks that its field exists in
// one of them. No fault means that the policy can be evaluated.
func Check(p *fleet.PolicySpec) []Fault {
	var faults []Fault
	kinds, of := slices.DeleteFunc(slices.Clone(p.Kinds), func(k fleet.Kind) bool {
		return shapes.kinds[k] == nil
	}), map[Fault][]fleet.Kind{}
	for _, kind := range kinds {
		for _, f := range faultsOf(p, kind) {
			if of[f] == nil {
				faults = append(faults, f)
			}
			of[f] = append(of[f], kind)
		}
	}
	for i, f := range faults {
		if len(of[f]) < len(kinds) {
			faults[i].Message = "of a " + string(of[f][0]) + ": " + f.Message
		}
	}
	return faults
}

// faultsOf returns the faults of a policy for declarations of a kind.
func faultsOf(p *fleet.PolicySpec, kind fleet.Kind) []Fault {
	var faults []Fault
	add := func(in string, mistakes []mistake) {
		for _, m := range mistakes {
			faults = append(faults, Fault{in, m.line, m.column, m.message, m.fix})
		}
	}
	_, mistakes := expression{kind, p.Rule, cel.BoolType}.compile()
	add("rule", mistakes)
	if p.MessageExpression != "" {
		_, mistakes = expression{kind, p.MessageExpression, cel.StringType}.compile()
		add("messageExpression", mistakes)
	}
	if p.Field != "" {
		add("field", shapes.kinds[kind].find(p.Field))
	}
	return faults
}

// find explains why a path names no field of the shape: spec.source.targetRevision,
// spec.overrides[0], metadata.labels["example.com/team"].
func (s *shape) find(path string) []mistake {
	at, rest, list, texts := s, path, false, false
	for rest != "" {
		name, index, after, ok := firstStep(rest)
		switch {
		case !ok:
			return []mistake{{message: fmt.Sprintf("%s is no path of a field", quoted(path)),
				fix: "write it as spec.source.targetRevision or spec.destination.environments[0]"}}
		case index && !list, !index && list, at == nil && !texts:
			return []mistake{
				{message: fmt.Sprintf("%s leads nowhere at %s", quoted(path), quoted(rest)),
					fix: "name the field above it"}}
		case index:
			list = false
		case texts:
			at, texts = nil, false // a label
		default:
			f := at.byName[name]
			if f == nil {
				return []mistake{
					{message: fmt.Sprintf("there is no field %s in %s", quoted(name), at.name),
						fix: nearest(name, at.names(), "fields here: "+strings.Join(at.names(),
							", "))}}
			}
			at, list, texts = f.shape, f.of.Kind() == cel.ListKind, f.of.Kind() == cel.MapKind
		}
		rest = after
	}
	return nil
}

// firstStep removes the first step of a path: a name, a label's key in brackets and quotes, or a
// list index.
func firstStep(path string) (name string, index bool, rest string, ok bool) {
	path = strings.TrimPrefix(path, ".")
	if !strings.HasPrefix(path, "[") {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		return path[:end], false, path[end:], end > 0
	}
	if key, err := strconv.QuotedPrefix(path[1:]); err == nil {
		rest, closed := strings.CutPrefix(path[1+len(key):], "]")
		name, err = strconv.Unquote(key)
		return name, false, rest, closed && err == nil
	}
	number, rest, closed := strings.Cut(path[1:], "]")
	n, err := strconv.Atoi(number)
	return "", true, rest, closed && err == nil && n >= 0
}
