package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

const (
	notifyKind  = "notify"
	notifyQueue = "notifications"
	// channels that are sent to at once, of all tenants and of one: a receiver that does not answer
	// delays no other tenant
	notifyAtOnce   = 16
	notifyOfTenant = 2

	notifyClaim  = 90 * time.Second // after which a message of a dead replica is sent again
	notifyEvents = 5000             // at most, of one message
	mostFacts    = 20000            // Applications of one decision

	keepNotifications = 14 * 24 * time.Hour // that have ended
	giveUpAfter       = 3 * 24 * time.Hour  // for messages that were never sent
)

// Notifications keep what is sent about the fleet. A decision and its messages are one transaction;
// one River job for each channel sends them.
type Notifications struct{ *database }

// NotifyFacts returns what decides about notifications. syncs adds the Applications whose last sync
// failed, for which all statuses are read.
func (s *Notifications) NotifyFacts(ctx context.Context, syncs bool) (f mirror.NotifyFacts,
	err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		f = mirror.NotifyFacts{}
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&f.Now); err != nil {
			return err
		}
		for _, read := range []func(context.Context, pgx.Tx, *mirror.NotifyFacts) error{
			readIncidents, readSilences, readUnreachable, readHalted} {
			if err := read(ctx, tx, &f); err != nil {
				return err
			}
		}
		return readNotifyApplications(ctx, tx, syncs, &f)
	})
	return f, wrap(err, "facts of notifications")
}

func readIncidents(ctx context.Context, tx pgx.Tx, f *mirror.NotifyFacts) error {
	rows, err := tx.Query(ctx, `
		SELECT trigger, tenant, subject, since, over_since, sent FROM incidents`)
	if err != nil {
		return err
	}
	f.Open, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i mirror.Incident,
		err error) {
		err = row.Scan(&i.Trigger, &i.Tenant, &i.Subject, &i.Since, &i.OverSince, &i.Sent)
		return i, err
	})
	return err
}

func readSilences(ctx context.Context, tx pgx.Tx, f *mirror.NotifyFacts) error {
	rows, err := tx.Query(ctx, `
		SELECT z.engine, z.since, e.message, coalesce((
			SELECT jsonb_object_agg(n.tenant, n.count) FROM (
				SELECT d.tenant, count(*) AS count FROM desired d
				WHERE d.engine = z.engine AND d.kind = 'Application' AND NOT d.absent GROUP BY d.tenant) n), '{}')
		FROM silences z JOIN engines e ON e.engine = z.engine WHERE z.since IS NOT NULL ORDER BY z.engine`)
	if err != nil {
		return err
	}
	f.Silent, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e mirror.SilentEngine,
		err error) {
		err = row.Scan(&e.Engine, &e.Since, &e.Message, &e.Applications)
		return e, err
	})
	return err
}

func readUnreachable(ctx context.Context, tx pgx.Tx, f *mirror.NotifyFacts) error {
	rows, err := tx.Query(ctx, `
		SELECT DISTINCT ON (tenant, environment) tenant, environment, engine, since, message, parked
		FROM reach ORDER BY tenant, environment, since`)
	if err != nil {
		return err
	}
	f.Unreachable, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (
		u mirror.UnreachableEnvironment, err error) {
		err = row.Scan(&u.ID.Tenant, &u.ID.Name, &u.Engine, &u.Since, &u.Message, &u.Applications)
		return u, err
	})
	return err
}

func readHalted(ctx context.Context, tx pgx.Tx, f *mirror.NotifyFacts) error {
	rows, err := tx.Query(ctx, `
		SELECT body - 'members' FROM rollouts WHERE ended_at IS NULL AND state IN ('AwaitsApproval', 'Failed', 'Returning', 'Returned')
		ORDER BY tenant, deployment`)
	if err != nil {
		return err
	}
	if f.Rollouts, err = pgx.CollectRows(rows, pgx.RowTo[mirror.Rollout]); err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `
		SELECT revision, reason, tenant, message, since FROM holds ORDER BY tenant, reason, n`)
	if err != nil {
		return err
	}
	f.Holds, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h mirror.Hold, err error) {
		err = row.Scan(&h.Revision, &h.Reason, &h.Tenant, &h.Message, &h.Since)
		return h, err
	})
	return err
}

