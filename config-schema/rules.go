package configschema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"

	"argosy.dev/argosy/fleet"
)

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	alnum   = lower + upper + digits
	pathSet = alnum + "._@+=,/-"
)

// only reports whether a text holds no other bytes than those of the set.
func only(s, set string) bool {
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return true
}

// charset makes a check that a text holds only the given characters.
func charset(what, set string) func(string) error {
	return func(s string) error {
		if !only(s, set) {
			return errors.New("only " + what + " are allowed")
		}
		return nil
	}
}

func checkDNSLabel(s string) error {
	if s == "" || len(s) > 63 || !only(s, lower+digits+"-") || s[0] == '-' || s[len(s)-1] == '-' {
		return errors.New(
			"only 1 to 63 of a-z, 0-9 and '-' are allowed, beginning and ending with a letter " +
				"or digit")
	}
	return nil
}

func checkEngineNamespace(s string) error {
	if err := checkDNSLabel(s); err != nil {
		return err
	}
	if s == "default" || strings.HasPrefix(s, "kube-") {
		return fmt.Errorf("namespace %q is reserved by Kubernetes", s)
	}
	return nil
}

func checkRelease(s string) error {
	if len(s) > maxRelease {
		return fmt.Errorf("a release's name is %d characters long; Helm allows %d", len(s),
			maxRelease)
	}
	return checkDNSLabel(s)
}

func checkCAData(s string) error {
	pem, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return errors.New("the text is no base64 in one line")
	}
	if err := fleet.CheckCA(pem); err != nil {
		return fmt.Errorf("the text %w", err)
	}
	return nil
}

// checkPath holds paths inside their repository: before and after they are cleaned (CVE-2022-24731,
// CVE-2022-24877), and however a later reader would decode them.
func checkPath(s string) error {
	if err := charset("letters, digits, and . _ @ + = , / -", pathSet)(s); err != nil {
		return err
	}
	switch {
	case s == ".":
		return nil
	case strings.IndexByte(alnum+"._", s[0]) < 0:
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

func checkChart(s string) error {
	if strings.IndexByte(alnum, s[0]) < 0 {
		return errors.New("a chart's name begins with a letter or digit")
	}
	return charset("letters, digits, '.', '_' and '-'", alnum+"._-")(s)
}

// checkRevision allows the plain names of refs (git-check-ref-format(1), narrowed) and exact chart
// versions.
func checkRevision(s string) error {
	if strings.IndexByte(alnum+"_", s[0]) < 0 {
		return errors.New("a revision begins with a letter, digit or '_'")
	}
	if err := charset("letters, digits, and . _ / + -", alnum+"._/+-")(s); err != nil {
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
// of them: a version of which a part is x, and then whatever follows it. Every other form of a
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

func checkFixedRevision(s string) error {
	if strings.EqualFold(s, "HEAD") {
		return errors.New("HEAD moves; a sync runs at a full commit id or a tag")
	}
	return checkRevision(s)
}

func checkImage(s string) error {
	if err := charset("letters, digits, and . _ / : @ = + -", alnum+"._/:@=+-")(s); err != nil {
		return err
	}
	if strings.IndexByte(alnum, s[0]) < 0 || strings.Count(s, "=") > 1 ||
		strings.HasSuffix(s, "=") || strings.HasSuffix(s, ":") || strings.HasSuffix(s, "@") ||
		strings.Contains(s, "//") {
		return errors.New("an image override is [name=]image[:tag][@digest]")
	}
	return nil
}

func checkParameterName(s string) error {
	if strings.ContainsAny(s, ",={} \t\r\n") || s[0] == '-' {
		return errors.New(
			"a parameter's name holds no blank, ',', '=', '{' or '}', which would set other values")
	}
	return nil
}

func checkOwner(s string) error {
	_, err := fleet.ParseOwner(s)
	return err
}

// reservedDomains are prefixes of labels that Kubernetes, Argo CD and Argosy give a meaning.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "argoproj.io", "argosy.dev"}

func checkLabelKey(s string) error {
	prefix, name, found := strings.Cut(s, "/")
	if !found {
		prefix, name = "", s
	}
	if err := checkLabelValue(name); err != nil {
		return err
	}
	if found && (prefix == "" || len(prefix) > 253 || !only(prefix, lower+digits+".-") ||
		strings.IndexByte(".-", prefix[0]) >= 0 ||
		strings.IndexByte(".-", prefix[len(prefix)-1]) >= 0) {
		return errors.New("the part before the slash is no DNS name")
	}
	for _, d := range reservedDomains {
		if prefix == d || strings.HasSuffix(prefix, "."+d) {
			return fmt.Errorf(
				"labels of %s mean something to Kubernetes, Argo CD or Argosy and are not a "+
					"declaration's to set", d)
		}
	}
	return nil
}

func checkLabelValue(s string) error {
	if s == "" || len(s) > 63 || strings.IndexByte(alnum, s[0]) < 0 || strings.IndexByte(alnum,
		s[len(s)-1]) < 0 || !only(s, alnum+"-_.") {
		return errors.New(
			"only 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed, beginning and ending " +
				"with a letter or digit")
	}
	return nil
}

func checkGroup(s string) error {
	if s == "argoproj.io" || strings.HasSuffix(s, ".argoproj.io") {
		return errors.New("kinds of Argo CD itself are never a tenant's")
	}
	if s != "" && (!only(s, lower+digits+".-") || strings.IndexByte(".-", s[0]) >= 0 ||
		strings.IndexByte(".-", s[len(s)-1]) >= 0) {
		return errors.New("the group is no DNS name")
	}
	return nil
}

func checkKindName(s string) error {
	if strings.IndexByte(upper, s[0]) < 0 {
		return errors.New("a kind begins with a capital letter and holds letters and digits")
	}
	return charset("letters and digits", alnum)(s)
}
