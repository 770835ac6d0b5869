package postgres

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// JoinAgent exchanges a one-time token and keys for an identity, which ends the engine's earlier
// one. Exactly one pair of keys ever succeeds with a token. The same pair gets the same identity
// again, and nothing is written. registry.ErrUsed: used with other keys, which is reported and
// audited. mirror.ErrNotFound: unknown, malformed, expired or revoked, or its declaration is
// deleted or no longer served by an agent; neither the answer nor its timing distinguishes these.
func (s *Agents) JoinAgent(ctx context.Context, token string, join registry.Join) (registry.Agent,
	error) {
	if err := checkKeys(join.Keys); err != nil {
		return registry.Agent{}, fmt.Errorf("join: %w", err)
	}
	id := newID()
	var joined registry.Agent
	var outcome error
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		joined, outcome, err = joinAgent(ctx, tx, token, id, join)
		return err
	})
	if err == nil {
		err = outcome
	}
	if err != nil {
		return registry.Agent{}, fmt.Errorf("join: %w", err)
	}
	if joined.ID == id {
		s.decided(ctx, "")
	}
	return joined, nil
}

// joinAgent returns outcome for a refusal that must be committed, and err for any other.
func joinAgent(ctx context.Context, tx pgx.Tx, token, id string,
	join registry.Join) (a registry.Agent, outcome, err error) {
	t, err := findToken(ctx, tx, token, ` FOR UPDATE`)
	if err != nil {
		return registry.Agent{}, nil, err
	}
	if t.usedBy != "" {
		a, err = agentNamed(ctx, tx, t.usedBy, "")
		if err == nil && a.Keys.Thumb() == join.Keys.Thumb() {
			return a, nil, nil
		}
		if err != nil && !notLive(err) {
			return registry.Agent{}, nil, err
		}
		d := agentDeed("refuse agent", t.Tenant, t.Engine, "token:"+t.ID,
			"its token was used by other keys before", "a used token was tried by other keys")
		return registry.Agent{}, registry.ErrUsed, tell(ctx, tx, d)
	}
	if !t.live {
		return registry.Agent{}, nil, mirror.ErrNotFound
	}
	stand, err := readStand(ctx, tx, t.Tenant, t.name)
	if err != nil {
		return registry.Agent{}, nil, err
	}
	if stand.word != standDeclared {
		return registry.Agent{}, nil, mirror.ErrNotFound
	}
	if err := newAgent(ctx, tx, t, id, join, stand); err != nil {
		return registry.Agent{}, nil, err
	}
	a, err = agentNamed(ctx, tx, id, "")
	return a, nil, err
}

// notLive reports whether the error is about a known identity that is not live.
func notLive(err error) bool {
	return errors.Is(err, registry.ErrRevoked) || errors.Is(err, registry.ErrExpired) ||
		errors.Is(err, registry.ErrCloned) || errors.Is(err, mirror.ErrNotFound)
}

func newAgent(ctx context.Context, tx pgx.Tx, t tokenRow, id string, join registry.Join,
	stand agentStand) error {
	tag, err := tx.Exec(ctx,
		`UPDATE agent_tokens SET used_at = now(), used_by = $2 WHERE id = $1 AND used_at IS NULL`,
		t.ID, id)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return registry.ErrUsed
	}
	earlier, err := lockAgentOf(ctx, tx, t.Engine)
	if err != nil {
		return err
	}
	for _, e := range earlier {
		if err := endAgent(ctx, tx, e.Agent, "revoked"); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO agents (id, engine, tenant, tenant_uid, name, sign, seal, thumb, cluster_uid, joined_at, expires_at, changed_at, version,
			argocd_namespace, installation_id, mode)
		SELECT $2, engine, tenant, tenant_uid, name, $3, $4, $5, $6, now(), now() + $7::interval, now(), $8, $9, $10, $11 FROM agent_tokens WHERE id = $1`,
		t.ID, id, join.Keys.Sign, join.Keys.Seal, join.Keys.Thumb(), message(join.ClusterUID),
		registry.Lifetime, message(join.Version),
		stand.argocd.Namespace, stand.argocd.InstallationID, string(stand.mode))
	if err != nil {
		return err
	}
	return tell(ctx, tx, agentDeed("join agent", t.Tenant, t.Engine, "token:"+t.ID,
		id+" of cluster "+join.ClusterUID, "joined"))
}

// tokenRow is a registration token as stored.
type tokenRow struct {
	registry.Token
	name   string // of the declaration
	usedBy string // agent
	live   bool   // neither expired nor revoked
}

// findToken finds a token by its plaintext; mirror.ErrNotFound for an invalid or revoked token and
// for one of a former tenant.
func findToken(ctx context.Context, tx pgx.Tx, plaintext, lock string) (tokenRow, error) {
	hash := sha256.Sum256([]byte(plaintext))
	var stored []byte
	found, err := read(ctx, tx, func(row pgx.CollectableRow) (t tokenRow, err error) {
		err = row.Scan(&stored, &t.usedBy, &t.live, &t.ID, &t.Engine, &t.Tenant, &t.name,
			&t.CreatedBy, &t.CreatedAt, &t.ExpiresAt, &t.UsedAt, &t.RevokedAt, &t.Legacy)
		return t, err
	}, `
		SELECT t.hash, t.used_by, t.expires_at > clock_timestamp(), `+agentTokenColumns+` FROM agent_tokens t
		WHERE (t.id = $1 AND NOT t.given OR t.hash = $2 AND t.given) AND t.revoked_at IS NULL AND (t.tenant = '' OR t.tenant_uid = live_tenant(t.tenant))`+lock,
		agentTokenID(plaintext), hash[:])
	if err != nil {
		return tokenRow{}, err
	}
	if len(found) == 0 {
		stored = make([]byte, sha256.Size)
	}
	if subtle.ConstantTimeCompare(stored, hash[:]) != 1 || len(found) == 0 {
		return tokenRow{}, mirror.ErrNotFound
	}
	return found[0], nil
}

// agentStand is the relation between an agent and its declaration, and where the agent works.
type agentStand struct {
	word   string
	argocd fleet.ArgoCDInstance
	mode   fleet.AgentMode

	dedicatedTo []fleet.TenantName
}

// Results of agent_stand in migrations/00005_agents.sql.
const (
	standDeclared = "declared"
	standRemoving = "removing"
)

// readStand reads the declaration of an environment, or of an Engine when tenant is "".
func readStand(ctx context.Context, tx pgx.Tx, tenant fleet.TenantName, name string) (agentStand,
	error) {
	stand := agentStand{mode: fleet.AgentManaged}
	if err := tx.QueryRow(ctx, `SELECT agent_stand($1, $2)`, string(tenant), name).Scan(
		&stand.word); err != nil || stand.word != standDeclared {
		return stand, err
	}
	kind := fleet.KindEngine
	if tenant != "" {
		kind = fleet.KindManagedEnvironment
	}
	var d fleet.Declaration
	err := tx.QueryRow(ctx,
		`SELECT body FROM declarations WHERE kind = $1 AND tenant = $2 AND name = $3`, string(kind),
		string(tenant), name).Scan(&d)
	switch {
	case err != nil:
		return stand, err
	case d.Engine != nil:
		stand.argocd, stand.dedicatedTo = d.Engine.ArgoCD, d.Engine.DedicatedTo
	case d.Environment != nil && d.Environment.Agent != nil:
		stand.argocd = d.Environment.Agent.Engine(d.Environment.Region).ArgoCD
		if d.Environment.Agent.Autonomous() {
			stand.mode = fleet.AgentAutonomous
		}
	}
	return stand, nil
}
