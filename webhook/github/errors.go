package github

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	api "github.com/google/go-github/v60/github"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/printable"
)

const (
	shortestWait = 2 * time.Second
	outageWait   = 15 * time.Second // after a 5xx that names no time
	// after a secondary limit that names no time: GitHub asks for at least a minute
	secondaryWait = time.Minute
	mostWords     = 300 // characters of the Git host's error message
)

// refused is the Git host's refusal of a request. The caller decides whether it proves anything.
type refused struct {
	what   string // method and path
	status int
	words  string // the Git host's message, on one line
	needs  string // the permission that it asks for
	api    bool   // the message was JSON: the Git host itself answered, and no proxy before it
}

func (e *refused) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.what, e.status, http.StatusText(e.status))
	if e.words != "" {
		text += ": " + e.words
	}
	if e.needs != "" {
		text += "; it asks for " + e.needs
	}
	return text
}

// isGone reports whether the Git host itself answers that there is no such object, or that we may
// not know about it.
func isGone(err error) bool {
	return hasStatus(err, http.StatusNotFound) || hasStatus(err, http.StatusGone)
}

// hasStatus reports whether the Git host refused the request itself, not the request for a token
// before it.
func hasStatus(err error, status int) bool {
	var r *refused
	var onTheWay *credentialError
	return errors.As(err, &r) && r.api && r.status == status && !errors.As(err, &onTheWay)
}

// failure translates an error of GitHub's client: into a time to ask again, a refusal, or a plain
// error.
func failure(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	var (
		rate  *api.RateLimitError
		abuse *api.AbuseRateLimitError
		no    *api.ErrorResponse
		twice *api.TwoFactorAuthError
		sent  *url.Error
	)
	switch {
	case errors.As(err, &rate):
		return busy(what, "its rate limit is used up", time.Until(rate.Rate.Reset.Time))
	case errors.As(err, &abuse):
		wait := secondaryWait
		if abuse.RetryAfter != nil {
			wait = *abuse.RetryAfter
		}
		return busy(what, "it limits how fast we ask", wait)
	case errors.As(err, &twice):
		return fmt.Errorf(
			"%s: the Git host wants a one-time password with this credential; give it a token",
			what)
	case errors.As(err, &no):
		return verdict(what, no)
	case errors.As(err, &sent):
		return unsent(what, sent)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unsent is an error of the way there. The URL in it is left out: after a redirect it is the other
// side's text.
func unsent(what string, sent *url.Error) error {
	var credential *credentialError
	var wait *forge.Busy
	switch {
	case errors.As(sent.Err, &wait):
		return wait
	case errors.As(sent.Err, &credential):
		return credential
	case sent.Timeout():
		return fmt.Errorf("%s: the Git host gave no whole answer within %s", what, callTime)
	}
	return fmt.Errorf("%s: %s", what, plain(sent.Err.Error()))
}

// verdict reads an answer that is neither 2xx nor one of the limits that GitHub's client knows.
func verdict(what string, no *api.ErrorResponse) error {
	r, now := no.Response, time.Now()
	e := &refused{what: what, status: r.StatusCode, words: words(no), needs: needs(r.Header),
		api: isJSON(r.Header)}
	after, named := retryAfter(r.Header, now)
	switch {
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusForbidden &&
		(named || isLimit(e.words)):
		if !named {
			after = secondaryWait
		}
		if reset := resetOf(r.Header); !named && r.Header.Get("X-RateLimit-Remaining") == "0" &&
			!reset.IsZero() {
			after = reset.Sub(now)
		}
		return busy(what, "it limits how fast we ask", after)
	case r.StatusCode >= 500:
		if !named {
			after = outageWait
		}
		return busy(what, fmt.Sprintf("it answers %d %s", r.StatusCode,
			http.StatusText(r.StatusCode)), after)
	case r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf(
			"the Git host does not know our credential, which was revoked or has expired: %w", e)
	case r.StatusCode == http.StatusForbidden && strings.Contains(strings.ToLower(e.words),
		"suspended"):
		return fmt.Errorf(
			"the App's installation or our account is suspended; lift that on the Git host: %w", e)
	}
	return e
}

func isLimit(words string) bool {
	words = strings.ToLower(words)
	return strings.Contains(words, "rate limit") || strings.Contains(words, "abuse detection")
}

// busy is at least two seconds and at most an hour and a tenth away, and never at the same moment
// for two who wait.
func busy(what, why string, wait time.Duration) error {
	wait = min(max(wait, shortestWait), longestWait)
	wait += rand.N(wait/10 + time.Second)
	return &forge.Busy{Until: time.Now().Add(wait),
		Err: fmt.Errorf("%s: the Git host is busy: %s", what, why)}
}

func resetOf(h http.Header) time.Time {
	seconds, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func words(no *api.ErrorResponse) string {
	text := no.Message
	for _, e := range no.Errors {
		for _, part := range []string{e.Resource, e.Field, e.Code, e.Message} {
			if part != "" {
				text += " " + part
			}
		}
	}
	return plain(text)
}

// needs returns the permissions that the request lacks. See GitHub's "Permissions required for
// GitHub Apps" and "Scopes for OAuth apps".
func needs(h http.Header) string {
	if v := h.Get("X-Accepted-GitHub-Permissions"); v != "" {
		return "the permission " + plain(v)
	}
	if v := h.Get("X-Accepted-OAuth-Scopes"); v != "" {
		return "one of the scopes " + plain(v)
	}
	return ""
}

// plain is another's text on one line, cut.
func plain(text string) string {
	n := 0
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if n++; n > mostWords {
			return -1
		}
		if !printable.Is(c) {
			return ' '
		}
		return c
	}, text))
}
