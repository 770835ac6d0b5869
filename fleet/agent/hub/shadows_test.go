package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

var (
	shadowDigest = "sha256:" + strings.Repeat("d", 64)
	inputs       = strings.Repeat("1", 32)
	difference   = strings.Repeat("a", 64)
)

// shadowed makes a hub's engine one whose Applications are compared.
func (o *testHub) shadowed(engine fleet.EngineName) {
	o.store.do(func() {
		o.store.shadows[engine] = &mirror.Shadow{Engine: engine, Version: "3.5.7",
			Digest: shadowDigest, State: mirror.ShadowRendering}
	})
}

func (o *testHub) shadow(engine fleet.EngineName) (w mirror.Shadow) {
	o.store.do(func() {
		if o.store.shadows[engine] != nil {
			w = *o.store.shadows[engine]
		}
	})
	return w
}

func TestAStreamSendsTheComparisonThatTheAgentHasToMake(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		w := d.stream(0)
		advance(time.Second)
		sent := &agent.Shadow{}
		if !w.last(agent.EventShadow, &sent) || sent != nil {
			t.Errorf("an engine without a shadow gets %+v", sent)
		}
		o.wanted(t, "plant")
		o.shadowed("plant")
		o.hub.Wake()
		advance(time.Second)
		if !w.last(agent.EventShadow, &sent) || sent == nil || sent.Digest != shadowDigest ||
			sent.Version != "3.5.7" || sent.State != mirror.ShadowRendering {
			t.Errorf("sent %+v", sent)
		}
		n := len(w.events())
		advance(3 * pollInterval)
		if more := w.events()[n:]; len(more) > 0 {
			t.Errorf("a shadow that did not change is sent again: %v", more)
		}
		w.cancel()
		<-w.ended
	})
}

// The ring waits for a person: the engine does not change without a comparison.
func TestAnAgentThatCannotCompareLeavesTheShadowFailedWithAReason(t *testing.T) {
	bubbled(t, func(t *testing.T, o *testHub, d *testAgent) {
		o.wanted(t, "plant")
		o.shadowed("plant")
		s := d.session(0)
		s.Protocol, s.Version = agent.ProtocolShadow-1, "v0.4.0"
		r := d.get(agent.PathStream, 0)
		s.Set(r.Header)
		w := o.stream(d.proven(r, agent.PathStream, s.Bytes()))
		advance(3 * pollInterval)
		if now := o.shadow("plant"); now.State != mirror.ShadowFailed || !strings.Contains(
			now.Message, "has version v0.4.0, which compares nothing; upgrade the agent first") {
			t.Errorf("%+v", now)
		}
		var sent *agent.Shadow
		if w.last(agent.EventShadow, &sent) {
			t.Errorf("it is sent %+v", sent)
		}
		var instance *agent.Instance
		if !w.last(agent.EventInstance, &instance) || instance == nil {
			t.Error("an agent that installs is sent no instance")
		}
		if n := o.store.count()["ReportShadow"]; n != 1 {
			t.Errorf("the reason is recorded %d times", n)
		}
		w.cancel()
		<-w.ended
	})
}

