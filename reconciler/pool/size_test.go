package pool

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// sizedLab is a lab whose instances have sizes, and whose Pods get them after slow.
func sizedLab(t *testing.T) *lab {
	w := newLab(t)
	size := func(name string, applications, shards int, cpu fleet.CPU) fleet.PoolSize {
		return fleet.PoolSize{Name: name, Shards: shards,
			Capacity:              fleet.Capacity{Applications: applications, Environments: 100},
			ApplicationController: fleet.Resources{CPU: cpu, Memory: "2Gi"}}
	}
	w.pool.Template.Sizes = []fleet.PoolSize{size("small", 20, 1, "1"), size("medium", 50, 1, "2"),
		size("large", 100, 4, "2")}
	w.pool.Min = 1
	return w
}

func (w *lab) instance(n int) *Instance { return &w.pool.Instances[n-1] }

// measured sets what the application-controller of the first instance uses.
func (w *lab) measured(cores float64, memory float64) {
	w.instance(1).Measured = &mirror.Load{At: w.now, Controller: &mirror.ControllerLoad{
		ProcessLoad: mirror.ProcessLoad{Processes: 1, CPU: cores, Memory: memory}}}
}

func TestAnInstanceGrowsInItselfBeforeThePoolGrows(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	w.pass(5*time.Minute, 0)
	w.want("the smallest", "make 1 on a", "Serving 1")
	w.pass(20*time.Minute, 17)
	w.want("grown", "size 1 medium")
	if why := w.instance(1).SizedWhy; !strings.HasPrefix(why,
		"17 Applications of 20, more than 80%") {
		t.Error(why)
	}
	w.pass(30*time.Minute, 70)
	w.want("grown again", "size 1 large")
	w.pass(time.Hour, 79)
	w.want("the largest is enough")
	w.pass(time.Hour, 95)
	w.want("another instance, which grows too", "make 2 on b", "Serving 2", "size 2 large")
	w.pass(2*time.Hour, 50)
	w.want("one is removed", "Draining 2", "Removing 2", "drop 2")
	w.pass(4*time.Hour, 10)
	w.want("the other one shrinks size by size", "size 1 medium", "size 1 small")
	w.pass(24*time.Hour, 10)
	w.want("rest")
}

func TestALargeStepSkipsSizes(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	w.pass(20*time.Minute, 75)
	w.want("at once", "make 1 on a", "Serving 1", "size 1 large")
}

func TestMeasuredLoadMakesAnInstanceGrow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cores, memory float64
		why           string
	}{
		{0.93, 1 << 30, "the application-controller uses 0.93 of 1 CPU"},
		{0.1, 1.9 * (1 << 30), "the application-controller has 1.9 of 2 GiB"},
	} {
		w := sizedLab(t)
		w.pass(5*time.Minute, 2)
		w.log = nil
		for range 60 {
			w.measured(c.cores, c.memory)
			w.pass(10*time.Second, 2)
		}
		if len(w.log) == 0 || !strings.HasPrefix(w.instance(1).SizedWhy, c.why) {
			t.Errorf("%v: %v: %s", c, w.log, w.instance(1).SizedWhy)
		}
	}
}

// An old measurement, and one of the size before, decide nothing.
func TestAnOldMeasurementDecidesNothing(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	w.pass(5*time.Minute, 2)
	w.log = nil
	w.measured(5, 0)
	w.instance(1).Measured.At = w.instance(1).SizedAt.Add(-time.Second)
	w.pass(time.Hour, 2)
	w.want("measured before its size")
	w.measured(5, 0)
	w.now = w.now.Add(mirror.LoadMaxAge)
	w.pass(time.Hour, 2)
	w.want("measured long ago")
}

// Pods for which no node has room keep the instance down: it goes back, and tries again later.
func TestAnInstanceGoesBackIfItsPodsDoNotGetTheSize(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	w.pass(5*time.Minute, 2)
	w.log = nil
	w.full = "medium"
	w.pass(12*time.Minute, 18)
	w.want("it begins", "size 1 medium")
	w.state(mirror.PoolResizing, "eu-1 changes to medium")
	w.pass(10*time.Minute, 18)
	w.want("it goes back", "size 1 small")
	w.pass(45*time.Minute, 18)
	w.want("it stays")
	if m := w.pool.Stored.Sizing[1]; m.Refused != "medium" {
		t.Errorf("%+v", m)
	}
	w.full = ""
	w.pass(30*time.Minute, 18)
	w.want("it tries again", "size 1 medium")
	w.pass(time.Hour, 18)
	w.want("it has it")
}

func TestOneInstanceChangesItsSizeAtATime(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	w.pool.Min = 3
	w.pass(20*time.Minute, 0)
	w.log = nil
	w.slow = 5 * time.Minute
	for range 360 {
		w.pass(10*time.Second, 60)
		changing := 0
		for i := range w.pool.Instances {
			if (sized{&w.pool.Instances[i], &w.pool.Template}).changing() {
				changing++
			}
		}
		if changing > 1 {
			t.Fatalf("%d instances change at once", changing)
		}
	}
	w.want("all three", "size 1 medium", "size 2 medium", "size 3 medium")
}

// A pool that gets sizes changes its instances one by one, and one that is paused changes none.
func TestInstancesGetSizesThatTheTemplateHasNow(t *testing.T) {
	t.Parallel()
	w := sizedLab(t)
	sizes := w.pool.Template.Sizes
	w.pool.Template.Sizes = nil
	w.pool.Min = 2
	w.pass(20*time.Minute, 60)
	w.log = nil
	w.pool.Template.Sizes = sizes
	paused := w.now
	w.pool.Stored.PausedAt = &paused
	w.pass(time.Hour, 60)
	w.want("paused")
	w.pool.Stored.PausedAt = nil
	w.pass(30*time.Minute, 60)
	w.want("one by one", "size 1 medium", "size 2 medium")
}

func TestTheSizesOfAPoolComeToRest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := sizedLab(t)
		w.pool.Max = 1
		for range 10 {
			w.pass(time.Duration(random.IntN(60))*time.Minute, random.IntN(100))
		}
		at := random.IntN(100)
		w.pass(3*time.Hour, at)
		w.log = nil
		w.pass(24*time.Hour, at)
		if len(w.log) > 0 {
			t.Fatalf("seed %d, %d Applications: %v", seed, at, w.log)
		}
		i := sized{w.instance(1), &w.pool.Template}
		if load, what := i.load(w.now, i.at()); load > w.pool.TargetLoad && i.at() < 2 {
			t.Fatalf("seed %d: %s at size %s", seed, what, i.Size)
		}
	}
}
