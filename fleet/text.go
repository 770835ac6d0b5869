package fleet

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// The checks of a source's texts. They run on a text as it is written and, if it holds variables,
// on the text of each environment.

const (
	digits  = "0123456789"
	alnum   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
	pathSet = alnum + "._@+=,/-"
)

// only reports whether a text holds no other bytes than those of the set.
func only(s, set string) bool { return strings.Trim(s, set) == "" }

func charset(s, what, set string) error {
	if !only(s, set) {
		return errors.New("only " + what + " are allowed")
	}
	return nil
}

// CheckPath keeps a path inside its repository: before and after it is cleaned (CVE-2022-24731,
// CVE-2022-24877), and however a later reader would decode it.
func CheckPath(s string) error {
	if err := charset(s, "letters, digits, and . _ @ + = , / -", pathSet); err != nil {
		return err
	}
	switch {
	case s == ".":
		return nil
	case !only(s[:1], alnum+"._"):
		return errors.New(
			"a path is relative to the repository's root and begins with a letter, digit, '.' or '_'")
	case path.Clean(s) != s:
		return errors.New(
			"a path is written in its plain form: no '..', no './', no '//', no slash at the end")
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return errors.New("no part of a path may be '..' or '.git'")
		}
	}
	return nil
}

// CheckFileBelow allows a path that begins with "../" for the folders above it; CheckBelow counts
// those.
func CheckFileBelow(s string) error {
	for strings.HasPrefix(s, "../") {
		s = s[len("../"):]
	}
	if s == "" || s == ".." {
		return errors.New("the path names no file")
	}
	return CheckPath(s)
}

// CheckValueFile allows a path, also above the folder, and one inside the repository of a ref. The
// deployment must have a source with the ref.
func CheckValueFile(s string) error {
	reference, below, named := strings.Cut(s, "/")
	ref, isRef := strings.CutPrefix(reference, "$")
	switch {
	case !isRef:
		return CheckFileBelow(s)
	case !named || below == "":
		return errors.New("the ref is followed by the path of a file: $<ref>/<path>")
	}
	if err := ValidateRef(ref); err != nil {
		return err
	}
	return CheckPath(below)
}

// CheckRevision allows the plain names of refs (git-check-ref-format(1), narrowed) and exact chart
// versions.
func CheckRevision(s string) error {
	if strings.IndexByte(alnum+"_", s[0]) < 0 {
		return errors.New("a revision begins with a letter, digit or '_'")
	}
	if err := charset(s, "letters, digits, and . _ / + -", alnum+"._/+-"); err != nil {
		return err
	}
	if strings.Contains(s, "..") || strings.Contains(s, "//") || strings.Contains(s, "/.") ||
		strings.HasSuffix(s, ".lock") || strings.Contains(s, ".lock/") ||
		strings.IndexByte("./", s[len(s)-1]) >= 0 {
		return errors.New(
			"the revision is no plain ref: no '..', '//', '/.', '.lock', and no '.' or '/' at the end")
	}
	if isRange(s) {
		return errors.New(
			"the revision is a range of versions, of which Argo CD takes the newest; write one " +
				"exact version")
	}
	return nil
}

// isRange reports whether the library with which Argo CD reads versions takes the text for a range
// of them: a version of which a part is x, with any parts after it. Every other form of a
// range holds a character that no revision has.
func isRange(s string) bool {
	s, _, _ = strings.Cut(s, "+")
	s, _, _ = strings.Cut(s, "-")
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	wild := false
	for _, part := range parts {
		switch {
		case wild && only(part, digits+"xX"):
		case part == "x" || part == "X":
			wild = true
		case !only(part, digits):
			return false
		}
	}
	return wild && len(parts) <= 3
}

// CheckImage demands an image override of kustomize: [name=]image[:tag][@digest].
func CheckImage(s string) error {
	if err := charset(s, "letters, digits, and . _ / : @ = + -", alnum+"._/:@=+-"); err != nil {
		return err
	}
	if strings.IndexByte(alnum, s[0]) < 0 || strings.Count(s, "=") > 1 ||
		strings.HasSuffix(s, "=") || strings.HasSuffix(s, ":") || strings.HasSuffix(s, "@") ||
		strings.Contains(s, "//") {
		return errors.New("an image override is [name=]image[:tag][@digest]")
	}
	return nil
}

// maxRelease is Helm's limit of the name of a release.
const maxRelease = 53

// CheckRelease reports why s may not be the name of a Helm release, or nil.
func CheckRelease(s string) error {
	if len(s) > maxRelease {
		return fmt.Errorf("a release's name is %d characters long; Helm allows %d", len(s),
			maxRelease)
	}
	if !isLabel(s) {
		return errors.New("only 1 to 63 of a-z, 0-9 and '-' are allowed, beginning and ending " +
			"with a letter or digit")
	}
	return nil
}
