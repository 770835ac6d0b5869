package edge

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func TestParseHubAcceptsOnlyPlainHTTPSURLs(t *testing.T) {
	for _, good := range []string{"https://hub.example.com", "https://hub.example.com:8443/",
		"https://example.com/argosy"} {
		if _, err := ParseHub(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "hub.example.com", "http://hub.example.com",
		"HTTP://hub.example.com", "ftp://hub", "https://", "https://:443",
		"https://ada:canary-1@hub.example.com", "https://hub.example.com?insecure=true",
		"https://hub.example.com?", "https://hub.example.com#x", "https://hub.example.com/a/../b",
		"https://hub.example.com//x", "https://hub.example.com/%2e%2e", "unix:///x"} {
		if _, err := ParseHub(bad); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// refusedJoin tries to join and returns the error. The hub must not receive a request.
func refusedJoin(t *testing.T, h *hubDouble, ca []byte) string {
	t.Helper()
	client, err := NewClient(Settings{Hub: testHub, CA: ca, Version: "v1", Log: quiet},
		NewIdentityStore(newObjectStore()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.transport.DialContext, client.transport.Proxy = h.listener.dial, nil
	_, err = client.identity.Join(t.Context(), testHub, client, "canary-token", "uid", "v1")
	if err == nil || h.asked("") != 0 || strings.Contains(err.Error(), "canary") {
		t.Fatalf("%v, after %v", err, h.asked(""))
	}
	return err.Error()
}

func TestAnInvalidCertificateIsExplainedAndNothingIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		leaf func(h *hubDouble) tls.Certificate
		want []string
	}{
		"another name": {func(h *hubDouble) tls.Certificate {
			return h.certificate("evil.example.net", time.Now().Add(time.Hour))
		}, []string{"evil.example.net", "URL is wrong"}},
		"expired": {func(h *hubDouble) tls.Certificate {
			return h.certificate("hub.example.com", time.Now().Add(-time.Hour))
		}, []string{"expired on", "renew"}},
		"not yet": {func(h *hubDouble) tls.Certificate {
			return h.certificate("hub.example.com", time.Now().Add(50000*time.Hour))
		}, []string{"valid from", "clock"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t)
				h.leaf = func() tls.Certificate { return c.leaf(h) }
				text := refusedJoin(t, h, h.bundle())
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not in: %s", want, text)
					}
				}
			})
		})
	}
}

func TestATLSInterceptorIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.ca, h.caKey = authority(t, "Corp TLS Inspection")
		other, _ := authority(t, "the hub's own")
		text := refusedJoin(t, h,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Raw}))
		if !strings.Contains(text, `"Corp TLS Inspection"`) ||
			!strings.Contains(text, "--ca-file") {
			t.Error(text)
		}
	})
}

func TestARedirectIsNotFollowed(t *testing.T) {
	for _, to := range []string{"https://evil.example.net" + agent.PathJoin,
		"http://hub.example.com" + agent.PathJoin, "/elsewhere"} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t)
			h.order(func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return true
			})
			client, err := NewClient(Settings{Hub: testHub, CA: h.bundle(), Version: "v1",
				Log: quiet}, NewIdentityStore(newObjectStore()))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			client.transport.DialContext, client.transport.Proxy = h.listener.dial, nil
			_, err = client.identity.Join(t.Context(), testHub, client, "token-1", "uid", "v1")
			if err == nil || !strings.Contains(err.Error(), "redirects to") || h.asked("") != 1 {
				t.Errorf("%s: %v, %v", to, err, h.asked(""))
			}
		})
	}
}

func TestAWrongClockIsTolerated(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t)
			h.ahead.Store(int64(ahead))
			s := newSite(t, h)
			h.put(object("one"))
			s.follow()
			if len(s.rows()) != 1 {
				t.Fatal("no rows")
			}
			if skew, known := s.client.clock.Skew(); !known || (skew+ahead).Abs() > slack {
				t.Errorf("skew %s with a hub %s ahead", skew, ahead)
			}
			h.ahead.Store(0) // the hub's clock is corrected
			wait(20 * time.Minute)
			h.put(object("two"))
			s.acknowledge("two")
			wait(3 * time.Minute)
			if _, ok := h.ack("two"); !ok {
				t.Error("after the hub's clock was set nothing comes through")
			}
		})
	}
}

// acknowledge reports the current row as applied.
func (s *site) acknowledge(name string) {
	s.Helper()
	wait(time.Second)
	row, ok := s.rows()[name]
	if !ok {
		s.Fatalf("no row %s", name)
	}
	if err := s.f.Acknowledge(s.Context(), s.lease, []mirror.Ack{
		{Key: row.Key, Seq: row.Seq, State: mirror.ApplyApplied}}); err != nil {
		s.Fatal(err)
	}
}

func TestAccessTokensAreCachedAndRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		if n := h.asked(agent.PathToken); n != 1 {
			t.Fatalf("%d tokens for a start", n)
		}
		wait(time.Hour)
		if n := h.asked(agent.PathToken); n != 1 {
			t.Fatalf("%d tokens while nothing is sent", n)
		}
		h.put(object("one"))
		s.acknowledge("one")
		wait(time.Second)
		if n := h.asked(agent.PathToken); n != 2 {
			t.Fatalf("%d tokens", n)
		}
		h.set(func() { clear(h.tokens) }) // as after a failover
		h.put(object("two"))
		s.acknowledge("two")
		wait(time.Second)
		if _, ok := h.ack("two"); !ok {
			t.Fatal("a token that the hub does not know is not replaced")
		}
	})
}

func TestKeysAreRotatedAfterAThirdOfTheirLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.life = 3 * time.Hour
		s := newSite(t, h)
		s.follow()
		first := h.known().Thumb()
		wait(59 * time.Minute)
		if h.known().Thumb() != first {
			t.Fatal("too early")
		}
		wait(2 * time.Minute)
		if h.known().Thumb() == first ||
			s.identities.Last().Keys.Public().Thumb() != h.known().Thumb() {
			t.Fatal("not rotated")
		}
		h.put(object("one"))
		s.acknowledge("one")
		wait(time.Minute)
		if _, ok := h.ack("one"); !ok {
			t.Fatal("the new keys are of no use")
		}
	})
}

func TestARotationContinuesAfterACrashAtAnyStep(t *testing.T) {
	for step := 1; ; step++ {
		died := false
		bubble(t, func(t *testing.T, h *hubDouble, s *site) {
			s.begin()
			if _, err := s.identities.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			n := 0
			crash := func() bool { n++; died = died || n >= step; return n >= step }
			s.store.Fail = func(string) error {
				if crash() {
					return errors.New("crash")
				}
				return nil
			}
			// the response to the new keys is lost
			h.order(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != agent.PathKeys || !crash() {
					return false
				}
				h.rotate(discard{w}, r)
				panic(http.ErrAbortHandler)
			})
			_ = s.client.Rotate(t.Context())
			s.store.Fail = nil
			h.order(nil)
			s.begin()
			if _, err := s.identities.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.put(object("one"))
			s.follow()
			if len(s.rows()) != 1 ||
				s.identities.Last().Keys.Public().Thumb() != h.known().Thumb() {
				t.Fatalf("step %d: hub and cluster know other keys", step)
			}
		})
		if !died {
			if step < 6 {
				t.Fatalf("only %d steps", step)
			}
			return
		}
	}
}

// discard drops the response.
type discard struct{ http.ResponseWriter }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func TestAProcessExitsAfterItsIdentityWasReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		other := NewIdentityStore(s.store)
		fresh := &registrar{}
		if _, err := other.Join(t.Context(), testHub, fresh, "token-2", "uid-1", "v1"); err != nil {
			t.Fatal(err)
		}
		h.set(func() { h.keys = other.Last().Keys.Public(); clear(h.tokens) })
		h.listener.cut(false)
		err := <-s.ended
		var end *TerminalError
		if !errors.As(err, &end) || !strings.Contains(err.Error(), "joined again") {
			t.Fatal(err)
		}
	})
}

func TestPausesDoubleWithJitterAndRespectTheHub(t *testing.T) {
	for failures := 1; failures < 100; failures++ {
		most := min(minBackoff<<min(failures-1, 20), maxBackoff)
		for range 20 {
			if d := pause(failures, nil); d < most/2 || d > most {
				t.Fatalf("after %d failures %s", failures, d)
			}
		}
	}
	spread := map[time.Duration]bool{}
	for range 50 {
		d := pause(1, &Refusal{Code: agent.CodeBusy, After: 40 * time.Second})
		if d < 40*time.Second || d > 50*time.Second {
			t.Fatalf("%s", d)
		}
		spread[d] = true
	}
	if len(spread) < 25 {
		t.Error("all agents return at once")
	}
	if d := pause(1,
		&Refusal{After: retryAfter(http.Header{"Retry-After": {"99999999"}})}); d > 2*maxPause {
		t.Errorf("a hub may send an agent away for %s", d)
	}
}

func TestARefusalIsPrintableAndShort(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.order(func(w http.ResponseWriter, _ *http.Request) bool {
			h.refuse(w, 400, agent.Problem{Code: "x\nforged log line",
				Detail: strings.Repeat("<b>\x1b[31m", 10000)})
			return true
		})
		_, err := s.client.Snapshot(t.Context(), 0)
		if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 1000 {
			t.Fatalf("%d bytes: %.100q", len(err.Error()), err)
		}
	})
}
