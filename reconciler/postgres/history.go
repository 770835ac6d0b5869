package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Operations match Filter.{Tenant, Engine, Revision, Name (the operation's ID)}, newest first. A
// tenant sees none of an earlier tenant with the same name.
func (s *Views) Operations(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]mirror.Operation, string, error) {
	f := filter{}
	f.tenants("o.tenant", scope, by.Tenant)
	if scope.Tenant != "" {
		f.and("o.tenant_uid = live_tenant(o.tenant)")
	}
	f.equal("o.engine", string(by.Engine))
	f.equal("o.revision", string(by.Revision))
	f.equal("o.id", by.Name)
	return list(ctx, s.database, scope, listing[mirror.Operation]{
		name: "operations", keys: []string{"o.id"}, newest: true, scan: scanOperation,
		sql: `SELECT o.id, o.kind, o.state, o.tenant, o.engine, o.subject, o.revision, o.requested_by, o.message, o.done, o.total, o.started_at, o.ended_at
			FROM operations o`,
		key: func(o mirror.Operation) []string { return []string{o.ID} },
	}, f, page, completeOperations)
}

func scanOperation(row pgx.CollectableRow) (mirror.Operation, error) {
	var o mirror.Operation
	err := row.Scan(&o.ID, &o.Kind, &o.State, &o.Tenant, &o.Engine, &o.Subject, &o.Revision,
		&o.RequestedBy, &o.Message, &o.Done, &o.Total, &o.StartedAt, &o.EndedAt)
	return o, err
}

// completeOperations counts the progress of open revisions, so that acknowledgements need not write
// it.
func completeOperations(ctx context.Context, tx pgx.Tx, operations []mirror.Operation) error {
	var open []fleet.Revision
	for _, o := range operations {
		if o.Kind == mirror.OperationReconcile && o.State == mirror.OperationRunning {
			open = append(open, o.Revision)
		}
	}
	pending, err := pendingOf(ctx, tx, open)
	if err != nil {
		return err
	}
	for i := range operations {
		if o := &operations[i]; o.Kind == mirror.OperationReconcile &&
			o.State == mirror.OperationRunning {
			o.Done = max(0, o.Total-pending[o.Revision])
		}
	}
	return nil
}

// pendingOf counts the objects of each revision that do not match their rows.
func pendingOf(ctx context.Context, tx pgx.Tx, revisions []fleet.Revision) (map[fleet.Revision]int,
	error) {
	found := map[fleet.Revision]int{}
	if len(revisions) == 0 {
		return found, nil
	}
	rows, err := tx.Query(ctx, `SELECT d.revision, count(*)`+fromRows+
		`WHERE d.revision = ANY($1::text[]) AND pending(d.seq, s.seq, s.state) GROUP BY 1`,
		column(revisions, func(r fleet.Revision) string { return string(r) }))
	if err != nil {
		return nil, err
	}
	var revision fleet.Revision
	var n int
	_, err = pgx.ForEachRow(rows, []any{&revision, &n}, func() error {
		found[revision] = n
		return nil
	})
	return found, err
}

// numbered is an item with the number that orders its list.
type numbered[T any] struct {
	n    string
	item T
}

func items[T any](all []numbered[T], next string, err error) ([]T, string, error) {
	return column(all, func(n numbered[T]) T { return n.item }), next, err
}

// Revisions match Filter.Revision, latest recorded first. They belong to the platform: a tenant's
// scope has none.
func (s *Views) Revisions(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Revision, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{}
	f.equal("r.revision", string(by.Revision))
	return items(list(ctx, s.database, scope, listing[numbered[view.Revision]]{
		name: "revisions", keys: []string{"r.n"}, newest: true,
		sql: `SELECT r.n::text, r.revision, r.author, r.subject, r.committed_at, r.recorded_at, r.created, r.changed, r.deleted, r.held, r.problems, r.applied_at
			FROM revisions r`,
		scan: func(row pgx.CollectableRow) (numbered[view.Revision], error) {
			var r numbered[view.Revision]
			v := &r.item
			err := row.Scan(&r.n, &v.Revision, &v.Author, &v.Subject, &v.CommittedAt, &v.RecordedAt,
				&v.Created, &v.Changed, &v.Deleted, &v.Held, &v.Problems, &v.AppliedAt)
			return r, err
		},
		key: func(r numbered[view.Revision]) []string { return []string{r.n} },
	}, f, page, completeRevisions))
}

func completeRevisions(ctx context.Context, tx pgx.Tx,
	revisions []numbered[view.Revision]) error {
	var open []fleet.Revision
	for _, r := range revisions {
		if r.item.AppliedAt == nil {
			open = append(open, r.item.Revision)
		}
	}
	pending, err := pendingOf(ctx, tx, open)
	for i := range revisions {
		revisions[i].item.Pending = pending[revisions[i].item.Revision]
	}
	return err
}

// Problems match Filter.{Tenant, Name (of the declaration)}, by path. A tenant sees those of its
// own folder.
func (s *Views) Problems(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]fleet.Problem, string, error) {
	f := filter{}
	f.tenants("p.tenant", scope, by.Tenant)
	f.equal("p.name", by.Name)
	from := sqlProblems
	if scope.Tenant == "" {
		from = `(SELECT * FROM ` + sqlProblems + ` AS found UNION ALL SELECT * FROM ` +
			sqlChangedOwners + ` AS changed)`
	}
	found, next, err := list(ctx, s.database, scope, listing[foundProblem]{
		name: "problems", keys: []string{"p.path", "p.kind", "p.tenant", "p.name", "p.n"},
		sql: `SELECT ARRAY[p.path, p.kind, p.tenant, p.name, p.n::text], p.body FROM ` + from +
			` p`,
		scan: func(row pgx.CollectableRow) (foundProblem, error) {
			var p foundProblem
			err := row.Scan(&p.key, &p.item)
			return p, err
		},
		key: func(p foundProblem) []string { return p.key },
	}, f, page, nil)
	return column(found, func(p foundProblem) fleet.Problem { return p.item }), next, err
}

