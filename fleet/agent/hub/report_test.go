package hub

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// An agent removes credentials from URLs, but a malicious one does not.
func TestAURLOfAnOwnApplicationKeepsNoCredential(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://git.example/r":                              "https://git.example/r",
		"https://user:canary@git.example/r":                  "https://git.example/r",
		"https://git.example/r?token=canary":                 "https://git.example/r",
		"https://git.example/r?#canary":                      "https://git.example/r",
		"https://user@git.example:8443/r?a=canary#canary":    "https://git.example:8443/r",
		"https://user:can/ary@git.example/r":                 "https://git.example/r",
		"https://user:canary@git.example":                    "https://git.example",
		"ssh://git:canary@git.example/r":                     "ssh://git.example/r",
		"git@git.example:acme/r?token=canary":                "git.example:acme/r",
		"oci://user:canary@registry.example/charts?t=canary": "oci://registry.example/charts",
		"https://user:%zzcanary@git.example/r?token=canary":  "git.example/r",
		"//user:canary@git.example/r":                        "//git.example/r",
		"git.example/acme/r#canary":                          "git.example/acme/r",
	} {
		if got := withoutCredential(raw); got != want && (strings.Contains(got, "can") ||
			!strings.HasSuffix(want, got)) {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
		o, ok := ownOf(mirror.OwnApplication{Namespace: "argocd", Name: "own", RepoURL: raw})
		if !ok || strings.Contains(o.RepoURL, "canary") || strings.Contains(o.RepoURL, "ary@") {
			t.Errorf("%s is kept as %q", raw, o.RepoURL)
		}
	}
}

func TestEachPartOfAReportIsStored(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	prod := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	report := agent.Report{Epoch: d.open(), Seq: 7,
		Acks: []agent.Ack{
			{Kind: fleet.ObjectApplication, Name: "a", Seq: 3, State: mirror.ApplyApplied},
			{Kind: fleet.ObjectProject, Name: "p", Seq: 4, Removed: true}},
		Observed: []agent.Observed{
			{Name: "a", Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
				Resources: 3, OperationPhase: "Succeeded"}},
		Syncs: []agent.SyncStatus{{ID: "s1", State: mirror.OperationSucceeded}},
		Status: &agent.AgentStatus{Reachable: true, ArgoCD: "v3.2.0", Version: "v1",
			PendingDeletions: 2, Orphans: 1, Own: 4, Environments: []fleet.EnvironmentID{prod},
			Work: &mirror.Work{State: mirror.QueueLong, Since: time.Now(), Message: "late"},
			Load: &mirror.Load{At: time.Now(), Controller: &mirror.ControllerLoad{Queue: 7}}},
		Own: []mirror.OwnApplication{
			{Namespace: "argocd", Name: "own", RepoURL: "https://user:secret@git.example/r"}},
		OwnWhole: true}
	if w := d.report(report); w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	s := o.store
	if len(s.acks) != 2 || !s.acks[1].Removed ||
		s.acks[0].Key != (fleet.ObjectKey{Engine: "acme.edge", Kind: fleet.ObjectApplication,
			Name: "a"}) {
		t.Errorf("acks %+v", s.acks)
	}
	if len(s.seen) != 1 || s.seen[0].Sync != mirror.SyncSynced || s.seen[0].Message != "" ||
		s.seen[0].OperationPhase != "Succeeded" {
		t.Errorf("observations %+v", s.seen)
	}
	if s.ends["s1"] != mirror.OperationSucceeded || len(s.statuses) != 1 ||
		s.statuses[0].ArgoCD != "v3.2.0" || s.statuses[0].Own != 4 ||
		s.statuses[0].Load == nil || s.statuses[0].Load.Controller.Queue != 7 ||
		s.statuses[0].Work.State != mirror.QueueLong || s.statuses[0].Work.Message != "late" ||
		!slices.Equal(s.statuses[0].Environments, []fleet.EnvironmentID{prod}) || !s.whole {
		t.Errorf("syncs %v, status %+v", s.ends, s.statuses)
	}
	if len(s.own) != 1 || s.own[0].RepoURL != "https://git.example/r" {
		t.Errorf("own %+v", s.own)
	}
	if s.reports["engine/acme.edge"] != 7 {
		t.Errorf("counted %v", s.reports)
	}
}

