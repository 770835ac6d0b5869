package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func folders4(paths ...string) ListingRequest {
	d := Discovery{RepoURL: "https://git.example.com/acme/services.git", TargetRevision: "main",
		Paths: paths}
	return d.Request("acme", false)
}

func TestARequestWantsWhatItsPatternsMatch(t *testing.T) {
	for _, c := range []struct{ patterns, wants, not string }{
		{"services/*", "services/cart services/a.b",
			"services services/a/b x/services/a services/.hidden"},
		{"services/* !services/legacy", "services/cart services/legacy2", "services/legacy"},
		{"*/deploy", "a/deploy b/deploy", "deploy a/b/deploy .github/deploy"},
		{"apps/**/config.yaml", "apps/config.yaml apps/a/config.yaml apps/a/b/c/config.yaml",
			"config.yaml apps/a/config.yml apps/.git/config.yaml apps/a/.b/config.yaml"},
		{"**", "a a/b/c", ".a a/.b"},
		{"**/x/**/y", "x/y a/x/y a/x/b/x/c/y x/x/y", "x y/x a/y"},
		{"a?c/*-*", "abc/x-y aäc/- abc/a--b", "ac/x-y abbc/x-y abc/xy"},
		{".github/*", ".github/a", ".github/.a github/a"},
		{"a*b*c", "abc aXbXbXc abcbc", "ab acb abcx"},
		{"!a/** a/** b/*", "b/x", "a a/x a/b/c"},
	} {
		r := folders4(strings.Fields(c.patterns)...)
		for _, path := range strings.Fields(c.wants) {
			if !r.Wants(path) {
				t.Errorf("%s does not want %s", c.patterns, path)
			}
			for i, b := range path {
				if b == '/' && !r.Descends(path[:i]) {
					t.Errorf("%s: %s is below %s, which a reader skips", c.patterns, path, path[:i])
				}
			}
		}
		for _, path := range strings.Fields(c.not) {
			if r.Wants(path) {
				t.Errorf("%s wants %s", c.patterns, path)
			}
		}
	}
	r := folders4("services/*/deploy")
	for folder, descends := range map[string]bool{"": true, ".": true, "services": true,
		"services/a": true, "services/a/deploy": false, "other": false, "services/.a": false} {
		if r.Descends(folder) != descends {
			t.Errorf("a reader descends into %q: %v", folder, !descends)
		}
	}
}

// slowMatch is the definition of a match.
func slowMatch(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		return slowMatch(pattern[1:], path) || len(path) > 0 && path[0][0] != '.' &&
			slowMatch(pattern, path[1:])
	}
	return len(path) > 0 && (path[0][0] != '.' || pattern[0][0] == '.') &&
		slowSegment(pattern[0], path[0]) && slowMatch(pattern[1:], path[1:])
}

func slowSegment(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return slowSegment(pattern[1:], s) || s != "" && slowSegment(pattern, s[1:])
	}
	return s != "" && (pattern[0] == '?' || pattern[0] == s[0]) && slowSegment(pattern[1:], s[1:])
}

func TestMatchingAgreesWithItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	matched := 0
	for range 200_000 {
		var pattern, path []string
		for range 1 + r.IntN(5) {
			pattern = append(
				pattern, pick("**", "*", "a", ".a", "?", "a*b", ".*", "*a*", "?*b", "b"))
		}
		for range 1 + r.IntN(6) {
			path = append(path, pick("a", "b", ".a", "ab", "aab", ".b", "ba"))
		}
		want := slowMatch(pattern, path)
		if got := matchPath(pattern, path); got != want {
			t.Fatalf("%v matches %v: %v", pattern, path, got)
		}
		if !want {
			continue
		}
		matched++
		for i := 1; i < len(path); i++ {
			if !mayMatchBelow(pattern, path[:i]) {
				t.Fatalf("a reader skips %v, and %v matches %v below it", path[:i], pattern, path)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d matches", matched)
	}
}

func TestAHostilePatternCostsItsLengthTimesThePaths(t *testing.T) {
	// with a cost that is exponential in the number of stars, this test does not end
	segment := folders4(strings.Repeat("a*", 120) + "b")
	path := folders4(strings.Repeat("**/a/", 15) + "b")
	for range 100 {
		if segment.Wants(strings.Repeat("a", 1000)) || path.Wants(strings.Repeat("a/", 500)+"a") {
			t.Fatal("matched")
		}
	}
}

func TestAPatternIsPlain(t *testing.T) {
	for _, p := range []string{"*", "**", "services/*", "!services/legacy", "a/**/b-?.yaml",
		".github/*"} {
		if err := CheckListPattern(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", "!", "!!a", "/a", "a/", "a//b", "./a", "a/../b", "a**", "**a/b",
		"a/***",
		"{a,b}", "[a-z]", `a\*`, "a b", "a\nb", ".git", "x/.GIT/hooks", "${item.a}", "ä",
		strings.Repeat("a", 257), strings.Repeat("a/", 32) + "a"} {
		if err := CheckListPattern(p); err == nil {
			t.Errorf("%q is accepted", p)
		}
	}
}

func TestEqualQuestionsAreOneRequest(t *testing.T) {
	if folders4("b", "a", "b") != folders4("a", "b") {
		t.Error("the order of patterns makes another request")
	}
	d := Discovery{RepoURL: "u", TargetRevision: "main", Paths: []string{"a"}}
	for _, other := range []ListingRequest{d.Request("globex", false), d.Request("acme", true),
		(&Discovery{RepoURL: "v", TargetRevision: "main", Paths: []string{"a"}}).Request(
			"acme", false),
		(&Discovery{RepoURL: "u", TargetRevision: "next", Paths: []string{"a"}}).Request(
			"acme", false)} {
		if one := d.Request("acme", false); one == other || CompareRequests(one, other) == 0 {
			t.Errorf("%v is %v", one, other)
		}
	}
}

func TestAListingIsCompleteOrNone(t *testing.T) {
	r := folders4("services/*")
	entries := func(n int) (all []Listed) {
		for i := range n {
			all = append(all, Listed{Path: fmt.Sprintf("services/%d", n-i)})
		}
		return all
	}
	l, err := NewListing(r, "c1", entries(1000))
	if err != nil || len(l.Entries) != 1000 || l.Entries[0].Path != "services/1" {
		t.Fatal(err, len(l.Entries))
	}
	big := make([]Listed, 1000)
	for i := range big {
		big[i] = Listed{Path: fmt.Sprintf("services/%d", i),
			Fields: map[string]string{"a": strings.Repeat("x", 1024), "b": "y"}}
	}
	for what, c := range map[string][]Listed{
		"1001 match; a set has at most 1000 items": entries(1001),
		`"other" does not match`:                   {{Path: "other"}},
		`"services/a" is there twice`:              {{Path: "services/a"}, {Path: "services/a"}},
		"has 1033 bytes": {
			{Path: "services/" + strings.Repeat("a", 1024)}},
		"at most 1024 KiB are read": big,
	} {
		if _, err := NewListing(r, "c1", c); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAListingComesBackFromItsJSON(t *testing.T) {
	d := Discovery{RepoURL: "u", TargetRevision: "main", Paths: []string{"**/*.yaml", "!x/**"}}
	l, err := NewListing(d.Request("acme", true), "c1", []Listed{
		{Path: "b\xff/c.yaml", Problem: "no map"},
		{Path: "a/c.yaml", Fields: map[string]string{"n": "v"}}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back Listing
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(l, back) {
		t.Errorf("%v: %+v became %+v", err, l, back)
	}
	later := l
	later.Commit = "c2"
	if !l.Same(later) {
		t.Error("a commit that changes no entry makes another listing")
	}
	other, _ := NewListing(l.Request, "c1", []Listed{{Path: "a/c.yaml"}})
	if l.Same(other) {
		t.Error("a listing without an entry is the same")
	}
}
