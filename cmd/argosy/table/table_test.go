package table_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"argosy.dev/argosy/cmd/argosy/table"
)

func written(t *testing.T, tab table.Table, colour bool) string {
	t.Helper()
	var out strings.Builder
	if err := tab.Write(&out, colour); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestColumnsAlignWithTheirHeads(t *testing.T) {
	got := written(t, table.Table{Heads: []string{"NAME", "STATE", "NOTE"}, Rows: [][]table.Value{
		{table.Text("a-long-name"), table.State("Healthy"), {}},
		{table.Text("b"), table.State("OutOfSync"), table.Text("ä")},
	}}, false)
	want := "NAME         STATE      NOTE\na-long-name  Healthy    -\nb            OutOfSync  ä\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestColourDoesNotMoveColumns(t *testing.T) {
	tab := table.Table{
		Heads: []string{"STATE", "NAME"}, Rows: [][]table.Value{
			{table.State("Degraded"), table.Text("x")}, {table.Text("ok"), table.Text("y")}}}
	painted := written(t, tab, true)
	if !strings.Contains(painted, "\x1b[31mDegraded\x1b[0m") {
		t.Errorf("%q", painted)
	}
	plain := painted
	for _, code := range []string{"\x1b[31m", "\x1b[2m", "\x1b[0m"} {
		plain = strings.ReplaceAll(plain, code, "")
	}
	if plain != written(t, tab, false) {
		t.Errorf("%q", plain)
	}
}

// A name from an engine or a tenant moves no cursor, sets no title and forges no line.
func TestTablesContainNoControlCharacters(t *testing.T) {
	for name, text := range map[string]string{
		"an escape": "\x1b[2Jgone", "a title": "\x1b]0;owned\x07",
		"a second line": "fine\nTENANT  acme  Healthy", "a carriage return": "bad\rgood",
		"a C1 control": "\u009b2J", "right to left": "\u202etxt.exe", "invisible": "ac\u200bme",
		"bytes": "\xff\xfe", "a backspace": "bad\b\b\bgood",
	} {
		t.Run(name, func(t *testing.T) {
			var facts strings.Builder
			if err := table.Facts(
				&facts, false, []table.Fact{
					{Name: "Message", Value: table.Text("x" + text)}}); err != nil {
				t.Fatal(err)
			}
			got := written(
				t, table.Table{Heads: []string{"A"}, Rows: [][]table.Value{{table.Text(text)}}},
				false)
			if strings.Count(got, "\n") != 2 {
				t.Errorf("it forges a line: %q", got)
			}
			for _, s := range []string{got, facts.String()} {
				if strings.ContainsAny(s, "\x1b\x07\r\b\u009b\u202e\u200b") ||
					!utf8.ValidString(s) {
					t.Errorf("%q", s)
				}
			}
		})
	}
}
