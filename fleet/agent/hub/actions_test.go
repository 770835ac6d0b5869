package hub

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func TestActionsReachTheAgentAndDisappearAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(3 * time.Second)
		open := mirror.Action{ID: "a1", Kind: mirror.ActionSync,
			Key:     fleet.ObjectKey{Engine: "acme.edge", Name: "app"},
			Options: mirror.ActionOptions{DryRun: true}, State: mirror.OperationPending,
			RequestedAt: time.Now().UTC()}
		o.store.do(func() { o.store.actions["acme.edge"] = []mirror.Action{open} })
		o.hub.Wake()
		advance(100 * time.Millisecond)
		var got []agent.Action
		if !w.last(agent.EventActions, &got) || len(got) != 1 || got[0].ID != "a1" ||
			got[0].Name != "app" || !got[0].Options.DryRun || got[0].Late ||
			!got[0].RequestedAt.Equal(open.RequestedAt) {
			t.Fatalf("actions %+v", got)
		}
		before := len(w.events())
		advance(10 * time.Second)
		if len(w.events()) != before {
			t.Error("the same list came again")
		}
		open.Late = true
		o.store.do(func() { o.store.actions["acme.edge"] = []mirror.Action{open} })
		advance(3 * time.Second)
		if !w.last(agent.EventActions, &got) || len(got) != 1 || !got[0].Late {
			t.Errorf("the agent does not learn that it is late: %+v", got)
		}
		o.store.do(func() { delete(o.store.actions, "acme.edge") })
		advance(3 * time.Second)
		if !w.last(agent.EventActions, &got) || len(got) != 0 {
			t.Errorf("after its end: %+v", got)
		}
		w.cancel()
		<-w.ended
	})
}

func TestWhatAnAgentReportsOfAnActionIsBoundedAndSanitized(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	web := mirror.ResourceResult{ActionResource: mirror.ActionResource{Group: "apps",
		Kind: "Deployment", Name: "web"}, Status: "Synced", Message: "ok\x1b[31m\u202e"}
	nameless, foreign := web, web
	nameless.Name, foreign.Kind = "", "A\nB"
	report := agent.Report{Epoch: d.open(), Seq: 1, Actions: []agent.ActionStatus{
		{ID: "a1", State: mirror.OperationRunning, Outcome: mirror.OperationFailed,
			Message: "waits\nlong", Results: []mirror.ResourceResult{web, nameless, foreign}},
		{ID: "", State: mirror.OperationSucceeded},
		{ID: "a2", State: "Deployed", Outcome: mirror.OperationSucceeded},
		{ID: "a3", State: mirror.OperationRunning, Outcome: "Deployed",
			Results: slices.Repeat([]mirror.ResourceResult{web}, 1000)},
		{ID: "a4", State: mirror.OperationSucceeded}}}
	if w := d.report(report); w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	got := o.store.acted
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	if a := got[0]; a.Message != "waits long" || a.Outcome != mirror.OperationFailed ||
		len(a.Results) != 1 || strings.ContainsAny(a.Results[0].Message, "\x1b\u202e") {
		t.Errorf("a1 %+v", a)
	}
	if a := got[1]; a.State != mirror.OperationRunning || a.Outcome != "" ||
		!strings.Contains(a.Message, "Deployed") {
		t.Errorf("an unknown state ends the action: %+v", a)
	}
	if a := got[2]; a.Outcome != "" || len(a.Results) != mirror.MaxActionResources {
		t.Errorf("a3 has the outcome %q and %d results", a.Outcome, len(a.Results))
	}
	if a := got[3]; a.State != mirror.OperationSucceeded || a.Results != nil {
		t.Errorf("a status without results replaces those that are stored: %+v", a)
	}
}

func TestAnAgentOfAnEarlierProtocolGetsNoActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		o.store.do(func() {
			o.store.actions["acme.edge"] = []mirror.Action{{ID: "a1", Kind: mirror.ActionSync}}
		})
		d := o.newAgent("acme.edge", "acme")
		s := d.session(0)
		s.Protocol = agent.ProtocolActions - 1
		r := d.get(agent.PathStream, 0)
		s.Set(r.Header)
		w := o.stream(d.proven(r, agent.PathStream, s.Bytes()))
		advance(3 * time.Second)
		var got []agent.Action
		if w.last(agent.EventActions, &got) {
			t.Errorf("it got %+v", got)
		}
		w.cancel()
		<-w.ended
	})
}
