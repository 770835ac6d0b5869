package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// advance moves the bubble's clock by d and waits until all goroutines are idle.
func advance(d time.Duration) {
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
}

func TestAStreamSendsTheCurrentStateAndThenChanges(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		for i := range 250 {
			o.store.put(application("acme.edge", "acme", fmt.Sprintf("app-%d", i)))
		}
		o.store.put(application("globex.edge", "globex", "foreign"))
		w := d.stream(0)
		synctest.Wait()
		var hello agent.Hello
		events := w.events()
		if !w.last(agent.EventHello, &hello) || events[0].name != agent.EventHello ||
			events[1].name != agent.EventStopEnds || events[2].name != agent.EventStops {
			t.Fatalf("events %v", events)
		}
		if hello.DedicatedTo == nil || len(hello.DedicatedTo) > 0 {
			t.Errorf("a shared engine is reported as %v", hello.DedicatedTo) // nil: omitted
		}
		if n := hello.ApplicationNamespaces; len(n) != 1 || n[0].Namespace != "apps" ||
			n[0].Tenant != "acme" {
			t.Errorf("its further namespaces are %v", n)
		}
		if hello.Engine != "acme.edge" || hello.Epoch != 1 || hello.Holder != "agent/"+d.id+"/"+
			d.instance || hello.Hub != "v1" || hello.Cursor != 0 {
			t.Errorf("hello %+v", hello)
		}
		if got := w.rows(agent.EventRows); len(got) != 250 || got[0].Name != "app-0" ||
			got[249].Name != "app-249" {
			t.Fatalf("%d rows came", len(got))
		}
		var last agent.Rows
		if w.last(agent.EventRows, &last); last.More || last.Cursor != 250 {
			t.Errorf("the last batch has more %v, cursor %d", last.More, last.Cursor)
		}
		removed := application("acme.edge", "acme", "app-3")
		removed.Unwanted = true
		o.store.put(removed)
		o.hub.Wake()
		advance(200 * time.Millisecond)
		rows := w.rows(agent.EventRows)
		if got := rows[len(rows)-1]; len(rows) != 251 || got.Operation != agent.OperationRemove ||
			got.Name != "app-3" {
			t.Errorf("after a removal: %d rows, last %+v", len(rows), got)
		}
		if text := w.output(); strings.Contains(text, "foreign") ||
			strings.Contains(text, "globex") {
			t.Error("another tenant's row was sent")
		}
		if want := application("acme.edge", "acme", "app-3").Manifest; string(
			rows[250].Manifest) != string(want.Body) || rows[250].Hash != want.Hash {
			t.Errorf("the manifest's bytes were changed on the way: %s", rows[250].Manifest)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAReconnectSendsOnlyTheMissedRows(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		for i := range 100 {
			o.store.put(application("acme.edge", "acme", fmt.Sprintf("app-%d", i)))
		}
		w := d.stream(97)
		synctest.Wait()
		if got := w.rows(agent.EventRows); len(got) != 3 || got[0].Name != "app-97" {
			t.Errorf("after 97: %d rows", len(got))
		}
		w.cancel()
		<-w.ended
		w = d.stream(100)
		synctest.Wait()
		var rows agent.Rows
		if !w.last(agent.EventRows, &rows) || len(rows.Rows) != 0 || rows.More ||
			rows.Cursor != 100 {
			t.Errorf("nothing missed: %+v", rows)
		}
		w.cancel()
		<-w.ended
	})
}

func TestACursorOfAnotherMirrorStartsFromZero(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.store.put(application("acme.edge", "acme", "app"))
		w := d.stream(5000)
		synctest.Wait()
		var hello agent.Hello
		if w.last(agent.EventHello, &hello); hello.Cursor != 0 ||
			len(w.rows(agent.EventRows)) != 1 {
			t.Errorf("hello %+v, %d rows", hello, len(w.rows(agent.EventRows)))
		}
		w.cancel()
		<-w.ended
	})
}

func TestALostNotificationDelaysAtMostTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(time.Second)
		o.store.put(application("acme.edge", "acme", "app"))
		advance(pollInterval + minPollPause)
		if len(w.rows(agent.EventRows)) != 1 {
			t.Error("the row did not come without a notification")
		}
		w.cancel()
		<-w.ended
	})
}

