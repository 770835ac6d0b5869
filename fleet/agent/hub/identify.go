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

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

const (
	tokenLife   = 5 * time.Minute
	tokenLength = 43       // characters of an access token: 256 bits in base64url
	smallBody   = 16 << 10 // bytes of a request that is no report
	bodyTime    = 30 * time.Second
	askTime     = 10 * time.Second // of one read or write of the store for a request
)

// one is the value of a header that stands there exactly once.
func one(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// asker is who says to be an agent, by its access token; nothing is proven yet.
type asker struct {
	agent fleet.Agent
	token string
	proof string
}

// ask finds whose access token it is.
func (h *Hub) ask(r *http.Request) (asker, error) {
	header, ok := one(r, "Authorization")
	proof, proven := one(r, agent.HeaderProof)
	token, dpop := strings.CutPrefix(header, "DPoP ")
	if !ok || !proven || !dpop || len(token) != tokenLength {
		return asker{}, agent.ErrProof
	}
	a := asker{token: token, proof: proof}
	sum := sha256.Sum256([]byte(token))
	by, err := h.admitAccess(r, sum)
	if err != nil {
		return asker{}, err
	}
	err = h.briefly(r.Context(), by, func(ctx context.Context) (err error) {
		a.agent, err = h.store.AccessAgent(ctx, sum)
		return err
	})
	if errors.Is(err, fleet.ErrNotFound) {
		return asker{}, agent.ErrProof
	}
	if err != nil && ended(err) == nil {
		return asker{}, err
	}
	return a, err
}

// prove judges the proof over what was sent and returns its id. Only then is anything told about
// the identity.
func (h *Hub) prove(a asker, method, path string, statement []byte) (id string, err error) {
	id, err = agent.CheckProof(a.proof, a.agent.Keys, method, path, a.token, statement, h.now())
	if err != nil {
		return "", err
	}
	h.remember(a.agent)
	h.accepted(a.token)
	return id, h.seen.first(a.agent.ID, id)
}

// prover is an agent that has proven a GET.
type prover struct {
	fleet.Agent
	proof string // its id, which opens one session, on whichever replica
}

// proven is the agent of a request with a body, and the body.
func (h *Hub) proven(w http.ResponseWriter, r *http.Request, path string, most int64) (fleet.Agent,
	[]byte, error) {
	if r.Header.Get("Content-Encoding") != "" {
		return fleet.Agent{}, nil, refused(http.StatusUnsupportedMediaType, agent.CodeInvalid,
			"a Content-Encoding is not taken", "send the body as it is")
	}
	a, err := h.ask(r)
	over := ended(err)
	if err != nil && over == nil {
		return fleet.Agent{}, nil, err
	}
	body, err := read(w, r, most)
	if err != nil {
		return fleet.Agent{}, nil, err
	}
	if _, err := h.prove(a, http.MethodPost, path, body); err != nil {
		return fleet.Agent{}, nil, err
	}
	if over != nil {
		return fleet.Agent{}, nil, over
	}
	return a.agent, body, nil
}

// session is the agent of a GET, and what it says of its process.
func (h *Hub) session(r *http.Request, path string) (prover, agent.Session, error) {
	s, err := agent.ReadSession(r.Header)
	if err != nil {
		return prover{}, s, invalid(err.Error())
	}
	a, err := h.ask(r)
	over := ended(err)
	if err != nil && over == nil {
		return prover{}, s, err
	}
	id, err := h.prove(a, http.MethodGet, path, s.Bytes())
	if err != nil {
		return prover{}, s, err
	}
	if over != nil {
		return prover{}, s, over
	}
	if s.Protocol < agent.Oldest {
		return prover{}, s, refused(http.StatusUpgradeRequired, agent.CodeProtocol,
			"this agent is too old for the hub", "update the agent; see `argosy agent manifest`")
	}
	return prover{a.agent, id}, s, nil
}

// briefly asks the store within a time, when a slot is free.
func (h *Hub) briefly(ctx context.Context, in slots, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return in.within(ctx, func() error { return f(ctx) })
}

// read reads a body of at most that many bytes, within bodyTime.
func read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge()
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTime)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return nil, invalid("the body cannot be read")
	}
	var body bytes.Buffer
	_, err := io.Copy(&body, http.MaxBytesReader(w, r.Body, most))
	_ = control.SetReadDeadline(time.Time{}) // it would end the handler, too
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge()
	}
	if err != nil {
		return nil, invalid("the body cannot be read")
	}
	return body.Bytes(), nil
}

func tooLarge() *refusal {
	return refused(http.StatusRequestEntityTooLarge, agent.CodeInvalid, "the body is too large",
		"send it in parts")
}

// decode reads one JSON value; fields that are not known are passed over. The body is never echoed.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return invalid("the body is not the JSON that this request takes")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the connection is gone: there is nobody to tell
	return nil
}
