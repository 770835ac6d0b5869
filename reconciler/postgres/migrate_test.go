package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

func TestMigrateByManyReplicasAtOnce(t *testing.T) {
	t.Parallel()
	url := newDatabaseFrom(t, "template0")
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err,
		postgres.ErrSchema) {
		t.Fatalf("an empty database: %v", err)
	}
	var replicas sync.WaitGroup
	for range 4 {
		replicas.Go(func() {
			if version, err := postgres.Migrate(t.Context(), url); err != nil || version < 3 {
				t.Errorf("version %d, %v", version, err)
			}
		})
	}
	replicas.Wait()
	s := open(t, url)
	must(s.Plans.Load(t.Context()))(t)
	must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
	expect(t, url, `SELECT count(*) - count(DISTINCT version) FROM river_migration`, 0)
}

// dropOrphans reverts the migration of orphans, and those after it.
const dropOrphans = `DROP TABLE inspection_parts, inspections, incidents, notifications, commit_statuses; ALTER TABLE status DROP COLUMN operation_revision; DROP TABLE sessions, sign_ins; DROP INDEX declarations_people; ALTER TABLE tokens DROP COLUMN last_used_at;
	DROP TABLE healthy_revisions; DROP TABLE actions; DROP TABLE freeze_releases; ALTER TABLE tokens DROP COLUMN owner; DROP TABLE shadows, shadow_differences, pools, rings, instances, ring_manifests; DROP TABLE rollout_decisions, rollout_manifests, rollouts; ALTER TABLE status DROP COLUMN compared; DROP INDEX placements_too_large; DROP TABLE placements_of_slices, move_requests_of_slices, drain_moves_of_slices; DROP FUNCTION slices_overlap, move_mirror_with_slices;
	ALTER TABLE placements DROP CONSTRAINT placements_whole, DROP COLUMN slice;
	DROP TABLE fences; DROP FUNCTION unfenced;
	DROP TABLE remedies; ALTER TABLE engines DROP COLUMN next_remedy;
	ALTER TABLE engines DROP COLUMN inventoried; ALTER TABLE mirror DROP COLUMN confirmed_in; DROP FUNCTION silent_since, silent_engines; DROP VIEW silences; DROP FUNCTION keep_agent_contact CASCADE; ALTER TABLE engines DROP COLUMN agent_replica, DROP COLUMN agent_seen_at, DROP COLUMN work, DROP COLUMN work_message, DROP COLUMN work_since, DROP COLUMN load;
	DROP TABLE unproven; ALTER TABLE engines DROP COLUMN unfit; DROP TABLE evacuations; DROP INDEX placements_evacuated; DROP FUNCTION fence_evacuation;
	DROP TABLE rebalance_moves, rebalances; DROP TABLE drains, drain_moves; ALTER TABLE agents DROP COLUMN protocol; DROP TABLE move_requests, application_moves; DROP TABLE listings; DROP TABLE recorded_changes, owners; DROP TABLE reach; DROP TABLE strays, tombstones; DROP FUNCTION remove_stray; ALTER TABLE desired DROP COLUMN uid;
	ALTER TABLE engines DROP COLUMN went_back_at, DROP COLUMN went_back; ` + dropSearch

// dropSearch reverts the migration of the search.
const dropSearch = `DROP FUNCTION keep_search_words CASCADE; DROP FUNCTION keep_agent_words CASCADE; DROP FUNCTION forget_running CASCADE;
	DROP TABLE running, search_words; DROP FUNCTION words_of; DROP INDEX desired_name; `

// dropAgents reverts the migration of agents with its policies, and those after it.
const dropAgents = dropOrphans +
	`DROP TABLE agents, agent_tokens, agent_access, replicas, own_applications; ALTER TABLE syncs DROP COLUMN namespace;
	DROP INDEX desired_news, declarations_agent_environments, declarations_agent_engines;
	DROP FUNCTION agent_stand, still_of; DROP FUNCTION agent_scope CASCADE; DROP FUNCTION agent_bound CASCADE;
	DROP FUNCTION begin_stop CASCADE; DROP FUNCTION keep_stop_end CASCADE; DROP FUNCTION end_stop; DROP TABLE stop_ends; `

