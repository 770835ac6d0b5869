package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var rebalancing = flag.Bool("rebalance", false,
	"rebalance the measured load of a real Argo CD, for which no environment may have moved for 15 "+
		"minutes (6 min)")

// A real Argo CD of version 3.5 reports its load, for which us-1 has little capacity: an
// environment has to leave it for eu-1, without a Pod of its workload touched. The controller of
// 2.14 on eu-1 does not report its CPU: the engine counts by its Applications and gives nothing.
func TestTheMeasuredLoadOfARealArgoCDIsRebalanced(t *testing.T) {
	if !*rebalancing {
		t.Skip("make load-rebalance runs it: a measurement takes minutes, and a move delays it")
	}
	f := platform.use(t)
	f.allHealthy(t)
	const small, other = "fleet/engines/us-1.yaml", "fleet/engines/eu-1.yaml"
	before := map[string]string{small: f.exampleFile(t, small), other: f.exampleFile(t, other)}
	controller, repoServer := f.Place("us-1").ArgoCD.Metrics()
	f.commit(t, "us-1 is measured, and eu-1 may take its environments", map[string]string{
		small: strings.Replace(before[small], "applications: 1500", "applications: 30", 1) +
			fmt.Sprintf("  metrics: {applicationController: [{url: %q}], repoServer: [{url: %q}]}\n",
				controller, repoServer),
		other: strings.Replace(before[other], "region: eu", "region: us", 1)})
	unchanged := f.untouched(t, f.Place("us-1").Cluster, "globex-billing", "globex-web",
		"initech-portal")
	f.awaits(t, "the load of us-1 is measured", func(e view.Engine) bool {
		return e.Measured != nil && e.Measured.Message == "" && e.Measured.Controller != nil &&
			e.Measured.Controller.CPU > 0
	})
	eventually(t, "a simulation relieves us-1 by its measured load", func() string {
		out, errs, _ := f.argosy(t, "simulate", "rebalance")
		if _, moves, found := strings.Cut(out, "\nMoves\n"); !found ||
			!strings.Contains(moves, "/prod-us") || !strings.Contains(moves, "eu-1") {
			return out + errs
		}
		return ""
	})
	f.rebalances(t)
	unchanged("after the rebalance")
	f.commit(t, "as before", before)
	for _, e := range list[view.Environment](t, f, "environments") {
		if e.Name == "prod-us" && e.Engine != "us-1" {
			f.must(t, "move", "environment", string(e.Tenant)+"/prod-us", "--to", "us-1", "--watch")
		}
	}
	f.allHealthy(t)
	unchanged("at the end")
}

// rebalances accepts the proposal and waits until its first environment has moved.
func (f *system) rebalances(t *testing.T) {
	t.Helper()
	var id string
	f.awaits(t, "a rebalance is proposed", func(view.Engine) bool {
		all := list[mirror.Rebalance](t, f, "rebalances")
		if len(all) == 0 || all[0].State != mirror.RebalanceProposed {
			return false
		}
		id = all[0].ID
		return true
	})
	t.Log(f.must(t, "describe", "rebalance", id))
	f.must(t, "accept-rebalance", id)
	f.awaits(t, "an environment has moved", func(view.Engine) bool {
		for _, r := range list[mirror.Rebalance](t, f, "rebalances") {
			if r.ID == id && slices.ContainsFunc(r.Moves, func(m mirror.RebalanceMove) bool {
				return m.State == mirror.RebalanceMoveMoved
			}) {
				return true
			}
		}
		return false
	})
	t.Log(f.must(t, "describe", "rebalance", id))
}
