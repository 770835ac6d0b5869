package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// observe reports that the Applications of an engine run a commit and the image of their name.
func observe(t testing.TB, s *postgres.Store, engine fleet.EngineName, tag, commit string) {
	t.Helper()
	worker := hold(t, s, "engine/"+string(engine))
	var seen []mirror.Observation
	for _, r := range must(s.Work.Changed(t.Context(), engine, 0, 1000))(t) {
		if r.Key.Kind == fleet.ObjectApplication {
			seen = append(seen, mirror.Observation{Key: r.Key, Sync: mirror.SyncSynced,
				Health: mirror.HealthHealthy, SyncedRevision: commit,
				Images: mirror.ImagesOf([]string{"ghcr.io/" + string(r.Tenant) + "/" +
					string(r.Deployment) + ":" + tag, "envoy:v1"})})
		}
	}
	check(t, s.Work.Observe(t.Context(), worker, seen))
}

// names of hits, with their kind.
func hitsOf(t testing.TB, s *postgres.Store, tenant fleet.TenantName, text string) []string {
	t.Helper()
	found := must(s.Views.Search(t.Context(), view.Scope{Tenant: tenant}, text, 50))(t)
	var names []string
	for _, h := range found.Hits {
		name := string(h.Kind) + " " + h.Name
		if h.Kind != view.HitApplication && h.Kind != view.HitTenant && h.Tenant != "" {
			name += " of " + string(h.Tenant)
		}
		names = append(names, name)
	}
	return names
}

const synced = "0123456789abcdef0123456789abcdef01234567"

func TestSearchFindsEveryKindOfObject(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	observe(t, s, "eu-1", "v1.2.3", synced)
	p := pull(41, forge.PullOpen, "acme")
	p.Title = "Raise the memory of checkout"
	check(t, s.Pulls.SavePull(t.Context(), p))
	operations, _, err := s.Views.Operations(t.Context(), view.Scope{}, view.Filter{},
		view.Page{Limit: 1})
	check(t, err)
	for text, want := range map[string][]string{
		"acme": {"Tenant acme"},
		"checkout@prod": {"Application acme/checkout@prod",
			"Application globex/checkout@prod"},
		"acme/checkout@prod":    {"Application acme/checkout@prod"},
		"CHECK acme":            {"Application acme/checkout@prod", "Deployment checkout of acme"},
		"staging":               {"Environment staging of acme", "Environment staging of globex"},
		"eu-1":                  {"Engine eu-1"},
		"1":                     {"Engine eu-1"},
		"0123456789ab":          {"Commit " + synced},
		synced:                  {"Commit " + synced},
		"v1.2":                  {"Image ghcr.io/acme/checkout:v1.2.3"},
		"checkout:v1":           {"Image ghcr.io/acme/checkout:v1.2.3"},
		"ghcr.io/globex":        {"Image ghcr.io/globex/web:v1.2.3"},
		"41":                    {"Pull 41"},
		"#41":                   {"Pull 41"},
		"memory":                {"Pull 41"},
		operations[0].ID:        {"Operation " + operations[0].ID},
		operations[0].ID[:9]:    {"Operation " + operations[0].ID},
		string(revision(1)):     {"Revision " + string(revision(1))},
		string(revision(1))[:8]: {"Revision " + string(revision(1))},
	} {
		got := hitsOf(t, s, "", text)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %q, want %q", text, got, w)
			}
		}
	}
	for _, text := range []string{"", " ", "@", "nothing", "%", "_", "'", "\x00",
		"checkout nothing", strings.Repeat("z", view.MaxSearchText)} {
		if got := hitsOf(t, s, "", text); len(got) > 0 {
			t.Errorf("%q finds %q", text, got)
		}
	}
}

