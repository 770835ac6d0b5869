package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlApply is the apply state of an object, of desired d and status s.
const sqlApply = `CASE
	WHEN d.absent THEN CASE WHEN s.seq = d.seq AND s.state IN ('Failed', 'Conflict', 'Held') THEN s.state ELSE 'Deleting' END
	WHEN d.held THEN 'Held'
	WHEN s.seq = d.seq THEN s.state
	ELSE 'Pending' END`

// sqlBlockedAfter is mirror.DeletionBlockedAfter.
var sqlBlockedAfter = fmt.Sprintf("interval '%d seconds'", mirror.DeletionBlockedAfter/time.Second)

// Applications match Filter.{Tenant, Environment, Deployment, Engine, Revision, Sync, Health,
// Apply, Name}, ordered by tenant, deployment, environment. They include those whose deletion is
// not proven yet.
func (s *Views) Applications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Application, string, error) {
	f := filter{conditions: []string{"d.kind = 'Application'"}}
	f.tenants("d.tenant", scope, by.Tenant)
	f.equal("d.environment", string(by.Environment))
	f.equal("d.deployment", string(by.Deployment))
	f.equal("d.engine", string(by.Engine))
	f.equal("d.revision", string(by.Revision))
	f.equal("d.name", by.Name)
	f.equal("coalesce(s.sync, 'Unknown')", string(by.Sync))
	switch by.Health {
	case mirror.HealthDegraded, mirror.HealthMissing, mirror.HealthSuspended:
		f.and("s.health = '" + string(by.Health) + "'") // an index has these few
	default:
		f.equal("coalesce(s.health, 'Unknown')", string(by.Health))
	}
	if by.Apply == mirror.ApplyFailed || by.Apply == mirror.ApplyConflict {
		f.and("s.state = '" + string(by.Apply) + "'")
	}
	f.equal(sqlApply, string(by.Apply))
	return list(ctx, s.database, scope, listing[view.Application]{
		name: "applications", keys: []string{"d.tenant", "d.deployment", "d.environment",
			"d.engine"}, scan: scanApplication,
		sql: `SELECT d.tenant, d.environment, d.deployment, d.name, d.engine, d.revision, d.body, d.created_at, d.changed_at, ` + sqlApply + `,
			concat_ws('; ', CASE WHEN s.seq = d.seq THEN nullif(s.state_message || ` + sqlWaited + `, '') END, unread.why), coalesce(s.sync, 'Unknown'), coalesce(s.health, 'Unknown'),
			coalesce(s.synced_revision, ''), coalesce(s.operation_phase, ''),
			CASE WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END, coalesce(s.resources, 0), s.observed_at,
			coalesce(s.uid, ''), r.reason, r.message, r.since, r.parked, coalesce(d.absent AND d.deletion <> 'Orphan' AND r.since < now() - ` + sqlBlockedAfter + `, false)` +
			fromRows +
			`LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
			LEFT JOIN ` + sqlUnread + ` unread ON unread.engine = d.engine AND unread.tenant = d.tenant AND unread.deployment = d.deployment`,
		key: func(a view.Application) []string {
			return []string{string(a.Tenant), string(a.Deployment), string(a.Environment),
				string(a.Engine)}
		},
	}, f, page, nil)
}

func scanApplication(row pgx.CollectableRow) (view.Application, error) {
	var a view.Application
	var u unreachable
	var body pgtype.DriverBytes // not copied: it is read before the next row
	err := row.Scan(&a.Tenant, &a.Environment, &a.Deployment, &a.Name, &a.Engine, &a.Revision,
		&body, &a.CreatedAt, &a.ChangedAt, &a.Apply,
		&a.ApplyMessage, &a.Sync, &a.Health, &a.SyncedRevision, &a.OperationPhase, &a.Message,
		&a.Resources, &a.ObservedAt,
		&a.UID, &u.reason, &u.message, &u.since, &u.parked, &a.DeletionBlocked)
	a.Unreachable = u.view()
	if err != nil {
		return a, err
	}
	var manifest struct {
		Spec struct {
			Source struct {
				RepoURL        string `json:"repoURL"`
				TargetRevision string `json:"targetRevision"`
			} `json:"source"`
		} `json:"spec"`
	}
	// We wrote the manifest. An invalid one is no reason to hide its Application.
	_ = json.Unmarshal(body, &manifest)
	a.RepoURL, a.TargetRevision = manifest.Spec.Source.RepoURL, manifest.Spec.Source.TargetRevision
	return a, nil
}
