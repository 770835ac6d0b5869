package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	// of one tenant's settings: GitHub allows 500 requests in an hour that create something
	commitsPerHour = 400
	commitsPause   = 5 * time.Minute // once they are reached

	keepCommitStatuses = 14 * 24 * time.Hour // that have ended
)

// ChangedCommits returns those of the tenants with an Application that changed after an event, and
// the last event. A negative after returns all of the tenants.
func (s *Notifications) ChangedCommits(ctx context.Context, after int64,
	tenants []fleet.TenantName) (changed []fleet.TenantName, last int64, err error) {
	err = s.again(ctx, func() error {
		// before the snapshot of the read: see Views.Events
		return s.work.QueryRow(ctx, `SELECT event_horizon()`).Scan(&last)
	})
	switch {
	case err != nil:
		return nil, after, wrap(err, "events of Applications")
	case after < 0 || len(tenants) == 0:
		return tenants, last, nil
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT DISTINCT tenant FROM events WHERE seq > $1 AND seq <= $2 AND kind = 'application' AND tenant = ANY ($3::text[])`,
			after, last, column(tenants, func(t fleet.TenantName) string { return string(t) }))
		if err != nil {
			return err
		}
		changed, err = pgx.CollectRows(rows, pgx.RowTo[fleet.TenantName])
		return err
	})
	return changed, max(after, last), wrap(err, "events of Applications")
}

const sqlCommitApplications = `
	SELECT DISTINCT ON (d.deployment, d.environment) d.deployment, d.environment, d.absent, d.hash = coalesce(s.compared, ''), ` + sqlIsSilent + `,
		coalesce(s.sync, 'Unknown'), coalesce(s.health, 'Unknown'), coalesce(s.synced_revision, ''), coalesce(s.operation_phase, ''),
		coalesce(s.operation_revision, ''), CASE WHEN s.operation_error <> '' THEN s.operation_error ELSE coalesce(s.message, '') END,
		CASE WHEN d.absent THEN '{}' ELSE convert_from(d.body, 'UTF8')::jsonb -> 'spec' END
	FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
	LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
	WHERE d.kind = 'Application' AND d.tenant = $1
	ORDER BY d.deployment, d.environment, d.absent, d.seq DESC`

// CommitFacts returns what decides about the commit statuses of one tenant. The repositories are
// those of the rows, with which the state was compared.
func (s *Notifications) CommitFacts(ctx context.Context, tenant fleet.TenantName) (
	f mirror.CommitFacts, err error) {
	err = s.transact(ctx, func(tx pgx.Tx) (err error) {
		f = mirror.CommitFacts{}
		rows, err := tx.Query(ctx, sqlCommitApplications, string(tenant))
		if err != nil {
			return err
		}
		f.Applications, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (
			a mirror.CommitApplication, err error) {
			var spec commitSpec
			a.ID.Tenant = tenant
			err = row.Scan(&a.ID.Deployment, &a.ID.Environment, &a.Absent, &a.Current, &a.Unknown,
				&a.Sync, &a.Health, &a.Synced, &a.Phase, &a.Operation, &a.Message, &spec)
			a.Repositories = spec.repositories()
			return a, err
		})
		if err != nil {
			return err
		}
		rows, err = tx.Query(ctx, sqlCommitStatus+` WHERE c.tenant = $1 AND c.state <> 'Ended'`,
			string(tenant))
		if err == nil {
			f.Known, err = pgx.CollectRows(rows, scanCommitStatus)
		}
		if err != nil {
			return err
		}
		rows, err = tx.Query(ctx,
			`SELECT name FROM tombstones WHERE tenant = $1 AND kind = 'Application'`,
			string(tenant))
		if err == nil {
			f.Gone, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return f, wrap(err, "commits of tenant %s", tenant)
}

// commitSpec is the part of an Application's spec that names its sources.
type commitSpec struct {
	Source  *commitSource  `json:"source"`
	Sources []commitSource `json:"sources"`
}

type commitSource struct {
	RepoURL string `json:"repoURL"`
	Chart   string `json:"chart"`
}

// Scan reads the column of a row.
func (s *commitSpec) Scan(v any) error {
	switch v := v.(type) {
	case string:
		return json.Unmarshal([]byte(v), s)
	case []byte:
		return json.Unmarshal(v, s)
	}
	return fmt.Errorf("the spec of an Application is a %T", v)
}

// repositories are the Git repositories of the sources; "" for a source that is none.
func (s commitSpec) repositories() (all []string) {
	sources := s.Sources
	if len(sources) == 0 && s.Source != nil {
		sources = []commitSource{*s.Source}
	}
	for _, source := range sources {
		u, err := fleet.ParseRepoURL(source.RepoURL)
		if err != nil || source.Chart != "" || !u.Git() {
			all = append(all, "")
			continue
		}
		all = append(all, source.RepoURL)
	}
	return all
}

// TakeCommitStep records a decision, and a job for each of the settings with reports that are due.
// A status that is recorded already is not recorded again. mirror.ErrFenced when the lease has
// passed on.
func (s *Notifications) TakeCommitStep(ctx context.Context, lease mirror.Lease,
	step mirror.CommitStep) error {
	of := func(value func(mirror.CommitStatus) string) []string {
		return column(step.Put, func(c mirror.CommitStatus) string { return message(value(c)) })
	}
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		if len(step.Put) > 0 {
			b.Queue(sqlPutCommits,
				of(func(c mirror.CommitStatus) string { return string(c.Tenant) }),
				of(func(c mirror.CommitStatus) string { return string(c.Deployment) }),
				of(func(c mirror.CommitStatus) string { return string(c.Environment) }),
				of(func(c mirror.CommitStatus) string { return c.Repository }),
				of(func(c mirror.CommitStatus) string { return c.Commit }),
				of(func(c mirror.CommitStatus) string { return c.Settings }),
				of(func(c mirror.CommitStatus) string { return string(c.State) }),
				of(func(c mirror.CommitStatus) string { return string(c.Was) }),
				of(func(c mirror.CommitStatus) string { return c.ReplacedBy }),
				of(func(c mirror.CommitStatus) string { return c.Message }))
		}
		b.Queue(sqlCommitJobs)
	})
	if err == nil && len(step.Put) > 0 {
		s.wakeNotify(ctx)
	}
	return wrap(err, "record %d commit statuses", len(step.Put))
}

// A claim outlives a change of its row, so that no second report of it begins meanwhile.
const sqlPutCommits = `
	INSERT INTO commit_statuses AS c (tenant, tenant_uid, deployment, environment, repository, commit, settings, state, was, replaced_by, message)
	SELECT n.tenant, live_tenant(n.tenant), n.deployment, n.environment, n.repository, n.commit, n.settings, n.state, n.was, n.replaced_by, n.message
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
		AS n (tenant, deployment, environment, repository, commit, settings, state, was, replaced_by, message)
	ON CONFLICT (tenant, deployment, environment, repository, commit) DO UPDATE SET
		tenant_uid = excluded.tenant_uid, settings = excluded.settings, state = excluded.state, was = excluded.was, replaced_by = excluded.replaced_by,
		message = excluded.message, begun_at = CASE WHEN c.state = 'Ended' THEN now() ELSE c.begun_at END, changed_at = now(), version = c.version + 1,
		delivery = 'Pending', attempts = 0, due = now()
	WHERE c.state <> excluded.state OR c.settings <> excluded.settings OR c.delivery = 'Dropped'`

// statusesChannel begins the name of the channel of a job that reports commits, followed by the
// name of the settings. A channel of messages has no colon in its name.
const statusesChannel = "statuses:"

const sqlCommitJobs = `
	INSERT INTO river_job (args, kind, queue, priority, max_attempts)
	SELECT jsonb_build_object('key', c.key), '` + notifyKind + `', '` + notifyQueue + `', 3, 3
	FROM (SELECT n.tenant || '/` + statusesChannel + `' || n.settings AS key FROM commit_statuses n
		WHERE n.delivery IN ('Pending', 'Sending') AND n.due <= now() AND (n.claimed_until IS NULL OR n.claimed_until < now())
		GROUP BY n.tenant, n.settings ORDER BY min(n.due) LIMIT 1000) c
	WHERE c.key NOT IN (SELECT args->>'key' FROM river_job WHERE kind = '` + notifyKind + `' AND args ? 'key'
		AND state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))`

// ClaimCommit takes the next report of the settings of a tenant: ends first, so that no commit
// stays deployed beside a later one. false: there is none now.
func (s *Notifications) ClaimCommit(ctx context.Context, tenant fleet.TenantName,
	settings string) (r mirror.CommitReport, ok bool, err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		r, ok = mirror.CommitReport{}, false
		// two claims of one settings follow one another, and none while a report is on its way
		if _, err := tx.Exec(ctx,
			`SELECT pg_advisory_xact_lock(hashtextextended('argosy statuses ' || $1, 0))`,
			string(tenant)+"/"+text(settings)); err != nil {
			return err
		}
		var busy bool
		var sent int
		if err := tx.QueryRow(ctx, `
			SELECT (SELECT EXISTS (SELECT FROM commit_statuses WHERE tenant = $1 AND settings = $2 AND delivery IN ('Pending', 'Sending') AND claimed_until >= now())),
				(SELECT count(*) FROM commit_statuses WHERE tenant = $1 AND settings = $2 AND sent_at > now() - interval '1 hour')`,
			string(tenant), text(settings)).Scan(&busy, &sent); err != nil || busy {
			return err
		}
		if sent >= commitsPerHour {
			return pauseCommits(ctx, tx, tenant, settings, commitsPause)
		}
		rows, err := tx.Query(ctx, `
			UPDATE commit_statuses c SET delivery = 'Sending', attempts = c.attempts + 1, tried = true, claimed_until = now() + $3 * interval '1 second'
			FROM (SELECT tenant, deployment, environment, repository, commit, tried FROM commit_statuses
				WHERE tenant = $1 AND settings = $2 AND delivery IN ('Pending', 'Sending') AND due <= now()
				ORDER BY state = 'Ended' DESC, changed_at, begun_at LIMIT 1) n
			WHERE (c.tenant, c.deployment, c.environment, c.repository, c.commit) = (n.tenant, n.deployment, n.environment, n.repository, n.commit)
			RETURNING `+commitColumns+`, c.version, NOT n.tried, EXISTS (SELECT FROM commit_statuses o
				WHERE o.tenant = c.tenant AND o.deployment = c.deployment AND o.environment = c.environment AND o.repository = c.repository
					AND (o.begun_at, o.commit) > (c.begun_at, c.commit))`,
			string(tenant), text(settings), notifyClaim.Seconds())
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c mirror.CommitReport,
			err error) {
			err = row.Scan(append(intoCommit(&c.CommitStatus), &c.Version, &c.First,
				&c.Superseded)...)
			return c, err
		})
		if len(all) == 1 {
			r, ok = all[0], true
		}
		return err
	})
	return r, ok && err == nil, wrap(err, "commit statuses of %s/%s", tenant, settings)
}

// pauseCommits lets all reports of the settings wait.
func pauseCommits(ctx context.Context, tx pgx.Tx, tenant fleet.TenantName, settings string,
	pause time.Duration) error {
	_, err := tx.Exec(ctx, `
		UPDATE commit_statuses SET due = greatest(due, now() + $3 * interval '1 second')
		WHERE tenant = $1 AND settings = $2 AND delivery IN ('Pending', 'Sending')`, string(tenant),
		text(settings), pause.Seconds())
	return err
}

// SettleCommit records the outcome of a report. A status that changed meanwhile stays due. pause is
// how long the Git host asks to be left alone; 0: it does not.
func (s *Notifications) SettleCommit(ctx context.Context, r mirror.CommitReport,
	o mirror.NotifyOutcome, pause time.Duration) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			UPDATE commit_statuses SET claimed_until = NULL, answer = $6,
				sent_at = CASE WHEN $7 = 'Sent' THEN now() ELSE sent_at END,
				delivery = CASE WHEN version = $8 THEN $7 ELSE delivery END,
				due = CASE WHEN version = $8 AND $7 = 'Pending' THEN now() + $9 * interval '1 second' ELSE due END
			WHERE tenant = $1 AND deployment = $2 AND environment = $3 AND repository = $4 AND commit = $5
				AND (version = $8 AND delivery = 'Sending' OR version <> $8)`,
			string(r.Tenant), string(r.Deployment), string(r.Environment), text(r.Repository),
			text(r.Commit), message(o.Answer), string(o.State), r.Version,
			o.Again.Seconds()); err != nil || pause <= 0 {
			return err
		}
		return pauseCommits(ctx, tx, r.Tenant, r.Settings, pause)
	})
	return wrap(err, "outcome of the status of %s", r.Commit)
}

