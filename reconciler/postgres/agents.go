package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// An identity is live until it is ended, expires, or its tenant's name
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
	// after its token has expired; longer than a proof is valid, even if the clocks differ
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
			a.ID, keys.Sign, keys.Seal, keys.Thumb(), oldThumb, registry.Lifetime).Scan(
			&a.ExpiresAt)
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
		return recordDecision(
			ctx, tx, agentDecision("revoke agent", a.Tenant, a.Engine, by, a.ID, "revoked"))
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

func agentDecision(action string, tenant fleet.TenantName, engine fleet.EngineName, by, note,
	event string) decision {
	return decision{action: action, subject: "agent of " + string(engine), tenant: tenant,
		engine: engine, by: by, note: note,
		event: view.Event{Kind: "agent", Tenant: tenant, Name: string(engine), Text: event}}
}

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
		d := agentDecision("refuse agent", t.Tenant, t.Engine, "token:"+t.ID,
			"its token was used by other keys before", "a used token was tried by other keys")
		return registry.Agent{}, registry.ErrUsed, recordDecision(ctx, tx, d)
	}
	if !t.live {
		return registry.Agent{}, nil, mirror.ErrNotFound
	}
	declaration, err := readDeclaration(ctx, tx, t.Tenant, t.name)
	if err != nil {
		return registry.Agent{}, nil, err
	}
	if declaration.state != declaredAsAgent {
		return registry.Agent{}, nil, mirror.ErrNotFound
	}
	if err := newAgent(ctx, tx, t, id, join, declaration); err != nil {
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
	declaration agentDeclaration) error {
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
		declaration.argocd.Namespace, declaration.argocd.InstallationID, string(declaration.mode))
	if err != nil {
		return err
	}
	return recordDecision(ctx, tx, agentDecision("join agent", t.Tenant, t.Engine, "token:"+t.ID,
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

// agentDeclaration is the relation between an agent and its declaration, and where the agent works.
type agentDeclaration struct {
	state  string
	argocd fleet.ArgoCDInstance
	mode   fleet.AgentMode

	dedicatedTo []fleet.TenantName
	namespaces  []fleet.ApplicationNamespace
	metrics     *fleet.EngineMetrics
}

// Results of agent_stand in migrations/00005_agents.sql.
const (
	declaredAsAgent  = "declared"
	declaredRemoving = "removing"
)

// readDeclaration reads the declaration of an environment, or of an Engine when tenant is "".
func readDeclaration(ctx context.Context, tx pgx.Tx, tenant fleet.TenantName,
	name string) (agentDeclaration, error) {
	declaration := agentDeclaration{mode: fleet.AgentManaged}
	if err := tx.QueryRow(ctx, `SELECT agent_stand($1, $2)`, string(tenant), name).Scan(
		&declaration.state); err != nil || declaration.state != declaredAsAgent {
		return declaration, err
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
		return declaration, err
	case d.Engine != nil:
		declaration.argocd, declaration.dedicatedTo = d.Engine.ArgoCD, d.Engine.DedicatedTo
		declaration.namespaces, declaration.metrics = d.Engine.ApplicationNamespaces,
			d.Engine.Metrics
	case d.Environment != nil && d.Environment.Agent != nil:
		e := d.Environment.Agent.Engine(tenant, d.Environment.Region)
		declaration.argocd, declaration.namespaces = e.ArgoCD, e.ApplicationNamespaces
		if d.Environment.Agent.Autonomous() {
			declaration.mode = fleet.AgentAutonomous
		}
	}
	return declaration, nil
}

const (
	maxFloor    = 1 << 53 // no epoch exceeds it by counting
	maxInstance = 128     // bytes
	lifeLost    = "lost"  // placeholder for an unknown incarnation
	leaseYears  = `interval '100 years'`

	takeoverWindow = 10 * time.Minute
	maxReturns     = 2  // within takeoverWindow, of a process that another had replaced
	maxOvers       = 4  // within takeoverWindow, from a process that was connected
	maxTakeovers   = 16 // remembered for each agent

	// proofTime is how long the proof of a session is remembered. A proof is valid for a minute
	// before and after its creation by the clock of any replica (fleet/agent.Window), and these
	// clocks may differ.
	proofTime = 3 * time.Minute
	maxProof  = 64  // bytes
	maxProofs = 200 // of one agent within proofTime
)

// OpenAgent opens a session. It takes the engine's lease for the process, with a higher epoch if
// another process had it or the floor requires it. A returning process keeps its epoch, unless the
// epoch was granted in another incarnation of the database and the rows are confirmed by now.
// OpenAgent also records that the agent is connected to the replica. registry.ErrCloned: processes
// have returned in turn, and the identity is refused from now on. mirror.ErrNotFound: the agent has
// no declaration and nothing left to delete, or the mirror is being rebuilt; the agent tries again
// later. registry.ErrReplayed: the Proof has opened a session before. registry.ErrBusy: the agent
// has opened 200 sessions in three minutes. Otherwise as Agent. It waits for writes in progress
// under the lease.
func (s *Agents) OpenAgent(ctx context.Context, session registry.Session) (registry.Opening,
	error) {
	if err := checkSession(session); err != nil {
		return registry.Opening{}, fmt.Errorf("open a session of agent %s: %w", session.Agent,
			err)
	}
	var o registry.Opening
	var cloned bool
	call := rand.Text()
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		o, cloned, err = openAgent(ctx, tx, session, call)
		return err
	})
	if err == nil && cloned {
		s.decided(ctx, "")
		err = registry.ErrCloned
	}
	if err != nil {
		return registry.Opening{Agent: o.Agent}, fmt.Errorf("open a session of agent %s: %w",
			session.Agent, err)
	}
	return o, nil
}

