package metering

import (
	"math"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// smoothing is the time in which a change of the load shows to 63 %.
const smoothing = 5 * time.Minute

// Reading is the result of reading one endpoint.
type Reading struct {
	Component fleet.Component
	Endpoint  string // unique for the component
	Sample    Sample
	Err       error
}

// Meter follows the processes of one engine. It is pure; times are the caller's.
type Meter struct {
	before map[endpoint]sampled
	load   mirror.Load
	// of the last loads of the components
	controllerAt, repoAt time.Time
}

type endpoint struct {
	component fleet.Component
	address   string
}

type sampled struct {
	at time.Time
	Sample
}

// NewMeter returns a meter that knows nothing yet.
func NewMeter() *Meter { return &Meter{before: map[endpoint]sampled{}} }

// Add takes the readings of all endpoints, and returns the load. Rates need two readings of one
// process: the first load of a component follows its second reading.
func (m *Meter) Add(now time.Time, readings []Reading) mirror.Load {
	var controller mirror.ControllerLoad
	var repo mirror.RepoServerLoad
	var compared, waited bool // some Application was, since the last reading
	var failures []string
	for _, r := range readings {
		if r.Err != nil {
			failures = append(failures,
				string(r.Component)+" at "+r.Endpoint+": "+r.Err.Error())
			continue
		}
		at := endpoint{r.Component, r.Endpoint}
		before, known := m.before[at]
		m.before[at] = sampled{now, r.Sample}
		passed := now.Sub(before.at).Seconds()
		if r.Sample.Started == 0 {
			failures = append(failures, string(r.Component)+" at "+r.Endpoint+
				" does not report its CPU and memory")
		}
		if !known || passed <= 0 || before.Started != r.Sample.Started ||
			r.Sample.WaitCount < before.WaitCount {
			continue // a Service with several Pods answers with any of them
		}
		s := r.Sample
		p := mirror.ProcessLoad{Processes: 1, CPU: (s.CPU - before.CPU) / passed, Memory: s.Memory}
		if r.Component == fleet.RepoServer {
			repo.ProcessLoad, repo.Pending = plus(repo.ProcessLoad, p), repo.Pending+s.Pending
			continue
		}
		controller.ProcessLoad = plus(controller.ProcessLoad, p)
		controller.Queue += s.Queue
		if n := s.WaitCount - before.WaitCount; n > 0 {
			controller.Wait = max(controller.Wait, (s.WaitSum-before.WaitSum)/n)
			waited = true
		}
		if most, some := quantile(0.95, before.Compared, s.Compared); some {
			controller.Compare, compared = max(controller.Compare, most), true
		}
	}
	if m.load.Message = strings.Join(failures, "; "); m.load.Message == "" &&
		controller.Processes+repo.Processes == 0 {
		m.load.Message = "rates need two readings of one process"
	}
	if controller.Processes > 0 {
		was, passed := m.load.Controller, now.Sub(m.controllerAt)
		if !waited && controller.Queue > 0 && was != nil {
			controller.Wait = was.Wait + passed.Seconds() // nothing leaves the queue
		}
		if !compared && was != nil {
			controller.Compare = was.Compare
		}
		if was != nil {
			controller.ProcessLoad = blend(was.ProcessLoad, controller.ProcessLoad, passed)
			controller.Queue = smooth(was.Queue, controller.Queue, passed)
			controller.Wait = smooth(was.Wait, controller.Wait, passed)
			controller.Compare = smooth(was.Compare, controller.Compare, passed)
		}
		m.load.Controller, m.controllerAt, m.load.At = &controller, now, now
	}
	if repo.Processes > 0 {
		if was, passed := m.load.RepoServer, now.Sub(m.repoAt); was != nil {
			repo.ProcessLoad = blend(was.ProcessLoad, repo.ProcessLoad, passed)
			repo.Pending = smooth(was.Pending, repo.Pending, passed)
		}
		m.load.RepoServer, m.repoAt = &repo, now
		if m.load.Controller == nil {
			m.load.At = now
		}
	}
	return m.load.Sane()
}

func plus(a, b mirror.ProcessLoad) mirror.ProcessLoad {
	return mirror.ProcessLoad{Processes: a.Processes + b.Processes, CPU: a.CPU + b.CPU,
		Memory: a.Memory + b.Memory}
}

func blend(was, now mirror.ProcessLoad, passed time.Duration) mirror.ProcessLoad {
	return mirror.ProcessLoad{Processes: now.Processes, CPU: smooth(was.CPU, now.CPU, passed),
		Memory: smooth(was.Memory, now.Memory, passed)}
}

// smooth moves the average towards a new value, the further the more time has passed.
func smooth(was, now float64, passed time.Duration) float64 {
	return was + (now-was)*(1-math.Exp(-passed.Seconds()/smoothing.Seconds()))
}

// quantile returns how long a share of the comparisons between two readings took at most,
// interpolated within its bucket; false without a comparison. A comparison above the last bound
// counts as that bound.
func quantile(share float64, before, now []Bucket) (float64, bool) {
	was := map[float64]float64{}
	for _, b := range before {
		was[b.Most] = b.Count
	}
	if len(now) == 0 {
		return 0, false
	}
	all := now[len(now)-1]
	rank := share * (all.Count - was[all.Most])
	if rank <= 0 {
		return 0, false
	}
	lower, below := 0.0, 0.0
	for _, b := range now {
		n := b.Count - was[b.Most]
		if n >= rank {
			if math.IsInf(b.Most, 1) {
				return lower, true
			}
			return lower + (b.Most-lower)*(rank-below)/(n-below), true
		}
		lower, below = b.Most, n
	}
	return lower, true
}
