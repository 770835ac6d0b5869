package fleet

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const canary = "canary-7f3a9c"

func canarySecret() Secret { return NewSecret(map[string][]byte{"token": []byte(canary)}) }

func TestSecretShowsNothing(t *testing.T) {
	s := canarySecret()
	type inner struct {
		Name   string
		Secret Secret
		Ptr    *Secret
	}
	holder := inner{"n", s, &s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T %v"} {
		if verb == "%T %v" {
			fmt.Fprintf(&out, verb, s, s)
			continue
		}
		fmt.Fprintf(&out, verb, s)
		fmt.Fprintf(&out, verb, &s)
		fmt.Fprintf(&out, verb, holder)
		fmt.Fprintf(&out, verb, []Secret{s})
		fmt.Fprintf(&out, verb, map[string]Secret{"a": s})
	}
	fmt.Fprint(&out, fmt.Errorf("wrapped: %v", s))
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "secret", s, "holder", holder)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "secret", s, "holder", holder)
	if j, err := json.Marshal(holder); err == nil {
		t.Errorf("a struct with a secret became JSON: %s", j)
	}
	if x, err := xml.Marshal(holder); err == nil {
		t.Errorf("a struct with a secret became XML: %s", x)
	}
	if err := gob.NewEncoder(&out).Encode(s); err == nil {
		t.Error("gob encoded a secret")
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprint([]byte(canary)),
		"Y2FuYXJ5"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret shows as %q in %s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed at all")
	}
}

func TestSecretIsACopy(t *testing.T) {
	value := []byte(canary)
	s := NewSecret(map[string][]byte{"token": value})
	clear(value)
	if got := s.Value("token"); string(got) != canary {
		t.Errorf("wiping the caller's bytes changed the secret to %q", got)
	}
}

func TestSecretFingerprint(t *testing.T) {
	of := func(kv ...string) string {
		m := map[string][]byte{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = []byte(kv[i+1])
		}
		return NewSecret(m).Fingerprint("acme/x")
	}
	if of("a", "1", "b", "2") != of("b", "2", "a", "1") {
		t.Error("the order of the values matters")
	}
	if canarySecret().Fingerprint("acme/x") == canarySecret().Fingerprint("globex/x") {
		t.Error("equal secrets of two tenants have one fingerprint")
	}
	seen := map[string]bool{}
	for _, f := range []string{of(), of("a", ""), of("a", "1"), of("a", "1b"), of("a1", "b"),
		of("a", "1", "b", ""), of("a", "2")} {
		if seen[f] {
			t.Error("two secrets have one fingerprint")
		}
		seen[f] = true
	}
}
