package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// standing counts Applications by state.
type standing struct {
	view.Counts
	held int
}

// pair is a name of one or two parts; the second may be empty.
type pair [2]string

// standings counts the Applications of each pair by two expressions over desired d.
func standings(ctx context.Context, tx pgx.Tx, first, second string,
	pairs []pair) (map[pair]standing, error) {
	rows, err := tx.Query(ctx, `
		SELECT `+first+`, `+second+`, count(*), count(*) FILTER (WHERE s.sync = 'Synced'), count(*) FILTER (WHERE s.health = 'Healthy'),
			count(*) FILTER (WHERE s.seq = d.seq AND s.state IN ('Failed', 'Conflict')), count(*) FILTER (WHERE d.held)`+fromRows+`
		WHERE d.kind = 'Application' AND NOT d.absent
			AND (`+first+`, `+second+`) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		GROUP BY 1, 2`, firsts(pairs), seconds(pairs))
	if err != nil {
		return nil, err
	}
	found := map[pair]standing{}
	var p pair
	var c standing
	_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &c.Applications, &c.Synced, &c.Healthy,
		&c.Failed, &c.held}, func() error {
		found[p] = c
		return nil
	})
	return found, err
}

// tally reads pairs with a number from a statement with the pairs as $1 and $2.
func tally(ctx context.Context, tx pgx.Tx, pairs []pair, sql string) (map[pair]int, error) {
	rows, err := tx.Query(ctx, sql, firsts(pairs), seconds(pairs))
	if err != nil {
		return nil, err
	}
	found := map[pair]int{}
	var p pair
	var n int
	_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &n}, func() error {
		found[p] = n
		return nil
	})
	return found, err
}

// problemsOf counts the problems of declarations of one kind, by tenant and name.
func problemsOf(ctx context.Context, tx pgx.Tx, kind fleet.Kind, pairs []pair) (map[pair]int,
	error) {
	return tally(ctx, tx, pairs, `
		SELECT tenant, name, count(*) FROM `+sqlProblems+` p
		WHERE kind = '`+string(kind)+`' AND (tenant, name) IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1, 2`)
}

func firsts(pairs []pair) []string  { return column(pairs, func(p pair) string { return p[0] }) }
func seconds(pairs []pair) []string { return column(pairs, func(p pair) string { return p[1] }) }
