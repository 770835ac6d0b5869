package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Record stores one revision of the config repo under the lease of the reconciler: all of it or
// nothing, in one round trip whatever its size. It returns the number of the newest row. A repeated
// Record, as after a connection that was lost during COMMIT, has no further effect. A revision
// without changes writes only the applied revision.
//
// mirror.ErrFenced when the lease has passed on, mirror.ErrStale when the applied revision is not
// the record's base.
func (s *Plans) Record(ctx context.Context, lease mirror.Lease, r mirror.Record) (int64, error) {
	// revisions that this one may complete: its own, and those whose rows it replaces
	var touched []string
	fill, err := recording(lease, &r, &touched)
	if err != nil {
		return 0, fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	var seq int64
	err = s.atomically(patient(ctx, longPatience), func(b *pgx.Batch) {
		touched = nil
		fill(b)
		b.Queue(`SELECT seq FROM mirror`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&seq)
		})
	})
	if hasCode(err, codeRecorded) {
		err = s.again(ctx, func() error {
			return s.work.QueryRow(ctx, `SELECT seq FROM mirror`).Scan(&seq)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	if !r.Withheld && !r.Empty() {
		s.settle(ctx, append(touched, string(r.Revision)))
	}
	return seq, nil
}

// recording prepares everything here that can fail, and returns a function that fills a batch,
// equally on each call. The batch adds the open revisions whose rows it replaces to replaced.
func recording(lease mirror.Lease, r *mirror.Record, replaced *[]string) (func(*pgx.Batch), error) {
	if r.Revision == "" {
		return nil, errors.New("a record names its revision")
	}
	var steps []step
	begin := step{`SELECT move_mirror($1, $2, $3, $4, $5)`,
		[]any{string(r.Base), string(r.Revision), r.PlanHash, len(r.Rows), r.Withheld}}
	steps = append(steps, fence(lease))
	if lease.Life != "" {
		steps = append(steps, step{`SELECT fence_life($1)`, []any{lease.Life}})
	}
	steps = append(steps, begin)
	var keys [][]any
	for part := range chunks(r.Rows) {
		keys = append(keys,
			objectColumns(column(part, func(row mirror.Row) fleet.ObjectKey { return row.Key })))
	}
	first := len(steps)
	if !r.Empty() {
		parts := []func(*mirror.Record) ([]step, error){memorySteps, tenantSteps, declarationSteps,
			agentSteps, problemSteps, placementSteps, rowSteps, sealedSteps, syncSteps, holdSteps,
			historySteps, impactSteps}
		if r.Withheld {
			parts = []func(*mirror.Record) ([]step, error){memorySteps, holdSteps, withheldSteps}
		}
		for _, part := range parts {
			more, err := part(r)
			if err != nil {
				return nil, err
			}
			steps = append(steps, more...)
		}
	}
	return func(b *pgx.Batch) {
		for i, s := range steps {
			if i == first && !r.Withheld {
				for _, part := range keys {
					b.Queue(sqlOpenRevisions, part...).QueryRow(func(row pgx.Row) error {
						var open []string
						err := row.Scan(&open)
						*replaced = append(*replaced, open...)
						return err
					})
				}
			}
			b.Queue(s.sql, s.args...)
		}
	}, nil
}

// memorySteps stores the planner's state.
func memorySteps(r *mirror.Record) ([]step, error) {
	if r.Memory == nil {
		return nil, nil
	}
	return []step{{`UPDATE memory SET body = $1`, []any{r.Memory}}}, nil
}

// step is one statement of a batch.
type step struct {
	sql  string
	args []any
}

// fence refuses the rest of the batch unless the lease is the newest of its name.
func fence(l mirror.Lease) step {
	return step{`SELECT fence($1, $2, $3)`, []any{l.Name, l.Holder, l.Epoch}}
}

// fenceEngine is fence for an engine's status, which one transaction at a time writes. It also
// refuses a part of an agent's report, as registry.ErrReplayed, if the report or a later one was
// accepted meanwhile.
func fenceEngine(b *pgx.Batch, l mirror.Lease) {
	b.Queue(`SELECT fence_engine($1, $2, $3)`, l.Name, l.Holder, l.Epoch)
	if l.Report > 0 {
		b.Queue(`SELECT fence_report($1, $2)`, text(holdingAgent(l)), l.Report)
	}
}

// column returns one value of each item, for unnest.
func column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// keyColumns returns kind, tenant and name of each key.
func keyColumns(keys []fleet.Key) []any {
	return []any{
		column(keys, func(k fleet.Key) string { return string(k.Kind) }),
		column(keys, func(k fleet.Key) string { return string(k.Tenant) }),
		column(keys, func(k fleet.Key) string { return text(k.Name) }),
	}
}

// objectColumns returns engine, kind and name of each object.
func objectColumns(keys []fleet.ObjectKey) []any {
	return []any{
		column(keys, func(k fleet.ObjectKey) string { return string(k.Engine) }),
		column(keys, func(k fleet.ObjectKey) string { return string(k.Kind) }),
		column(keys, func(k fleet.ObjectKey) string { return text(k.Name) }),
	}
}

func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}
