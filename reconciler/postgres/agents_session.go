package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	maxFloor    = 1 << 53 // no epoch exceeds it by counting
	maxInstance = 128     // bytes
	lifeLost    = "lost"  // placeholder for an unknown incarnation
	leaseYears  = `interval '100 years'`

	turnWindow = 10 * time.Minute
	maxReturns = 2  // within turnWindow, of a process that another had replaced
	maxOvers   = 4  // within turnWindow, from a process that was connected
	maxTurns   = 16 // that are remembered

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
	stand, err := placeOf(ctx, tx, o.Agent)
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
	turns, cloned := turned(before.turns, turn{Instance: session.Instance, At: before.now,
		Over: before.connected})
	if cloned {
		if err := endAgent(ctx, tx, o.Agent, "cloned"); err != nil {
			return o, true, err
		}
		return o, true, tell(ctx, tx, agentDeed("refuse agent", o.Agent.Tenant, o.Agent.Engine,
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
	o.ArgoCD, o.Mode, o.DedicatedTo = stand.argocd, stand.mode, stand.dedicatedTo
	err = tx.QueryRow(ctx, `
		UPDATE agents SET opening = opening + 1, instance = $2, turns = $3, connected_to = $4, seen_at = clock_timestamp(), version = $5,
			argocd_namespace = $6, installation_id = $7, mode = $8, proofs = $9
		WHERE id = $1 RETURNING opening, report_seq, generation`,
		o.Agent.ID, session.Instance, turns, text(session.Replica), message(session.Version),
		stand.argocd.Namespace, stand.argocd.InstallationID, string(stand.mode), before.proofs).
		Scan(&o.Opening, &o.ReportSeq, &o.Generation)
	return o, false, err
}

// placeOf is where the agent works: as declared, or, while objects are left to delete, as last
// declared.
func placeOf(ctx context.Context, tx pgx.Tx, a registry.Agent) (agentStand, error) {
	stand, err := readStand(ctx, tx, a.Tenant, agentName(a))
	if err != nil || stand.word == standDeclared {
		return stand, err
	}
	left := false
	err = tx.QueryRow(ctx, `
		SELECT a.argocd_namespace, a.installation_id, a.mode, EXISTS (SELECT FROM desired d WHERE d.engine = a.engine) FROM agents a WHERE a.id = $1`, a.ID).
		Scan(&stand.argocd.Namespace, &stand.argocd.InstallationID, &stand.mode, &left)
	if err == nil && (stand.word != standRemoving || !left) {
		err = mirror.ErrNotFound
	}
	return stand, err
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

// turn is one takeover by a process from another.
type turn struct {
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
	turns     []turn
	proofs    map[string]shown
	connected bool
	now       time.Time
}

func readHistory(ctx context.Context, tx pgx.Tx, id string) (h history, err error) {
	err = tx.QueryRow(ctx, `SELECT turns, proofs, coalesce(`+sqlSeen+` > clock_timestamp() - `+
		agentSeen+`, false), clock_timestamp() FROM agents WHERE id = $1`, id).
		Scan(&h.turns, &h.proofs, &h.connected, &h.now)
	return h, err
}

// show adds a proof to the recent ones, or fails if it is one of them.
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

// turned adds a takeover, unless the process already had the last one. A process that has ended
// never returns, and a rollout ends the process that it replaces. So a process that returns after
// another is a copy, or did not learn of the other in time, which happens once. Two returns within
// ten minutes, of any processes, mean two processes with one identity. A process that learns of a
// takeover ends, and its cluster starts a new one. So four takeovers from a connected process
// within ten minutes mean the same: a crashed process is not connected, except until the crash is
// detected.
func turned(turns []turn, mine turn) ([]turn, bool) {
	if n := len(turns); n > 0 && turns[n-1].Instance == mine.Instance {
		return turns, false
	}
	mine.Over = mine.Over && len(turns) > 0
	// takeovers older than that
	for len(turns) > 1 && mine.At.Sub(turns[1].At) >= turnWindow {
		turns = turns[1:]
	}
	returns, overs := 0, 0
	for _, t := range turns {
		mine.Return = mine.Return || t.Instance == mine.Instance
	}
	turns = append(slices.Clone(turns), mine)
	for _, t := range turns {
		if mine.At.Sub(t.At) >= turnWindow {
			continue
		}
		if t.Return {
			returns++
		}
		if t.Over {
			overs++
		}
	}
	return turns[max(0, len(turns)-maxTurns):], returns >= maxReturns || overs >= maxOvers
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
