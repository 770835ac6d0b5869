package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// rolloutSteps stores rollouts. They come before the rows: a rollout that begins keeps the
// manifests that its Applications have until then, and one that has ended keeps none.
func rolloutSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	for _, ended := range []bool{true, false} { // a deployment has one open rollout at a time
		for i := range r.Rollouts {
			o := &r.Rollouts[i]
			if o.State.Ended() != ended {
				continue
			}
			body, err := json.Marshal(o)
			if err != nil {
				return nil, fmt.Errorf("rollout %s: %w", o.ID, err)
			}
			steps = append(steps, step{`
				WITH was AS (SELECT state, body ->> 'message' AS message FROM rollouts WHERE id = $1),
				stored AS (
					INSERT INTO rollouts AS o (id, tenant, deployment, tenant_uid, state, body, begun_at, ended_at)
					VALUES ($1, $2, $3, live_tenant($2), $4, $5::jsonb, $6, $7)
					ON CONFLICT (id) DO UPDATE SET state = excluded.state, body = excluded.body, ended_at = excluded.ended_at)
				SELECT new_event('rollout', $2, $3, $8) WHERE NOT EXISTS (SELECT FROM was WHERE state = $4 AND message IS NOT DISTINCT FROM nullif($9, ''))`,
				[]any{o.ID, string(o.Tenant), string(o.Deployment), string(o.State), string(body),
					o.BegunAt, o.EndedAt, rolloutNews(o), message(o.Message)}})
			steps = append(steps, keepManifests(o)...)
		}
	}
	for _, m := range r.LastGood {
		steps = append(steps, step{`
			INSERT INTO rollout_manifests (tenant, deployment, environment, tenant_uid, hash, body)
			VALUES ($1, $2, $3, live_tenant($1), $4, $5) ON CONFLICT DO NOTHING`,
			[]any{string(m.Rollout.Tenant), string(m.Rollout.Name), string(m.Environment),
				m.Manifest.Hash, m.Manifest.Body}})
	}
	return steps, nil
}

func rolloutNews(o *mirror.Rollout) string {
	if o.Message == "" {
		return string(o.State)
	}
	return message(string(o.State) + ": " + o.Message)
}

// keepManifests copies the present manifests that members may return to, and deletes the others of
// the deployment.
func keepManifests(o *mirror.Rollout) []step {
	var of []mirror.RolloutMember
	if !o.State.Ended() {
		for _, m := range o.Members {
			if m.Before != nil {
				of = append(of, m)
			}
		}
	}
	environments := column(of, func(m mirror.RolloutMember) string { return string(m.Environment) })
	hashes := column(of, func(m mirror.RolloutMember) string { return m.Before.Hash })
	steps := []step{{`
		DELETE FROM rollout_manifests k WHERE tenant = $1 AND deployment = $2 AND NOT EXISTS (
			SELECT FROM unnest($3::text[], $4::text[]) AS m (environment, hash) WHERE m.environment = k.environment AND m.hash = k.hash)`,
		[]any{string(o.Tenant), string(o.Deployment), environments, hashes}}}
	if len(of) == 0 {
		return steps
	}
	keys := objectColumns(column(of, func(m mirror.RolloutMember) fleet.ObjectKey { return m.Key }))
	return append(steps, step{`
		INSERT INTO rollout_manifests (tenant, deployment, environment, tenant_uid, hash, body)
		SELECT $1, $2, m.environment, live_tenant($1), d.hash, d.body
		FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) AS m (environment, hash, engine, kind, name)
		JOIN desired d ON d.engine = m.engine AND d.kind = m.kind AND d.name = m.name AND d.hash = m.hash AND NOT d.absent
		ON CONFLICT DO NOTHING`,
		append([]any{string(o.Tenant), string(o.Deployment), environments, hashes}, keys...)})
}

