package hub

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"net/url"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

const (
	shortestToken = 16  // characters of a one-time token; the store judges what is in it
	longestToken  = 256 // likewise
	longestUID    = 64
)

// join swaps a one-time token for an identity.
func (h *Hub) join(w http.ResponseWriter, r *http.Request) error {
	body, err := read(w, r, smallBody)
	if err != nil {
		return err
	}
	var asked agent.Join
	if err := decode(body, &asked); err != nil {
		return err
	}
	if err := soundJoin(asked); err != nil {
		return invalid(err.Error())
	}
	proof, ok := one(r, agent.HeaderProof)
	if !ok {
		return agent.ErrProof
	}
	if _, err := agent.CheckProof(proof, asked.Keys, http.MethodPost, agent.PathJoin, "", body,
		h.now()); err != nil {
		return err
	}
	if err := h.stranger(r, h.joins, h.joinsOf, h.limits.JoinRate); err != nil {
		return err
	}
	var joined fleet.Agent
	err = h.briefly(r.Context(), h.asks, func(ctx context.Context) (err error) {
		joined, err = h.store.JoinAgent(ctx, asked.Token, fleet.AgentJoin{
			Keys: asked.Keys, ClusterUID: asked.ClusterUID, Version: asked.Version})
		return err
	})
	switch {
	case errors.Is(err, fleet.ErrUsed):
		return refused(http.StatusConflict, agent.CodeUsed,
			"the token was used before, by other keys",
			"see `argosy get agents` for who joined with it, and make a new token")
	case errors.Is(err, fleet.ErrNotFound):
		return refused(http.StatusUnauthorized, agent.CodeToken,
			"the token is not valid: unknown, expired or revoked, or what it was made for is gone",
			"make a token with `argosy agent token create`")
	case err != nil:
		return withoutToken(err, asked.Token)
	}
	h.log.InfoContext(r.Context(), "an agent has joined", "engine", joined.Engine, "agent",
		joined.ID)
	return h.joinedAs(w, joined)
}

func soundJoin(j agent.Join) error {
	if len(j.Token) < shortestToken || len(j.Token) > longestToken {
		return errors.New("the token is none: it has 16 to 256 characters")
	}
	if len(j.ClusterUID) > longestUID || plain(j.ClusterUID, longestUID) != j.ClusterUID {
		return errors.New("clusterUID is not the UID of a namespace")
	}
	if !agent.SoundVersion(j.Version) {
		return errors.New("version is none")
	}
	return agent.CheckKeys(j.Keys)
}

func (h *Hub) joinedAs(w http.ResponseWriter, a fleet.Agent) error {
	return writeJSON(w, agent.Joined{Agent: a.ID, Engine: a.Engine, ExpiresAt: a.ExpiresAt.UTC(),
		Time: h.now().UTC()})
}

const (
	grantType     = "client_credentials"
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// token swaps an assertion for an access token (RFC 7523, RFC 6749). Whatever is wrong with the
// assertion has one answer; what has become of the identity is told to who holds its key.
func (h *Hub) token(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(w, r)
	if err != nil {
		return err
	}
	assertion, id, err := assertionIn(form)
	if err != nil {
		return err
	}
	by, err := h.admit(r, assertion, id)
	if err != nil {
		return err
	}
	var known fleet.Agent
	err = h.briefly(r.Context(), by, func(ctx context.Context) (err error) {
		known, err = h.store.Agent(ctx, id)
		return err
	})
	over := ended(err)
	switch {
	case errors.Is(err, fleet.ErrNotFound):
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
	h.remember(known)
	return h.grant(w, r, known, jti)
}

func (h *Hub) grant(w http.ResponseWriter, r *http.Request, to fleet.Agent, jti string) error {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	err := h.briefly(r.Context(), h.knownAsks, func(ctx context.Context) error {
		return h.store.SaveAccess(ctx, to.ID, jti, sha256.Sum256([]byte(token)), tokenLife)
	})
	if errors.Is(err, fleet.ErrReplayed) {
		return agent.ErrProof
	}
	if err != nil {
		return err
	}
	h.accepted(token)
	return writeJSON(w, agent.Access{AccessToken: token, TokenType: "DPoP",
		ExpiresIn: int(tokenLife.Seconds())})
}

func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, invalid("the body is no form")
	}
	body, err := read(w, r, smallBody)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, invalid("the body is no form")
	}
	return form, nil
}

// assertionIn is the assertion, and whom it says to be from. A parameter that stands twice is
// refused (RFC 6749 section 3.2).
func assertionIn(form url.Values) (assertion, id string, err error) {
	for _, values := range form {
		if len(values) > 1 {
			return "", "", invalid("a parameter stands twice")
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

// rotate replaces the keys: the old ones prove the request, the new ones that they are whose who
// sent them. Streams that were opened with the old ones end here; elsewhere the agent ends its own.
func (h *Hub) rotate(w http.ResponseWriter, r *http.Request) error {
	who, body, err := h.proven(w, r, agent.PathKeys, smallBody)
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
	var rotated fleet.Agent
	err = h.briefly(r.Context(), h.asks, func(ctx context.Context) (err error) {
		rotated, err = h.store.RotateAgent(ctx, who.ID, old, asked.Keys)
		return err
	})
	switch {
	case errors.Is(err, fleet.ErrReplayed):
		return refused(http.StatusConflict, agent.CodeReplay, "the keys are others by now",
			"ask for an access token with the newest keys")
	case errors.Is(err, fleet.ErrNotFound):
		return agent.ErrProof
	case err != nil:
		return err
	}
	h.feed.end(who.ID, agent.Bye{Code: agent.CodeRenew, Message: "the keys were rotated"})
	h.log.InfoContext(r.Context(), "an agent has rotated its keys", "engine", rotated.Engine,
		"agent", rotated.ID)
	return h.joinedAs(w, rotated)
}
