package e2e

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// The engine of two tenants drains to an engine with another version of Argo CD. Its declaration is
// removed, and comes back. The cluster's audit log shows that no object of a workload was created
// or deleted.
func TestAnEngineDrainsAndItsDeclarationIsRemoved(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const engine, grant = "fleet/engines/us-1.yaml", "fleet/tenants/initech.yaml"
	moving := []string{"globex/prod-us", "initech/prod-us"}
	before := map[string]string{engine: f.exampleFile(t, engine), grant: f.exampleFile(t, grant)}
	anywhere := map[string]string{
		grant: strings.Replace(before[grant], "regions: [us]", "regions: [eu, us]", 1)}
	for _, id := range moving {
		tenant, name, _ := strings.Cut(id, "/")
		path := "tenants/" + tenant + "/environments/" + name + ".yaml"
		before[path] = f.exampleFile(t, path)
		anywhere[path] = strings.Replace(before[path], "region: us", "region: eu", 1)
	}
	f.commit(t, "the workloads of us-1 may be served from the EU", anywhere)
	f.allHealthy(t)

	namespaces := []string{"globex-billing", "globex-web", "initech-portal"}
	workloads := f.workloadsIn(t, "us-1", namespaces...)
	audited := len(f.auditedIn(t, "us-1", namespaces...))
	f.commit(t, "us-1 drains", map[string]string{
		engine: strings.Replace(before[engine], "state: Active", "state: Draining", 1)})
	eventually(t, "us-1 is empty", func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			if e.Name == "us-1" && e.Drain != nil && e.Drain.State == mirror.DrainEmpty {
				return ""
			}
		}
		return f.must(t, "describe", "engine", "us-1") + f.must(t, "get", "moves", "-o", "wide")
	})
	f.remove(t, "us-1 is empty", engine)
	eventually(t, "us-1 is not declared", func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			if e.Name == "us-1" {
				return f.must(t, "get", "problems")
			}
		}
		return ""
	})
	f.allHealthy(t)

	f.commit(t, "us-1 is back", before)
	for _, id := range moving {
		eventually(t, "nothing is against its move back", func() string {
			out, errs, code := f.argosy(t, "move", "environment", id, "--to", "us-1", "--dry-run")
			if code != 0 {
				return out + errs
			}
			return ""
		})
		out, errs, code := f.argosy(t, "move", "environment", id, "--to", "us-1", "--watch")
		if code != 0 {
			t.Fatalf("the move of %s back ends with %d: %s%s", id, code, out, errs)
		}
	}
	f.allHealthy(t)
	if now := f.workloadsIn(t, "us-1", namespaces...); !slices.Equal(workloads, now) {
		t.Errorf("the workloads were\n%q\nand are\n%q", workloads, now)
	}
	for _, e := range f.auditedIn(t, "us-1", namespaces...)[audited:] {
		t.Errorf("during the drain: %s", e)
	}
}