// DropCommits ends the reports of settings that are no longer declared.
func (s *Notifications) DropCommits(ctx context.Context, tenant fleet.TenantName,
	settings string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			UPDATE commit_statuses SET delivery = 'Dropped', answer = 'the settings are not declared', claimed_until = NULL
			WHERE tenant = $1 AND settings = $2 AND delivery IN ('Pending', 'Sending')`,
			string(tenant), text(settings))
	})
	return wrap(err, "commit statuses of %s/%s", tenant, settings)
}

var sqlTidyCommits = `
	DELETE FROM commit_statuses WHERE (tenant, deployment, environment, repository, commit) IN (
		SELECT c.tenant, c.deployment, c.environment, c.repository, c.commit FROM commit_statuses c
		WHERE c.changed_at < now() - interval '` + sqlHours(keepCommitStatuses) + `' AND (c.state = 'Ended' OR NOT EXISTS (SELECT FROM desired d
			WHERE d.kind = 'Application' AND d.tenant = c.tenant AND d.deployment = c.deployment AND d.environment = c.environment))
		ORDER BY c.changed_at LIMIT $1)`

const commitColumns = `c.tenant, c.deployment, c.environment, c.repository, c.settings, c.commit, c.state, c.was, c.replaced_by, c.message,
	c.begun_at, c.changed_at, c.delivery, c.attempts, c.answer, c.sent_at`

const sqlCommitStatus = `SELECT ` + commitColumns + ` FROM commit_statuses c`

func intoCommit(c *mirror.CommitStatus) []any {
	return []any{&c.Tenant, &c.Deployment, &c.Environment, &c.Repository, &c.Settings, &c.Commit,
		&c.State, &c.Was, &c.ReplacedBy, &c.Message, &c.BegunAt, &c.ChangedAt, &c.Delivery,
		&c.Attempts, &c.Answer, &c.SentAt}
}

func scanCommitStatus(row pgx.CollectableRow) (c mirror.CommitStatus, err error) {
	err = row.Scan(intoCommit(&c)...)
	return c, err
}

// CommitStatuses match Filter.{Tenant, Deployment, Environment}, the last changed first.
func (s *Views) CommitStatuses(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]mirror.CommitStatus, string, error) {
	f := filter{}
	f.tenants("c.tenant", scope, by.Tenant)
	f.equal("c.deployment", string(by.Deployment))
	f.equal("c.environment", string(by.Environment))
	return list(ctx, s.database, scope, listing[mirror.CommitStatus]{
		name: "commit statuses", keys: []string{
			"to_char(c.changed_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')", "c.tenant",
			"c.deployment", "c.environment", "c.repository", "c.commit"},
		newest: true,
		sql:    sqlCommitStatus,
		scan:   scanCommitStatus,
		key: func(c mirror.CommitStatus) []string {
			at := c.ChangedAt.UTC()
			return []string{at.Format("20060102150405") + fmt.Sprintf("%06d",
				at.Nanosecond()/int(time.Microsecond)), string(c.Tenant), string(c.Deployment),
				string(c.Environment), c.Repository, c.Commit}
		},
	}, f, page, nil)
}
