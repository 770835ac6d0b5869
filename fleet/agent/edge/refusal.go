package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// Refusal is what the hub, or something in its place, answers instead of what was asked for.
type Refusal struct {
	Status int
	// of agent's codes; empty when the answer is none of the hub's problem documents
	Code      string
	Message   string // printable, capped
	ReportSeq int64  // of CodeReplay: the last report that was taken
	After     time.Duration
}

// Error names the status and what was said.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("the hub answers %d", r.Status)
	if r.Code != "" {
		text += " " + r.Code
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}

// Ended says that an agent is to end and not to try again: somebody has to do something first.
type Ended struct{ Code, Message string }

// Error says what, and what to do next.
func (e *Ended) Error() string { return e.Message }

const joinAnew = "make a token with `argosy agent token create` and run `argosy agent join` with it on this cluster; nothing on the cluster is touched meanwhile"

var endings = map[string]string{
	agent.CodeRevoked: "this agent's identity was revoked: " + joinAnew,
	agent.CodeExpired: "this agent's identity has expired, because the hub was not reached " +
		"in time to renew it: " + joinAnew,
	agent.CodeCloned: "two processes use this agent's identity in turn, so that neither is " +
		"served: end the one that should not be, look how it came by the Secret, then " + joinAnew,
	agent.CodeSuperseded: "another process of this agent has taken over, and this one ends; if " +
		"there should be no other, look where its Secret was copied to and revoke it with " +
		"`argosy agent revoke`",
}

// ended is the Ended of a code, or nil.
func ended(code string) error {
	if text, ok := endings[code]; ok {
		return &Ended{Code: code, Message: text}
	}
	return nil
}

const maxProblem = 64 << 10 // bytes of a refusal that are read

// refusalOf reads an answer that is none of the expected ones, and closes it.
func refusalOf(answer *http.Response) error {
	defer answer.Body.Close()
	r := &Refusal{Status: answer.StatusCode, After: retryAfter(answer.Header)}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		r.Message = "it redirects to " + plain(answer.Header.Get("Location")) +
			", which is not followed; if that is the hub, give its URL"
		return r
	}
	var problem agent.Problem
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err == nil && json.Unmarshal(body, &problem) == nil {
		r.Code, r.Message, r.ReportSeq = plain(problem.Code), plain(problem.Detail),
			problem.ReportSeq
		if r.Message == "" {
			r.Message = plain(problem.Title)
		}
		if problem.Next != "" {
			r.Message += "; " + plain(problem.Next)
		}
	}
	if err := ended(r.Code); err != nil {
		return err
	}
	return r
}

func refused(err error, code string) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}

// retryAfter reads the header in seconds; a date would have to trust a clock.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestPause)
}

const (
	firstPause   = 500 * time.Millisecond
	lastPause    = time.Minute
	longestPause = 10 * time.Minute // that a hub may ask for
)

// pause is how long to wait after that many failures in a row. It doubles up to a minute and is
// spread over its upper half, so that agents that failed together do not return together; what the
// hub asked for is kept, and spread by a quarter beyond it.
func pause(failures int, err error) time.Duration {
	var r *Refusal
	if errors.As(err, &r) {
		if r.After > 0 {
			return r.After + rand.N(r.After/4+1)
		}
		if r.Code == agent.CodeProtocol {
			return lastPause + rand.N(lastPause)
		}
	}
	d := lastPause
	if failures < 8 {
		d = min(firstPause<<max(failures-1, 0), lastPause)
	}
	return d/2 + rand.N(d/2+1)
}
