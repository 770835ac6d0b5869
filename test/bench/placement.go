package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/test/bench/report"
)

// placed measures how long it takes to place environments that bring one Application each, and how
// many of them change engine when engines or environments come or go, against as many clusters
// under Argo CD's own consistent hashing with the same bound on the load.
func placed(ctx context.Context, o options) (*report.Figure, error) {
	argo, err := startSharding(ctx)
	if err != nil {
		return nil, err
	}
	f := &report.Figure{
		Name:  "placement",
		Title: fmt.Sprintf("Placement of %d environments, against Argo CD's sharding", o.place)}
	err = errors.Join(
		choosing(f, argo, o, 10), choosing(f, argo, o, 50),
		grown(f, argo, o, 10), grown(f, argo, o, 50), shrunk(f, argo, o, 50),
		joined(f, argo, o, 50),
		argo.stop())
	if err != nil {
		return nil, err
	}
	f.Note(
		"floor: Argo CD %s, consistent-hashing, every cluster with one Application; its time is "+
			"that of one call of its distribution function, which places all clusters to return "+
			"the shard of one", argo.version)
	f.Note(
		"moves are per cent of what was there before. Argosy's are what its plans change: " +
			"revision 1 declares everything, revision 2 an engine or environments more, or one " +
			"engine draining. The environments of a draining engine must move and are counted " +
			"apart: it moves under any algorithm")
	f.Note(
		"placed from scratch: as if nothing were sticky, each side from nothing. Argo CD's " +
			"default is " +
			"its legacy algorithm, a hash modulo the number of shards")
	return f, nil
}

// choosing is the time to choose an engine for each, with the reasons for and against every engine,
// as a plan does.
func choosing(f *report.Figure, argo *shardingProcess, o options, n int) error {
	var choose, explain, theirs report.Sample
	for block := range o.blocks {
		progress("placing on %d engines, block %d of %d", n, block+1, o.blocks)
		in, ids := environments(o.place, block), uids(o.place, block)
		err := alternate(block, []func() error{
			func() error {
				choose = append(choose, milliseconds(func() { placement.Assign(in, engines(n)) }))
				explain = append(explain, milliseconds(func() { explainAll(in, n) }))
				return nil
			},
			func() error {
				a, err := argo.place(ids, n)
				theirs = append(theirs, a.Seconds*1000)
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	f.Add(report.Line{Name: fmt.Sprintf("choose, %d engines", n), Unit: "ms", Ours: choose,
		Goal: 50 * float64(o.place) / 25_000})
	f.Add(report.Against("  against Argo CD", "ms", choose, theirs, 0))
	f.Add(report.Against("  with every reason reported", "ms", explain, theirs, 0))
	return nil
}

func milliseconds(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds() * 1000
}

func explainAll(in []placement.Item, n int) {
	f, loads := placement.NewFleet(engines(n)), map[fleet.EngineName]fleet.EngineLoad{}
	for _, it := range in {
		p := f.Decide(it, nil)
		l := loads[p.Engine]
		l.Applications += p.Applications
		l.Environments++
		loads[p.Engine] = l
		f.Carry(p.Engine, l)
	}
}

// engines is n engines of one size.
func engines(n int) []placement.Engine {
	out := make([]placement.Engine, n)
	for i := range out {
		out[i] = placement.Engine{Name: engineName(i), Spec: fleet.EngineSpec{
			Region: "eu", Capacity: fleet.Capacity{Applications: 100_000, Environments: 100_000}}}
	}
	return out
}

func engineName(i int) fleet.EngineName { return fleet.EngineName(fmt.Sprintf("eu-%d", i)) }

// environments is n environments, twenty to a tenant; of other tenants in every block.
func environments(n, block int) []placement.Item {
	out := make([]placement.Item, n)
	for i := range out {
		out[i] = placement.Item{Environment: environmentOf(i, block), Region: "eu", Applications: 1}
	}
	return out
}

const perTenant = 20

func environmentOf(i, block int) fleet.EnvironmentID {
	return fleet.EnvironmentID{
		Tenant: fleet.TenantName(fmt.Sprintf("t%d-%05d", block, i/perTenant)),
		Name:   fleet.EnvironmentName(fmt.Sprintf("env-%02d", i%perTenant))}
}
