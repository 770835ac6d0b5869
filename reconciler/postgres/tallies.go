package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// tallies keeps the counts of all Applications by tenant and engine, so that a page of the platform
// costs what has changed since the last one. Each read counts the tenants with events again, and
// all of them after a plan, in another life of the database, or after tallyAge.
type tallies struct {
	lock  chan struct{} // held while the counts are read or changed
	known string        // life and sequence number of the mirror that they are from
	last  int64         // event
	whole time.Time     // when all were counted
	of    map[string][]tallied
}

// tallyAge bounds what no event announces.
const tallyAge = time.Minute

// countedAlone is up to how many names are counted without the tallies.
const countedAlone = 10

func newTallies() *tallies { return &tallies{lock: make(chan struct{}, 1)} }

// tallied are the Applications of a tenant on an engine, apart from those of silent clusters.
type tallied struct {
	engine  string
	unread  bool // the engine cannot read the cluster
	pending int  // rows that the engine has not applied, deleted ones too
	stateCounts
}

const sqlTallies = `
	SELECT d.tenant, d.engine, r.since IS NOT NULL, count(*) FILTER (WHERE NOT d.absent),
		count(*) FILTER (WHERE NOT d.absent AND s.sync = 'Synced'), count(*) FILTER (WHERE NOT d.absent AND s.health = 'Healthy'),
		count(*) FILTER (WHERE NOT d.absent AND s.seq = d.seq AND s.state IN ('Failed', 'Conflict')),
		count(*) FILTER (WHERE NOT d.absent AND d.held), count(*) FILTER (WHERE pending(d.seq, s.seq, s.state))` + fromRows + `
		LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
	WHERE d.kind = 'Application' AND ($1::text[] IS NULL OR d.tenant = ANY ($1::text[]))
	GROUP BY 1, 2, 3`

// count brings the tallies up to date with the transaction's snapshot, or a later one, and returns
// the counts of each tenant or, with byEngine, of each engine. The transaction is the platform's.
func (t *tallies) count(ctx context.Context, tx pgx.Tx, byEngine bool) (map[pair]stateCounts,
	map[pair]int, error) {
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if err := t.refresh(ctx, tx); err != nil {
		return nil, nil, err
	}
	rows, err := tx.Query(ctx, `SELECT silent_engines()`)
	if err != nil {
		return nil, nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, nil, err
	}
	silent := map[string]bool{}
	for _, engine := range names {
		silent[engine] = true
	}
	counts, pending := map[pair]stateCounts{}, map[pair]int{}
	for tenant, all := range t.of {
		for _, one := range all {
			key := pair{tenant, ""}
			if byEngine {
				key = pair{one.engine, ""}
			}
			sum := counts[key]
			sum.Applications += one.Applications
			sum.Failed += one.Failed
			sum.held += one.held
			if one.unread || silent[one.engine] {
				sum.Unknown += one.Applications
			} else {
				sum.Synced += one.Synced
				sum.Healthy += one.Healthy
			}
			counts[key] = sum
			pending[key] += one.pending
		}
	}
	return counts, pending, nil
}

func (t *tallies) refresh(ctx context.Context, tx pgx.Tx) error {
	var known string
	var horizon int64
	if err := tx.QueryRow(ctx, `SELECT incarnation() || ' ' || seq, event_horizon() FROM mirror`).
		Scan(&known, &horizon); err != nil {
		return err
	}
	if known != t.known || time.Since(t.whole) > tallyAge {
		began := time.Now()
		all, err := tallyOf(ctx, tx, nil)
		if err != nil {
			return err
		}
		t.of, t.known, t.last, t.whole = all, known, horizon, began
		return nil
	}
	if horizon <= t.last {
		return nil
	}
	rows, err := tx.Query(ctx,
		`SELECT DISTINCT tenant FROM events WHERE seq > $1 AND seq <= $2 AND tenant <> ''`, t.last,
		horizon)
	if err != nil {
		return err
	}
	changed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		again, err := tallyOf(ctx, tx, changed)
		if err != nil {
			return err
		}
		for _, tenant := range changed {
			t.of[tenant] = again[tenant]
		}
	}
	t.last = horizon
	return nil
}

// tallyOf counts the Applications of tenants; nil: of all.
func tallyOf(ctx context.Context, tx pgx.Tx, tenants []string) (map[string][]tallied, error) {
	rows, err := tx.Query(ctx, sqlTallies, tenants)
	if err != nil {
		return nil, err
	}
	of := map[string][]tallied{}
	var tenant string
	var one tallied
	_, err = pgx.ForEachRow(rows, []any{&tenant, &one.engine, &one.unread, &one.Applications,
		&one.Synced, &one.Healthy, &one.Failed, &one.held, &one.pending}, func() error {
		of[tenant] = append(of[tenant], one)
		return nil
	})
	return of, err
}
