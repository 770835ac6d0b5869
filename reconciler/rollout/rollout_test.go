package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/rollout"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// course is a rollout with the state of its Applications.
type course struct {
	t      *testing.T
	r      mirror.Rollout
	status map[fleet.ObjectKey]mirror.RolloutStatus
	now    time.Time
	n      int64
	took   []mirror.RolloutDecision
	// the latest measurements
	metrics map[mirror.MetricKey]mirror.MetricResult
}

// begin returns a rollout over n environments in waves of a number each.
func begin(t *testing.T, spec fleet.Rollout, sizes ...int) *course {
	c := &course{t: t, status: map[fleet.ObjectKey]mirror.RolloutStatus{}, now: start}
	var changes []rollout.Change
	for w, n := range sizes {
		for i := range n {
			env := fleet.EnvironmentName(fmt.Sprintf("e%d-%03d", w+1, i))
			if w < len(spec.Waves) {
				spec.Waves[w].Environments = append(spec.Waves[w].Environments, env)
			}
			key := fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: string(env)}
			changes = append(changes, rollout.Change{Environment: env, Key: key, Hash: "new",
				Before: &mirror.RolloutBefore{Hash: "old"}})
			c.status[key] = good("old")
		}
	}
	c.r = rollout.Begin(rollout.Beginning{
		Deployment: fleet.DeploymentID{Tenant: "acme", Name: "checkout"}, Spec: spec.OrDefaults(),
		Changes: changes, Revision: "4f1c9e2a", Now: start,
		Environment: func(env fleet.EnvironmentName) *fleet.Declaration {
			return &fleet.Declaration{Key: fleet.Key{Name: string(env)}}
		}})
	return c
}

func good(hash string) mirror.RolloutStatus {
	return mirror.RolloutStatus{Hash: hash, Apply: mirror.ApplyApplied, Compared: hash,
		Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}
}

// step takes the next step, and applies what it writes. The Applications that it writes are
// Progressing until the test sets another health.
func (c *course) step() {
	c.t.Helper()
	f := mirror.RolloutFacts{Now: c.now, Status: c.status, Metrics: c.metrics,
		Decisions: map[string][]mirror.RolloutDecision{c.r.ID: c.took}}
	was := c.r
	c.r, _ = rollout.Next(was, f)
	for i, m := range c.r.Members {
		at := c.status[m.Key]
		switch {
		case m.State == was.Members[i].State:
			continue
		case m.State == mirror.MemberChanging && at.Hash != "new":
			at = good("new")
		case m.State == mirror.MemberReturning:
			at = good("old")
		default:
			continue
		}
		at.Health = mirror.HealthProgressing
		c.status[m.Key] = at
	}
}

// all sets the health of the Applications of a wave that have a hash.
func (c *course) all(wave int, hash string, health mirror.HealthState) {
	for _, m := range c.r.Members {
		if at := c.status[m.Key]; m.Wave == wave && at.Hash == hash {
			at.Health = health
			c.status[m.Key] = at
		}
	}
}

func (c *course) decide(verb mirror.RolloutVerb) {
	c.n++
	c.took = append(c.took, mirror.RolloutDecision{N: c.n, Verb: verb, By: "eve"})
	c.step()
}

func (c *course) changed() (n int) {
	for _, at := range c.status {
		if at.Hash == "new" {
			n++
		}
	}
	return n
}

func (c *course) want(state mirror.RolloutState, changed int) {
	c.t.Helper()
	if c.r.State != state || c.changed() != changed {
		c.t.Fatalf("%s with %d changed, want %s with %d: %s", c.r.State, c.changed(), state,
			changed, c.r.Message)
	}
}

func TestAWaveChangesAsManyAtATimeAsItMay(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a", MaxConcurrent: "25%"}}}, 10)
	for _, changed := range []int{3, 6, 9, 10} {
		c.step()
		c.want(mirror.RolloutRunning, changed)
		c.all(0, "new", mirror.HealthHealthy)
	}
	c.step()
	c.want(mirror.RolloutDone, 10)
}

func TestAWaveWaitsForAnApproval(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"},
		{Name: "b", Approval: true}}}, 1, 1)
	c.step()
	c.all(0, "new", mirror.HealthHealthy)
	c.step()
	c.want(mirror.RolloutAwaits, 1)
	if !strings.Contains(c.r.Message, "argosy rollouts approve acme/checkout") {
		t.Error(c.r.Message)
	}
	c.decide(mirror.ApproveRollout)
	c.want(mirror.RolloutRunning, 2)
	if c.r.Waves[1].ApprovedBy != "eve" {
		t.Errorf("%+v", c.r.Waves)
	}
}

