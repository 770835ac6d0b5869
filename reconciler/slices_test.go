package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var acmeProd = fleet.EnvironmentID{Tenant: "acme", Name: "prod"}

// slicers is a house in which slices of acme/prod move between two engines, which compare all the
// time. Two owners of an Application are an error.
type slicers struct {
	*house
	mu     sync.Mutex
	names  []fleet.DeploymentName // of acme/prod
	former []fleet.DeploymentName // that commits have removed
	failed atomic.Pointer[string]
}

// eighths returns the name of a deployment in each eighth of an environment.
func eighths() (names []fleet.DeploymentName) {
	for _, part := range []fleet.Slice{"000", "001", "010", "011", "100", "101", "110", "111"} {
		for i := 0; ; i++ {
			if name := fleet.DeploymentName(fmt.Sprint("d-", i)); part.Holds(name) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

func newSlicers(t *testing.T, start func(*slicers)) *slicers {
	t.Helper()
	s := &slicers{names: eighths()}
	files := small()
	for _, name := range s.names {
		files = together(files, deployment("acme", string(name), "v1", "Delete", "prod"))
	}
	s.names = append(s.names, "web")
	// the guards hold none of the deletions
	files["fleet/fleet.yaml"] = strings.ReplaceAll(files["fleet/fleet.yaml"], guards,
		"{maxDeletes: 1000, maxDeletePercent: 100, alwaysAllowed: 1000, window: 1h}")
	files["fleet/engines/eu-3.yaml"] = strings.ReplaceAll(files["fleet/engines/eu-2.yaml"], "eu-2",
		"eu-3")
	s.house = newHouse(t, files)
	s.engines["eu-3"] = newSite("eu-3")
	start(s)
	s.eventually("the fleet is in sync", s.converged)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			for _, e := range s.engines {
				e.reconcile()
			}
			s.oneOwner()
		}
	})
	t.Cleanup(func() { close(done); watching.Wait() })
	return s
}

func (s *slicers) all() []fleet.DeploymentName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.names), s.former...)
}

func (s *slicers) oneOwner() {
	for _, name := range s.all() {
		var owners []fleet.EngineName
		for engine, e := range s.engines {
			if automated(e, string(name)) {
				owners = append(owners, engine)
			}
		}
		if len(owners) > 1 {
			text := fmt.Sprintf("%s has the owners %v", name, owners)
			s.failed.CompareAndSwap(nil, &text)
		}
	}
}

// placements are those of the slices of acme/prod.
func (s *slicers) placements() (all []fleet.Placement) {
	s.t.Helper()
	snapshot, err := s.store.Plans.Load(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range snapshot.Placements {
		if p.Environment == acmeProd {
			all = append(all, p)
		}
	}
	return all
}

// partition is the engine of each slice.
func (s *slicers) partition() map[fleet.Slice]fleet.EngineName {
	s.t.Helper()
	on := map[fleet.Slice]fleet.EngineName{}
	for _, p := range s.placements() {
		on[p.Slice] = p.Engine
	}
	return on
}

// settled returns an error while an Application is not on the engine of its slice alone, or a move
// is under way.
func (s *slicers) settled() error {
	if err := s.converged(); err != nil {
		return err
	}
	moves, _, err := s.store.Views.Moves(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 100})
	if err != nil {
		return err
	}
	for _, m := range moves {
		if m.EndedAt == nil {
			return fmt.Errorf("slice %q moves: %+v", m.Slice, m.Applications)
		}
	}
	on := s.partition()
	parts := make([]fleet.Slice, 0, len(on))
	for part := range on {
		parts = append(parts, part)
	}
	if !fleet.Partition(parts) {
		return fmt.Errorf("%v is no partition", on)
	}
	for _, name := range s.all() {
		part, _ := fleet.SliceOf(name, parts)
		for engine, e := range s.engines {
			wanted := engine == on[part] && slices.Contains(s.names, name)
			if exists := e.server.Exists(keyOf(e, "acme", string(name), "prod")); exists != wanted {
				return fmt.Errorf("%s on %s: %t, the slices are %v", name, engine, exists, on)
			}
			if wanted && !automated(e, string(name)) {
				return fmt.Errorf("%s on %s is not automated", name, engine)
			}
		}
	}
	return nil
}

// is returns an error until the environment has settled in exactly these slices.
func (s *slicers) is(want map[fleet.Slice]fleet.EngineName) func() error {
	return func() error {
		if got := s.partition(); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the slices are %v, want %v", got, want)
		}
		return s.settled()
	}
}

func (s *slicers) ask(m mirror.MoveRequest) (string, error) {
	m.Environment, m.By = acmeProd, "token:ann"
	return s.store.Decisions.RequestMove(context.Background(), m)
}

// move requests a move until it has begun.
func (s *slicers) move(m mirror.MoveRequest) {
	s.t.Helper()
	id := ""
	s.eventually(fmt.Sprintf("the move %+v begins", m), func() (err error) {
		if id == "" {
			if id, err = s.ask(m); err != nil {
				return err
			}
		}
		o, err := s.operation(id)
		switch {
		case err != nil:
			return err
		case o.State == mirror.OperationPending:
			return errors.New("no plan has taken it up")
		case o.State == mirror.OperationFailed:
			id = ""
			return errors.New(o.Message)
		}
		return nil
	})
}

