package configschema

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Twins finds paths below `fleet/` and `tenants/` that differ only in case. Some filesystems take
// them for one file, so that a reviewer may see another one than Git holds: in a review each of the
// twins is refused.
//
// The control plane reads Git's objects and no filesystem, and does not ask: of twins at most one
// is a path that Classify accepts, for those are ASCII in lower case, so that nothing is ambiguous
// there. Were both refused, whoever may write a twin, in a folder such as tenants/Acme/ that has no
// owner, could hold back the declarations of others.
func Twins(paths []string) []fleet.Problem {
	folded := make(map[string]string, len(paths)) // folded path or folder → how it is written first
	twins := map[string]string{}                  // written path or folder → its twin
	for _, p := range slices.Sorted(slices.Values(paths)) {
		for end := 0; end < len(p); {
			next := strings.IndexByte(p[end:], '/')
			if next < 0 {
				end = len(p)
			} else {
				end += next
			}
			part := p[:end]
			end++
			f := fold(part)
			if first, ok := folded[f]; !ok {
				folded[f] = part
			} else if first != part {
				twins[first], twins[part] = part, first
			}
		}
	}
	if len(twins) == 0 {
		return nil
	}
	var problems []fleet.Problem
	for _, p := range slices.Sorted(slices.Values(paths)) {
		if part, twin := twinOf(p, twins); twin != "" {
			if key, ours, _ := Classify(p); ours {
				problems = append(problems, fleet.Problem{
					Key: key, Path: p, Severity: fleet.SeverityError, Code: codePathTwin,
					Message: quoted(part) + " and " + quoted(twin) + " differ only in case",
					Fix:     "keep one of them; some filesystems take them for one"})
			}
		}
	}
	return problems
}

// fold is what filesystems that ignore case compare. Paths in two Unicode forms need no folding: no
// path that is not ASCII is a declaration's, so that Classify refuses both.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

func twinOf(path string, twins map[string]string) (part, twin string) {
	for end := 0; end < len(path); end++ {
		next := strings.IndexByte(path[end:], '/')
		if next < 0 {
			break
		}
		end += next
		if t, ok := twins[path[:end]]; ok {
			return path[:end], t
		}
	}
	return path, twins[path]
}
