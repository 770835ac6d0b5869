package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/rings"
)

const ringPoll = 10 * time.Second // at most, between checks of rings

// Directories is a Source that reads directories outside of fleet/ and tenants/.
type Directories interface {
	// Directory returns the files below a directory of a commit, by their paths below it.
	Directory(ctx context.Context, revision fleet.Revision, path string) (map[string][]byte, error)
}

// RingStore is a store of rings. Every write carries the lease of the leader.
type RingStore interface {
	RingFacts(ctx context.Context) (mirror.RingFacts, error)
	StoreManifests(ctx context.Context, lease mirror.Lease, m mirror.RingManifests) error
	TakeRingStep(ctx context.Context, lease mirror.Lease, position int,
		step mirror.RingStep) error
	KeepRings(ctx context.Context, lease mirror.Lease, rings []string,
		released, removed []fleet.EngineName) error
}

// ringer takes the steps of rings. It keeps nothing that another replica needs.
type ringer struct {
	*Loop
	downloads map[fleet.RingManifests]*download // of this term
}

// download is the last download of manifests. No ring waits for that of another one.
type download struct {
	ended chan struct{} // closed at its end
	files map[string][]byte
	err   error
	at    time.Time
}

const downloadAgain = time.Minute // after one that failed, or that has another digest

