package reconciler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// InstanceReader reads the clusters of pools.
type InstanceReader interface {
	// Installed reports whether Argosy has installed an Argo CD as the engine, and its size as
	// fleet.InstanceSize describes it.
	Installed(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) (size string,
		is bool, err error)
}

const (
	findEvery    = time.Minute      // between two reads of the clusters of a pool after an error
	findTimeout  = 30 * time.Second // of one pool
	findAtOnce   = 4                // pools
	findPatience = 3 * time.Second  // of the first plan after a loss of the mirror
)

// finder finds the instances of pools on their clusters, each pool in a goroutine of its own: no
// commit waits for a cluster. Its methods are called by the loop.
type finder struct {
	clusters  InstanceReader
	wake      func() // called when a search has ended
	semaphore chan struct{}
	searching sync.WaitGroup
	searches  map[string]*search // by pool
}

// search reads the clusters of a pool once.
type search struct {
	blob   string // of the pool's file
	cancel context.CancelFunc
	ended  chan struct{} // closed at its end, when the rest is valid
	found  []fleet.PoolMember
	err    error
	at     time.Time
	before string // why the search before it failed
}

func newFinder(clusters InstanceReader, wake func()) *finder {
	return &finder{clusters: clusters, wake: wake, semaphore: make(chan struct{}, findAtOnce),
		searches: map[string]*search{}}
}

// result returns the instances that the clusters of a pool have, once they were all read. Otherwise
// it returns why they are not known yet, and begins a search or waits for the one under way; failed
// is set if a search has failed.
func (f *finder) result(ctx context.Context, d *fleet.Declaration) (found []fleet.PoolMember,
	why string, failed bool) {
	s := f.searches[d.Key.Name]
	if s != nil && s.blob != d.Blob {
		s.cancel()
		s = nil
	}
	if s == nil {
		s = f.begin(ctx, d, "")
	}
	select {
	case <-s.ended:
	default:
		if s.before != "" {
			return nil, s.before, true
		}
		return nil, "its clusters are being read", false
	}
	if s.err == nil {
		return s.found, "", false
	}
	why = s.err.Error()
	if time.Since(s.at) >= findEvery {
		f.begin(ctx, d, why)
	}
	return nil, why, true
}

// wait waits until the searches have ended, but not for long.
func (f *finder) wait(ctx context.Context) {
	patience := time.After(findPatience)
	for _, s := range f.searches {
		select {
		case <-s.ended:
		case <-patience:
			return
		case <-ctx.Done():
			return
		}
	}
}

// forget drops the result of a pool, or ends its search.
func (f *finder) forget(pool string) {
	if s := f.searches[pool]; s != nil {
		s.cancel()
		delete(f.searches, pool)
	}
}

// stop ends all searches and forgets their results.
func (f *finder) stop() {
	for pool := range f.searches {
		f.forget(pool)
	}
	f.searching.Wait()
}

func (f *finder) begin(ctx context.Context, d *fleet.Declaration, before string) *search {
	s := &search{blob: d.Blob, ended: make(chan struct{}), before: before}
	ctx, s.cancel = context.WithCancel(ctx)
	f.searches[d.Key.Name] = s
	f.searching.Go(func() {
		defer f.wake()
		defer close(s.ended)
		defer s.cancel()
		select {
		case f.semaphore <- struct{}{}:
			defer func() { <-f.semaphore }()
			s.found, s.err = f.find(ctx, d)
		case <-ctx.Done():
			s.err = ctx.Err()
		}
		s.at = time.Now()
	})
	return s
}

// find returns the instances of a pool that its clusters have. Without an error, there are no
// others: each namespace that an instance may have was read.
func (f *finder) find(ctx context.Context, d *fleet.Declaration) (found []fleet.PoolMember,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Second)
	for n := 1; n <= fleet.MaxPoolInstances; n++ {
		for _, c := range d.Pool.Clusters {
			m := fleet.PoolMember{Pool: d.Key.Name, Number: n, Cluster: c.Name,
				State: fleet.MemberMaking, Since: now, Reason: "found on cluster " + c.Name}
			in, err := instance(d, m)
			if err != nil {
				return nil, err
			}
			size, is, err := f.clusters.Installed(ctx, fleet.EngineName(in.Key.Name),
				*in.Declaration.Engine)
			if err != nil {
				return nil, fmt.Errorf("cluster %s cannot be read: %w", c.Name, err)
			}
			if is {
				m.Sizing = fleet.Sizing{Size: d.Pool.Template.SizeNamed(size), SizedAt: now}
				found = append(found, m)
				break // two clusters cannot have one instance: its name is that of one engine
			}
		}
	}
	return found, nil
}

// missing returns the found instances of a pool that are not declared, as its file declares them.
func missing(d *fleet.Declaration, found, declared []fleet.PoolMember) (
	inputs []catalog.Input, err error) {
	for _, m := range found {
		if slices.ContainsFunc(declared, func(o fleet.PoolMember) bool {
			return o.Number == m.Number
		}) {
			continue
		}
		in, err := instance(d, m)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}