// The previous version created the schema, and runs while this one migrates.
func TestPullsAreAddedToTheSchemaOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	before, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	exec(t, url,
		dropAgents+
			`DROP TABLE deliveries, looks, reviewed_plans, pull_tenants, pulls, pull_touches, river_job, river_leader, river_migration, river_notification, river_queue;
		DROP FUNCTION river_job_state_in_bitmask; DROP TYPE river_job_state; DROP FUNCTION in_scope(uuid[]); DROP FUNCTION keep_pull_tenants;
		DELETE FROM goose_db_version WHERE version_id >= 3`)
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err,
		postgres.ErrSchema) {
		t.Fatalf("on the schema of before: %v", err)
	}
	check(t, before.Work.Acknowledge(t.Context(), worker, applied(rows)))
	must(postgres.Migrate(t.Context(), url))(t)
	check(t, before.Work.Observe(t.Context(), worker, []mirror.Observation{
		{Key: rows[0].Key, Resources: 3}}))
	must(open(t, url).Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
	expect(t, url, countJobs, 1)
}

// The migration was killed between our tables and River's: no replica starts on half of it, and the
// next migration completes it.
func TestMigrationWithoutRiversTablesIsNotEnough(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	exec(t, url, `DELETE FROM river_migration WHERE version = 8`)
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err,
		postgres.ErrSchema) || !strings.Contains(err.Error(), "of River 7") {
		t.Fatalf("without its last: %v", err)
	}
	exec(t, url,
		`DROP TABLE river_job, river_leader, river_migration, river_notification, river_queue;
		DROP FUNCTION river_job_state_in_bitmask; DROP TYPE river_job_state`)
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err,
		postgres.ErrSchema) {
		t.Fatalf("without all of them: %v", err)
	}
	must(postgres.Migrate(t.Context(), url))(t)
	must(open(t, url).Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
}

// This version on the schema of the next one.
func TestOldBinaryRunsOnANewerSchema(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	read := func(s *postgres.Store) {
		t.Helper()
		for range 2 {
			if apps, _, err := s.Views.Applications(t.Context(), view.Scope{}, view.Filter{},
				view.Page{Limit: 10}); err != nil || len(apps) != 1 {
				t.Fatalf("%d applications, %v", len(apps), err)
			}
		}
	}
	read(s)
	// Changes that a next version may make: add, and widen a column, which makes prepared
	// statements stale (0A000).
	exec(t, url,
		`ALTER TABLE desired ADD COLUMN later text; ALTER TABLE status ADD COLUMN later text; ALTER TABLE status ALTER COLUMN resources TYPE bigint;
		CREATE TABLE later (tenant text); INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true);
		ALTER TABLE pulls ADD COLUMN later text; ALTER TABLE looks ADD COLUMN later text; INSERT INTO river_migration (line, version) VALUES ('main', 999)`)
	read(s)
	must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t)
	check(
		t,
		s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: rows[0].Key, Resources: 3}}))
	if version, err := postgres.Migrate(t.Context(), url); err != nil || version != 999 {
		t.Errorf("version %d, %v", version, err)
	}
	read(open(t, url))
	must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
	check(t, s.Pulls.SavePull(t.Context(), pull(1, forge.PullOpen, "acme")))
	work(t, s, nothing).seen("branch", 1)
}

