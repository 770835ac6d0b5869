package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/floor"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

const (
	floorAtOnce = 16                     // applies of the floor in flight; more gain nothing
	perObject   = 60 * time.Millisecond  // the longest that is waited for, by object
	farAway     = 100 * time.Millisecond // each way
	gusts       = 5                      // changes of every object in the storm over a long way
)

// storm measures how fast one agent applies changes of all its objects, and shows that no last
// state is lost when the hub is far away.
func storm(ctx context.Context, g *ground, o options) (_ *report.Figure, err error) {
	p, err := newPlant(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop(context.WithoutCancel(ctx))) }()
	s := &weather{plant: p, n: o.storm, watch: observe.StartWatch(ctx, p.place)}
	defer s.watch.Stop()
	f := &report.Figure{Name: "agents-storm",
		Title: fmt.Sprintf("%d changes through one stream, applied by one agent to an API server",
			o.storm)}
	if err := s.create(ctx, f); err != nil {
		return nil, err
	}
	if err := s.change(ctx, f, min(o.blocks, 3)); err != nil {
		return nil, err
	}
	if err := s.faraway(ctx, f); err != nil {
		return nil, err
	}
	f.Note(
		"floor: server-side applies of the same changes by a plain loop, %d in flight; the "+
			"agent has %d in flight. Until a watch has seen the last one", floorAtOnce,
		writesAtOnce)
	f.Note("known at the hub: every row is acknowledged in the database")
	f.Note(
		"%s each way: all objects change %d times, faster than they can be applied, while their "+
			"health changes on the cluster; then each object on the API server, its "+
			"acknowledgement and its health in the database are held against the last that was written", farAway, gusts)
	return f, nil
}

// weather is what happens to a plant's objects.
type weather struct {
	*plant
	n       int
	watch   *observe.Watch
	objects []floor.Object // as they were first applied
	release string
	times   int
}

// limit is how long one change of everything may take.
func (s *weather) limit() time.Duration { return patience + time.Duration(s.n)*perObject }

// await waits until everything has the release.
func (s *weather) await(ctx context.Context, namespace, release string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit())
	defer cancel()
	return s.watch.Await(ctx, fmt.Sprintf("%d Applications at %s", s.n, release),
		func(at map[string]string) bool {
			n := 0
			for key, r := range at {
				if r == release && len(key) > len(namespace) && key[:len(namespace)+1] == namespace+
					"/" {
					n++
				}
			}
			return n == s.n
		})
}

// next changes everything once and does not wait.
func (s *weather) next(ctx context.Context) error {
	s.times++
	s.release = fmt.Sprintf("v1.0.%d", s.times)
	return s.mirror.release(ctx, environment(0), 0, s.n, s.release)
}

