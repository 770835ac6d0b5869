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
	maxFloor    = 1 << 53 // an epoch above it has not come about by counting
	maxInstance = 128     // bytes
	lifeLost    = "lost"  // in place of an incarnation that is not known
	leaseYears  = `interval '100 years'`

	turnWindow = 10 * time.Minute
	maxReturns = 2  // within turnWindow, of a process that another had taken over from
	maxOvers   = 4  // within turnWindow, from a process that was connected
	maxTurns   = 16 // that are remembered

	// proofTime is how long the proof of a session is remembered: it holds for a minute before and
	// after it was made by the clock of whichever replica it is shown to (fleet/agent.Window), and
	// these may differ.
	proofTime = 3 * time.Minute
	maxProof  = 64  // bytes
	maxProofs = 200 // of one agent within proofTime
)

// OpenAgent begins a session: it takes the engine's lease for the process (with a higher epoch if
// another had it or the floor demands it; who comes back keeps what it had, unless that was given
// in another incarnation of the database and the rows are confirmed by now), and keeps that the
// agent is connected to the replica. registry.ErrCloned: processes have come back in turn, and the
// identity is refused from now on. mirror.ErrNotFound: nothing is declared for the agent and nothing
// is left to remove, or the mirror is being rebuilt; it is to try again later. registry.ErrReplayed: a
// session was opened with its Proof before. registry.ErrBusy: the agent has opened 200 in three
// minutes. Otherwise as Agent. It waits for writes that are under way with the lease.
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
		life = lifeLost // the database that gave the epoch which the cluster shows was another
	}
	o.Stale = life != "" && life != held.Life
	floor := session.Floor
	if o.Stale && session.Confirmed == held.Life {
		floor, o.Stale = max(floor, held.Epoch)+1, false // above the epoch that the process has
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

// placeOf is where the agent works: as declared, or, while there is something left to remove, as it
// last was.
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

// agentHolder is how a process of an agent is called as the holder of a lease.
func agentHolder(id, instance string) string { return "agent/" + id + "/" + instance }

// holdingAgent is the agent that holds the lease; "" when another does.
func holdingAgent(l mirror.Lease) string {
	rest, ok := strings.CutPrefix(l.Holder, "agent/")
	id, _, both := strings.Cut(rest, "/")
	if !ok || !both {
		return ""
	}
	return id
}

// lockLease locks the lease of that name, made if there is none. Its Life is the database's
// incarnation; life is the one in which its epoch was given, "" where that is not known.
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

// takeLease gives a locked lease to the holder, for good: it passes on when another process opens a
// session, and costs no renewal. life is the incarnation that what the holder knows of rows is of.
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

// turn is one process taking over from another.
type turn struct {
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`
	Return   bool      `json:"return,omitempty"` // another had taken over from it before
	Over     bool      `json:"over,omitempty"`   // the one before it was connected at that moment
}

// shown is a proof that a session was opened with.
type shown struct {
	Until time.Time `json:"until"` // it is remembered
	// that showed it: one whose commit was not answered may show it again
	Call string `json:"call"`
}

// history is what the sessions of an agent have left for the next.
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

// show adds a proof to those of late, unless it is one of them.
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

// turned adds a turn unless the process is the one that had the last. A process that has ended
// never comes back, and a rollout ends the one that it replaces: so who comes back after another is
// a copy, or did not hear of the other in time, which happens once. Twice within ten minutes,
// whoever they are, is two processes with one identity. And so is, since a process that hears that
// another has taken over ends and its cluster starts a new one, four times within ten minutes that
// a process was connected when another took over: one that has crashed is connected no more, except
// for the moment until that is noticed.
func turned(turns []turn, mine turn) ([]turn, bool) {
	if n := len(turns); n > 0 && turns[n-1].Instance == mine.Instance {
		return turns, false
	}
	mine.Over = mine.Over && len(turns) > 0
	// what was taken over from longer ago than that
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

// CloseAgent keeps that the session has ended. A newer one (Opening), or one on another replica, is
// left alone.
func (s *Agents) CloseAgent(ctx context.Context, session registry.Session) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			UPDATE agents SET connected_to = '', seen_at = clock_timestamp() WHERE id = $1 AND opening = $2 AND connected_to = $3`,
			text(session.Agent), session.Opening, text(session.Replica))
		return err
	})
	return wrap(err, "close a session of agent %s", session.Agent)
}

// BeatReplica says that the replica lives, and with it the sessions that it serves: to be called
// every ten seconds. An agent is seen as connected while its replica's last beat is younger than
// thirty seconds. A process that starts anew is another replica.
func (s *Agents) BeatReplica(ctx context.Context, replica string) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			INSERT INTO replicas (replica, beat_at) VALUES ($1, clock_timestamp())
			ON CONFLICT (replica) DO UPDATE SET beat_at = excluded.beat_at`, text(replica))
		return err
	})
	return wrap(err, "beat of replica %s", replica)
}
