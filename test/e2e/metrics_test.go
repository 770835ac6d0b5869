package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"argosy.dev/argosy/test/stack"
)

const chartFiles = "../../charts/argosy/files/"

// scraper is a real Prometheus that scrapes the control plane every second, with the chart's
// alerts, whose patience is three seconds here.
func (f *system) scraper(t *testing.T) *stack.Prometheus {
	t.Helper()
	rules, err := os.ReadFile(chartFiles + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "alerts.yaml")
	hasty := regexp.MustCompile(`(?m)^( +for): .*$`).ReplaceAll(rules, []byte("$1: 3s"))
	if err := os.WriteFile(file, hasty, 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := stack.StartPrometheus(t.Context(), stack.PrometheusOptions{
		Dir: dir, Config: fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: argosy
  static_configs: [{targets: [%q], labels: {namespace: argosy}}]
`, file, strings.TrimPrefix(f.plane.Ops, "http://"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

// answered queries Prometheus and returns an error text when the answer is empty.
func answered(t *testing.T, p *stack.Prometheus, expression string) func() string {
	return func() string {
		t.Helper()
		found, err := p.Query(t.Context(), expression)
		if err != nil {
			return err.Error()
		}
		if len(found) == 0 {
			return "nothing has " + expression
		}
		return ""
	}
}

// alerting are the alerts that are pending or firing, each with its engine. Those of agents are
// left out: whether one has joined is other tests' affair.
func alerting(t *testing.T, p *stack.Prometheus) map[string]string {
	t.Helper()
	found, err := p.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, a := range found {
		if strings.HasPrefix(a.Labels["alertname"], "ArgosyAgents") {
			continue
		}
		states[strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["engine"])] = a.State
	}
	return states
}

func TestPrometheusShowsACommitOnItsWayAndAnEngineThatIsAway(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	p := f.scraper(t)
	eventually(t, "the fleet is shown",
		answered(t, p, `argosy_leader == 1 and on () (count(argosy_engine_reachable == 1) == 2)`))
	f.commit(t, "to be measured", map[string]string{
		"tenants/acme/deployments/measured.yaml": f.deployment("measured", "staging",
			"acme-staging",
			"")})
	f.allHealthy(t, "acme/measured@staging")
	for _, stage := range []string{"recorded", "applied", "synced", "healthy"} {
		eventually(t, "the commit has been counted as "+stage,
			answered(t, p, `argosy_commit_seconds_count{stage="`+stage+`"} >= 1`))
	}
	eventually(t, "engines have what they are to have",
		answered(t, p, `sum(argosy_engine_rows) == 0`))
	quiet := func() string {
		if now := alerting(t, p); len(now) > 0 {
			return fmt.Sprint(now)
		}
		return ""
	}
	// the fleet is looked at every 15 seconds: what the test before did may be shown until then
	eventually(t, "no alert in a healthy fleet", quiet)
	everyPanelHasData(t, p)

	back := f.lose(t, "us-1")
	gone := func() string {
		if state := alerting(t, p)["ArgosyEngineUnreachable us-1"]; state != "firing" {
			return "its alert is " + state
		}
		return ""
	}
	eventually(t, "the engine's absence is reported", gone)
	now := alerting(t, p)
	back()
	for name := range now {
		if strings.HasSuffix(name, " eu-1") || strings.HasPrefix(name, "ArgosyNoLeader") {
			t.Errorf("with us-1 away: %v", now)
		}
	}
	eventually(t, "its return is seen", quiet)
	f.remove(t, "measured", "tenants/acme/deployments/measured.yaml")
	f.allHealthy(t)
}

// everyPanelHasData asks what the chart's dashboard would.
func everyPanelHasData(t *testing.T, p *stack.Prometheus) {
	t.Helper()
	b, err := os.ReadFile(chartFiles + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		var missing []string
		for _, target := range panel.Targets {
			if m := answered(t, p, stack.Filled(target.Expr))(); m != "" {
				missing = append(missing, m)
			}
		}
		if len(missing) == len(panel.Targets) {
			t.Errorf("panel %q shows nothing: %v", panel.Title, missing)
		}
	}
}
