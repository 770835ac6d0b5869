package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const sqlOwners = `SELECT host, name, id, pinned_at, now_id, changed_at FROM owners`

func scanOwner(row pgx.CollectableRow) (view.Owner, error) {
	var v view.Owner
	err := row.Scan(&v.Host, &v.Name, &v.ID, &v.PinnedAt, &v.NowID, &v.ChangedAt)
	return v, err
}

// PinOwner records that the Git host has the account or team id under the name, and returns the pin
// of the name: the first id that was ever reported. It writes nothing without news.
func (s *Pulls) PinOwner(ctx context.Context, host, name string, id int64) (view.Owner,
	error) {
	subject := fmt.Sprintf("owner %s", name)
	if id <= 0 || name == "" {
		return view.Owner{}, fmt.Errorf("%s: an account has no number %d", subject, id)
	}
	host, name = text(host), text(strings.ToLower(name))
	found, err := collect(ctx, s.database, scanOwner, sqlOwners+` WHERE host = $1 AND name = $2`, host, name)
	if err != nil {
		return view.Owner{}, wrap(err, "%s", subject)
	}
	if len(found) == 1 && (found[0].NowID == id || found[0].ID == id && !found[0].Changed()) {
		return found[0], nil
	}
	var owner view.Owner
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`INSERT INTO owners (host, name, id, pinned_at) VALUES ($1, $2, $3, now()) ON CONFLICT DO NOTHING`, host, name, id); err != nil {
			return err
		}
		changed, err := read(ctx, tx, scanOwner, `
			UPDATE owners SET now_id = CASE id WHEN $3 THEN 0 ELSE $3 END, changed_at = CASE id WHEN $3 THEN NULL ELSE now() END
			WHERE host = $1 AND name = $2 AND now_id <> CASE id WHEN $3 THEN 0 ELSE $3 END RETURNING host, name, id, pinned_at, now_id, changed_at`, host, name, id)
		if err != nil {
			return err
		}
		if len(changed) == 0 {
			all, err := read(ctx, tx, scanOwner, sqlOwners+` WHERE host = $1 AND name = $2`, host,
				name)
			if err == nil {
				owner = all[0]
			}
			return err
		}
		owner = changed[0]
		what := fmt.Sprintf("%s is the account or team %d again", name, owner.ID)
		if owner.Changed() {
			what = fmt.Sprintf("%s is now the account or team %d, which does not count; it was %d",
				name, owner.NowID, owner.ID)
		}
		return tell(ctx, tx, deed{action: "owner-changed", subject: subject, by: "argosy",
			note: what, event: view.Event{Kind: "owner", Name: name, Text: what}})
	})
	return owner, wrap(err, "%s", subject)
}

// Owners lists the pinned names, by host and name. They belong to the platform: a tenant's scope
// has none.
func (s *Views) Owners(ctx context.Context, scope view.Scope, _ view.Filter,
	page view.Page) ([]view.Owner, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	return list(ctx, s.database, scope, listing[view.Owner]{
		name: "owners", keys: []string{"host", "name"}, scan: scanOwner, sql: sqlOwners,
		key: func(v view.Owner) []string { return []string{v.Host, v.Name} },
	}, filter{}, page, nil)
}

// ChangedOwners are the names that belong to another account or team now.
func (s *Pulls) ChangedOwners(ctx context.Context) ([]view.Owner, error) {
	all, err := collect(ctx, s.database, scanOwner, sqlOwners+` WHERE now_id <> 0 ORDER BY host, name`)
	return all, wrap(err, "owners")
}

// ReleaseOwner pins the name to the account or team that has it now. mirror.ErrNotFound if the
// account or team of that number does not have it, or is pinned already.
func (s *Decisions) ReleaseOwner(ctx context.Context, r mirror.OwnerRelease) (view.Owner, error) {
	subject := fmt.Sprintf("owner %s", r.Name)
	var owner view.Owner
	err := s.transact(ctx, func(tx pgx.Tx) error {
		all, err := read(ctx, tx, scanOwner,
			`UPDATE owners SET id = now_id, pinned_at = now(), now_id = 0, changed_at = NULL
			WHERE name = $1 AND now_id = $2 RETURNING host, name, id, pinned_at, now_id, changed_at`, text(strings.ToLower(r.Name)), r.ID)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return mirror.ErrNotFound
		}
		owner = all[0]
		return tell(ctx, tx, deed{kind: mirror.OperationReleaseOwner, action: "pin-owner",
			subject: fmt.Sprintf("%s, number %d", subject, r.ID), by: r.By, note: r.Note,
			event: view.Event{Kind: "owner", Name: owner.Name,
				Text: fmt.Sprintf("%s counts as the account or team %d from now on", owner.Name,
					owner.ID)}})
	})
	return owner, wrap(err, "release %s", subject)
}

// sqlChangedOwners are the problems of declarations whose owner's name belongs to another account
// or team now; the platform's.
const sqlChangedOwners = `(
	SELECT c.path, c.kind, c.tenant, c.name, 2000, jsonb_build_object(
		'key', jsonb_build_object('kind', c.kind, 'tenant', c.tenant, 'name', c.name), 'path', c.path, 'severity', 'error', 'code', 'owner-changed',
		'field', 'spec.owners', 'message', string_agg(o.name || ' is now the account or team ' || o.now_id || ', which does not count; it was ' || o.id, '; ' ORDER BY o.name),
		'fix', 'if it is the same owner, argosy pin-owner NAME --id NUMBER; else name another owner'), 'error'
	FROM owners o JOIN declarations c ON c.kind IN ('Tenant', 'Fleet')
		AND EXISTS (SELECT FROM jsonb_array_elements_text(coalesce(c.body->'tenant'->'owners', c.body->'fleet'->'owners', '[]')) AS e (entry)
			WHERE lower(e.entry) = 'github:' || o.name)
	WHERE o.now_id <> 0
	GROUP BY c.path, c.kind, c.tenant, c.name
)`
