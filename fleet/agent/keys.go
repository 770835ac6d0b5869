package agent

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
)

// PrivateKeys authenticate an agent. They are generated on its cluster and never leave it. Like
// fleet.Secret they have no printable form.
type PrivateKeys struct {
	// pointers: fmt cannot call Format on an unexported field, and would print the keys as values
	sign *ed25519.PrivateKey
	seal *ecdh.PrivateKey
}

// Keys of the agent's own Secret.
const (
	secretSign = "sign.ed25519" // 32-byte seed
	secretSeal = "seal.x25519"  // 32 bytes
)

// NewKeys makes a pair of private keys.
func NewKeys() (PrivateKeys, error) {
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKeys{}, fmt.Errorf("signing key: %w", err)
	}
	seal, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKeys{}, fmt.Errorf("sealing key: %w", err)
	}
	return PrivateKeys{sign: &sign, seal: seal}, nil
}

// IsZero reports whether there are no keys.
func (k PrivateKeys) IsZero() bool { return k.sign == nil }

// Public returns the public keys that the hub stores for the agent. It panics without keys.
func (k PrivateKeys) Public() registry.Keys {
	return registry.Keys{Sign: k.sign.Public().(ed25519.PublicKey),
		Seal: k.seal.PublicKey().Bytes()}
}

// Marshal returns the content of the agent's Secret on its own cluster.
func (k PrivateKeys) Marshal() fleet.Secret {
	return fleet.NewSecret(map[string][]byte{secretSign: k.sign.Seed(), secretSeal: k.seal.Bytes()})
}

// ParseKeys reads the output of Marshal. It ignores other keys of the Secret.
func ParseKeys(from fleet.Secret) (PrivateKeys, error) {
	seed := from.Value(secretSign)
	if len(seed) != ed25519.SeedSize {
		return PrivateKeys{},
			fmt.Errorf("%s of the agent's Secret is not an Ed25519 seed of %d bytes; join again",
				secretSign, ed25519.SeedSize)
	}
	seal, err := ecdh.X25519().NewPrivateKey(from.Value(secretSeal))
	if err != nil {
		// the wrapped error could contain the key
		return PrivateKeys{},
			fmt.Errorf("%s of the agent's Secret is not an X25519 key; join again",
				secretSeal)
	}
	sign := ed25519.NewKeyFromSeed(seed)
	return PrivateKeys{sign: &sign, seal: seal}, nil
}

// CheckKeys validates public keys from a client. It rejects a point of low order, which yields no
// shared secret (RFC 7748 section 6.1), here rather than when the first credential is sealed.
func CheckKeys(k registry.Keys) error {
	if len(k.Sign) != ed25519.PublicKeySize {
		return fmt.Errorf("the signing key is not an Ed25519 key of %d bytes",
			ed25519.PublicKeySize)
	}
	seal, err := ecdh.X25519().NewPublicKey(k.Seal)
	if err != nil {
		return errors.New("the sealing key is not an X25519 key of 32 bytes")
	}
	probe, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("sealing key: %w", err)
	}
	if _, err := probe.ECDH(seal); err != nil {
		return errors.New("the sealing key is a point of low order; make new keys")
	}
	return nil
}

const redacted = "redacted"

// Format writes "redacted" for every verb.
func (k PrivateKeys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns "redacted".
func (k PrivateKeys) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON fails: see Marshal.
func (k PrivateKeys) MarshalJSON() ([]byte, error) {
	return nil, errors.New("an agent's private keys have no JSON form")
}

// MarshalText fails: see Marshal.
func (k PrivateKeys) MarshalText() ([]byte, error) {
	return nil, errors.New("an agent's private keys have no text form")
}
