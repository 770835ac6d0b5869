package e2e

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A commit changes a constraint, and the environment that violates it moves by itself, there and
// back.
func TestMisplacedEnvironmentsMoveIfTheFleetDeclaresIt(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const fleetFile = "fleet/fleet.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant:     f.exampleFile(t, grant),
		fleetFile: looserGuards(fleetFile, f.exampleFile(t, fleetFile))}
	unchanged := f.untouched(t, f.Place("eu-1").Cluster, "acme-staging", "acme-checkout",
		"acme-storefront")
	moved := func(engine fleet.EngineName) {
		t.Helper()
		eventually(t, "staging is on "+string(engine), func() string {
			for _, e := range list[view.Environment](t, f, "environments", "--tenant", "acme") {
				if e.Name == "staging" && e.Engine == engine && e.Placement.Misplaced == "" {
					return ""
				}
			}
			return f.must(t, "describe", "engine", "eu-1") + f.must(t, "get", "moves", "-o", "wide")
		})
		eventually(t, "the move has ended", func() string {
			for _, m := range list[view.Move](t, f, "moves") {
				if m.Tenant == "acme" && m.Environment == "staging" && m.To == engine &&
					m.State == mirror.OperationSucceeded {
					return ""
				}
			}
			return f.must(t, "get", "moves", "-o", "wide")
		})
		f.allHealthy(t)
		f.live(t, string(engine), "acme", "checkout-staging", "staging")
		unchanged("staging is on " + string(engine))
	}
	f.commit(t, "misplaced environments move", map[string]string{
		fleetFile: before[fleetFile] + "  placement: {misplaced: Move}\n",
		grant:     strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)})
	f.commit(t, "staging belongs into the US", map[string]string{environment: strings.Replace(
		before[environment], "region: eu", "region: us", 1)})
	moved("us-1")
	f.commit(t, "staging belongs into the EU", map[string]string{environment: before[environment]})
	moved("eu-1")
	f.commit(t, "as before", before)
	f.allHealthy(t)
	if p := list[fleet.Problem](t, f, "problems"); len(p) > 0 {
		t.Errorf("at the end: %v", p)
	}
}