// create brings the objects to the cluster, and copies of them to the floor's namespace.
func (s *weather) create(ctx context.Context, f *report.Figure) error {
	progress("the agent creates %d Applications", s.n)
	project, err := s.mirror.project(environment(0))
	if err != nil {
		return err
	}
	if err := s.mirror.record(ctx, func(r *mirror.Record) {
		r.Rows = []mirror.Row{project}
	}); err != nil {
		return err
	}
	if _, err := s.await1(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := s.next(ctx); err != nil {
		return err
	}
	last, err := s.await(ctx, argocdNamespace, s.release)
	if err != nil {
		return err
	}
	f.Add(report.Line{Name: "created, an Application", Unit: "ms", Ours: report.Sample{
		last.Sub(begun).Seconds() * 1000 / float64(s.n)}})
	if s.objects, err = floor.Capture(ctx, s.place); err != nil {
		return err
	}
	return floor.Apply(ctx, s.bare(), s.objects, floorAtOnce)
}

// await1 waits until the agent has applied its first Application: it is connected and at work.
func (s *weather) await1(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.watch.AwaitCount(ctx, 1)
}

// bare is where the floor writes.
func (s *weather) bare() observe.Place {
	return observe.Place{Server: s.place.Server, Namespace: floorNamespace}
}

// change measures changes of everything, in turn with the floor.
func (s *weather) change(ctx context.Context, f *report.Figure, blocks int) error {
	bareWatch := observe.StartWatch(ctx, s.bare())
	defer bareWatch.Stop()
	theirs := &weather{plant: s.plant, n: s.n, watch: bareWatch}
	was := s.release
	var ours, raw, each, known report.Sample
	for b := range blocks {
		progress("%d changes, block %d of %d", s.n, b+1, blocks)
		release := fmt.Sprintf("v9.0.%d", b)
		err := alternate(b,
			func() error {
				begun := time.Now()
				took, acknowledged, err := s.apply(ctx, begun)
				ours, each, known = append(ours, took), append(each, took*1000/float64(s.n)),
					append(known, acknowledged)
				return err
			},
			func() error {
				begun, objects := time.Now(), s.at(was, release)
				if err := floor.Apply(ctx, s.bare(), objects, floorAtOnce); err != nil {
					return err
				}
				last, err := theirs.await(ctx, floorNamespace, release)
				raw = append(raw, last.Sub(begun).Seconds())
				return err
			})
		if err != nil {
			return err
		}
	}
	f.Add(report.Line{Name: "applied, a change", Unit: "ms", Ours: each, Goal: 5})
	f.Add(report.Against(fmt.Sprintf("%d changes, to the last", s.n), "s", ours, raw, 0))
	f.Add(report.Line{Name: "  until all is known at the hub", Unit: "s", Ours: known})
	return nil
}

// apply changes everything through the agent and returns, in seconds, when it was applied and when
// the hub knew.
func (s *weather) apply(ctx context.Context, begun time.Time) (took, known float64, err error) {
	if err := s.next(ctx); err != nil {
		return 0, 0, err
	}
	last, err := s.await(ctx, argocdNamespace, s.release)
	if err != nil {
		return 0, 0, err
	}
	missing, err := s.awaitKnown(ctx, s.n, "", patience)
	if missing > 0 {
		err = fmt.Errorf("void: the hub does not know the state of %d Applications", missing)
	}
	return last.Sub(begun).Seconds(), time.Since(begun).Seconds(), err
}

// at are the Applications with another release.
func (s *weather) at(was, release string) []floor.Object {
	var all []floor.Object
	for _, o := range s.objects {
		if o.Plural == "applications" {
			all = append(all, floor.Object{Plural: o.Plural, Name: o.Name,
				Body: bytes.ReplaceAll(o.Body, []byte(was), []byte(release))})
		}
	}
	return all
}

// faraway has everything change both ways while the hub is far away, and checks every last state.
func (s *weather) faraway(ctx context.Context, f *report.Figure) error {
	progress("%d times all objects change, with %s each way between agent and hub", gusts, farAway)
	s.outlet.Latency(farAway)
	defer s.outlet.Latency(0)
	begun := time.Now()
	back := make(chan error, 1)
	go func() { back <- s.healths(ctx) }()
	for range gusts {
		if err := s.next(ctx); err != nil {
			return errors.Join(err, <-back)
		}
		pacing.Sleep(ctx, 300*time.Millisecond)
	}
	applied, err := s.await(ctx, argocdNamespace, s.release)
	if err = errors.Join(err, <-back); err != nil {
		return err
	}
	lost, err := s.awaitKnown(ctx, s.n, "Healthy", s.limit())
	if err != nil {
		return err
	}
	known := time.Since(begun)
	// nothing older came after it
	if _, err := s.await(ctx, argocdNamespace, s.release); err != nil {
		return fmt.Errorf("void: %w", err)
	}
	f.Add(report.Line{Name: fmt.Sprintf("%s each way: all at their last", farAway), Unit: "s",
		Ours: report.Sample{applied.Sub(begun).Seconds()}})
	f.Add(report.Line{Name: "  known at the hub, with health", Unit: "s", Ours: report.Sample{
		known.Seconds()}})
	f.Add(report.Line{Name: "  last states that were lost", Ours: report.Sample{float64(lost)},
		Exact: true})
	return nil
}

// healths writes a status of each object twice, Healthy last.
func (s *weather) healths(ctx context.Context) error {
	work, errs := make(chan int), make(chan error, floorAtOnce)
	var all sync.WaitGroup
	for range floorAtOnce / 2 {
		all.Go(func() {
			for d := range work {
				for _, health := range []string{"Degraded", "Healthy"} {
					if err := s.setHealth(ctx, name(d), health); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}
	var err error
	for d := 0; d < s.n && err == nil; d++ {
		select {
		case work <- d:
		case err = <-errs:
		}
	}
	close(work)
	all.Wait()
	close(errs)
	return errors.Join(err, <-errs)
}
