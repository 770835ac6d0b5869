package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/test/bench/report"
)

// fleetsPerBlock random fleets make one sample; with five blocks there are a hundred.
const fleetsPerBlock = 20

// randomFleet is environments with 1 to 50 Applications each, few of them large, on engines of one
// size: Argo CD's sharding knows no other.
type randomFleet struct {
	engines      int
	ids          []string // of the clusters, for Argo CD
	items        []placement.Item
	applications []int
}

func newRandomFleet(block, n int) randomFleet {
	r := rand.New(rand.NewPCG(uint64(block), uint64(n)+2))
	f := randomFleet{engines: 3 + r.IntN(18)}
	size := f.engines * (10 + r.IntN(50))
	f.ids, f.items = uids(size, block*fleetsPerBlock+n), environments(size, block*fleetsPerBlock+n)
	for i := range f.items {
		f.items[i].Applications = int(math.Exp(r.Float64() * math.Log(50)))
		f.applications = append(f.applications, f.items[i].Applications)
	}
	return f
}

// fleets measures what moves when an engine joins and when one leaves, over random fleets.
func fleets(ctx context.Context, o options) ([]*report.Figure, error) {
	argo, err := startSharding(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"consistent-hashing", "legacy", "round-robin"}
	join, leave := map[string]*churn{}, map[string]*churn{}
	for _, name := range append(names, "argosy") {
		join[name], leave[name] = &churn{}, &churn{}
	}
	measure := func() error {
		for block := range o.blocks {
			progress("random fleets, block %d of %d", block+1, o.blocks)
			for n := range fleetsPerBlock {
				if err := newRandomFleet(block, n).measure(argo, join, leave); err != nil {
					return err
				}
			}
			for _, name := range append(names, "argosy") {
				join[name].end()
				leave[name].end()
			}
		}
		return nil
	}
	if err := errors.Join(measure(), argo.stop()); err != nil {
		return nil, err
	}
	var figures []*report.Figure
	for _, name := range names {
		f := &report.Figure{Name: "fleets-" + name, Title: fmt.Sprintf(
			"A joining and a leaving engine in %d random fleets, against %s",
			o.blocks*fleetsPerBlock, name)}
		figures = append(figures, f)
		for _, c := range []struct {
			name   string
			change map[string]*churn
		}{{"join", join}, {"leave", leave}} {
			ours, theirs := c.change["argosy"], c.change[name]
			f.Add(report.Against(c.name+": extra moves", "%", ours.extra, theirs.extra, 0.2))
			f.Add(report.Against(c.name+": all moves", "%", ours.all, theirs.all, 0))
			goal := 0.0
			if name == "consistent-hashing" {
				goal = 1
			}
			f.Add(report.Against(c.name+": deviation of load", "%", ours.spread,
				theirs.spread, goal))
			f.Add(report.Against(c.name+": fullest engine", "%", ours.fullest, theirs.fullest,
				0))
			if c.name == "join" {
				f.Add(report.Against("join: the new engine", "%", ours.joined, theirs.joined, 0))
			}
		}
	}
	f := figures[len(figures)-1]
	f.Note("floor: Argo CD %s. A fleet has 3 to 20 engines of one size and 10 to 59 environments for "+
		"each, with 1 to 50 Applications. A sample is the mean of %d fleets", argo.version,
		fleetsPerBlock)
	f.Note("moves are per cent of the environments. Extra moves are those between engines of which " +
		"none joins or leaves: what has to move is not counted")
	f.Note("deviation of load: the standard deviation of the engines' Applications, per cent of " +
		"their mean; the fullest engine and the new one: per cent of the mean. Only consistent-hashing has a bound " +
		"on the load, the same as Argosy's; round-robin counts clusters")
	return figures, nil
}