func checkSession(session registry.Session) error {
	switch {
	case session.Instance == "" || len(session.Instance) > maxInstance ||
		text(session.Instance) != session.Instance:
		return fmt.Errorf("a process is named by 1 to %d bytes of text", maxInstance)
	case session.Proof == "" || len(session.Proof) > maxProof ||
		text(session.Proof) != session.Proof:
		return fmt.Errorf("a session is opened with a proof, named by 1 to %d bytes of text",
			maxProof)
	case session.Replica == "":
		return errors.New("a session names the replica that serves it")
	case session.Floor < 0 || session.Floor > maxFloor:
		return fmt.Errorf(
			"the cluster's objects show epoch %d, which no lease has had; remove the annotation "+
				"from the object that has it", session.Floor)
	}
	return nil
}

func openAgent(ctx context.Context, tx pgx.Tx, session registry.Session,
	call string) (o registry.Opening, cloned bool, err error) {
	if o.Agent, err = agentNamed(ctx, tx, session.Agent, ""); err != nil {
		return o, false, err
	}
	held, life, err := lockLease(ctx, tx, "engine/"+string(o.Agent.Engine))
	if err != nil {
		return o, false, err
	}
	if o.Agent, err = agentNamed(ctx, tx, session.Agent, ` FOR UPDATE OF a`); err != nil {
		return o, false, err
	}
	declaration, err := placeOf(ctx, tx, o.Agent)
	if err != nil {
		return o, false, err
	}
	before, err := readHistory(ctx, tx, o.Agent.ID)
	if err != nil {
		return o, false, err
	}
	if err := before.show(session.Proof, call); err != nil {
		return o, false, err
	}
	takeovers, cloned := addTakeover(before.takeovers, takeover{Instance: session.Instance,
		At: before.now, Over: before.connected})
	if cloned {
		if err := endAgent(ctx, tx, o.Agent, "cloned"); err != nil {
			return o, true, err
		}
		return o, true,
			recordDecision(ctx, tx, agentDecision("refuse agent", o.Agent.Tenant, o.Agent.Engine,
				"argosy", o.Agent.ID+" is used by two processes in turn",
				"its identity is used by two processes in turn; it has to join again"))
	}
	if life == "" && session.Floor > 0 && held.Epoch <= session.Floor {
		// another incarnation of the database granted the epoch that the cluster shows
		life = lifeLost
	}
	o.Stale = life != "" && life != held.Life
	floor := session.Floor
	if o.Stale && session.Confirmed == held.Life {
		floor, o.Stale = max(floor, held.Epoch)+1, false // above the epoch of the process
	}
	if !o.Stale {
		life = held.Life
	}
	if o.Lease, err = takeLease(ctx, tx, held, agentHolder(o.Agent.ID, session.Instance), floor,
		life); err != nil {
		return o, false, err
	}
	o.ArgoCD, o.Mode, o.DedicatedTo = declaration.argocd, declaration.mode, declaration.dedicatedTo
	o.ApplicationNamespaces, o.Metrics = declaration.namespaces, declaration.metrics
	err = tx.QueryRow(ctx, `
		UPDATE agents SET opening = opening + 1, instance = $2, turns = $3, connected_to = $4, seen_at = clock_timestamp(), version = $5,
			argocd_namespace = $6, installation_id = $7, mode = $8, proofs = $9, protocol = $10
		WHERE id = $1 RETURNING opening, report_seq, generation`,
		o.Agent.ID, session.Instance, takeovers, text(session.Replica), message(session.Version),
		declaration.argocd.Namespace, declaration.argocd.InstallationID, string(declaration.mode),
		before.proofs, session.Protocol).
		Scan(&o.Opening, &o.ReportSeq, &o.Generation)
	return o, false, err
}

