package agent

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"argosy.dev/argosy/fleet"
)

// Window is how far the time of a proof may lie from the hub's, either way. An agent takes its time
// from the hub, so it is about the way between them, and not about the clock of its cluster.
const Window = time.Minute

// HeaderProof holds the proof of a request (RFC 9449 names the header, and the scheme "DPoP" of
// Authorization).
const HeaderProof = "DPoP"

// Errors of proofs. Nothing else is told apart: whoever cannot prove who it is learns nothing about
// why.
var (
	// ErrProof says that a proof does not hold.
	ErrProof = errors.New("the proof does not hold")
	// ErrClock says that a proof holds, but was made at another time than the hub's.
	ErrClock = errors.New(
		"the proof was made too long ago or in the future by the hub's clock; take the time " +
			"from its answers")
)

// The three things that an agent's key says, told apart by the type in the header, so that none
// passes for another.
const (
	typAssertion = "client-authentication+jwt"
	typProof     = "dpop+jwt"
	typRotation  = "argosy-rotation+jwt"

	maxProof = 4 << 10 // bytes, before anything is parsed
	maxID    = 64      // bytes of an identity and of a jti
)

// statement is the claims of all three.
type statement struct {
	Issuer   string `json:"iss,omitempty"`
	Subject  string `json:"sub,omitempty"`
	Audience string `json:"aud,omitempty"`
	ID       string `json:"jti"`
	Made     int64  `json:"iat"`
	Ends     int64  `json:"exp,omitempty"`
	Method   string `json:"htm,omitempty"`
	// and not htu: between agent and hub the host may have another name
	Path  string `json:"pth,omitempty"`
	Token string `json:"ath,omitempty"` // SHA-256 of the access token, base64url, as in RFC 9449
	Body  string `json:"bdy,omitempty"` // likewise of the body
	Thumb string `json:"old,omitempty"` // of the keys that are replaced
}

// Valid is asked by the parser; times are judged by check, with the hub's clock.
func (s *statement) Valid() error { return nil }

var parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
	jwt.WithoutClaimsValidation())

func (s *statement) sign(keys PrivateKeys, typ string, now time.Time) (string, error) {
	if keys.IsZero() {
		return "", errors.New("the agent has no keys; join first")
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	s.ID, s.Made = base64.RawURLEncoding.EncodeToString(id[:]), now.Unix()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, s)
	token.Header["typ"] = typ
	return token.SignedString(*keys.sign)
}

// check reads a statement of that type by these keys. Its time is judged last, so that ErrClock is
// only told to the key's holder.
func check(raw, typ string, keys fleet.AgentKeys, now time.Time) (*statement, error) {
	if len(raw) > maxProof || len(keys.Sign) != ed25519.PublicKeySize {
		return nil, ErrProof
	}
	var s statement
	token, err := parser.ParseWithClaims(raw, &s, func(*jwt.Token) (any, error) {
		return ed25519.PublicKey(keys.Sign), nil
	})
	if err != nil || token.Header["typ"] != typ || token.Header["crit"] != nil {
		return nil, ErrProof // the cause holds parts of what was sent
	}
	if !soundID(s.ID) || len(s.ID) < 16 {
		return nil, ErrProof
	}
	if made := time.Unix(s.Made, 0); made.Before(now.Add(-Window)) || made.After(now.Add(Window)) {
		return &s, ErrClock
	}
	return &s, nil
}

// soundID reports whether an identifier is short and of the characters of base64url, as all of ours
// are.
func soundID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' &&
			c != '_' {
			return false
		}
	}
	return true
}

func digest64(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Audience is what an assertion is made for: the hub's public URL without its path, in one form
// whoever wrote it.
func Audience(hub string) (string, error) {
	u, err := url.Parse(hub)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return "",
			errors.New(
				"the hub's URL is not of the form https://host; see `argosy agent join --help`")
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host, nil
}

// Assertion is how an agent asks for an access token (RFC 7523). Audience is that of Audience.
func Assertion(keys PrivateKeys, agentID, audience string, now time.Time) (string, error) {
	s := statement{Issuer: agentID, Subject: agentID, Audience: audience,
		Ends: now.Add(Window).Unix()}
	return s.sign(keys, typAssertion, now)
}

// AssertedAgent is who an assertion says it is from. Nothing of it is proven yet: it tells whose
// keys CheckAssertion is to be given.
func AssertedAgent(raw string) (string, error) {
	if len(raw) > maxProof {
		return "", ErrProof
	}
	var s statement
	if _, _, err := parser.ParseUnverified(raw, &s); err != nil || !soundID(s.Subject) {
		return "", ErrProof
	}
	return s.Subject, nil
}

// CheckAssertion judges an assertion and returns its id, which counts once.
func CheckAssertion(raw string, keys fleet.AgentKeys, agentID, audience string,
	now time.Time) (id string, err error) {
	s, err := check(raw, typAssertion, keys, now)
	if s == nil {
		return "", err
	}
	if s.Issuer != agentID || s.Subject != agentID || s.Audience != audience {
		return "", ErrProof
	}
	if err != nil {
		return "", err
	}
	if s.Ends <= s.Made || s.Ends-s.Made > int64(Window/time.Second) {
		return "", ErrProof
	}
	return s.ID, nil
}

// Prove is the proof of one request, for HeaderProof. The path is the protocol's (PathStatus, …),
// not that of a hub below another path. The access token is empty for PathJoin. The body is what is
// sent; a GET has Session.Bytes for one, so that its headers are proven too.
func Prove(keys PrivateKeys, method, path, accessToken string, body []byte, now time.Time) (string,
	error) {
	s := statement{Method: method, Path: path, Token: digest64([]byte(accessToken)),
		Body: digest64(body)}
	return s.sign(keys, typProof, now)
}

// CheckProof judges the proof of one request and returns its id, which counts once within twice
// Window.
func CheckProof(raw string, keys fleet.AgentKeys, method, path, accessToken string, body []byte,
	now time.Time) (id string, err error) {
	s, err := check(raw, typProof, keys, now)
	if s == nil {
		return "", err
	}
	if s.Method != method || s.Path != path || s.Token != digest64([]byte(accessToken)) ||
		s.Body != digest64(body) {
		return "", ErrProof
	}
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

// ProveRotation is a proof by the new keys that they replace the old ones: nobody registers keys
// that are not theirs.
func ProveRotation(fresh PrivateKeys, oldThumb string, now time.Time) (string, error) {
	s := statement{Thumb: oldThumb, Token: digest64([]byte(fresh.Public().Thumb()))}
	return s.sign(fresh, typRotation, now)
}

// CheckRotation judges what ProveRotation made.
func CheckRotation(raw string, fresh fleet.AgentKeys, oldThumb string, now time.Time) error {
	s, err := check(raw, typRotation, fresh, now)
	if s == nil {
		return err
	}
	if s.Thumb != oldThumb || s.Token != digest64([]byte(fresh.Thumb())) {
		return ErrProof
	}
	return err
}
