package hub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// wanted makes a hub's engine one that is to have a version of Argo CD.
func (o *testHub) wanted(t *testing.T, engine fleet.EngineName) mirror.Instance {
	t.Helper()
	m := mirror.RingManifests{Version: "3.5.7", Files: map[string][]byte{"a.yaml": []byte("one")}}
	i := mirror.Instance{Engine: engine, Version: m.Version, State: mirror.InstanceInstalling,
		Digest: fleet.ManifestsDigest(m.Files)}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	o.store.do(func() { o.store.wants[engine], o.store.packed[i.Digest] = &i, packed })
	return i
}

func bubbled(t *testing.T, test func(t *testing.T, o *testHub, d *testAgent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		d := o.newAgent("plant", "")
		defer o.run()()
		synctest.Wait()
		test(t, o, d)
	})
}

func TestAStreamSendsTheInstanceThatTheEngineIsToHave(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		synctest.Wait()
		sent := &agent.Instance{}
		if !w.last(agent.EventInstance, &sent) || sent != nil {
			t.Errorf("an engine that is not managed gets %+v", sent)
		}
		i := o.wanted(t, "plant")
		o.hub.Wake()
		advance(time.Second)
		if !w.last(agent.EventInstance, &sent) || sent == nil || sent.Digest != i.Digest ||
			sent.Version != "3.5.7" || sent.State != mirror.InstanceInstalling {
			t.Errorf("sent %+v", sent)
		}
		n := len(w.events())
		advance(3 * pollInterval)
		if more := w.events()[n:]; len(more) > 0 {
			t.Errorf("an instance that did not change is sent again: %v", more)
		}
		w.cancel()
		<-w.ended
	})
}

// A database that went back in time may want an earlier version.
func TestNoInstanceIsSentBeforeTheRowsAreConfirmed(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.wanted(t, "plant")
		o.store.do(func() { o.store.gitAway, o.store.life = true, "restored" })
		advance(2 * pollInterval)
		w := d.stream(0)
		advance(2 * pollInterval)
		var sent *agent.Instance
		if w.last(agent.EventInstance, &sent) {
			t.Errorf("sent %+v", sent)
		}
		w.cancel()
		<-w.ended
	})
}

// An agent of the version before ignores the message: a person sees what to do.
func TestAnEarlierAgentLeavesTheInstanceWithAReason(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.wanted(t, "plant")
		s := d.session(0)
		s.Protocol, s.Version = agent.ProtocolInstall-1, "v0.4.0"
		r := d.get(agent.PathStream, 0)
		s.Set(r.Header)
		w := o.stream(d.proven(r, agent.PathStream, s.Bytes()))
		advance(3 * pollInterval)
		if i := o.store.wants["plant"]; i.State != mirror.InstanceInstalling ||
			!strings.Contains(i.Message, "has version v0.4.0, which installs no Argo CD; upgrade") {
			t.Errorf("%+v", i)
		}
		var sent *agent.Instance
		if w.last(agent.EventInstance, &sent) {
			t.Errorf("it is sent %+v", sent)
		}
		if n := o.store.count()["ReportInstance"]; n != 1 {
			t.Errorf("the reason is recorded %d times", n)
		}
		w.cancel()
		<-w.ended
	})
}