// An index finds Applications by health. No index has the phase of the last sync: with one, every
// status that a sync changes would cost an entry in each index of the table.
const sqlNotifyApplications = `
	WITH ill AS (
		SELECT s.engine, s.kind, s.name FROM status s WHERE s.health = 'Degraded'
		UNION SELECT s.engine, s.kind, s.name FROM status s WHERE $1 AND s.operation_phase IN ('Failed', 'Error')
		UNION SELECT d.engine, d.kind, d.name FROM incidents i JOIN desired d ON d.kind = 'Application' AND d.tenant = i.tenant
			AND d.deployment = split_part(i.subject, '@', 1) AND d.environment = split_part(i.subject, '@', 2)
			WHERE i.trigger IN ('Degraded', 'SyncFailed')),
	silent AS MATERIALIZED (SELECT engine FROM silences WHERE since IS NOT NULL)
	SELECT DISTINCT ON (d.tenant, d.deployment, d.environment) d.tenant, d.deployment, d.environment, d.engine, s.sync, s.health,
		s.operation_phase, CASE WHEN s.message <> '' THEN s.message ELSE s.operation_error END, s.observed_at, d.revision, s.synced_revision,
		r.since IS NOT NULL OR d.engine IN (SELECT engine FROM silent)
	FROM ill JOIN desired d ON d.engine = ill.engine AND d.kind = ill.kind AND d.name = ill.name AND d.kind = 'Application' AND NOT d.absent
	JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
	LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
	ORDER BY d.tenant, d.deployment, d.environment, d.seq DESC LIMIT $2`

func readNotifyApplications(ctx context.Context, tx pgx.Tx, syncs bool,
	f *mirror.NotifyFacts) error {
	rows, err := tx.Query(ctx, sqlNotifyApplications, syncs, mostFacts)
	if err != nil {
		return err
	}
	f.Applications, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (
		a mirror.NotifyApplication, err error) {
		var observed *time.Time
		err = row.Scan(&a.ID.Tenant, &a.ID.Deployment, &a.ID.Environment, &a.Engine, &a.Sync,
			&a.Health, &a.Phase, &a.Message, &observed, &a.Revision, &a.Synced, &a.Unknown)
		a.ObservedAt = orZero(observed)
		return a, err
	})
	return err
}

// TakeNotifyStep records a decision: its incidents, its messages, and a job for each channel with
// messages that are due. An event that is recorded already is not recorded again. mirror.ErrFenced
// when the lease has passed on.
func (s *Notifications) TakeNotifyStep(ctx context.Context, lease mirror.Lease,
	step mirror.NotifyStep) error {
	bodies, err := encoded(step.Send)
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		if len(step.Drop) > 0 {
			b.Queue(`
				DELETE FROM incidents i USING unnest($1::text[], $2::text[], $3::text[]) AS g (trigger, tenant, subject)
				WHERE i.trigger = g.trigger AND i.tenant = g.tenant AND i.subject = g.subject`,
				incidentColumns(step.Drop)...)
		}
		for _, i := range step.Put {
			sent := i.Sent
			if sent == nil {
				sent = []string{}
			}
			b.Queue(`
				INSERT INTO incidents (trigger, tenant, tenant_uid, subject, since, over_since, sent)
				VALUES ($1, $2, live_tenant($2), $3, $4, $5, $6)
				ON CONFLICT (trigger, tenant, subject) DO UPDATE SET since = excluded.since, over_since = excluded.over_since, sent = excluded.sent`,
				string(i.Trigger), string(i.Tenant), text(i.Subject), i.Since, i.OverSince, sent)
		}
		if len(step.Send) > 0 {
			b.Queue(sqlAddNotifications, notificationColumns(step.Send, bodies)...)
		}
		b.Queue(sqlNotifyJobs)
	})
	if err == nil && len(step.Send) > 0 {
		s.wakeNotify(ctx)
	}
	return wrap(err, "record %d messages", len(step.Send))
}

