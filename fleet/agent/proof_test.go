package agent

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newKeys(t testing.TB) PrivateKeys {
	t.Helper()
	keys, err := NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestAnAssertionIsValidOnlyForItsAgentAudienceAndTime(t *testing.T) {
	keys, other := newKeys(t), newKeys(t)
	raw, err := Assertion(keys, "agent-1", "https://hub.example", noon)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := AssertedAgent(raw); err != nil || id != "agent-1" {
		t.Fatalf("AssertedAgent = %q, %v", id, err)
	}
	if id, err := CheckAssertion(raw, keys.Public(), "agent-1", "https://hub.example",
		noon); err != nil || len(id) != 22 {
		t.Fatalf("CheckAssertion = %q, %v", id, err)
	}
	for name, c := range map[string]struct {
		keys            PrivateKeys
		agent, audience string
		at              time.Time
		want            error
	}{
		"another key":   {other, "agent-1", "https://hub.example", noon, ErrProof},
		"another agent": {keys, "agent-2", "https://hub.example", noon, ErrProof},
		"another hub":   {keys, "agent-1", "https://hub2.example", noon, ErrProof},
		"too old": {keys, "agent-1", "https://hub.example",
			noon.Add(Window + time.Second), ErrClock},
		"of the future": {keys, "agent-1", "https://hub.example",
			noon.Add(-Window - time.Second), ErrClock},
		"two hours off": {keys, "agent-1", "https://hub.example", noon.Add(2 * time.Hour),
			ErrClock},
		"other key, too old": {other, "agent-1", "https://hub.example", noon.Add(2 * time.Hour),
			ErrProof},
		"other hub, too old": {keys, "agent-1", "https://hub2.example", noon.Add(2 * time.Hour),
			ErrProof},
		"at the window's end": {keys, "agent-1", "https://hub.example", noon.Add(Window), nil},
	} {
		if _, err := CheckAssertion(raw, c.keys.Public(), c.agent, c.audience, c.at); !errors.Is(
			err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestAnAssertionMayNotLastLongerThanTheWindow(t *testing.T) {
	keys := newKeys(t)
	for ends, want := range map[time.Duration]error{Window: nil, Window + time.Second: ErrProof,
		0: ErrProof, -time.Second: ErrProof} {
		s := statement{Issuer: "a", Subject: "a", Audience: "https://hub",
			Ends: noon.Add(ends).Unix()}
		raw, err := s.sign(keys, typAssertion, noon)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckAssertion(raw, keys.Public(), "a", "https://hub", noon); !errors.Is(err,
			want) {
			t.Errorf("exp %v after iat: %v, want %v", ends, err, want)
		}
	}
}

func TestAProofIsValidForOneRequestOnly(t *testing.T) {
	keys := newKeys(t)
	body := []byte(`{"seq":1}`)
	raw, err := Prove(keys, http.MethodPost, PathStatus, "token", body, noon)
	if err != nil {
		t.Fatal(err)
	}
	check := func(method, path, token string, body []byte) error {
		_, err := CheckProof(raw, keys.Public(), method, path, token, body, noon)
		return err
	}
	if err := check(http.MethodPost, PathStatus, "token", body); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"method": check(http.MethodPut, PathStatus, "token", body),
		"path":   check(http.MethodPost, PathKeys, "token", body),
		"token":  check(http.MethodPost, PathStatus, "token2", body),
		"body":   check(http.MethodPost, PathStatus, "token", []byte(`{"seq":2}`)),
	} {
		if !errors.Is(err, ErrProof) {
			t.Errorf("another %s: %v, want ErrProof", name, err)
		}
	}
	if _, err := CheckProof(raw, newKeys(t).Public(), http.MethodPost, PathStatus, "token", body,
		noon); !errors.Is(err, ErrProof) {
		t.Errorf("another key: %v", err)
	}
}

func TestNoTwoProofsHaveOneID(t *testing.T) {
	keys, seen := newKeys(t), map[string]bool{}
	for range 100 {
		raw, _ := Prove(keys, "GET", PathStream, "t", nil, noon)
		id, err := CheckProof(raw, keys.Public(), "GET", PathStream, "t", nil, noon)
		if err != nil || seen[id] {
			t.Fatalf("id %q again, or %v", id, err)
		}
		seen[id] = true
	}
}

func TestNoKindOfProofIsAcceptedAsAnother(t *testing.T) {
	keys := newKeys(t)
	assertion, _ := Assertion(keys, "a", "https://hub", noon)
	proof, _ := Prove(keys, "", "", "", nil, noon)
	rotation, _ := ProveRotation(keys, "old", noon)
	for name, raw := range map[string]string{"proof": proof, "rotation": rotation} {
		if _, err := CheckAssertion(raw, keys.Public(), "", "", noon); !errors.Is(err, ErrProof) {
			t.Errorf("a %s passes for an assertion: %v", name, err)
		}
	}
	for name, raw := range map[string]string{"assertion": assertion, "rotation": rotation} {
		if _, err := CheckProof(raw, keys.Public(), "", "", "", nil, noon); !errors.Is(err,
			ErrProof) {
			t.Errorf("an %s passes for a proof: %v", name, err)
		}
	}
	for name, raw := range map[string]string{"assertion": assertion, "proof": proof} {
		if err := CheckRotation(raw, keys.Public(), "old", noon); !errors.Is(err, ErrProof) {
			t.Errorf("an %s passes for a rotation: %v", name, err)
		}
	}
}

func TestARotationIsProvenByTheNewKeysOverTheOld(t *testing.T) {
	old, fresh := newKeys(t), newKeys(t)
	raw, err := ProveRotation(fresh, old.Public().Thumb(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckRotation(raw, fresh.Public(), old.Public().Thumb(), noon); err != nil {
		t.Fatal(err)
	}
	mixed := registry.Keys{Sign: fresh.Public().Sign, Seal: old.Public().Seal}
	for name, err := range map[string]error{
		"other old keys":    CheckRotation(raw, fresh.Public(), fresh.Public().Thumb(), noon),
		"other sealing key": CheckRotation(raw, mixed, old.Public().Thumb(), noon),
		"other signing key": CheckRotation(raw, old.Public(), old.Public().Thumb(), noon),
	} {
		if !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
	if err := CheckRotation(raw, fresh.Public(), old.Public().Thumb(),
		noon.Add(2*time.Hour)); !errors.Is(err, ErrClock) {
		t.Errorf("two hours later: %v, want ErrClock", err)
	}
}

// forge signs arbitrary claims, or omits the signature.
func forge(t *testing.T, keys PrivateKeys, method jwt.SigningMethod, key any, header map[string]any,
	claims statement) string {
	t.Helper()
	token := jwt.NewWithClaims(method, &claims)
	token.Header["typ"] = typProof
	for k, v := range header {
		token.Header[k] = v
	}
	if key == nil {
		key = *keys.sign
	}
	raw, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestForgedProofsAreRejected(t *testing.T) {
	keys := newKeys(t)
	sound := statement{ID: strings.Repeat("x", 22), Made: noon.Unix(), Method: "GET",
		Path: PathStream, Token: digest64([]byte("t")), Body: digest64(nil)}
	with := func(change func(*statement)) statement { s := sound; change(&s); return s }
	public := keys.Public().Sign
	check := func(raw string) error {
		_, err := CheckProof(raw, keys.Public(), "GET", PathStream, "t", nil, noon)
		return err
	}
	if err := check(forge(t, keys, jwt.SigningMethodEdDSA, nil, nil, sound)); err != nil {
		t.Fatalf("the sound one: %v", err)
	}
	for name, raw := range map[string]string{
		"alg none": forge(t, keys, jwt.SigningMethodNone,
			jwt.UnsafeAllowNoneSignatureType, nil, sound),
		"public key as HMAC": forge(t, keys, jwt.SigningMethodHS256, public, nil, sound),
		"alg renamed": forge(t, keys, jwt.SigningMethodEdDSA, nil, map[string]any{
			"alg": "HS256"}, sound),
		"typ JWT": forge(t, keys, jwt.SigningMethodEdDSA, nil, map[string]any{
			"typ": "JWT"}, sound),
		"typ no text": forge(t, keys, jwt.SigningMethodEdDSA, nil, map[string]any{
			"typ": []string{typProof}}, sound),
		"critical extensions": forge(t, keys, jwt.SigningMethodEdDSA, nil, map[string]any{
			"crit": []string{"b64"}}, sound),
		"no id": forge(t, keys, jwt.SigningMethodEdDSA, nil, nil,
			with(func(s *statement) { s.ID = "" })),
		"short id": forge(t, keys, jwt.SigningMethodEdDSA, nil, nil,
			with(func(s *statement) { s.ID = "1" })),
		"long id": forge(t, keys, jwt.SigningMethodEdDSA, nil, nil,
			with(func(s *statement) { s.ID = strings.Repeat("x", 65) })),
		"id with a newline": forge(t, keys, jwt.SigningMethodEdDSA, nil, nil,
			with(func(s *statement) { s.ID = strings.Repeat("x", 20) + "\n" })),
		"too large": forge(t, keys, jwt.SigningMethodEdDSA, nil, nil,
			with(func(s *statement) { s.Audience = strings.Repeat("x", maxProof) })),
		"cut":   forge(t, keys, jwt.SigningMethodEdDSA, nil, nil, sound)[:100],
		"empty": "",
	} {
		if err := check(raw); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
}

func TestInvalidKeysProveNothing(t *testing.T) {
	keys := newKeys(t)
	raw, _ := Prove(keys, "GET", PathStream, "t", nil, noon)
	for _, k := range []registry.Keys{{}, {Sign: make([]byte, 31)},
		{Sign: make([]byte, ed25519.PublicKeySize)}} {
		if _, err := CheckProof(raw, k, "GET", PathStream, "t", nil, noon); !errors.Is(err,
			ErrProof) {
			t.Errorf("keys %x: %v", k.Sign, err)
		}
	}
	if _, err := Prove(PrivateKeys{}, "GET", PathStream, "t", nil, noon); err == nil {
		t.Error("no keys made a proof")
	}
}

func TestPublicKeysAreValidatedOnReceipt(t *testing.T) {
	good := newKeys(t).Public()
	if err := CheckKeys(good); err != nil {
		t.Fatal(err)
	}
	one := append([]byte{1}, make([]byte, 31)...) // of order 4
	for name, k := range map[string]registry.Keys{
		"none":              {},
		"short signing key": {Sign: good.Sign[:31], Seal: good.Seal},
		"short sealing key": {Sign: good.Sign, Seal: good.Seal[:31]},
		"sealing key zero":  {Sign: good.Sign, Seal: make([]byte, 32)},
		"low order":         {Sign: good.Sign, Seal: one},
	} {
		if CheckKeys(k) == nil {
			t.Errorf("%s passes for keys", name)
		}
	}
}

func TestPrivateKeysHaveNoPrintableForm(t *testing.T) {
	keys := newKeys(t)
	seed := keys.sign.Seed()
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "keys", keys, "in", struct {
		K PrivateKeys
	}{keys})
	_, jsonErr := json.Marshal(keys)
	_, inside := json.Marshal(map[string]any{"k": keys})
	if jsonErr == nil || inside == nil {
		t.Error("private keys were written as JSON")
	}
	for _, text := range []string{fmt.Sprint(keys), fmt.Sprintf("%+v", keys),
		fmt.Sprintf("%#v", keys), fmt.Sprintf("%x", keys),
		fmt.Sprintf("%v", struct{ K PrivateKeys }{keys}), log.String()} {
		for _, form := range []string{string(seed), fmt.Sprint(seed), fmt.Sprintf("%x", seed),
			base64.StdEncoding.EncodeToString(seed)} {
			if strings.Contains(text, form) {
				t.Errorf("the key appears in %q", text)
			}
		}
		if !strings.Contains(text, redacted) && !strings.Contains(text, "no JSON form") {
			t.Errorf("not redacted: %q", text)
		}
	}
	if text := fmt.Sprintf("%v %+v", struct{ k PrivateKeys }{keys}, &struct {
		k PrivateKeys
	}{keys}); strings.Contains(text, fmt.Sprint(seed[0])+" "+fmt.Sprint(seed[1])) {
		t.Errorf("the key appears in %q", text)
	}
}

func TestKeysSurviveTheSecret(t *testing.T) {
	keys := newKeys(t)
	back, err := ParseKeys(keys.Marshal())
	if err != nil || back.Public().Thumb() != keys.Public().Thumb() {
		t.Fatalf("other keys, or %v", err)
	}
	sealed, err := Seal(keys.Public(), row("a"), canary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(back, row("a"), sealed); err != nil {
		t.Error(err)
	}
	for name, values := range map[string]map[string][]byte{
		"nothing": nil, "one only": {secretSign: keys.sign.Seed()},
		"short": {secretSign: {1}, secretSeal: keys.seal.Bytes()},
	} {
		if got, err := ParseKeys(fleet.NewSecret(values)); err == nil || !got.IsZero() {
			t.Errorf("%s gave keys", name)
		}
	}
}

func TestAudiencesAreNormalized(t *testing.T) {
	for in, want := range map[string]string{
		"https://hub.example":            "https://hub.example",
		"https://HUB.example:443/argosy": "https://hub.example",
		"https://hub.example:8443/":      "https://hub.example:8443",
		"http://127.0.0.1:80":            "http://127.0.0.1",
		"http://127.0.0.1:8080?x#y":      "http://127.0.0.1:8080",
	} {
		if got, err := Audience(in); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "hub.example", "ftp://hub", "https://", "https://u:p@hub",
		"https://hub\n"} {
		if got, err := Audience(in); err == nil {
			t.Errorf("%q passes as %q", in, got)
		}
	}
}

func FuzzCheckProof(f *testing.F) {
	keys := newKeys(f)
	sound, _ := Prove(keys, "GET", PathStream, "t", nil, noon)
	f.Add(sound)
	f.Add("e30.e30.")
	f.Add(strings.Repeat("a.", 5000))
	assertion, _ := Assertion(keys, "a", "https://hub", noon)
	f.Add(assertion)
	head, _, _ := strings.Cut(sound, ".")
	f.Fuzz(func(t *testing.T, raw string) {
		id, err := CheckProof(raw, keys.Public(), "GET", PathStream, "t", nil, noon)
		if err == nil && (!validID(id) || !strings.HasPrefix(raw, head)) {
			t.Errorf("%q holds with id %q", raw, id)
		}
		// the last character of a signature has unused bits
		if err == nil && raw[:len(raw)-2] != sound[:len(sound)-2] {
			t.Errorf("%q holds and was never made", raw)
		}
		if agent, err := AssertedAgent(raw); err == nil && !validID(agent) {
			t.Errorf("agent %q", agent)
		}
	})
}
