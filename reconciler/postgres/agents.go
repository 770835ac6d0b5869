package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Agents, in agents*.go. An identity is live until it is ended, expires, or its tenant's name
// belongs to another tenant. An engine has at most one live identity. Writes about an identity hold
// the lease of its engine. Where both rows are locked, the lease's row is locked first.

// agentColumns are the columns that scanAgent reads, of agents a.
const agentColumns = `a.id, a.engine, a.tenant, a.name, a.sign, a.seal, a.cluster_uid, a.joined_at, a.expires_at, CASE
	WHEN NOT still_of(a.tenant, a.tenant_uid) THEN 'revoked'
	WHEN a.ended <> '' THEN a.ended
	WHEN a.expires_at <= clock_timestamp() THEN 'expired' ELSE '' END`

// agentRow is an identity and the reason why it is not live; "" while it is.
type agentRow struct {
	registry.Agent
	over string
}

func scanAgent(row pgx.CollectableRow) (agentRow, error) {
	var a agentRow
	var name string
	err := row.Scan(&a.ID, &a.Engine, &a.Tenant, &name, &a.Keys.Sign, &a.Keys.Seal, &a.ClusterUID,
		&a.JoinedAt, &a.ExpiresAt, &a.over)
	if a.Tenant != "" {
		a.Environment = fleet.EnvironmentName(name)
	}
	return a, err
}

// alive returns nil, or why the identity is not live.
func (a agentRow) alive() error {
	switch a.over {
	case "":
		return nil
	case "cloned":
		return registry.ErrCloned
	case "expired":
		return registry.ErrExpired
	default:
		return registry.ErrRevoked
	}
}

// Agent returns a live identity. mirror.ErrNotFound: it never existed. With registry.ErrRevoked,
// registry.ErrExpired and registry.ErrCloned the Agent is returned too, so that the caller can
// verify a proof before it answers.
func (s *Agents) Agent(ctx context.Context, id string) (registry.Agent, error) {
	found, err := collect(ctx, s.database, scanAgent, `SELECT `+agentColumns+
		` FROM agents a WHERE a.id = $1`, text(id))
	if err == nil && len(found) == 0 {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return registry.Agent{}, fmt.Errorf("agent: %w", err)
	}
	return found[0].Agent, wrap(found[0].alive(), "agent %s", found[0].ID)
}

// agentNamed reads the identity within a transaction, with the errors of Agent.
func agentNamed(ctx context.Context, tx pgx.Tx, id, lock string) (registry.Agent, error) {
	found, err := read(ctx, tx, scanAgent, `SELECT `+agentColumns+` FROM agents a WHERE a.id = $1`+
		lock, text(id))
	if err == nil && len(found) == 0 {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return registry.Agent{}, err
	}
	return found[0].Agent, found[0].alive()
}

const (
	// after its token has expired; longer than a proof is valid, whatever the clocks
	assertionMemory = 10 * time.Minute
	maxAssertion    = 128 // bytes of its ID
	maxAccess       = 200 // tokens and assertions that are remembered per agent
)

// SaveAccess stores the hash of an access token that was issued for an assertion, for ttl, and
// deletes old ones. registry.ErrReplayed: another token was issued for that assertion.
// registry.ErrBusy: the agent recently got 200.
func (s *Agents) SaveAccess(ctx context.Context, agent, assertion string, hash [32]byte,
	ttl time.Duration) error {
	if assertion == "" || len(assertion) > maxAssertion {
		return fmt.Errorf("access of agent %s: an assertion's ID has 1 to %d bytes", agent,
			maxAssertion)
	}
	err := s.transact(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		// one at a time, so that the count is exact
		batch.Queue(`SELECT FROM agents WHERE id = $1 FOR NO KEY UPDATE`, text(agent))
		batch.Queue(
			`DELETE FROM agent_access WHERE agent = $1 AND expires_at < now() - $2::interval`,
			text(agent), assertionMemory)
		batch.Queue(`
			INSERT INTO agent_access (agent, assertion, hash, expires_at) SELECT $1, $2, $3, clock_timestamp() + $4::interval
			WHERE (SELECT count(*) FROM agent_access WHERE agent = $1) < $5 ON CONFLICT (agent, assertion) DO NOTHING`,
			text(agent), text(assertion), hash[:], ttl, maxAccess)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		var mine bool
		err := tx.QueryRow(ctx,
			`SELECT hash = $3 FROM agent_access WHERE agent = $1 AND assertion = $2`, text(agent),
			text(assertion), hash[:]).Scan(&mine)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return registry.ErrBusy
		case err == nil && !mine:
			return registry.ErrReplayed
		}
		return err
	})
	return wrap(err, "access of agent %s", agent)
}

// AccessAgent returns the live identity of an access token, by the token's SHA-256.
// mirror.ErrNotFound when the token is unknown or has expired, or the identity is not live. The
// token is 256 random bits: the time of a search for its hash reveals nothing.
func (s *Agents) AccessAgent(ctx context.Context, hash [32]byte) (registry.Agent, error) {
	found, err := collect(ctx, s.database, scanAgent, `
		SELECT `+agentColumns+` FROM agent_access t JOIN agents a ON a.id = t.agent
		WHERE t.hash = $1 AND t.expires_at > clock_timestamp()`, hash[:])
	if err == nil && (len(found) == 0 || found[0].alive() != nil) {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return registry.Agent{}, fmt.Errorf("access token of an agent: %w", err)
	}
	return found[0].Agent, nil
}

