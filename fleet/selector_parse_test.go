package fleet_test

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestLabelSelectorIsReadAsKubectlReadsIt(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"tier": "prod", "example.com/team": "a", "empty": ""}
	for text, want := range map[string]bool{
		"tier=prod": true, "tier==prod": true, "tier = prod": true, "tier=dev": false,
		"tier!=dev": true, "tier!=prod": false, "zone!=a": true, "tier": true, "zone": false,
		"!zone": true, "!tier": false, "tier in (dev, prod)": true, "tier in (dev)": false,
		"tier notin (dev)": true, "zone notin (a)": true, "tier=prod,!zone": true,
		"tier=prod,tier=dev": false, "example.com/team=a,tier in (prod)": true, "empty=": true,
	} {
		s, err := fleet.ParseLabelSelector(text)
		if err != nil || s.Matches(labels) != want {
			t.Errorf("%q: %v, %v, want %v", text, s.Matches(labels), err, want)
		}
	}
	if s, err := fleet.ParseLabelSelector(" "); s != nil || err != nil {
		t.Errorf("a blank text: %v, %v", s, err)
	}
	for _, text := range []string{",", "=", "a=b,", "a in b", "a in (b", "a in b)", "in (a)", "a b",
		"!", "a=(b)", "a=é", "a/b/c=d", "a=<b>", "/", "a/", strings.Repeat("a", 1025),
		strings.Repeat("a,", 21) + "a"} {
		if s, err := fleet.ParseLabelSelector(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}

func FuzzParseLabelSelector(f *testing.F) {
	for _, text := range []string{"", "tier=prod", "zone in (a, b),!x", "a notin (),b!=c", "((",
		"!"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fleet.ParseLabelSelector(text)
		if err != nil || s == nil {
			return
		}
		again, err := fleet.ParseLabelSelector(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is printed as %q and read as %q, %v", text, s, again, err)
		}
	})
}
