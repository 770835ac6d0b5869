package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// Whatever goes wrong is an error of every method, never absence and never an empty list, and no
// error holds a credential.
func TestFaultsAreErrors(t *testing.T) {
	elsewhere, stolen := stranger(t)
	faults := map[string]githubtest.Fault{
		"502":                      githubtest.HTML(http.StatusBadGateway),
		"500 with words":           githubtest.Reply(http.StatusInternalServerError, "oops"),
		"200 with HTML":            githubtest.HTML(http.StatusOK),
		"404 with HTML":            githubtest.HTML(http.StatusNotFound),
		"200 with nothing":         githubtest.JSON(""),
		"200 with null":            githubtest.JSON("null"),
		"200 with a number":        githubtest.JSON("7"),
		"200 with half an answer":  githubtest.JSON(`{"id":1,`),
		"200 with an empty object": githubtest.JSON("{}"),
		"a list of null":           githubtest.JSON("[null]"),
		"a list of empty objects":  githubtest.JSON("[{}]"),
		"a broken connection":      githubtest.CutOff,
		"401":                      githubtest.Reply(http.StatusUnauthorized, "Bad credentials"),
		"403": githubtest.Reply(http.StatusForbidden,
			"Resource not accessible by integration"),
		"403 of one who is suspended": githubtest.Reply(http.StatusForbidden,
			"This installation has been suspended"),
		"401 that repeats us": githubtest.Echo(http.StatusUnauthorized),
		"403 that repeats us": githubtest.Echo(http.StatusForbidden),
		"422 that repeats us": githubtest.Echo(http.StatusUnprocessableEntity),
		"500 that repeats us": githubtest.Echo(http.StatusInternalServerError),
		"a secondary limit":   githubtest.SecondaryLimit(time.Minute),
		"429":                 githubtest.Reply(http.StatusTooManyRequests, "slow down"),
		"a redirect elsewhere": githubtest.Redirect(http.StatusTemporaryRedirect,
			elsewhere+"/repos/acme/fleet"),
		"a redirect elsewhere for good": githubtest.Redirect(http.StatusMovedPermanently,
			elsewhere+"/"),
		"a redirect to nowhere": githubtest.Redirect(http.StatusFound, "::%%"),
		"a redirect to a file": githubtest.Redirect(http.StatusFound,
			"file:///etc/passwd"),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) { everyCallFails(t, s, fault) })
		})
	}
	if n := stolen.Load(); n != 0 {
		t.Errorf("%d requests were sent to another host", n)
	}
}

// "Not found" is also the answer to accounts without permission. Only a repository that answers,
// and lists its pull requests, proves absence.
func TestNotFoundProvesNothingByItself(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.Open(s.cast.Writer, "Add a file")
		head := fleet.Revision(s.repo.Pull(1).Head)
		for _, where := range []string{"/*", "/repos/*", "/repos/acme/fleet"} {
			f := s.forge()
			missing := githubtest.Reply(http.StatusNotFound, "Not Found")
			restore := s.server.Break("GET "+where, missing)
			for what, call := range calls(s, f, head) {
				check(t, s, what+" without "+where, call(t.Context()))
			}
			restore()
		}
		s.server.Break("GET /repos/acme/fleet/*",
			githubtest.Reply(http.StatusNotFound, "Not Found"))
		for _, what := range []string{"Pull", "Pull of none", "OpenPulls", "PullsOf",
			"Conversation", "SetComment", "ReportChecks"} {
			check(t, s, what, calls(s, s.forge(), head)[what](t.Context()))
		}
	})
}

func TestUnchangedWithoutAQuestionIsAnError(t *testing.T) {
	s := newStage(t, false)
	s.server.Break("GET /*", githubtest.Reply(http.StatusNotModified, ""))
	if _, _, err := s.forge().Repository(t.Context()); err == nil {
		t.Error("a response \"not modified\" to an unconditional request is accepted")
	}
}

// stranger is another host, and counts what it is sent.
func stranger(t *testing.T) (string, *atomic.Int64) {
	var seen atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		seen.Add(1)
	}))
	t.Cleanup(server.Close)
	return server.URL, &seen
}

func everyCallFails(t *testing.T, s *stage, fault githubtest.Fault) {
	s.Open(s.cast.Writer, "Add a file")
	head := fleet.Revision(s.repo.Pull(1).Head)
	f := s.forge()
	// an App has its token, and knows the repository
	if _, _, err := f.Repository(t.Context()); err != nil {
		t.Fatal(err)
	}
	restore := s.server.Break("* /*", fault)
	for what, call := range calls(s, f, head) {
		check(t, s, what, call(t.Context()))
	}
	restore()
	// Without a token yet, and with the fault in the second request alone.
	for what, call := range calls(s, s.forge(), head) {
		for _, path := range []string{"/app*", "/repos/acme/fleet/*", "/orgs/*", "/users/*",
			"/user*"} {
			restore := s.server.Break("* "+path, fault)
			err := call(t.Context())
			restore()
			if err != nil && !knownAbsent(what, err) {
				check(t, s, what+" without "+path, err)
			}
		}
	}
}

// knownAbsent reports whether the call is for a missing object and returns so: the fault did not
// hit it.
func knownAbsent(what string, err error) bool {
	switch what {
	case "Pull of none":
		return errors.Is(err, forge.ErrNoSuchPull)
	case "Owner, no user", "Owner, no team":
		return errors.Is(err, forge.ErrNoSuchOwner)
	}
	return false
}

