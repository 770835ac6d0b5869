package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Approve releases the holds of the approval's revision, or what freezes of the approval's tenant
// hold of it: it records the author, the time and the
// reason, and the reconciler acts on it. The time is the database's, like that of holds; At is
// ignored, and set in the result. An approval covers earlier holds: approving a revision again
// releases later ones, and the audit log keeps both.
func (s *Decisions) Approve(ctx context.Context, a mirror.Approval) (mirror.Approval, error) {
	if err := s.again(ctx, func() error {
		return s.control.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&a.At)
	}); err != nil {
		return mirror.Approval{}, wrap(err, "approve revision %s", a.Revision.Short())
	}
	err := s.decide(ctx, func(tx pgx.Tx) error {
		recorded, err := recordApproval(ctx, tx, a)
		if err != nil || !recorded {
			return err
		}
		return recordDecision(
			ctx, tx, decision{kind: mirror.OperationApprove, subject: "revision " +
				a.Revision.Short(), tenant: a.Tenant, revision: a.Revision, by: a.By, note: a.Note,
				event: view.Event{Kind: "hold", Tenant: a.Tenant, Name: string(a.Revision),
					Text: "approved"}})
	})
	if err != nil {
		return mirror.Approval{}, wrap(err, "approve revision %s", a.Revision.Short())
	}
	s.decided(ctx, "")
	return a, nil
}

// recordApproval reports false if the approval is recorded already: a retry after a lost answer
// finds its own time.
func recordApproval(ctx context.Context, tx pgx.Tx, a mirror.Approval) (recorded bool, err error) {
	sql := `
		INSERT INTO approvals AS a (revision, by, at, note) VALUES ($1, $2, $3, $4)
		ON CONFLICT (revision) DO UPDATE SET by = excluded.by, at = excluded.at, note = excluded.note WHERE a.at < excluded.at`
	args := []any{string(a.Revision), text(a.By), a.At, message(a.Note)}
	if a.Tenant != "" {
		sql = `
			INSERT INTO freeze_releases AS a (revision, by, at, note, tenant, tenant_uid) VALUES ($1, $2, $3, $4, $5, live_tenant($5))
			ON CONFLICT (revision, tenant) DO UPDATE SET by = excluded.by, at = excluded.at, note = excluded.note,
				tenant_uid = excluded.tenant_uid WHERE a.at < excluded.at`
		args = append(args, string(a.Tenant))
	}
	tag, err := tx.Exec(ctx, sql, args...)
	return tag.RowsAffected() > 0, err
}

// sqlApprovals reads approvals that can still release something: those of a revision in holds, and
// those of the last week, for a hold that is about to be stored. One of an owner counts while its
// tenant exists.
const sqlApprovals = `
	SELECT revision, '' AS tenant, by, at, note FROM approvals WHERE at > now() - interval '7 days'
	UNION
	SELECT a.revision, '', a.by, a.at, a.note FROM approvals a JOIN holds h ON h.revision = a.revision
	UNION
	SELECT revision, tenant, by, at, note FROM freeze_releases
	WHERE at > now() - interval '7 days' AND tenant_uid = live_tenant(tenant)
	UNION
	SELECT a.revision, a.tenant, a.by, a.at, a.note FROM freeze_releases a JOIN holds h ON h.revision = a.revision AND h.tenant = a.tenant
	WHERE a.tenant_uid = live_tenant(a.tenant)
	ORDER BY at, revision, tenant`

// Approvals returns the latest approval of each revision with pending changes, and the latest of
// each tenant's owners, oldest first.
func (s *Plans) Approvals(ctx context.Context) ([]mirror.Approval, error) {
	all, err := collect(ctx, s.database, scanApproval, sqlApprovals)
	return all, wrap(err, "approvals")
}

