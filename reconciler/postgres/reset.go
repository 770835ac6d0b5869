package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

// Reset drops what can be had again from Git and from the engines, for `argosy rebuild`. What people decided and did stays (stops,
// approvals, tokens, operations, the audit log) and the agents that joined, and so do the epochs of leases, which may never go back, the guards' memory of
// deletions, and the syncs that were asked for, which must not be done twice. Numbers of rows go on where they were. A replica that runs
// meanwhile loses the reconciler's lease, and with it what it knew of the mirror; what it is recording is waited for.
//
// Agents lose the leases of their engines, and with them what they know of rows: the next session has a higher epoch, for which they read all
// rows anew. What they said before is dropped, since an object that a row of the old mirror named was no stray: placements are made by what
// they say of the new one.
func (s *Store) Reset(ctx context.Context) error {
	ctx = patient(ctx, longPatience)
	err := s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE leases SET holder = '', epoch = epoch + 1, expires_at = '-infinity'
				WHERE name = 'reconciler' OR starts_with(name, 'engine/') AND starts_with(holder, 'agent/');
			TRUNCATE declarations, sealed, quarantines, problems, placements, desired, status, revisions, holds, sync_holds, strays, tombstones;
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
		return tell(ctx, tx, deed{kind: fleet.OperationRebuild, subject: "the mirror", by: "argosy",
			event: fleet.Event{Kind: "revision", Text: "the mirror is rebuilt"}})
	})
	return wrap(err, "reset the mirror")
}

// Prune drops what nobody asks for any more: events older than a day, deletions older than every window of guards, access tokens that are
// no longer remembered, registration tokens that ended 30 days ago, agents that ended 90 days ago, replicas that were not seen for a day. It is
// to be called now and then; it deletes a bounded number of rows and reports how many.
func (s *Store) Prune(ctx context.Context) (int64, error) {
	var n int64
	for _, sql := range []string{
		`DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at < now() - interval '24 hours' ORDER BY at LIMIT 10000)`,
		`DELETE FROM deletions WHERE n IN (SELECT n FROM deletions WHERE at < now() - interval '169 hours' ORDER BY at LIMIT 10000)`,
		`DELETE FROM agent_access WHERE hash IN (SELECT hash FROM agent_access WHERE expires_at < now() - interval '10 minutes' ORDER BY expires_at LIMIT 10000)`,
		`DELETE FROM agent_tokens WHERE id IN (
			SELECT id FROM agent_tokens WHERE least(expires_at, CASE WHEN NOT legacy THEN used_at END, revoked_at) < now() - interval '30 days' LIMIT 10000)`,
		`DELETE FROM agents WHERE id IN (SELECT id FROM agents WHERE ended_at < now() - interval '90 days' ORDER BY ended_at LIMIT 10000)`,
		`DELETE FROM tombstones WHERE (engine, kind, name) IN (
			SELECT engine, kind, name FROM tombstones WHERE at < now() - interval '1 hour' LIMIT 10000)`,
		`DELETE FROM replicas WHERE replica IN (SELECT replica FROM replicas WHERE beat_at < now() - interval '1 day' LIMIT 10000)`,
	} {
		err := s.again(ctx, func() error {
			tag, err := s.work.Exec(ctx, sql)
			if err == nil {
				n += tag.RowsAffected()
			}
			return err
		})
		if err != nil {
			return n, fmt.Errorf("prune: %w", err)
		}
	}
	return n, nil
}
