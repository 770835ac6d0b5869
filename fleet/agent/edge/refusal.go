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

// Refusal is an error response of the hub, or of a proxy in its place.
type Refusal struct {
	Status int
	// a code of package agent; empty if the response is not a problem document of the hub
	Code      string
	Message   string // printable, shortened
	ReportSeq int64  // CodeReplay: the last accepted report
	After     time.Duration
}

// Error returns the status and the message.
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

// TerminalError stops the agent without a retry: a person has to act first.
type TerminalError struct{ Code, Message string }

// Error returns the reason and the next step.
func (e *TerminalError) Error() string { return e.Message }

const joinAgain = "make a token with `argosy agent token create` and run `argosy agent join` with it on this cluster; nothing on the cluster is touched meanwhile"

var terminalReasons = map[string]string{
	agent.CodeRevoked: "this agent's identity was revoked: " + joinAgain,
	agent.CodeExpired: "this agent's identity has expired, because the hub was not reached " +
		"in time to renew it: " + joinAgain,
	agent.CodeCloned: "two processes alternate with this agent's identity, so that neither is " +
		"served: stop the wrong one, find out how it got the Secret, then " + joinAgain,
	agent.CodeSuperseded: "another process of this agent has taken over, and this one exits; if " +
		"there should be no other, find out where its Secret was copied, and revoke it with " +
		"`argosy agent revoke`",
}

// terminal returns the TerminalError of a code, or nil.
func terminal(code string) error {
	if text, ok := terminalReasons[code]; ok {
		return &TerminalError{Code: code, Message: text}
	}
	return nil
}

const maxProblem = 64 << 10 // bytes read of a refusal

// refusalOf reads an unexpected response and closes it.
func refusalOf(answer *http.Response) error {
	defer answer.Body.Close()
	r := &Refusal{Status: answer.StatusCode, After: retryAfter(answer.Header)}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		r.Message = "it redirects to " + plain(answer.Header.Get("Location")) +
			", which is not followed; if that is the hub, use its URL"
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
	if err := terminal(r.Code); err != nil {
		return err
	}
	return r
}

func refused(err error, code string) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}

// retryAfter parses the header in seconds. It ignores dates, which depend on a clock.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxPause)
}

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	maxPause   = 10 * time.Minute // the maximum pause that a hub may request
)

// pause returns the wait after a number of consecutive failures. It doubles up to a minute, with
// jitter over its upper half, so that agents that failed together do not return together. A pause
// that the hub has requested is kept, plus up to a quarter.
func pause(failures int, err error) time.Duration {
	var r *Refusal
	if errors.As(err, &r) {
		if r.After > 0 {
			return r.After + rand.N(r.After/4+1)
		}
		if r.Code == agent.CodeProtocol {
			return maxBackoff + rand.N(maxBackoff)
		}
	}
	d := maxBackoff
	if failures < 8 {
		d = min(minBackoff<<max(failures-1, 0), maxBackoff)
	}
	return d/2 + rand.N(d/2+1)
}