func TestAnAgentGetsTheApplicationsOfItsEngineToCompare(t *testing.T) {
	o := newTestHub(t)
	d, other := o.newAgent("plant", ""), o.newAgent("mill", "")
	o.shadowed("plant")
	for i := range agent.MaxTasks + 10 {
		o.store.put(application("plant", "acme", fmt.Sprintf("app-%02d", i)))
	}
	ask := func(d *testAgent, body string) (int, agent.ComparisonTasks) {
		t.Helper()
		w := o.serve(d.proven(d.post(agent.PathComparisons, []byte(body)), agent.PathComparisons,
			[]byte(body)))
		var got agent.ComparisonTasks
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, got
	}
	asked := func(digest, after string) string {
		body, _ := json.Marshal(agent.ComparisonsRequest{Digest: digest, Basis: "b", After: after})
		return string(body)
	}
	code, got := ask(d, asked(shadowDigest, ""))
	if code != http.StatusOK || len(got.Tasks) != agent.MaxTasks || got.Tasks[0].Inputs != inputs {
		t.Errorf("%d, %d tasks", code, len(got.Tasks))
	}
	last := got.Tasks[len(got.Tasks)-1].Name
	if code, got = ask(d, asked(shadowDigest, last)); code != http.StatusOK ||
		len(got.Tasks) != 10 {
		t.Errorf("the rest: %d, %d tasks", code, len(got.Tasks))
	}
	for name, of := range map[string]struct {
		agent *testAgent
		body  string
		code  int
	}{
		"another digest": {d, asked("sha256:other", ""), http.StatusNotFound},
		"another engine": {other, asked(shadowDigest, ""), http.StatusNotFound},
		"no JSON":        {d, "{", http.StatusBadRequest},
		"a large request": {d, asked(strings.Repeat("x", 4<<10), ""),
			http.StatusRequestEntityTooLarge},
	} {
		if code, _ := ask(of.agent, of.body); code != of.code {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// differs is a valid comparison of an Application that differs.
func differs() agent.Comparison {
	return agent.Comparison{Digest: shadowDigest, Name: "app", Inputs: inputs, Revision: "4f1c",
		Hash: difference, Resources: []mirror.ResourceDifference{{Kind: "ConfigMap", Name: "c",
			Change: mirror.ResourceChanged, Fields: []mirror.FieldDifference{{Path: "data.a",
				Before: "1", After: "2"}}}}}
}

// hostileComparisons contradict themselves, or name what cannot be.
func hostileComparisons() map[string]agent.Comparison {
	all := map[string]agent.Comparison{}
	for name, change := range map[string]func(*agent.Comparison){
		"a name with a path": func(c *agent.Comparison) { c.Name = "../argocd-secret" },
		"no name":            func(c *agent.Comparison) { c.Name = "" },
		"inputs of its own":  func(c *agent.Comparison) { c.Inputs = "mine" },
		"a short hash":       func(c *agent.Comparison) { c.Hash = "aa" },
		"no digest":          func(c *agent.Comparison) { c.Digest = "" },
		"a hash of nothing":  func(c *agent.Comparison) { c.Resources = nil },
		"a difference without a hash": func(c *agent.Comparison) {
			c.Hash = ""
		},
		"more resources without a hash": func(c *agent.Comparison) {
			c.Hash, c.Resources, c.MoreResources = "", nil, 7
		},
		"an error without a hash": func(c *agent.Comparison) {
			c.Hash, c.Resources, c.Error = "", nil, "no chart"
		},
		"an error and a difference": func(c *agent.Comparison) { c.Error = "no chart" },
		"unrendered, and a difference": func(c *agent.Comparison) {
			c.Unrendered = "no chart"
		},
		"an unknown change": func(c *agent.Comparison) { c.Resources[0].Change = "Improved" },
	} {
		c := differs()
		change(&c)
		all[name] = c
	}
	return all
}

func TestComparisonsOfAnAgentAreChecked(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("plant", "")
	o.shadowed("plant")
	epoch, seq := d.open(), int64(0)
	send := func(all ...agent.Comparison) []mirror.ShadowResult {
		t.Helper()
		seq++
		o.store.do(func() { o.store.compared = nil })
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq,
			Comparisons: all}); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var got []mirror.ShadowResult
		o.store.do(func() { got = o.store.compared })
		return got
	}
	for name, c := range hostileComparisons() {
		if got := send(c); len(got) > 0 {
			t.Errorf("%s is recorded: %+v", name, got)
		}
		if name != "no digest" {
			if got := send(c, differs()); len(got) != 1 || got[0].Name != "app" {
				t.Errorf("%s keeps a valid one away: %+v", name, got)
			}
		}
	}
	former := differs()
	former.Digest = "sha256:" + strings.Repeat("e", 64)
	if got := send(former, differs()); len(got) != 1 {
		t.Errorf("one of a former shadow: %+v", got)
	}
	if got := send(differs(), former); len(got) > 0 {
		t.Errorf("of another shadow: %+v", got)
	}
	for name, c := range map[string]agent.Comparison{
		"the same":     {Digest: shadowDigest, Name: "a", Inputs: inputs},
		"not rendered": {Digest: shadowDigest, Name: "a", Inputs: inputs, Unrendered: "no chart"},
		"an error": {Digest: shadowDigest, Name: "a", Inputs: inputs, Error: "no\x1b[31m\nchart",
			Hash: difference},
	} {
		got := send(c)
		if len(got) != 1 || strings.ContainsAny(got[0].Error, "\x1b\n") ||
			got[0].Tenant != "" {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		checkResult(t, got[0])
	}
}

// A report of the greatest size becomes a difference within the bounds, without control characters.
func TestADifferenceOfAnAgentIsBounded(t *testing.T) {
	long := strings.Repeat("x\u202e\x00ä", 1000)
	c := differs()
	c.Revision, c.MoreResources = long, -5
	r := mirror.ResourceDifference{Group: long, Kind: long, Namespace: long, Name: long,
		Change: mirror.ResourceChanged, MoreFields: 1 << 30}
	for range 100 {
		r.Fields = append(r.Fields, mirror.FieldDifference{Path: long, Before: long, After: long})
	}
	c.Resources = nil
	for range 100 {
		c.Resources = append(c.Resources, r)
	}
	got, ok := resultOfComparison(c)
	if !ok || len(got.Resources) != mirror.MaxDifferentResources || got.MoreResources != 80 {
		t.Fatalf("%v, %d resources and %d more", ok, len(got.Resources), got.MoreResources)
	}
	checkResult(t, got)
}

// checkResult fails unless a comparison is within the bounds, and its text is plain.
func checkResult(t *testing.T, r mirror.ShadowResult) {
	t.Helper()
	if !validName(r.Name) || !isPlain(r.Error, agent.MaxMessage) || r.Tenant != "" ||
		!isPlain(r.Unrendered, agent.MaxMessage) || !isPlain(r.Revision, maxText) ||
		len(r.Resources) > mirror.MaxDifferentResources || r.MoreResources < 0 ||
		(r.Hash != "") != (r.Error != "" || len(r.Resources)+r.MoreResources > 0) {
		t.Errorf("comparison %+v", r)
	}
	for _, o := range r.Resources {
		if !isPlain(o.Kind, maxName) || !isPlain(o.Group, maxName) || !isPlain(o.Name, maxName) ||
			!isPlain(o.Namespace, maxName) || len(o.Fields) > mirror.MaxDifferentFields ||
			o.MoreFields < 0 || o.MoreFields > maxObjects {
			t.Errorf("resource %+v", o)
		}
		for _, f := range o.Fields {
			if !isPlain(f.Path, maxValue) || !isPlain(f.Before, maxValue) ||
				!isPlain(f.After, maxValue) {
				t.Fatalf("field %+v", f)
			}
		}
	}
}

func TestReportsOfAShadowAreChecked(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("plant", "")
	o.shadowed("plant")
	epoch, seq := d.open(), int64(0)
	report := func(r agent.ShadowReport) mirror.Shadow {
		t.Helper()
		seq++
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq,
			Shadows: []agent.ShadowReport{r}}); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return o.shadow("plant")
	}
	for _, r := range []agent.ShadowReport{{Digest: shadowDigest, State: "Splendid"},
		{Digest: shadowDigest, State: mirror.ShadowEnding},
		{Digest: "sha256:1", State: mirror.ShadowCompared}, {State: mirror.ShadowCompared}} {
		if now := report(r); now.State != mirror.ShadowRendering {
			t.Errorf("%+v is recorded: %+v", r, now)
		}
	}
	if now := report(agent.ShadowReport{Digest: shadowDigest, State: mirror.ShadowFailed,
		Message: "no \x1b[31mright"}); now.State != mirror.ShadowFailed ||
		now.Message != "no  [31mright" {
		t.Errorf("%+v", now)
	}
	for name, r := range map[string]agent.Report{
		"comparisons": {Comparisons: make([]agent.Comparison, agent.MaxItems+1)},
		"shadows":     {Shadows: make([]agent.ShadowReport, agent.MaxItems+1)},
	} {
		r.Epoch, r.Seq = epoch, seq+1
		wantRefusal(t, d.report(r), http.StatusRequestEntityTooLarge, agent.CodeInvalid)
		if t.Failed() {
			t.Error(name)
		}
	}
}
