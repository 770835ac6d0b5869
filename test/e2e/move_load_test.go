package e2e

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var applicationsToMove = flag.Int("move.applications", 3,
	"how many Applications, beside the example's, move to another engine and back")

// alwaysDeleted is how many Applications looserGuards let one commit delete.
const alwaysDeleted = 15

// An environment with many Applications, each with a workload of its own, moves from Argo CD 2.14
// to 3.5 and back. The test prints how long the moves take and how many requests they send.
func TestAnEnvironmentWithManyApplicationsMovesTogether(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant)}
	both := strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)
	files, paths, ids := f.manyWorkloads(t, *applicationsToMove)
	files[environment] = strings.Replace(before[environment], "region: eu", "region: us", 1)
	files[grant] = both
	f.commit(t, "many workloads in staging", files)
	f.allHealthy(t, ids...)
	workload, audited := f.workloadOf(t), len(f.audited(t))

	f.moveStaging(t, "us-1")
	f.commit(t, "staging belongs into the EU", map[string]string{environment: before[environment]})
	f.moveStaging(t, "eu-1")
	f.allHealthy(t, ids...)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("during the moves: %s", e)
	}
	f.commit(t, "as before", before)
	revision := f.remove(t, "no more workloads", paths...)
	if len(paths) > alwaysDeleted {
		f.must(t, "release", string(revision))
	}
	f.allHealthy(t)
}

// manyWorkloads is deployments in staging that each deploy the checkout under another name.
func (f *system) manyWorkloads(t *testing.T, n int) (files map[string]string, paths, ids []string) {
	t.Helper()
	files = map[string]string{}
	checkout := f.exampleFile(t, "tenants/acme/deployments/checkout-staging.yaml")
	for i := range n {
		name := fmt.Sprintf("checkout-%d", i)
		path := "tenants/acme/deployments/" + name + ".yaml"
		files[path] = strings.NewReplacer("name: checkout-staging", "name: "+name, "kustomize:",
			fmt.Sprintf("kustomize:\n      nameSuffix: \"-%d\"", i)).Replace(checkout)
		paths, ids = append(paths, path), append(ids, "acme/"+name+"@staging")
	}
	return files, paths, ids
}

// moveStaging moves the environment, and logs what that took.
func (f *system) moveStaging(t *testing.T, engine string) {
	t.Helper()
	eventually(t, "a dry run finds nothing against the move", func() string {
		out, errs, code := f.argosy(t, "move", "environment", staging, "--to", engine, "--dry-run")
		return map[bool]string{true: out + errs}[code != 0]
	})
	f.must(t, "move", "environment", staging, "--to", engine)
	var move view.Move
	eventually(t, "it has moved to "+engine, func() string {
		for _, m := range list[view.Move](t, f, "moves") {
			if m.Tenant == "acme" && m.Environment == "staging" && string(m.To) == engine &&
				m.State == mirror.OperationSucceeded {
				move = m
				return ""
			}
		}
		return "not yet: " + f.must(t, "get", "moves", "-o", "wide") // empty before it begins
	})
	requests, unowned := 0, 0.0
	steps := map[mirror.MoveStep]mirror.EndedStep{} // of all Applications together
	for _, a := range move.Applications {
		seconds := 0.0
		for _, s := range a.Took {
			requests += s.Calls
			steps[s.Step] = mirror.EndedStep{Seconds: steps[s.Step].Seconds + s.Seconds,
				Calls: steps[s.Step].Calls + s.Calls}
			if slices.Contains([]mirror.MoveStep{mirror.MoveFreeze, mirror.MoveAdopt,
				mirror.MoveDelete, mirror.MoveEnable}, s.Step) {
				seconds += s.Seconds
			}
		}
		unowned = max(unowned, seconds)
	}
	t.Logf("%d Applications moved to %s in %s, with %.1f requests each; none was without "+
		"automation for longer than %.1f s", move.Total, engine,
		move.EndedAt.Sub(move.StartedAt).Round(100*time.Millisecond),
		float64(requests)/float64(move.Total), unowned)
	n := float64(move.Total)
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		t.Logf("%-8s %6.1f s and %5.1f requests each", step, steps[step].Seconds/n,
			float64(steps[step].Calls)/n)
	}
}
