package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

// evacuating is a store with acme/prod and its Applications a and b on eu-1.
type evacuating struct {
	testing.TB
	url        string
	s          *postgres.Store
	loop, dead mirror.Lease // dead is of eu-1
	rows       []mirror.Row
	revision   int // the applied one; 0: 1
}

// newEvacuating has two Applications: b has several sources.
func newEvacuating(t testing.TB) *evacuating {
	t.Helper()
	e := &evacuating{TB: t, url: newDatabase(t)}
	several := application("eu-1", "acme", "b", "prod", "v1")
	several.Manifest = manifest(strings.Replace(string(several.Manifest.Body), `"source":{`,
		`"sources":[],"none":{`, 1))
	e.s, e.loop, e.dead, e.rows = recorded(t, e.url, application("eu-1", "acme", "a", "prod", "v1"),
		several)
	exec(t, e.url, `INSERT INTO engines (engine) VALUES ('eu-1') ON CONFLICT DO NOTHING`)
	return e
}

func (e *evacuating) request() error {
	return e.s.Decisions.RequestEvacuation(e.Context(), mirror.EvacuationRequest{Engine: "eu-1",
		ConfirmGone: "eu-1", By: "token:ann", Reason: "it burned"})
}

func (e *evacuating) end() error {
	return e.s.Decisions.EndEvacuation(e.Context(), mirror.EvacuationRequest{Engine: "eu-1",
		By: "token:ann"})
}

// move records that acme/prod leaves eu-1 for eu-2.
func (e *evacuating) move() error {
	moves := mirror.Move{MoveRequest: mirror.MoveRequest{Environment: prod, To: "eu-2",
		By: "argosy", Evacuates: true}, From: "eu-1"}
	var rows []mirror.Row
	for _, row := range e.rows {
		arrives := row
		arrives.Key.Engine = "eu-2"
		row.Unwanted, row.Deletion = true, fleet.DeletionOrphan
		rows = append(rows, row, arrives)
		moves.Applications = append(moves.Applications, row.Application())
	}
	at := max(1, e.revision)
	_, err := e.s.Plans.Record(e.Context(), e.loop, step(at, at, func(r *mirror.Record) {
		r.PlanHash, r.Rows, r.Moves = "evacuated", rows, []mirror.Move{moves}
		p := placement("acme", "prod", "eu-2")
		p.Evacuated = []fleet.EngineName{"eu-1"}
		r.Placements = []fleet.Placement{p}
	}))
	return err
}

func (e *evacuating) reachable(is bool) {
	e.Helper()
	exec(e, e.url, `UPDATE engines SET reachable = $1, since = now() - interval '1 hour'
		WHERE engine = 'eu-1'`, is)
}

