package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// PendingSyncs returns the engine's requested syncs that have not ended, oldest first.
func (s *Work) PendingSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	all, err := collect(ctx, s.database, scanSync, sqlOpenSyncs+` ORDER BY operation`, string(engine))
	return all, wrap(err, "syncs of engine %s", engine)
}

const sqlOpenSyncs = `
	SELECT id, engine, namespace, name, tenant, environment, deployment, sync_run, revision, prune, state, message
	FROM syncs WHERE engine = $1 AND state IN ('Pending', 'Running')`

func scanSync(row pgx.CollectableRow) (mirror.SyncRequest, error) {
	q := mirror.SyncRequest{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	err := row.Scan(&q.ID, &q.Key.Engine, &q.Namespace, &q.Key.Name, &q.Tenant, &q.Environment,
		&q.Deployment, &q.SyncRun, &q.Revision, &q.Prune, &q.State, &q.Message)
	return q, err
}

// UpdateSync records the state of a sync of the lease's engine, and of its operation. An ended sync
// stays unchanged. mirror.ErrFenced when the lease has passed on.
func (s *Work) UpdateSync(ctx context.Context, lease mirror.Lease, id string,
	state mirror.OperationState, text string) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	switch state {
	case mirror.OperationPending, mirror.OperationRunning, mirror.OperationSucceeded,
		mirror.OperationFailed:
	default:
		return fmt.Errorf("sync %s: %q is no state of a sync", id, state)
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			WITH changed AS (
				UPDATE syncs SET state = $3, message = $4
				WHERE id = $1 AND engine = $2 AND state IN ('Pending', 'Running') AND (state, message) <> ($3, $4)
				RETURNING operation, tenant, CASE deployment WHEN '' THEN environment || ': ' || namespace || '/' || name ELSE deployment || '@' || environment END AS what),
			told AS (
				UPDATE operations o SET state = $3, message = CASE WHEN $4 = '' THEN o.message ELSE $4 END,
					done = CASE WHEN $3 = 'Succeeded' THEN o.total ELSE o.done END,
					ended_at = CASE WHEN $3 IN ('Succeeded', 'Failed') THEN now() END
				FROM changed c WHERE o.id = c.operation)
			SELECT new_event('operation', tenant, operation, 'sync of ' || tenant || '/' || what || ': ' || $3) FROM changed`,
			id, string(engine), string(state), message(text))
	})
	return wrap(err, "sync %s", id)
}
