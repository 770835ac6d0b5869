package postgres

import (
	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const holdColumns = `revision, reason, tenant, items, nullif(paths, '[]'), message, since`

func scanHold(row pgx.CollectableRow) (mirror.Hold, error) {
	var h mirror.Hold
	err := row.Scan(&h.Revision, &h.Reason, &h.Tenant, &h.Items, &h.Paths, &h.Message, &h.Since)
	return h, err
}

func scanApproval(row pgx.CollectableRow) (mirror.Approval, error) {
	var a mirror.Approval
	err := row.Scan(&a.Revision, &a.By, &a.At, &a.Note)
	return a, err
}

func scanSyncHold(row pgx.CollectableRow) (mirror.SyncHold, error) {
	var h mirror.SyncHold
	err := row.Scan(&h.SyncRun, &h.Application.Tenant, &h.Application.Deployment,
		&h.Application.Environment, &h.TargetRevision)
	return h, err
}

const deletionColumns = `engine, name, tenant, environment, deployment, revision, approved, at`

func scanDeletion(row pgx.CollectableRow) (mirror.Deletion, error) {
	d := mirror.Deletion{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	err := row.Scan(&d.Key.Engine, &d.Key.Name, &d.Tenant, &d.Environment, &d.Deployment,
		&d.Revision, &d.Approved, &d.At)
	return d, err
}
