package edge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

// Keys of the agent's Secret, in addition to those of agent.PrivateKeys.Marshal.
const (
	// RegistrationToken holds the token of a cluster that is set up manually: an agent that finds
	// it joins on its own.
	RegistrationToken = "registrationToken"

	keyAgent      = "agent"     // ID
	keyEngine     = "engine"    // the engine that the agent serves
	keyHub        = "hub"       // URL
	keyIssued     = "issuedAt"  // RFC 3339, by the hub's clock
	keyExpires    = "expiresAt" // likewise
	keyJoinedWith = "joinedWith"
	keyJoining    = "joining.token" // hash of the token that the keys joining.* are for
	joiningPrefix = "joining."      // prefix of the keys during a join
	nextPrefix    = "next."         // prefix of the next keys during a rotation
)

// ErrNotJoined reports that the cluster has no identity.
var ErrNotJoined = errors.New(
	"this cluster has not joined; make a token with `argosy agent token create` and run `argosy " +
		"agent join`")

// Identity is the agent's identity. Do not print it: it contains the keys.
type Identity struct {
	Agent     string
	Engine    fleet.EngineName
	Hub       string
	Keys      agent.PrivateKeys
	Next      agent.PrivateKeys // the keys of a pending rotation; zero: none
	IssuedAt  time.Time         // by the hub's clock
	ExpiresAt time.Time
}

// RotateAt returns when to rotate the keys: after a third of the identity's life, so that two
// thirds are left for an outage.
func (i Identity) RotateAt() time.Time { return i.IssuedAt.Add(i.ExpiresAt.Sub(i.IssuedAt) / 3) }

// IdentityStore stores the identity in one Secret of the cluster. It changes the Secret with
// optimistic concurrency, so that two processes that join or rotate at once end up with one
// identity. Its methods are safe for concurrent use.
type IdentityStore struct {
	objects ObjectStore

	mu   sync.Mutex
	last Identity
	// keys before the last rotation: credentials in memory may still be sealed with them
	old agent.PrivateKeys
}

// NewIdentityStore stores the identity in an ObjectStore.
func NewIdentityStore(store ObjectStore) *IdentityStore { return &IdentityStore{objects: store} }

// Load reads the identity from the cluster; ErrNotJoined without one.
func (k *IdentityStore) Load(ctx context.Context) (Identity, error) {
	values, _, err := k.objects.Load(ctx)
	if err != nil {
		return Identity{}, err
	}
	id, err := parseIdentity(values)
	if err != nil {
		return Identity{}, err
	}
	k.remember(id)
	return id, nil
}

// Last returns the identity that was last read or stored.
func (k *IdentityStore) Last() Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// decryptionKeys returns the keys with which credentials in memory may be sealed.
func (k *IdentityStore) decryptionKeys() []agent.PrivateKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	return []agent.PrivateKeys{k.last.Keys, k.last.Next, k.old}
}

func (k *IdentityStore) remember(id Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.last.Keys.IsZero() && k.last.Keys.Public().Thumb() != id.Keys.Public().Thumb() {
		k.old = k.last.Keys
	}
	k.last = id
}

func parseIdentity(values map[string][]byte) (Identity, error) {
	if len(values[keyAgent]) == 0 {
		return Identity{}, ErrNotJoined
	}
	id := Identity{Agent: string(values[keyAgent]), Engine: fleet.EngineName(values[keyEngine]),
		Hub: string(values[keyHub])}
	var err error
	if id.Keys, err = agent.ParseKeys(fleet.NewSecret(values)); err != nil {
		return Identity{}, err
	}
	if id.Next, err = keysNamed(values, nextPrefix); err != nil {
		return Identity{}, err
	}
	for name, at := range map[string]*time.Time{keyIssued: &id.IssuedAt,
		keyExpires: &id.ExpiresAt} {
		if *at, err = time.Parse(time.RFC3339, string(values[name])); err != nil {
			return Identity{}, fmt.Errorf("%s of the agent's Secret is not a time; join again",
				name)
		}
	}
	return id, nil
}

// keysNamed reads the keys with this prefix; zero if there are none.
func keysNamed(values map[string][]byte, prefix string) (agent.PrivateKeys, error) {
	of := map[string][]byte{}
	for name, v := range values {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			of[rest] = v
		}
	}
	delete(of, strings.TrimPrefix(keyJoining, joiningPrefix))
	if len(of) == 0 {
		return agent.PrivateKeys{}, nil
	}
	return agent.ParseKeys(fleet.NewSecret(of))
}

func putKeys(values map[string][]byte, prefix string, keys agent.PrivateKeys) {
	secret := keys.Marshal()
	for _, name := range secret.Keys() {
		values[prefix+name] = secret.Value(name)
	}
}

func dropPrefix(values map[string][]byte, prefix string) {
	for name := range values {
		if strings.HasPrefix(name, prefix) {
			delete(values, name)
		}
	}
}

// hashToken returns a hash that identifies a token. A token has at least 128 random bits, so a
// plain hash suffices.
func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte("argosy registration\x00" + token))
	return []byte(hex.EncodeToString(sum[:]))
}
