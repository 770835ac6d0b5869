package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// Secret is the content of a credential: named values. It has no printable form: fmt, encoding/json
// and log/slog all print "redacted", and only Value returns the values. The zero Secret is empty.
type Secret struct {
	values map[string][]byte
}

// NewSecret copies values into a Secret.
func NewSecret(values map[string][]byte) Secret {
	s := Secret{values: make(map[string][]byte, len(values))}
	for k, v := range values {
		s.values[k] = slices.Clone(v)
	}
	return s
}

// Value returns the value under key, or nil. The caller must not change or keep it.
func (s Secret) Value(key string) []byte { return s.values[key] }

// Has reports whether key has a value that is not empty.
func (s Secret) Has(key string) bool { return len(s.values[key]) > 0 }

// IsZero reports whether the Secret is empty.
func (s Secret) IsZero() bool { return len(s.values) == 0 }

// Keys returns the names of the values, sorted. Names are not secret.
func (s Secret) Keys() []string {
	keys := make([]string, 0, len(s.values))
	for k := range s.values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Fingerprint compares two contents of one identity without revealing them: the first 128 bits of
// SHA-256 over the identity and the length-prefixed content. Because it includes the identity,
// equal contents of two tenants have different fingerprints.
func (s Secret) Fingerprint(identity string) string {
	h := sha256.New()
	write := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	write([]byte(identity))
	for _, k := range s.Keys() {
		write([]byte(k))
		write(s.values[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

const redacted = "redacted"

// Format writes "redacted", whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue is "redacted".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON refuses: no JSON may contain a secret.
func (s Secret) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a secret has no JSON form")
}

// MarshalText refuses, for encoders that ask for text.
func (s Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("a secret has no text form")
}
