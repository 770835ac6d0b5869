package printable_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/printable"
)

func TestWhatIsNotShownIsEscaped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, line, name string }{
		"plain": {"tenants/acme/größe→.yaml", "tenants/acme/größe→.yaml",
			"tenants/acme/größe→.yaml"},
		"an escape":        {"\x1b[2Jgone", `\x1b[2Jgone`, `\x1b[2Jgone`},
		"a title":          {"\x1b]0;owned\x07", `\x1b]0;owned\x07`, `\x1b]0;owned\x07`},
		"a second line":    {"fine\nerror: none", "fine error: none", `fine\nerror: none`},
		"carriage return":  {"bad\r\ngood", "bad good", `bad\r\ngood`},
		"a C1 control":     {"\u009b2J", `\u009b2J`, `\u009b2J`},
		"right to left":    {"\u202etxt.exe", `\u202etxt.exe`, `\u202etxt.exe`},
		"an isolate":       {"a\u2066b\u2069", `a\u2066b\u2069`, `a\u2066b\u2069`},
		"zero width":       {"ac\u200bme", `ac\u200bme`, `ac\u200bme`},
		"a line separator": {"a\u2028b\u2029", `a\u2028b\u2029`, `a\u2028b\u2029`},
		"a next line":      {"a\u0085b", `a\u0085b`, `a\u0085b`},
		"a tag":            {"a\U000e0041", `a\U000e0041`, `a\U000e0041`},
		"a filler":         {"a\u3164\u115f", `a\u3164\u115f`, `a\u3164\u115f`},
		"a selector":       {"a\ufe0f\U000e0100", `a\ufe0f\U000e0100`, `a\ufe0f\U000e0100`},
		"a byte order":     {"\ufeffa", `\ufeffa`, `\ufeffa`},
		"another blank":    {"a\u00a0b\u3000", `a\u00a0b\u3000`, `a\u00a0b\u3000`},
		"bytes":            {"\xff\xfe\ufffd", "\\xff\\xfe\ufffd", "\\xff\\xfe\ufffd"},
		"delete":           {"a\x7f", `a\x7f`, `a\x7f`},
	} {
		if got := printable.Line(c.text); got != c.line {
			t.Errorf("%s: the line %q, want %q", name, got, c.line)
		}
		if got := printable.Name(c.text); got != c.name {
			t.Errorf("%s: the name %q, want %q", name, got, c.name)
		}
	}
}

func FuzzNothingIsWrittenRaw(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31m\u202e\n\x00", "\u009b2J\x7f\xff",
		"a\u2028b\u3164\U000e0041", `\u202e"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		forms := map[string]string{"line": printable.Line(s), "name": printable.Name(s),
			"text": printable.Text(s), "lines": string(printable.Lines([]byte(s)))}
		if name := forms["name"]; printable.Name(name) != name {
			t.Errorf("%q is escaped twice", name)
		}
		var encoded, records bytes.Buffer
		e := json.NewEncoder(printable.JSONWriter(&encoded))
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]string{s: s}); err != nil {
			t.Fatal(err)
		}
		forms["json"] = strings.TrimSuffix(encoded.String(), "\n")
		back := map[string]string{}
		if err := json.Unmarshal(encoded.Bytes(), &back); err != nil {
			t.Fatalf("%q: %v", encoded.String(), err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back[want] != want {
			t.Errorf("%q came back as %q", s, back)
		}
		slog.New(slog.NewTextHandler(printable.LinesWriter(&records), nil)).Warn(s, "path", s)
		forms["log"] = strings.TrimSuffix(records.String(), "\n")
		records.Reset()
		slog.New(slog.NewJSONHandler(printable.JSONWriter(&records), nil)).Warn(s, "path", s)
		forms["log as JSON"] = strings.TrimSuffix(records.String(), "\n")
		for form, got := range forms {
			for _, r := range got {
				breaks := (form == "text" || form == "lines") && (r == '\n' || r == '\t')
				if r == '\x1b' || !breaks && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) ||
					r == '\u2028' || r == '\u2029') {
					t.Errorf("as %s: %q has %U raw", form, got, r)
				}
			}
			if !utf8.ValidString(got) {
				t.Errorf("as %s: %q is not UTF-8", form, got)
			}
		}
	})
}
