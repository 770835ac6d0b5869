package edge

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

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
