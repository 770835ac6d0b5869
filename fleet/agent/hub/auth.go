package hub

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
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

// findClaimant returns the agent of the request's access token.
func (h *Hub) findClaimant(r *http.Request) (claimant, error) {
	header, ok := singleHeader(r, "Authorization")
	proof, proven := singleHeader(r, agent.HeaderProof)
	token, dpop := strings.CutPrefix(header, "DPoP ")
	if !ok || !proven || !dpop || len(token) != tokenLength {
		return claimant{}, agent.ErrProof
	}
	a := claimant{token: token, proof: proof}
	sum := sha256.Sum256([]byte(token))
	by, err := h.admission.admitToken(r, sum)
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
	h.admission.rememberAgent(a.agent)
	h.admission.rememberToken(a.token)
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
	_ = json.NewEncoder(w).Encode(value) // the client may have disconnected
	return nil
}

const (
	minToken = 16 // characters of a one-time token; the store validates the content
	maxToken = 256
	maxUID   = 64
)

// join exchanges a one-time token for an identity.
func (h *Hub) join(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, smallBody)
	if err != nil {
		return err
	}
	var asked agent.Join
	if err := decode(body, &asked); err != nil {
		return err
	}
	if err := checkJoin(asked); err != nil {
		return invalid(err.Error())
	}
	proof, ok := singleHeader(r, agent.HeaderProof)
	if !ok {
		return agent.ErrProof
	}
	if _, err := agent.CheckProof(proof, asked.Keys, http.MethodPost, agent.PathJoin, "", body,
		h.now()); err != nil {
		return err
	}
	if err := h.admission.admitUnknown(r, h.admission.joins); err != nil {
		return err
	}
	var joined registry.Agent
	err = h.withTimeout(r.Context(), h.admission.unknownReads,
		func(ctx context.Context) (err error) {
			joined, err = h.store.JoinAgent(ctx, asked.Token, registry.Join{
				Keys: asked.Keys, ClusterUID: asked.ClusterUID, Version: asked.Version})
			return err
		})
	switch {
	case errors.Is(err, registry.ErrUsed):
		return refused(http.StatusConflict, agent.CodeUsed,
			"the token was used before with other keys",
			"see `argosy get agents` for the agent that used it, and create a new token")
	case errors.Is(err, mirror.ErrNotFound):
		return refused(http.StatusUnauthorized, agent.CodeToken,
			"the token is invalid: unknown, expired or revoked, or its target was deleted",
			"make a token with `argosy agent token create`")
	case err != nil:
		return withoutToken(err, asked.Token)
	}
	h.log.InfoContext(r.Context(), "an agent has joined", "engine", joined.Engine, "agent",
		joined.ID)
	return h.joinedAs(w, joined)
}

func checkJoin(j agent.Join) error {
	if len(j.Token) < minToken || len(j.Token) > maxToken {
		return errors.New("the token must have 16 to 256 characters")
	}
	if len(j.ClusterUID) > maxUID || plain(j.ClusterUID, maxUID) != j.ClusterUID {
		return errors.New("clusterUID is not the UID of a namespace")
	}
	if !agent.ValidVersion(j.Version) {
		return errors.New("version is invalid")
	}
	return agent.CheckKeys(j.Keys)
}

func (h *Hub) joinedAs(w http.ResponseWriter, a registry.Agent) error {
	return writeJSON(w, agent.Joined{Agent: a.ID, Engine: a.Engine, ExpiresAt: a.ExpiresAt.UTC(),
		Time: h.now().UTC()})
}

const (
	grantType     = "client_credentials"
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// token exchanges an assertion for an access token (RFC 7523, RFC 6749). Every invalid assertion
// gets the same response. The state of the identity is revealed only to the holder of its key.
func (h *Hub) token(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(w, r)
	if err != nil {
		return err
	}
	assertion, id, err := assertionIn(form)
	if err != nil {
		return err
	}
	by, err := h.admission.admitAssertion(r, assertion, id)
	if err != nil {
		return err
	}
	var known registry.Agent
	err = h.withTimeout(r.Context(), by, func(ctx context.Context) (err error) {
		known, err = h.store.Agent(ctx, id)
		return err
	})
	over := ended(err)
	switch {
	case errors.Is(err, mirror.ErrNotFound):
		return agent.ErrProof
	case err != nil && over == nil:
		return err
	}
	jti, err := agent.CheckAssertion(assertion, known.Keys, id, h.audience, h.now())
	if err != nil {
		return err
	}
	if over != nil {
		return over
	}
	h.admission.rememberAgent(known)
	return h.grant(w, r, known, jti)
}

func (h *Hub) grant(w http.ResponseWriter, r *http.Request, to registry.Agent, jti string) error {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	err := h.withTimeout(r.Context(), h.admission.knownReads, func(ctx context.Context) error {
		return h.store.SaveAccess(ctx, to.ID, jti, sha256.Sum256([]byte(token)), tokenLife)
	})
	if errors.Is(err, registry.ErrReplayed) {
		return agent.ErrProof
	}
	if err != nil {
		return err
	}
	h.admission.rememberToken(token)
	return writeJSON(w, agent.Access{AccessToken: token, TokenType: "DPoP",
		ExpiresIn: int(tokenLife.Seconds())})
}

func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, invalid("the body is not a form")
	}
	body, err := readBody(w, r, smallBody)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, invalid("the body is not a form")
	}
	return form, nil
}

