package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlInstance is an instance i as JSON.
const sqlInstance = `jsonb_build_object('engine', i.engine, 'ring', i.ring, 'state', i.state, 'version', i.version, 'digest', i.digest,
	'message', i.message, 'since', i.since, 'goodVersion', i.good_version, 'goodDigest', i.good_digest, 'degradedBefore', i.degraded_before,
	'unknownBefore', i.unknown_before, 'fresh', i.fresh, 'size', i.size, 'agentVersion', i.agent_version, 'agentDigest', i.agent_digest,
	'goodAgentVersion', i.good_agent_version, 'goodAgentDigest', i.good_agent_digest)`

// sqlShadowed is an instance i with its shadow.
const sqlShadowed = sqlInstance + ` || jsonb_build_object('shadow', (SELECT ` + sqlShadow + ` FROM shadows w WHERE w.engine = i.engine))`

// sqlUnpassed: the gates of an instance i have not passed, see Instance.Passed.
const sqlUnpassed = `(i.good_digest, i.good_agent_digest) <> (i.digest, i.agent_digest)`

// sqlRing is a ring r as JSON, with its engines.
const sqlRing = `jsonb_build_object('name', r.name, 'state', r.state, 'version', r.version, 'digest', r.digest, 'agentVersion', r.agent_version,
	'agentDigest', r.agent_digest, 'message', r.message,
	'since', r.since, 'halted', r.halted, 'pausedAt', r.paused_at, 'pausedBy', r.paused_by, 'pauseReason', r.pause_reason,
	'engines', (SELECT coalesce(jsonb_agg(` + sqlShadowed + ` ORDER BY i.engine), '[]') FROM instances i WHERE i.ring = r.name))`

// sqlJudged counts an engine's Applications that are Degraded, and that Argo CD cannot compare. The
// engine is fresh if Argo CD has reported none.
const sqlJudged = `SELECT count(*) FILTER (WHERE s.health = 'Degraded') AS degraded, count(*) FILTER (WHERE s.sync = 'Unknown') AS unknown,
	count(s.observed_at) = 0 AS fresh
	FROM status s WHERE s.kind = 'Application' AND NOT s.gone AND s.engine = `

// sqlConnected reports whether the agent that holds the lease l of an instance i is connected; true
// without an agent, whose lease does not expire.
const sqlConnected = `(l.holder NOT LIKE 'agent/%' OR EXISTS (SELECT FROM agents a JOIN replicas r ON r.replica = a.connected_to
	WHERE a.engine = i.engine AND a.ended_at IS NULL AND r.beat_at > clock_timestamp() - ` + agentSeen + `))`

// RingFacts returns what decides about the rings. It counts the Applications of engines that are
// being changed only.
func (s *Plans) RingFacts(ctx context.Context) (mirror.RingFacts, error) {
	f := mirror.RingFacts{Rings: map[string]mirror.Ring{}, Manifests: map[string]bool{},
		Connected: map[fleet.EngineName]bool{}}
	err := s.transact(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&f.Now); err != nil {
			return err
		}
		rings, err := read(ctx, tx, pgx.RowTo[mirror.Ring], `SELECT `+sqlRing+` FROM rings r`)
		if err != nil {
			return err
		}
		for _, r := range rings {
			f.Rings[r.Name] = r
		}
		digests, err := read(ctx, tx, pgx.RowTo[string], `SELECT digest FROM ring_manifests`)
		if err != nil {
			return err
		}
		for _, d := range digests {
			f.Manifests[d] = true
		}
		connected, err := read(ctx, tx, pgx.RowTo[fleet.EngineName], sqlConnectedAgents)
		if err != nil {
			return err
		}
		for _, e := range connected {
			f.Connected[e] = true
		}
		f.Instances, err = instanceFacts(ctx, tx)
		return err
	})
	return f, wrap(err, "rings")
}

// sqlConnectedAgents lists the engines whose agent is connected and reads its Argo CD.
const sqlConnectedAgents = `
	SELECT a.engine FROM agents a JOIN replicas r ON r.replica = a.connected_to JOIN engines e ON e.engine = a.engine AND e.reachable
	WHERE a.ended_at IS NULL AND r.beat_at > clock_timestamp() - ` + agentSeen

