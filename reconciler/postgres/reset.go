package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Reset drops what can be had again from Git and from the engines, for `argosy rebuild`. What
// people decided and did stays (stops, approvals, tokens, operations, the audit log) and the agents
// that joined, and so do the epochs of leases, which may never go back, the guards' memory of
// deletions, and the syncs that were asked for, which must not be done twice. Numbers of rows go on
// where they were. A replica that runs meanwhile loses the reconciler's lease, and with it what it
// knew of the mirror; what it is recording is waited for.
//
// Agents lose the leases of their engines, and with them what they know of rows: the next session
// has a higher epoch, for which they read all rows anew. What they said before is dropped, since an
// object that a row of the old mirror named was no stray: placements are made by what they say of
// the new one.
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
