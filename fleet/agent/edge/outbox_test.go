package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// observe reports the state of Applications.
func (s *site) observe(health mirror.HealthState, names ...string) {
	s.Helper()
	var seen []mirror.Observation
	for _, name := range names {
		seen = append(seen, mirror.Observation{
			Key:    fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication, Name: name},
			Health: health})
	}
	if err := s.f.Observe(s.Context(), s.lease, seen); err != nil {
		s.Fatal(err)
	}
}

// health returns the hub's view of Applications.
func (h *hubDouble) health() map[string]mirror.HealthState {
	last := map[string]mirror.HealthState{}
	for _, report := range h.taken() {
		for _, o := range report.Observed {
			last[o.Name] = o.Health
		}
	}
	return last
}

func TestNothingIsSentWhileNothingChanges(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		report := func() {
			s.acknowledge("one")
			s.observe(mirror.HealthHealthy, "one")
			if err := s.f.ReportEngine(t.Context(), s.lease, mirror.EngineReport{
				Engine: testEngine, Reachable: true, ArgoCD: "v3.2.1"}); err != nil {
				t.Fatal(err)
			}
			wait(time.Second)
		}
		report()
		sent, all := len(h.taken()), h.asked("")
		for range 100 {
			report()
		}
		wait(time.Hour)
		if len(h.taken()) != sent {
			t.Errorf("%d reports of what the hub knows", len(h.taken())-sent)
		}
		if h.asked("") != all {
			t.Errorf("%d requests of an idle agent", h.asked("")-all)
		}
	})
}

func TestAnOutageKeepsTheLastState(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		s.observe(mirror.HealthHealthy, "a", "b")
		wait(time.Second)
		h.listener.cut(true)
		for i := range 5000 {
			s.observe(mirror.HealthProgressing, "a", "b", fmt.Sprintf("c-%d", i%7))
			s.observe(mirror.HealthDegraded, "a")
			s.observe(mirror.HealthHealthy, "b")
		}
		if n := s.f.Outbox.Waiting(); n > 20 {
			t.Errorf("%d things wait of 9 Applications", n)
		}
		if n := len(s.f.Outbox.lists[listObserved].order); n > 200 {
			t.Errorf("the order has %d entries", n)
		}
		h.listener.cut(false)
		wait(3 * time.Minute)
		if got := h.health(); got["a"] != mirror.HealthDegraded ||
			got["b"] != mirror.HealthHealthy ||
			got["c-6"] != mirror.HealthProgressing || len(got) != 9 {
			t.Errorf("the hub knows %v", got)
		}
	})
}

func TestAReportWithALostResponseIsAcceptedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		lost := 0
		h.order(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != agent.PathStatus || lost == 3 {
				return false
			}
			h.status(discard{w}, r)
			lost++
			panic(http.ErrAbortHandler)
		})
		s.observe(mirror.HealthHealthy, "a")
		wait(time.Second)
		s.observe(mirror.HealthDegraded, "a")
		wait(3 * time.Minute)
		if len(h.taken()) != 2 || h.taken()[0].Seq+1 != h.taken()[1].Seq ||
			h.health()["a"] != mirror.HealthDegraded {
			t.Errorf("%+v", h.taken())
		}
		if s.f.Outbox.Waiting() != 0 {
			t.Errorf("%d things wait still", s.f.Outbox.Waiting())
		}
	})
}

func TestAReportIsSentAgainUnderARaisedEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		h.set(func() { h.fault = unavailable(agent.PathStatus) })
		s.observe(mirror.HealthHealthy, "a")
		wait(time.Second)
		h.set(func() { h.fault = nil })
		if _, err := LeasesOf(s.f).RaiseEpoch(t.Context(), s.lease, 50); err != nil {
			t.Fatal(err)
		}
		wait(2 * time.Minute)
		if h.health()["a"] != mirror.HealthHealthy || h.taken()[0].Epoch != 51 {
			t.Errorf("%+v", h.taken())
		}
		select {
		case err := <-s.ended:
			t.Errorf("the agent took its own epoch for another's: %v", err)
		default:
		}
	})
}

