package hub

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// The database is another incarnation whose sequence numbers are already above the old ones: only
// the incarnation differs.
func TestRowsOfAnotherIncarnationWaitForTheConfigRepo(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		row := o.store.put(application("acme.edge", "acme", "app"))
		w := d.stream(0)
		advance(time.Second)
		if n := len(w.rows(agent.EventRows)); n != 1 {
			t.Fatalf("%d rows", n)
		}
		var hello agent.Hello
		w.last(agent.EventHello, &hello)
		before := hello.Epoch
		o.store.do(func() { o.store.life, o.store.gitAway = "second", true })
		row.Unwanted = true
		for range 3 {
			o.store.put(row)
		}
		o.hub.Rotated("acme", "any")
		o.stops.set(mirror.Stop{Scope: mirror.StopFleet})
		advance(10 * time.Second)
		var stops []mirror.Stop
		if !w.isOpen() || !w.last(agent.EventStops, &stops) || len(stops) != 1 {
			t.Errorf("the stream is open: %v; stops %v", w.isOpen(), stops)
		}
		if rows := w.rows(agent.EventRows); len(rows) != 1 {
			t.Errorf("sent before the rows were confirmed: %+v", rows[1:])
		}
		again := d.stream(row.Seq)
		refused := o.serve(d.get(agent.PathSnapshot, 0))
		wantRefusal(t, refused, http.StatusServiceUnavailable, agent.CodeUnconfirmed)
		if refused.Header().Get("Retry-After") == "" || !strings.Contains(refused.Body.String(),
			"config repo") {
			t.Errorf("%v %s", refused.Header(), refused.Body)
		}
		if !again.last(agent.EventHello, &hello) || hello.Epoch != before ||
			hello.Cursor != row.Seq || len(again.rows(agent.EventRows)) != 0 {
			t.Errorf("a stream that is opened before the rows are confirmed: hello %+v, %d rows",
				hello, len(again.rows(agent.EventRows)))
		}
		o.store.do(func() { o.store.gitAway = false })
		advance(5 * time.Second)
		if again.goAway() != agent.CodeRenew || again.isOpen() {
			t.Errorf("the stream continues after a number of another incarnation; GoAway %q",
				again.goAway())
		}
		next := d.stream(row.Seq)
		advance(time.Second)
		if !next.last(agent.EventHello, &hello) || hello.Epoch <= before {
			t.Errorf("epoch %d after %d: the agent would not read its rows again", hello.Epoch,
				before)
		}
		if got := o.serve(d.get(agent.PathSnapshot, 0)); got.Code != http.StatusOK {
			t.Errorf("a snapshot once the rows are confirmed: %d %s", got.Code, got.Body)
		}
		next.cancel()
		<-next.ended
		<-w.ended
	})
}

// A restored disk has the same incarnation and lower sequence numbers: the first replica to notice
// begins another incarnation.
func TestSequenceNumbersThatGoBackBeginAnotherIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		for range 5 {
			o.store.put(application("acme.edge", "acme", "app"))
		}
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(5 * time.Second)
		o.store.do(func() { o.store.seq = 2 })
		advance(5 * time.Second)
		if n := o.store.count()["BeginLife"]; n != 1 || o.store.life == "first" {
			t.Errorf("incarnation %q, begun %d times", o.store.life, n)
		}
		if w.goAway() != agent.CodeRenew {
			t.Errorf("GoAway %q", w.goAway())
		}
		<-w.ended
	})
}

// A hub that starts while the config repo is unreachable sends no rows yet. It ends no stream once
// the repo is back: the agents know these rows.
func TestAHubThatStartsSendsRowsOnceTheConfigRepoConfirmsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		o.store.do(func() { o.store.gitAway, o.store.confirmed = true, 0 })
		o.hub.feed.resetConfirmation("")
		defer o.run()()
		o.store.put(application("acme.edge", "acme", "app"))
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(10 * time.Second)
		if n := len(w.rows(agent.EventRows)); n != 0 {
			t.Errorf("%d rows before they were confirmed", n)
		}
		o.store.do(func() { o.store.gitAway = false })
		advance(5 * time.Second)
		if n := len(w.rows(agent.EventRows)); n != 1 || !w.isOpen() {
			t.Errorf("%d rows once they were confirmed; open: %v", n, w.isOpen())
		}
		w.cancel()
		<-w.ended
	})
}
