package agent

import (
	"bytes"
	"errors"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
)

var canary = fleet.NewSecret(map[string][]byte{"username": []byte("u"),
	"password": []byte("canary-5f1d"), "empty": {}})

func row(name string) fleet.ObjectKey {
	return fleet.ObjectKey{Engine: "acme.edge", Kind: fleet.ObjectRepository, Name: name}
}

func TestASealedCredentialOpensForItsAgentAndObject(t *testing.T) {
	keys := newKeys(t)
	sealed, err := Seal(keys.Public(), row("repo-1"), canary)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("canary")) || bytes.Contains(sealed, []byte("password")) {
		t.Error("the credential can be read")
	}
	got, err := Open(keys, row("repo-1"), sealed)
	if err != nil || got.Fingerprint("x") != canary.Fingerprint("x") {
		t.Fatalf("another content, or %v", err)
	}
	again, err := Seal(keys.Public(), row("repo-1"), canary)
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("sealed twice it is the same, or %v", err)
	}
}

func TestASealedCredentialDoesNotOpenForAnotherObject(t *testing.T) {
	keys := newKeys(t)
	sealed, err := Seal(keys.Public(), row("repo-1"), canary)
	if err != nil {
		t.Fatal(err)
	}
	for name, about := range map[string]fleet.ObjectKey{
		"another name":   row("repo-2"),
		"another engine": {Engine: "globex.edge", Kind: fleet.ObjectRepository, Name: "repo-1"},
		"another kind":   {Engine: "acme.edge", Kind: fleet.ObjectCluster, Name: "repo-1"},
		"parts shifted":  {Engine: "acme.edgeR", Kind: "epository", Name: "repo-1"},
	} {
		if _, err := Open(keys, about, sealed); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v, want ErrSealed", name, err)
		}
	}
	if _, err := Open(newKeys(t), row("repo-1"), sealed); !errors.Is(err, ErrSealed) {
		t.Errorf("another agent: %v", err)
	}
	if _, err := Open(PrivateKeys{}, row("repo-1"), sealed); !errors.Is(err, ErrSealed) {
		t.Errorf("no keys: %v", err)
	}
	resigned := keys
	resigned.sign = newKeys(t).sign
	if _, err := Open(resigned, row("repo-1"), sealed); !errors.Is(err, ErrSealed) {
		t.Errorf("another signing key beside the same sealing key: %v", err)
	}
}

func TestADamagedCredentialDoesNotOpen(t *testing.T) {
	keys := newKeys(t)
	sealed, err := Seal(keys.Public(), row("a"), canary)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 0x40
		if _, err := Open(keys, row("a"), damaged); !errors.Is(err, ErrSealed) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := Open(keys, row("a"), sealed[:i]); !errors.Is(err, ErrSealed) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestAnEmptyCredentialIsNeitherSealedNorOpened(t *testing.T) {
	keys := newKeys(t)
	if _, err := Seal(keys.Public(), row("a"), fleet.Secret{}); err == nil {
		t.Error("sealed nothing")
	}
	if _, err := Seal(registry.Keys{}, row("a"), canary); err == nil {
		t.Error("sealed without a recipient")
	}
	if _, err := Seal(registry.Keys{Seal: make([]byte, 32)}, row("a"), canary); err == nil {
		t.Error("sealed to a point of low order, which everybody can open")
	}
}

func FuzzOpen(f *testing.F) {
	keys := newKeys(f)
	sealed, _ := Seal(keys.Public(), row("a"), canary)
	f.Add(sealed)
	f.Add([]byte{sealVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Open(keys, row("a"), b)
		if err == nil && got.IsZero() {
			t.Error("an empty credential was taken")
		}
	})
}