func TestARevokedAgentsStreamsEndWithinFiveSecondsOnEveryReplica(t *testing.T) {
	for code, why := range map[string]error{agent.CodeRevoked: registry.ErrRevoked,
		agent.CodeCloned: registry.ErrCloned} {
		synctest.Test(t, func(t *testing.T) {
			one := newTestHub(t)
			two := one.replica()
			defer one.run()()
			defer two.run()()
			d := one.newAgent("acme.edge", "acme")
			other := one.newAgent("globex.edge", "globex").stream(0)
			there := &testAgent{o: two, keys: d.keys, id: d.id, instance: d.instance,
				token: d.token}
			open := []*testStream{d.stream(0), there.stream(0)}
			// receives nothing, not even the end
			slow := there.stream(0, func(w *testStream) { w.hangs = true })
			advance(time.Second)
			one.store.revoke(d.id, why) // without a notification
			began := time.Now()
			for _, w := range append(open, slow) {
				<-w.ended
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("cut after %v", took)
			}
			if got := open[0].goAway(); got != code {
				t.Errorf("got %q, want %q", got, code)
			}
			if !other.isOpen() {
				t.Error("another agent was cut too")
			}
			// its access token was removed
			wantRefusal(t, two.serve(there.get(agent.PathStream, 0)), 401, agent.CodeProof)
			wantRefusal(t, two.serve(tokenRequest(d.assertion())), 401, code)
			other.cancel()
			<-other.ended
		})
	}
}

func TestASlowAgentDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t, func(c *Config) { c.Limits.Reads = 1 })
		defer o.run()()
		slow := o.newAgent("slow.edge", "slow").stream(0)
		quick := o.newAgent("quick.edge", "quick").stream(0)
		advance(time.Second)
		slow.mu.Lock()
		slow.hangs = true
		slow.mu.Unlock()
		o.store.put(application("slow.edge", "slow", "a"))
		o.store.put(application("quick.edge", "quick", "b"))
		o.hub.Wake()
		advance(100 * time.Millisecond)
		if len(quick.rows(agent.EventRows)) != 1 {
			t.Error("the quick one waits for the slow one")
		}
		advance(messageTimeout)
		if slow.isOpen() || !quick.isOpen() {
			t.Errorf("slow open %v, quick open %v", slow.isOpen(), quick.isOpen())
		}
		quick.cancel()
		<-quick.ended
	})
}

func TestAStreamSendsHeartbeatsAndEndsAtItsMaximumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		w := o.newAgent("acme.edge", "acme").stream(0)
		began := time.Now()
		advance(time.Minute)
		if n := strings.Count(w.output(), ": alive\n"); n != 4 {
			t.Errorf("%d signs of life in a minute", n)
		}
		<-w.ended
		if took := time.Since(began); took > maxStreamAge || took < maxStreamAge*5/6 ||
			w.goAway() != agent.CodeRenew {
			t.Errorf("ended after %v with %q", took, w.goAway())
		}
		if o.store.count()["CloseAgent"] != 1 {
			t.Error("its end was not recorded")
		}
	})
}

func TestAShutdownEndsTheStreamsWithAGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		end := o.run()
		d := o.newAgent("acme.edge", "acme")
		w := d.stream(0)
		synctest.Wait()
		end()
		<-w.ended
		o.store.do(func() {
			if w.goAway() != agent.CodeShutdown || len(o.store.open) != 0 {
				t.Errorf("got %q; recorded as open: %v", w.goAway(), o.store.open)
			}
		})
		wantRefusal(t, o.serve(d.get(agent.PathStream, 0)), 503, agent.CodeBusy)
	})
}

