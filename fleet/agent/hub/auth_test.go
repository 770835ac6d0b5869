package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const oneTime = "one-time-token-canary-0123456789"

func joinRequest(t *testing.T, o *testHub, keys agent.PrivateKeys, token string) *http.Request {
	t.Helper()
	body, err := json.Marshal(agent.Join{Token: token, Keys: keys.Public(), ClusterUID: "uid-1",
		Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	proof, err := agent.Prove(keys, http.MethodPost, agent.PathJoin, "", body, o.hub.now())
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, agent.PathJoin, bytes.NewReader(body))
	r.Header.Set(agent.HeaderProof, proof)
	return r
}

func newKeys(t testing.TB) agent.PrivateKeys {
	t.Helper()
	keys, err := agent.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestOfFiftyParallelJoinsWithOneTokenExactlyOneKeySucceeds(t *testing.T) {
	o := newTestHub(t, func(c *Config) { c.Limits.JoinRate = 1000 })
	o.store.tokens[oneTime] = registry.Token{Engine: "acme.edge", Tenant: "acme"}
	answers := make([]*httptest.ResponseRecorder, 50)
	requests := make([]*http.Request, len(answers))
	for i := range requests {
		requests[i] = joinRequest(t, o, newKeys(t), oneTime)
	}
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = o.serve(requests[i]) })
	}
	all.Wait()
	joined := 0
	for _, w := range answers {
		if w.Code == http.StatusOK {
			joined++
		} else {
			wantRefusal(t, w, 409, agent.CodeUsed)
		}
	}
	if joined != 1 {
		t.Errorf("%d keys have joined", joined)
	}
}

func TestTheSameKeysMayJoinAgainAfterALostResponse(t *testing.T) {
	o := newTestHub(t)
	o.store.tokens[oneTime] = registry.Token{Engine: "acme.edge", Tenant: "acme"}
	keys := newKeys(t)
	var first, second agent.Joined
	for _, into := range []*agent.Joined{&first, &second} {
		w := o.serve(joinRequest(t, o, keys, oneTime))
		if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), into) != nil ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if first.Agent == "" || first.Agent != second.Agent || first.Engine != "acme.edge" ||
		!first.ExpiresAt.After(first.Time) {
		t.Errorf("%+v and %+v", first, second)
	}
}