// SetStop forbids writes within the stop's scope. With replace it replaces an active stop,
// otherwise that stop is unchanged. It returns the active stop.
func (s *Decisions) SetStop(ctx context.Context, stop mirror.Stop, replace bool) (mirror.Stop,
	error) {
	if (stop.Scope == mirror.StopFleet) != (stop.Name == "") {
		return mirror.Stop{},
			fmt.Errorf("stop %s %q: a stop of the fleet has no name, and any other has one",
				stop.Scope, stop.Name)
	}
	var inForce mirror.Stop
	err := s.decide(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO stops AS s (scope, name, by, reason, at) VALUES ($1, $2, $3, $4, coalesce($5, now()))
			ON CONFLICT (scope, name) DO UPDATE SET by = excluded.by, reason = excluded.reason, at = excluded.at
			WHERE $6 AND (s.by, s.reason) <> (excluded.by, excluded.reason)`,
			string(stop.Scope), stop.Name, text(stop.By), message(stop.Reason), moment(stop.At),
			replace)
		if err != nil {
			return err
		}
		rows, err := read(ctx, tx, scanStop,
			`SELECT scope, name, by, reason, at FROM stops WHERE scope = $1 AND name = $2`,
			string(stop.Scope), stop.Name)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return errors.New("the stop was ended in the same moment; set it again")
		}
		inForce = rows[0]
		if tag.RowsAffected() == 0 {
			return nil
		}
		return recordDecision(ctx, tx, stopDecision(mirror.OperationStop, stop, "stopped"))
	})
	if err == nil {
		s.decided(ctx, mirror.NoticeStops)
	}
	return inForce, wrap(err, "stop %s", stopSubject(stop.Scope, stop.Name))
}

// ClearStop ends the stop of (scope, name) if its By begins with setBy ("" always does), and
// reports whether it ended one. With setBy "" the end is recorded even if the database has no such
// stop: an engine may remember a stop that the database has lost.
func (s *Decisions) ClearStop(ctx context.Context, scope mirror.StopScope, name, setBy,
	by string) (bool,
	error) {
	ended := false
	err := s.decide(ctx, func(tx pgx.Tx) error {
		// Deleting the row records the end: see migrations/00009_time_back.sql.
		if _, err := tx.Exec(ctx, `SELECT set_config('argosy.by', $1, true)`,
			text(by)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx,
			`DELETE FROM stops WHERE scope = $1 AND name = $2 AND starts_with(by, $3)`,
			string(scope), name, setBy)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			if setBy == "" {
				_, err = tx.Exec(ctx, `SELECT end_stop($1, $2, '-infinity', $3)`, string(scope),
					name, text(by))
			}
			return err
		}
		ended = true
		return recordDecision(
			ctx, tx, stopDecision(mirror.OperationResume, mirror.Stop{Scope: scope, Name: name,
				By: by}, "resumed"))
	})
	if err == nil {
		s.decided(ctx, mirror.NoticeStops)
	}
	return ended, wrap(err, "resume %s", stopSubject(scope, name))
}

// RestoreStop restores a stop that an engine or a replica remembers and the database has lost. It
// changes nothing if the stop has ended since, or if its scope is stopped already.
func (s *Decisions) RestoreStop(ctx context.Context, stop mirror.Stop) error {
	restored := false
	err := s.decide(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO stops (scope, name, by, reason, at)
			SELECT $1::text, $2::text, $3::text, $4::text, $5::timestamptz
			WHERE NOT EXISTS (SELECT FROM stop_ends e WHERE e.scope = $1 AND e.name = $2 AND e.at >= $5)
			ON CONFLICT (scope, name) DO NOTHING`,
			string(stop.Scope), stop.Name, text(stop.By), message(stop.Reason), stop.At)
		if restored = err == nil && tag.RowsAffected() > 0; !restored {
			return err
		}
		d := stopDecision(mirror.OperationStop, stop, "stopped")
		d.action = "restore stop"
		return recordDecision(ctx, tx, d)
	})
	if restored {
		s.decided(ctx, mirror.NoticeStops)
	}
	return wrap(err, "restore the stop of %s", stopSubject(stop.Scope, stop.Name))
}

// StopRecords returns the active stops, the fleet's first, and the ends of others, in one snapshot.
func (s *Decisions) StopRecords(ctx context.Context) (mirror.StopRecords, error) {
	var records mirror.StopRecords
	err := s.again(ctx, func() error {
		rows, err := s.control.Query(ctx, `
			SELECT scope, name, by, reason, at, false FROM stops
			UNION ALL SELECT scope, name, by, '', at, true FROM stop_ends ORDER BY 1, 2`)
		if err != nil {
			return err
		}
		records = mirror.StopRecords{}
		var stop mirror.Stop
		var ended bool
		_, err = pgx.ForEachRow(rows, []any{&stop.Scope, &stop.Name, &stop.By, &stop.Reason,
			&stop.At, &ended}, func() error {
			if ended {
				records.Ends = append(records.Ends, mirror.StopEnd{
					Scope: stop.Scope, Name: stop.Name, By: stop.By, At: stop.At})
			} else {
				records.Stops = append(records.Stops, stop)
			}
			return nil
		})
		return err
	})
	return records, wrap(err, "stops")
}