func TestALaterProcessTakesOverAndTheSameOneFollowsItself(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		first := d.stream(0)
		synctest.Wait()
		again := d.stream(0)
		<-first.ended
		if first.goAway() != agent.CodeRenew {
			t.Errorf("the same process: %q", first.goAway())
		}
		other := *d
		other.instance = strings.Repeat("o", 22)
		taken := other.stream(0)
		<-again.ended
		if again.goAway() != agent.CodeSuperseded {
			t.Errorf("another process: %q", again.goAway())
		}
		synctest.Wait()
		var hello agent.Hello
		if taken.last(agent.EventHello, &hello); hello.Epoch != 2 {
			t.Errorf("epoch %d", hello.Epoch)
		}
		d.epoch = 1
		wantRefusal(t,
			d.report(agent.Report{Epoch: 1, Seq: 1, Acks: []agent.Ack{
				{Kind: fleet.ObjectApplication, Name: "a", State: mirror.ApplyApplied}}}), 409,
			agent.CodeSuperseded)
		if len(o.store.acks) != 0 {
			t.Error("the report of the earlier process was applied")
		}
		taken.cancel()
		<-taken.ended
	})
}

func TestAChangedDeclarationOpensANewSession(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		synctest.Wait()
		o.store.do(func() { o.store.changed = []registry.Change{{Agent: d.id, Generation: 1}} })
		advance(3 * time.Second)
		if !w.isOpen() {
			t.Fatal("a stream of that generation was ended")
		}
		o.store.do(func() { o.store.changed[0].Generation = 2 })
		advance(3 * time.Second)
		if w.isOpen() || w.goAway() != agent.CodeRenew {
			t.Errorf("open %v, got %q", w.isOpen(), w.goAway())
		}
		w.cancel()
		<-w.ended
	})
}

func TestNoRowIsSentBeforeTheStopsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		o.stops.loaded = false
		defer o.run()()
		o.store.put(application("acme.edge", "acme", "app"))
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(time.Minute)
		if len(w.rows(agent.EventRows)) != 0 || !strings.Contains(w.output(), ": alive") {
			t.Fatalf("before the stops are known: %v", w.events())
		}
		mine := mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:acme/ci"}
		o.stops.set(mine, mirror.Stop{Scope: mirror.StopTenant, Name: "globex",
			By: "token:globex/ci"}, mirror.Stop{Scope: mirror.StopFleet, By: "admin"})
		synctest.Wait()
		var stops []mirror.Stop
		if !w.last(agent.EventStops, &stops) || len(stops) != 2 || stops[0].By != mine.By ||
			stops[1].Scope != mirror.StopFleet {
			t.Errorf("stops %+v", stops)
		}
		if len(w.rows(agent.EventRows)) != 1 {
			t.Error("the row did not come")
		}
		o.stops.set()
		synctest.Wait()
		if !w.last(agent.EventStops, &stops) || len(stops) != 0 {
			t.Errorf("after their end: %+v", stops)
		}
		o.stops.ended(mirror.StopEnd{Scope: mirror.StopTenant, Name: "acme", By: "token:ops"},
			mirror.StopEnd{Scope: mirror.StopTenant, Name: "globex"}, mirror.StopEnd{
				Scope: mirror.StopFleet})
		synctest.Wait()
		var ends []mirror.StopEnd
		if !w.last(agent.EventStopEnds, &ends) || len(ends) != 2 || ends[0].Name != "acme" ||
			ends[0].By != "" || ends[1].Scope != mirror.StopFleet {
			t.Errorf("ends %+v", ends)
		}
		w.cancel()
		<-w.ended
	})
}

func TestSyncsReachTheAgentAndDisappearAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(3 * time.Second)
		o.store.do(func() {
			o.store.syncs["acme.edge"] = []mirror.SyncRequest{
				{ID: "s1", Key: fleet.ObjectKey{Engine: "acme.edge", Name: "app"},
					Namespace: "team", Revision: "r", Prune: true}}
		})
		o.hub.Wake()
		advance(100 * time.Millisecond)
		var syncs []agent.Sync
		if !w.last(agent.EventSyncs, &syncs) || len(syncs) != 1 ||
			syncs[0] != (agent.Sync{ID: "s1", Namespace: "team", Name: "app", Revision: "r",
				Prune: true}) {
			t.Fatalf("syncs %+v", syncs)
		}
		before := len(w.events())
		advance(10 * time.Second)
		if len(w.events()) != before {
			t.Error("the same list came again")
		}
		o.store.do(func() { delete(o.store.syncs, "acme.edge") })
		advance(3 * time.Second)
		if !w.last(agent.EventSyncs, &syncs) || len(syncs) != 0 {
			t.Errorf("after its end: %+v", syncs)
		}
		w.cancel()
		<-w.ended
	})
}

