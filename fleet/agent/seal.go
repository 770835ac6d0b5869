package agent

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/json"
	"errors"
	"fmt"

	"argosy.dev/argosy/fleet"
)

// sealVersion is the first byte of what is sealed: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// ChaCha20-Poly1305 in base mode (RFC 9180).
const sealVersion = 1

// sealInfo keeps this use of the key apart from any other.
const sealInfo = "argosy sealed credential"

// ErrSealed says that a sealed credential does not open: it is for other keys, for another row, or
// damaged.
var ErrSealed = errors.New(
	"the sealed credential does not open: it is not for this agent and this object, or is damaged")

var errEmptySecret = errors.New("an empty credential is never sent nor taken")

// Seal encrypts a credential to the agent's key for one object. Moved to another object, engine or
// agent it does not open. It tells nothing about who sealed it: whom the agent talks to is for TLS
// to prove.
func Seal(to fleet.AgentKeys, about fleet.ObjectKey, secret fleet.Secret) ([]byte, error) {
	if secret.IsZero() {
		return nil, errEmptySecret
	}
	point, err := ecdh.X25519().NewPublicKey(to.Seal)
	if err != nil {
		return nil, errors.New("the agent's sealing key is no X25519 key; it has to join again")
	}
	public, err := hpke.NewDHKEMPublicKey(point)
	if err != nil {
		return nil, fmt.Errorf("sealing key: %w", err)
	}
	enc, sender, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(),
		[]byte(sealInfo))
	if err != nil {
		return nil, fmt.Errorf("sealing key: %w", err)
	}
	values := map[string][]byte{}
	for _, k := range secret.Keys() {
		values[k] = secret.Value(k)
	}
	plain, err := json.Marshal(values)
	if err != nil {
		// the cause could hold it
		return nil, errors.New("the credential has no form that can be sealed")
	}
	sealed, err := sender.Seal(sealedTo(to, about), plain)
	clear(plain)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return bytes.Join([][]byte{{sealVersion}, enc, sealed}, nil), nil
}

// sealedTo is what a ciphertext is bound to, each part with its length before it.
func sealedTo(to fleet.AgentKeys, about fleet.ObjectKey) []byte {
	b := []byte{sealVersion}
	for _, part := range []string{string(about.Engine), string(about.Kind), about.Name,
		to.Thumb()} {
		b = appendPart(b, part)
	}
	return b
}

const encBytes = 32 // of an encapsulated X25519 key

// Open decrypts what Seal made for this agent and object. Every failure but an empty credential is
// ErrSealed.
func Open(keys PrivateKeys, about fleet.ObjectKey, sealed []byte) (fleet.Secret, error) {
	if keys.IsZero() || len(sealed) <= 1+encBytes || sealed[0] != sealVersion {
		return fleet.Secret{}, ErrSealed
	}
	private, err := hpke.NewDHKEMPrivateKey(keys.seal)
	if err != nil {
		return fleet.Secret{}, ErrSealed
	}
	recipient, err := hpke.NewRecipient(sealed[1:1+encBytes], private, hpke.HKDFSHA256(),
		hpke.ChaCha20Poly1305(), []byte(sealInfo))
	if err != nil {
		return fleet.Secret{}, ErrSealed
	}
	plain, err := recipient.Open(sealedTo(keys.Public(), about), sealed[1+encBytes:])
	if err != nil {
		return fleet.Secret{}, ErrSealed
	}
	defer clear(plain)
	var values map[string][]byte
	if err := json.Unmarshal(plain, &values); err != nil {
		return fleet.Secret{}, ErrSealed
	}
	if len(values) == 0 {
		return fleet.Secret{}, errEmptySecret
	}
	return fleet.NewSecret(values), nil
}
