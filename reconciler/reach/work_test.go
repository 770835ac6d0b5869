package reach

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// workBench drives a Work with a clock of its own.
type workBench struct {
	*Work
	t     *testing.T
	now   time.Time
	start time.Time
}

func newWorkBench(t *testing.T) *workBench {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return &workBench{Work: NewWork(DefaultWorkLimits), t: t, now: start, start: start}
}

// probe requests a refresh, which is answered after took.
func (b *workBench) probe(took time.Duration) {
	b.t.Helper()
	if !b.Due(b.now) {
		b.t.Fatalf("no refresh is due after %s", b.now.Sub(b.start))
	}
	b.Asked(b.now)
	b.now = b.now.Add(took)
	b.Answered(b.now)
	if b.now.Sub(b.asked) < DefaultWorkLimits.Every {
		b.now = b.asked.Add(DefaultWorkLimits.Every)
	}
}

// compare reports the comparison of one Application.
func (b *workBench) compare(name string, fail func(*engine.Contact)) {
	c := engine.Contact{Key: fleet.ObjectKey{Name: name}, Compared: b.now}
	if fail != nil {
		fail(&c)
	}
	b.Observe(b.now, c)
}

func (b *workBench) want(what string, state mirror.WorkState, since time.Duration) {
	b.t.Helper()
	got := b.State(b.now)
	if got.State != state || state != "" && !got.Since.Equal(b.start.Add(since)) {
		b.t.Errorf("%s: %s since %s, want %s since %s (%s)", what, got.State,
			got.Since.Sub(b.start), state, since, got.Message)
	}
}

func repoServer(c *engine.Contact) { c.RepoServer = "rpc error: code = Unavailable" }

func cluster(c *engine.Contact) {
	c.Reason, c.Message = mirror.UnreachableTimeout, "i/o timeout"
}

func TestAnEngineIsUnknownUntilItAnswers(t *testing.T) {
	b := newWorkBench(t)
	b.want("not asked", "", 0)
	b.Asked(b.now)
	b.now = b.now.Add(time.Second)
	b.want("asked", "", 0)
	b.Answered(b.now)
	b.want("answered", mirror.Working, time.Second)
}

func TestARefreshWithoutAnAnswerShowsAStuckController(t *testing.T) {
	b := newWorkBench(t)
	b.probe(time.Second)
	b.want("it works", mirror.Working, time.Minute)
	b.Asked(b.now)
	b.now = b.now.Add(89 * time.Second)
	b.want("as in a restart", mirror.Working, time.Minute)
	if b.Due(b.now) {
		t.Error("a second refresh is due while the first is open")
	}
	b.now = b.now.Add(time.Second)
	b.want("no answer", mirror.ControllerStuck, time.Minute)
	b.now = b.now.Add(time.Hour)
	b.want("still none", mirror.ControllerStuck, time.Minute)
	b.Answered(b.now)
	b.probe(time.Second) // due at once
	b.want("it answers", mirror.Working, time.Minute+90*time.Second+time.Hour+time.Minute)
}

// Each answer takes three minutes, and the state is read every ten seconds.
func TestASteadyDelayShowsALongQueueAndNothingElse(t *testing.T) {
	b := newWorkBench(t)
	b.probe(time.Second)
	var states []mirror.WorkState
	read := func() {
		if s := b.State(b.now).State; len(states) == 0 || states[len(states)-1] != s {
			states = append(states, s)
		}
	}
	for range 5 {
		if !b.Due(b.now) {
			t.Fatal("no refresh is due")
		}
		b.Asked(b.now)
		for range 18 {
			read()
			b.now = b.now.Add(10 * time.Second)
		}
		b.Answered(b.now)
		read()
	}
	b.want("it is slow", mirror.QueueLong, time.Minute)
	if want := []mirror.WorkState{mirror.Working, mirror.ControllerStuck,
		mirror.QueueLong}; !slices.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	if message := b.State(b.now).Message; message != "each of the last 3 refreshes took over 20s, "+
		"the last 3m0s" {
		t.Error(message)
	}
	b.Asked(b.now)
	since := b.now.Sub(b.start)
	b.now = b.now.Add(6 * time.Minute)
	b.want("twice as long", mirror.ControllerStuck, since)
	b.Answered(b.now)
	if message := b.State(b.now).Message; !strings.HasSuffix(message, "the last 6m0s") {
		t.Error(message)
	}
	b.probe(time.Second)
	if got := b.State(b.now).State; got != mirror.Working {
		t.Errorf("an answer in time: %s", got)
	}
}

