package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// Registrar is the hub as one who joins sees it.
type Registrar interface {
	// Join swaps a one-time token and public keys for an identity. The same token and keys again
	// give the same one.
	Join(ctx context.Context, keys agent.PrivateKeys, join agent.Join) (agent.Joined, error)
}

// Join makes keys, stores them, swaps the token for an identity, and stores that. Whatever step it
// ends at, calling it again with the same token, by whatever process, comes to the same identity.
// An earlier identity stays in force until the new one is stored.
func (k *Keeper) Join(ctx context.Context, hub string, to Registrar, token, clusterUID,
	version string) (Identity, error) {
	if token == "" {
		return Identity{},
			errors.New("a token is required; make one with `argosy agent token create`")
	}
	keys, done, err := k.prepare(ctx, token)
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
			errors.New("the hub's answer to the token holds no identity; is this URL the hub's?")
	}
	if err := k.settle(ctx, hub, token, keys, joined); err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// prepare stores the keys that are to be swapped, or finds those that were stored for this token;
// done when they were swapped already.
func (k *Keeper) prepare(ctx context.Context, token string) (keys agent.PrivateKeys, done bool,
	err error) {
	hash := hashToken(token)
	err = change(ctx, k.cell, func(values map[string][]byte) (bool, error) {
		done = bytes.Equal(values[keyWith], hash)
		if done {
			return false, nil
		}
		if bytes.Equal(values[keyJoining], hash) {
			keys, err = keysNamed(values, joining)
			if err == nil && !keys.IsZero() {
				return false, nil
			}
		}
		if keys, err = agent.NewKeys(); err != nil {
			return false, err
		}
		dropPrefix(values, joining)
		values[keyJoining] = hash
		putKeys(values, joining, keys)
		return true, nil
	})
	return keys, done, err
}

// settle puts the new identity in the place of whatever was there. The token is of no use any more
// and goes.
func (k *Keeper) settle(ctx context.Context, hub, token string, keys agent.PrivateKeys,
	joined agent.Joined) error {
	hash := hashToken(token)
	return change(ctx, k.cell, func(values map[string][]byte) (bool, error) {
		if bytes.Equal(values[keyWith], hash) {
			return false, nil // another process of ours was faster, with the same keys
		}
		if !bytes.Equal(values[keyJoining], hash) {
			return false,
				errors.New(
					"meanwhile the cluster began to join with another token; this one's " +
						"identity is dropped")
		}
		dropPrefix(values, joining)
		dropPrefix(values, next)
		putKeys(values, "", keys)
		values[keyWith], values[keyAgent], values[keyEngine], values[keyHub] = hash,
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

// Ensure is how `argosy agent run` begins: the identity on the cluster, after joining with the
// registrationToken in the Secret if one is there that was not swapped yet. ErrNotJoined when there
// is neither.
func (k *Keeper) Ensure(ctx context.Context, hub string, to Registrar, clusterUID,
	version string) (Identity, error) {
	values, _, err := k.cell.Load(ctx)
	if err != nil {
		return Identity{}, err
	}
	token := string(bytes.TrimSpace(values[RegistrationToken]))
	if token == "" || bytes.Equal(values[keyWith], hashToken(token)) {
		return k.Load(ctx)
	}
	id, err := k.Join(ctx, hub, to, token, clusterUID, version)
	if err != nil {
		return id, fmt.Errorf("join with the %s of the agent's Secret: %w", RegistrationToken, err)
	}
	return id, nil
}
