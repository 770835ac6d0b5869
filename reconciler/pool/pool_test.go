package pool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

var begin = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// lab plays the store, the workers and the moves: it carries out the steps.
type lab struct {
	*testing.T
	now  time.Time
	pool Pool
	log  []string
	slow time.Duration // that an instance takes to be made, drained, removed and resized
	full string        // a size that no Pod gets
}

func newLab(t *testing.T) *lab {
	return &lab{T: t, now: begin, slow: time.Minute, pool: Pool{Name: "eu",
		EnginePoolSpec: fleet.EnginePoolSpec{
			Template: fleet.PoolTemplate{Capacity: fleet.Capacity{Applications: 100,
				Environments: 100}},
			Clusters: []fleet.PoolCluster{{Name: "a", Max: 2}, {Name: "b"}}, Min: 1, Max: 4,
			TargetLoad: 80, Shrink: fleet.PoolShrink{Below: 60}}.OrDefaults()}}
}

// load spreads Applications over the serving instances up to their capacity. The rest waits.
func (w *lab) load(applications int) {
	p := &w.pool
	p.Waiting = fleet.EngineLoad{}
	left := applications
	var serving []*Instance
	for i := range p.Instances {
		p.Instances[i].Load = fleet.EngineLoad{}
		if p.Instances[i].State == fleet.MemberServing {
			serving = append(serving, &p.Instances[i])
		}
	}
	for n, i := range serving {
		part := min(100, left/(len(serving)-n))
		i.Load = fleet.EngineLoad{Applications: part, Environments: (part + 9) / 10}
		left -= part
	}
	if left > 0 {
		p.Waiting = fleet.EngineLoad{Applications: left, Environments: (left + 9) / 10}
	}
}

func (w *lab) step() Step {
	p := &w.pool
	for n := range p.Instances {
		i := &p.Instances[n]
		done := w.now.Sub(i.Since) >= w.slow
		if size, _ := p.Template.SizeOf(i.Size); size != nil && size.Name != w.full &&
			w.now.Sub(i.SizedAt) >= w.slow {
			i.Sized = size.Instance().String()
		}
		i.Ready, i.Installed = done, true
		switch i.State {
		case fleet.MemberDraining:
			i.Empty = done
		case fleet.MemberRemoving:
			i.Installed = !done
		}
	}
	s := Next(w.now, *p)
	p.Stored = s.Pool
	at := func(n int) int {
		return slices.IndexFunc(p.Instances, func(i Instance) bool { return i.Number == n })
	}
	switch {
	case s.Drop != nil:
		w.log = append(w.log, fmt.Sprintf("drop %d", s.Drop.Number))
		p.Instances = slices.Delete(p.Instances, at(s.Drop.Number), at(s.Drop.Number)+1)
	case s.Set != nil && at(s.Set.Number) < 0:
		w.log = append(w.log, fmt.Sprintf("make %d on %s", s.Set.Number, s.Set.Cluster))
		p.Instances = append(p.Instances, Instance{PoolMember: *s.Set})
		slices.SortFunc(p.Instances, func(a, b Instance) int { return a.Number - b.Number })
	case s.Set != nil && s.Set.Size != p.Instances[at(s.Set.Number)].Size:
		w.log = append(w.log, fmt.Sprintf("size %d %s", s.Set.Number, s.Set.Size))
		p.Instances[at(s.Set.Number)].PoolMember = *s.Set
	case s.Set != nil:
		w.log = append(w.log, fmt.Sprintf("%s %d", s.Set.State, s.Set.Number))
		p.Instances[at(s.Set.Number)].PoolMember = *s.Set
	}
	return s
}

// pass lets time pass under a load.
func (w *lab) pass(d time.Duration, applications int) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(10 * time.Second) {
		w.load(applications)
		w.step()
	}
	w.load(applications)
}

func (w *lab) want(what string, want ...string) {
	w.Helper()
	if !slices.Equal(w.log, want) {
		w.Fatalf("%s: [%s], want [%s]; %+v", what, strings.Join(w.log, ", "),
			strings.Join(want, ", "), w.pool.Stored)
	}
	w.log = nil
}

