package github

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"argosy.dev/argosy/webhook/github/githubtest"
)

// Two walls keep credentials at home: foreign redirects are not followed, and no request goes to
// another host.
func TestNothingIsSentElsewhere(t *testing.T) {
	base, err := url.Parse("https://git.example.com/api/v3/")
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	w := &wire{base: base, next: roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, errors.New("sent")
	})}
	for _, target := range []string{
		"http://git.example.com/api/v3/", "https://git.example.com:8443/",
		"https://git.example.com.evil.example/", "https://evil.example/",
		"https://x@git.example.com/",
	} {
		r, err := http.NewRequest(http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.RoundTrip(r); !errors.Is(err, errElsewhere) || sent != 0 {
			t.Errorf("%s gives %v", target, err)
		}
		if err := stayHome(base)(r, []*http.Request{r}); !errors.Is(err, errElsewhere) {
			t.Errorf("a redirect to %s gives %v", target, err)
		}
	}
}

// Headers that set when to ask again count up to an hour, and not at all if they are malformed.
func TestTameHeaders(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(seconds int64) string { return strconv.FormatInt(now.Unix()+seconds, 10) }
	for name, c := range map[string]struct{ after, remaining, reset, wantAfter, wantReset string }{
		"sense": {"30", "0", at(60), "30", at(60)},
		"a date": {now.Add(40 * time.Second).UTC().Format(http.TimeFormat), "7",
			at(0), "40", at(0)},
		"too far":                {"86400", "0", "99999999999", "3600", at(3600)},
		"nonsense":               {"soon", "0", "tomorrow", "", ""},
		"a reset and no count":   {"", "", at(60), "", ""},
		"a count and no reset":   {"", "0", "", "", ""},
		"before the world began": {"", "0", "-5", "", ""},
	} {
		h := http.Header{"Retry-After": {c.after}, "X-Ratelimit-Remaining": {c.remaining},
			"X-Ratelimit-Reset": {c.reset}}
		tame(h, now)
		if h.Get("Retry-After") != c.wantAfter || h.Get("X-RateLimit-Reset") != c.wantReset ||
			h.Get("X-RateLimit-Remaining") != "" && c.wantReset == "" {
			t.Errorf("%s becomes %v", name, h)
		}
	}
}

// A reset without a count, as a proxy may leave it, stops nothing.
func TestHalfALimitIsNone(t *testing.T) {
	s := newStage(t, false)
	f := s.forge()
	body := `{"id":` + number(s.repo.ID) + `,"full_name":"acme/fleet"}`
	s.server.Break("GET /repos/acme/fleet", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Minute).Unix(),
			10))
		githubtest.JSON(body)(w, r)
	})
	for range 2 {
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