// An earlier agent omits the list of environments, which differs from an empty list.
func TestAMissingListOfOrphanEnvironmentsDiffersFromAnEmptyOne(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("far", "")
	epoch := d.open()
	many, _ := json.Marshal(slices.Repeat([]fleet.EnvironmentID{{Tenant: "acme", Name: "prod"}},
		mirror.MaxOrphanEnvironments+5))
	for i, c := range []struct {
		status string
		want   int // -1: omitted
	}{{`{}`, -1}, {`{"environments":null}`, -1}, {`{"environments":[]}`, 0},
		{
			`{"environments":[{"tenant":"acme","name":"prod"},{"tenant":"a/b","name":"x"},{"tenant":"","name":"x"},{"name":"\n"}]}`, 1},
		{`{"environments":` + string(many) + `}`, mirror.MaxOrphanEnvironments}} {
		if w := o.serve(d.post(agent.PathStatus,
			fmt.Appendf(nil, `{"epoch":%d,"seq":%d,"standing":%s}`, epoch, i+1,
				c.status))); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if got := o.store.statuses[i].Environments; (got == nil) != (c.want < 0) ||
			len(got) != max(c.want, 0) {
			t.Errorf("%.80s: %d of them", c.status, len(got))
		}
	}
}

func TestAMissingListOfUnreachableEnvironmentsDiffersFromAnEmptyOne(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("far", "")
	epoch := d.open()
	const one = `{"environment":{"tenant":"acme","name":"prod"},"reason":"Timeout","message":"i/o timeout","since":"2026-11-22T08:00:00Z","parked":-3}`
	for i, c := range []struct {
		status string
		want   int // -1: omitted
		reason mirror.UnreachableReason
	}{
		{`{}`, -1, ""}, {`{"unreachable":[]}`, 0, ""}, {`{"unreachable":[` + one + `]}`, 1,
			mirror.UnreachableTimeout},
		{`{"unreachable":[` + strings.Replace(one, "Timeout", "<b>", 1) + `]}`, 1,
			mirror.UnreachableError},
		{`{"unreachable":[` + strings.Replace(one, "acme", "a/b", 1) + `]}`, 0, ""},
		{`{"unreachable":[` + strings.Replace(one, "2026", "0001", 1) + `]}`, 0, ""},
	} {
		if w := o.serve(d.post(agent.PathStatus,
			fmt.Appendf(nil, `{"epoch":%d,"seq":%d,"standing":%s}`, epoch, i+1,
				c.status))); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		got := o.store.statuses[i].Reach
		if (got == nil) != (c.want < 0) || len(got) != max(c.want, 0) {
			t.Errorf("%.80s: %+v", c.status, got)
		} else if len(got) > 0 && (got[0].Unreachable.Reason != c.reason ||
			got[0].Unreachable.Parked != 0) {
			t.Errorf("%.80s: %+v", c.status, got[0].Unreachable)
		}
	}
}

// The lease was removed and it has no holder: the process must open a new session instead of
// exiting.
func TestAReportOfAnUnknownAgentWaits(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	o.store.failWith(func(call string) error {
		if call == "TakeReport" {
			return mirror.ErrNotFound
		}
		return nil
	})
	w := d.report(agent.Report{Epoch: d.open(), Seq: 1})
	wantRefusal(t, w, http.StatusServiceUnavailable, agent.CodeUndeclared)
	if w.Header().Get("Retry-After") == "" || o.store.reports["engine/acme.edge"] != 0 {
		t.Errorf("%v, counted %v", w.Header(), o.store.reports)
	}
}

// A rebuild of the mirror takes the lease away while a report is applied. No other process has
// taken over.
func TestAReportDuringARebuildEndsNoAgent(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	report := agent.Report{Epoch: d.open(), Seq: 1, Observed: []agent.Observed{{Name: "a"}}}
	rebuilt := false
	o.store.failWith(func(call string) error {
		switch {
		case call == "Observe":
			rebuilt = true
			return mirror.ErrFenced
		case call == "TakeReport" && rebuilt:
			return mirror.ErrNotFound
		}
		return nil
	})
	wantRefusal(t, d.report(report), http.StatusServiceUnavailable, agent.CodeUndeclared)

	o.store.failWith(func(call string) error {
		if call == "Observe" {
			return mirror.ErrFenced
		}
		return nil
	})
	wantRefusal(t, d.report(report), http.StatusConflict, agent.CodeSuperseded)
}