// placeOf is where the agent works: as declared, or, while objects are left to delete, as last
// declared.
func placeOf(ctx context.Context, tx pgx.Tx, a registry.Agent) (agentDeclaration, error) {
	declaration, err := readDeclaration(ctx, tx, a.Tenant, agentName(a))
	if err != nil || declaration.state == declaredAsAgent {
		return declaration, err
	}
	left := false
	err = tx.QueryRow(ctx, `
		SELECT a.argocd_namespace, a.installation_id, a.mode, EXISTS (SELECT FROM desired d WHERE d.engine = a.engine) FROM agents a WHERE a.id = $1`, a.ID).
		Scan(&declaration.argocd.Namespace, &declaration.argocd.InstallationID, &declaration.mode,
			&left)
	if err == nil && (declaration.state != declaredRemoving || !left) {
		err = mirror.ErrNotFound
	}
	if err == nil {
		declaration.namespaces, err = namespacesLeft(ctx, tx, a.Engine)
	}
	return declaration, err
}

// namespacesLeft returns the namespaces with Applications that the AppProjects of an engine permit,
// once the declaration that gave them is gone: an AppProject is deleted when no Application there
// uses it.
func namespacesLeft(ctx context.Context, tx pgx.Tx, engine fleet.EngineName) (
	[]fleet.ApplicationNamespace, error) {
	rows, err := tx.Query(ctx, `
		SELECT d.tenant, n FROM desired d, jsonb_array_elements_text(convert_from(d.body, 'UTF8')::jsonb #> '{spec,sourceNamespaces}') n
		WHERE d.engine = $1 AND d.kind = $2 ORDER BY 1, 2`, string(engine),
		string(fleet.ObjectProject))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n fleet.ApplicationNamespace,
		err error) {
		err = row.Scan(&n.Tenant, &n.Namespace)
		return n, err
	})
}

// agentName is the name of the declaration behind an agent.
func agentName(a registry.Agent) string {
	if a.Tenant == "" {
		return string(a.Engine)
	}
	return string(a.Environment)
}

// agentHolder is the lease holder's name for a process of an agent.
func agentHolder(id, instance string) string { return "agent/" + id + "/" + instance }

// holdingAgent is the agent that holds the lease; "" if another holder has it.
func holdingAgent(l mirror.Lease) string {
	rest, ok := strings.CutPrefix(l.Holder, "agent/")
	id, _, both := strings.Cut(rest, "/")
	if !ok || !both {
		return ""
	}
	return id
}

// lockLease locks the lease of that name and creates it if necessary. Its Life is the database's
// incarnation; life is the incarnation that granted its epoch, "" if unknown.
func lockLease(ctx context.Context, tx pgx.Tx, name string) (l mirror.Lease, life string,
	err error) {
	if _, err := tx.Exec(ctx, `
		INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, '', 0, '-infinity') ON CONFLICT (name) DO NOTHING`, name); err != nil {
		return l, "", err
	}
	l.Name = name
	err = tx.QueryRow(ctx,
		`SELECT holder, epoch, incarnation(), life FROM leases WHERE name = $1 FOR UPDATE`, name).
		Scan(&l.Holder, &l.Epoch, &l.Life, &life)
	return l, life, err
}

// takeLease grants a locked lease to the holder without expiry: it passes on when another process
// opens a session, and needs no renewal. life is the incarnation of the rows that the holder has.
func takeLease(ctx context.Context, tx pgx.Tx, l mirror.Lease, holder string, floor int64,
	life string) (mirror.Lease, error) {
	epoch := l.Epoch
	if l.Holder != holder {
		epoch++
	}
	taken, _, err := lease(tx.QueryRow(ctx, `
		UPDATE leases SET holder = $2, epoch = $3, life = $4, expires_at = clock_timestamp() + `+leaseYears+` WHERE name = $1
		RETURNING name, holder, epoch, expires_at, incarnation()`, l.Name, holder, max(epoch, floor+1), life))
	return taken, err
}

