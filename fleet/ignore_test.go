package fleet

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestAnIgnoredDifferenceIsExact(t *testing.T) {
	jq := func(e string) error {
		if e != ".a" {
			return errors.New("not this one")
		}
		return nil
	}
	pointer := []string{"/spec/replicas"}
	for name, c := range map[string]struct {
		ignored IgnoreDifference
		good    bool
	}{
		"a pointer": {IgnoreDifference{Group: "apps", Kind: "Deployment", Name: "a",
			Namespace: "b", JSONPointers: pointer}, true},
		"every kind": {IgnoreDifference{Group: "*", Kind: "*", ManagedFieldsManagers: []string{
			"kube-controller-manager"}}, true},
		"an expression": {IgnoreDifference{Kind: "Secret", JQPathExpressions: []string{".a"}},
			true},
		"a name of RBAC": {
			IgnoreDifference{Kind: "Role", Name: "system:a", JSONPointers: pointer}, true},
		"no field":           {IgnoreDifference{Kind: "Secret"}, false},
		"no kind":            {IgnoreDifference{JSONPointers: pointer}, false},
		"a pattern of kinds": {IgnoreDifference{Kind: "Dep*", JSONPointers: pointer}, false},
		"a list of kinds":    {IgnoreDifference{Kind: "{A,B}", JSONPointers: pointer}, false},
		"a pattern of groups": {IgnoreDifference{Kind: "A", Group: "*.b", JSONPointers: pointer},
			false},
		"a pattern of names": {IgnoreDifference{Kind: "A", Name: "b*", JSONPointers: pointer},
			false},
		"a refused expression": {IgnoreDifference{Kind: "A", JQPathExpressions: []string{
			"env"}}, false},
		"a pattern of managers": {IgnoreDifference{Kind: "A", ManagedFieldsManagers: []string{
			"kube*"}}, false},
	} {
		if err := c.ignored.Check(jq); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckJSONPointer(f *testing.F) {
	for _, p := range []string{"", "/", "/a", "a", "/a~0b~1c", "/a~", "/~2", "//", "/a/-"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckJSONPointer(p) != nil {
			return
		}
		// RFC 6901: a sequence of tokens, each of which begins with / and escapes ~ and /.
		for token := range strings.SplitSeq(p[1:], "/") {
			key := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			if strings.NewReplacer("~", "~0", "/", "~1").Replace(key) != token {
				t.Errorf("token %q of %q has no key", token, p)
			}
		}
	})
}

func FuzzCheckLinkURL(f *testing.F) {
	for _, u := range []string{"https://example.com/a?b#c", "javascript:alert(1)",
		"JavaScript:alert(1)", " https://a", "https://a|javascript:b", "data:text/html,x", "//a",
		"https:a", "https://u:p@a", "https:///a", "http://a\nb", "https://a\\b"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if CheckLinkURL(text) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" &&
			u.Port() == "" ||
			!strings.HasPrefix(strings.ToLower(text), "http") ||
			strings.ContainsAny(text, "|<>\"' ") {
			t.Errorf("%q passes", text)
		}
	})
}

func TestNoLinkRunsAScript(t *testing.T) {
	for _, u := range []string{"javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x",
		"vbscript:x", "", "example.com", "//example.com", "https://", "https://a b",
		"https://a|javascript:alert(1)", "ftp://a"} {
		if CheckLinkURL(u) == nil {
			t.Errorf("%q passes as a link", u)
		}
	}
	for value, good := range map[string]bool{"payments": true, "note: a": true,
		"https://example.com": true, "": true, " JavaScript:alert(1)": false, "data:x": false} {
		if (CheckInfoValue(value) == nil) != good {
			t.Errorf("info %q: %v", value, !good)
		}
	}
}
