package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// BulletinSeverity is how bad the fault is that a Bulletin announces.
type BulletinSeverity string

// BulletinSeverities are the severities of bulletins, the least first.
var BulletinSeverities = []BulletinSeverity{"Low", "Medium", "High", "Critical"}

// Bulletin announces security releases of Argo CD.
type Bulletin struct {
	Name     string           `json:"name"` // such as CVE-2026-12345; unique in the Fleet
	Severity BulletinSeverity `json:"severity"`
	// FixedIn are the security releases, at most one for each minor version, such as "3.5.8".
	FixedIn []string `json:"fixedIn"`
	URL     string   `json:"url,omitempty"` // for people
}

// Lacks reports whether a version of Argo CD lacks the fix: it is an earlier patch release than the
// one of its minor version, or its minor version has none and is not later than all that have one.
// It reports false for a text that is no version.
func (b Bulletin) Lacks(version string) bool {
	have, ok := parseVersion(version)
	if !ok {
		return false
	}
	later := true // than every minor version with a fix
	for _, release := range b.FixedIn {
		fixed, ok := parseVersion(release)
		if !ok {
			continue
		}
		if slices.Equal(have[:2], fixed[:2]) {
			return have[2] < fixed[2]
		}
		later = later && slices.Compare(have[:2], fixed[:2]) > 0
	}
	return !later
}

// KnownVersion reports whether an engine's report names a version of Argo CD.
func KnownVersion(version string) bool { _, ok := parseVersion(version); return ok }

// parseVersion returns the three numbers of a version such as "v3.5.7+c0ffee".
func parseVersion(version string) (numbers []int, ok bool) {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	version, _, _ = strings.Cut(version, "-")
	var major, minor, patch int
	n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	return []int{major, minor, patch}, n == 3 && err == nil
}

// SoakOf returns how long the gates of a ring are checked: SecuritySoak if its version is one of a
// bulletin.
func (f *FleetSpec) SoakOf(r Ring) Duration {
	if r.SecuritySoak > 0 && slices.ContainsFunc(f.Bulletins, func(b Bulletin) bool {
		return slices.Contains(b.FixedIn, r.Version)
	}) {
		return min(r.SecuritySoak, r.Soak)
	}
	return r.Soak
}