func TestAPausedRolloutChangesNothing(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}, {Name: "b"}}}, 1, 1)
	c.step()
	c.decide(mirror.PauseRollout)
	c.all(0, "new", mirror.HealthHealthy)
	c.now = c.now.Add(time.Hour)
	c.step()
	c.want(mirror.RolloutPaused, 1)
	c.decide(mirror.ResumeRollout)
	c.want(mirror.RolloutRunning, 2)
}

func TestAnAbortedRolloutReturns(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}, {Name: "b"}}}, 2, 1)
	c.step()
	c.want(mirror.RolloutRunning, 2)
	c.decide(mirror.AbortRollout)
	c.want(mirror.RolloutReturning, 0)
	c.all(0, "old", mirror.HealthHealthy)
	c.step()
	c.want(mirror.RolloutReturned, 0)
	c.decide(mirror.ResumeRollout)
	c.want(mirror.RolloutRunning, 2)
}

func TestADegradedApplicationFailsTheWaveAfterThePatience(t *testing.T) {
	for _, onFailure := range []fleet.RolloutFailure{"", fleet.RolloutPause} {
		c := begin(t, fleet.Rollout{OnFailure: onFailure,
			Waves: []fleet.RolloutWave{{Name: "a"}, {Name: "b"}, {Name: "c"}}}, 2, 2, 2)
		c.step()
		c.all(0, "new", mirror.HealthHealthy)
		c.step()
		c.want(mirror.RolloutRunning, 4)
		c.all(1, "new", mirror.HealthDegraded)
		c.step()
		c.now = c.now.Add(59 * time.Second)
		c.step()
		c.want(mirror.RolloutRunning, 4)
		c.now = c.now.Add(time.Second)
		c.step()
		if onFailure == fleet.RolloutPause {
			c.want(mirror.RolloutFailed, 4)
		} else {
			c.want(mirror.RolloutReturning, 0)
		}
		if !strings.Contains(c.r.Message, "wave 2 (b) failed: e2-000 (Degraded)") {
			t.Error(c.r.Message)
		}
	}
}

// A Degraded Application of a wave that is done fails the rollout too.
func TestAnEarlierWaveIsWatched(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}, {Name: "b"}}}, 1, 1)
	c.step()
	c.all(0, "new", mirror.HealthHealthy)
	c.step()
	c.all(0, "new", mirror.HealthDegraded)
	c.step()
	c.now = c.now.Add(time.Minute)
	c.step()
	c.want(mirror.RolloutReturning, 0)
}

// Of 200 environments, three never answer: the rollout names them, and ends in a known state.
func TestSilentClustersEndInAStateWithTheirNames(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}}}, 200)
	silent := start.Add(-time.Hour)
	c.step()
	c.want(mirror.RolloutRunning, 200)
	c.all(0, "new", mirror.HealthHealthy)
	for _, m := range c.r.Members[7:10] {
		at := c.status[m.Key]
		at.Apply, at.SilentSince = mirror.ApplyPending, &silent
		c.status[m.Key] = at
	}
	c.step()
	c.want(mirror.RolloutRunning, 200)
	c.now = c.now.Add(30 * time.Minute)
	c.step()
	for _, name := range []string{"e1-007", "e1-008", "e1-009",
		"does not answer since 2026-11-20 11:00"} {
		if c.r.State != mirror.RolloutReturning || !strings.Contains(c.r.Message, name) {
			t.Fatalf("%s: %s", c.r.State, c.r.Message)
		}
	}
	c.all(0, "old", mirror.HealthHealthy)
	for _, m := range c.r.Members[7:10] {
		at := c.status[m.Key]
		at.SilentSince = &silent
		c.status[m.Key] = at
	}
	c.now = c.now.Add(30 * time.Minute)
	c.step()
	c.want(mirror.RolloutReturned, 0)
	if !strings.Contains(c.r.Message, "look at e1-007") {
		t.Error(c.r.Message)
	}
}