func TestMalformedJoinsAreRejectedBeforeTheStoreIsRead(t *testing.T) {
	o := newTestHub(t)
	keys := newKeys(t)
	sound := agent.Join{Token: oneTime, Keys: keys.Public(), ClusterUID: "uid", Version: "v1"}
	with := func(change func(*agent.Join)) agent.Join { j := sound; change(&j); return j }
	for name, c := range map[string]struct {
		join  agent.Join
		prove agent.PrivateKeys
		code  string
	}{
		"keys of another agent": {sound, newKeys(t), agent.CodeProof},
		"no keys": {with(func(j *agent.Join) { j.Keys = registry.Keys{} }), keys,
			agent.CodeInvalid},
		"weak key": {with(func(j *agent.Join) { j.Keys.Seal = make([]byte, 32) }),
			keys, agent.CodeInvalid},
		"short token": {with(func(j *agent.Join) { j.Token = "x" }), keys,
			agent.CodeInvalid},
		"long token": {with(func(j *agent.Join) { j.Token = strings.Repeat("x", 257) }),
			keys, agent.CodeInvalid},
		"uid of lines": {with(func(j *agent.Join) { j.ClusterUID = "a\nb" }), keys,
			agent.CodeInvalid},
		"version of lines": {with(func(j *agent.Join) { j.Version = "a\nb" }), keys,
			agent.CodeInvalid},
	} {
		body, _ := json.Marshal(c.join)
		proof, _ := agent.Prove(c.prove, http.MethodPost, agent.PathJoin, "", body, o.hub.now())
		r := httptest.NewRequest(http.MethodPost, agent.PathJoin, bytes.NewReader(body))
		r.Header.Set(agent.HeaderProof, proof)
		if w := o.serve(r); problemOf(t, w).Code != c.code {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	huge := httptest.NewRequest(http.MethodPost, agent.PathJoin,
		strings.NewReader(`{"token":"`+strings.Repeat("x", smallBody)+`"}`))
	wantRefusal(t, o.serve(huge), 413, agent.CodeInvalid)
	if n := o.store.count()["JoinAgent"]; n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	wantRefusal(t, o.serve(joinRequest(t, o, keys, "no-such-token-0123456789")), 401,
		agent.CodeToken)
}

func TestNoTokenAppearsInALogOrAResponse(t *testing.T) {
	o := newTestHub(t)
	o.store.failWith(func(call string) error {
		return errors.New("connection to " + oneTime + " lost")
	})
	w := o.serve(joinRequest(t, o, newKeys(t), oneTime))
	if w.Code != 503 || strings.Contains(w.Body.String()+o.log.String(), oneTime) ||
		!strings.Contains(o.log.String(), "redacted") {
		t.Errorf("%d %s; log %s", w.Code, w.Body, o.log)
	}
}

func TestAnAssertionIsExchangedForAnAccessTokenOnce(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	raw := d.assertion()
	w := o.serve(tokenRequest(raw))
	var got agent.Access
	if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &got) != nil || got.TokenType != "DPoP" ||
		got.ExpiresIn != 300 || len(got.AccessToken) != tokenLength {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	d.token = got.AccessToken
	if w := o.serve(d.get(agent.PathSnapshot, 0)); w.Code != 200 {
		t.Errorf("with the token: %d %s", w.Code, w.Body)
	}
	wantRefusal(t, o.serve(tokenRequest(raw)), 401, agent.CodeProof)
}

func TestACallerWithoutTheKeyLearnsNothing(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	revoked := o.newAgent("revoked.edge", "revoked")
	o.store.revoke(revoked.id, registry.ErrRevoked)
	unknown := &testAgent{o: o, keys: newKeys(t)}
	forged := func(id string) string { s := *unknown; s.id = id; return s.assertion() }
	elsewhere, _ := agent.Assertion(d.keys, d.id, "https://other.example", o.hub.now())
	late, _ := agent.Assertion(d.keys, d.id, hubURL, o.hub.now().Add(-2*time.Hour))
	var first string
	for name, raw := range map[string]string{"unknown agent": forged("unknown"),
		"live agent": forged(d.id), "revoked agent": forged(revoked.id),
		"no JWT": "x", "nothing": "", "other hub": elsewhere, "clock": late} {
		w := o.serve(tokenRequest(raw))
		wantRefusal(t, w, 401, agent.CodeProof)
		if p := problemOf(t, w); p.Error != "invalid_client" {
			t.Errorf("%s: error %q", name, p.Error)
		}
		if first == "" {
			first = w.Body.String()
		}
		if w.Body.String() != first {
			t.Errorf("%s is answered otherwise: %s", name, w.Body)
		}
	}
	wantRefusal(t, o.serve(tokenRequest(revoked.assertion())), 401, agent.CodeRevoked)
}

func TestATokenRequestOfAnotherGrantTypeIsRejected(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	send := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, agent.PathToken, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return o.serve(r)
	}
	form := url.Values{"grant_type": {"password"}, "client_assertion_type": {assertionType},
		"client_assertion": {d.assertion()}}
	if w := send(form.Encode()); w.Code != 400 ||
		problemOf(t, w).Error != "unsupported_grant_type" {
		t.Errorf("another grant: %d %s", w.Code, w.Body)
	}
	form.Set("grant_type", grantType)
	if w := send(form.Encode() + "&client_assertion=x"); w.Code != 400 {
		t.Errorf("twice: %d %s", w.Code, w.Body)
	}
	form.Set("client_assertion_type", "x")
	wantRefusal(t, send(form.Encode()), 401, agent.CodeProof)
	r := httptest.NewRequest(http.MethodPost, agent.PathToken, strings.NewReader(form.Encode()))
	wantRefusal(t, o.serve(r), 400, agent.CodeInvalid)
	wantRefusal(t, send("a="+strings.Repeat("x", smallBody)), 413, agent.CodeInvalid)
}

func TestTheCredentialAloneIdentifiesTheCaller(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	o.newAgent("globex.edge", "globex")
	o.store.put(application("acme.edge", "acme", "mine"))
	o.store.put(application("globex.edge", "globex", "foreign"))
	missing := httptest.NewRecorder()
	o.mux.ServeHTTP(missing, httptest.NewRequest(http.MethodGet,
		"/api/v1/cluster/nothing/applications", nil))
	for _, target := range []string{"/api/v1/cluster/globex.edge/applications",
		"/api/v1/cluster/agent-globex-edge/applications", "/api/v1/cluster/globex.edge/status",
		"/api/v1/cluster/%73elf/applications", "/api/v1/cluster/self/applications%2f",
		"/api/v1/cluster/self/applications/globex.edge",
		"/api/v1/cluster/..%2fself/applications"} {
		r := d.get(agent.PathSnapshot, 0)
		r.URL, _ = url.Parse(target)
		if w := o.serve(r); w.Code != 404 || !bytes.Equal(w.Body.Bytes(), missing.Body.Bytes()) ||
			w.Header().Get("Content-Type") != missing.Header().Get("Content-Type") {
			t.Errorf("%s: %d %q, unlike what does not exist: %d %q", target, w.Code, w.Body,
				missing.Code, missing.Body)
		}
	}
	for _, target := range []string{"/api/v1/cluster/%2e%2e/cluster/self/applications",
		"/api/v1/cluster//self/applications", "/api/v1/cluster/x/../self/applications"} {
		r := d.get(agent.PathSnapshot, 0)
		r.URL, _ = url.Parse(target)
		if w := o.serve(r); w.Code == 200 || strings.Contains(w.Body.String(), "foreign") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	r := d.get(agent.PathSnapshot, 0)
	r.URL.RawQuery = "cluster=globex.edge&engine=globex.edge"
	r.Header.Set("X-Cluster", "globex.edge")
	if w := o.serve(r); w.Code != 200 || !strings.Contains(w.Body.String(), "mine") ||
		strings.Contains(w.Body.String(), "foreign") {
		t.Errorf("a query that names another cluster: %d %s", w.Code, w.Body)
	}
	for name, change := range map[string]func(http.Header){
		"Authorization twice": func(h http.Header) {
			h.Add("Authorization", h.Get("Authorization"))
		},
		"proof twice": func(h http.Header) {
			h.Add(agent.HeaderProof, h.Get(agent.HeaderProof))
		},
		"Bearer":   func(h http.Header) { h.Set("Authorization", "Bearer "+d.token) },
		"no proof": func(h http.Header) { h.Del(agent.HeaderProof) },
		"no token": func(h http.Header) { h.Del("Authorization") },
		"another's token": func(h http.Header) {
			h.Set("Authorization", "DPoP "+o.newAgent("other.edge", "other").token)
		},
		"another epoch": func(h http.Header) { h.Set(agent.HeaderEpoch, "77") },
		"another instance": func(h http.Header) {
			h.Set(agent.HeaderInstance, strings.Repeat("z", 22))
		},
	} {
		r := d.get(agent.PathSnapshot, 0)
		change(r.Header)
		w := o.serve(r)
		wantRefusal(t, w, 401, agent.CodeProof)
		if w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Date") == "" {
			t.Errorf("%s: headers %v", name, w.Header())
		}
	}
	if w := d.report(agent.Report{Epoch: d.open(), Seq: 1, Acks: []agent.Ack{
		{Kind: fleet.ObjectApplication, Name: "foreign",
			State: mirror.ApplyApplied}}}); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := o.store.acks[0].Key.Engine; got != "acme.edge" {
		t.Errorf("a report spoke for engine %s", got)
	}
}

func TestARecordedRequestIsRejected(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	body, _ := json.Marshal(agent.Report{Epoch: d.open(), Seq: 1})
	recorded := d.post(agent.PathStatus, body)
	if w := o.serve(recorded.Clone(recorded.Context())); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	again := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, agent.PathStatus, bytes.NewReader(body))
		r.Header = recorded.Header.Clone()
		return r
	}
	wantRefusal(t, o.serve(again()), 401, agent.CodeReplay)
	changed := again()
	changed.Body = http.NoBody
	wantRefusal(t, o.serve(changed), 401, agent.CodeProof)
	// another replica does not remember the proof, but the store checks a report's number
	elsewhere := o.replica()
	w := elsewhere.serve(again())
	wantRefusal(t, w, 409, agent.CodeReplay)
	if p := problemOf(t, w); p.ReportSeq != 1 {
		t.Errorf("the last report was 1, reported %d", p.ReportSeq)
	}
	back := d.report(agent.Report{Epoch: d.epoch, Seq: 1})
	wantRefusal(t, back, 409, agent.CodeReplay)
	stolen := &testAgent{o: o, keys: newKeys(t), id: d.id, instance: d.instance, token: d.token}
	wantRefusal(t, o.serve(stolen.get(agent.PathSnapshot, 0)), 401, agent.CodeProof)
	if n := o.store.count()["ReportTaken"]; n != 1 {
		t.Errorf("%d reports were taken", n)
	}
}

