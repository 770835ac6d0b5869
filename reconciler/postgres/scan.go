package postgres

import (
	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

const holdColumns = `revision, reason, tenant, items, nullif(paths, '[]'), message, since`

func scanHold(row pgx.CollectableRow) (fleet.Hold, error) {
	var h fleet.Hold
	err := row.Scan(&h.Revision, &h.Reason, &h.Tenant, &h.Items, &h.Paths, &h.Message, &h.Since)
	return h, err
}

func scanApproval(row pgx.CollectableRow) (fleet.Approval, error) {
	var a fleet.Approval
	err := row.Scan(&a.Revision, &a.By, &a.At, &a.Note)
	return a, err
}

func scanSyncHold(row pgx.CollectableRow) (fleet.SyncHold, error) {
	var h fleet.SyncHold
	err := row.Scan(&h.SyncRun, &h.Application.Tenant, &h.Application.Deployment,
		&h.Application.Environment, &h.TargetRevision)
	return h, err
}

const deletionColumns = `engine, name, tenant, environment, deployment, revision, approved, at`

func scanDeletion(row pgx.CollectableRow) (fleet.Deletion, error) {
	d := fleet.Deletion{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	err := row.Scan(&d.Key.Engine, &d.Key.Name, &d.Tenant, &d.Environment, &d.Deployment,
		&d.Revision, &d.Approved, &d.At)
	return d, err
}