// foundProblem has the key as the database stores it: its path may be shortened, and the path in
// the body may be invalid text.
type foundProblem struct {
	key  []string
	item fleet.Problem
}

// Holds match Filter.{Tenant, Revision}: changes without a later approval, newest first.
func (s *Views) Holds(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]mirror.Hold, string, error) {
	f := filter{
		conditions: []string{
			"NOT EXISTS (SELECT FROM approvals a WHERE a.revision = h.revision AND a.at >= h.since)"}}
	f.tenants("h.tenant", scope, by.Tenant)
	f.equal("h.revision", string(by.Revision))
	return items(list(ctx, s.database, scope, listing[numbered[mirror.Hold]]{
		name: "holds", keys: []string{"h.n"}, newest: true, sql: `SELECT h.n::text, ` +
			holdColumns + ` FROM holds h`,
		scan: func(row pgx.CollectableRow) (numbered[mirror.Hold], error) {
			var h numbered[mirror.Hold]
			err := row.Scan(&h.n, &h.item.Revision, &h.item.Reason, &h.item.Tenant, &h.item.Items,
				&h.item.Paths, &h.item.Message, &h.item.Since)
			return h, err
		},
		key: func(h numbered[mirror.Hold]) []string { return []string{h.n} },
	}, f, page, nil))
}

// Events returns at most limit events after the sequence number, oldest first; last is the newest
// number that was read, in scope or not. Events that are committed later have higher numbers than
// last. A negative after reads none and returns the newest number.
func (s *Views) Events(ctx context.Context, scope view.Scope, after int64,
	limit int) (events []view.Event, last int64, err error) {
	var horizon int64
	// Before the snapshot of the read: transactions in progress now may be visible in it.
	if err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `SELECT event_horizon()`).Scan(&horizon)
	}); err != nil {
		return nil, 0, fmt.Errorf("events: %w", err)
	}
	if after < 0 {
		return nil, horizon, nil
	}
	if limit < 1 {
		return nil, after, nil
	}
	err = s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		f := filter{}
		f.and("e.seq > " + f.place(after) + " AND e.seq <= " + f.place(horizon))
		if f.tenants("e.tenant", scope, ""); scope.Tenant != "" {
			f.and("e.tenant_uid = live_tenant(e.tenant)")
		}
		events, err = read(ctx, tx, scanEvent,
			`SELECT e.seq, e.at, e.kind, e.tenant, e.name, e.text FROM events e`+f.where()+
				` ORDER BY e.seq LIMIT `+f.place(limit), f.args...)
		if last = max(horizon, after); len(events) == limit {
			last = events[limit-1].Seq
		}
		return err
	})
	return events, last, wrap(err, "events")
}

func scanEvent(row pgx.CollectableRow) (view.Event, error) {
	var e view.Event
	err := row.Scan(&e.Seq, &e.At, &e.Kind, &e.Tenant, &e.Name, &e.Text)
	return e, err
}
