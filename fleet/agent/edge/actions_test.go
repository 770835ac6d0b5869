package edge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func TestActionsReachTheWorkerAndTheirStateTheHub(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		open := func() []mirror.Action {
			t.Helper()
			all, err := s.f.OpenActions(t.Context(), testEngine)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		update := func(u mirror.ActionUpdate) {
			t.Helper()
			if err := s.f.UpdateAction(t.Context(), s.lease, u); err != nil {
				t.Fatal(err)
			}
			wait(time.Second)
		}
		if all := open(); len(all) != 0 {
			t.Fatalf("before the first list: %+v", all)
		}
		sent := agent.Action{ID: "a1", Kind: mirror.ActionSync, Name: "one",
			Options: mirror.ActionOptions{Prune: true}, State: mirror.OperationPending,
			RequestedAt: time.Now().UTC()}
		h.send(message(agent.EventActions, []agent.Action{sent}))
		wait(0)
		if all := open(); len(all) != 1 || all[0].Tenant != "acme" ||
			all[0].State != mirror.OperationPending || !all[0].Options.Prune ||
			!all[0].RequestedAt.Equal(sent.RequestedAt) {
			t.Fatalf("%+v", all)
		}
		results := []mirror.ResourceResult{{Status: "Synced"}}
		update(mirror.ActionUpdate{ID: "a1", State: mirror.OperationRunning, Results: results,
			Outcome: mirror.OperationSucceeded})
		if all := open(); len(all) != 1 || all[0].State != mirror.OperationRunning ||
			all[0].Outcome != "" {
			t.Errorf("the hub has not stored the results: %+v", all)
		}
		if last := h.taken()[len(h.taken())-1]; len(last.Actions) != 1 ||
			last.Actions[0].Outcome != mirror.OperationSucceeded ||
			len(last.Actions[0].Results) != 1 {
			t.Errorf("%+v", last)
		}
		sent.State, sent.Outcome = mirror.OperationRunning, mirror.OperationSucceeded
		h.send(message(agent.EventActions, []agent.Action{sent}))
		wait(0)
		if all := open(); len(all) != 1 || all[0].Outcome != mirror.OperationSucceeded {
			t.Errorf("the hub has stored the results: %+v", all)
		}
		update(mirror.ActionUpdate{ID: "a1", State: mirror.OperationSucceeded})
		if all := open(); len(all) != 0 {
			t.Errorf("it has ended: %+v", all)
		}
	})
}

// An hour later no person expects the action any more. Only the hub knows its age.
func TestAnAgentWithoutAConnectionBeginsNoAction(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		sent := message(agent.EventActions, []agent.Action{{ID: "a1", Kind: mirror.ActionRefresh,
			Name: "one", State: mirror.OperationPending}})
		h.send(sent)
		wait(0)
		if all, err := s.f.OpenActions(t.Context(), testEngine); err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		h.send(message(agent.EventGoAway, agent.GoAway{Code: agent.CodeShutdown,
			After: time.Hour}))
		wait(time.Second)
		if all, err := s.f.OpenActions(t.Context(), testEngine); err != nil || len(all) != 0 {
			t.Errorf("the connection is cut: %+v, %v", all, err)
		}
	})
}

func TestTheStatusOfAnActionFitsIntoAReport(t *testing.T) {
	for name, message := range map[string]string{"long": strings.Repeat("x", 1<<20),
		"escaped": strings.Repeat("\x01", 4<<10)} {
		o := NewOutbox()
		o.openSession(1, 0)
		result := mirror.ResourceResult{Status: "SyncFailed", Message: message}
		result.Name = strings.Repeat(message[:1], 253)
		o.updateAction(agent.ActionStatus{ID: "a1", State: mirror.OperationRunning,
			Message: message, Results: slices.Repeat([]mirror.ResourceResult{result}, 1000)})
		p, _ := o.next()
		var report agent.Report
		if p == nil || json.Unmarshal(p.body, &report) != nil || len(report.Actions) != 1 ||
			len(p.body) > agent.MaxActionStatus+1<<10 || len(report.Actions[0].Results) == 0 {
			t.Errorf("%s: %+v", name, report)
		}
	}
}