// The best hit of a text is the object of exactly that name, and no kind displaces another.
func TestSearchRanksExactNamesFirst(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url, `
		INSERT INTO declarations (kind, tenant, name, path, blob, body)
		SELECT 'GitOpsDeployment', 'acme', 'web-' || i, '', '', '{}' FROM generate_series(1, 300) i`)
	found := must(s.Views.Search(t.Context(), view.Scope{}, "web", 20))(t)
	if h := found.Hits[0]; h.Name != "acme/web@prod" || !found.More || len(found.Hits) != 20 {
		t.Errorf("%d hits, more %v, first %+v", len(found.Hits), found.More, h)
	}
	kinds := map[view.HitKind]int{}
	for _, h := range found.Hits {
		kinds[h.Kind]++
	}
	if kinds[view.HitApplication] != 2 || kinds[view.HitDeployment] != 18 {
		t.Errorf("%v", kinds)
	}
}

// A tenant finds nothing that it may not list, and its counts contain no other tenant's.
func TestSearchOfATenantFindsItsOwnObjectsOnly(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	observe(t, s, "eu-1", "v1.2.3", synced)
	savePulls(t, s)
	for _, text := range []string{"globex", "checkout", "prod", "eu-1", "envoy", "v1", synced,
		"ghcr.io", string(revision(1)), "2", "globex/checkout@prod", "01"} {
		for _, h := range must(s.Views.Search(t.Context(), view.Scope{Tenant: "acme"}, text,
			50))(t).Hits {
			if strings.Contains(fmt.Sprint(h), "globex") || h.Kind == view.HitEngine ||
				h.Kind == view.HitRevision || h.Kind == view.HitPull && h.Name == "2" ||
				h.Kind == view.HitImage && h.Applications != 3 && h.Name == "envoy:v1" {
				t.Errorf("%s: %+v", text, h)
			}
		}
	}
	if got := hitsOf(t, s, "acme", "checkout"); !slices.Contains(got,
		"Application acme/checkout@prod") {
		t.Errorf("its own: %q", got)
	}
}

func TestSearchForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	observe(t, s, "eu-1", "v1.2.3", synced)
	observe(t, s, "eu-1", "v1.2.4", revision(7).Short())
	if got := hitsOf(t, s, "", "v1.2.3"); len(got) > 0 {
		t.Errorf("a replaced image is found: %q", got)
	}
	if got := hitsOf(t, s, "", synced); len(got) > 0 {
		t.Errorf("a replaced commit is found: %q", got)
	}
	exec(t, url, `DELETE FROM status WHERE tenant = 'acme'`)
	exec(t, url, `DELETE FROM declarations WHERE tenant = 'acme'`)
	if got := hitsOf(t, s, "acme", "checkout"); slices.ContainsFunc(got, func(h string) bool {
		return strings.HasPrefix(h, "Deployment") || strings.HasPrefix(h, "Image")
	}) {
		t.Errorf("deleted objects are found: %q", got)
	}
	if n := one[int](t, url, `SELECT count(*)::int FROM running WHERE tenant = 'acme'`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// Reports of an earlier agent have no images and leave those that are known.
func TestUnreportedImagesAreKept(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	observe(t, s, "eu-1", "v1", synced)
	of := view.Filter{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
	app := func() view.Application {
		found, _, err := s.Views.Applications(t.Context(), view.Scope{}, of, view.Page{Limit: 1})
		check(t, err)
		return found[0]
	}
	key := fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: app().Name}
	worker := hold(t, s, "engine/eu-1")
	seen := mirror.Observation{Key: key, Sync: mirror.SyncOutOfSync, Health: mirror.HealthHealthy}
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{seen}))
	if got := app().Images; !slices.Equal(got, []string{"envoy:v1", "ghcr.io/acme/checkout:v1"}) {
		t.Errorf("unreported: %q", got)
	}
	seen.Images = mirror.ImagesOf(nil)
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{seen}))
	if got := app().Images; len(got) != 0 {
		t.Errorf("reported as none: %q", got)
	}
}