// The previous version saves pull requests before, during and after the migration of this one: they
// are listed all the same.
func TestPullsOfTheVersionBeforeAreListedByTenant(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url,
		dropAgents+
			`DROP TABLE pull_tenants; DROP FUNCTION keep_pull_tenants CASCADE; DELETE FROM goose_db_version WHERE version_id >= 4`)
	check(t, s.Pulls.SavePull(t.Context(), pull(1, forge.PullOpen, "", "acme")))
	check(t, s.Pulls.SavePull(t.Context(), pull(2, forge.PullMerged, "acme", "globex")))
	must(postgres.Migrate(t.Context(), url))(t)
	check(t, s.Pulls.SavePull(t.Context(), pull(3, forge.PullOpen, "acme", "unborn")))
	check(t, s.Pulls.SavePull(t.Context(), pull(2, forge.PullMerged, "globex")))
	got := one[string](t, url,
		`SELECT string_agg(tenant || number || state || coalesce((SELECT t.tenant FROM tenants t WHERE t.uid = p.tenant_uid), '-'), ' '
		ORDER BY tenant, number) FROM pull_tenants p`)
	if want := "1open- acme1openacme acme3openacme globex2mergedglobex unborn3open-"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestNewBinaryNeedsItsSchema(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	exec(t, url,
		`DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	_, err := postgres.Open(t.Context(), url, postgres.Options{})
	if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "argosy migrate") {
		t.Fatalf("got %v", err)
	}
}

// The creation of an index was killed. The next migration creates it again; while another session
// blocks it, it gives up in time.
func TestAKilledIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	blocker := connect(t, url)
	defer blocker.Close(context.Background())
	tx, err := blocker.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(),
		`INSERT INTO stops (scope, name, by, reason, at) VALUES ('fleet', '', '', '', now())`)
	check(t, err)
	builder := connect(t, url)
	defer builder.Close(context.Background())
	_, err = builder.Exec(t.Context(), `SET statement_timeout = '300ms'`)
	check(t, err)
	if _, err := builder.Exec(t.Context(),
		`CREATE INDEX CONCURRENTLY stops_by ON stops (by)`); err == nil {
		t.Fatal("it was not killed")
	}
	if valid := one[bool](t, url,
		`SELECT indisvalid FROM pg_index WHERE indexrelid = 'stops_by'::regclass`); valid {
		t.Fatal("the index is whole")
	}
	began := time.Now()
	if _, err := postgres.Migrate(t.Context(), url); err == nil ||
		time.Since(began) > time.Minute {
		t.Errorf("in the way of a transaction: %v after %s", err, time.Since(began))
	}
	check(t, tx.Rollback(t.Context()))
	must(postgres.Migrate(t.Context(), url))(t)
	if n := one[int](t, url,
		`SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT indisvalid OR relname LIKE '%ccnew%'`); n != 0 {
		t.Errorf("%d broken indexes are left", n)
	}
}

// The mirror is dropped and rebuilt.
func TestRebuiltMirrorIsTheSame(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	record := fullRecord(0, 1, 500)
	hashes :=
		`SELECT md5(string_agg(engine || kind || name || hash || tenant || deployment, ',' ORDER BY engine, kind, name)) FROM desired`
	s := open(t, url)
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), record))(t)
	before, snap := one[string](t, url, hashes), must(s.Plans.Load(t.Context()))(t)
	s.Close()
	exec(t, url, `DROP SCHEMA argosy CASCADE`)
	must(postgres.Migrate(t.Context(), url))(t)
	s = open(t, url)
	if empty := must(s.Plans.Load(t.Context()))(t); empty.Applied != "" || len(empty.Objects) != 0 {
		t.Fatalf("after the drop: %+v", empty)
	}
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), record))(t)
	if after := one[string](t, url, hashes); after != before {
		t.Error("the rows differ")
	}
	if d := cmp.Diff(snap, must(s.Plans.Load(t.Context()))(t)); d != "" {
		t.Errorf("the mirror differs:\n%s", d)
	}
}

func TestResetKeepsWhatPeopleDecided(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	ctx := t.Context()
	lease, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	must(s.Decisions.Approve(ctx, mirror.Approval{Revision: revision(5)}))(t)
	must(s.Decisions.SetStop(ctx, mirror.Stop{Scope: mirror.StopFleet}, true))(t)
	_, plaintext, err := s.Tokens.CreateToken(ctx, view.Token{Name: "ci", Tenant: "acme",
		Role: view.RoleRead})
	check(t, err)
	uid := one[string](t, url, `SELECT uid::text FROM tenants WHERE tenant = 'acme'`)
	seq := must(s.Plans.Load(ctx))(t).Seq
	const clone = `{"engine":"eu-1","repository":"r","tenant":"acme","since":"2026-11-23T05:00:00Z"}`
	check(t, stack.ExecSQL(ctx, url, `UPDATE memory SET body = convert_to($1, 'UTF8')`,
		`{"blocked":true,"clones":[`+clone+`]}`))
	check(t, s.Reset(ctx))

	snap := must(s.Plans.Load(ctx))(t)
	if got := string(snap.Memory); got != `{"rebuilt":true,"clones":[`+clone+`]}` {
		t.Errorf("the planner's memory after a reset: %s", got)
	}
	if snap.Applied != "" || len(snap.Declarations)+len(snap.Objects)+len(snap.Placements)+
		len(snap.Quarantines)+len(snap.Holds) != 0 || snap.Seq != seq {
		t.Errorf("the mirror after a reset: %+v", snap)
	}
	if len(snap.Approvals) != 1 || len(must(s.Views.Stops(ctx, view.Scope{}))(t)) != 1 {
		t.Error("decisions of people are lost")
	}
	if _, err := s.Plans.Record(ctx, lease, step(1, 2, func(r *mirror.Record) {})); !errors.Is(err,
		mirror.ErrFenced) {
		t.Errorf("a reconciler that knows of nothing: %v", err)
	}
	if ok, err := s.Leases.Renew(ctx, lease, time.Hour); err != nil || ok {
		t.Errorf("its lease: %v, %v", ok, err)
	}
	if ok, err := s.Leases.Renew(ctx, worker, time.Hour); err != nil || !ok {
		t.Errorf("an engine's lease, which a rebuild is none of: %v, %v", ok, err)
	}
	before := lease.Epoch
	if lease = hold(t, s, "reconciler"); lease.Epoch <= before {
		t.Errorf("epoch %d after %d", lease.Epoch, before)
	}
	must(s.Plans.Record(ctx, lease, step(0, 1, func(r *mirror.Record) {
		r.PlanHash, r.Declarations, r.Rows = "anew", []fleet.Declaration{tenantDeclaration("acme")},
			[]mirror.Row{application("eu-1", "acme", "cart", "prod", "v1")}
		r.Syncs = []mirror.SyncRequest{{ID: "acme/run", Key: r.Rows[0].Key, Tenant: "acme"}}
	})))(t)
	if rows := must(s.Work.Changed(ctx, "eu-1", seq, 10))(t); len(rows) != 1 {
		t.Errorf("an old cursor skips newer changes: %d rows", len(rows))
	}
	must(s.Tokens.VerifyToken(ctx, plaintext))(t)
	again := one[string](t, url,
		`SELECT uid::text FROM tenants WHERE tenant = 'acme' AND removed_at IS NULL`)
	if again != uid {
		t.Error("the tenant is another one")
	}
	if n := one[int](t, url, `SELECT count(*) FROM syncs WHERE id = 'acme/run'`); n != 1 {
		t.Errorf("the sync is asked for %d times", n)
	}
	if n := one[int](t, url, `SELECT count(*) FROM operations WHERE kind = 'Rebuild'`); n != 1 {
		t.Errorf("%d operations record it", n)
	}
}

func TestPruneDropsWhatIsOldAndNothingElse(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url,
		`INSERT INTO deletions (at, revision, tenant, environment, deployment, engine, name) SELECT now() - i * interval '1 day', 'r', 'acme', 'e', 'd', 'g', 'n' FROM generate_series(0, 9) i`)
	exec(t, url,
		`INSERT INTO events (seq, at, kind, tenant, name, text) SELECT -i, now() - i * interval '4 hours', 'hold', '', '', '' FROM generate_series(1, 48) i`)
	before := one[int](t, url, `SELECT count(*) FROM events`)
	n := must(s.Prune(t.Context(), postgres.Retention{}))(t)
	if deletions := one[int](t, url, `SELECT count(*) FROM deletions`); n != 7+2 ||
		deletions != 8 || one[int](t, url, `SELECT count(*) FROM events`) != before-7 {
		t.Errorf("pruned %d, %d deletions are left", n, deletions)
	}
}

func TestErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://argosy:hunter2@%zz/x",
		"postgres://argosy:hunter2@127.0.0.1:1/x?sslmode=disable",
		"postgres://argosy:hunter2@127.0.0.1:1/x?sslmode=nope",
		"host=127.0.0.1 port=x password=hunter2"} {
		_, opened := postgres.Open(t.Context(), url, postgres.Options{})
		_, migrated := postgres.Migrate(t.Context(), url)
		for _, err := range []error{opened, migrated} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "hunter2") {
				t.Errorf("%v", err)
			}
		}
	}
}

func TestRecentCoversItsWindow(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(1, 2, func(r *mirror.Record) {
		for i, approved := range []bool{true, false} {
			a := application("eu-1", "acme", fmt.Sprint("gone", i), "prod", "v1")
			r.Deletions = append(r.Deletions, mirror.Deletion{Key: a.Key, Tenant: "acme",
				Environment: "prod", Deployment: a.Deployment, Approved: approved})
		}
	})))(t)
	exec(t, url,
		`UPDATE desired SET created_at = now() - interval '2 h' WHERE tenant = 'globex' AND environment = 'prod'`)
	exec(t, url,
		`INSERT INTO deletions (at, revision, tenant, environment, deployment, engine, name) VALUES (now() - interval '2 h', 'r', 'acme', 'e', 'd', 'g', 'n')`)
	l := must(s.Plans.Recent(t.Context(), time.Hour))(t)
	if len(l.Deleted) != 2 || !l.Deleted[0].Approved || l.Deleted[1].Approved ||
		l.Deleted[0].Revision != revision(2) || l.Now.IsZero() {
		t.Errorf("%+v", l)
	}
	if created := must(s.Plans.RecentCreations(t.Context(), time.Hour))(t); !cmp.Equal(created,
		map[fleet.TenantName]int{"acme": 5, "globex": 2}) {
		t.Errorf("created %v", created)
	}
}

// The previous version created the schema, and its workers keep running while this one migrates.
func TestAgentsAreAddedToTheSchemaOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	before, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	exec(t, url, dropAgents+`DELETE FROM goose_db_version WHERE version_id >= 5`)
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); !errors.Is(err,
		postgres.ErrSchema) {
		t.Fatalf("on the schema of before: %v", err)
	}
	check(t, before.Work.Acknowledge(t.Context(), worker, applied(rows)))
	must(postgres.Migrate(t.Context(), url))(t)
	check(t, before.Work.Observe(t.Context(), worker, []mirror.Observation{
		{Key: rows[0].Key, Resources: 3}}))
	exec(t, url,
		`INSERT INTO syncs (id, operation, engine, name, tenant, environment, deployment, sync_run, revision, prune, state)
		VALUES ('run', 'o', 'eu-1', 'a', 'acme', 'prod', 'a', 'run', 'v1', false, 'Pending')`) // as that version does
	if syncs := must(open(t, url).Work.PendingSyncs(t.Context(), "eu-1"))(t); len(syncs) != 1 ||
		syncs[0].Namespace != "" {
		t.Errorf("syncs %+v", syncs)
	}
	expect(t, url,
		`SELECT count(*) FROM pg_policy WHERE polname = 'agent_wall' AND polrelid = 'argosy.desired'::regclass`, 1)
}