func TestARecordedGetOpensOneSessionAcrossReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		elsewhere := o.replica()
		d := o.newAgent("acme.edge", "acme")
		o.store.put(application("acme.edge", "acme", "mine"))
		recorded := d.get(agent.PathSnapshot, 0)
		if w := o.serve(recorded.Clone(t.Context())); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, r := range []*testHub{o, elsewhere} {
			wantRefusal(t, r.serve(recorded.Clone(t.Context())), 401, agent.CodeReplay)
		}
		recorded = d.get(agent.PathStream, 0)
		w := o.stream(recorded.Clone(t.Context()))
		synctest.Wait()
		if len(w.rows(agent.EventRows)) != 1 {
			t.Fatalf("the stream sent %q", w.output())
		}
		wantRefusal(t, elsewhere.serve(recorded.Clone(t.Context())), 401, agent.CodeReplay)
		advance(agent.Heartbeat)
		if !w.isOpen() {
			t.Errorf("a recorded request has ended the stream: %s", w.goAway())
		}
		w.cancel()
		<-w.ended
	})
}

func TestAnAgentThatOpensTooManySessionsWaits(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	o.store.failWith(func(call string) error {
		if call == "OpenAgent" {
			return registry.ErrBusy
		}
		return nil
	})
	w := o.serve(d.get(agent.PathStream, 0))
	wantRefusal(t, w, 429, agent.CodeBusy)
	if w.Header().Get("Retry-After") != "60" {
		t.Errorf("headers %v", w.Header())
	}
}