func (e *evacuating) expect(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A worker that ended left the engine as reachable: its lease shows that none reads it since.
func TestOnlyAnEngineThatAnswersNowIsNotEvacuated(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.reachable(true)
	e.expect("it answers", e.request(), mirror.ErrEngineAnswers)
	exec(t, e.url, `UPDATE leases SET expires_at = now() - interval '1 second'
		WHERE name = 'engine/eu-1'`)
	e.expect("no worker has looked since", e.request(), nil)
	e.expect("once more", e.request(), mirror.ErrEvacuated)
}

// Between the plan and its record, a person undoes the evacuation.
func TestNoEnvironmentLeavesAnEngineWhoseEvacuationHasEnded(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	check(t, e.request())
	check(t, e.end())
	if err := e.move(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the record of a plan from before: %v", err)
	}
	if n := one[int](t, e.url, `SELECT count(*) FROM desired WHERE engine = 'eu-2'`); n > 0 {
		t.Errorf("%d rows are on eu-2", n)
	}
	e.expect("its progress", e.s.Plans.SetEvacuation(t.Context(), mirror.Evacuation{Engine: "eu-1",
		State: mirror.EvacuationMoved}), mirror.ErrNotEvacuated)
}

// The new engine compares the commit that was synced last. Of several sources, the mirror has one
// commit: the declared revisions count.
func TestAnEvacuationTakesOverMovesAndTheLastSyncedCommit(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	for i, row := range e.rows {
		check(t, e.s.Work.Observe(t.Context(), e.dead, []mirror.Observation{{Key: row.Key,
			UID: row.Key.Name, SyncedRevision: strings.Repeat(string(rune('a'+i)), 40)}}))
	}
	exec(t, e.url, `INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ('earlier', 'Move', 'Running', 'acme', 'eu-2', 'acme/prod', '', 'token:ann', '', 0, 1, now())`)
	exec(t, e.url, `INSERT INTO application_moves (tenant, environment, deployment, tenant_uid, operation, from_engine, to_engine, step, departure)
		SELECT tenant, environment, deployment, live_tenant(tenant), 'earlier', 'eu-1', 'eu-2', 'Freeze', '{}' FROM desired WHERE deployment = 'a'`)
	check(t, e.request())
	check(t, e.move())
	for deployment, want := range map[string]string{"a": strings.Repeat("a", 40), "b": ""} {
		got := one[string](t, e.url, `SELECT step || ' ' || (departure ->> 'evacuated') || ' ' || coalesce(departure -> 'revisions' ->> 0, '')
			FROM application_moves WHERE deployment = $1`, deployment)
		if got != "Return true "+want {
			t.Errorf("%s: %s", deployment, got)
		}
	}
	if got := one[string](t, e.url, `SELECT state || ': ' || message FROM operations WHERE id = 'earlier'`); got !=
		"Failed: engine eu-1 is evacuated" {
		t.Errorf("the earlier move: %s", got)
	}
}

// Each fact alone keeps the evacuation from its end.
func TestAnEvacuationEndsOnceTheEngineIsProvenEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql, why string }{
		"an Application is not adopted yet": {
			`UPDATE application_moves SET step = 'Return' WHERE deployment = 'a'`, "not adopted"},
		"an object is not removed yet": {
			`INSERT INTO desired SELECT (d).* FROM kept AS d (d)`, "1 objects are not removed"},
		"an orphan": {
			`INSERT INTO strays (engine, kind, name, tenant, environment, deployment, uid, revision, epoch, found_at)
				VALUES ('eu-1', 'Application', 'x', 'acme', 'prod', 'a', 'u', '', 1, now())`, "1 are orphans"},
		"it does not answer": {`UPDATE engines SET reachable = false`, "not reachable"},
		"no worker reads it": {`UPDATE leases SET expires_at = now() WHERE name = 'engine/eu-1'`,
			"not reachable"},
		"its record was lost, and it has just come back": {
			`WITH r AS (UPDATE evacuations SET restored = true) UPDATE engines SET since = now()`,
			"less than a minute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvacuating(t)
			check(t, e.request())
			check(t, e.move())
			e.reachable(true)
			e.expect("with everything open", e.end(), mirror.ErrEvacuatedAway)
			exec(t, e.url, `UPDATE application_moves SET step = 'Done'`)
			exec(t, e.url, `CREATE TABLE kept AS SELECT d FROM desired AS d WHERE engine = 'eu-1' LIMIT 1`)
			exec(t, e.url, `DELETE FROM desired WHERE engine = 'eu-1'`)
			exec(t, e.url, c.sql)
			if err := e.end(); !errors.Is(err, mirror.ErrEvacuatedAway) ||
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("it ends: %v", err)
			}
			exec(t, e.url, `UPDATE application_moves SET step = 'Done'`)
			exec(t, e.url, `DELETE FROM desired WHERE engine = 'eu-1'`)
			exec(t, e.url, `DELETE FROM strays`)
			exec(t, e.url, `UPDATE leases SET expires_at = now() + interval '1 hour'`)
			e.reachable(true)
			e.expect("it is proven empty", e.end(), nil)
		})
	}
}