// RolloutFacts returns what is known of the Applications of rollouts, and the decisions of people
// that they have not taken.
func (s *Plans) RolloutFacts(ctx context.Context, of []mirror.Rollout) (f mirror.RolloutFacts,
	err error) {
	f = mirror.RolloutFacts{Status: map[fleet.ObjectKey]mirror.RolloutStatus{},
		Decisions: map[string][]mirror.RolloutDecision{}}
	var keys []fleet.ObjectKey
	var ids []string
	var taken []int64
	for _, r := range of {
		ids, taken = append(ids, r.ID), append(taken, r.Decided)
		for _, m := range r.Members {
			keys = append(keys, m.Key)
		}
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&f.Now); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT d.engine, d.kind, d.name, d.hash, CASE WHEN s.seq = d.seq THEN coalesce(s.state, 'Pending') ELSE 'Pending' END,
				CASE WHEN s.seq = d.seq THEN s.state_message ELSE '' END, coalesce(s.compared, ''), coalesce(s.sync, 'Unknown'), coalesce(s.health, 'Unknown'),
				coalesce(s.operation_phase, ''), CASE WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END, `+sqlSilent+`
			FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
			JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name AND NOT d.absent
			LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
			LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment`,
			objectColumns(keys)...)
		if err != nil {
			return err
		}
		var k fleet.ObjectKey
		var at mirror.RolloutStatus
		if _, err := pgx.ForEachRow(rows, []any{&k.Engine, &k.Kind, &k.Name, &at.Hash, &at.Apply,
			&at.ApplyMessage, &at.Compared, &at.Sync, &at.Health, &at.OperationPhase, &at.Message,
			&at.SilentSince}, func() error {
			f.Status[k] = at
			at.SilentSince = nil
			return nil
		}); err != nil {
			return err
		}
		rows, err = tx.Query(ctx, `
			SELECT d.rollout, d.n, d.verb, d.wave, d.by, d.reason
			FROM unnest($1::text[], $2::bigint[]) AS o (id, taken) JOIN rollout_decisions d ON d.rollout = o.id AND d.n > o.taken
			ORDER BY d.n`, ids, taken)
		if err != nil {
			return err
		}
		var id string
		var d mirror.RolloutDecision
		into := []any{&id, &d.N, &d.Verb, &d.Wave, &d.By, &d.Reason}
		_, err = pgx.ForEachRow(rows, into, func() error {
			f.Decisions[id] = append(f.Decisions[id], d)
			return nil
		})
		return err
	})
	return f, wrap(err, "facts of %d rollouts", len(of))
}

// RolloutManifests returns the manifests that the members of a rollout may return to, by
// environment.
func (s *Plans) RolloutManifests(ctx context.Context, r mirror.Rollout) (
	map[fleet.EnvironmentName]fleet.Manifest, error) {
	out := map[fleet.EnvironmentName]fleet.Manifest{}
	err := s.transact(ctx, func(tx pgx.Tx) error {
		clear(out)
		rows, err := tx.Query(ctx, `
			SELECT environment, hash, body FROM rollout_manifests WHERE tenant = $1 AND deployment = $2`,
			string(r.Tenant), string(r.Deployment))
		if err != nil {
			return err
		}
		var env fleet.EnvironmentName
		var m fleet.Manifest
		_, err = pgx.ForEachRow(rows, []any{&env, &m.Hash, &m.Body}, func() error {
			i := r.Member(env)
			if i >= 0 && r.Members[i].Before != nil && r.Members[i].Before.Hash == m.Hash {
				out[env] = m
			}
			m.Body = nil
			return nil
		})
		return err
	})
	return out, wrap(err, "manifests of rollout %s", r.ID)
}

// RowManifests returns the manifests of rows, by their hashes. A row that does not exist has none.
func (s *Plans) RowManifests(ctx context.Context, keys []fleet.ObjectKey) (
	map[string]fleet.Manifest, error) {
	out := map[string]fleet.Manifest{}
	scan := func(row pgx.CollectableRow) (m fleet.Manifest, err error) {
		err = row.Scan(&m.Hash, &m.Body)
		return m, err
	}
	all, err := collect(ctx, s.database, scan, `
		SELECT d.hash, d.body FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
		JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name`,
		objectColumns(keys)...)
	for _, m := range all {
		out[m.Hash] = m
	}
	return out, wrap(err, "manifests of %d rows", len(keys))
}

// Rollouts match Filter.Tenant and Filter.Name (the deployment), the newest first.
func (s *Views) Rollouts(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]mirror.Rollout, string, error) {
	f := filter{}
	f.equal("o.tenant", string(by.Tenant))
	f.equal("o.deployment", cmp.Or(by.Name, string(by.Deployment)))
	return list(ctx, s.database, scope, listing[mirror.Rollout]{
		name: "rollouts", keys: []string{"to_char(o.begun_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')", "o.id"},
		newest: true,
		sql:    `SELECT o.body FROM rollouts o`,
		scan: func(row pgx.CollectableRow) (r mirror.Rollout, err error) {
			err = row.Scan(&r)
			return r, err
		},
		key: func(r mirror.Rollout) []string {
			return []string{r.BegunAt.UTC().Format("20060102150405") +
				fmt.Sprintf("%06d", r.BegunAt.Nanosecond()/int(time.Microsecond)), r.ID}
		},
	}, f, page, nil)
}

// DecideRollout records a person's decision about the open rollout of a deployment, which the
// leader takes with its next step. mirror.ErrRolloutState if there is none, or the decision has no
// meaning in its state.
func (s *Decisions) DecideRollout(ctx context.Context, d mirror.RolloutDecision) error {
	subject := fmt.Sprintf("rollout of %s/%s", d.Tenant, d.Deployment)
	err := s.decide(ctx, func(tx pgx.Tx) error {
		var r mirror.Rollout
		err := tx.QueryRow(ctx, `
			SELECT body FROM rollouts WHERE tenant = $1 AND deployment = $2 AND ended_at IS NULL FOR UPDATE`,
			text(string(d.Tenant)), text(string(d.Deployment))).Scan(&r)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !r.Accepts(d.Verb) {
			return mirror.ErrRolloutState
		}
		if err != nil {
			return err
		}
		wave := ""
		if d.Verb == mirror.ApproveRollout {
			for _, w := range r.Waves {
				if w.State == mirror.WaveAwaits {
					wave = w.Name
				}
			}
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO rollout_decisions (rollout, tenant, tenant_uid, verb, wave, by, reason)
			VALUES ($1, $2, live_tenant($2), $3, $4, $5, $6)`, r.ID, string(d.Tenant), string(d.Verb),
			wave, text(d.By), message(d.Reason)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: string(d.Verb) + " rollout",
			subject: subject, tenant: d.Tenant, by: d.By, note: d.Reason,
			event: view.Event{Kind: "rollout", Tenant: d.Tenant, Name: string(d.Deployment),
				Text: string(d.Verb) + " by " + d.By}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "%s the %s", d.Verb, subject)
}
