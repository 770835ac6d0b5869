package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/cmd/argosy/table"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// hostile is what a tenant may put into a name, a path or a message: ESC, a title, C1, delete,
// bidirectional controls, characters without a width, line breaks of every kind.
const hostile = "a\x1b[2J\x1b]0;t\x07\u009b2J\x7f\u202eb\u2066\u2069\u200b\u2028\u2029\u0085\u3164\ufe0f\U000e0041\r\n::error::x\tz"

// raw finds a character that must not be printed as it is. Nothing here asks the package that
// decides: it must not agree with itself.
func raw(s string) error {
	for i, r := range s {
		switch {
		case r == '\n':
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Zl, r),
			unicode.Is(unicode.Zp, r), r == 0x3164, r == 0xfe0f,
			r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			return fmt.Errorf("%U is printed raw in %q", r, s)
		}
	}
	return nil
}

// poison appends text to every free text of a value.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			poison(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String &&
			v.Len() > 0 {
			v.SetMapIndex(reflect.ValueOf("k"+text).Convert(v.Type().Key()),
				reflect.ValueOf("v"+text).Convert(v.Type().Elem()))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[apitest.Token]() ||
			v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i), text)
			}
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(v.String() + text)
		}
	}
}

func poisoned(t testing.TB, text string) apitest.Mirror {
	t.Helper()
	content, err := os.ReadFile("testdata/mirror.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := apitest.Load(string(content), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m.Stops = append(m.Stops, mirror.Stop{Scope: "fleet", Reason: "x", By: "y"})
	m.Orphans = append(m.Orphans, view.Orphan{})
	m.Agents = append(m.Agents, view.Agent{})
	m.Sets = append(m.Sets, view.Set{})
	m.Moves = append(m.Moves, view.Move{Applications: []view.MovedApplication{{}}})
	m.Rebalances = append(m.Rebalances, mirror.Rebalance{State: mirror.RebalanceProposed,
		Moves: []mirror.RebalanceMove{{}}, Engines: []mirror.RebalanceEngine{{}}})
	m.Unproven = append(m.Unproven, view.Unproven{})
	m.Rollouts = append(m.Rollouts, mirror.Rollout{Waves: []mirror.RolloutWave{{}},
		Members: []mirror.RolloutMember{{}}})
	m.Freezes = append(m.Freezes, view.Freeze{})
	m.Credentials = append(m.Credentials, view.Credential{Engines: []fleet.EngineName{""}})
	m.Policies = append(m.Policies, view.Policy{PolicySpec: fleet.PolicySpec{
		Kinds: []fleet.Kind{""}, Tenants: []fleet.TenantName{""}}})
	m.Bulletins = append(m.Bulletins, view.Bulletin{Lacking: []view.EngineVersion{{}}})
	m.Rings, m.Pools = append(m.Rings, mirror.Ring{}), append(m.Pools, mirror.Pool{})
	m.Differences = append(m.Differences, mirror.Difference{
		Resources: []mirror.ResourceDifference{{Fields: []mirror.FieldDifference{{}}}}})
	m.Remedies = append(m.Remedies, mirror.Remedy{})
	m.Notifications = append(m.Notifications, mirror.Notification{ID: "1"})
	m.CommitStatuses = append(m.CommitStatuses, mirror.CommitStatus{})
	m.Audit = append(m.Audit, audit.Entry{N: 1, Actor: "x", Action: "y", Subject: "z"})
	m.Pulls = append(
		m.Pulls, apitest.Pull{Pull: view.Pull{Number: 7, State: forge.PullOpen}})
	operations := m.Operations
	m.Operations = nil // their IDs are what describe asks for
	poison(reflect.ValueOf(&m), text)
	m.Operations = operations
	for i := range m.Operations {
		m.Operations[i].Message, m.Operations[i].Subject, m.Operations[i].RequestedBy = text, text,
			text
	}
	return m
}

// Every command that lists or describes, in every format.
func TestNoCommandPrintsControlCharacters(t *testing.T) {
	t.Parallel()
	url := serve(apitest.New(poisoned(t, hostile)), t.Cleanup)
	env := map[string]string{"ARGOSY_SERVER": url, "ARGOSY_TOKEN": "argosy_ops_secret"}
	run := func(args ...string) (string, string, int) {
		var out, hints bytes.Buffer
		a := &app{in: strings.NewReader(""), out: &out, err: &hints,
			getenv: func(name string) string { return env[name] }}
		code := a.run(t.Context(), args)
		return out.String(), hints.String(), code
	}
	shown := func(args ...string) {
		outputs := map[string]string{}
		for _, format := range []string{"table", "wide", "name", "json", "yaml"} {
			if format == "wide" && args[0] != "get" || format == "name" && args[0] != "get" {
				continue
			}
			out, hints, code := run(append(args, "-o", format)...)
			if code != exitFine || out == "" && hints == "" {
				t.Errorf("%v -o %s ends with %d: %s", args, format, code, hints)
			}
			for _, text := range []string{out, hints} {
				if err := raw(text); err != nil {
					t.Errorf("%v -o %s: %v", args, format, err)
				}
			}
			outputs[format] = out
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(outputs["json"]), &fromJSON); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if err := yaml.Unmarshal([]byte(outputs["yaml"]), &fromYAML); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if !reflect.DeepEqual(fromJSON, fromYAML) {
			t.Errorf("%v: JSON and YAML differ:\n%s\n%s", args, outputs["json"], outputs["yaml"])
		}
		if args[0] == "get" && strings.Contains(outputs["json"], "202e") &&
			!holds(fromJSON, hostile) {
			t.Errorf("%v: the value does not come back: %s", args, outputs["json"])
		}
	}
	for _, r := range resources {
		shown("get", r.plural)
	}
	for kind, name := range map[string]string{
		"application": "acme/cart@prod-eu", "environment": "acme/prod-eu",
		"deployment": "acme/cart", "tenant": "acme",
		"engine": "us-1", "operation": "01J0000000000000000000002",
		"revision": "1a2b3c4d00000000000000000000000000000000"} {
		shown("describe", kind, name)
	}
	for _, command := range [][]string{{"nothing" + hostile}, {"get", "problems", "--" + hostile},
		{"describe", "tenant", "x" + hostile}, {"explain", hostile}, {"schema", hostile}} {
		out, hints, code := run(command...)
		if err := raw(out + hints); err != nil || code == exitFine {
			t.Errorf("%q ends with %d: %v", command, code, err)
		}
	}
}

// holds reports whether a text ends with the suffix somewhere in a tree.
func holds(tree any, suffix string) bool {
	switch v := tree.(type) {
	case string:
		return strings.HasSuffix(v, suffix)
	case []any:
		for _, x := range v {
			if holds(x, suffix) {
				return true
			}
		}
	case map[string]any:
		for _, x := range v {
			if holds(x, suffix) {
				return true
			}
		}
	}
	return false
}

// A folder's file names are untrusted too.
func TestNoOfflineCommandPrintsControlCharacters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := strings.NewReplacer("/", "", "\x00", "").Replace(hostile)
	for path, text := range map[string]string{
		"fleet/fleet.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: " +
			"Fleet\nmetadata: {name: fleet}\nspec: {gitHosts: [git.example.com]}\n",
		"tenants/acme/deployments/" + name:       "x",
		"tenants/acme/deployments/a.yaml":        "kind: \"GitOps\\e[2J\\u202e\"\n",
		"tenants/acme/syncs/b" + name + ".yaml":  "x",
		"tenants/ev" + name + "/syncs/b.yaml":    "x",
		"tenants/acme/environments/" + "c.yaml":  "metadata: {\"\\u202e\\u200b\": 1}\n",
		"tenants/acme/environments/" + "d.yaml":  "spec: {\"\\u009b2J\": 1}\n",
		"tenants/acme/credentials/bidi\u202e.md": "x",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"validate", dir, "-o", "text"}, {"validate", dir, "-o", "json"},
		{"validate", dir, "-o", "sarif"}, {"validate", dir, "-o", "github"},
		{"render", dir, "-o", "yaml"}, {"render", dir, "-o", "json"}, {"fmt", dir}} {
		var out, hints bytes.Buffer
		a := &app{in: strings.NewReader(""), out: &out, err: &hints, getenv: func(string) string {
			return ""
		}}
		a.run(t.Context(), args)
		if err := raw(out.String() + hints.String()); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if strings.HasSuffix(args[len(args)-1], "json") || args[len(args)-1] == "sarif" {
			if !json.Valid(out.Bytes()) {
				t.Errorf("%v prints no JSON: %s", args, out.String())
			}
		}
		if args[0] == "validate" && out.Len() == 0 {
			t.Errorf("%v prints nothing: %s", args, hints.String())
		}
	}
}