// RotateAgent replaces the keys with the old thumbprint, extends the identity to registry.Lifetime
// from now and deletes its access tokens. Repeating it changes nothing. registry.ErrReplayed: the
// identity already has other keys. Otherwise as Agent.
func (s *Agents) RotateAgent(ctx context.Context, id, oldThumb string,
	keys registry.Keys) (registry.Agent, error) {
	if err := checkKeys(keys); err != nil {
		return registry.Agent{}, fmt.Errorf("agent %s: %w", id, err)
	}
	var a registry.Agent
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		if a, err = agentNamed(ctx, tx, id, ` FOR UPDATE OF a`); err != nil {
			return err
		}
		var former string
		if err := tx.QueryRow(ctx, `SELECT former FROM agents WHERE id = $1`, a.ID).Scan(
			&former); err != nil {
			return err
		}
		if a.Keys.Thumb() == keys.Thumb() && former == oldThumb {
			return nil
		}
		if a.Keys.Thumb() != oldThumb {
			return registry.ErrReplayed
		}
		if _, err := tx.Exec(ctx, `DELETE FROM agent_access WHERE agent = $1`, a.ID); err != nil {
			return err
		}
		a.Keys = keys
		return tx.QueryRow(ctx, `
			UPDATE agents SET sign = $2, seal = $3, thumb = $4, former = $5, expires_at = clock_timestamp() + $6::interval WHERE id = $1 RETURNING expires_at`,
			a.ID, keys.Sign, keys.Seal, keys.Thumb(), oldThumb, registry.Lifetime).Scan(&a.ExpiresAt)
	})
	return a, wrap(err, "rotate the keys of agent %s", id)
}

func checkKeys(keys registry.Keys) error {
	if len(keys.Sign) != 32 || len(keys.Seal) != 32 {
		return errors.New("an agent has two public keys of 32 bytes, Ed25519 and X25519")
	}
	return nil
}

// RevokeAgent ends the identity of an engine's agent, at once and permanently: its access tokens
// are deleted, writes in progress under its lease are refused, and the replicas close its streams.
// The older route's token that it joined with is revoked too. mirror.ErrNotFound when the engine
// has none within the scope.
func (s *Agents) RevokeAgent(ctx context.Context, scope view.Scope, engine fleet.EngineName,
	by string) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		found, err := lockAgentOf(ctx, tx, engine)
		if err != nil {
			return err
		}
		if len(found) == 0 || scope.Tenant != "" && (found[0].Tenant != scope.Tenant ||
			found[0].over == "revoked") {
			return mirror.ErrNotFound
		}
		a := found[0].Agent
		if err := endAgent(ctx, tx, a, "revoked"); err != nil {
			return err
		}
		return tell(ctx, tx, agentDeed("revoke agent", a.Tenant, a.Engine, by, a.ID, "revoked"))
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "agent of engine %s", engine)
}

// lockAgentOf locks the engine's lease, and then the engine's identity that has not ended.
func lockAgentOf(ctx context.Context, tx pgx.Tx, engine fleet.EngineName) ([]agentRow, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM leases WHERE name = 'engine/' || $1::text FOR UPDATE`,
		text(string(engine))); err != nil {
		return nil, err
	}
	return read(ctx, tx, scanAgent, `SELECT `+agentColumns+
		` FROM agents a WHERE a.engine = $1 AND a.ended_at IS NULL FOR UPDATE OF a`,
		text(string(engine)))
}

// endAgent ends an identity whose rows lockAgentOf has locked. It releases the lease with a higher
// epoch, which fences writes in progress.
func endAgent(ctx context.Context, tx pgx.Tx, a registry.Agent, why string) error {
	batch := &pgx.Batch{}
	batch.Queue(
		`UPDATE agents SET ended_at = clock_timestamp(), ended = $2, connected_to = '', seen_at = coalesce(`+sqlSeen+`, seen_at)
		WHERE id = $1 AND ended_at IS NULL`, a.ID, why)
	batch.Queue(`DELETE FROM agent_access WHERE agent = $1`, a.ID)
	batch.Queue(
		`UPDATE agent_tokens SET revoked_at = now() WHERE engine = $1 AND used_by = $2 AND revoked_at IS NULL AND $3 = 'revoked' AND legacy`, string(a.Engine), a.ID, why)
	batch.Queue(
		`UPDATE leases SET holder = '', epoch = epoch + 1, expires_at = '-infinity' WHERE name = 'engine/' || $1::text AND starts_with(holder, 'agent/')`, string(a.Engine))
	return tx.SendBatch(ctx, batch).Close()
}

// sqlSeen is the last beat of the replica that an agent is connected to, within an update of
// agents; NULL if the agent is not connected.
const sqlSeen = `(SELECT r.beat_at FROM replicas r WHERE r.replica = connected_to)`

func agentDeed(action string, tenant fleet.TenantName, engine fleet.EngineName, by, note,
	event string) deed {
	return deed{action: action, subject: "agent of " + string(engine), tenant: tenant,
		engine: engine, by: by, note: note,
		event: view.Event{Kind: "agent", Tenant: tenant, Name: string(engine), Text: event}}
}
