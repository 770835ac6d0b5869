package postgres

import (
	"context"
	"time"
)

// sqlOpenRevisions reads the revisions of some rows that are not fully applied yet.
const sqlOpenRevisions = `
	SELECT coalesce(array_agg(DISTINCT d.revision), '{}')
	FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
	JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name
	WHERE EXISTS (SELECT FROM revisions WHERE applied_at IS NULL)
		AND EXISTS (SELECT FROM revisions r WHERE r.revision = d.revision AND r.applied_at IS NULL)`

// maximum delay of an acknowledgement for the completion of its revisions
const settleTime = 2 * time.Second

// settle completes those of the open revisions whose every row is applied. It runs after the commit
// of the transaction that changed their rows: see settle in migrations/00011_settle.sql. Its
// failure does not fail that transaction: Settle completes them later.
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

// Settle completes every open revision whose rows are all applied. Acknowledge and Record complete
// the revisions that they change; Settle, called every few seconds, completes those that a lost
// connection or a lock kept open.
func (s *Plans) Settle(ctx context.Context) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `SELECT settle(NULL)`)
		return err
	})
	return wrap(err, "settle revisions")
}
