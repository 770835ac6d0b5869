package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

var shadowDigest = "sha256:" + strings.Repeat("d", 64)

func (s *site) shadow(sent *agent.Shadow) {
	s.hub.send(message(agent.EventShadow, sent))
	wait(0)
}

func (s *site) wantedShadow() (mirror.Shadow, bool) {
	s.Helper()
	w, ok, err := s.f.WantedShadow(s.Context(), s.lease)
	if err != nil {
		s.Fatal(err)
	}
	return w, ok
}

func (s *site) reportShadow(digest string, state mirror.ShadowState, why string) {
	s.Helper()
	if err := s.f.ReportShadow(s.Context(), s.lease, digest, state, why); err != nil {
		s.Fatal(err)
	}
}

// reportedShadows returns the reports of shadows after a while.
func (s *site) reportedShadows() (all []agent.ShadowReport) {
	wait(time.Second)
	for _, r := range s.hub.taken() {
		all = append(all, r.Shadows...)
	}
	return all
}

func rendering() *agent.Shadow {
	return &agent.Shadow{Version: "3.5.7", Digest: shadowDigest, State: mirror.ShadowRendering}
}

func TestAShadowIsFollowedAndReported(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		if _, ok := s.wantedShadow(); ok {
			t.Error("there is a shadow before the hub has sent one")
		}
		s.shadow(rendering())
		if w, ok := s.wantedShadow(); !ok || w.Engine != testEngine || w.Digest != shadowDigest ||
			w.Version != "3.5.7" || w.State != mirror.ShadowRendering {
			t.Fatalf("%+v, %v", w, ok)
		}
		s.reportShadow("sha256:other", mirror.ShadowCompared, "")
		s.reportShadow(shadowDigest, mirror.ShadowEnded, "")
		if all := s.reportedShadows(); len(all) != 0 {
			t.Errorf("another shadow, or an end that the hub does not want, is reported: %+v", all)
		}
		// each complete comparison counts for some minutes
		for n := 1; n <= 2; n++ {
			s.reportShadow(shadowDigest, mirror.ShadowCompared, "")
			if all := s.reportedShadows(); len(all) != n ||
				all[n-1].State != mirror.ShadowCompared {
				t.Fatalf("comparison %d: %+v", n, all)
			}
		}
		if w, _ := s.wantedShadow(); w.State != mirror.ShadowCompared {
			t.Errorf("the worker goes on with %+v", w)
		}
		// an Application is not compared yet
		s.shadow(rendering())
		if w, _ := s.wantedShadow(); w.State != mirror.ShadowRendering {
			t.Errorf("the worker goes on with %+v", w)
		}
		s.f.Local = func() Local { return Local{Hold: "held until 8"} }
		s.reportShadow(shadowDigest, mirror.ShadowFailed, "an emergency stop is in force")
		if all := s.reportedShadows(); len(all) != 3 || all[2].Message != "held until 8" ||
			all[2].State != mirror.ShadowRendering {
			t.Errorf("%+v", all)
		}
		former := s.lease
		former.Epoch--
		if _, _, err := s.f.WantedShadow(t.Context(), former); !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("under a former lease: %v", err)
		}
		ending := rendering()
		ending.State = mirror.ShadowEnding
		s.shadow(ending)
		s.reportShadow(shadowDigest, mirror.ShadowCompared, "late")
		s.reportShadow(shadowDigest, mirror.ShadowEnded, "")
		if all := s.reportedShadows(); len(all) != 4 || all[3].State != mirror.ShadowEnded {
			t.Errorf("%+v", all)
		}
		if _, ok := s.wantedShadow(); ok {
			t.Error("it is wanted after its end")
		}
		s.shadow(rendering())
		h.listener.cut(true)
		wait(time.Minute)
		if _, ok := s.wantedShadow(); ok {
			t.Error("it is compared without a connection")
		}
	})
}

