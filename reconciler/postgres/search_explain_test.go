package postgres_test

import (
	"regexp"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// large is a fleet of 20,000 Applications of 200 tenants that run an image of their own and a
// common one, as rows of the database.
const large = `
	INSERT INTO tenants (tenant) SELECT 'tenant-' || i FROM generate_series(0, 199) i;
	INSERT INTO declarations (kind, tenant, name, path, blob, body)
	SELECT 'Tenant', '', 'tenant-' || i, '', '', '{}'::jsonb FROM generate_series(0, 199) i UNION ALL
	SELECT 'GitOpsDeployment', 'tenant-' || i % 200, 'service-' || i / 200, '', '', '{}'::jsonb FROM generate_series(0, 19999) i;
	INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
	SELECT 'eu-1', 'Application', 'app-' || i, 'tenant-' || i % 200, 'prod', 'service-' || i / 200, i, now(), now(), false, 'Delete', 'r', '', '{}'
	FROM generate_series(0, 19999) i;
	INSERT INTO status (engine, kind, name, tenant, seq, state, sync, health, observed_at)
	SELECT engine, kind, name, tenant, seq, 'Applied', 'Synced', 'Healthy', now() FROM desired;
	INSERT INTO running (engine, name, kind, value, short, tag, tenant)
	SELECT engine, name, 'image', 'ghcr.io/a/' || deployment || ':v' || seq, deployment || ':v' || seq, 'v' || seq, tenant FROM desired UNION ALL
	SELECT engine, name, 'image', 'envoy:v1', 'envoy:v1', 'v1', tenant FROM desired UNION ALL
	SELECT engine, name, 'commit', md5(seq::text), '', '', tenant FROM desired;
	ANALYZE`

var scanned = regexp.MustCompile(`Seq Scan on (running|search_words|desired|status|declarations|operations)\b`)

// Whatever the size of the fleet, a search reads ranges of indexes: of a tenant's within the
// tenant, though row-level security hides most conditions from the planner.
func TestSearchReadsRangesOfIndexes(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	exec(t, url, large)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	for text, want := range map[string]int{"service-7": 1, "tenant-7": 1, "v123": 1,
		"ghcr.io/a/service-7:v1": 1, "envoy": 1, "c4ca": 1, "tenant-7/service-7@prod": 1,
		"nothing-at-all": 0} {
		for _, scope := range []view.Scope{{}, {Tenant: "tenant-7"}} {
			seen.all = nil
			found := must(s.Views.Search(t.Context(), scope, text, 50))(t)
			if scope.Tenant == "" && len(found.Hits) < want {
				t.Errorf("%s: %+v", text, found.Hits)
			}
			for _, d := range seen.all {
				if !strings.Contains(d.SQL, "running") && !strings.Contains(d.SQL, "search_words") {
					continue
				}
				if how := explain(t, url, scope, d); scanned.MatchString(how) {
					t.Errorf("%s in %+v:\n%s", text, scope, how)
				}
			}
		}
	}
}

// The matrix and the list by image read the Applications of a page alone.
func TestMatrixAndImagesReadTheirOwnApplications(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	exec(t, url, large)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	m := must(s.Views.Matrix(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 20}))(t)
	if len(m.Rows) != 20 {
		t.Fatalf("%d rows", len(m.Rows))
	}
	asked := seen.of(t, "FROM desired d")
	if cost := costOf(t, url, asked.SQL, asked.Args...); cost.pages > 2000 {
		t.Errorf("the matrix costs %+v\n%s", cost, explain(t, url, view.Scope{}, asked))
	}
	found, _, err := s.Views.Applications(t.Context(), view.Scope{},
		view.Filter{Image: "ghcr.io/a/service-7"}, view.Page{Limit: 10})
	check(t, err)
	if len(found) != 10 {
		t.Errorf("%d run the image", len(found))
	}
}

// The cost of a report grows with its Applications, not with their square: no row is compared with
// the values of other Applications.
func TestObservedImagesAreComparedOfTheirOwnApplicationAlone(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	observe(t, s, "eu-1", "v1", synced)
	var seen asked
	observe(t, openWith(t, url, postgres.Options{Tracer: &seen}), "eu-1", "v1", synced)
	how := explain(t, url, view.Scope{}, seen.batched(t, "DELETE FROM running"))
	if strings.Contains(how, "Join Filter") || strings.Contains(how, "Anti Join") {
		t.Errorf("%s", how)
	}
}