func TestAReportInFlightOutlivesARaiseOfTheEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		report, stream := make(chan struct{}), make(chan struct{})
		h.order(func(_ http.ResponseWriter, r *http.Request) bool {
			switch r.URL.Path {
			case agent.PathStatus:
				<-report
			case agent.PathStream:
				<-stream
			}
			return false
		})
		s.observe(mirror.HealthHealthy, "a")
		wait(time.Second)
		raised := make(chan error, 1)
		go func() {
			_, err := LeasesOf(s.f).RaiseEpoch(t.Context(), s.lease, 50)
			raised <- err
		}()
		wait(time.Second)
		h.set(func() { h.epoch = 51 }) // the hub has accepted the session, the agent not yet
		close(report)
		wait(time.Second)
		close(stream)
		wait(2 * time.Minute)
		if h.health()["a"] != mirror.HealthHealthy {
			t.Errorf("the report is lost: %+v", h.taken())
		}
		if err := <-raised; err != nil {
			t.Error(err)
		}
		select {
		case err := <-s.ended:
			t.Errorf("the agent ended: %v", err)
		default:
		}
	})
}

func TestReportsStayWithinTheLimits(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		var names []string
		for i := range 2345 {
			names = append(names, fmt.Sprintf("app-%d", i))
		}
		s.observe(mirror.HealthHealthy, names...)
		own := make([]mirror.OwnApplication, 1200)
		for i := range own {
			own[i] = mirror.OwnApplication{Namespace: "team", Name: fmt.Sprintf("own-%d", i),
				Message: strings.Repeat("ü", 3000), RepoURL: strings.Repeat("x", 1<<20)}
		}
		if err := s.f.ReportOwn(t.Context(), s.lease, own, true); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		seen, owned := 0, 0
		for i, report := range h.taken() {
			body, _ := json.Marshal(report)
			if len(body) > agent.MaxReport || len(report.Observed) > agent.MaxItems ||
				len(report.Own) > agent.MaxItems {
				t.Errorf("report of %d bytes, %d and %d items", len(body), len(report.Observed),
					len(report.Own))
			}
			seen, owned = seen+len(report.Observed), owned+len(report.Own)
			if report.OwnWhole != (i == len(h.taken())-1) && report.OwnWhole != (owned == 1200 &&
				len(report.Own) > 0) {
				t.Errorf("report %d has ownWhole: %v after %d", i, report.OwnWhole, owned)
			}
			for _, o := range report.Own {
				if len(o.Message) > agent.MaxMessage || len(o.RepoURL) > agent.MaxMessage ||
					strings.Contains(o.Message, "\ufffd") {
					t.Fatalf("a text of %d bytes", len(o.Message))
				}
			}
		}
		if seen != 2345 || owned != 1200 {
			t.Errorf("%d and %d were sent", seen, owned)
		}
	})
}

func TestAnItemThatTheHubRejectsDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		h.order(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != agent.PathStatus || r.ContentLength == 0 {
				return false
			}
			body := readAll(r)
			if !strings.Contains(body, `"poison"`) {
				return false
			}
			h.refuse(w, 400, agent.Problem{Code: agent.CodeInvalid})
			return true
		})
		s.observe(mirror.HealthHealthy, "a", "b", "poison", "c", "d")
		if err := s.f.ReportEngine(t.Context(), s.lease, mirror.EngineReport{
			Engine: testEngine, Reachable: true}); err != nil {
			t.Fatal(err)
		}
		wait(10 * time.Minute)
		got := h.health()
		if len(got) != 4 || s.f.Outbox.Waiting() != 0 {
			t.Errorf("the hub knows %v, %d wait", got, s.f.Outbox.Waiting())
		}
		if !slices.ContainsFunc(h.taken(), func(r agent.Report) bool { return r.Status != nil }) {
			t.Error("the status is not reported")
		}
	})
}

func TestAHeldDeletionIsReportedAsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		row := object("one")
		row.Operation = agent.OperationRemove
		row = h.put(row)
		s.f.Held = func(fleet.ObjectKey) (string, bool) {
			return "approve it with: argosy agent release-deletions", true
		}
		local := Local{
			Inventory: []engine.Live{liveObject("one", "prod"), liveObject("orphan", "prod"),
				liveObject("orphan-too", "prod"), liveObject("orphan-project", "")}}
		s.f.Local = func() Local { return local }
		s.follow()
		key := fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication, Name: "one"}
		if err := s.f.ReportEngine(t.Context(), s.lease, mirror.EngineReport{
			Engine: testEngine, Reachable: true}); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		// the acknowledgement reports the agent's status at once, without waiting for the next
		// report of at the engine
		local.Held = 1
		if err := s.f.Acknowledge(t.Context(), s.lease, []mirror.Ack{
			{Key: key, Seq: row.Seq, State: mirror.ApplyFailed, Message: "held"}}); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		if ack, _ := h.ack("one"); ack.State != mirror.ApplyHeld || !strings.Contains(ack.Message,
			"release-deletions") {
			t.Errorf("%+v", ack)
		}
		last := h.taken()[len(h.taken())-1].Status
		if last == nil || last.PendingDeletions != 1 || last.HeldDeletions != 1 ||
			last.Orphans != 3 ||
			!slices.Equal(last.Environments, []fleet.EnvironmentID{
				{Tenant: "acme", Name: "prod"}}) {
			t.Errorf("%+v", last)
		}
	})
}

func TestUnreachableEnvironmentsArePartOfTheAgentsStatus(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		if err := s.f.ReportEngine(t.Context(), s.lease, mirror.EngineReport{
			Engine: testEngine, Reachable: true}); err != nil {
			t.Fatal(err)
		}
		reported := func(reports []mirror.Reach, whole bool) *agent.AgentStatus {
			t.Helper()
			if err := s.f.ReportReach(t.Context(), s.lease, reports, whole); err != nil {
				t.Fatal(err)
			}
			wait(time.Second)
			all := h.taken()
			return all[len(all)-1].Status
		}
		of := func(name fleet.EnvironmentName, u *mirror.Unreachable) mirror.Reach {
			return mirror.Reach{Environment: fleet.EnvironmentID{Tenant: "acme", Name: name},
				Unreachable: u}
		}
		wait(time.Second)
		if first := h.taken()[len(h.taken())-1].Status; first == nil || first.Unreachable != nil {
			t.Errorf("before the engine was read: %+v", first)
		}
		if none := reported(nil, true); none == nil || none.Unreachable == nil ||
			len(none.Unreachable) > 0 {
			t.Errorf("none: %+v", none)
		}
		long := &mirror.Unreachable{Reason: mirror.UnreachableTimeout,
			Message: strings.Repeat("é", 1000), Since: time.Now(), Parked: 3}
		two := reported([]mirror.Reach{of("b", long), of("a", long)}, false)
		if two == nil || len(two.Unreachable) != 2 || two.Unreachable[0].Environment.Name != "a" ||
			two.Unreachable[0].Parked != 3 ||
			len(two.Unreachable[0].Message) > reachMessage {
			t.Errorf("two: %+v", two)
		}
		if left := reported([]mirror.Reach{of("a", nil)}, false); left == nil ||
			len(left.Unreachable) != 1 || left.Unreachable[0].Environment.Name != "b" {
			t.Errorf("one that answers again: %+v", left)
		}
	})
}

// liveObject returns an object of this installation on the cluster.
func liveObject(name string, environment fleet.EnvironmentName) engine.Live {
	return engine.Live{Key: fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication,
		Name: name}, Ours: true, Tenant: "acme", Environment: environment}
}

func TestUpToAThousandOrphansAreReportedWithTheirEnvironments(t *testing.T) {
	m := newRowCache(testEngine, "argocd", nil)
	n, of, _ := m.orphans(nil)
	if text, err := json.Marshal(agent.AgentStatus{Orphans: n, Environments: of}); n != 0 ||
		err != nil || !strings.Contains(string(text), `"environments":[]`) {
		t.Errorf("of nothing: %d, %s, %v; an agent that reports sends a list", n, text, err)
	}
	var all []engine.Live
	for i := range mirror.MaxOrphanEnvironments + 7 {
		name := fmt.Sprintf("e%04d", i)
		all = append(all, liveObject(name, fleet.EnvironmentName(name)),
			liveObject(name+"-b", fleet.EnvironmentName(name)))
	}
	slices.Reverse(all)
	n, of, _ = m.orphans(all)
	if n != 2*(mirror.MaxOrphanEnvironments+7) || len(of) != mirror.MaxOrphanEnvironments ||
		of[0].Name != "e0000" || of[999].Name != "e0999" {
		t.Errorf("%d orphans of %d environments", n, len(of))
	}
}