func (s *slicers) check() {
	s.t.Helper()
	if why := s.failed.Load(); why != nil {
		s.t.Error(*why)
	}
	for _, e := range s.engines {
		if err := e.backwards(); err != nil {
			s.t.Error(err)
		}
		e.mu.Lock()
		for _, key := range e.cascaded {
			if slices.Contains(s.names, fleet.DeploymentName(key.Name)) {
				s.t.Errorf("the deletion of %s on %s took its workload along", key.Name, e.name)
			}
		}
		e.mu.Unlock()
	}
}

func TestAnEnvironmentIsSplitAndJoined(t *testing.T) {
	t.Parallel()
	s := newSlicers(t, func(s *slicers) { s.start("a", options{}) })
	from := s.partition()[""]
	to := fleet.EngineName("eu-1")
	if from == to {
		to = "eu-2"
	}
	s.move(mirror.MoveRequest{Split: true, To: to})
	s.eventually("it is split", s.is(map[fleet.Slice]fleet.EngineName{"0": from, "1": to}))
	s.check()
	s.commit("another version", together(deployment("acme", string(s.names[0]), "v2", "Delete",
		"prod"), deployment("acme", string(s.names[7]), "v2", "Delete", "prod")))
	s.eventually("both halves get a commit", s.settled)
	// the halves change places
	s.move(mirror.MoveRequest{Slice: "0", To: to})
	s.move(mirror.MoveRequest{Slice: "1", To: from})
	s.eventually("they have", s.is(map[fleet.Slice]fleet.EngineName{"0": to, "1": from}))
	s.move(mirror.MoveRequest{Slice: "0", To: from})
	s.eventually("it is joined", s.is(map[fleet.Slice]fleet.EngineName{"": from}))
	s.check()
}

// A person splits, moves, undoes and joins at random, while commits arrive and replicas die.
func TestNoApplicationOfASliceHasTwoOwners(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	var by *replica
	replicas := 1
	unstable := options{engine: func(_ string, key fleet.ObjectKey) error {
		if key.Kind == fleet.ObjectApplication && rand.IntN(20) == 0 {
			return errAway
		}
		return nil
	}}
	s := newSlicers(t, func(s *slicers) { by = s.start("r-1", unstable) })
	var moved, split, undone, refused int
	for n := range 25 {
		switch r.IntN(8) {
		case 0:
			s.kill(by)
			replicas++
			by = s.start(fmt.Sprintf("r-%d", replicas), unstable)
		case 1:
			s.declare(fleet.DeploymentName(fmt.Sprintf("n-%d", n)))
		case 2:
			s.remove()
		default:
			all := s.placements()
			p := all[r.IntN(len(all))]
			others := slices.DeleteFunc([]fleet.EngineName{"eu-1", "eu-2", "eu-3"},
				func(e fleet.EngineName) bool { return e == p.Engine })
			m := mirror.MoveRequest{Slice: p.Slice, Split: r.IntN(2) == 0, To: others[r.IntN(2)]}
			undo := p.From != "" && r.IntN(3) > 0
			if undo {
				m.To, m.Split = p.From, false
			}
			switch begins := s.tries(m); {
			case !begins:
				refused++
			case undo:
				undone++
			case m.Split:
				split++
			default:
				moved++
			}
		}
		if r.IntN(3) == 0 {
			s.eventually("it settles", s.settled)
		}
		s.check()
		if t.Failed() {
			break
		}
	}
	s.eventually("it settles in the end", s.settled)
	s.check()
	t.Logf("seed %d: %d splits, %d moves, %d undone, %d refused, %d replicas; the slices are %v",
		seed, split, moved, undone, refused, replicas, s.partition())
}

// declare adds a deployment to acme/prod.
func (s *slicers) declare(name fleet.DeploymentName) {
	s.t.Helper()
	s.mu.Lock()
	s.names = append(s.names, name)
	s.mu.Unlock()
	s.commit("one more", deployment("acme", string(name), "v1", "Delete", "prod"))
}

// remove removes the last deployment that declare has added, if there is one.
func (s *slicers) remove() {
	s.t.Helper()
	s.mu.Lock()
	last := len(s.names) - 1
	name := s.names[last]
	added := strings.HasPrefix(string(name), "n-")
	if added {
		s.names, s.former = s.names[:last], append(s.former, name)
	}
	s.mu.Unlock()
	if added {
		s.commit("one less", gone(deployment("acme", string(name), "v1", "Delete", "prod")))
	}
}

// tries requests a move and reports whether it begins.
func (s *slicers) tries(m mirror.MoveRequest) (begins bool) {
	s.t.Helper()
	id, err := s.ask(m)
	if errors.Is(err, mirror.ErrMoving) {
		return false
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the request is taken up", func() error {
		o, err := s.operation(id)
		if err == nil && o.State == mirror.OperationPending {
			err = errors.New("it is not")
		}
		begins = o.State != mirror.OperationFailed
		return err
	})
	return begins
}

// The mirror is lost while an environment is split: each Application stays where it is.
func TestASplitEnvironmentOutlivesItsMirror(t *testing.T) {
	t.Parallel()
	var by *replica
	s := newSlicers(t, func(s *slicers) { by = s.start("a", options{}) })
	from := s.partition()[""]
	to := fleet.EngineName("eu-1")
	if from == to {
		to = "eu-2"
	}
	s.move(mirror.MoveRequest{Split: true, To: to})
	s.eventually("it is split", s.is(map[fleet.Slice]fleet.EngineName{"0": from, "1": to}))
	s.kill(by)
	s.newDatabase()
	before := s.writes()
	s.start("b", options{})
	s.eventually("it is split as before",
		s.is(map[fleet.Slice]fleet.EngineName{"0": from, "1": to}))
	if n := s.writes() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
	s.check()
}