// A result of an earlier comparison is not the state of the change.
func TestOnlyTheStateOfTheChangeCounts(t *testing.T) {
	for name, spoil := range map[string]func(*mirror.RolloutStatus){
		"compared before":   func(s *mirror.RolloutStatus) { s.Compared = "old" },
		"not applied":       func(s *mirror.RolloutStatus) { s.Apply = mirror.ApplyPending },
		"out of sync":       func(s *mirror.RolloutStatus) { s.Sync = mirror.SyncOutOfSync },
		"being synced":      func(s *mirror.RolloutStatus) { s.OperationPhase = "Running" },
		"an unknown health": func(s *mirror.RolloutStatus) { s.Health = mirror.HealthUnknown },
		"its cluster is silent": func(s *mirror.RolloutStatus) {
			s.SilentSince = &start
		},
	} {
		c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}}}, 1)
		c.step()
		at := good("new")
		spoil(&at)
		c.status[c.r.Members[0].Key] = at
		c.step()
		if c.r.State != mirror.RolloutRunning {
			t.Errorf("%s: %s", name, c.r.State)
		}
		c.all(0, "new", mirror.HealthHealthy)
	}
}

func TestADecisionIsTakenOnce(t *testing.T) {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a"}}}, 1)
	c.step()
	c.decide(mirror.PauseRollout)
	c.decide(mirror.ResumeRollout)
	c.step()
	c.want(mirror.RolloutRunning, 1)
	if c.r.Decided != 2 {
		t.Error(c.r.Decided)
	}
}

// metered is a rollout of two waves, the first of which soaks and waits for a metric.
func metered(t *testing.T) *course {
	c := begin(t, fleet.Rollout{Waves: []fleet.RolloutWave{{Name: "a",
		Metrics: []string{"error-rate"}}, {Name: "b"}}}, 1, 1)
	c.step()
	c.all(0, "new", mirror.HealthHealthy)
	c.step()
	if c.r.Waves[0].State != mirror.WaveSoaking {
		t.Fatalf("%+v", c.r.Waves)
	}
	return c
}

// measured is a measurement some time later.
func (c *course) measured(after time.Duration, state mirror.MetricState, why string) {
	c.t.Helper()
	c.now = c.now.Add(after)
	c.metrics = map[mirror.MetricKey]mirror.MetricResult{
		{Rollout: c.r.ID, Wave: 0, Name: "error-rate"}: {At: c.now, State: state, Message: why,
			For: fleet.Duration(time.Minute), Failures: 2}}
	c.step()
	c.step() // the same measurement counts once
}

func TestAWaveWaitsUntilItsMetricIsGoodForLongEnough(t *testing.T) {
	c := metered(t)
	c.measured(time.Second, mirror.MetricGood, "")
	c.want(mirror.RolloutRunning, 1)
	c.measured(30*time.Second, mirror.MetricBad, "is 0.2, above 0.01 in e1-000")
	c.want(mirror.RolloutRunning, 1)
	c.measured(30*time.Second, mirror.MetricGood, "")
	c.measured(59*time.Second, mirror.MetricGood, "")
	c.want(mirror.RolloutRunning, 1)
	c.measured(time.Second, mirror.MetricGood, "")
	c.want(mirror.RolloutRunning, 2)
}

func TestABadMetricFailsItsWave(t *testing.T) {
	c := metered(t)
	c.measured(30*time.Second, mirror.MetricBad, "is 0.2, above 0.01 in e1-000")
	c.want(mirror.RolloutRunning, 1)
	c.measured(30*time.Second, mirror.MetricBad, "is 0.3, above 0.01 in e1-000")
	c.want(mirror.RolloutReturning, 0)
	if !strings.Contains(c.r.Message,
		"wave 1 (a) failed: metric error-rate is 0.3, above 0.01 in e1-000") {
		t.Error(c.r.Message)
	}
}

// No measurement never lets a wave go on, and fails it after the timeout.
func TestAnUnknownMetricIsNeverGood(t *testing.T) {
	for _, silent := range []bool{true, false} {
		c := metered(t)
		if !silent {
			c.measured(29*time.Minute, mirror.MetricGood, "")
			c.measured(time.Second, mirror.MetricUnknown, "no value in e1-000: 0 series")
		}
		c.now = c.now.Add(29*time.Minute + 59*time.Second)
		c.step()
		c.want(mirror.RolloutRunning, 1)
		c.now = c.now.Add(time.Second)
		c.step()
		c.want(mirror.RolloutReturning, 0)
		if !strings.Contains(c.r.Message, "metric error-rate is not known after 30m0s") {
			t.Error(c.r.Message)
		}
	}
}