func instanceFacts(ctx context.Context, tx pgx.Tx) (map[fleet.EngineName]mirror.InstanceFacts,
	error) {
	all, err := read(ctx, tx, func(row pgx.CollectableRow) (i mirror.InstanceFacts, err error) {
		var since *time.Time
		err = row.Scan(&i.Instance, &i.Followed, &i.Work.State, &i.Work.Message, &since,
			&i.Degraded, &i.Unknown)
		i.Work.Since = orZero(since)
		return i, err
	}, `
			SELECT `+sqlShadowed+`, coalesce(e.reachable AND l.expires_at > now() AND `+sqlConnected+`, false), coalesce(e.work, ''), coalesce(e.work_message, ''),
				e.work_since, coalesce(c.degraded, 0), coalesce(c.unknown, 0)
			FROM instances i LEFT JOIN engines e ON e.engine = i.engine LEFT JOIN leases l ON l.name = 'engine/' || i.engine
			LEFT JOIN LATERAL (`+sqlJudged+`i.engine AND `+sqlUnpassed+`) c ON true`)
	facts := map[fleet.EngineName]mirror.InstanceFacts{}
	for _, i := range all {
		facts[i.Engine] = i
	}
	return facts, err
}

// StoreManifests keeps the files of a version, and removes those that no ring and no engine has.
// mirror.ErrFenced when the lease has passed on.
func (s *Plans) StoreManifests(ctx context.Context, lease mirror.Lease,
	m mirror.RingManifests) error {
	packed, err := m.Pack()
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`DELETE FROM ring_manifests m WHERE m.stored_at < now() - interval '1 hour'
			AND NOT EXISTS (SELECT FROM rings r WHERE r.digest = m.digest)
			AND NOT EXISTS (SELECT FROM shadows w WHERE w.digest = m.digest AND w.state <> 'Ended')
			AND NOT EXISTS (SELECT FROM instances i WHERE m.digest IN (i.digest, i.good_digest))`)
		b.Queue(`INSERT INTO ring_manifests (digest, version, files) VALUES ($1, $2, $3) ON CONFLICT (digest) DO NOTHING`,
			m.Digest, m.Version, packed)
	})
	return wrap(err, "manifests of Argo CD %s", m.Version)
}

// TakeRingStep records a step of a ring. mirror.ErrFenced when the lease has passed on.
func (s *Plans) TakeRingStep(ctx context.Context, lease mirror.Lease, position int,
	step mirror.RingStep) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`
			WITH was AS (SELECT state, digest FROM rings WHERE name = $1),
			now_ AS (
				INSERT INTO rings AS r (name, state, version, digest, message, halted, position, agent_version, agent_digest)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
				ON CONFLICT (name) DO UPDATE SET state = $2, version = $3, digest = $4, message = $5, halted = $6, position = $7,
					agent_version = $8, agent_digest = $9,
					since = CASE WHEN r.state = $2 THEN r.since ELSE now() END
				RETURNING state)
			SELECT new_event('ring', '', $1, $2 || ' at ' || $3 || coalesce(nullif(': ' || $5, ': '), ''))
			FROM now_ WHERE NOT EXISTS (SELECT FROM was WHERE was.state = $2 AND was.digest = $4)`,
			step.Name, string(step.State), step.Version, step.Digest, message(step.Message),
			step.Halted, position, step.Agent.Version, step.Agent.Digest)
		for _, e := range step.Good {
			b.Queue(`UPDATE instances SET good_version = version, good_digest = digest, good_agent_version = agent_version,
				good_agent_digest = agent_digest WHERE engine = $1 AND ring = $2 AND digest IN ($3, '') AND state = 'Running'`,
				string(e), step.Name, step.Digest)
		}
		for _, t := range step.Targets {
			b.Queue(`
				WITH counted AS (`+sqlJudged+`$1),
				news AS (
					INSERT INTO instances AS i (engine, ring, state, version, digest, degraded_before, unknown_before, fresh, agent_version, agent_digest)
					SELECT $1, $2, 'Installing', $3, $4, degraded, unknown, fresh, $5, $6 FROM counted
					ON CONFLICT (engine) DO UPDATE SET ring = $2, state = 'Installing', version = $3, digest = $4, message = '', since = now(),
						agent_version = $5, agent_digest = $6, degraded_before = excluded.degraded_before, unknown_before = excluded.unknown_before,
						fresh = excluded.fresh
						WHERE i.state <> 'Removing'
					RETURNING engine)
				SELECT new_event('engine', '', engine, CASE $3 WHEN '' THEN 'agent ' || coalesce(nullif($5, ''), 'of before') ELSE 'Argo CD ' || $3 END
					|| ' is being installed by ring ' || $2) FROM news`,
				string(t.Engine), step.Name, t.Version, t.Digest, t.Agent.Version, t.Agent.Digest)
		}
		shadowSteps(b, step)
	})
	return wrap(err, "ring %s", step.Name)
}