func TestAReportThatFailsInTheMiddleIsNotRecorded(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	report := agent.Report{Epoch: d.open(), Seq: 1, Acks: []agent.Ack{
		{Kind: fleet.ObjectApplication, Name: "a", State: mirror.ApplyApplied}},
		Observed: []agent.Observed{{Name: "a"}}}
	o.store.failWith(func(call string) error {
		if call == "Observe" {
			return errors.New("no connection")
		}
		return nil
	})
	w := d.report(report)
	wantRefusal(t, w, 503, agent.CodeBusy)
	o.store.failWith(nil)
	if w := d.report(report); w.Code != 204 || len(o.store.seen) != 1 {
		t.Errorf("sent again: %d %s", w.Code, w.Body)
	}
}

func TestAnUnknownStateIsNeitherARemovalNorASuccess(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	body := `{"epoch":1,"seq":1,"later":{"x":1},
		"acks":[{"kind":"Application","name":"a","seq":1,"state":"Vanished","removed":true,"message":"m","new":1},{"kind":"Gadget","name":"b","state":"Applied"},
			{"kind":"Application","name":"c","seq":1}],
		"observed":[{"name":"a","sync":"Drifting","health":"Purple","operationPhase":"Dreaming","message":"m"}],
		"syncs":[{"id":"s1","state":"Vanished"}]}`
	d.open()
	if w := o.serve(d.post(agent.PathStatus, []byte(body))); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	s := o.store
	if len(s.acks) != 1 || s.acks[0].Removed || s.acks[0].State != mirror.ApplyFailed ||
		!strings.Contains(s.acks[0].Message, "Vanished") {
		t.Errorf("acks %+v", s.acks)
	}
	got := s.seen[0]
	if got.Sync != mirror.SyncUnknown || got.Health != mirror.HealthUnknown ||
		got.OperationPhase != "" || got.Deleted ||
		!strings.Contains(got.Message, "Drifting") || !strings.Contains(got.Message, "Purple") ||
		!strings.Contains(got.Message, "Dreaming") {
		t.Errorf("observed %+v", got)
	}
	if s.ends["s1"] != mirror.OperationRunning {
		t.Errorf("a sync ended: %v", s.ends)
	}
}

func TestAMaliciousReportIsBoundedSanitizedOrRejected(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := newTestHub(t, func(c *Config) { c.Metrics = NewMetrics(reg) })
	d := o.newAgent("acme.edge", "acme")
	d.open()

	huge := bytes.Repeat([]byte(" "), 50<<20)
	r := d.post(agent.PathStatus, huge)
	wantRefusal(t, o.serve(r), 413, agent.CodeInvalid)
	r = d.post(agent.PathStatus, huge)
	r.ContentLength = -1 // the length is unknown in advance
	wantRefusal(t, o.serve(r), 413, agent.CodeInvalid)

	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(huge)
	z.Close()
	for _, encoding := range []string{"gzip", "br", "identity"} {
		r = d.post(agent.PathStatus, bomb.Bytes())
		r.Header.Set("Content-Encoding", encoding)
		wantRefusal(t, o.serve(r), 415, agent.CodeInvalid)
	}
	wantRefusal(t, o.serve(d.post(agent.PathStatus, bomb.Bytes())), 400, agent.CodeInvalid)
	wantRefusal(t, o.serve(d.post(agent.PathStatus, []byte(strings.Repeat("[", 100000)))), 400,
		agent.CodeInvalid)
	wantRefusal(t,
		o.serve(d.post(agent.PathStatus, []byte(`{"epoch":1,"seq":9223372036854775807}`))), 400,
		agent.CodeInvalid)
	many, _ := json.Marshal(agent.Report{
		Epoch: 1, Seq: 1, Acks: make([]agent.Ack, agent.MaxItems+1)})
	wantRefusal(t, o.serve(d.post(agent.PathStatus, many)), 413, agent.CodeInvalid)

	evil := "line one\nlevel=ERROR msg=\"forged\"\r\x1b[31m\u202e<script>alert(1)</script>" +
		strings.Repeat("x", 5000)
	report := agent.Report{Epoch: 1, Seq: 1,
		Acks: []agent.Ack{{Kind: fleet.ObjectApplication, Name: "a", State: mirror.ApplyFailed,
			Message: evil}, {Kind: fleet.ObjectApplication, Name: evil, State: mirror.ApplyApplied},
			{Kind: fleet.ObjectApplication, Name: "../b", State: mirror.ApplyApplied}},
		Observed: []agent.Observed{{Name: "a", UID: evil, Message: evil, OperationError: evil,
			SyncedRevision: evil, OperationID: evil, ResourceVersion: evil, Resources: -5,
			Sync: mirror.SyncState(evil), Health: mirror.HealthState(evil),
			ReconciledAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}},
		Status: &agent.AgentStatus{Message: evil, ArgoCD: evil, Version: evil, PendingDeletions: -1,
			Orphans: 1 << 40, Work: &mirror.Work{State: mirror.WorkState(evil), Since: time.Now()},
			Load: &mirror.Load{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Message: evil,
				Controller: &mirror.ControllerLoad{Queue: -1, Wait: 1e308}}},
		Own: []mirror.OwnApplication{{Namespace: "n", Name: "own", Project: evil, RepoURL: evil,
			Path: evil, Message: evil}, {Namespace: evil, Name: "x"}}}
	if w := d.report(report); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	s := o.store
	if len(s.acks) != 1 || len(s.own) != 1 {
		t.Errorf("%d acks, %d own", len(s.acks), len(s.own))
	}
	if s.seen[0].Resources != 0 || !s.seen[0].ReconciledAt.IsZero() ||
		!s.statuses[0].Load.At.IsZero() ||
		*s.statuses[0].Load.Controller != (mirror.ControllerLoad{Wait: 1e6}) ||
		s.statuses[0].Work != (mirror.Work{}) || s.statuses[0].PendingDeletions != 0 ||
		s.statuses[0].Orphans != maxObjects {
		t.Errorf("numbers %+v %+v", s.seen[0], s.statuses[0])
	}
	kept, _ := json.Marshal([]any{s.acks, s.seen, s.statuses, s.own})
	for _, bad := range []string{`\n`, `\r`, `\u001b`, "\u202e", "\x1b"} {
		if bytes.Contains(kept, []byte(bad)) {
			t.Errorf("%q was kept in %s", bad, kept)
		}
	}
	if len(s.acks[0].Message) > agent.MaxMessage || len(kept) > 20<<10 {
		t.Errorf("a message of %d bytes, %d in all", len(s.acks[0].Message), len(kept))
	}
	if strings.Contains(o.log.String(), "forged") {
		t.Errorf("the log was forged: %s", o.log)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if len(f.GetMetric()) > 12 {
			t.Errorf("%s has %d series", f.GetName(), len(f.GetMetric()))
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if len(l.GetValue()) > 20 || strings.Contains(l.GetValue(), "acme") {
					t.Errorf("%s has label %q", f.GetName(), l.GetValue())
				}
			}
		}
	}
}

