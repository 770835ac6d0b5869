package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// An environment is split over Argo CD 2.14 and 3.5, with a killed control plane and commits
// meanwhile, and joined again on each of the two. Each Application is on exactly one engine
// afterwards. The cluster's audit log shows that no object of the workload was created or deleted,
// besides those of the commits.
func TestAnEnvironmentIsSplitOverTwoEnginesAndJoinedAgain(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant)}
	files, paths, ids := f.manyWorkloads(t, 6)
	files[grant] = strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)
	files[environment] = strings.Replace(before[environment], "region: eu", "region: us", 1)
	f.commit(t, "many workloads in staging, which belongs into the US", files)
	f.allHealthy(t, ids...)
	workload, audited := f.workloadOf(t), len(f.audited(t))

	f.unopposed(t, "split", "--to", "us-1")
	f.must(t, "split", "environment", staging, "--to", "us-1", "--note", "test")
	f.plane.Process.Kill()
	f.startPlane(t)
	f.moved(t, "1", "us-1")
	f.placedBySlices(t, map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "us-1"})
	if out, errs, code := f.argosy(t, "move", "environment", staging, "--to", "us-1"); code == 0 ||
		!strings.Contains(errs, "slices 0, 1") {
		t.Errorf("a move of all of a split environment ends with %d: %s%s", code, out, errs)
	}
	out := f.must(t, "explain", "environment", staging)
	if !strings.Contains(out, "Slice 0") || !strings.Contains(out, "Slice 1") {
		t.Errorf("the slices are not explained:\n%s", out)
	}

	// a change and a new deployment reach the engine of their slice, and a removed one is deleted
	// there
	created, late := map[string]string{}, []string{}
	for i := range 4 {
		name := fmt.Sprintf("late-%d", i)
		path := "tenants/acme/deployments/" + name + ".yaml"
		created[path] = f.deployment(name, "staging", "acme-staging", "  sync: {mode: manual}\n")
		late = append(late, path)
	}
	f.commit(t, "deployments in a split environment", created)
	f.placedBySlices(t, map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "us-1"})
	f.remove(t, "they are gone", late...)
	f.placedBySlices(t, map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "us-1"})

	f.unopposed(t, "join", "--to", "us-1")
	if out, errs, code := f.argosy(t, "join", "environment", staging, "--to", "us-1",
		"--watch"); code != 0 {
		t.Fatalf("the join ends with %d: %s%s", code, out, errs)
	}
	f.placedBySlices(t, map[fleet.Slice]fleet.EngineName{"": "us-1"})
	f.commit(t, "staging belongs into the EU", map[string]string{environment: before[environment]})
	f.moveStaging(t, "eu-1")
	f.placedBySlices(t, map[fleet.Slice]fleet.EngineName{"": "eu-1"})
	f.allHealthy(t, ids...)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("during the split and the joins: %s", e)
	}
	f.commit(t, "as before", before)
	f.remove(t, "no more workloads", paths...)
	f.allHealthy(t)
}

// unopposed waits until a dry run names no reason against a split or a join of staging.
func (f *system) unopposed(t *testing.T, verb string, flags ...string) {
	t.Helper()
	eventually(t, "nothing is against the "+verb, func() string {
		args := append([]string{verb, "environment", staging, "--dry-run"}, flags...)
		out, errs, code := f.argosy(t, args...)
		return map[bool]string{true: out + errs}[code != 0]
	})
}

// moved waits for the end of a slice's move.
func (f *system) moved(t *testing.T, slice fleet.Slice, to fleet.EngineName) {
	t.Helper()
	eventually(t, "the slice has moved", func() string {
		for _, m := range list[view.Move](t, f, "moves") {
			if m.Tenant == "acme" && m.Environment == "staging" && m.Slice == slice && m.To == to &&
				m.State == mirror.OperationSucceeded {
				return ""
			}
		}
		return "not yet: " + f.must(t, "get", "moves", "-o", "wide")
	})
}

// placedBySlices waits until staging has exactly these slices, and each of its Applications is an
// object of the engine of its slice alone.
func (f *system) placedBySlices(t *testing.T, want map[fleet.Slice]fleet.EngineName) {
	t.Helper()
	eventually(t, fmt.Sprint("staging is on ", want), func() string {
		for _, e := range list[view.Environment](t, f, "environments") {
			if e.Tenant != "acme" || e.Name != "staging" {
				continue
			}
			found := map[fleet.Slice]fleet.EngineName{}
			for _, p := range e.Slices {
				found[p.Slice] = p.Engine
			}
			if len(e.Slices) == 0 {
				found[""] = e.Engine
			}
			if fmt.Sprint(found) != fmt.Sprint(want) {
				return fmt.Sprintf("not yet: it is on %v", found)
			}
		}
		declared := map[string]fleet.EngineName{}
		for _, a := range list[view.Application](t, f, "applications") {
			if a.Tenant == "acme" && a.Environment == "staging" {
				declared[a.Object()] = a.Engine
				for slice, engine := range want {
					if slice.Holds(a.Deployment) && a.Engine != engine {
						return fmt.Sprintf("not yet: %s is on %s", a.Deployment, a.Engine)
					}
				}
			}
		}
		objects := 0
		for _, engine := range []fleet.EngineName{"eu-1", "us-1"} {
			for _, name := range f.applicationsOn(t, string(engine), "acme", "staging") {
				objects++
				if declared[name] != engine {
					return fmt.Sprintf("not yet: %s has %s", engine, name)
				}
			}
		}
		if objects != len(declared) || objects == 0 {
			return fmt.Sprintf("not yet: %d objects of %d Applications", objects, len(declared))
		}
		return ""
	})
}

// applicationsOn lists the names of an environment's Applications on an engine.
func (f *system) applicationsOn(t *testing.T, engine, tenant, environment string) (all []string) {
	t.Helper()
	found, err := f.onEngine(engine).List(t.Context(), metav1.ListOptions{
		LabelSelector: "argosy.dev/tenant=" + tenant + ",argosy.dev/environment=" + environment})
	check(t, err)
	for _, o := range found.Items {
		all = append(all, o.GetName())
	}
	return all
}