func TestThreeLateAnswersInARowShowALongQueue(t *testing.T) {
	b := newWorkBench(t)
	b.probe(time.Second)
	b.State(b.now)
	b.probe(30 * time.Second)
	b.probe(30 * time.Second)
	b.want("two are late", mirror.Working, time.Minute)
	b.probe(40 * time.Second)
	b.want("three are late", mirror.QueueLong, time.Minute)
	b.probe(50 * time.Second)
	b.want("four are late", mirror.QueueLong, time.Minute)
	if message := b.State(b.now).Message; !strings.Contains(message, "the last 50s") {
		t.Error(message)
	}
	b.probe(time.Second)
	b.want("one is not", mirror.Working, 6*time.Minute)
}

func TestComparisonsThatAllFailNameTheComponent(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*engine.Contact)
		want mirror.WorkState
	}{
		"the repo-server": {repoServer, mirror.RepoServerSilent},
		"all clusters":    {cluster, mirror.ClustersUnread},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkBench(t)
			for i := range 5 {
				b.compare(fmt.Sprint(i), nil)
			}
			b.probe(time.Second)
			b.State(b.now)
			for i := range 5 {
				b.compare(fmt.Sprint(i), c.fail)
			}
			b.want("they begin to fail", mirror.Working, time.Minute)
			for range 6 {
				b.probe(time.Second)
			}
			b.want("they fail for two resyncs of Argo CD", mirror.Working, time.Minute)
			b.probe(time.Second)
			b.want("they fail", c.want, time.Minute)
			b.compare("3", nil)
			b.want("one succeeds", mirror.Working, 8*time.Minute)
			b.compare("3", c.fail)
			b.now = b.now.Add(time.Minute)
			b.want("it fails again", mirror.Working, 8*time.Minute)
		})
	}
}

// The repository or the cluster of one tenant may be slow while the others' are not compared.
func TestOneFailingApplicationAmongOthersIsNoFaultOfTheEngine(t *testing.T) {
	b := newWorkBench(t)
	b.compare("a", nil)
	b.compare("b", nil)
	b.probe(time.Second)
	b.State(b.now)
	b.compare("b", repoServer)
	b.now = b.now.Add(time.Hour)
	b.want("one of two fails", mirror.Working, time.Minute)
	b.compare("a", repoServer)
	b.want("both fail", mirror.RepoServerSilent, time.Minute)
	b.Observe(b.now, engine.Contact{Key: fleet.ObjectKey{Name: "a"}, Gone: true})
	b.want("the only one fails", mirror.RepoServerSilent, time.Minute)
	b.Observe(b.now, engine.Contact{Key: fleet.ObjectKey{Name: "b"}, Gone: true})
	b.want("none is left", mirror.Working, time.Minute+time.Hour)
	if len(b.apps) != 0 || b.failing != 0 {
		t.Errorf("kept: %+v, %d", b.apps, b.failing)
	}
}

// The cluster of one environment is dead, and no other Application is compared meanwhile.
func TestOneFailingEnvironmentAmongOthersIsNoFaultOfTheEngine(t *testing.T) {
	b := newWorkBench(t)
	compare := func(name string, in fleet.EnvironmentName, fail func(*engine.Contact)) {
		b.compare(name, func(c *engine.Contact) {
			if c.Environment = in; fail != nil {
				fail(c)
			}
		})
	}
	compare("a", "prod", nil)
	b.probe(time.Second)
	b.State(b.now)
	compare("b", "staging", cluster)
	compare("c", "staging", cluster)
	b.now = b.now.Add(time.Hour)
	b.want("one of two environments fails", mirror.Working, time.Minute)
	compare("a", "prod", cluster)
	b.want("both fail", mirror.ClustersUnread, time.Minute)
}

func TestARepeatedReportOfOneComparisonCountsOnce(t *testing.T) {
	b := newWorkBench(t)
	for range 3 {
		b.compare("a", repoServer)
		b.compare("b", nil)
	}
	b.now = b.now.Add(time.Second)
	b.compare("b", repoServer)
	b.Observe(b.now, engine.Contact{Key: fleet.ObjectKey{Name: "b"}, Compared: b.start})
	if b.failing != 2 || b.since.IsZero() {
		t.Errorf("%d fail, since %s", b.failing, b.since)
	}
}

// Limits without a number of late answers: no number of them is a fault, a very late one is.
func TestLateAnswersAreNoFaultWithoutALimit(t *testing.T) {
	b := newWorkBench(t)
	b.limits.LateRow = 0
	b.probe(time.Second)
	for range 5 {
		b.probe(30 * time.Second)
		if got := b.State(b.now).State; got != mirror.Working {
			t.Fatalf("after a late answer: %s", got)
		}
	}
	b.probe(2 * time.Minute)
	if got := b.State(b.now); got.State != mirror.QueueLong ||
		got.Message != "the last refresh took 2m0s" {
		t.Errorf("after a very late one: %+v", got)
	}
}
