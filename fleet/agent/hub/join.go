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

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

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
	if err := h.admitUnknown(r, h.joins, h.joinsOf, h.limits.JoinRate); err != nil {
		return err
	}
	var joined registry.Agent
	err = h.withTimeout(r.Context(), h.unknownReads, func(ctx context.Context) (err error) {
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
	by, err := h.admitAssertion(r, assertion, id)
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
	h.rememberAgent(known)
	return h.grant(w, r, known, jti)
}

func (h *Hub) grant(w http.ResponseWriter, r *http.Request, to registry.Agent, jti string) error {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	err := h.withTimeout(r.Context(), h.knownReads, func(ctx context.Context) error {
		return h.store.SaveAccess(ctx, to.ID, jti, sha256.Sum256([]byte(token)), tokenLife)
	})
	if errors.Is(err, registry.ErrReplayed) {
		return agent.ErrProof
	}
	if err != nil {
		return err
	}
	h.rememberToken(token)
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
	err = h.withTimeout(r.Context(), h.unknownReads, func(ctx context.Context) (err error) {
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