const sqlAddNotifications = `
	INSERT INTO notifications (id, tenant, tenant_uid, channel, state, body, at, due)
	SELECT n.id, n.tenant, live_tenant(n.tenant), n.channel, 'Pending', n.body::jsonb, n.at, n.due
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[]) AS n (id, tenant, channel, body, at, due)
	ON CONFLICT (id) DO NOTHING`

func notificationColumns(all []mirror.Notification, bodies []string) []any {
	return []any{column(all, func(n mirror.Notification) string { return n.ID }),
		column(all, func(n mirror.Notification) string { return string(n.Tenant) }),
		column(all, func(n mirror.Notification) string { return text(n.Channel) }), bodies,
		column(all, func(n mirror.Notification) time.Time { return n.At }),
		column(all, func(n mirror.Notification) time.Time { return n.Due })}
}

func incidentColumns(all []mirror.Incident) []any {
	return []any{column(all, func(i mirror.Incident) string { return string(i.Trigger) }),
		column(all, func(i mirror.Incident) string { return string(i.Tenant) }),
		column(all, func(i mirror.Incident) string { return text(i.Subject) })}
}

// sqlNotifyJobs inserts a job for each channel with something to send and none. A channel whose
// last message waits for another attempt has nothing to send.
const sqlNotifyJobs = `
	INSERT INTO river_job (args, kind, queue, priority, max_attempts)
	SELECT jsonb_build_object('key', c.key), '` + notifyKind + `', '` + notifyQueue + `', 2, 3
	FROM (SELECT n.tenant || '/' || n.channel AS key FROM notifications n
		WHERE n.ended_at IS NULL GROUP BY n.tenant, n.channel
		HAVING bool_or(n.due <= now() AND (n.claimed_until IS NULL OR n.claimed_until < now()))
			AND NOT bool_or(n.message <> '' AND (n.due > now() OR n.claimed_until >= now()))
		ORDER BY min(n.due) LIMIT 1000) c
	WHERE c.key NOT IN (SELECT args->>'key' FROM river_job WHERE kind = '` + notifyKind + `' AND args ? 'key'
		AND state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))`

func (s *Notifications) wakeNotify(ctx context.Context) {
	_, err := s.work.Exec(ctx, `SELECT pg_notify('`+schema+`.river_insert', '{"queue": "`+
		notifyQueue+`"}')`)
	if err != nil {
		s.log.Debug("a new job waits for the next poll", "error", err)
	}
}

