package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// impactSteps keeps what the record changed, for the reports on pull requests.
func impactSteps(r *mirror.Record) ([]step, error) {
	if len(r.Impact.Tenants) == 0 {
		return nil, nil
	}
	var effects *string
	if r.Impact.Effects != nil {
		encoded, err := json.Marshal(r.Impact.Effects)
		if err != nil {
			return nil, fmt.Errorf("effects: %w", err)
		}
		text := string(withoutNUL(encoded))
		effects = &text
	}
	return []step{
		{`INSERT INTO recorded_changes (base, head, changed, effects) VALUES ($1, $2, $3, $4)`,
			[]any{
				string(r.Base), string(r.Revision),
				column(r.Impact.Tenants, func(t fleet.TenantName) string { return string(t) }),
				effects}}}, nil
}

// ChangedSince returns the tenants ("" is the platform) that revisions recorded after the given
// number changed, and the newest number. After a negative number it returns the newest number
// alone.
func (s *Pulls) ChangedSince(ctx context.Context, after int64) (tenants []fleet.TenantName,
	newest int64, err error) {
	var names []string
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `
			SELECT coalesce(max(n), greatest($1, 0)),
				ARRAY(SELECT DISTINCT unnest(changed) AS t FROM recorded_changes WHERE $1 >= 0 AND n > $1 ORDER BY t)
			FROM recorded_changes`, after).Scan(&newest, &names)
	})
	return column(names, func(n string) fleet.TenantName { return fleet.TenantName(n) }), newest,
		wrap(err, "changes after %d", after)
}

// RecordedEffects returns what recording head changed, and the revision that was applied before;
// false if unknown.
func (s *Pulls) RecordedEffects(ctx context.Context, head fleet.Revision) (base fleet.Revision,
	effects []mirror.Effect, known bool, err error) {
	err = s.again(ctx, func() error {
		return s.work.QueryRow(
			ctx, `SELECT base, effects FROM recorded_changes WHERE head = $1 AND effects IS NOT NULL
			ORDER BY n DESC LIMIT 1`, text(string(head))).Scan(&base, &effects)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, false, nil
	}
	return base, effects, err == nil, wrap(err, "effects of revision %s", head.Short())
}