// ring changes the Argo CDs of managed engines while this replica leads. No commit waits for it.
func (l *Loop) ring(ctx context.Context) {
	r := ringer{l, map[fleet.RingManifests]*download{}}
	for {
		if at := l.at.Load(); at != nil && at.ready {
			if err := r.check(ctx, at); err != nil && ctx.Err() == nil {
				l.Log.Warn("failed to check the rings; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(l.Poll, ringPoll)):
		}
	}
}

// check takes the next step of each ring.
func (r ringer) check(ctx context.Context, at *basis) error {
	facts, err := r.Rings.RingFacts(ctx)
	if err != nil {
		return err
	}
	view := &at.state.Catalog().View
	declared := view.Fleet()
	maps.DeleteFunc(r.downloads, func(m fleet.RingManifests, _ *download) bool {
		return !slices.ContainsFunc(declared.Rings, func(d fleet.Ring) bool {
			return d.Manifests == m
		})
	})
	following, agents := view.Following(), map[string][]fleet.EngineName{}
	if slices.ContainsFunc(declared.Rings, func(d fleet.Ring) bool { return d.Agent != nil }) {
		agents = view.AgentsFollowing()
	}
	released, removed := leaving(view, declared, facts, agents)
	if err := r.forget(ctx, at, facts, declared.Rings, released, removed); err != nil {
		return err
	}
	var all []rings.Ring
	position := map[string]int{}
	for i, d := range declared.Rings {
		d = d.OrDefaults()
		d.Soak = declared.SoakOf(d)
		ring := ringOf(view, facts, d, following[d.Name], agents[d.Name])
		if !facts.Manifests[d.Manifests.Digest] && len(following[d.Name]) > 0 {
			if ring.Unavailable, err = r.fetch(ctx, at, d); err != nil {
				return err
			}
		}
		position[d.Name] = i
		all = append(all, ring)
	}
	var failed []error
	for _, step := range rings.Next(facts.Now, all, declared.Owners) {
		if err := r.Rings.TakeRingStep(ctx, at.lease, position[step.Name], step); err != nil {
			failed = append(failed, err)
			continue
		}
		log := r.Log.Info
		if step.State == mirror.RingHalted {
			log = r.Log.Error
		}
		log("ring", "ring", step.Name, "state", step.State, "version", step.Version, "reason",
			step.Message, "begins", len(step.Targets))
	}
	return errors.Join(failed...)
}

// ringOf returns a declared ring with its managed engines, and with the agents that follow it alone
// if it declares a version for them.
func ringOf(view *catalog.View, facts mirror.RingFacts, d fleet.Ring,
	engines, agents []fleet.EngineName) rings.Ring {
	r := rings.Ring{Ring: d, Stored: facts.Rings[d.Name], Engines: slices.Clone(engines),
		Known:     map[fleet.EngineName]mirror.InstanceFacts{},
		Behind:    map[fleet.EngineName]bool{},
		AgentOnly: map[fleet.EngineName]bool{}, Connected: facts.Connected}
	for _, e := range engines {
		r.Behind[e] = view.Engine(e).Engine.Connection.Agent != nil
	}
	if d.Agent != nil {
		r.Engines = append(r.Engines, agents...)
		for _, e := range agents {
			r.Behind[e], r.AgentOnly[e] = true, true
		}
	}
	for _, e := range r.Engines {
		if known, ok := facts.Instances[e]; ok {
			r.Known[e] = known
		}
	}
	slices.Sort(r.Engines)
	return r
}

// leaving returns the engines that are not managed any more, whose Argo CD is given back, and those
// that follow no ring any more.
func leaving(view *catalog.View, declared fleet.FleetSpec, facts mirror.RingFacts,
	agents map[string][]fleet.EngineName) (released, removed []fleet.EngineName) {
	alone := map[fleet.EngineName]bool{}
	for ring, names := range agents {
		d, ok := declared.RingNamed(ring)
		for _, e := range names {
			alone[e] = ok && d.Agent != nil
		}
	}
	for name, i := range facts.Instances {
		switch d := view.Engine(name); {
		case d != nil && d.Engine.ArgoCD.Managed, i.AgentOnly() && alone[name]:
		case d == nil || i.AgentOnly():
			removed = append(removed, name)
		case i.State != mirror.InstanceReleasing:
			released = append(released, name)
		}
	}
	return released, removed
}

// forget removes what the declarations do not have any more.
func (r ringer) forget(ctx context.Context, at *basis, facts mirror.RingFacts,
	declared []fleet.Ring, released, removed []fleet.EngineName) error {
	var keep []string
	gone := len(released)+len(removed) > 0
	for _, d := range declared {
		keep = append(keep, d.Name)
	}
	for name := range facts.Rings {
		gone = gone || !slices.Contains(keep, name)
	}
	if !gone {
		return nil
	}
	return r.Rings.KeepRings(ctx, at.lease, keep, released, removed)
}

// fetch stores the manifests of a ring. It returns why they are unavailable; "" if they are stored.
func (r ringer) fetch(ctx context.Context, at *basis, d fleet.Ring) (why string, err error) {
	if r.CheckManifests == nil {
		return "no manifests are read here", nil
	}
	files, err := r.files(ctx, at, d.Manifests)
	if err != nil {
		return err.Error(), ctx.Err()
	}
	if err := r.CheckManifests(d, files); err != nil {
		return err.Error() + "; review the files, and write their digest or their version into " +
			"the ring", nil
	}
	delete(r.downloads, d.Manifests)
	return "", r.Rings.StoreManifests(ctx, at.lease, mirror.RingManifests{Version: d.Version,
		Digest: d.Manifests.Digest, Files: files})
}

func (r ringer) files(ctx context.Context, at *basis, m fleet.RingManifests) (map[string][]byte,
	error) {
	if m.Directory == "" {
		return r.downloaded(ctx, m)
	}
	from, ok := r.Source.(Directories)
	if !ok {
		return nil, errors.New("no directory of the config repo is read here")
	}
	return from.Directory(ctx, at.revision, m.Directory)
}

// downloaded returns the files of the last download, and begins another one if there is none, or if
// that was a while ago.
func (r ringer) downloaded(ctx context.Context, m fleet.RingManifests) (map[string][]byte, error) {
	if r.Download == nil {
		return nil, errors.New("no manifests are downloaded here")
	}
	last := r.downloads[m]
	if last == nil {
		last = &download{ended: make(chan struct{})}
		r.downloads[m] = last
		go func() {
			defer close(last.ended)
			last.files, last.err = r.Download(ctx, m)
			last.at = time.Now()
		}()
	}
	select {
	case <-last.ended:
		if time.Since(last.at) > downloadAgain {
			delete(r.downloads, m)
		}
		return last.files, last.err
	default:
		return nil, fmt.Errorf("%s is being downloaded", m)
	}
}
