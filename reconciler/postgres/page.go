package postgres

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

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