// KeepRings removes the other rings, and begins to give back the instances of released engines. It
// forgets removed engines. mirror.ErrFenced when the lease has passed on.
func (s *Plans) KeepRings(ctx context.Context, lease mirror.Lease, rings []string,
	released, removed []fleet.EngineName) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		// without an entry it is no NULL
		b.Queue(`DELETE FROM rings WHERE NOT name = ANY($1)`, append([]string{}, rings...))
		b.Queue(`UPDATE instances SET state = 'Releasing', message = '', since = now() WHERE engine = ANY($1) AND state NOT IN ('Releasing', 'Removing')`,
			released)
		b.Queue(`DELETE FROM instances WHERE engine = ANY($1)`, removed)
		keepShadows(b, rings, released, removed)
	})
	return wrap(err, "rings")
}

// WantedInstance returns the instance that the worker of the lease's engine has to bring about;
// false if the engine is not managed. mirror.ErrFenced when the lease has passed on.
func (s *Work) WantedInstance(ctx context.Context, lease mirror.Lease) (i mirror.Instance, ok bool,
	err error) {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return i, false, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		f := fence(lease)
		if _, err := tx.Exec(ctx, f.sql, f.args...); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT `+sqlInstance+` FROM instances i WHERE i.engine = $1`,
			string(engine)).Scan(&i)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return i, false, nil
	}
	return i, err == nil, wrap(err, "instance of engine %s", engine)
}

// Manifests returns the files of a version. They are checked against the digest.
func (s *Work) Manifests(ctx context.Context, digest string) (m mirror.RingManifests, err error) {
	var packed []byte
	err = s.transact(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT version, files FROM ring_manifests WHERE digest = $1`,
			digest).Scan(&m.Version, &packed)
	})
	if err == nil {
		m, err = mirror.UnpackManifests(m.Version, digest, packed)
	}
	return m, wrap(err, "manifests %s", digest)
}

// ReportInstance records how far the worker has come with a release: see Instance.Release. Another
// release since changes nothing. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportInstance(ctx context.Context, lease mirror.Lease, release string,
	state mirror.InstanceState, why string) error {
	return s.changeInstance(ctx, lease, `
		WITH changed AS (
			UPDATE instances i SET state = $3, message = $4, since = CASE WHEN i.state = $3 THEN i.since ELSE now() END
			FROM instances was WHERE was.engine = i.engine AND i.engine = $1 AND i.digest || i.agent_digest = $2 AND i.state <> 'Releasing'
				AND (i.state = 'Removing') = ($3 = 'Removing')
				AND (i.state, i.message) <> ($3, $4)
			RETURNING i.engine, CASE i.version WHEN '' THEN 'agent ' || coalesce(nullif(i.agent_version, ''), 'of before') ELSE 'Argo CD ' || i.version END AS what,
				was.state <> $3 AS news)
		SELECT new_event('engine', '', engine, what || ': ' || $3 || coalesce(nullif(': ' || $4, ': '), ''))
		FROM changed WHERE news`, release, string(state), message(why))
}

// ReportSize records what the Pods of an instance have. mirror.ErrFenced when the lease has passed
// on.
func (s *Work) ReportSize(ctx context.Context, lease mirror.Lease, size string) error {
	return s.changeInstance(ctx, lease, `
		WITH changed AS (UPDATE instances SET size = $2 WHERE engine = $1 AND size <> $2 RETURNING engine)
		SELECT new_event('engine', '', engine, CASE $2 WHEN '' THEN 'Argosy does not set its size any more' ELSE 'its size is ' || $2 END) FROM changed`,
		message(size))
}

