package agent

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/json"
	"errors"
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
)

// sealVersion is the first byte of a sealed credential: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// ChaCha20-Poly1305 in base mode (RFC 9180).
const sealVersion = 1

// sealInfo separates this use of the key from any other.
const sealInfo = "argosy sealed credential"

// ErrSealed reports a sealed credential that does not open: it is for other keys or another row, or
// it is damaged.
var ErrSealed = errors.New(
	"the sealed credential does not open: it is not for this agent and this object, or is damaged")

var errEmptySecret = errors.New("the credential is empty")

// Seal encrypts a credential with the agent's public key for one object. It does not open for
// another object, engine or agent. It does not authenticate the sender: TLS does.
func Seal(to registry.Keys, about fleet.ObjectKey, secret fleet.Secret) ([]byte, error) {
	if secret.IsZero() {
		return nil, errEmptySecret
	}
	point, err := ecdh.X25519().NewPublicKey(to.Seal)
	if err != nil {
		return nil,
			errors.New("the agent's sealing key is not an X25519 key; the agent must join again")
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
		// the wrapped error could contain the secret
		return nil, errors.New("failed to encode the credential")
	}
	sealed, err := sender.Seal(sealedTo(to, about), plain)
	clear(plain)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return bytes.Join([][]byte{{sealVersion}, enc, sealed}, nil), nil
}

// sealedTo returns the associated data of a ciphertext: its parts, length-prefixed.
func sealedTo(to registry.Keys, about fleet.ObjectKey) []byte {
	b := []byte{sealVersion}
	for _, part := range []string{string(about.Engine), string(about.Kind), about.Name,
		to.Thumb()} {
		b = appendPart(b, part)
	}
	return b
}

const encBytes = 32 // of an encapsulated X25519 key

// Open decrypts the output of Seal for this agent and object. Every failure except an empty
// credential is ErrSealed.
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