func TestReportsOfAnAgentAreProcessedOneAtATime(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	d.open()
	inside, leave := make(chan struct{}), make(chan struct{})
	o.store.failWith(func(call string) error {
		if call == "ReportTaken" {
			close(inside)
			<-leave
		}
		return nil
	})
	ended := make(chan int)
	go func() { ended <- d.report(agent.Report{Epoch: 1, Seq: 1}).Code }()
	<-inside
	wantRefusal(t, d.report(agent.Report{Epoch: 1, Seq: 2}), 429, agent.CodeBusy)
	close(leave)
	if code := <-ended; code != 204 {
		t.Errorf("the first: %d", code)
	}
}

func TestTheReadOfABodyHasADeadlineAndTheResponseHasNot(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	d.open()
	var during time.Time
	body, _ := json.Marshal(agent.Report{Epoch: 1, Seq: 1})
	r := d.post(agent.PathStatus, body)
	w := &testStream{head: http.Header{}, moved: make(chan struct{})}
	r.Body = reading{bytes.NewReader(body), func() { during = w.reading }}
	o.mux.ServeHTTP(w, r)
	if left := time.Until(during); left <= 0 || left > bodyTimeout || !w.reading.IsZero() ||
		w.status != 204 {
		t.Errorf("answered %d; read within %v, then within %v", w.status, left, w.reading)
	}
}

type reading struct {
	*bytes.Reader
	onRead func()
}

func (r reading) Read(p []byte) (int, error) { r.onRead(); return r.Reader.Read(p) }
func (reading) Close() error                 { return nil }

