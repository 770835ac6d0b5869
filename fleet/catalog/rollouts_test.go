package catalog

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// Waves order commits and tags, and metrics that the Fleet declares.
func TestARolloutIsWarnedOfWhatItsWavesCannotHold(t *testing.T) {
	const at = "GitOpsDeployment acme/web spec."
	for _, c := range []struct {
		revision, override string
		waves              bool
		metrics            []string
		want               string
	}{
		{"main", "", true, nil, at + "source.targetRevision branch-passes-waves"},
		{"main", "", false, nil, ""},
		{"refs/heads/release-1", "", true, nil, at + "source.targetRevision branch-passes-waves"},
		{"v1.2.3", "", true, nil, ""},
		{"refs/tags/stable", "", true, nil, ""},
		{"4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a", "", true, nil, ""},
		{"v1", "HEAD", true, nil, at + "overrides[0].source.targetRevision branch-passes-waves"},
		{"v1", "", true, []string{"error-rate"}, ""},
		{"v1", "", true, []string{"latency"}, at + "rollout.waves[0].metrics[0] rollout-metric"},
	} {
		web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
			d.Deployment.Source.TargetRevision = c.revision
			if c.override != "" {
				d.Deployment.Overrides = []fleet.Override{{Environment: "prod",
					Source: fleet.SourceOverride{TargetRevision: c.override}}}
			}
			if c.waves {
				d.Deployment.Rollout = &fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "prod",
					Environments: []fleet.EnvironmentName{"prod"}, Metrics: c.metrics}}}
			}
		})
		withMetric := remake(theFleet(), func(d *fleet.Declaration) {
			d.Fleet.Prometheus = &fleet.Prometheus{Metrics: []fleet.Metric{{Name: "error-rate"}}}
		})
		catalog := New()
		good(t, catalog, withMetric, engine("eu-1"), tenant("acme"), environment("acme/prod"))
		var got []string
		for _, p := range catalog.Prepare([]Input{web}).Problems() {
			if p.Severity == fleet.SeverityError {
				t.Errorf("%+v", p)
			}
			got = append(got, codes([]fleet.Problem{p}))
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%q, %q, %v: %q, want %q", c.revision, c.override, c.metrics, all, c.want)
		}
	}
}
