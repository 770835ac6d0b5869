package postgres

import (
	"context"
	"time"
)

// sqlOpenRevisions reads the revisions of some rows that are not yet applied as a whole.
const sqlOpenRevisions = `
	SELECT coalesce(array_agg(DISTINCT d.revision), '{}')
	FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
	JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name
	WHERE EXISTS (SELECT FROM revisions WHERE applied_at IS NULL)
		AND EXISTS (SELECT FROM revisions r WHERE r.revision = d.revision AND r.applied_at IS NULL)`

// that an acknowledgement waits at most for its revisions to be ended
const settleTime = 2 * time.Second

// settle ends those of the open revisions whose every row is applied. It is called after the
// transaction that touched their rows has been committed: see settle in
// migrations/00011_settle.sql. A failure is no failure of that transaction: Settle ends them later.
func (s *database) settle(ctx context.Context, revisions []string) {
	if len(revisions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := s.work.Exec(ctx, `SELECT settle($1)`, revisions); err != nil &&
		!hasCode(err, codeLockTimeout) {
		s.log.Warn("failed to end applied revisions; they are looked at again within ten seconds",
			"revisions", len(revisions), "error", err)
	}
}

// Settle ends every open revision whose rows are all applied. Acknowledge and Record end the
// revisions that they touch; Settle, called every few seconds, ends those that a lost connection or
// a lock kept open.
func (s *Plans) Settle(ctx context.Context) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `SELECT settle(NULL)`)
		return err
	})
	return wrap(err, "settle revisions")
}
