package hub

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// refusal is an error response.
type refusal struct {
	agent.Problem
	after time.Duration // Retry-After
	oauth string        // error code of RFC 6749, for PathToken
}

func (r *refusal) Error() string { return r.Detail }

func refused(status int, code, detail, next string) *refusal {
	return &refusal{Problem: agent.Problem{Type: "urn:argosy:agent:" + code,
		Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Next: next}}
}

func invalid(detail string) *refusal {
	return refused(http.StatusBadRequest, agent.CodeInvalid, detail,
		"see /openapi.json for what this request takes")
}

// busy rejects a request because of load.
func busy(detail string, after time.Duration) *refusal {
	r := refused(http.StatusServiceUnavailable, agent.CodeBusy, detail,
		"wait for the time in Retry-After")
	r.after = after
	return r
}

const joinAgain = "make a token with `argosy agent token create` and join again"

// ended returns the refusal of an ended identity, for the holder of its key; nil for any other
// error.
func ended(err error) *refusal {
	switch {
	case errors.Is(err, registry.ErrRevoked):
		return refused(http.StatusUnauthorized, agent.CodeRevoked, "the identity was revoked",
			joinAgain)
	case errors.Is(err, registry.ErrExpired):
		return refused(http.StatusUnauthorized, agent.CodeExpired,
			"the identity has expired: its keys were not rotated in time", joinAgain)
	case errors.Is(err, registry.ErrCloned):
		return refused(http.StatusUnauthorized, agent.CodeCloned,
			"two processes alternate with the identity, so that neither is served",
			"find the second one, then "+joinAgain)
	}
	return nil
}

// explain maps an error to the refusal that the caller may see. It logs the cause.
func (h *Hub) explain(ctx context.Context, route string, err error) *refusal {
	var known *refusal
	var over *busyError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &over):
		return busy("too many agents connect at once", over.after)
	case errors.Is(err, agent.ErrProof), errors.Is(err, agent.ErrClock):
		return refused(http.StatusUnauthorized, agent.CodeProof, "the proof is invalid",
			"use the time in this response's Date header and request a new access token; "+
				"if that fails too, "+joinAgain)
	case errors.Is(err, mirror.ErrFenced), errors.Is(err, registry.ErrSuperseded):
		return refused(http.StatusConflict, agent.CodeSuperseded,
			"another process of this agent has taken over", "end this process")
	case errors.Is(err, registry.ErrBusy):
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"too many access tokens were requested", "use the last one until it expires")
		r.after = time.Minute
		return r
	}
	if r := ended(err); r != nil {
		return r
	}
	if ctx.Err() == nil {
		h.log.WarnContext(ctx, "rejected an agent's request: failed to access the mirror",
			"route", route, "error", err)
	}
	return busy("the mirror is unreachable; the cluster stays as it is",
		5*time.Second+rand.N(10*time.Second))
}

// refuse responds with the error. It aborts a response that has begun, so that the client does not
// take it for complete.
func (h *Hub) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler)
	}
	p := *h.explain(r.Context(), r.URL.Path, err) // a path of the protocol, without a token
	h.metrics.refused(p.Code)
	head := w.Header()
	if p.Status == http.StatusUnauthorized {
		head.Set("WWW-Authenticate", `DPoP algs="EdDSA"`)
	}
	if p.after > 0 {
		head.Set("Retry-After", strconv.Itoa(int((p.after+time.Second-1)/time.Second)))
	}
	head.Set("Content-Type", "application/problem+json")
	if r.URL.Path == agent.PathToken {
		head.Set("Content-Type", "application/json") // RFC 6749 section 5.2
		p.Problem.Error, p.Description = oauthError(&p), p.Detail
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p.Problem) // the client may have disconnected
}

func oauthError(p *refusal) string {
	switch {
	case p.oauth != "":
		return p.oauth
	case p.Status == http.StatusUnauthorized:
		return "invalid_client"
	case p.Status == http.StatusBadRequest:
		return "invalid_request"
	default:
		return "temporarily_unavailable"
	}
}

// errCut reports a response that ended in the middle.
var errCut = errors.New("the response was cut off")
