package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// Inspections are the open reads of Applications behind agents (ADR 0085). Answers are kept until
// their reader takes them, in tables without a log: a crash of the database loses them.
type Inspections struct{ agents *Agents }

// Inspections returns the reads over the readers' connections, which neither workers nor reports of
// agents use.
func (s *Store) Inspections() Inspections { return Inspections{s.Readers().Agents} }

// sqlLive selects the reads i whose reader waits.
const sqlLive = `i.alive_until > clock_timestamp() AND i.ends_at > clock_timestamp()`

// OpenInspection stores a read of an Application that the engine has. mirror.ErrInspectUnreachable
// if its agent is not connected, mirror.ErrInspectBusy if too many reads are open, and
// mirror.ErrNoTree if the engine is not to have the Application.
func (s Inspections) OpenInspection(ctx context.Context, in registry.Inspection) error {
	tenant := string(in.Application.ID.Tenant)
	err := s.agents.transact(ctx, func(tx pgx.Tx) error {
		// one at a time, so that the limits hold
		if _, err := tx.Exec(ctx,
			`SELECT pg_advisory_xact_lock(hashtext('inspections'))`); err != nil {
			return err
		}
		var connected, has bool
		var seen *time.Time
		var ofEngine, ofTenant int
		err := tx.QueryRow(ctx, `
			SELECT coalesce(r.beat_at > clock_timestamp() - `+agentSeen+`, false), coalesce(r.beat_at, a.seen_at),
				EXISTS (SELECT FROM desired d WHERE d.engine = a.engine AND d.kind = 'Application' AND d.name = $2 AND d.tenant = $3),
				(SELECT count(*) FROM inspections i WHERE i.engine = a.engine AND `+sqlLive+`),
				(SELECT count(*) FROM inspections i WHERE i.tenant = $3 AND `+sqlLive+`)
			FROM agents a LEFT JOIN replicas r ON r.replica = a.connected_to WHERE a.engine = $1 AND a.ended_at IS NULL`,
			text(string(in.Engine)), text(in.Application.Name), text(tenant)).Scan(&connected,
			&seen, &has, &ofEngine, &ofTenant)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("%w: no agent has joined", mirror.ErrInspectUnreachable)
		case err != nil:
			return err
		case !connected:
			return fmt.Errorf("%w: its agent is not connected%s", mirror.ErrInspectUnreachable,
				lastSeen(seen))
		case !has:
			return fmt.Errorf("%w: the engine does not have it", mirror.ErrNoTree)
		case ofEngine >= registry.MaxInspectionsOfEngine,
			ofTenant >= registry.MaxInspectionsOfTenant:
			return mirror.ErrInspectBusy
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO inspections (id, engine, tenant, tenant_uid, replica, request, ends_at, alive_until)
			VALUES ($1, $2, $3, live_tenant($3), $4, $5, clock_timestamp() + $6::interval, clock_timestamp() + $7::interval)
			ON CONFLICT (id) DO NOTHING`, in.ID, text(string(in.Engine)), text(tenant),
			text(in.Replica), in.Request, in.Left, registry.InspectionAlive)
		return err
	})
	return wrap(err, "read at the agent of engine %s", in.Engine)
}

func lastSeen(at *time.Time) string {
	if at == nil {
		return ""
	}
	return ", last seen " + fleet.Age(time.Since(*at)) + " ago"
}

// TakeInspection returns and deletes the parts of an answer, in order, and records that its reader
// still waits. registry.ErrInspectionEnded if the database has lost the read.
func (s Inspections) TakeInspection(ctx context.Context, id string) (
	parts []registry.InspectionPart, err error) {
	err = s.agents.again(ctx, func() error {
		batch := &pgx.Batch{}
		open := false
		batch.Queue(`UPDATE inspections SET alive_until = clock_timestamp() + $2::interval WHERE id = $1`,
			id, registry.InspectionAlive).Exec(func(tag pgconn.CommandTag) error {
			open = tag.RowsAffected() > 0
			return nil
		})
		batch.Queue(`WITH taken AS (DELETE FROM inspection_parts WHERE inspection = $1 RETURNING part, data, last, failure)
			SELECT part, data, last, failure FROM taken ORDER BY part`, id).Query(
			func(rows pgx.Rows) (err error) {
				parts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (
					p registry.InspectionPart, err error) {
					p.ID = id
					return p, row.Scan(&p.Part, &p.Data, &p.Last, &p.Failure)
				})
				return err
			})
		// A batch is one transaction: if the connection breaks before its commit, the parts are
		// still there; if it breaks after it, the answer lacks a part, which the reader notices.
		err := s.agents.work.SendBatch(ctx, batch).Close()
		if err == nil && !open {
			err = registry.ErrInspectionEnded
		}
		return err
	})
	return parts, wrap(err, "answer of a read")
}

// CloseInspection ends a read and drops the rest of its answer. It is idempotent.
func (s Inspections) CloseInspection(ctx context.Context, id string) error {
	err := s.agents.again(ctx, func() error {
		_, err := s.agents.work.Exec(ctx, `DELETE FROM inspections WHERE id = $1`, id)
		return err
	})
	return wrap(err, "end of a read")
}

// SweepInspections drops the reads whose reader has gone.
func (s Inspections) SweepInspections(ctx context.Context) error {
	err := s.agents.again(ctx, func() error {
		_, err := s.agents.work.Exec(ctx, `DELETE FROM inspections i WHERE NOT (`+sqlLive+`)`)
		return err
	})
	return wrap(err, "sweep of reads")
}

// AgentInspections returns the open reads of the engine's Applications that its agent has not
// answered yet, oldest first; otherwise as AgentRows.
func (s Inspections) AgentInspections(ctx context.Context, engine fleet.EngineName) (
	[]registry.Inspection, error) {
	all, err := agentRead(ctx, s.agents, engine, func(row pgx.CollectableRow) (
		i registry.Inspection, err error) {
		i.Engine = engine
		return i, row.Scan(&i.ID, &i.Replica, &i.Request, &i.Left)
	}, func(declared bool) (string, []any) {
		return `SELECT i.id, i.replica, i.request, i.ends_at - clock_timestamp() FROM inspections i
			WHERE i.engine = $1 AND $2 AND NOT i.ended AND ` + sqlLive + ` ORDER BY i.ends_at, i.id LIMIT 64`,
			[]any{string(engine), declared}
	})
	return all, wrap(err, "reads for the agent of engine %s", engine)
}

// AnswerInspection stores the next part of an answer by the agent of an engine, and returns the
// replica of its reader. A part that was stored before changes nothing. Errors:
// registry.ErrInspectionEnded, registry.ErrInspectionFull, registry.ErrInspectionOrder.
func (s Inspections) AnswerInspection(ctx context.Context, engine fleet.EngineName,
	p registry.InspectionPart) (replica string, err error) {
	err = s.agents.transact(ctx, func(tx pgx.Tx) error {
		var run string
		var part, waiting int
		var ended bool
		err := tx.QueryRow(ctx, `
			SELECT i.replica, i.run, i.part, i.ended, (SELECT count(*) FROM inspection_parts p WHERE p.inspection = i.id)
			FROM inspections i WHERE i.id = $1 AND i.engine = $2 AND `+sqlLive+` FOR UPDATE OF i`,
			text(p.ID), text(string(engine))).Scan(&replica, &run, &part, &ended,
			&waiting)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && run != "" && run != p.Run:
			return registry.ErrInspectionEnded // or of another engine, or process
		case err != nil:
			return err
		case p.Part == part && part > 0:
			return nil
		case ended:
			return registry.ErrInspectionEnded
		case p.Part != part+1:
			return registry.ErrInspectionOrder
		case waiting >= registry.MaxInspectionParts:
			return registry.ErrInspectionFull
		}
		batch := &pgx.Batch{}
		batch.Queue(`UPDATE inspections SET run = $2, part = $3, ended = $4 WHERE id = $1`,
			p.ID, text(p.Run), p.Part, p.Last)
		batch.Queue(`
			INSERT INTO inspection_parts (inspection, part, tenant, tenant_uid, data, last, failure)
			SELECT i.id, $2, i.tenant, i.tenant_uid, $3, $4, $5 FROM inspections i WHERE i.id = $1`,
			p.ID, p.Part, append([]byte{}, p.Data...), p.Last, p.Failure)
		return tx.SendBatch(ctx, batch).Close()
	})
	return replica, wrap(err, "answer of the agent of engine %s", engine)
}
