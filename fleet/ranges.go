package fleet

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

const maxRange = 128 // bytes of a range of versions

// comparator is one condition of a range: an operator and a version, of which parts may be
// wildcards.
var comparator = regexp.MustCompile(
	`^(\^|~|>=|<=|>|<|=)?v?([*xX]|[0-9]{1,18}(\.([0-9]{1,18}|[*xX])){0,2}(-[0-9A-Za-z.-]+)?)$`)

// exactVersion is a comparator that is one version.
var exactVersion = regexp.MustCompile(`^v?[0-9]{1,18}(\.[0-9]{1,18}){0,2}(-[0-9A-Za-z.-]+)?$`)

// digest is the revision of an OCI artifact that never moves.
var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// artifactTag is the form of a tag in a registry.
var artifactTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// IsDigest reports whether the revision is the digest of an OCI artifact.
func IsDigest(revision string) bool { return digest.MatchString(revision) }

// DeploysArtifacts reports whether Argo CD of a version deploys OCI artifacts, as 3.1 and later do,
// or takes them for Git repositories. known is false for a version without a minor number.
func DeploysArtifacts(version string) (able, known bool) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	switch {
	case errX != nil:
		return false, false
	case x < 3 || x > 3:
		return x > 3, true
	}
	return errY == nil && y >= 1, errY == nil
}

// CheckArtifactRevision allows a digest, a tag and a range of versions.
func CheckArtifactRevision(revision string) error {
	if IsDigest(revision) || IsVersionRange(revision) || artifactTag.MatchString(revision) {
		return nil
	}
	return errors.New("an OCI artifact has tags of at most 128 letters, digits and . _ -, and " +
		"digests: sha256: and 64 hexadecimal digits")
}

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

// LooksLikeABranch reports whether a revision of Git is by its name a branch and neither a commit
// nor the tag of a version: Argosy reads no application's repository to know it. A tag without a
// digit is taken for a branch, and a branch with one is not.
func LooksLikeABranch(revision string) bool {
	if name, qualified := strings.CutPrefix(revision, "refs/"); qualified {
		return strings.HasPrefix(name, "heads/")
	}
	return !strings.ContainsAny(revision, "0123456789")
}