// measure adds one fleet to the samples under way.
func (r randomFleet) measure(argo *shardingProcess, join, leave map[string]*churn) error {
	var placed [3]shards // with an engine less, as it is, with one more
	for i := range placed {
		var err error
		if placed[i], err = argo.placeLoads(r.ids, r.applications, r.engines-1+i); err != nil {
			return err
		}
	}
	for name, by := range map[string]func(shards) []int{
		"consistent-hashing": bounded, "legacy": legacy,
		"round-robin": func(s shards) []int { return s.RoundRobin }} {
		join[name].add(by(placed[1]), by(placed[2]), r.applications, r.engines+1, r.engines)
		leave[name].add(by(placed[1]), by(placed[0]), r.applications, r.engines-1, r.engines-1)
	}
	before := r.placed()
	after, err := r.simulated(before, placement.Change{Kind: placement.Join,
		Engine: engineName(r.engines), Like: engineName(0)})
	if err != nil {
		return err
	}
	join["argosy"].add(before, after, r.applications, r.engines+1, r.engines)
	after, err = r.simulated(before, placement.Change{Kind: placement.Drain,
		Engine: engineName(r.engines - 1)})
	if err != nil {
		return err
	}
	leave["argosy"].add(before, after, r.applications, r.engines-1, r.engines-1)
	return nil
}

// placed gives the environments engines in the order of their arrival.
func (r randomFleet) placed() []int {
	out := make([]int, len(r.items))
	for i, name := range placement.Assign(r.items, engines(r.engines)) {
		out[i] = engineIndex(name)
	}
	return out
}

func engineIndex(name fleet.EngineName) (i int) {
	if _, err := fmt.Sscanf(string(name), "eu-%d", &i); err != nil {
		return -1
	}
	return i
}

func (r randomFleet) simulated(on []int, c placement.Change) ([]int, error) {
	s := placement.Snapshot{Engines: engines(r.engines)}
	at := map[fleet.EnvironmentID]int{}
	for i, item := range r.items {
		e := &s.Engines[on[i]]
		e.Load.Environments++
		e.Load.Applications += item.Applications
		s.Environments = append(s.Environments, placement.Served{Item: item, Engine: e.Name})
		at[item.Environment] = i
	}
	o, err := placement.Simulate(s, c)
	if err != nil {
		return nil, err
	}
	if len(o.Left) > 0 {
		return nil, fmt.Errorf("void: %d environments find no engine: %s", len(o.Left),
			o.Left[0].Reason)
	}
	out := append([]int{}, on...)
	for _, m := range o.Moves {
		out[at[m.Environment]] = engineIndex(m.To)
	}
	return out, nil
}

// churn is what one algorithm moves, and the load that it leads to: the samples of the ended
// blocks, and the sums of the block under way.
type churn struct {
	extra, all, spread, fullest, joined report.Sample
	sums                                [5]float64
	n                                   int
}

// add compares two placements. subject is the engine that joins or leaves, of so many afterwards.
func (c *churn) add(before, after, applications []int, engines, subject int) {
	extra, all := 0, 0
	loads := make([]float64, engines)
	for i := range before {
		if before[i] != after[i] {
			all++
			if before[i] != subject && after[i] != subject {
				extra++
			}
		}
		loads[after[i]] += float64(applications[i])
	}
	mean, most, squares := 0.0, 0.0, 0.0
	for _, l := range loads {
		mean, most = mean+l/float64(engines), max(most, l)
	}
	for _, l := range loads {
		squares += (l - mean) * (l - mean) / float64(engines)
	}
	joined := 0.0
	if subject < engines {
		joined = loads[subject]
	}
	for i, v := range []float64{float64(extra) / float64(len(before)),
		float64(all) / float64(len(before)), math.Sqrt(squares) / mean, most / mean,
		joined / mean} {
		c.sums[i] += 100 * v
	}
	c.n++
}

// end makes the block under way a sample.
func (c *churn) end() {
	for i, s := range []*report.Sample{&c.extra, &c.all, &c.spread, &c.fullest, &c.joined} {
		*s = append(*s, c.sums[i]/float64(c.n))
		c.sums[i] = 0
	}
	c.n = 0
}