// ForgetInstance records that the worker has given an instance back. mirror.ErrFenced when the
// lease has passed on.
func (s *Work) ForgetInstance(ctx context.Context, lease mirror.Lease) error {
	return s.changeInstance(ctx, lease, `
		WITH gone AS (DELETE FROM instances WHERE engine = $1 AND state IN ('Releasing', 'Removing') RETURNING engine, state)
		SELECT new_event('engine', '', engine, CASE state WHEN 'Removing' THEN 'its Argo CD is removed'
			ELSE 'Argosy does not manage its Argo CD any more' END) FROM gone`)
}

// changeInstance executes a statement about the instance of the lease's engine, which is $1, by the
// holder of the lease alone.
func (s *Work) changeInstance(ctx context.Context, lease mirror.Lease, sql string,
	args ...any) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(sql, append([]any{string(engine)}, args...)...)
	})
	return wrap(err, "instance of engine %s", engine)
}

// Rings match Filter.Name, in the order of the Fleet, on one page: a Fleet has at most 20. They
// belong to the platform: a tenant's scope has none.
func (s *Views) Rings(ctx context.Context, scope view.Scope, by view.Filter, _ view.Page) (
	all []mirror.Ring, next string, err error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	err = s.within(ctx, scope, func(tx pgx.Tx) error {
		all, err = read(ctx, tx, pgx.RowTo[mirror.Ring],
			`SELECT `+sqlRing+` FROM rings r WHERE $1 IN ('', r.name) ORDER BY r.position, r.name`, by.Name)
		return err
	})
	return all, "", wrap(err, "rings")
}

// PauseRing keeps a ring from beginning to change another engine; mirror.ErrNoRing if there is no
// such ring.
func (s *Decisions) PauseRing(ctx context.Context, d mirror.RingDecision) error {
	return s.decideRing(ctx, d, "pause", "paused", `
		UPDATE rings SET paused_at = coalesce(paused_at, now()), paused_by = $2, pause_reason = $3 WHERE name = $1`, "")
}

// ResumeRing ends a pause, and lets a halted ring begin again; mirror.ErrNoRing if there is none.
func (s *Decisions) ResumeRing(ctx context.Context, d mirror.RingDecision) error {
	return s.decideRing(ctx, d, "resume", "resumed", `
		UPDATE rings SET paused_at = NULL, paused_by = '', pause_reason = '', halted = ''
		WHERE name = $1 AND ($2::text, $3::text) IS NOT NULL`, `
		UPDATE instances i SET state = CASE WHEN i.state = 'Refused' THEN 'Installing' ELSE i.state END, since = now()
		WHERE i.ring = $1 AND i.state NOT IN ('Releasing', 'Removing') AND `+sqlUnpassed)
}

// ReturnRing halts a ring, whose engines go back to their last version; mirror.ErrNoRing if there
// is no such ring, or if all of its engines have passed the gates.
func (s *Decisions) ReturnRing(ctx context.Context, d mirror.RingDecision) error {
	return s.decideRing(ctx, d, "return", "returned", `
		UPDATE rings r SET halted = r.digest || r.agent_digest, message = 'returned by ' || $2 || coalesce(nullif(': ' || $3, ': '), '')
		WHERE r.name = $1 AND r.state <> 'Done'`, "")
}

func (s *Decisions) decideRing(ctx context.Context, d mirror.RingDecision, action, news, update,
	instances string) error {
	updates := []string{update}
	if instances != "" {
		updates = append(updates, instances)
	}
	return s.decideNamed(ctx, named{"ring", d.Ring, d.By, d.Reason, mirror.ErrNoRing}, action, news,
		updates...)
}

// named is a decision about an object of the platform that has a name.
type named struct {
	kind, name, by, reason string
	missing                error // if the first update changes no row
}

// decideNamed takes a decision: the first update gets the name, the person and the reason, the
// others the name alone.
func (s *Decisions) decideNamed(ctx context.Context, d named, verb, news string,
	updates ...string) error {
	action := verb + " " + d.kind
	err := s.decide(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, updates[0], d.name, text(d.by), message(d.reason))
		if err == nil && tag.RowsAffected() == 0 {
			err = d.missing
		}
		for _, update := range updates[1:] {
			if err == nil {
				_, err = tx.Exec(ctx, update, d.name)
			}
		}
		if err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: action, subject: d.kind + " " + d.name,
			by: d.by, note: d.reason,
			event: view.Event{Kind: d.kind, Name: d.name, Text: news + " by " + text(d.by)}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "%s %s", action, d.name)
}