// No text, whatever it is, is printed raw by a writer of this project, and formats for programs
// give back what it was.
func FuzzNoFormatPrintsRaw(f *testing.F) {
	for _, s := range []string{"plain", hostile, "\xff\xfe", "|\n  - x: 1", "quoted1x", "`\n```\n",
		"%0A,:", "\"\\'", "yes", "- a", "\u0085", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		problem := fleet.Problem{Key: fleet.Key{Kind: fleet.KindFile, Name: s}, Path: s, Field: s,
			Line: 3, Severity: fleet.SeverityError, Code: s, Message: s, Fix: s}
		report := report.Report{Head: "1a2b3c4d", Summary: s, Problems: []fleet.Problem{problem},
			Platform: []string{s},
			Holds: []mirror.Hold{
				{Message: s, Paths: []string{s}, Items: []fleet.ObjectKey{{Name: s}}}},
			Tenants: []report.Tenant{
				{Name: "acme", Unplaced: []string{s}, Syncs: []report.Sync{{Revision: s}},
					Placements: []fleet.Placement{{Reason: s}},
					Engines: []report.Engine{
						{
							Name: "eu", Changes: []report.Change{
								{
									Subject: s, Note: s, Fields: []report.Field{
										{Path: s, Before: s, After: s}}}}}}}}}
		var out bytes.Buffer
		written := func(form string, err error) string {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", form, err)
			}
			if err := raw(out.String()); err != nil {
				t.Errorf("%s: %v", form, err)
			}
			text := out.String()
			out.Reset()
			return text
		}
		same := func(form, text string, read func(string, any) error) {
			t.Helper()
			var got map[string]string
			if err := read(text, &got); err != nil {
				t.Fatalf("%s: %q: %v", form, text, err)
			}
			if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) &&
				got["k"+want] != want {
				t.Errorf("%s: %q came back as %q", form, s, got)
			}
		}
		problems := []fleet.Problem{problem}
		same("yaml", written("yaml", writeYAML(&out, map[string]string{"k" + s: s})),
			func(s string, v any) error { return yaml.Unmarshal([]byte(s), v) })
		same("json", written("json", writeJSON(&out, map[string]string{"k" + s: s})),
			func(s string, v any) error { return json.Unmarshal([]byte(s), v) })
		written("text", configschema.WriteText(&out, problems, false))
		if n := strings.Count(written("github", configschema.WriteGitHub(&out, problems)),
			"\n"); n != 1 {
			t.Errorf("github: %d lines", n)
		}
		for form, write := range map[string]func() error{
			"problems": func() error { return configschema.WriteJSON(&out, problems) },
			"sarif":    func() error { return configschema.WriteSARIF(&out, problems, "v1") },
			"plan":     func() error { return report.WriteJSON(&out) }} {
			if text := written(form, write()); !json.Valid([]byte(text)) {
				t.Errorf("%s: %q is no JSON", form, text)
			}
		}
		written("plan as text", report.WriteText(&out))
		written("plan as Markdown", report.WriteMarkdown(&out))
		if n := strings.Count(
			written(
				"table", table.Table{
					Heads: []string{"A"}, Rows: [][]table.Value{{table.Text(s)}}}.Write(
					&out, false)), "\n"); n != 2 {
			t.Errorf("table: %d lines", n)
		}
		written("facts", table.Facts(&out, false, []table.Fact{{Name: "A", Value: table.Text(s)}}))
		a := &app{out: &out, err: &out}
		if n := strings.Count(written("name", a.printLine("%s", s)), "\n"); n != 1 {
			t.Errorf("name: %d lines", n)
		}
		a.hint("error: %s", s)
		written("hint", nil)
		for _, format := range []string{"text", "json"} {
			settings.Log{Level: "info", Format: format}.Logger(&out).Warn(s, slog.Any("path", s),
				slog.Any("error", fmt.Errorf("%s", s)))
			if n := strings.Count(written("log as "+format, nil), "\n"); n != 1 {
				t.Errorf("log: %d lines", n)
			}
		}
	})
}
