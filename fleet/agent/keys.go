package agent

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"argosy.dev/argosy/fleet"
)

// PrivateKeys are what an agent is known by: whoever holds them is the agent. They are made on its
// cluster and never leave it. Like fleet.Secret they have no printable form.
type PrivateKeys struct {
	// behind pointers, fmt shows neither even where it cannot call Format: in a field that is not
	// exported
	sign *ed25519.PrivateKey
	seal *ecdh.PrivateKey
}

// Names of the values in the agent's own Secret.
const (
	secretSign = "sign.ed25519" // seed, 32 bytes
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

// Public are the keys that the hub knows the agent by. There must be keys.
func (k PrivateKeys) Public() fleet.AgentKeys {
	return fleet.AgentKeys{Sign: k.sign.Public().(ed25519.PublicKey),
		Seal: k.seal.PublicKey().Bytes()}
}

// Marshal is what the agent keeps in the Secret on its own cluster.
func (k PrivateKeys) Marshal() fleet.Secret {
	return fleet.NewSecret(map[string][]byte{secretSign: k.sign.Seed(), secretSeal: k.seal.Bytes()})
}

// ParseKeys reads what Marshal wrote. Other values of the Secret are passed over.
func ParseKeys(from fleet.Secret) (PrivateKeys, error) {
	seed := from.Value(secretSign)
	if len(seed) != ed25519.SeedSize {
		return PrivateKeys{},
			fmt.Errorf("%s of the agent's Secret is no Ed25519 seed of %d bytes; join again",
				secretSign, ed25519.SeedSize)
	}
	seal, err := ecdh.X25519().NewPrivateKey(from.Value(secretSeal))
	if err != nil {
		// the cause could hold the key
		return PrivateKeys{}, fmt.Errorf("%s of the agent's Secret is no X25519 key; join again",
			secretSeal)
	}
	sign := ed25519.NewKeyFromSeed(seed)
	return PrivateKeys{sign: &sign, seal: seal}, nil
}

// CheckKeys says whether public keys that somebody sent are keys at all. One that leads to no
// shared secret with anybody (a point of low order, RFC 7748 section 6.1) is refused here rather
// than when the first credential is sealed to it.
func CheckKeys(k fleet.AgentKeys) error {
	if len(k.Sign) != ed25519.PublicKeySize {
		return fmt.Errorf("the signing key is no Ed25519 key of %d bytes", ed25519.PublicKeySize)
	}
	seal, err := ecdh.X25519().NewPublicKey(k.Seal)
	if err != nil {
		return errors.New("the sealing key is no X25519 key of 32 bytes")
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

// Format writes "redacted", whatever the verb.
func (k PrivateKeys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue is "redacted".
func (k PrivateKeys) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON refuses: see Marshal.
func (k PrivateKeys) MarshalJSON() ([]byte, error) {
	return nil, errors.New("an agent's private keys have no JSON form")
}

// MarshalText refuses likewise.
func (k PrivateKeys) MarshalText() ([]byte, error) {
	return nil, errors.New("an agent's private keys have no text form")
}