// RequestTest records a test message for a channel and its job, and returns its ID.
func (s *Notifications) RequestTest(ctx context.Context, tenant fleet.TenantName, channel,
	by string) (string, error) {
	now := time.Now()
	n := mirror.Notification{ID: newID(), Tenant: tenant, Channel: channel, About: tenant,
		Trigger: fleet.TriggerTest, Since: now, At: now, Due: now,
		State: mirror.NotificationPending, Message: "requested by " + message(by)}
	bodies, err := encoded([]mirror.Notification{n})
	if err != nil {
		return "", err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlAddNotifications,
			notificationColumns([]mirror.Notification{n}, bodies)...); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE notifications SET due = now(), at = now() WHERE id = $1`,
			n.ID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlNotifyJobs); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "test channel", by: by, tenant: tenant,
			subject: "channel " + text(channel)})
	})
	if err == nil {
		s.wakeNotify(ctx)
	}
	return n.ID, wrap(err, "request a test of channel %s", channel)
}

// ClaimMessage takes the next message of a channel: one whose earlier attempt failed or whose
// replica died, else all events that are due. false: there is none now. perHour limits the messages
// of the tenant: more events wait until the limit allows a message.
func (s *Notifications) ClaimMessage(ctx context.Context, tenant fleet.TenantName, channel string,
	perHour int) (m mirror.NotifyMessage, ok bool, err error) {
	m = mirror.NotifyMessage{Tenant: tenant, Channel: channel}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		m.ID, m.Events, m.More, m.Attempts = "", nil, 0, 0
		// two claims of one channel follow one another
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('argosy notify ' || $1, 0))`,
			string(tenant)+"/"+text(channel)); err != nil {
			return err
		}
		var begun, waits bool
		if err := tx.QueryRow(ctx, `
			SELECT coalesce(min(message) FILTER (WHERE message <> ''), ''), count(*) FILTER (WHERE message <> '') > 0,
				coalesce(bool_or(message <> '' AND (due > now() OR claimed_until >= now())), false)
			FROM notifications WHERE tenant = $1 AND channel = $2 AND ended_at IS NULL`, string(tenant),
			text(channel)).Scan(&m.ID, &begun, &waits); err != nil || waits {
			m.ID = ""
			return err
		}
		if !begun {
			free, err := withinLimit(ctx, tx, tenant, channel, perHour)
			if err != nil || !free {
				return err
			}
			m.ID = newID()
			if _, err := tx.Exec(ctx, `
				UPDATE notifications SET message = $3 WHERE id IN (
					SELECT id FROM notifications WHERE tenant = $1 AND channel = $2 AND ended_at IS NULL AND due <= now()
					ORDER BY at, id LIMIT $4)`, string(tenant), text(channel), m.ID,
				notifyEvents); err != nil {
				return err
			}
		}
		return claimed(ctx, tx, &m)
	})
	return m, err == nil && len(m.Events) > 0, wrap(err, "messages of channel %s", channel)
}

// withinLimit reports whether the tenant may send another message now. If not, what is due waits.
func withinLimit(ctx context.Context, tx pgx.Tx, tenant fleet.TenantName, channel string,
	perHour int) (bool, error) {
	var free *time.Time
	err := tx.QueryRow(ctx, `
		SELECT min(at) + interval '1 hour' FROM (
			SELECT max(ended_at) AS at FROM notifications
			WHERE tenant = $1 AND ended_at > now() - interval '1 hour' AND state = 'Sent' GROUP BY channel, message
			ORDER BY 1 DESC LIMIT $2) m HAVING count(*) >= $2`, string(tenant), perHour).Scan(&free)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && free == nil {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE notifications SET due = $3 WHERE tenant = $1 AND channel = $2 AND ended_at IS NULL AND due <= now()`,
		string(tenant), text(channel), *free)
	return false, err
}

const shownOfMessage = 100

func claimed(ctx context.Context, tx pgx.Tx, m *mirror.NotifyMessage) error {
	rows, err := tx.Query(ctx, `
		WITH taken AS (
			UPDATE notifications SET state = 'Sending', claimed_until = now() + $4 * interval '1 second', attempts = attempts + 1
			WHERE tenant = $1 AND channel = $2 AND message = $3 AND ended_at IS NULL RETURNING id, body, at, attempts)
		SELECT body, attempts, count(*) OVER (), now() FROM taken ORDER BY at, id LIMIT $5`,
		string(m.Tenant), text(m.Channel), m.ID, notifyClaim.Seconds(), shownOfMessage)
	if err != nil {
		return err
	}
	var n mirror.Notification
	var total int
	_, err = pgx.ForEachRow(rows, []any{&n, &m.Attempts, &total, &m.At}, func() error {
		m.Events = append(m.Events, n)
		n = mirror.Notification{}
		return nil
	})
	m.More = total - len(m.Events)
	return err
}

// SettleMessage records the outcome of an attempt.
func (s *Notifications) SettleMessage(ctx context.Context, m mirror.NotifyMessage,
	o mirror.NotifyOutcome) error {
	var again *float64
	if !o.State.Ended() {
		seconds := o.Again.Seconds()
		again = &seconds
	}
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			UPDATE notifications SET state = $4, answer = $5, claimed_until = NULL,
				due = CASE WHEN $6::float8 IS NULL THEN due ELSE now() + $6::float8 * interval '1 second' END,
				ended_at = CASE WHEN $6::float8 IS NULL THEN now() END
			WHERE tenant = $1 AND channel = $2 AND message = $3 AND ended_at IS NULL`,
			string(m.Tenant), text(m.Channel), m.ID, string(o.State), message(o.Answer), again)
	})
	return wrap(err, "outcome of message %s", m.ID)
}

