package postgres

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// listing is a list that is read in pages. Each page begins after the last key of the previous one,
// so that a page costs the same anywhere in the list, and nothing is repeated or skipped when the
// list changes in between.
type listing[T any] struct {
	name   string           // of the list, in cursors
	sql    string           // up to WHERE
	keys   []string         // columns that order the list; unique together
	newest bool             // descending
	scan   pgx.RowToFunc[T] // of one row
	key    func(T) []string // the values of keys
}

const (
	maxPage   = 1000
	maxCursor = 8192 // four times that of the longest key, a problem's
)

// list reads one page within a scope, and completes it in the same snapshot; complete may be nil.
func list[T any](ctx context.Context, s *database, scope view.Scope, l listing[T], f filter,
	page view.Page, complete func(context.Context, pgx.Tx, []T) error) ([]T, string, error) {
	if page.Limit < 1 || page.Limit > maxPage {
		return nil, "", fmt.Errorf("%s: a page has 1 to %d items, not %d", l.name, maxPage,
			page.Limit)
	}
	if err := l.after(&f, page.After); err != nil {
		return nil, "", fmt.Errorf("%s: %w", l.name, err)
	}
	direction := ""
	if l.newest {
		direction = " DESC"
	}
	sql := l.sql + f.where() + ` ORDER BY ` + strings.Join(l.keys, direction+", ") + direction +
		` LIMIT ` + strconv.Itoa(page.Limit+1)
	var items []T
	next := ""
	err := s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		if items, err = read(ctx, tx, l.scan, sql, f.args...); err != nil {
			return err
		}
		next = ""
		if len(items) > page.Limit {
			items = items[:page.Limit]
			next = cursor(l.name, l.key(items[page.Limit-1]))
		}
		if complete == nil || len(items) == 0 {
			return nil
		}
		return complete(ctx, tx, items)
	})
	// no number where this list's cursors have one
	if hasCode(err, "22P02") || hasCode(err, "22003") {
		err = mirror.ErrCursor
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", l.name, err)
	}
	return items, next, nil
}

// after restricts the filter to the items after the cursor.
func (l listing[T]) after(f *filter, after string) error {
	if after == "" {
		return nil
	}
	values, err := readCursor(l.name, after)
	if err != nil || len(values) != len(l.keys) {
		return mirror.ErrCursor
	}
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = f.place(v)
	}
	sign := " > "
	if l.newest {
		sign = " < "
	}
	f.and("(" + strings.Join(l.keys, ", ") + ")" + sign + "(" + strings.Join(places, ", ") + ")")
	return nil
}

// cursor is opaque to clients. It is neither secret nor a permission: it only marks a position. No
// value contains a NUL (text).
func cursor(name string, key []string) string {
	return base64.RawURLEncoding.EncodeToString(
		[]byte(strings.Join(append([]string{name}, key...), "\x00")))
}

func readCursor(name, cursor string) ([]string, error) {
	if len(cursor) > maxCursor {
		return nil, mirror.ErrCursor
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || !utf8.Valid(raw) {
		return nil, mirror.ErrCursor
	}
	parts := strings.Split(string(raw), "\x00")
	if parts[0] != name {
		return nil, mirror.ErrCursor
	}
	return parts[1:], nil
}

// filter holds the conditions of a query, with a placeholder for each value. No value ever becomes
// part of the SQL.
type filter struct {
	conditions []string
	args       []any
}

// place adds a value and returns its placeholder.
func (f *filter) place(value any) string {
	f.args = append(f.args, value)
	return "$" + strconv.Itoa(len(f.args))
}

func (f *filter) and(condition string) { f.conditions = append(f.conditions, condition) }

// equal requires a value of a column or expression; an empty value adds no condition.
func (f *filter) equal(expression, value string) {
	if value != "" {
		f.and(expression + " = " + f.place(text(value)))
	}
}

// tenants restricts the column to the scope, and to the requested tenant.
func (f *filter) tenants(column string, scope view.Scope, asked fleet.TenantName) {
	f.equal(column, string(scope.Tenant))
	f.equal(column, string(asked))
}

func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(f.conditions, " AND ")
}

// within runs reads of one snapshot within a scope. For a tenant they run as argosy_reader with the
// tenant set for this transaction alone: the database returns that tenant's rows only, whatever f
// selects. See in_scope in migrations/00002_rules.sql.
func (s *database) within(ctx context.Context, scope view.Scope, f func(pgx.Tx) error) error {
	return s.withinOf(ctx, s.work, scope, f)
}

func (s *database) withinOf(ctx context.Context, from *pgxpool.Pool, scope view.Scope,
	f func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return s.again(ctx, func() error {
		return pgx.BeginTxFunc(ctx, from, options, func(tx pgx.Tx) error {
			if scope.Tenant != "" {
				batch := &pgx.Batch{}
				batch.Queue(`SELECT set_config('argosy.tenant', $1, true)`,
					text(string(scope.Tenant)))
				batch.Queue(`SET LOCAL ROLE argosy_reader`)
				batch.Queue(sqlKeepPlans)
				if err := tx.SendBatch(ctx, batch).Close(); err != nil {
					return err
				}
			}
			return f(tx)
		})
	})
}

// Operations match Filter.{Tenant, Engine, Revision, Name (the operation's ID), OperationKind,
// OperationState}, newest first. A tenant sees none of an earlier tenant with the same name.
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
	f.equal("o.kind", string(by.OperationKind))
	f.equal("o.state", string(by.OperationState))
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
	f := filter{}
	if !by.Approved {
		f.and("NOT EXISTS (SELECT FROM approvals a WHERE a.revision = h.revision AND a.at >= h.since)")
		f.and("NOT (h.reason = 'frozen' AND EXISTS (SELECT FROM freeze_releases a " +
			"WHERE a.revision = h.revision AND a.tenant = h.tenant AND a.at >= h.since))")
	}
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
			`SELECT e.seq, e.at, e.kind, e.tenant, e.name, e.text, e.tenant <> '' AND e.tenant_uid IS DISTINCT FROM live_tenant(e.tenant)
				FROM events e`+f.where()+
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
	err := row.Scan(&e.Seq, &e.At, &e.Kind, &e.Tenant, &e.Name, &e.Text, &e.Former)
	return e, err
}
