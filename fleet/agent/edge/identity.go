package edge

import (
	"bytes"
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
	"argosy.dev/argosy/fleet/pacing"
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

// Registrar is the hub's interface for a join.
type Registrar interface {
	// Join exchanges a one-time token and public keys for an identity. A repeated call with the
	// same token and keys returns the same one.
	Join(ctx context.Context, keys agent.PrivateKeys, join agent.Join) (agent.Joined, error)
}

// Join generates and stores keys, exchanges the token for an identity, and stores that. Whatever
// step fails, another call with the same token, from any process, ends in the same identity. An
// earlier identity stays in force until the new one is stored.
func (k *IdentityStore) Join(ctx context.Context, hub string, to Registrar, token, clusterUID,
	version string) (Identity, error) {
	if token == "" {
		return Identity{},
			errors.New("a token is required; make one with `argosy agent token create`")
	}
	keys, done, err := k.prepareKeys(ctx, token)
	if err != nil || done {
		if err == nil {
			return k.Load(ctx)
		}
		return Identity{}, err
	}
	joined, err := to.Join(ctx, keys, agent.Join{Token: token, Keys: keys.Public(),
		ClusterUID: clusterUID, Version: version})
	if err != nil {
		return Identity{}, err
	}
	if joined.Agent == "" || joined.Engine == "" || !joined.ExpiresAt.After(joined.Time) {
		return Identity{},
			errors.New("the hub's response to the token has no identity; is this the hub's URL?")
	}
	if err := k.saveJoined(ctx, hub, token, keys, joined); err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// prepareKeys stores the keys of a join, or returns those stored earlier for this token. done
// reports that the join was already completed.
func (k *IdentityStore) prepareKeys(ctx context.Context, token string) (keys agent.PrivateKeys,
	done bool,
	err error) {
	hash := hashToken(token)
	err = updateObject(ctx, k.objects, func(values map[string][]byte) (bool, error) {
		done = bytes.Equal(values[keyJoinedWith], hash)
		if done {
			return false, nil
		}
		if bytes.Equal(values[keyJoining], hash) {
			keys, err = keysNamed(values, joiningPrefix)
			if err == nil && !keys.IsZero() {
				return false, nil
			}
		}
		if keys, err = agent.NewKeys(); err != nil {
			return false, err
		}
		dropPrefix(values, joiningPrefix)
		values[keyJoining] = hash
		putKeys(values, joiningPrefix, keys)
		return true, nil
	})
	return keys, done, err
}

// saveJoined replaces the stored identity and deletes the used token.
func (k *IdentityStore) saveJoined(ctx context.Context, hub, token string, keys agent.PrivateKeys,
	joined agent.Joined) error {
	hash := hashToken(token)
	return updateObject(ctx, k.objects, func(values map[string][]byte) (bool, error) {
		if bytes.Equal(values[keyJoinedWith], hash) {
			return false, nil // another process was faster, with the same keys
		}
		if !bytes.Equal(values[keyJoining], hash) {
			return false,
				errors.New(
					"the cluster has meanwhile started to join with another token; this one's " +
						"identity is dropped")
		}
		dropPrefix(values, joiningPrefix)
		dropPrefix(values, nextPrefix)
		putKeys(values, "", keys)
		values[keyJoinedWith], values[keyAgent], values[keyEngine], values[keyHub] = hash,
			[]byte(joined.Agent), []byte(joined.Engine), []byte(hub)
		putTimes(values, joined.Time, joined.ExpiresAt)
		if string(bytes.TrimSpace(values[RegistrationToken])) == token {
			delete(values, RegistrationToken)
		}
		return true, nil
	})
}

func putTimes(values map[string][]byte, issued, expires time.Time) {
	values[keyIssued] = []byte(issued.UTC().Format(time.RFC3339))
	values[keyExpires] = []byte(expires.UTC().Format(time.RFC3339))
}

// Ensure returns the identity of the cluster for `argosy agent run`. If the Secret has a
// registrationToken that was not used yet, it joins first. It returns ErrNotJoined without either.
func (k *IdentityStore) Ensure(ctx context.Context, hub string, to Registrar, clusterUID,
	version string) (Identity, error) {
	values, _, err := k.objects.Load(ctx)
	if err != nil {
		return Identity{}, err
	}
	token := string(bytes.TrimSpace(values[RegistrationToken]))
	if token == "" || bytes.Equal(values[keyJoinedWith], hashToken(token)) {
		return k.Load(ctx)
	}
	id, err := k.Join(ctx, hub, to, token, clusterUID, version)
	if err != nil {
		return id, fmt.Errorf("join with the %s of the agent's Secret: %w", RegistrationToken, err)
	}
	return id, nil
}

// stageNext stores the next keys, or returns those stored before.
func (k *IdentityStore) stageNext(ctx context.Context) (Identity, error) {
	err := updateObject(ctx, k.objects, func(values map[string][]byte) (bool, error) {
		have, err := keysNamed(values, nextPrefix)
		if err == nil && !have.IsZero() {
			return false, nil
		}
		fresh, err := agent.NewKeys()
		if err != nil {
			return false, err
		}
		dropPrefix(values, nextPrefix)
		putKeys(values, nextPrefix, fresh)
		return true, nil
	})
	if err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// promoteNext makes the staged keys the current ones, once the hub has accepted them.
func (k *IdentityStore) promoteNext(ctx context.Context, thumb string, issued,
	expires time.Time) (Identity,
	error) {
	err := updateObject(ctx, k.objects, func(values map[string][]byte) (bool, error) {
		id, err := parseIdentity(values)
		if err != nil {
			return false, err
		}
		switch {
		case id.Keys.Public().Thumb() == thumb:
			return false, nil
		case id.Next.IsZero() || id.Next.Public().Thumb() != thumb:
			return false,
				errors.New(
					"the keys that the hub has accepted are no longer in the agent's Secret; " +
						"join again")
		}
		dropPrefix(values, nextPrefix)
		putKeys(values, "", id.Next)
		putTimes(values, issued, expires)
		return true, nil
	})
	if err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// Rotate replaces the agent's keys: it stores the next keys, sends them, and then makes them the
// current ones. After a crash in between, the agent tries the current keys and then the next ones
// (see Client), and completes the rotation. The identity's life starts again.
func (c *Client) Rotate(ctx context.Context) error {
	id, err := c.identity.stageNext(ctx)
	if err != nil {
		return err
	}
	old := id.Keys.Public().Thumb()
	proof, err := agent.ProveRotation(id.Next, old, c.clock.Now())
	if err != nil {
		return err
	}
	var joined agent.Joined
	if err := c.post(ctx, agent.PathKeys, agent.Rotate{Keys: id.Next.Public(), Proof: proof},
		&joined); err != nil {
		return err
	}
	if !joined.ExpiresAt.After(c.clock.Now()) {
		return errors.New(
			"the hub's response to a rotation of keys has no expiry in the future")
	}
	c.dropToken()
	_, err = c.identity.promoteNext(ctx, id.Next.Public().Thumb(), c.clock.Now(), joined.ExpiresAt)
	return err
}

// keepKeys rotates the agent's keys after a third of the identity's life.
func (c *Client) keepKeys(ctx context.Context) error {
	for failures := 0; ; {
		left := c.identity.Last().RotateAt().Sub(c.clock.Now())
		if left > 0 {
			// the hub's time may change during the call
			if !pacing.Sleep(ctx, min(left, time.Hour)) {
				return context.Cause(ctx)
			}
			continue
		}
		err := c.Rotate(ctx)
		var end *TerminalError
		switch {
		case err == nil:
			failures = 0
			c.log.Info("rotated the agent's keys")
			continue
		case errors.As(err, &end):
			return err
		}
		failures++
		c.log.Warn("failed to rotate the agent's keys; retrying", "error", err, "until",
			c.identity.Last().ExpiresAt)
		if !pacing.Sleep(ctx, pause(failures+6, err)) {
			return context.Cause(ctx)
		}
	}
}