// DropChannel ends the messages of a channel that is no longer declared.
func (s *Notifications) DropChannel(ctx context.Context, tenant fleet.TenantName,
	channel string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			UPDATE notifications SET state = 'Dropped', answer = 'the channel is not declared', claimed_until = NULL, ended_at = now()
			WHERE tenant = $1 AND channel = $2 AND ended_at IS NULL`, string(tenant), text(channel))
	})
	return wrap(err, "messages of channel %s", channel)
}

var sqlTidyNotifications = []string{
	`UPDATE notifications SET state = 'Failed', answer = 'not sent within three days: ' || answer, ended_at = now(), claimed_until = NULL
		WHERE id IN (SELECT id FROM notifications WHERE ended_at IS NULL AND at < now() - interval '` + sqlHours(giveUpAfter) + `' LIMIT $1)`,
	`DELETE FROM notifications WHERE id IN (
		SELECT id FROM notifications WHERE ended_at < now() - interval '` + sqlHours(keepNotifications) + `' ORDER BY ended_at LIMIT $1)`,
	sqlTidyCommits,
}

func sqlHours(d time.Duration) string { return fmt.Sprintf("%d hours", int(d.Hours())) }

// Tidy deletes notifications and commit statuses that ended 14 days ago, and gives up notifications
// that were not sent within three days. It returns the number of changed rows.
func (s *Notifications) Tidy(ctx context.Context) (int64, error) {
	var all int64
	for _, sql := range sqlTidyNotifications {
		n, err := s.prune(ctx, pruning{sql: sql})
		if all += n; err != nil {
			return all, fmt.Errorf("tidy notifications: %w", err)
		}
	}
	return all, nil
}

// notifyArgs name a channel: the tenant, a slash and the channel.
type notifyArgs struct {
	Key string `json:"key"`
}

// Kind names the jobs to River.
func (notifyArgs) Kind() string { return notifyKind }

// Work sends until ctx ends: to at most 16 channels at once, two of them of one tenant, and never
// twice to the same. send gets a channel that has messages. It is for the replica that holds the
// reconciler's lease.
func (s *Notifications) Work(ctx context.Context,
	send func(context.Context, fleet.TenantName, string) error) error {
	pool, err := (pool{size: riverConns, patience: workPatience, acquire: 2 * workPatience}).open(
		context.WithoutCancel(ctx), s.base, s.tracer, &atomic.Int64{})
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer pool.Close()
	workers, err := riverWorkers(nil, &notifyRunner{store: s, send: send, busy: map[string]bool{},
		tenants: map[string]int{}})
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	config := riverConfig(workers, s.log)
	config.Queues = map[string]river.QueueConfig{notifyQueue: {MaxWorkers: notifyAtOnce}}
	for failed := 0; ctx.Err() == nil; failed++ {
		client, err := river.NewClient(riverpgxv5.New(pool), config)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if err = client.Start(ctx); err == nil {
			<-client.Stopped()
			break
		}
		if ctx.Err() == nil {
			s.log.Warn("messages are kept and not sent; trying again", "error", err)
			pacing.SleepAbout(ctx, min(100*time.Millisecond<<min(failed, 10), startPause))
		}
	}
	return nil
}

// riverWorkers returns workers for the jobs of both queues. A client works its own queue alone, but
// any may be the one that rescues the jobs of a dead replica, and that discards jobs of a kind that
// it does not know.
func riverWorkers(review *jobRunner, notify *notifyRunner) (*river.Workers, error) {
	workers := river.NewWorkers()
	if review == nil {
		review = &jobRunner{}
	}
	if notify == nil {
		notify = &notifyRunner{}
	}
	return workers, errors.Join(river.AddWorkerSafely(workers, review),
		river.AddWorkerSafely(workers, notify))
}

// notifyRunner runs the jobs of one replica.
type notifyRunner struct {
	river.WorkerDefaults[notifyArgs]
	store *Notifications
	send  func(context.Context, fleet.TenantName, string) error

	mu      sync.Mutex
	busy    map[string]bool // channels
	tenants map[string]int  // channels that are being sent to
}

// Work sends what one channel has to get.
func (w *notifyRunner) Work(ctx context.Context, job *river.Job[notifyArgs]) (err error) {
	tenant, channel, ok := strings.Cut(job.Args.Key, "/")
	if !ok {
		return river.JobCancel(errors.New("the job names no channel"))
	}
	if !w.enter(job.Args.Key, tenant) {
		return river.JobSnooze(jobPause)
	}
	defer w.leave(job.Args.Key, tenant)
	defer func() {
		if v := recover(); v != nil {
			w.store.log.Error("a message was not sent", "tenant", tenant, "channel", channel,
				"panic", v, "stack", string(debug.Stack()))
			err = errJob
		}
	}()
	if err := w.send(ctx, fleet.TenantName(tenant), channel); err != nil && ctx.Err() == nil {
		w.store.log.Warn("failed to work on the messages of a channel; trying again", "tenant",
			tenant, "channel", channel, "error", err)
		return errJob
	}
	return ctx.Err()
}

func (w *notifyRunner) enter(key, tenant string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[key] || w.tenants[tenant] >= notifyOfTenant {
		return false
	}
	w.busy[key] = true
	w.tenants[tenant]++
	return true
}

func (w *notifyRunner) leave(key, tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, key)
	if w.tenants[tenant]--; w.tenants[tenant] == 0 {
		delete(w.tenants, tenant)
	}
}

const sqlNotification = `SELECT n.id, n.body, n.state, n.attempts, n.answer, n.message, n.due, n.ended_at FROM notifications n`

func scanNotification(row pgx.CollectableRow) (n mirror.Notification, err error) {
	var body []byte
	var id, messageID, answer string
	var state mirror.NotificationState
	var attempts int
	var due time.Time
	var ended *time.Time
	if err = row.Scan(&id, &body, &state, &attempts, &answer, &messageID, &due,
		&ended); err != nil {
		return n, err
	}
	err = json.Unmarshal(body, &n)
	n.ID, n.State, n.Attempts, n.Answer, n.MessageID = id, state, attempts, answer, messageID
	n.Due, n.EndedAt = due, ended
	return n, err
}

// Notifications match Filter.Tenant, State, Kind (the trigger) and Name (the channel), the newest
// first.
func (s *Views) Notifications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]mirror.Notification, string, error) {
	f := filter{}
	f.tenants("n.tenant", scope, by.Tenant)
	f.equal("n.state", string(by.State))
	f.equal("n.channel", by.Name)
	return list(ctx, s.database, scope, listing[mirror.Notification]{
		name: "notifications", keys: []string{"to_char(n.at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')", "n.id"},
		newest: true,
		sql:    sqlNotification,
		scan:   scanNotification,
		key: func(n mirror.Notification) []string {
			return []string{n.At.UTC().Format("20060102150405") +
				fmt.Sprintf("%06d", n.At.Nanosecond()/int(time.Microsecond)), n.ID}
		},
	}, f, page, nil)
}

// TestChannel records a test message for a channel, its job and the audit entry, and returns the
// message's ID.
func (s *Decisions) TestChannel(ctx context.Context, tenant fleet.TenantName, channel,
	by string) (string, error) {
	return (&Notifications{s.database}).RequestTest(ctx, tenant, channel, by)
}