// Stops returns all active stops, the fleet's first. A tenant's scope has those of the fleet and of
// the tenant.
func (s *Views) Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error) {
	var stops []mirror.Stop
	err := s.withinOf(ctx, s.control, scope, func(tx pgx.Tx) (err error) {
		stops, err = read(ctx, tx, scanStop, `
			SELECT scope, name, by, reason, at FROM stops
			WHERE $1 = '' OR scope = 'fleet' OR scope = 'tenant' AND name = $1 ORDER BY scope <> 'fleet', scope, name`, string(scope.Tenant))
		return err
	})
	return stops, wrap(err, "stops")
}

func scanStop(row pgx.CollectableRow) (mirror.Stop, error) {
	var stop mirror.Stop
	err := row.Scan(&stop.Scope, &stop.Name, &stop.By, &stop.Reason, &stop.At)
	return stop, err
}

func stopSubject(scope mirror.StopScope, name string) string {
	if name == "" {
		return string(scope)
	}
	return string(scope) + " " + name
}

func stopDecision(kind mirror.OperationKind, stop mirror.Stop, word string) decision {
	d := decision{kind: kind, subject: stopSubject(stop.Scope, stop.Name), by: stop.By,
		note:  stop.Reason,
		event: view.Event{Kind: "stop", Name: stopSubject(stop.Scope, stop.Name), Text: word}}
	switch stop.Scope {
	case mirror.StopTenant:
		d.tenant = fleet.TenantName(stop.Name)
		d.event.Tenant = d.tenant
	case mirror.StopEngine:
		d.engine = fleet.EngineName(stop.Name)
	}
	return d
}

// decide is transact over the connections for decisions.
func (s *Decisions) decide(ctx context.Context, f func(pgx.Tx) error) error {
	return s.again(ctx, func() error { return pgx.BeginFunc(ctx, s.control, f) })
}

// decideOnce is decide for a request that records the operation id. It does not repeat an attempt
// that was committed and whose answer was lost: the repetition would be refused as a second
// request. retried is false for the first attempt.
func (s *Decisions) decideOnce(ctx context.Context, id string,
	f func(tx pgx.Tx, retried bool) error) error {
	retried := false
	return s.decide(ctx, func(tx pgx.Tx) error {
		if retried {
			var committed bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM operations WHERE id = $1)`,
				id).Scan(&committed); err != nil || committed {
				return err
			}
		}
		again := retried
		retried = true
		return f(tx, again)
	})
}

// decision is an action of a person, as stored: an operation, an audit entry, an event.
type decision struct {
	kind   mirror.OperationKind // of the operation; empty: none
	action string               // in the audit log; empty: kind
	// that carries the decision out, if it is another one than that of kind
	operation string
	subject   string
	tenant    fleet.TenantName
	engine    fleet.EngineName
	revision  fleet.Revision
	by, note  string
	event     view.Event // none if its Kind is empty
}

func recordDecision(ctx context.Context, tx pgx.Tx, d decision) error {
	batch := &pgx.Batch{}
	if d.kind != "" {
		d.operation = newID()
		batch.Queue(`
			INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at, ended_at)
			VALUES ($1, $2, 'Succeeded', $3, live_tenant($3), $4, $5, $6, $7, $8, 1, 1, now(), now())`,
			d.operation, string(d.kind), string(d.tenant), string(d.engine), d.subject,
			string(d.revision), text(d.by), message(d.note))
	}
	action := d.action
	if action == "" {
		action = strings.ToLower(string(d.kind))
	}
	entry := auditStep(ctx, audit.Entry{Actor: d.by, Action: action, Subject: d.subject,
		Tenant: d.tenant, Engine: d.engine, Revision: d.revision, Operation: d.operation,
		Detail: d.note})
	batch.Queue(entry.sql, entry.args...)
	if d.event.Kind != "" {
		batch.Queue(`SELECT new_event($1, $2, $3, $4)`, d.event.Kind, string(d.event.Tenant),
			d.event.Name, d.event.Text)
	}
	return tx.SendBatch(ctx, batch).Close()
}
