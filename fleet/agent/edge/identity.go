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

// Names of the values in the agent's Secret, beside the keys, which are named by
// agent.PrivateKeys.Marshal.
const (
	// RegistrationToken is where the admin of a cluster that is set up by hand puts a token: an
	// agent that finds it joins by itself.
	RegistrationToken = "registrationToken"

	keyAgent   = "agent"     // ID
	keyEngine  = "engine"    // that it serves
	keyHub     = "hub"       // URL
	keyIssued  = "issuedAt"  // RFC 3339, by the hub's clock
	keyExpires = "expiresAt" // likewise
	keyWith    = "joinedWith"
	keyJoining = "joining.token" // hash of the token that the keys named joining.* are for
	joining    = "joining."      // keys that are to be swapped for an identity
	next       = "next."         // keys that are to replace the current ones
)

// ErrNotJoined says that there is no identity on the cluster.
var ErrNotJoined = errors.New(
	"this cluster has not joined; make a token with `argosy agent token create` and run `argosy " +
		"agent join`")

// Identity is who the agent is. Like the keys in it, it is not for printing.
type Identity struct {
	Agent     string
	Engine    fleet.EngineName
	Hub       string
	Keys      agent.PrivateKeys
	Next      agent.PrivateKeys // that are being rotated to; zero: none
	IssuedAt  time.Time         // by the hub's clock
	ExpiresAt time.Time
}

// RotateAt is when its keys are to be replaced: a third of its life after it was issued, so that
// two thirds are left for an outage.
func (i Identity) RotateAt() time.Time { return i.IssuedAt.Add(i.ExpiresAt.Sub(i.IssuedAt) / 3) }

// Keeper keeps the identity in one Secret of the cluster. Every change of it is one update of that
// Secret at the version that was read, so that two processes that join or rotate at once come to
// one identity. Its methods may be called at the same time.
type Keeper struct {
	cell Cell

	mu   sync.Mutex
	last Identity
	// before the last rotation: what was sealed to them may still be in memory
	old agent.PrivateKeys
}

// NewKeeper keeps the identity in a cell.
func NewKeeper(cell Cell) *Keeper { return &Keeper{cell: cell} }

// Load reads the identity from the cluster; ErrNotJoined when there is none.
func (k *Keeper) Load(ctx context.Context) (Identity, error) {
	values, _, err := k.cell.Load(ctx)
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

// Last is the identity as it was last read or stored.
func (k *Keeper) Last() Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// opening are the keys to which something in memory may be sealed.
func (k *Keeper) opening() []agent.PrivateKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	return []agent.PrivateKeys{k.last.Keys, k.last.Next, k.old}
}

func (k *Keeper) remember(id Identity) {
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
	if id.Next, err = keysNamed(values, next); err != nil {
		return Identity{}, err
	}
	for name, at := range map[string]*time.Time{keyIssued: &id.IssuedAt,
		keyExpires: &id.ExpiresAt} {
		if *at, err = time.Parse(time.RFC3339, string(values[name])); err != nil {
			return Identity{}, fmt.Errorf("%s of the agent's Secret is no time; join again", name)
		}
	}
	return id, nil
}

// keysNamed reads the keys whose names begin with prefix; zero when there are none.
func keysNamed(values map[string][]byte, prefix string) (agent.PrivateKeys, error) {
	of := map[string][]byte{}
	for name, v := range values {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			of[rest] = v
		}
	}
	delete(of, strings.TrimPrefix(keyJoining, joining))
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

// hashToken names a token without telling it. It has at least 128 random bits, so that a plain hash
// does.
func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte("argosy registration\x00" + token))
	return []byte(hex.EncodeToString(sum[:]))
}