func TestCredentialsAreSentSealedAndAgainAfterAChange(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.secrets.set("acme/git", "canary-1")
		key := o.store.put(repository("acme.edge", "acme", "repo", "git")).Key
		o.store.put(repository("acme.edge", "acme", "lost", "nowhere"))
		stolen := repository("acme.edge", "acme", "stolen", "git")
		stolen.Credential.Tenant = "globex"
		o.secrets.set("globex/git", "canary-of-globex")
		o.store.put(stolen)
		w := d.stream(0)
		synctest.Wait()
		open := func(r agent.Row) string {
			secret, err := agent.Open(d.keys, key, r.Credential.Sealed)
			if err != nil {
				t.Fatal(err)
			}
			return string(secret.Value("password"))
		}
		rows := w.rows(agent.EventRows)
		if open(rows[0]) != "canary-1" || !strings.Contains(rows[1].Credential.Problem,
			"nowhere") || rows[1].Credential.Sealed != nil {
			t.Fatalf("credentials %+v %+v", rows[0].Credential, rows[1].Credential)
		}
		if rows[2].Credential.Sealed != nil || rows[2].Credential.Problem == "" {
			t.Error("another tenant's credential was sent")
		}
		o.secrets.set("acme/git", "canary-2")
		o.hub.Rotated("acme", "git")
		advance(time.Second)
		again := w.rows(agent.EventCredentials)
		if len(again) != 1 || open(again[0]) != "canary-2" {
			t.Errorf("after the rotation: %+v", again)
		}
		o.secrets.set("acme/nowhere", "found") // without a notification
		advance(time.Minute)
		if again = w.rows(agent.EventCredentials); again[len(again)-1].Name != "lost" ||
			again[len(again)-1].Credential.Problem != "" {
			t.Errorf("a secret that came late was not sent: %+v", again)
		}
		if text := w.output() + o.log.String(); strings.Contains(text, "canary") {
			t.Error("a secret can be read")
		}
		w.cancel()
		<-w.ended
	})
}

func TestHangingSecretsDelayABatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		o.secrets.hangs = true
		for i := range 50 {
			o.store.put(repository("acme.edge", "acme", fmt.Sprintf("repo-%d", i), "git"))
		}
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(secretsTimeout + time.Second)
		if rows := w.rows(agent.EventRows); len(rows) != 50 || rows[49].Credential.Problem == "" {
			t.Errorf("%d rows after %v", len(rows), secretsTimeout)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAStreamSurvivesAnOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		w := o.newAgent("acme.edge", "acme").stream(0)
		advance(time.Second)
		o.store.failWith(func(string) error { return errors.New("no connection") })
		o.store.put(application("acme.edge", "acme", "app"))
		o.hub.Rotated("acme", "git")
		advance(5 * time.Minute)
		if !w.isOpen() {
			t.Fatal("it was cut")
		}
		o.store.failWith(nil)
		advance(5 * time.Second)
		if len(w.rows(agent.EventRows)) != 1 {
			t.Error("the row did not come after it")
		}
		o.store.failWith(func(call string) error {
			if call == "AgentChanged" {
				return errors.New("once")
			}
			return nil
		})
		o.store.put(application("acme.edge", "acme", "app-2"))
		o.hub.Wake()
		advance(time.Second)
		o.store.failWith(nil)
		advance(retryDelay)
		if len(w.rows(agent.EventRows)) != 2 {
			t.Error("a read that failed was not tried again")
		}
		w.cancel()
		<-w.ended
	})
}

func TestARowOfAnotherEngineIsNeverSentEvenIfTheStoreReturnsIt(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.store.do(func() {
			o.store.rows["acme.edge"] = []mirror.Row{application("acme.edge", "globex", "foreign")}
			o.store.rows["acme.edge"][0].Seq = 1
		})
		w := d.stream(0)
		<-w.ended
		if len(w.rows(agent.EventRows)) != 0 {
			t.Error("it was sent")
		}
		rec := o.serve(d.get(agent.PathSnapshot, 0))
		if rec.Code == 200 || strings.Contains(rec.Body.String(), "foreign") {
			t.Errorf("the snapshot: %d %s", rec.Code, rec.Body)
		}
	})
}

