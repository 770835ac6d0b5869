package alerts

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/test/stack"
)

const (
	rulesPath     = "../../charts/argosy/files/alerts.yaml"
	dashboardPath = "../../charts/argosy/files/dashboard.json"
	runbooks      = "../../docs/runbooks"
	referencePath = "../../docs/metrics.md"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alert is one rule of alerts.yaml.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) map[string]alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(read(t, rulesPath)), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]alert{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// promtool runs promtool in a folder with these files and returns its output.
func promtool(t *testing.T, files map[string]string, args ...string) (string, error) {
	t.Helper()
	c, err := stack.Promtool(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestEveryAlertFiresInItsCaseAndInNoOther(t *testing.T) {
	cases := read(t, "cases.yaml")
	rules := read(t, rulesPath)
	if out, err := promtool(t, map[string]string{"alerts.yaml": rules, "cases.yaml": cases}, "test",
		"rules", "cases.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for name := range alerts(t) {
		if !strings.Contains(cases, `alertname="`+name+`"`) {
			t.Errorf("%s fires in no case", name)
		}
	}
	// The cases are worth something: with another threshold one fails.
	broken := strings.ReplaceAll(rules, "> 900", "> 90000")
	if _, err := promtool(t, map[string]string{"alerts.yaml": broken, "cases.yaml": cases}, "test",
		"rules", "cases.yaml"); err == nil || broken == rules {
		t.Error("a wrong threshold passes")
	}
}

func TestEveryAlertHasItsPage(t *testing.T) {
	all := alerts(t)
	pages, err := filepath.Glob(runbooks + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if _, ok := all[name]; !ok && name != "README" {
			t.Errorf("%s is of no alert", page)
		}
	}
	for name, a := range all {
		if want := "https://argosy.dev/docs/runbooks/" + name +
			".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: its page is %s", name, want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) ||
			a.Annotations["summary"] == "" {
			t.Errorf("%s: %+v", name, a)
		}
		page := read(t, filepath.Join(runbooks, name+".md"))
		for _, head := range []string{"# " + name + "\n", "\n## What it means\n",
			"\n## How to confirm\n", "\n## What to do\n", "\n## What not to do\n"} {
			if !strings.Contains("\n"+page, head) {
				t.Errorf("%s.md has no %q", name, strings.TrimSpace(head))
			}
		}
	}
}

// panel is one of the dashboard's.
type panel struct {
	ID      int
	Title   string
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, dashboardPath)), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

func TestDashboardAsksInPromQL(t *testing.T) {
	seen := map[int]bool{}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: panels\n  rules:\n")
	for _, p := range panels(t) {
		if seen[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		seen[p.ID] = true
		for i, target := range p.Targets {
			fmt.Fprintf(&rules, "  - {record: 'panel_%d_%d', expr: %q}\n", p.ID, i,
				stack.Filled(target.Expr))
		}
	}
	if out, err := promtool(t, map[string]string{"panels.yaml": rules.String()}, "check", "rules",
		"panels.yaml"); err != nil || len(seen) == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

var (
	referenceRow = regexp.MustCompile(
		"(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\| ([^|]*) \\|")
	asked   = regexp.MustCompile(`\b((?:argosy|process|go)_[a-z_]+)\b(?:\{([^}]*)\})?`)
	matcher = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouped = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
)

// metrics are the labels of each series that the program has, by the metric's name, as
// docs/metrics.md lists them: a test of cmd/argosy/server compares that page with the registry.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{"process_resident_memory_bytes": nil,
		"process_cpu_seconds_total": nil}
	for _, row := range referenceRow.FindAllStringSubmatch(read(t, referencePath), -1) {
		var labels []string
		for label := range strings.SplitSeq(row[3], ", ") {
			labels = append(labels, strings.Trim(label, "` "))
		}
		if row[2] != "histogram" {
			known[row[1]] = labels
			continue
		}
		known[row[1]+"_bucket"] = append(labels, "le")
		known[row[1]+"_count"], known[row[1]+"_sum"] = labels, labels
	}
	return known
}

// scraped are the labels that a scrape gives.
var scraped = []string{"namespace", "job", "instance"}

func TestNothingAsksForAMetricOrALabelThatIsNotThere(t *testing.T) {
	known := metrics(t)
	expressions := map[string]string{}
	for name, a := range alerts(t) {
		expressions[name] = a.Expr
	}
	for _, p := range panels(t) {
		for i, target := range p.Targets {
			expressions[fmt.Sprintf("%s, %d", p.Title, i)] = target.Expr
		}
	}
	used := map[string]bool{}
	for what, expr := range expressions {
		labels := slices.Clone(scraped)
		for _, m := range asked.FindAllStringSubmatch(expr, -1) {
			of, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: there is no %s", what, m[1])
			}
			used[m[1]] = true
			labels = append(labels, of...)
			for _, by := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(of, by[1]) && !slices.Contains(scraped, by[1]) {
					t.Errorf("%s: %s has no label %s", what, m[1], by[1])
				}
			}
		}
		for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(g[1], ",") {
				if !slices.Contains(labels, strings.TrimSpace(label)) {
					t.Errorf("%s: nothing in it has a label %s", what, label)
				}
			}
		}
	}
	if len(used) < 20 {
		t.Errorf("only %v are asked for: the test does not see them",
			slices.Collect(maps.Keys(used)))
	}
}
