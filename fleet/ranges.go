package fleet

import (
	"regexp"
	"strings"
)

const maxRange = 128 // bytes of a range of versions

// comparator is one condition of a range: an operator and a version, of which parts may be
// wildcards.
var comparator = regexp.MustCompile(
	`^(\^|~|>=|<=|>|<|=)?v?([*xX]|[0-9]{1,18}(\.([0-9]{1,18}|[*xX])){0,2}(-[0-9A-Za-z.-]+)?)$`)

// exactVersion is a comparator that is one version.
var exactVersion = regexp.MustCompile(`^v?[0-9]{1,18}(\.[0-9]{1,18}){0,2}(-[0-9A-Za-z.-]+)?$`)

// IsVersionRange reports whether the revision is a range of versions of a chart: conditions that
// are separated by blanks and must all hold, or alternatives of them, separated by "||". Argo CD
// takes the newest version in it.
func IsVersionRange(revision string) bool {
	if len(revision) > maxRange || exactVersion.MatchString(revision) {
		return false
	}
	for alternative := range strings.SplitSeq(revision, "||") {
		if strings.HasPrefix(alternative, "  ") || strings.HasSuffix(alternative, "  ") {
			return false
		}
		alternative = strings.TrimSpace(alternative)
		for condition := range strings.SplitSeq(alternative, " ") {
			if !comparator.MatchString(condition) {
				return false
			}
		}
	}
	return revision != "" && strings.TrimSpace(revision) == revision
}