// An agent alone gets its version, also that of an environment. An agent of the version before
// would ignore it: it stays as it is, and holds no ring.
func TestAnAgentAloneGetsItsVersion(t *testing.T) {
	for protocol, state := range map[int]mirror.InstanceState{
		agent.ProtocolUpgrade: mirror.InstanceInstalling,
		agent.ProtocolInstall: mirror.InstanceRunning} {
		synctest.Test(t, func(t *testing.T) {
			o := newTestHub(t)
			d := o.newAgent("acme.yard", "acme")
			defer o.run()()
			synctest.Wait()
			since := time.Now().UTC()
			i := mirror.Instance{Engine: "acme.yard", State: mirror.InstanceInstalling,
				Since: since, AgentVersion: "0.5.0",
				AgentDigest: "sha256:" + strings.Repeat("5", 64)}
			o.store.do(func() { o.store.wants["acme.yard"] = &i })
			s := d.session(0)
			s.Protocol, s.Version = protocol, "v0.4.0"
			r := d.get(agent.PathStream, 0)
			s.Set(r.Header)
			w := o.stream(d.proven(r, agent.PathStream, s.Bytes()))
			advance(3 * pollInterval)
			var sent *agent.Instance
			is := w.last(agent.EventInstance, &sent)
			if is != (protocol == agent.ProtocolUpgrade) || is && (sent.AgentDigest !=
				i.AgentDigest || sent.Digest != "" || !sent.Since.Equal(since)) {
				t.Errorf("protocol %d is sent %t: %+v", protocol, is, sent)
			}
			now := *o.store.wants["acme.yard"]
			if now.State != state || !is && !strings.Contains(now.Message, "stays as it is: "+
				"version v0.4.0 upgrades itself only with a managed Argo CD") {
				t.Errorf("protocol %d: %+v", protocol, now)
			}
			if _, ok := instanceReportOf(agent.InstanceReport{Release: i.Release(),
				State: mirror.InstanceRunning}); !ok {
				t.Error("a report about an agent alone is refused")
			}
			w.cancel()
			<-w.ended
		})
	}
}

func TestAnAgentGetsTheManifestsOfItsEngineAlone(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("plant", "")
	i := o.wanted(t, "plant")
	other := o.newAgent("mill", "")
	ask := func(d *testAgent, digest string) (int, agent.Manifests) {
		t.Helper()
		body, _ := json.Marshal(agent.ManifestsRequest{Digest: digest})
		w := o.serve(d.proven(d.post(agent.PathManifests, body), agent.PathManifests, body))
		var got agent.Manifests
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, got
	}
	code, got := ask(d, i.Digest)
	m, err := mirror.UnpackManifests(got.Version, i.Digest, got.Packed)
	if code != http.StatusOK || err != nil || string(m.Files["a.yaml"]) != "one" ||
		m.Version != "3.5.7" {
		t.Errorf("%d, %+v, %v", code, m, err)
	}
	if _, err := mirror.UnpackManifests(got.Version, "sha256:other", got.Packed); err == nil {
		t.Error("files of another digest are unpacked")
	}
	for name, code := range map[string]int{
		"another digest": first(ask(d, "sha256:other")), "another engine": first(ask(other,
			i.Digest))} {
		if code != http.StatusNotFound {
			t.Errorf("%s: %d", name, code)
		}
	}
}

func first(code int, _ agent.Manifests) int { return code }

func TestReportsOfAnInstanceAreChecked(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("plant", "")
	i := o.wanted(t, "plant")
	epoch, seq := d.open(), int64(0)
	report := func(r agent.InstanceReport) mirror.Instance {
		t.Helper()
		seq++
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq,
			Instances: []agent.InstanceReport{r}}); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if now := o.store.wants["plant"]; now != nil {
			return *now
		}
		return mirror.Instance{}
	}
	for _, r := range []agent.InstanceReport{{Release: i.Digest, State: "Splendid"},
		{Release: "sha256:1", State: mirror.InstanceRunning},
		{Release: i.Digest, State: mirror.InstanceReleasing}} {
		if now := report(r); now != i {
			t.Errorf("%+v is recorded: %+v", r, now)
		}
	}
	if now := report(agent.InstanceReport{Release: i.Digest, State: mirror.InstanceRefused,
		Message: "no \x1b[31mright"}); now.State != mirror.InstanceRefused ||
		now.Message != "no  [31mright" {
		t.Errorf("%+v", now)
	}
	if now := report(agent.InstanceReport{State: mirror.InstanceReleasing,
		Released: true}); now.Digest != "" {
		t.Errorf("it is not forgotten: %+v", now)
	}
}