func (w *lab) state(want mirror.PoolState, message string) {
	w.Helper()
	if s := w.pool.Stored; s.State != want || !strings.Contains(s.Message, message) {
		w.Fatalf("the pool is %s: %s; want %s: %s", s.State, s.Message, want, message)
	}
}

func TestAPoolGrowsWithItsLoadAndShrinksAgain(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(5*time.Minute, 0)
	w.want("the least", "make 1 on a", "Serving 1")
	w.pass(time.Hour, 75)
	w.want("below the target")
	w.state(mirror.PoolSteady, "")
	w.pass(4*time.Minute, 90)
	w.want("a short peak")
	w.state(mirror.PoolSteady, "makes an instance at")
	w.pass(3*time.Minute, 90)
	w.want("a load that stays", "make 2 on b", "Serving 2")
	w.pass(time.Hour, 290)
	w.want("one after the other", "make 3 on a", "Serving 3", "make 4 on b", "Serving 4")
	w.pass(time.Hour, 390)
	w.want("no more than max")
	w.state(mirror.PoolFull, "the pool may have 4 instances")

	w.pass(29*time.Minute, 100)
	w.want("calm that does not last")
	w.pass(6*time.Minute, 100)
	w.want("the last one goes", "Draining 4", "Removing 4", "drop 4")
	w.pass(6*time.Hour, 100)
	w.want("two are enough", "Draining 3", "Removing 3", "drop 3")
	w.pass(6*time.Hour, 0)
	w.want("never below min", "Draining 2", "Removing 2", "drop 2")
}

func TestTheCooldownSeparatesSteps(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pool.Cooldown = fleet.Duration(time.Hour)
	w.pass(5*time.Minute, 500)
	w.want("the least", "make 1 on a", "Serving 1")
	w.pass(50*time.Minute, 500)
	w.want("cooldown")
	w.state(mirror.PoolWaiting, "cooldown until")
	w.pass(15*time.Minute, 500)
	w.want("after it", "make 2 on b", "Serving 2")
}

func TestLoadThatComesBackEndsTheDrain(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(time.Hour, 150)
	w.want("two", "make 1 on a", "Serving 1", "make 2 on b", "Serving 2")
	w.slow = time.Hour
	w.pass(35*time.Minute, 20)
	w.want("calm", "Draining 2")
	w.pass(time.Minute, 150)
	w.want("load", "Serving 2")
}

func TestWaitingEnvironmentsMakeAnInstanceOnce(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(5*time.Minute, 10)
	w.want("the least", "make 1 on a", "Serving 1")
	// an environment that the instance cannot serve, for another reason than its load
	for range 200 {
		w.load(10)
		w.pool.Waiting = fleet.EngineLoad{Applications: 1, Environments: 1}
		for n := range w.pool.Instances {
			if w.pool.Instances[n].Number > 1 {
				w.pool.Instances[n].Load = fleet.EngineLoad{}
			} else {
				w.pool.Instances[n].Load = fleet.EngineLoad{Applications: 10, Environments: 1}
			}
		}
		w.step()
		w.now = w.now.Add(time.Minute)
	}
	w.want("one empty instance shows that no other helps", "make 2 on b", "Serving 2")
}

func TestAPauseHoldsWhatBegins(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(30*time.Second, 90)
	at := w.now
	w.pool.Stored.PausedAt, w.pool.Stored.PausedBy = &at, "ann"
	w.pass(time.Hour, 90)
	w.want("what has begun ends", "make 1 on a", "Serving 1")
	w.state(mirror.PoolPaused, "by ann")
	w.pool.Stored.PausedAt = nil
	w.pass(2*time.Minute, 90)
	w.want("resumed", "make 2 on b", "Serving 2")
}

func TestAPoolThatEndsEmptiesItself(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(time.Hour, 150)
	w.want("two", "make 1 on a", "Serving 1", "make 2 on b", "Serving 2")
	w.pool.Ending = true
	w.pass(time.Hour, 150)
	w.want("all go, one at a time", "Draining 2", "Removing 2", "drop 2", "Draining 1",
		"Removing 1", "drop 1")
	w.state(mirror.PoolUnneeded, "")
}

