package edge

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func (s *site) instance(i *agent.Instance) {
	s.hub.send(message(agent.EventInstance, i))
	wait(0)
}

func (s *site) wantedInstance() (mirror.Instance, bool) {
	s.Helper()
	i, managed, err := s.f.WantedInstance(s.Context(), s.lease)
	if err != nil {
		s.Fatal(err)
	}
	return i, managed
}

// reported returns the reports of instances after a while.
func (s *site) reportedInstances() (all []agent.InstanceReport) {
	wait(time.Second)
	for _, r := range s.hub.taken() {
		all = append(all, r.Instances...)
	}
	return all
}

func TestAnInstanceIsFollowedAndReported(t *testing.T) {
	bubble(t, func(t *testing.T, _ *hubDouble, s *site) {
		s.follow()
		if _, managed := s.wantedInstance(); managed {
			t.Error("an engine is managed before the hub has sent an instance")
		}
		digest := "sha256:" + strings.Repeat("a", 64)
		sent := &agent.Instance{Version: "3.5.7", Digest: digest, State: mirror.InstanceInstalling}
		s.instance(sent)
		if i, managed := s.wantedInstance(); !managed || i.Engine != testEngine ||
			i.Digest != digest || i.State != mirror.InstanceInstalling {
			t.Fatalf("%+v", i)
		}
		report := func(digest string, state mirror.InstanceState, why string) {
			t.Helper()
			if err := s.f.ReportInstance(t.Context(), s.lease, digest, state, why); err != nil {
				t.Fatal(err)
			}
		}
		report("sha256:other", mirror.InstanceRunning, "")
		if all := s.reportedInstances(); len(all) != 0 {
			t.Errorf("another version is reported: %+v", all)
		}
		report(digest, mirror.InstanceRefused, "no right")
		if all := s.reportedInstances(); len(all) != 1 || all[0].Release != digest ||
			all[0].State != mirror.InstanceRefused {
			t.Fatalf("%+v", all)
		}
		if i, _ := s.wantedInstance(); i.State != mirror.InstanceRefused ||
			i.Message != "no right" {
			t.Errorf("the worker goes on with %+v", i)
		}
		// a person has resumed the ring, and the right is still missing
		s.instance(sent)
		report(digest, mirror.InstanceRefused, "no right")
		if all := s.reportedInstances(); len(all) != 2 {
			t.Errorf("the second refusal is not reported: %+v", all)
		}
		s.f.Local = func() Local { return Local{Hold: "held until 8"} }
		s.instance(sent)
		report(digest, mirror.InstanceInstalling, "an emergency stop is in force")
		if all := s.reportedInstances(); len(all) != 3 || all[2].Message != "held until 8" {
			t.Errorf("%+v", all)
		}
		former := s.lease
		former.Epoch--
		if _, _, err := s.f.WantedInstance(t.Context(), former); !errors.Is(err,
			mirror.ErrFenced) {
			t.Errorf("under a former lease: %v", err)
		}
		sent = &agent.Instance{Digest: digest, State: mirror.InstanceReleasing}
		s.instance(sent)
		report(digest, mirror.InstanceRunning, "")
		if err := s.f.ForgetInstance(t.Context(), s.lease); err != nil {
			t.Fatal(err)
		}
		if all := s.reportedInstances(); len(all) != 4 || !all[3].Released {
			t.Errorf("%+v", all)
		}
		if _, managed := s.wantedInstance(); managed {
			t.Error("it is managed after it was given back")
		}
	})
}

func TestOnlyManifestsOfTheDigestAreUsed(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		m := mirror.RingManifests{Version: "3.5.7", Files: map[string][]byte{
			"a.yaml": []byte(strings.Repeat("x", 2<<20))}}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		cut := false
		h.order(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != agent.PathManifests {
				return false
			}
			if cut {
				packed = packed[:len(packed)/2]
			}
			answerWith(w, agent.Manifests{Version: m.Version, Packed: packed})
			return true
		})
		digest := fleet.ManifestsDigest(m.Files)
		got, err := s.f.Manifests(t.Context(), digest)
		if err != nil || got.Version != "3.5.7" || len(got.Files["a.yaml"]) != 2<<20 {
			t.Errorf("%d files, %v", len(got.Files), err)
		}
		if _, err := s.f.Manifests(t.Context(), "sha256:other"); err == nil ||
			!strings.Contains(err.Error(), "they have the digest "+digest) {
			t.Errorf("other files: %v", err)
		}
		cut = true
		if _, err := s.f.Manifests(t.Context(), digest); err == nil {
			t.Error("files that were cut off are used")
		}
	})
}
