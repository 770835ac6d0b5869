package postgres_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

// history inserts n rows of that age that nothing refers to. $1 is the number, $2 the age.
var history = map[string]string{
	"events":     `INSERT INTO events (seq, at, kind, tenant, name, text) SELECT -i, now() - $2::text::interval, 'hold', '', '', '' FROM generate_series(1, $1::int) i`,
	"deletions":  `INSERT INTO deletions (at, revision, tenant, environment, deployment, engine, name) SELECT now() - $2::text::interval, 'r', 'acme', 'e', 'd', 'g', 'n' FROM generate_series(1, $1::int) i`,
	"operations": `INSERT INTO operations SELECT 'old-' || i, 'Sync', 'Succeeded', '', NULL, '', '', '', '', '', 1, 1, now() - $2::text::interval, now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"approvals":  `INSERT INTO approvals SELECT 'old-' || i, 'ann', now() - $2::text::interval, '' FROM generate_series(1, $1::int) i`,
	"syncs": `INSERT INTO syncs (id, operation, engine, name, tenant, environment, deployment, sync_run, revision, prune, state)
		SELECT 'old-' || i, 'gone', 'g', 'n', 'acme', 'e', 'd', 'gone', 'v1', false, 'Succeeded' FROM generate_series(1, $1::int) i WHERE $2::text <> ''`,
	"revisions": `INSERT INTO revisions (revision, author, subject, committed_at, recorded_at, created, changed, deleted, held, problems, applied_at)
		SELECT 'old-' || i, '', '', now(), now() - $2::text::interval, 0, 0, 0, 0, 0, now() FROM generate_series(1, $1::int) i`,
	"pulls": `INSERT INTO pulls (number, state, head, settled, tenants, tenant_uids, body, changed_at)
		SELECT i, 'merged', 'h', true, '{acme}', '{}', '{}', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"remedies": `INSERT INTO remedies (id, engine, restarts, state, fault, fault_since, ended_at)
		SELECT 'old-' || i, 'e', 'repoServer', 'Helped', 'RepoServerSilent', now(), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"audit":        `INSERT INTO audit (at, actor, action, subject, tenant) SELECT now() - $2::text::interval, 'ann', 'old', '', '' FROM generate_series(1, $1::int) i`,
	"tokens":       `INSERT INTO tokens SELECT 'old-' || i, '', 'n', '', NULL, 'read', '', now(), NULL, now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"tenants":      `INSERT INTO tenants (tenant, removed_at) SELECT 'gone', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"engines":      `INSERT INTO engines (engine, since) SELECT 'gone-' || i, now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"agent_access": `INSERT INTO agent_access SELECT 'a', 'old-' || i, sha256(i::text::bytea), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"replicas":     `INSERT INTO replicas SELECT 'gone-' || i, now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"agents": `INSERT INTO agents (id, engine, tenant, name, sign, seal, thumb, cluster_uid, joined_at, expires_at, ended_at, ended, changed_at)
		SELECT 'old-' || i, 'e', '', 'e', sha256('1'), sha256('2'), '', '', now(), now(), now() - $2::text::interval, 'revoked', now() FROM generate_series(1, $1::int) i`,
	"sessions": `INSERT INTO sessions (id, hash, issuer, subject, name, kind, created_at, last_used_at, idle, expires_at)
		SELECT 'old-' || i, '', 'corp', i, 'n', 'page', now(), now(), '1h', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"sign_ins": `INSERT INTO sign_ins SELECT sha256(i::text::bytea), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"agent_tokens": `INSERT INTO agent_tokens (id, hash, given, engine, tenant, name, legacy, created_by, created_at, expires_at)
		SELECT 'old-' || i, sha256(i::text::bytea), false, 'e', '', 'e', false, '', now(), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"deliveries":       `INSERT INTO deliveries (id, event, at) SELECT 'old-' || i, 'push', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"removals":         `INSERT INTO removals (engine, kind, name, life, at) SELECT 'e', 'Application', n::text, 'l', now() - $2::interval FROM generate_series(1, $1) n`,
	"tombstones":       `INSERT INTO tombstones SELECT 'e', 'Application', 'old-' || i, '', '', 1, 1, 'Delete', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"recorded_changes": `INSERT INTO recorded_changes (base, head, changed, at) SELECT 'a', 'b', '{acme}', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"freeze_releases": `INSERT INTO freeze_releases (revision, tenant, by, at, note)
		SELECT 'old-' || i, 'acme', 'ann', now() - $2::text::interval, '' FROM generate_series(1, $1::int) i`,
	"pushes":     `INSERT INTO pushes SELECT 'a' || i, 'b', 1, 'ann', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"rebalances": `INSERT INTO rebalances (id, state, engines, ended_at) SELECT 'old-' || i, 'Done', '[]', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"rollouts": `INSERT INTO rollouts (id, tenant, deployment, state, body, begun_at, ended_at)
		SELECT 'old-' || i, 'acme', 'd', 'Done', '{}', now(), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"healthy_revisions": `INSERT INTO healthy_revisions (tenant, environment, deployment, revision, last_at)
		SELECT 'acme', 'e', 'd', 'old-' || i, now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"lasting_rollbacks": `INSERT INTO lasting_rollbacks (tenant, deployment, state, covers, blob, branch, number, url, message, attempts, again_at, changed_at)
		SELECT 'acme', 'old-' || i, 'Merged', '{}', '', '', 1, '', '', 0, now(), now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"actions": `INSERT INTO actions (id, request, kind, engine, name, tenant, environment, deployment, options, by, state, ended_at)
		SELECT 'old-' || i, i, 'sync', 'g', 'n', 'acme', 'e', 'd', '{}', 'ann', 'Failed', now() - $2::text::interval FROM generate_series(1, $1::int) i`,
	"looks": `INSERT INTO looks (key, priority, wanted, at, body) SELECT 'old-' || i, 1, false, now() - $2::text::interval, '{}' FROM generate_series(1, $1::int) i`,
}

// bounded are the tables that do not grow with time, each with its bound.
var bounded = map[string]string{
	"audit_heads": "tenants", "audit_anchor": "one row",
	"mirror": "one row", "memory": "one row", "source": "one row", "goose_db_version": "migrations",
	"declarations": "the config repo", "sealed": "the config repo",
	"quarantines": "the config repo", "problems": "the config repo",
	"placements": "the config repo", "placements_of_slices": "the config repo",
	"desired": "the config repo", "status": "desired", "running": "status",
	"search_words": "declarations", "source_watches": "desired", "source_index": "one row",
	"source_pushes":    "SourcePushes.ExpireSourcePushes",
	"source_refreshes": "SourcePushes.ExpireSourcePushes",
	"incidents":        "desired", "notifications": "Notifications.Tidy",
	"commit_statuses": "Notifications.Tidy",
	"holds":           "changes that wait for an approval",
	"sync_holds":      "the config repo", "stops": "stops set by people",
	"strays":        "objects of ours on engines",
	"reach":         "environments",
	"listings":      "the config repo",
	"move_requests": "environments", "move_requests_of_slices": "environments",
	"application_moves": "desired", "drain_moves_of_slices": "environments",
	"unproven":         "desired",
	"inspections":      "a maximum for each engine, and a lifetime of minutes",
	"inspection_parts": "inspections",
	"evacuations":      "engines", "fences": "engines", "drains": "engines",
	"drain_moves":       "environments",
	"rebalance_moves":   "rebalances",
	"rollout_decisions": "rollouts", "rollout_manifests": "desired",
	"pools": "fleet/pools/",
	"rings": "the Fleet", "instances": "engines", "ring_manifests": "rings and instances",
	"shadows": "engines", "shadow_differences": "desired",
	"owners":           "names that the platform has ever declared as owners",
	"stop_ends":        "places that were ever stopped",
	"leases":           "engines that there ever were: an epoch never goes back",
	"own_applications": "a maximum for each environment",
	"reviewed_plans":   "pulls", "pull_tenants": "pulls", "pull_touches": "pulls",
}

// Whatever the rate of growth, one pruning deletes everything that is too old, and nothing else.
func TestPruneDropsAllThatIsTooOldAtAnyRate(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	const many = 12_000 // more than two batches
	tables := map[string]int{}
	for table, insert := range history {
		n := 10
		if table == "events" || table == "operations" || table == "audit" {
			n = many
		}
		tables[table] = one[int](t, url, `SELECT count(*) FROM `+table)
		exec(t, url, insert, n, "3 years")
	}
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	must(s.Pulls.Tidy(t.Context()))(t)
	tables["audit"]++ // of the pruning itself
	for table, want := range tables {
		if got := one[int](t, url, `SELECT count(*) FROM `+table); got != want {
			t.Errorf("%d rows of %s are left, want %d", got, table, want)
		}
	}
	expect(t, url, `SELECT count(*) FROM pull_tenants`, 0)
	entry := one[string](t, url,
		`SELECT subject || ' ' || actor FROM audit WHERE action = 'prune audit log'`)
	if entry != "12000 entries argosy" {
		t.Errorf("the audit log records its pruning: %s", entry)
	}
}

// partition matches the partitions of the audit log.
var partition = regexp.MustCompile(`^audit_(before|other|y\d{4}m\d{2})$`)

// A table that is not pruned does not grow with time.
func TestEveryTableIsPrunedOrBounded(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	all := one[string](t, url, `SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
		WHERE relnamespace = 'argosy'::regnamespace AND relkind IN ('r', 'p') AND NOT starts_with(relname, 'river_')`)
	for table := range strings.FieldsSeq(all) {
		if partition.MatchString(table) {
			table = "audit"
		}
		if _, ok := history[table]; !ok && bounded[table] == "" {
			t.Errorf(
				"nothing bounds table %s: add it to prunings, or to bounded with what bounds it",
				table)
		}
	}
}

// The audit log keeps at least 90 days, whatever the setting, and only pruning deletes from it.
func TestAuditLogKeepsWhatIsYoung(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	exec(t, url, history["audit"], 3, "89 days")
	exec(t, url, history["audit"], 2, "91 days")
	must(s.Prune(t.Context(), postgres.Retention{Audit: time.Hour}))(t)
	expect(t, url, `SELECT count(*) FROM audit WHERE action = 'old'`, 3)
	exec(t, url, history["audit"], 2, "91 days")
	conn := connect(t, url)
	defer conn.Close(t.Context())
	for _, sql := range []string{`DELETE FROM audit WHERE at < now() - interval '90 days'`,
		`SET argosy.prune_audit = 'on'; DELETE FROM audit WHERE at > now() - interval '90 days'`} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: it may", sql)
		}
	}
	expect(t, url, `SELECT count(*) FROM audit WHERE action = 'old'`, 5)
}

// Old rows that are still needed stay: an approval of pending changes, a revision with objects, the
// sync of a declared SyncRun, a running operation.
func TestPruneKeepsWhatIsOldAndNeeded(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url, `
		INSERT INTO approvals VALUES ('`+string(revision(1))+`', 'ann', now() - interval '3 years', '');
		UPDATE revisions SET recorded_at = now() - interval '3 years', applied_at = now() - interval '3 years';
		UPDATE operations SET started_at = now() - interval '3 years', ended_at = NULL;
		UPDATE syncs SET state = 'Succeeded', operation = 'gone';
		INSERT INTO declarations (kind, tenant, name, path, blob, body) SELECT 'SyncRun', tenant, sync_run, '', '', '{}' FROM syncs;
		UPDATE engines SET since = now() - interval '3 years'`)
	counts :=
		`SELECT concat_ws(' ', (SELECT count(*) FROM approvals), (SELECT count(*) FROM revisions), (SELECT count(*) FROM operations),
		(SELECT count(*) FROM syncs), (SELECT count(*) FROM engines))`
	before := one[string](t, url, counts)
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	if got := one[string](t, url, counts); got != before {
		t.Errorf("left %s, before %s", got, before)
	}
	if all := must(s.Plans.Approvals(t.Context()))(t); len(all) != 1 {
		t.Errorf("approvals of held changes: %+v", all)
	}
}

// Approvals without pending changes are not read.
func TestApprovalsAreReadForWhatWaits(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url, history["approvals"], 500, "60 days")
	must(s.Decisions.Approve(t.Context(), mirror.Approval{Revision: revision(1), By: "ann"}))(t)
	if all := must(s.Plans.Approvals(t.Context()))(t); len(all) != 1 ||
		all[0].Revision != revision(1) {
		t.Errorf("%d approvals are read", len(all))
	}
}
