package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const ownColumnNames = `o.tenant, o.environment, o.engine, o.namespace, o.name, o.uid, o.project, o.repo_url, o.path, o.target_revision, o.sync, o.health,
	o.synced_revision, o.operation_phase, o.operation_id, o.message, o.resources, o.observed_at`

func scanOwn(row pgx.CollectableRow) (view.Own, error) {
	var o view.Own
	err := row.Scan(&o.Tenant, &o.Environment, &o.Engine, &o.Namespace, &o.Name, &o.UID, &o.Project,
		&o.RepoURL, &o.Path, &o.TargetRevision, &o.Sync, &o.Health,
		&o.SyncedRevision, &o.OperationPhase, &o.OperationID, &o.Message, &o.Resources,
		&o.ObservedAt)
	return o, err
}

// OwnApplications lists the Applications of autonomous clusters' own users, as last reported by
// their agents. They match Filter.{Tenant, Environment, Engine, Sync, Health, Name}, ordered by
// tenant, environment, namespace, name.
func (s *Views) OwnApplications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Own, string, error) {
	f := filter{conditions: []string{"o.tenant_uid = live_tenant(o.tenant)"}}
	f.tenants("o.tenant", scope, by.Tenant)
	f.equal("o.environment", string(by.Environment))
	f.equal("o.engine", string(by.Engine))
	f.equal("o.sync", string(by.Sync))
	f.equal("o.health", string(by.Health))
	f.equal("o.name", by.Name)
	return list(ctx, s.database, scope, listing[view.Own]{
		name: "own applications", sql: `SELECT ` + ownColumnNames + ` FROM own_applications o`,
		scan: scanOwn,
		keys: []string{"o.tenant", "o.environment", "o.namespace", "o.name"},
		key: func(o view.Own) []string {
			return []string{string(o.Tenant), string(o.Environment), o.Namespace, o.Name}
		},
	}, f, page, nil)
}

// maxAsked is the maximum number of pending syncs of one environment's own Applications.
const maxAsked = 100

// AskSync requests a sync of an autonomous cluster's own Application, by Tenant, Environment,
// Namespace and Key.Name, at Revision (empty: the Application's own) and with Prune. A pending sync
// of it is returned unchanged. mirror.ErrNotFound when the scope has no such Application, or its
// cluster is no longer autonomous. mirror.ErrTooManySyncs: a hundred syncs of its cluster are
// pending.
func (s *Agents) AskSync(ctx context.Context, scope view.Scope, ask mirror.SyncRequest,
	by string) (mirror.SyncRequest, error) {
	ask.ID = newID()
	operation := newID()
	var got mirror.SyncRequest
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		got, err = askSync(ctx, tx, scope, ask, operation, by)
		return err
	})
	if err != nil {
		return mirror.SyncRequest{}, fmt.Errorf("sync of %s/%s: %s/%s: %w", ask.Tenant,
			ask.Environment, ask.Namespace, ask.Key.Name, err)
	}
	s.decided(ctx, mirror.NoticeAgents)
	return got, nil
}

func askSync(ctx context.Context, tx pgx.Tx, scope view.Scope, ask mirror.SyncRequest, operation,
	by string) (mirror.SyncRequest, error) {
	f := filter{conditions: []string{"o.tenant_uid = live_tenant(o.tenant)",
		"a.mode = 'autonomous'", "agent_stand(a.tenant, a.name) = 'declared'"}}
	f.tenants("o.tenant", scope, "")
	f.and("o.tenant = " + f.place(text(string(ask.Tenant))) + " AND o.environment = " +
		f.place(text(string(ask.Environment))))
	f.and("o.namespace = " + f.place(text(ask.Namespace)) + " AND o.name = " +
		f.place(text(ask.Key.Name)))
	var engine string
	var uid any
	// The agent's row is locked: requests are serialized, so that the count is exact.
	err := tx.QueryRow(ctx,
		`SELECT a.engine, a.tenant_uid::text FROM own_applications o JOIN agents a ON a.engine = o.engine AND a.ended_at IS NULL`+f.where()+
			` FOR NO KEY UPDATE OF a`, f.args...).Scan(&engine, &uid)
	if errors.Is(err, pgx.ErrNoRows) {
		return ask, mirror.ErrNotFound
	}
	if err != nil {
		return ask, err
	}
	open, err := read(ctx, tx, scanSync, sqlOpenSyncs+` AND deployment = '' ORDER BY operation`,
		engine)
	if err != nil {
		return ask, err
	}
	for _, q := range open {
		if q.Namespace == ask.Namespace && q.Key.Name == ask.Key.Name {
			return q, nil
		}
	}
	if len(open) >= maxAsked {
		return ask, mirror.ErrTooManySyncs
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO syncs (id, operation, engine, namespace, name, tenant, tenant_uid, environment, deployment, sync_run, revision, prune, state)
		VALUES ($1, $2, $3, $4, $5, $6, $7::text::uuid, $8, '', '', $9, $10, 'Pending') ON CONFLICT (id) DO NOTHING`,
		ask.ID, operation, engine, ask.Namespace, ask.Key.Name, string(ask.Tenant), uid,
		string(ask.Environment), message(ask.Revision), ask.Prune)
	if err != nil {
		return ask, err
	}
	subject := string(ask.Tenant) + "/" + string(ask.Environment) + ": " + ask.Namespace + "/" +
		ask.Key.Name
	_, err = tx.Exec(ctx, `
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ($1, 'Sync', 'Pending', $2, $3::text::uuid, $4, $5, '', $6, '', 0, 1, now())`, operation, string(ask.Tenant), uid, engine, subject, text(by))
	if err != nil {
		return ask, err
	}
	asked, err := read(ctx, tx, scanSync, sqlOpenSyncs+` AND id = $2`, engine, ask.ID)
	if err != nil {
		return ask, err
	}
	if len(asked) != 1 {
		return ask, mirror.ErrNotFound
	}
	return asked[0], tell(ctx, tx, deed{action: "sync", subject: subject, tenant: ask.Tenant,
		by: by, note: ask.Revision,
		event: view.Event{Kind: "operation", Tenant: ask.Tenant, Name: operation,
			Text: "sync of " + subject + ": Pending"}})
}
