package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

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
			return false, nil // another process of ours was faster, with the same keys
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
