package report

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestNoValueBreaksOutOfItsLine(t *testing.T) {
	for name, hostile := range map[string]string{
		"newline": "a\nb", "carriage return": "a\rb", "direction": "a\u202eb",
		"zero width": "a\u200bb", "escape": "a\x1b[2Jb", "line separator": "a\u2028b",
		"bell": "a\ab",
	} {
		t.Run(name, func(t *testing.T) {
			for form, s := range map[string]string{
				"value": shown(hostile), "map": shown(map[string]any{hostile: hostile}),
				"key": join("spec", hostile), "problem": OneLine(hostile), "span": code(hostile)} {
				if strings.ContainsAny(s, "\n\r\u202e\u200b\x1b\u2028\a") {
					t.Errorf("%s: %q", form, s)
				}
			}
		})
	}
}

func TestMarkdownOfHostileValuesStaysInItsFences(t *testing.T) {
	for _, hostile := range []string{"```", "````\n# x", "` @everyone `", "</details><script>",
		"a\n```\nb", strings.Repeat("`", 300)} {
		m := &markdown{}
		m.block("diff", []string{"+ " + shown(hostile), "- " + OneLine(hostile)})
		lines := strings.Split(strings.TrimSpace(m.b.String()), "\n")
		fence := strings.TrimSuffix(lines[0], "diff")
		if len(lines) != 4 || lines[3] != fence || strings.Contains(lines[1], fence) ||
			strings.Contains(lines[2], fence) {
			t.Errorf("%q: %q", hostile, m.b.String())
		}
	}
}

// GitHub ends a code span at the next run of backticks that is as long as the first, and ignores a
// first run of more than 80.
func TestACodeSpanEndsAtItsOwnBackticks(t *testing.T) {
	every := ""
	for n := range 100 {
		every += strings.Repeat("`", n+1) + " "
	}
	for hostile, want := range map[string]string{
		"plain": "`plain`", "a`b": "`` a`b ``", "`": "`` ` ``", "``": "` `` `",
		"a``b`c": "``` a``b`c ```", strings.Repeat("`", 81): "", strings.Repeat("`", 300): "",
		every: "",
		strings.Repeat("` `` ", 50) + strings.Repeat("`", 80): "", "` @everyone `": "",
	} {
		span := code(hostile)
		runs := regexp.MustCompile("`+").FindAllString(span, -1)
		end := slices.Index(runs[1:], runs[0])
		if !strings.HasPrefix(span, "`") || len(runs[0]) > 80 || end != len(runs)-2 ||
			!strings.HasSuffix(span, runs[0]) || want != "" && span != want {
			t.Errorf("%.60q: %.200q", hostile, span)
		}
	}
}

// GitHub searches rendered Markdown for mentions and references: there \@ and &#64; are an @ like
// any other.
func TestPlainTextMentionsNoUser(t *testing.T) {
	text := html.UnescapeString(
		regexp.MustCompile(`\\([[:punct:]])`).ReplaceAllString(
			plain("@alice, acme/fleet#12 and ask @acme/leads about #7 & <b>"), "$1"))
	if bad := regexp.MustCompile(`[@#][0-9A-Za-z]`).FindString(text); bad != "" ||
		!strings.HasSuffix(text, "& <b>") || !strings.Contains(text, "@\u200balice") {
		t.Errorf("%q is markup in %q", bad, text)
	}
}

func TestFieldsOfTwoManifests(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"a scalar":            {`{"a":{"b":1}}`, `{"a":{"b":2}}`, "a.b: 1 → 2"},
		"a field comes":       {`{"a":{}}`, `{"a":{"b":"x"}}`, `a.b:  → "x"`},
		"a field goes":        {`{"a":{"b":null}}`, `{"a":{}}`, `a.b: null → `},
		"a list is a set":     {`{"a":[1,2,2]}`, `{"a":[2,3,1]}`, "a[]: 2 → \na[]:  → 3"},
		"the order of a list": {`{"a":[1,2]}`, `{"a":[2,1]}`, "a: [1,2] → [2,1]"},
		"a list of objects": {`{"a":[{"n":"x"}]}`, `{"a":[{"n":"x"},{"n":"y"}]}`,
			`a[]:  → {"n":"y"}`},
		"a key that is no word": {`{"a":{}}`, `{"a":{"x.y/z":1}}`, `a["x.y/z"]:  → 1`},
		"another type":          {`{"a":"1"}`, `{"a":1}`, `a: "1" → 1`},
		"a number that is no float": {`{"a":9007199254740993}`, `{"a":9007199254740992}`,
			"a: 9007199254740993 → 9007199254740992"},
		"nothing": {`{"a":[1]}`, `{"a":[1]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fields, err := Fields([]byte(c.before), []byte(c.after))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range fields {
				got = append(got, f.Path+": "+f.Before+" → "+f.After)
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := Fields([]byte("{"), []byte("{}")); err == nil {
		t.Error("what is no JSON is compared")
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add("```", "@x")
	f.Fuzz(func(t *testing.T, value, path string) {
		m := &markdown{}
		m.plan(
			Report{
				Head: "b", Base: "a", Problems: []fleet.Problem{
					{Path: path, Message: value, Fix: value}}})
		out := m.b.String()
		_, block, _ := strings.Cut(out, "**Problems**\n\n")
		lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
		fence := strings.TrimSuffix(lines[0], "text")
		for i, l := range lines[1:] {
			if strings.HasPrefix(strings.TrimSpace(l), fence) != (i == len(lines)-2) {
				t.Fatalf("line %d ends the fence early: %q", i, out)
			}
		}
	})
}