func TestTheHubNamesTheApplicationsToCompare(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		var asked agent.ComparisonsRequest
		h.order(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != agent.PathComparisons {
				return false
			}
			if err := json.Unmarshal([]byte(readAll(r)), &asked); err != nil {
				t.Error(err)
			}
			var out agent.ComparisonTasks
			for i := range 60 {
				out.Tasks = append(out.Tasks, agent.ComparisonTask{Name: fmt.Sprintf("app-%d", i),
					Inputs: "1"})
			}
			answerWith(w, out)
			return true
		})
		tasks, err := s.f.ShadowTasks(t.Context(), s.lease, shadowDigest, "basis", "app", 50)
		if err != nil || len(tasks) != 50 || tasks[1].Name != "app-1" || tasks[1].Inputs != "1" ||
			asked.Digest != shadowDigest || asked.Basis != "basis" || asked.After != "app" {
			t.Errorf("%d tasks, %+v, %v", len(tasks), asked, err)
		}
		former := s.lease
		former.Epoch--
		if _, err := s.f.ShadowTasks(t.Context(), former, shadowDigest, "", "", 50); !errors.Is(
			err, mirror.ErrFenced) {
			t.Errorf("under a former lease: %v", err)
		}
	})
}

// The worker goes on once the hub has accepted a batch: no report of a complete comparison precedes
// it, and an outage fills no memory.
func TestComparisonsAreAcceptedBeforeTheWorkerGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		s.shadow(rendering())
		batch := make([]mirror.ShadowResult, 50)
		for i := range batch {
			batch[i] = mirror.ShadowResult{ShadowTask: mirror.ShadowTask{
				Name: fmt.Sprintf("app-%02d", i)}, Hash: strings.Repeat("a", 64),
				Resources: large()}
		}
		record := func() error {
			return s.f.RecordShadow(t.Context(), s.lease, shadowDigest, batch)
		}
		reported := func() (names map[string]int) {
			names = map[string]int{}
			for _, r := range h.taken() {
				for _, c := range r.Comparisons {
					names[c.Name]++
				}
			}
			return names
		}
		for n := 1; n <= 2; n++ { // the hub may have forgotten the first ones
			if err := record(); err != nil {
				t.Fatal(err)
			}
			if all := reported(); len(all) != 50 || all["app-49"] != n {
				t.Fatalf("after the batch the hub has %v", all)
			}
		}
		h.order(unavailable(agent.PathStatus))
		began := time.Now()
		if err := record(); !errors.Is(err, errNotAccepted) || time.Since(began) != acceptWithin {
			t.Errorf("without an answer: %v after %s", err, time.Since(began))
		}
		h.order(nil)
		done := make(chan error, 1)
		go func() { done <- record() }()
		synctest.Wait()
		wait(2 * time.Minute)
		if err := <-done; err != nil {
			t.Errorf("after the outage: %v", err)
		}
		if all := reported(); all["app-00"] < 3 {
			t.Errorf("after the outage the hub has %v", all)
		}
	})
}

// large is a difference of the greatest number of resources, fields and bytes.
func large() []mirror.ResourceDifference {
	value := strings.Repeat("<", mirror.MaxDifferentValue) // six bytes each in JSON
	r := mirror.ResourceDifference{Kind: "ConfigMap", Name: "c", Change: mirror.ResourceChanged}
	for range mirror.MaxDifferentFields {
		r.Fields = append(r.Fields, mirror.FieldDifference{Path: "data.a", Before: value,
			After: value})
	}
	all := make([]mirror.ResourceDifference, mirror.MaxDifferentResources)
	for i := range all {
		all[i] = r
	}
	return all
}

func TestALargeComparisonIsShortened(t *testing.T) {
	for name, c := range map[string]agent.Comparison{
		"many fields": {Resources: large(), Hash: "h"},
		"long names": {Hash: "h", MoreResources: 3, Resources: []mirror.ResourceDifference{
			{Name: "first"}, {Name: strings.Repeat("x", agent.MaxComparison)}}},
	} {
		before := encode(t, c)
		got := bounded(c)
		if n := len(encode(t, got)); n > agent.MaxComparison {
			t.Errorf("%s: %d bytes", name, n)
		}
		fields, more := 0, got.MoreResources
		for _, r := range got.Resources {
			fields += len(r.Fields) + r.MoreFields
		}
		if got.Hash != "h" || len(got.Resources)+more != len(c.Resources)+c.MoreResources ||
			name == "many fields" && fields != 20*20 || len(got.Resources) == 0 {
			t.Errorf("%s: %d resources, %d fields, %d more", name, len(got.Resources), fields, more)
		}
		if encode(t, c) != before {
			t.Errorf("%s: the comparison itself was changed", name)
		}
	}
	small := agent.Comparison{Name: "a", Resources: large()[:1]}
	if got := bounded(small); encode(t, got) != encode(t, small) {
		t.Errorf("a small one is shortened: %+v", got)
	}
}
