package edge

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// stage stores the keys that are to replace the current ones, or finds those that were stored
// before.
func (k *Keeper) stage(ctx context.Context) (Identity, error) {
	err := change(ctx, k.cell, func(values map[string][]byte) (bool, error) {
		have, err := keysNamed(values, next)
		if err == nil && !have.IsZero() {
			return false, nil
		}
		fresh, err := agent.NewKeys()
		if err != nil {
			return false, err
		}
		dropPrefix(values, next)
		putKeys(values, next, fresh)
		return true, nil
	})
	if err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// promote makes the staged keys the current ones, once the hub knows the agent by them.
func (k *Keeper) promote(ctx context.Context, thumb string, issued, expires time.Time) (Identity,
	error) {
	err := change(ctx, k.cell, func(values map[string][]byte) (bool, error) {
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
		dropPrefix(values, next)
		putKeys(values, "", id.Next)
		putTimes(values, issued, expires)
		return true, nil
	})
	if err != nil {
		return Identity{}, err
	}
	return k.Load(ctx)
}

// Rotate replaces the agent's keys: the next ones are stored, then sent, then made the current
// ones. After a crash in between the agent tries the current keys and then the next (see Client),
// and goes on from there. The identity's life begins anew.
func (c *Client) Rotate(ctx context.Context) error {
	id, err := c.keeper.stage(ctx)
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
			"the hub's answer to a rotation of keys holds no time until which they hold")
	}
	c.forget()
	_, err = c.keeper.promote(ctx, id.Next.Public().Thumb(), c.clock.Now(), joined.ExpiresAt)
	return err
}
