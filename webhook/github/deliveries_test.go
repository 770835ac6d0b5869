package github

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/webhook/github/githubtest"
)

func (s *stage) hook() *githubtest.Hook {
	if s.app != nil {
		return s.app.Hook()
	}
	return s.repo.Hook("https://argosy.example/second")
}

func TestMissedDeliveries(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		hook := s.hook()
		c := s.config()
		c.HookURL = "https://argosy.example/second"
		f := s.with(c)
		hook.Try("before", http.StatusBadGateway, s.repo.ID)
		since := s.server.Clock().Add(1)
		var want []string
		for i := range 250 {
			guid := fmt.Sprintf("guid-%03d", i)
			status := http.StatusAccepted
			switch i % 50 {
			case 7:
				status = http.StatusServiceUnavailable
				want = append(want, guid)
			case 8:
				hook.Try(guid, http.StatusBadGateway, s.repo.ID) // and then it arrives
			case 9:
				status = 0 // no answer
				want = append(want, guid)
				hook.Try(guid, http.StatusBadGateway, s.repo.ID)
			}
			hook.Try(guid, status, s.repo.ID)
		}
		hook.Try("of-another-repository", http.StatusBadGateway, 1)
		hook.Try("of-the-installation", http.StatusBadGateway, 0)
		want = append(want, "of-the-installation")
		missed, err := f.Missed(t.Context(), since)
		var got []string
		for _, m := range missed {
			got = append(got, m.GUID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("missed are %v, not %v (%v)", got, want, err)
		}
		for _, m := range missed[1:] {
			if err := f.Redeliver(t.Context(), m.ID); err != nil {
				t.Fatal(err)
			}
		}
		missed, err = f.Missed(t.Context(), since)
		if err != nil || len(missed) != 1 || missed[0].GUID != want[0] {
			t.Errorf("then missed are %+v (%v)", missed, err)
		}
		hook.Deliver = func(string) int { return http.StatusBadGateway }
		last := missed[0].ID
		if err := f.Redeliver(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if missed, err = f.Missed(t.Context(), since); err != nil || len(missed) != 1 ||
			missed[0].ID == last {
			t.Errorf("tried in vain the newest try is %+v (%v)", missed, err)
		}
		if err := f.Redeliver(t.Context(), 1); err == nil {
			t.Error("a delivery that does not exist is delivered")
		}
	})
}

func TestMissedDeliveriesNeedAHook(t *testing.T) {
	s := newStage(t, false)
	c := s.config()
	c.HookURL = ""
	if _, err := s.with(c).Missed(t.Context(), s.server.Clock()); !errors.Is(err,
		errors.ErrUnsupported) {
		t.Errorf("without a webhook's URL: %v", err)
	}
	if err := s.with(c).Redeliver(t.Context(), 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a webhook's URL: %v", err)
	}
	c.HookURL = "https://argosy.example/nowhere"
	if _, err := s.with(c).Missed(t.Context(), s.server.Clock()); err == nil ||
		!strings.Contains(err.Error(), "0 webhooks") {
		t.Errorf("without such a webhook: %v", err)
	}
	s.repo.Grant(s.self, "write")
	_, err := s.forge().Missed(t.Context(), s.server.Clock())
	if err == nil || !strings.Contains(err.Error(), "admin:repo_hook") {
		t.Errorf("without the right to read webhooks: %v", err)
	}
}

func TestDeliveriesThatLeadAstray(t *testing.T) {
	try := `{"id":5,"guid":"g","delivered_at":"2026-03-01T10:00:00Z","status_code":502}`
	for name, c := range map[string]struct{ link, body string }{
		"in a circle":  {`<http://x/?cursor=a>; rel="next"`, "[" + try + "]"},
		"to a page":    {`<http://x/?page=2>; rel="next"`, "[" + try + "]"},
		"to nowhere":   {`<http://x/>; rel="next"`, "[" + try + "]"},
		"without time": {"", `[{"id":5,"guid":"g","status_code":200}]`},
		"without name": {"", `[{"id":5,"delivered_at":"2026-03-01T10:00:00Z","status_code":200}]`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, true)
			s.server.Break("GET /app/hook/*", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", c.link)
				githubtest.JSON(c.body)(w, r)
			})
			if missed, err := s.forge().Missed(t.Context(),
				s.server.Clock().AddDate(0, 0, -1)); err == nil {
				t.Errorf("missed are %+v", missed)
			}
			if n := s.server.Count("GET /app/hook/"); n > 2 {
				t.Errorf("%d pages were read", n)
			}
		})
	}
}

func TestMissedDeliveryOfAWorkingHookIsNone(t *testing.T) {
	s := newStage(t, true)
	s.app.Hook().Try("a", http.StatusOK, s.repo.ID)
	missed, err := s.forge().Missed(t.Context(), s.server.Clock().Add(-1))
	if err != nil || len(missed) != 0 {
		t.Errorf("missed are %v (%v)", missed, err)
	}
}