func TestIdleStreamsMakeNoCallToTheStore(t *testing.T) {
	cost := func(agents int) (calls map[string]int) {
		synctest.Test(t, func(t *testing.T) {
			o := newTestHub(t)
			defer o.run()()
			var all []*testStream
			for i := range agents {
				all = append(all, o.newAgent(fleet.EngineName(fmt.Sprintf("t%d.edge", i)),
					fleet.TenantName(fmt.Sprintf("t%d", i))).stream(0))
			}
			advance(time.Minute)
			if o.hub.feed.connected() != agents {
				t.Fatalf("%d of %d are connected", o.hub.feed.connected(), agents)
			}
			before := o.store.count()
			advance(10 * time.Minute)
			calls = o.store.count()
			for call, n := range before {
				calls[call] -= n
			}
			for _, w := range all {
				w.cancel()
				<-w.ended
			}
		})
		return calls
	}
	none, many := cost(0), cost(1000)
	for call, n := range many {
		if n != none[call] {
			t.Errorf("%s: %d calls in ten minutes with 1,000 idle streams, %d with none", call, n,
				none[call])
		}
	}
	if many["AgentNews"] == 0 || many["BeatReplica"] == 0 {
		t.Errorf("nothing was looked at: %v", many)
	}
}

func TestAnIdleStreamIsSmall(t *testing.T) {
	const agents = 1000
	var perStream uint64
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t, func(c *Config) { c.Limits.OpenRate = 10000 })
		defer o.run()()
		var devices []*testAgent
		for i := range agents {
			devices = append(devices, o.newAgent(fleet.EngineName(fmt.Sprintf("t%d.edge", i)), "t"))
		}
		advance(time.Minute)
		before := inUse()
		var all []*testStream
		for _, d := range devices {
			o.store.put(application(d.o.store.agents[d.id].Engine, "t", "app"))
			all = append(all, d.stream(0, func(w *testStream) { w.forget = true }))
		}
		advance(5 * time.Minute)
		perStream = (inUse() - before) / agents
		for _, w := range all {
			w.cancel()
			<-w.ended
		}
	})
	t.Logf(
		"an idle stream: %d bytes of heap and stack, the request and the test's end of it included",
		perStream)
	if perStream > 32<<10 {
		t.Errorf("an idle stream holds %d bytes", perStream)
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestAStreamEndsWithItsIdentity(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.store.do(func() {
			a := o.store.agents[d.id]
			a.ExpiresAt = time.Now().Add(time.Minute)
			o.store.agents[d.id] = a
		})
		w := d.stream(0)
		advance(time.Minute)
		if w.isOpen() {
			t.Error("it outlives the identity")
		}
		w.cancel()
		<-w.ended
	})
}

func TestARebuiltMirrorRestartsEveryStream(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		for range 9 {
			o.store.put(application("acme.edge", "acme", "app"))
		}
		w := d.stream(0)
		advance(pollInterval + time.Second) // the hub has read those numbers
		o.store.do(func() { o.store.seq, o.store.rows = 0, map[fleet.EngineName][]mirror.Row{} })
		o.store.put(application("acme.edge", "acme", "app"))
		advance(3 * time.Second)
		if w.isOpen() {
			t.Error("a stream continues from a number of the former mirror")
		}
		w.cancel()
		<-w.ended
		w = d.stream(9)
		synctest.Wait()
		if len(w.rows(agent.EventRows)) != 1 {
			t.Error("the row of the new mirror did not come")
		}
		w.cancel()
		<-w.ended
	})
}

func TestStreamsThatWereOpenedWithTheOldKeysEndWhenTheyAreRotated(t *testing.T) {
	withAgent(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		synctest.Wait()
		fresh := newKeys(t)
		proof, _ := agent.ProveRotation(fresh, d.keys.Public().Thumb(), time.Now())
		body, _ := json.Marshal(agent.Rotate{Keys: fresh.Public(), Proof: proof})
		if rec := o.serve(d.post(agent.PathKeys, body)); rec.Code != 200 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		advance(time.Second)
		if w.isOpen() || w.goAway() != agent.CodeRenew {
			t.Errorf("open %v, got %q", w.isOpen(), w.goAway())
		}
		w.cancel()
		<-w.ended
	})
}
