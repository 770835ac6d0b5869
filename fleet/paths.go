package fleet

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// CheckBelow reports why a file of the repository, relative to a folder of it, is refused, or nil:
// it must stay inside the repository. A folder "" is the root of a chart's archive.
func CheckBelow(folder, file string) error {
	joined := path.Join(folder, file)
	if joined == ".." || strings.HasPrefix(joined, "../") || path.IsAbs(file) {
		if folder == "" {
			return fmt.Errorf("%q leaves the chart", file)
		}
		return fmt.Errorf("%q leaves the repository: path %q has %s above it", file, folder,
			folders(folder))
	}
	return nil
}

func folders(folder string) string {
	n := 0
	if clean := path.Clean(folder); clean != "." {
		n = strings.Count(clean, "/") + 1
	}
	if n == 1 {
		return "one folder"
	}
	return fmt.Sprintf("%d folders", n)
}

// maxPattern limits the bytes of a pattern of files, maxWild its '*', maxBraces its groups.
const (
	maxPattern = 1024
	maxWild    = 20
	maxBraces  = 10
)

// CheckFilePattern reports why a pattern of files is refused, or nil. Argo CD matches it with the
// paths of the source's own files: '*' and '?' match characters, slashes too, and '{a,b}' one of
// the alternatives. It selects files of the tenant's repository and grants nothing.
func CheckFilePattern(pattern string) error {
	if pattern == "" || len(pattern) > maxPattern {
		return fmt.Errorf("a pattern has 1 to %d characters", maxPattern)
	}
	open, wild, groups := false, 0, 0
	for i := range len(pattern) {
		c := pattern[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case alnum || strings.IndexByte("._@+=-/?", c) >= 0 || c == ',' && open:
		case c == '*':
			wild++
		case c == '{' && !open:
			open, groups = true, groups+1
		case c == '}' && open:
			open = false
		default:
			return errors.New("a pattern holds letters, digits, . _ @ + = - / * ? and groups " +
				"{a,b}, which hold no group themselves")
		}
	}
	switch {
	case open:
		return errors.New("a group of the pattern is not closed: {a,b}")
	case wild > maxWild || groups > maxBraces:
		return fmt.Errorf("a pattern has at most %d '*' and %d groups", maxWild, maxBraces)
	}
	return nil
}

// CheckComponent reports why a component of kustomize is refused, or nil. kustomize would clone a
// path that begins like a host.
func CheckComponent(component string) error {
	first, _, _ := strings.Cut(component, "/")
	if first != ".." && first != "." && strings.Contains(first, ".") {
		return fmt.Errorf("%q begins like a host; a component is a folder of the repository",
			component)
	}
	return nil
}

// CheckKubeVersion accepts the version of a cluster, which Argo CD gives to Helm as an argument.
func CheckKubeVersion(s string) error {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) < 2 || len(parts) > 3 || len(s) > 32 || slices.ContainsFunc(parts,
		func(p string) bool { return p == "" || !only(p, digits) }) {
		return errors.New("a version of Kubernetes is e.g. 1.31 or v1.31.2")
	}
	return nil
}

// CheckAPIVersion accepts an entry of what a chart sees as .Capabilities.APIVersions: a version, a
// group and version, or these and a kind.
func CheckAPIVersion(s string) error {
	parts := strings.Split(s, "/")
	if len(parts) > 3 || len(s) > 253 || slices.ContainsFunc(parts, func(p string) bool {
		return !isQualified(p, 253) || strings.Contains(p, "_")
	}) {
		return errors.New("an API version is v1, group/version or group/version/Kind")
	}
	return nil
}

// CheckKustomizePair reports why a label or annotation that kustomize adds is refused, or nil.
// Argo CD gives it to kustomize as the argument "key:value", of which a comma begins the next.
func CheckKustomizePair(key, value string) error {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	if !isQualified(name, 63) || found && !isQualified(prefix, 253) {
		return errors.New("a key is [domain/]name of letters, digits, '-', '_' and '.'")
	}
	if len(value) > 1024 {
		return errors.New("a value has at most 1024 characters")
	}
	for _, r := range value {
		if r < ' ' || r > '~' || strings.ContainsRune(`,"'\$`, r) {
			return errors.New("a value holds printable ASCII characters without , \" ' \\ and $")
		}
	}
	return nil
}

func isQualified(s string, most int) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (strings.IndexByte("-_.", c) < 0 || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= most
}