func TestProofsAreRememberedWhileTheyAreValid(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newReplayCache(func() time.Time { return now })
	now = now.Add(replayWindow - time.Second) // just before the generations rotate
	if err := s.add("a", "proof"); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		now = now.Add(10 * time.Second)
		if err := s.add("a", "proof"); err == nil {
			t.Fatalf("forgotten at %v", now)
		}
	}
	if err := s.add("b", "proof"); err != nil {
		t.Error("one agent's proof is another's")
	}
	now = now.Add(2 * replayWindow)
	if err := s.add("a", "proof"); err != nil || len(s.young)+len(s.old) != 1 {
		t.Errorf("%v; %d are kept", err, len(s.young)+len(s.old))
	}
	var r *refusal
	for i := range maxProofs {
		if err := s.add("a", string(rune(i))); err != nil &&
			(!errors.As(err, &r) || r.Status != 429 || i < maxProofs-1) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if r == nil {
		t.Error("an agent may ask as often as it likes")
	}
}

func TestAnAgentWithAClockTwoHoursOffLearnsTheTimeFromDate(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	o := newTestHub(t, func(c *Config) { c.Now = func() time.Time { return at } })
	d := o.newAgent("acme.edge", "acme")
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour, agent.Window + time.Second} {
		s := d.session(0)
		r := httptest.NewRequest(http.MethodGet, agent.PathSnapshot, nil)
		s.Set(r.Header)
		proof, _ := agent.Prove(d.keys, http.MethodGet, agent.PathSnapshot, d.token, s.Bytes(),
			at.Add(off))
		r.Header.Set("Authorization", "DPoP "+d.token)
		r.Header.Set(agent.HeaderProof, proof)
		w := o.serve(r)
		wantRefusal(t, w, 401, agent.CodeProof)
		if date, err := http.ParseTime(w.Header().Get("Date")); err != nil || !date.Equal(at) {
			t.Errorf("Date %v, %v", date, err)
		}
	}
	if w := o.serve(d.get(agent.PathSnapshot, 0)); w.Code != 200 {
		t.Errorf("with the hub's time: %d %s", w.Code, w.Body)
	}
}

func TestAnOutdatedAgentIsRejectedWithAReason(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	for protocol, want := range map[int]int{agent.Oldest - 1: 426, agent.Protocol: 200,
		agent.Protocol + 5: 200} {
		s := d.session(0)
		s.Protocol = protocol
		r := httptest.NewRequest(http.MethodGet, agent.PathSnapshot, nil)
		s.Set(r.Header)
		if w := o.serve(d.proven(r, agent.PathSnapshot, s.Bytes())); w.Code != want {
			t.Errorf("protocol %d: %d %s", protocol, w.Code, w.Body)
		}
	}
}

func TestKeysAreRotatedByTheOldAndTheNew(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	fresh := newKeys(t)
	rotation := func(by agent.PrivateKeys, keys registry.Keys) []byte {
		proof, err := agent.ProveRotation(by, d.keys.Public().Thumb(), o.hub.now())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := json.Marshal(agent.Rotate{Keys: keys, Proof: proof})
		return body
	}
	wantRefusal(t, o.serve(d.post(agent.PathKeys, rotation(newKeys(t), fresh.Public()))), 401,
		agent.CodeProof)
	if w := o.serve(d.post(agent.PathKeys, rotation(fresh, fresh.Public()))); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	wantRefusal(t, o.serve(d.get(agent.PathSnapshot, 0)), 401, agent.CodeProof)
	wantRefusal(t, o.serve(tokenRequest(d.assertion())), 401, agent.CodeProof)
	d.keys = fresh
	if w := o.serve(tokenRequest(d.assertion())); w.Code != 200 {
		t.Errorf("with the new keys: %d %s", w.Code, w.Body)
	}
}

func TestAnUndeclaredAgentRetriesLater(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	o.store.failWith(func(call string) error {
		if call == "OpenAgent" {
			return mirror.ErrNotFound
		}
		return nil
	})
	w := o.serve(d.get(agent.PathStream, 0))
	wantRefusal(t, w, 503, agent.CodeUndeclared)
	if w.Header().Get("Retry-After") == "" {
		t.Error("without Retry-After")
	}
	o.store.failWith(func(string) error { return context.DeadlineExceeded })
	wantRefusal(t, o.serve(d.get(agent.PathStream, 0)), 503, agent.CodeBusy)
}