// After a loss of the mirror, the annotations of the Clusters would restore the evacuation.
func TestAnEvacuationIsForgottenOnceTheClustersAre(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	check(t, e.request())
	check(t, e.end())
	cluster := mirror.Row{Key: fleet.ObjectKey{Engine: "eu-2", Kind: fleet.ObjectCluster,
		Name: "acme-prod"}, Tenant: "acme", Environment: "prod", Manifest: manifest(`{}`)}
	must(e.s.Plans.Record(t.Context(), e.loop, step(1, 2, func(r *mirror.Record) {
		r.Rows = []mirror.Row{cluster}
	})))(t)
	if must(e.s.Plans.ReadmitEngine(t.Context(), "eu-1"))(t) {
		t.Error("the record is removed before the Clusters are applied")
	}
	young := hold(t, e.s, "engine/eu-2")
	check(t, e.s.Work.Acknowledge(t.Context(), young,
		applied(must(e.s.Work.Changed(t.Context(), "eu-2", 0, 10))(t))))
	if !must(e.s.Plans.ReadmitEngine(t.Context(), "eu-1"))(t) {
		t.Error("the record stays")
	}
}

// A record that the placements show is restored. No person has confirmed since that the engine is
// gone, and a person may.
func TestARestoredEvacuationIsConfirmedByAPerson(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	check(t, e.request())
	check(t, e.move())
	exec(t, e.url, `DELETE FROM evacuations`)
	if !must(e.s.Plans.EvacuatedEngines(t.Context()))(t)["eu-1"] {
		t.Error("without its record, the engine is not evacuated")
	}
	all := must(e.s.Plans.Evacuations(t.Context()))(t)
	if len(all) != 1 || !all[0].Lost {
		t.Fatalf("%+v", all)
	}
	for range 2 {
		check(t, e.s.Plans.RestoreEvacuation(t.Context(), "eu-1"))
	}
	all = must(e.s.Plans.Evacuations(t.Context()))(t)
	if len(all) != 1 || all[0].Lost || all[0].By != mirror.EvacuationRestored || all[0].Away != 1 {
		t.Fatalf("%+v", all)
	}
	e.expect("a person confirms it", e.request(), nil)
	if !one[bool](t, e.url, `SELECT restored AND by = 'token:ann' FROM evacuations`) {
		t.Error("it counts as if the mirror had not been lost")
	}
	e.expect("once more", e.request(), mirror.ErrEvacuated)
}

// The engine would never report their end.
func TestAnEvacuationEndsTheSyncsOfItsEngine(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	other := e.rows[1].Key
	must(e.s.Plans.Record(t.Context(), e.loop, step(1, 2, func(r *mirror.Record) {
		r.PlanHash = "syncs"
		for _, row := range e.rows {
			r.Syncs = append(r.Syncs, mirror.SyncRequest{ID: "acme/" + row.Key.Name, Key: row.Key,
				Tenant: row.Tenant, Environment: row.Environment, Deployment: row.Deployment,
				SyncRun: "run", State: mirror.OperationPending})
		}
	})))(t)
	check(t, e.s.Work.UpdateSync(t.Context(), e.dead, "acme/"+other.Name,
		mirror.OperationSucceeded, ""))
	check(t, e.request())
	e.revision = 2
	check(t, e.move())
	if got := one[string](t, e.url, `SELECT string_agg(s.state || '/' || o.state || ' ' || s.message || coalesce(' ' || (o.ended_at IS NOT NULL)::text, ''), ', ' ORDER BY s.id)
		FROM syncs s JOIN operations o ON o.id = s.operation`); got !=
		"Failed/Failed engine eu-1 is evacuated; add another SyncRun true, Succeeded/Succeeded  true" {
		t.Errorf("%s", got)
	}
}