func FuzzReport(f *testing.F) {
	whole, _ := json.Marshal(agent.Report{Epoch: 1, Seq: 1, Acks: []agent.Ack{
		{Kind: fleet.ObjectApplication, Name: "a", State: "x", Removed: true}},
		Observed: []agent.Observed{{Name: "a", Message: "m\x00\xff"}}, Own: []mirror.OwnApplication{
			{Namespace: "n", Name: "o", RepoURL: "https://a@b/c"}}})
	f.Add(whole)
	f.Add(
		[]byte(
			`{"seq":1,"epoch":1,"observed":[{"name":"a","reconciledAt":"0001-01-01T00:00:00Z"}]}`))
	for _, c := range hostileComparisons() {
		hostile, _ := json.Marshal(agent.Report{Epoch: 1, Seq: 1, Comparisons: []agent.Comparison{
			differs(), c}, Shadows: []agent.ShadowReport{{Digest: c.Digest, State: "Compared"}}})
		f.Add(hostile)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		report, err := readReport(body)
		if err != nil {
			return
		}
		for _, a := range validItems(report.Acks, func(a agent.Ack) (mirror.Ack, bool) {
			return ackOf("e", a)
		}) {
			if !validName(a.Key.Name) || !isPlain(a.Message, agent.MaxMessage) ||
				a.Key.Engine != "e" || (a.Removed && a.State == mirror.ApplyFailed &&
				strings.Contains(a.Message, "does not know")) {
				t.Errorf("ack %+v", a)
			}
		}
		for _, o := range validItems(
			report.Observed, func(o agent.Observed) (mirror.Observation, bool) {
				return observationOf("e", o)
			}) {
			if !isPlain(o.Message, agent.MaxMessage) || !isPlain(o.UID, maxText) ||
				o.Resources < 0 || syncState(o.Sync) != o.Sync ||
				healthState(o.Health) != o.Health {
				t.Errorf("observation %+v", o)
			}
		}
		for _, o := range validItems(report.Own, ownOf) {
			if !isPlain(o.RepoURL, maxURL) || !isPlain(o.Message, agent.MaxMessage) {
				t.Errorf("own %+v", o)
			}
		}
		for _, r := range validItems(report.Comparisons, resultOfComparison) {
			checkResult(t, r)
		}
		for _, r := range validItems(report.Shadows, shadowReportOf) {
			if !isPlain(r.Message, agent.MaxMessage) || r.State == mirror.ShadowEnding ||
				!digestPattern.MatchString(r.Digest) {
				t.Errorf("shadow %+v", r)
			}
		}
	})
}

func isPlain(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && !strings.ContainsAny(text,
		"\n\r\t\x00\x1b\u202e\u2028")
}

func FuzzPlain(f *testing.F) {
	f.Add("ä€𝄞\xff\u202e\n", 5)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 0 || most > 1000 {
			return
		}
		if got := plain(text, most); !isPlain(got, most) {
			t.Errorf("%q", got)
		}
	})
}

func TestAnAgentsOrphansBelongToItsOwnEngineAndTenant(t *testing.T) {
	o := newTestHub(t)
	d := o.newAgent("acme.edge", "acme")
	epoch := d.open()
	send := func(seq int64, listed ...agent.Orphan) {
		t.Helper()
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq, Status: &agent.AgentStatus{
			Listed: append([]agent.Orphan{}, listed...)}}); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	app := func(name, uid string) agent.Orphan {
		return agent.Orphan{Kind: fleet.ObjectApplication, Name: name, Tenant: "globex", UID: uid}
	}
	send(1, app("one", "u1"), app("no-uid", ""), app("a/path", "u2"), agent.Orphan{
		Kind: "Secret", Name: "other", UID: "u3"})
	key := fleet.ObjectKey{Engine: "acme.edge", Kind: fleet.ObjectApplication, Name: "one"}
	if got := o.store.orphans; len(got) != 1 || got[key].Tenant != "acme" || got[key].UID != "u1" {
		t.Errorf("listed: %+v", got)
	}
	send(2, app("two", "u4"))
	if _, there := o.store.orphans[key]; there || len(o.store.orphans) != 1 {
		t.Errorf("a deleted orphan is listed: %+v", o.store.orphans)
	}
	if w := d.report(agent.Report{Epoch: epoch, Seq: 3,
		Status: &agent.AgentStatus{}}); w.Code != 204 || len(o.store.orphans) != 1 {
		t.Errorf("an agent without a list removes orphans: %+v", o.store.orphans)
	}
}

// An earlier agent would remove any object of that name. It does not know this operation and leaves
// the object alone.
func TestTheRemovalOfOneUIDIsAnOperationOfItsOwn(t *testing.T) {
	row := mirror.Row{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}, Unwanted: true,
		UID: "u1"}
	if got := wireRow(row); got.Operation == agent.OperationRemove || got.UID != "u1" {
		t.Errorf("%+v", got)
	}
}
