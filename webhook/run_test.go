package webhook_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/webhook"
)

// kept returns a Reviewer without a Git host that knows these pull requests.
func kept(records *shared, pulls ...forge.PullRecord) *webhook.Reviewer {
	for _, p := range pulls {
		records.pulls[p.Number] = p
	}
	return webhook.NewReviewer(webhook.Config{Records: records, Planner: newPlanner(),
		Branch: "main", Sweep: time.Minute, Log: slog.New(slog.DiscardHandler)})
}

func known(number int, state forge.PullState, tenants ...fleet.TenantName) forge.PullRecord {
	return forge.PullRecord{Pull: forge.Pull{Number: number, State: state}, Tenants: tenants,
		Finished: state == forge.PullClosed}
}

func numbers(jobs []forge.Recheck) (out []int) {
	for _, l := range jobs {
		out = append(out, l.Number)
	}
	return out
}

func TestRecordedAsksForWhomItMeets(t *testing.T) {
	for name, c := range map[string]struct {
		tenants []fleet.TenantName
		want    []int
	}{
		"a tenant":             {[]fleet.TenantName{"acme"}, []int{1, 3, 4, 6}},
		"another":              {[]fleet.TenantName{"globex"}, []int{2, 3, 4, 6}},
		"no tenant that waits": {[]fleet.TenantName{"initech"}, []int{3, 4}},
		"the platform":         {[]fleet.TenantName{""}, []int{1, 2, 3, 4, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &shared{records: newRecords()}
			reviewer := kept(r, known(1, forge.PullOpen, "acme"),
				known(2, forge.PullOpen, "globex"),
				known(3, forge.PullOpen, ""), known(4, forge.PullMerged, "globex"),
				known(5, forge.PullClosed, "acme"), known(6, forge.PullOpen, "acme", "globex"),
				known(7, forge.PullOpen))
			reviewer.Recorded(t.Context())
			r.changes = append(r.changes, change{tenants: c.tenants})
			reviewer.Recorded(t.Context())
			if got := r.numbers(); !slices.Equal(got, c.want) {
				t.Errorf("it asks for %v, not %v", got, c.want)
			}
		})
	}
}

// A replica that begins sweeps at once and at each interval, and goes on following what another
// followed.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &shared{records: newRecords()}
		reviewer := kept(r, known(1, forge.PullOpen, "acme"), known(4, forge.PullMerged, "acme"),
			known(5, forge.PullClosed, "acme"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { reviewer.Run(ctx); close(ended) }()
		for _, c := range []struct {
			until time.Duration
			want  []int // of pull requests; 0 is a resync
		}{
			{0, []int{0}}, {time.Second, []int{0}}, {2 * time.Second, []int{0, 4}},
			{59 * time.Second, []int{0, 4}},
			{60 * time.Second, []int{0, 4, 0}}, {62 * time.Second, []int{0, 4, 0, 4}},
			{119 * time.Second, []int{0, 4, 0, 4}},
		} {
			time.Sleep(time.Until(began.Add(c.until)))
			synctest.Wait()
			if got := r.numbers(); !slices.Equal(got, c.want) {
				t.Errorf("after %s it has asked for %v, not %v", c.until, got, c.want)
			}
		}
		cancel()
		<-ended
	})
}

// began is when a bubble's clock begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A result is rechecked after a quarter of its age, after two seconds at least and a minute at
// most, without a request to the Git host.
func TestResultIsFollowedMoreSlowly(t *testing.T) {
	h := applied(t)
	h.review()
	for _, c := range []struct {
		age, pause time.Duration
	}{{0, 2 * time.Second}, {8 * time.Second, 2 * time.Second}, {20 * time.Second, 5 * time.Second},
		{time.Minute, 15 * time.Second}, {4 * time.Minute, time.Minute},
		{5 * time.Hour, time.Minute}} {
		h.now = h.record().FollowedAt.Add(c.age)
		before := h.server.Count("GET ")
		h.review()
		if asked := h.server.Count("GET ") - before; asked != 0 {
			t.Errorf("%s after the merge a recheck asks the forge %d times", c.age, asked)
		}
		h.now = h.now.Add(c.pause - time.Millisecond)
		if due := h.Due(); len(due) != 0 {
			t.Errorf("%s after the merge it is looked at again before %s: %v", c.age, c.pause, due)
		}
		h.now = h.now.Add(time.Millisecond)
		if due := h.Due(); !slices.Equal(numbers(due), []int{h.pullRequest.Number}) {
			t.Errorf("%s after the merge it is due after %s: %v", c.age, c.pause, due)
		}
	}
	h.comes(checkout, "m1", mirror.HealthHealthy, "")
	h.comes(cart, "m2", mirror.HealthHealthy, "")
	h.review()
	h.now = h.now.Add(time.Hour)
	if due := h.Due(); len(due) != 0 {
		t.Errorf("what is settled is due: %v", due)
	}
}

// A store that is away is asked again: nothing ends.
func TestRunOutlastsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &shared{records: newRecords()}
		r.leave(true)
		reviewer := kept(r)
		go reviewer.Run(t.Context())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		reviewer.Wake()
		r.leave(false)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := r.numbers(); !slices.Equal(got, []int{0}) {
			t.Errorf("it has asked for %v", got)
		}
	})
}

// The first resync rechecks everything: the replica that led before may have died between a
// revision and its rechecks. Rechecks that could not be requested are requested with the next
// revision or resync.
func TestRechecksOfARevisionAreRequestedUntilTheyAreStored(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.reviewAll()
	asked := func(by func()) []int {
		t.Helper()
		h.records.asked = nil
		by()
		return numbers(h.records.asked)
	}
	resync := func() {
		if err := h.Recheck(t.Context(), sweep); err != nil {
			t.Fatal(err)
		}
	}
	recorded := func() { h.Recorded(t.Context()) }
	if got := asked(recorded); len(got) != 0 {
		t.Errorf("when it starts to lead it asks for %v", got)
	}
	if got := asked(resync); !slices.Equal(got, []int{1}) {
		t.Errorf("the first resync asks for %v", got)
	}
	if got := asked(resync); len(got) != 0 {
		t.Errorf("the second resync asks for %v", got)
	}
	h.records.changes = append(h.records.changes, change{tenants: []fleet.TenantName{"acme"}})
	h.records.askFails = true
	recorded()
	h.records.askFails = false
	for _, want := range [][]int{{1}, nil} {
		if got := asked(recorded); !slices.Equal(got, want) {
			t.Errorf("after a failure it asks for %v, not %v", got, want)
		}
	}
}

// shared is records that goroutines share, and that may be away.
type shared struct {
	*records
	mu   sync.Mutex
	away bool
}

func (s *shared) leave(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// numbers returns the requested pull requests; 0 is a resync.
func (s *shared) numbers() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return numbers(s.asked)
}

func (s *shared) Ask(ctx context.Context, jobs []forge.Recheck) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errDown
	}
	return s.records.Ask(ctx, jobs)
}

func (s *shared) UnfinishedPulls(ctx context.Context) ([]forge.PullRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errDown
	}
	return s.records.UnfinishedPulls(ctx)
}