// takeover is one takeover by a process from another.
type takeover struct {
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`
	Return   bool      `json:"return,omitempty"` // another had taken over from it before
	// the previous process was connected at that moment
	Over bool `json:"over,omitempty"`
}

// shown is a proof that has opened a session.
type shown struct {
	Until time.Time `json:"until"` // it is remembered
	// call that used it: a call whose commit was not answered may use it again
	Call string `json:"call"`
}

// history is what earlier sessions of an agent leave for the next one.
type history struct {
	takeovers []takeover
	proofs    map[string]shown
	connected bool
	now       time.Time
}

func readHistory(ctx context.Context, tx pgx.Tx, id string) (h history, err error) {
	err = tx.QueryRow(ctx, `SELECT turns, proofs, coalesce(`+sqlSeen+` > clock_timestamp() - `+
		agentSeen+`, false), clock_timestamp() FROM agents WHERE id = $1`, id).
		Scan(&h.takeovers, &h.proofs, &h.connected, &h.now)
	return h, err
}

// show adds a proof to the recent ones. It fails if another call has used the proof, or if there
// are maxProofs of them.
func (h *history) show(proof, call string) error {
	maps.DeleteFunc(h.proofs, func(_ string, s shown) bool { return !h.now.Before(s.Until) })
	switch before, seen := h.proofs[proof]; {
	case seen && before.Call != call:
		return registry.ErrReplayed
	case len(h.proofs) >= maxProofs && !seen:
		return registry.ErrBusy
	}
	h.proofs[proof] = shown{Until: h.now.Add(proofTime), Call: call}
	return nil
}

// addTakeover adds a takeover, unless the process already had the last one. A process that has
// ended never returns, and a rollout ends the process that it replaces. So a process that returns
// after another is a copy, or did not learn of the other in time, which happens once. Two returns
// within ten minutes, of any processes, mean two processes with one identity. A process that learns
// of a takeover ends, and its cluster starts a new one. So four takeovers from a connected process
// within ten minutes mean the same: a crashed process is not connected, except until the crash is
// detected.
func addTakeover(takeovers []takeover, mine takeover) ([]takeover, bool) {
	if n := len(takeovers); n > 0 && takeovers[n-1].Instance == mine.Instance {
		return takeovers, false
	}
	mine.Over = mine.Over && len(takeovers) > 0
	// takeovers older than that
	for len(takeovers) > 1 && mine.At.Sub(takeovers[1].At) >= takeoverWindow {
		takeovers = takeovers[1:]
	}
	returns, overs := 0, 0
	for _, t := range takeovers {
		mine.Return = mine.Return || t.Instance == mine.Instance
	}
	takeovers = append(slices.Clone(takeovers), mine)
	for _, t := range takeovers {
		if mine.At.Sub(t.At) >= takeoverWindow {
			continue
		}
		if t.Return {
			returns++
		}
		if t.Over {
			overs++
		}
	}
	cloned := returns >= maxReturns || overs >= maxOvers
	return takeovers[max(0, len(takeovers)-maxTakeovers):], cloned
}

// CloseAgent records the end of the session. It ignores a newer session (Opening) and one on
// another replica.
func (s *Agents) CloseAgent(ctx context.Context, session registry.Session) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			UPDATE agents SET connected_to = '', seen_at = clock_timestamp() WHERE id = $1 AND opening = $2 AND connected_to = $3`,
			text(session.Agent), session.Opening, text(session.Replica))
		return err
	})
	return wrap(err, "close a session of agent %s", session.Agent)
}

// BeatReplica is the heartbeat of a replica and of the sessions that it serves. The caller sends it
// every ten seconds. An agent counts as connected while its replica's last beat is younger than
// thirty seconds. A restarted process is another replica.
func (s *Agents) BeatReplica(ctx context.Context, replica string) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			INSERT INTO replicas (replica, beat_at) VALUES ($1, clock_timestamp())
			ON CONFLICT (replica) DO UPDATE SET beat_at = excluded.beat_at`, text(replica))
		return err
	})
	return wrap(err, "beat of replica %s", replica)
}