func check(t *testing.T, s *stage, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s goes well", what)
	case errors.Is(err, forge.ErrNoSuchPull), errors.Is(err, forge.ErrNoSuchOwner),
		errors.Is(err, forge.ErrNoSuchComment):
		t.Errorf("%s reads absence out of it: %v", what, err)
	case len(err.Error()) > 1500:
		t.Errorf("%s fails with an error of %d bytes", what, len(err.Error()))
	}
	for _, secret := range s.secrets() {
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("%s fails with a credential in its error: %v", what, err)
		}
	}
}

// secrets are the beginnings that no error may have.
func (s *stage) secrets() []string {
	return []string{"ghp_", "ghs_", "eyJ", "PRIVATE KEY"}
}

// A limit or an outage returns when to ask again: not at once, and within an hour or so.
func TestABusyGitHostReturnsItsRetryTime(t *testing.T) {
	soon, late := 2*time.Second, 70*time.Minute
	hour := fmt.Sprint(time.Now().Add(30 * time.Minute).Unix())
	for name, c := range map[string]struct {
		fault    githubtest.Fault
		from, to time.Duration
	}{
		"502": {githubtest.HTML(http.StatusBadGateway), 10 * time.Second,
			30 * time.Second},
		"503 that names a time": {
			githubtest.Reply(http.StatusServiceUnavailable, "", "Retry-After", "120"),
			2 * time.Minute, 3 * time.Minute},
		"429 that names a time": {
			githubtest.Reply(http.StatusTooManyRequests, "", "Retry-After", "300"), 5 * time.Minute,
			6 * time.Minute},
		"429 that names a date": {
			githubtest.Reply(http.StatusTooManyRequests, "", "Retry-After",
				time.Now().Add(5*time.Minute).UTC().Format(http.TimeFormat)), 4 * time.Minute,
			6 * time.Minute},
		"429 that names nothing": {githubtest.Reply(http.StatusTooManyRequests, ""), time.Minute,
			2 * time.Minute},
		"429 that names years": {
			githubtest.Reply(http.StatusTooManyRequests, "", "Retry-After", "999999999"), time.Hour,
			late},
		"429 that names more": {
			githubtest.Reply(http.StatusTooManyRequests, "", "Retry-After", "99999999999999999999"),
			soon, late},
		"429 that names the past": {
			githubtest.Reply(http.StatusTooManyRequests, "", "Retry-After", "-5"), soon, late},
		"429 of the rate limit": {
			githubtest.Reply(http.StatusTooManyRequests, "", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", hour), 29 * time.Minute, 40 * time.Minute},
		"the rate limit": {
			githubtest.Reply(http.StatusForbidden, "", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", hour), 29 * time.Minute, 40 * time.Minute},
		"a rate limit for centuries": {
			githubtest.Reply(http.StatusForbidden, "", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", "99999999999"), 50 * time.Minute, late},
		"a rate limit that has ended": {
			githubtest.Reply(http.StatusForbidden, "", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", "1"), soon, 10 * time.Second},
		"a secondary limit": {githubtest.SecondaryLimit(90 * time.Second),
			89 * time.Second, 2 * time.Minute},
		"403 that names a time": {githubtest.Reply(http.StatusForbidden, "wait", "Retry-After",
			"60"), time.Minute, 2 * time.Minute},
		"403 that speaks of a limit": {
			githubtest.Reply(http.StatusForbidden, "You have exceeded a secondary rate limit"),
			time.Minute, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) {
				s.Open(s.cast.Writer, "Add a file")
				s.server.Break("* /*", c.fault)
				for what, call := range calls(s, s.forge(), fleet.Revision(s.repo.Pull(1).Head)) {
					busyWithin(t, what, call(t.Context()), c.from, c.to)
				}
			})
		})
	}
}

func busyWithin(t *testing.T, what string, err error, from, to time.Duration) {
	t.Helper()
	var busy *forge.Busy
	if !errors.As(err, &busy) {
		t.Errorf("%s gives %v", what, err)
		return
	}
	if wait := time.Until(busy.Until); wait < from-time.Second || wait > to {
		t.Errorf("%s waits %s, not %s to %s", what, wait, from, to)
	}
}

// Once the limit is used up nothing more is asked until it is lifted.
func TestRateLimitIsNotTried(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		f := s.forge()
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.server.Limit(1, time.Now().Add(10*time.Minute))
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := len(s.server.Asked())
		for range 3 {
			_, _, err := f.Repository(t.Context())
			busyWithin(t, "Repository", err, 9*time.Minute, 12*time.Minute)
		}
		if n := len(s.server.Asked()) - before; n != 0 {
			t.Errorf("%d requests were made beyond the limit", n)
		}
	})
}

func TestHugeAnswerEnds(t *testing.T) {
	s := newStage(t, false)
	s.server.Break("GET /repos/acme/fleet/pulls", githubtest.Huge(answerBytes+1<<20))
	_, err := s.forge().OpenPulls(t.Context(), "main")
	if err == nil || !strings.Contains(err.Error(), "32 MiB") {
		t.Errorf("an answer that does not end gives %v", err)
	}
}

func TestSilentForgeIsLeft(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.server.Break("* /*", githubtest.Silent)
		for what, call := range calls(s, s.forge(), fleet.Revision(strings.Repeat("a", 40))) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s gives %v", what, err)
			}
		}
	})
}
