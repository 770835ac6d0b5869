package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	tokenLife    = 5 * time.Minute
	tokenLength  = 43       // characters of an access token: 256 bits in base64url
	smallBody    = 16 << 10 // bytes of a request other than a report
	bodyTimeout  = 30 * time.Second
	storeTimeout = 10 * time.Second // of one read or write of the store for a request
)

// singleHeader returns the value of a header that occurs exactly once.
func singleHeader(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// claimant is the agent that an access token names, before its proof is verified.
type claimant struct {
	agent registry.Agent
	token string
	proof string
}

// findClaimant looks up the agent of the request's access token.
func (h *Hub) findClaimant(r *http.Request) (claimant, error) {
	header, ok := singleHeader(r, "Authorization")
	proof, proven := singleHeader(r, agent.HeaderProof)
	token, dpop := strings.CutPrefix(header, "DPoP ")
	if !ok || !proven || !dpop || len(token) != tokenLength {
		return claimant{}, agent.ErrProof
	}
	a := claimant{token: token, proof: proof}
	sum := sha256.Sum256([]byte(token))
	by, err := h.admitToken(r, sum)
	if err != nil {
		return claimant{}, err
	}
	err = h.withTimeout(r.Context(), by, func(ctx context.Context) (err error) {
		a.agent, err = h.store.AccessAgent(ctx, sum)
		return err
	})
	if errors.Is(err, mirror.ErrNotFound) {
		return claimant{}, agent.ErrProof
	}
	if err != nil && ended(err) == nil {
		return claimant{}, err
	}
	return a, err
}

// verify checks the proof over the signed content and returns its ID. Only then may a response
// reveal anything about the identity.
func (h *Hub) verify(a claimant, method, path string, statement []byte) (id string, err error) {
	id, err = agent.CheckProof(a.proof, a.agent.Keys, method, path, a.token, statement, h.now())
	if err != nil {
		return "", err
	}
	h.rememberAgent(a.agent)
	h.rememberToken(a.token)
	return id, h.proofs.add(a.agent.ID, id)
}

// provenAgent is an agent with a verified GET.
type provenAgent struct {
	registry.Agent
	proof string // ID of the proof, which opens one session across all replicas
}

// authenticatePost returns the agent of a request with a body, and the body.
func (h *Hub) authenticatePost(w http.ResponseWriter, r *http.Request, path string,
	most int64) (registry.Agent,
	[]byte, error) {
	if r.Header.Get("Content-Encoding") != "" {
		return registry.Agent{}, nil, refused(http.StatusUnsupportedMediaType, agent.CodeInvalid,
			"Content-Encoding is not supported", "send the body without an encoding")
	}
	a, err := h.findClaimant(r)
	over := ended(err)
	if err != nil && over == nil {
		return registry.Agent{}, nil, err
	}
	body, err := readBody(w, r, most)
	if err != nil {
		return registry.Agent{}, nil, err
	}
	if _, err := h.verify(a, http.MethodPost, path, body); err != nil {
		return registry.Agent{}, nil, err
	}
	if over != nil {
		return registry.Agent{}, nil, over
	}
	return a.agent, body, nil
}

// authenticateGet returns the agent and the session of a GET.
func (h *Hub) authenticateGet(r *http.Request, path string) (provenAgent, agent.Session, error) {
	s, err := agent.ReadSession(r.Header)
	if err != nil {
		return provenAgent{}, s, invalid(err.Error())
	}
	a, err := h.findClaimant(r)
	over := ended(err)
	if err != nil && over == nil {
		return provenAgent{}, s, err
	}
	id, err := h.verify(a, http.MethodGet, path, s.Bytes())
	if err != nil {
		return provenAgent{}, s, err
	}
	if over != nil {
		return provenAgent{}, s, over
	}
	if s.Protocol < agent.Oldest {
		return provenAgent{}, s, refused(http.StatusUpgradeRequired, agent.CodeProtocol,
			"this agent is too old for the hub", "update the agent; see `argosy agent manifest`")
	}
	return provenAgent{a.agent, id}, s, nil
}

// withTimeout calls f with a deadline while it holds a slot.
func (h *Hub) withTimeout(ctx context.Context, in semaphore, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return in.run(ctx, func() error { return f(ctx) })
}

// readBody reads a body of at most most bytes, within bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge()
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return nil, invalid("failed to read the body")
	}
	var body bytes.Buffer
	_, err := io.Copy(&body, http.MaxBytesReader(w, r.Body, most))
	_ = control.SetReadDeadline(time.Time{}) // the deadline would end the handler, too
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge()
	}
	if err != nil {
		return nil, invalid("failed to read the body")
	}
	return body.Bytes(), nil
}

func tooLarge() *refusal {
	return refused(http.StatusRequestEntityTooLarge, agent.CodeInvalid, "the body is too large",
		"send it in parts")
}

// decode parses one JSON value and ignores unknown fields. Errors never quote the body.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return invalid("the body is not the expected JSON")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client is gone
	return nil
}
