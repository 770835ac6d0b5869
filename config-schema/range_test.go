package configschema

import (
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"argosy.dev/argosy/fleet"
)

// floats reports whether Argo CD takes a revision for a range: its library parses it as a
// constraint and not as a version.
func floats(s string) bool {
	if _, err := semver.NewVersion(s); err == nil {
		return false
	}
	_, err := semver.NewConstraint(s)
	return err == nil
}

func TestEveryRangeThatArgoCDReadsIsRefused(t *testing.T) {
	for _, s := range []string{"x", "X", "1.x", "v1.x", "1.X.x", "v1.2.x", "1.2.X", "1.x-beta",
		"x-feature", "1.x+meta", "x.1x", "1.x.12x", "*", "1.*", "^1", "~1.2",
		">1.0.0", ">=1", "<2", "=1.2", "!=1", "1 - 2", "1||2", "1,2", "1.0 || 2.x"} {
		if !floats(s) {
			t.Errorf("%q is no range to Argo CD: the test is wrong", s)
		}
		if fleet.CheckRevision(s) == nil || checkFixedRevision(s) == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	for _, s := range []string{"main", "1", "v1", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3+build",
		"release-1.x", "release/1.x", "xmas", "x1", "fix", "v1.x.y", "max", "1.2.3.x",
		"0123456789abcdef0123456789abcdef01234567", "feature/x", "1x", "linux"} {
		if floats(s) {
			t.Errorf("%q is a range to Argo CD: the test is wrong", s)
		}
		if err := fleet.CheckRevision(s); err != nil {
			t.Errorf("%q is refused: %v", s, err)
		}
	}
}

func TestOnlyRangesAreTakenForRanges(t *testing.T) {
	for _, s := range []string{"^1.2", "~1.2.3", ">=1.2 <2", "1.x", "v1.x.x", "*", ">1.0.0-rc.1",
		"=1.2", "^1 || ^2", "1.2.*", "x"} {
		if !fleet.IsVersionRange(s) || !floats(s) {
			t.Errorf("%q: range %v, to Argo CD %v", s, fleet.IsVersionRange(s), floats(s))
		}
	}
	for _, s := range []string{"", "1.2.3", "v1.2", "1", "main", "latest", " ^1", "^1 ", "^1,<2",
		"1.2.3-rc.1", "!=1", "1 - 2", "^", "|| 1", "^1.2.3.4", "$x", "^1\n", "x-feature",
		strings.Repeat("^1 ", 100) + "^1"} {
		if fleet.IsVersionRange(s) {
			t.Errorf("%q is taken for a range", s)
		}
	}
}

func FuzzVersionRange(f *testing.F) {
	for _, s := range []string{"^1.2", ">=1.2 <2", "1.x || 2.x-0", "~v1.2.3-a.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if fleet.IsVersionRange(s) && !floats(s) {
			t.Errorf("%q is taken for a range, and Argo CD does not read it as one", s)
		}
	})
}

// Every revision of up to five characters, from the characters of versions.
func TestNoShortRevisionFloats(t *testing.T) {
	const letters = "01xXv.-+a"
	var text [5]byte
	n := 0
	var grow func(at int)
	grow = func(at int) {
		if s := string(text[:at]); at > 0 && floats(s) {
			n++
			if fleet.CheckRevision(s) == nil {
				t.Errorf("%q is accepted, and Argo CD reads it as a range", s)
			}
		}
		if at == len(text) {
			return
		}
		for i := range letters {
			text[at] = letters[i]
			grow(at + 1)
		}
	}
	grow(0)
	if n < 100 {
		t.Errorf("only %d ranges were tried", n)
	}
}

func FuzzRevisionThatFloats(f *testing.F) {
	for _, s := range []string{"1.x", "v1.x.x-rc.1+a", "x.x", strings.Repeat("1", 40) + ".x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if s != "" && len(s) < 300 && floats(s) && fleet.CheckRevision(s) == nil {
			t.Errorf("%q is accepted, and Argo CD reads it as a range", s)
		}
	})
}
