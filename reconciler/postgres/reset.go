package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Reset deletes everything that Git and the engines can restore, for `argosy rebuild`. People's
// decisions and actions stay (stops, approvals, tokens, operations, the audit log), and so do the
// joined agents, the epochs of leases, which may never decrease, the guards' history of deletions,
// and the requested syncs, which must not run twice. Numbers of rows continue. A replica that runs
// meanwhile loses the reconciler's lease, and with it its knowledge of the mirror; Reset waits for
// a record in progress.
//
// Agents lose the leases of their engines, and with them their knowledge of rows: the next session
// has a higher epoch, for which they read all rows again. Their earlier reports are deleted, since
// an object with a row in the old mirror was no orphan: placements follow from the reports on the
// new mirror.
func (s *Store) Reset(ctx context.Context) error {
	ctx = patient(ctx, longPatience)
	err := s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE leases SET holder = '', epoch = epoch + 1, expires_at = '-infinity'
				WHERE name = 'reconciler' OR starts_with(name, 'engine/') AND starts_with(holder, 'agent/');
			TRUNCATE declarations, sealed, quarantines, problems, placements, desired, status, revisions, holds, sync_holds, strays, tombstones, reach;
			UPDATE mirror SET applied = '', plan = '';
			UPDATE memory SET body = convert_to('{"rebuilt":true}', 'UTF8');
			UPDATE engines SET cursor = 0;
			UPDATE engines e SET reachable = false, message = 'the mirror is rebuilt', since = now()
				FROM agents a WHERE a.engine = e.engine AND a.ended_at IS NULL;
			UPDATE agents SET declared = false, reachable = false, strays = 0, stray_environments = NULL WHERE ended_at IS NULL;
			UPDATE operations SET state = 'Failed', message = 'the mirror was rebuilt', ended_at = now() WHERE ended_at IS NULL AND kind = 'Reconcile'`)
		if err != nil {
			return err
		}
		return tell(ctx, tx, deed{kind: mirror.OperationRebuild, subject: "the mirror", by: "argosy",
			event: view.Event{Kind: "revision", Text: "the mirror is rebuilt"}})
	})
	return wrap(err, "reset the mirror")
}