func TestAPoolThatDoesNotKnowItsInstancesDoesNothing(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pool.Unknown = "cluster b cannot be read"
	w.pass(3*time.Hour, 500)
	w.want("unknown")
	w.state(mirror.PoolUnknown, "cluster b")
}

func TestALowerMaxDrains(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	w.pass(3*time.Hour, 350)
	w.log = nil
	w.pool.Max = 2
	w.pass(time.Hour, 350)
	w.want("two go", "Draining 4", "Removing 4", "drop 4", "Draining 3", "Removing 3", "drop 3")
	w.pass(time.Hour, 350)
	w.want("and stay away")
}

// A day with a wave of load makes as many instances as the wave needs, once.
func TestADayOfWaves(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	for minute := range 24 * 60 {
		wave := 150 + 130*math.Sin(float64(minute)/(24*60)*2*math.Pi)
		w.pass(time.Minute, int(wave))
	}
	made, dropped := 0, 0
	for _, l := range w.log {
		if strings.HasPrefix(l, "make") {
			made++
		} else if strings.HasPrefix(l, "drop") {
			dropped++
		}
	}
	if made != 5 || dropped != 3 {
		t.Errorf("made %d, removed %d: %v", made, dropped, w.log)
	}
}

// No load leads a pool below min or above max, to two instances at a time, to a drain within the
// cooldown of a make, or to a number twice.
func TestAPoolKeepsItsBounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newLab(t)
		w.pool.Min, w.pool.Max = r.IntN(3), 3+r.IntN(2)
		w.pool.TargetLoad = 50 + r.IntN(50)
		w.pool.Shrink.Below = 1 + r.IntN(w.pool.TargetLoad-1)
		w.pool.Grow.After = fleet.Duration(time.Duration(1+r.IntN(300)) * time.Second)
		w.pool.Shrink.After = fleet.Duration(time.Duration(1+r.IntN(900)) * time.Second)
		w.pool.Cooldown = fleet.Duration(time.Duration(1+r.IntN(900)) * time.Second)
		w.slow = time.Duration(1+r.IntN(300)) * time.Second
		applications := r.IntN(400)
		var began time.Time // the last make or drain
		reached := false
		for range 3000 {
			if r.IntN(20) == 0 {
				applications = r.IntN(450)
			}
			w.load(applications)
			before := w.pool.Stored.SteppedAt
			s := w.step()
			w.now = w.now.Add(time.Duration(1+r.IntN(30)) * time.Second)
			open, moving, seen := 0, 0, map[int]bool{}
			for _, i := range w.pool.Instances {
				if seen[i.Number] {
					t.Fatalf("seed %d: instance %d twice", seed, i.Number)
				}
				seen[i.Number] = true
				if i.State == fleet.MemberServing || i.State == fleet.MemberMaking {
					open++
				}
				if i.State != fleet.MemberServing {
					moving++
				}
			}
			reached = reached || open >= w.pool.Min
			if reached && open < w.pool.Min || len(w.pool.Instances) > w.pool.Max || moving > 1 {
				t.Fatalf("seed %d: %d open, %d on their way, of %d: %v", seed, open, moving,
					len(w.pool.Instances), w.log)
			}
			if s.Set == nil || s.Set.State == fleet.MemberRemoving {
				continue
			}
			starts := s.Set.State == fleet.MemberMaking && open > w.pool.Min ||
				s.Set.State == fleet.MemberDraining
			if starts && before != nil && s.Set.Since.Sub(*before) <
				time.Duration(w.pool.Cooldown) {
				t.Fatalf("seed %d: %s %s after the last step, before the cooldown of %s: %v", seed,
					s.Set.State, s.Set.Since.Sub(*before), time.Duration(w.pool.Cooldown), w.log)
			}
			began = s.Set.Since
		}
		if began.IsZero() && w.pool.Min > 0 {
			t.Fatalf("seed %d: nothing happened", seed)
		}
	}
}