// assertionIn returns the assertion and its unverified subject. A duplicate parameter is rejected
// (RFC 6749 section 3.2).
func assertionIn(form url.Values) (assertion, id string, err error) {
	for _, values := range form {
		if len(values) > 1 {
			return "", "", invalid("duplicate parameter")
		}
	}
	if form.Get("grant_type") != grantType {
		r := invalid("grant_type is not " + grantType)
		r.oauth = "unsupported_grant_type"
		return "", "", r
	}
	if form.Get("client_assertion_type") != assertionType {
		return "", "", agent.ErrProof
	}
	assertion = form.Get("client_assertion")
	id, err = agent.AssertedAgent(assertion)
	return assertion, id, err
}

// rotate replaces the keys: the old keys sign the request, the new ones prove possession. It ends
// the streams on this replica that were opened with the old keys; the agent ends those on other
// replicas.
func (h *Hub) rotate(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.authenticatePost(w, r, agent.PathKeys, smallBody)
	if err != nil {
		return err
	}
	var asked agent.Rotate
	if err := decode(body, &asked); err != nil {
		return err
	}
	if err := agent.CheckKeys(asked.Keys); err != nil {
		return invalid(err.Error())
	}
	old := who.Keys.Thumb()
	if err := agent.CheckRotation(asked.Proof, asked.Keys, old, h.now()); err != nil {
		return err
	}
	var rotated registry.Agent
	err = h.withTimeout(r.Context(), h.admission.unknownReads,
		func(ctx context.Context) (err error) {
			rotated, err = h.store.RotateAgent(ctx, who.ID, old, asked.Keys)
			return err
		})
	switch {
	case errors.Is(err, registry.ErrReplayed):
		return refused(http.StatusConflict, agent.CodeReplay, "the keys have changed meanwhile",
			"request an access token with the newest keys")
	case errors.Is(err, mirror.ErrNotFound):
		return agent.ErrProof
	case err != nil:
		return err
	}
	h.feed.end(who.ID, agent.GoAway{Code: agent.CodeRenew, Message: "the keys were rotated"})
	h.log.InfoContext(r.Context(), "an agent has rotated its keys", "engine", rotated.Engine,
		"agent", rotated.ID)
	return h.joinedAs(w, rotated)
}

// replayCache remembers the proofs that this replica has verified, for as long as they are valid.
// It has two generations of that length and drops the older one as a whole. It remembers only
// verified proofs, and a bounded number per agent, so that the number of agents bounds its size.
// Other replicas do not share it: the store remembers the proofs that open sessions, and other
// requests are idempotent.
type replayCache struct {
	now func() time.Time

	mu         sync.Mutex
	rotatedAt  time.Time
	young, old map[[16]byte]struct{}
	count      map[string]int // entries of young, by agent
}

const (
	replayWindow = 2*agent.Window + 5*time.Second
	maxProofs    = 5000 // proofs of one agent within replayWindow: forty per second
)

func newReplayCache(now func() time.Time) *replayCache {
	return &replayCache{now: now, young: map[[16]byte]struct{}{}, count: map[string]int{},
		rotatedAt: now()}
}

// add remembers a proof, and rejects one that was used before.
func (s *replayCache) add(agentID, proof string) error {
	var key [16]byte
	sum := sha256.Sum256([]byte(agentID + "\x00" + proof))
	copy(key[:], sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate()
	_, young := s.young[key]
	_, old := s.old[key]
	switch {
	case young || old:
		return replayedRequest()
	case s.count[agentID] >= maxProofs:
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"this agent sends too many requests",
			"wait for the time in Retry-After")
		r.after = replayWindow
		return r
	}
	s.young[key] = struct{}{}
	s.count[agentID]++
	return nil
}

func replayedRequest() *refusal {
	return refused(http.StatusUnauthorized, agent.CodeReplay, "this request was received before",
		"make a new proof for each request")
}

func (s *replayCache) rotate() {
	now := s.now()
	switch age := now.Sub(s.rotatedAt); {
	case age >= 2*replayWindow:
		s.old = nil
	case age >= replayWindow || age < 0:
		s.old = s.young
	default:
		return
	}
	s.young, s.count, s.rotatedAt = map[[16]byte]struct{}{}, map[string]int{}, now
}
