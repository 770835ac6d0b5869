package catalog

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// didYouMean is a fix that names the closest of some names, or otherwise.
func didYouMean(written string, names []string, otherwise string) string {
	if best := fleet.Closest(written, names); best != "" {
		return fmt.Sprintf("did you mean %q? Otherwise %s", best, otherwise)
	}
	return otherwise
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

// declareTenant is the fix for an unknown tenant, found once per name and round: a folder in the
// wrong place holds many files.
func (w *work) declareTenant(t fleet.TenantName) string {
	fix, known := w.guess[string(t)]
	if !known {
		fix = didYouMean(string(t), w.st.effectiveNames("", fleet.KindTenant),
			"the platform declares it in fleet/tenants/"+string(t)+".yaml")
		fix = strings.Replace(fix, "did you mean ", "did you mean the folder of tenant ", 1)
		w.guess[string(t)] = fix
	}
	return fix
}
