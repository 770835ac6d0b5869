package catalog

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// didYouMean is a fix that names the closest of some names, or otherwise.
func didYouMean[T ~string](written string, names []T, otherwise string) string {
	best, least := "", max(1, len(written)/3)+1
	for _, n := range names {
		if d := distance(written, string(n)); d < least {
			best, least = string(n), d
		}
	}
	if best == "" {
		return otherwise
	}
	return fmt.Sprintf("did you mean %q? Otherwise %s", best, otherwise)
}

// distance is how many letters must be added, dropped, changed or swapped with their neighbour. Names are ASCII and at most 63 long.
func distance(a, b string) int {
	if len(a) > 63 || len(b) > 63 || len(a)-len(b) > 21 || len(b)-len(a) > 21 {
		return 64
	}
	var rows [3][64]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(row[j-1], last[j]) + 1
			row[j] = min(row[j], last[j-1]+count(a[i-1] != b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}

// effectiveNames are the names of a kind of a tenant that are in effect.
func (s *state) effectiveNames(t fleet.TenantName, k fleet.Kind) []string {
	var names []string
	for _, key := range s.index.list(membersOf(t, k)) {
		if s.get(key) != nil {
			names = append(names, key.Name)
		}
	}
	return names
}

// declareTenant is the fix for an unknown tenant, found once per name and round: a folder in the wrong place holds many files.
func (w *work) declareTenant(t fleet.TenantName) string {
	fix, known := w.guess[string(t)]
	if !known {
		fix = didYouMean(string(t), w.st.effectiveNames("", fleet.KindTenant), "the platform declares it in fleet/tenants/"+string(t)+".yaml")
		fix = strings.Replace(fix, "did you mean ", "did you mean the folder of tenant ", 1)
		w.guess[string(t)] = fix
	}
	return fix
}