func TestApplicationsAreFilteredByImageTextAndLabels(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	observe(t, s, "eu-1", "v1", synced)
	for name, c := range map[string]struct {
		by   view.Filter
		want int
	}{
		"an image":              {view.Filter{Image: "ghcr.io/acme/web:v1"}, 1},
		"a repository":          {view.Filter{Image: "envoy"}, 6},
		"another image":         {view.Filter{Image: "envo"}, 0},
		"a part of the name":    {view.Filter{Text: "HECKOUT@pro"}, 2},
		"no pattern":            {view.Filter{Text: "%"}, 0},
		"a label":               {view.Filter{Labels: tier(fleet.SelectorIn, "prod")}, 6},
		"another value":         {view.Filter{Labels: tier(fleet.SelectorNotIn, "prod")}, 4},
		"a label that all have": {view.Filter{Labels: tier(fleet.SelectorExists)}, 10},
		"an empty selector":     {view.Filter{Labels: &fleet.LabelSelector{}}, 0},
	} {
		found, _, err := s.Views.Applications(t.Context(), view.Scope{}, c.by,
			view.Page{Limit: 100})
		check(t, err)
		if len(found) != c.want {
			t.Errorf("%s: %d, want %d", name, len(found), c.want)
		}
	}
}

func tier(operator fleet.SelectorOperator, values ...string) *fleet.LabelSelector {
	return &fleet.LabelSelector{MatchExpressions: []fleet.LabelRequirement{
		{Key: "tier", Operator: operator, Values: values}}}
}

func TestStateCountsAgreeWithTheList(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	for _, scope := range []view.Scope{{}, {Tenant: "acme"}} {
		all, _, err := s.Views.Applications(t.Context(), scope, view.Filter{},
			view.Page{Limit: 100})
		check(t, err)
		want := map[view.StateCount]int{}
		for _, a := range all {
			want[view.StateCount{Tenant: a.Tenant, Environment: a.Environment, Engine: a.Engine,
				Sync: a.Sync, Health: a.Health, Apply: a.Apply}]++
		}
		for _, c := range must(s.Views.StateCounts(t.Context(), scope, view.Filter{}))(t) {
			n := c.Count
			c.Count = 0
			if want[c] != n {
				t.Errorf("%+v: %d, want %d", c, n, want[c])
			}
			delete(want, c)
		}
		if len(want) > 0 {
			t.Errorf("not counted: %v", want)
		}
	}
}

func TestMatrixShowsWhatRunsWhere(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	observe(t, s, "eu-1", "v2", synced)
	observe(t, s, "us-1", "v1", synced)
	m := must(s.Views.Matrix(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 2}))(t)
	if want := []fleet.EnvironmentName{"staging", "prod"}; !slices.Equal(m.Environments, want) ||
		len(m.Rows) != 2 || m.Next == "" || m.Rows[0].Deployment != "cart" {
		t.Fatalf("%+v", m)
	}
	before, after := m.Rows[1].Versions[0], m.Rows[1].Versions[1]
	if before.Version != "v1" || after.Version != "v2" ||
		!slices.Equal(after.Differs, []string{"version", "images"}) || before.Differs != nil {
		t.Errorf("%+v, %+v", before, after)
	}
	rest := must(s.Views.Matrix(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 2, After: m.Next}))(t)
	if len(rest.Rows) != 1 || rest.Next != "" || rest.Rows[0].Deployment != "web" {
		t.Errorf("the rest: %+v", rest)
	}
}

func TestChangesAreWhatTheRevisionWrote(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	for tenant, want := range map[fleet.TenantName]int{"": 10, "acme": 5} {
		found, _, err := s.Views.Changes(t.Context(), view.Scope{Tenant: tenant},
			view.Filter{Revision: revision(1)}, view.Page{Limit: 100})
		check(t, err)
		if len(found) != want {
			t.Errorf("%q: %d, want %d", tenant, len(found), want)
		}
		for _, c := range found {
			if c.Action != "create" || c.Revision != revision(1) {
				t.Errorf("%+v", c)
			}
		}
	}
}
