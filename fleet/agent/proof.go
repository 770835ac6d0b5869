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

	"argosy.dev/argosy/fleet/agent/registry"
)

// Window bounds the difference between the time of a proof and the hub's time, in either direction.
// An agent takes its time from the hub, so Window covers the network latency and not the clock of
// the cluster.
const Window = time.Minute

// HeaderProof carries the proof of a request (RFC 9449 defines the header and the Authorization
// scheme "DPoP").
const HeaderProof = "DPoP"

// Errors of proofs. They distinguish nothing else: a caller that fails to prove its identity must
// not learn why.
var (
	// ErrProof reports an invalid proof.
	ErrProof = errors.New("the proof is invalid")
	// ErrClock reports a proof that is valid but too old or in the future.
	ErrClock = errors.New(
		"the proof's time is too far from the hub's clock; use the Date header of the hub's " +
			"from its answers")
)

// The three kinds of statements that an agent signs. The type in the header keeps one from being
// accepted as another.
const (
	typAssertion = "client-authentication+jwt"
	typProof     = "dpop+jwt"
	typRotation  = "argosy-rotation+jwt"

	maxProof = 4 << 10 // bytes, checked before parsing
	maxID    = 64      // bytes of an agent ID or a jti
)

// statement holds the claims of all three kinds.
type statement struct {
	Issuer   string `json:"iss,omitempty"`
	Subject  string `json:"sub,omitempty"`
	Audience string `json:"aud,omitempty"`
	ID       string `json:"jti"`
	Made     int64  `json:"iat"`
	Ends     int64  `json:"exp,omitempty"`
	Method   string `json:"htm,omitempty"`
	// not htu: the hub's host name may differ between agent and hub
	Path  string `json:"pth,omitempty"`
	Token string `json:"ath,omitempty"` // SHA-256 of the access token, base64url, as in RFC 9449
	Body  string `json:"bdy,omitempty"` // SHA-256 of the body, base64url
	Thumb string `json:"old,omitempty"` // thumbprint of the replaced keys
}

// Valid satisfies jwt.Claims. verify checks the times with the hub's clock.
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

// verify parses a statement of this type and verifies it with these keys. It checks the time last,
// so that only the key's holder sees ErrClock.
func verify(raw, typ string, keys registry.Keys, now time.Time) (*statement, error) {
	if len(raw) > maxProof || len(keys.Sign) != ed25519.PublicKeySize {
		return nil, ErrProof
	}
	var s statement
	token, err := parser.ParseWithClaims(raw, &s, func(*jwt.Token) (any, error) {
		return ed25519.PublicKey(keys.Sign), nil
	})
	if err != nil || token.Header["typ"] != typ || token.Header["crit"] != nil {
		return nil, ErrProof // the wrapped error contains parts of the input
	}
	if !validID(s.ID) || len(s.ID) < 16 {
		return nil, ErrProof
	}
	if made := time.Unix(s.Made, 0); made.Before(now.Add(-Window)) || made.After(now.Add(Window)) {
		return &s, ErrClock
	}
	return &s, nil
}

// validID reports whether an identifier has 1 to maxID characters of the base64url alphabet.
func validID(id string) bool {
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

// Audience returns the audience of an assertion: the hub's public URL without its path, normalized.
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

// Assertion signs a client assertion, with which an agent requests an access token (RFC 7523). The
// audience comes from Audience.
func Assertion(keys PrivateKeys, agentID, audience string, now time.Time) (string, error) {
	s := statement{Issuer: agentID, Subject: agentID, Audience: audience,
		Ends: now.Add(Window).Unix()}
	return s.sign(keys, typAssertion, now)
}

// AssertedAgent returns the unverified subject of an assertion. The caller needs it to find the
// keys for CheckAssertion.
func AssertedAgent(raw string) (string, error) {
	if len(raw) > maxProof {
		return "", ErrProof
	}
	var s statement
	if _, _, err := parser.ParseUnverified(raw, &s); err != nil || !validID(s.Subject) {
		return "", ErrProof
	}
	return s.Subject, nil
}

// CheckAssertion verifies an assertion and returns its ID, which may be used once.
func CheckAssertion(raw string, keys registry.Keys, agentID, audience string,
	now time.Time) (id string, err error) {
	s, err := verify(raw, typAssertion, keys, now)
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

// Prove signs the proof of one request, for HeaderProof. The path is the protocol's (PathStatus,
// …), without the prefix of a hub that is served below another path. The access token is empty for
// PathJoin. The body is the request's; for a GET it is Session.Bytes, so that the headers are
// signed too.
func Prove(keys PrivateKeys, method, path, accessToken string, body []byte, now time.Time) (string,
	error) {
	s := statement{Method: method, Path: path, Token: digest64([]byte(accessToken)),
		Body: digest64(body)}
	return s.sign(keys, typProof, now)
}

// CheckProof verifies the proof of one request and returns its ID, which may be used once within
// twice Window.
func CheckProof(raw string, keys registry.Keys, method, path, accessToken string, body []byte,
	now time.Time) (id string, err error) {
	s, err := verify(raw, typProof, keys, now)
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

// ProveRotation signs the replacement of the old keys with the new ones, so that a client cannot
// register keys that it does not hold.
func ProveRotation(fresh PrivateKeys, oldThumb string, now time.Time) (string, error) {
	s := statement{Thumb: oldThumb, Token: digest64([]byte(fresh.Public().Thumb()))}
	return s.sign(fresh, typRotation, now)
}

// CheckRotation verifies the output of ProveRotation.
func CheckRotation(raw string, fresh registry.Keys, oldThumb string, now time.Time) error {
	s, err := verify(raw, typRotation, fresh, now)
	if s == nil {
		return err
	}
	if s.Thumb != oldThumb || s.Token != digest64([]byte(fresh.Thumb())) {
		return ErrProof
	}
	return err
}
