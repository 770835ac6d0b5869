package postgres_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// populated has two tenants with two environments and three deployments each, on two engines.
func populated(t testing.TB) (*postgres.Store, string) {
	t.Helper()
	url := newDatabase(t)
	s := open(t, url)
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), engineDeclaration("us-1")}
		for _, tenant := range []string{"acme", "globex"} {
			r.Declarations = append(r.Declarations, tenantDeclaration(tenant),
				environmentDeclaration(tenant, "prod"), environmentDeclaration(tenant, "staging"))
			r.Placements = append(r.Placements, placement(tenant, "prod", "eu-1"),
				placement(tenant, "staging", "us-1"))
			for _, name := range []string{"cart", "checkout", "web"} {
				d := deploymentDeclaration(tenant, name, "prod", "staging")
				if name == "web" {
					d = deploymentDeclaration(tenant, name)
					d.Deployment.Destination.EnvironmentSelector = &fleet.LabelSelector{
						MatchLabels: map[string]string{"tier": "prod"},
						MatchExpressions: []fleet.LabelRequirement{
							{Key: "tier", Operator: fleet.SelectorIn, Values: []string{"prod"}},
							{Key: "tier", Operator: fleet.SelectorExists},
							{Key: "zone", Operator: fleet.SelectorNotIn, Values: []string{"a"}},
							{Key: "zone", Operator: fleet.SelectorDoesNotExist}}}
				}
				r.Declarations = append(r.Declarations, d)
				r.Rows = append(r.Rows, application("eu-1", tenant, name, "prod", "v1"))
				if name != "web" {
					r.Rows = append(r.Rows, application("us-1", tenant, name, "staging", "v1"))
				}
			}
			key := fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: fleet.TenantName(tenant),
				Name: "cart"}
			r.Problems = append(r.Problems, fleet.Problem{
				Key: key, Path: "tenants/" + tenant + "/deployments/cart.yaml",
				Severity: fleet.SeverityError, Code: "x", Message: "of " + tenant},
				fleet.Problem{Key: key, Path: "tenants/" + tenant + "/deployments/cart.yaml",
					Severity: fleet.SeverityWarning, Code: "y", Message: "also of " + tenant})
			r.Holds = append(
				r.Holds, mirror.Hold{Revision: revision(1), Reason: mirror.HoldDeletions,
					Tenant: fleet.TenantName(tenant), Message: "of " + tenant,
					Items: []fleet.ObjectKey{
						r.Rows[0].Key}})
			r.Syncs = append(r.Syncs, mirror.SyncRequest{ID: tenant + "/run", Key: r.Rows[0].Key,
				Tenant: fleet.TenantName(tenant), Deployment: "cart", Environment: "prod",
				SyncRun: "run", Revision: "v1"})
		}
		r.Held = []fleet.ObjectKey{r.Rows[0].Key}
		r.Created = len(r.Rows)
	})))(t)
	worker := hold(t, s, "engine/eu-1")
	rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 100))(t)
	acks, seen := applied(rows), []mirror.Observation{}
	acks[1].State, acks[1].Message = mirror.ApplyFailed, "refused"
	for i, r := range rows {
		seen = append(seen, mirror.Observation{Key: r.Key, Sync: mirror.SyncSynced,
			Health: []mirror.HealthState{mirror.HealthHealthy, mirror.HealthDegraded}[i%2]})
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, acks))
	check(t, s.Work.Observe(t.Context(), worker, seen))
	return s, url
}

func TestViews(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	ctx, all, page := t.Context(), view.Scope{}, view.Page{Limit: 100}

	t.Run("a tenant with its quota, its use and its counts", func(t *testing.T) {
		got, _, err := s.Views.Tenants(ctx, all, view.Filter{}, page)
		check(t, err)
		want := view.Tenant{Name: "acme", Owners: []string{"group:acme"}, Quota: fleet.Quota{
			Environments: 5, Deployments: 10, Applications: 50},
			Used:   fleet.Quota{Environments: 2, Deployments: 3, Applications: 5},
			Counts: view.Counts{Applications: 5, Synced: 3, Healthy: 2, Failed: 1}, Problems: 2,
			Held: 1}
		if len(got) != 2 || !cmp.Equal(got[0], want) {
			t.Fatal(cmp.Diff([]view.Tenant{want}, got))
		}
	})
	t.Run("an environment with where it is placed and why", func(t *testing.T) {
		got, _, err := s.Views.Environments(ctx, all, view.Filter{Tenant: "acme", Engine: "eu-1"},
			page)
		check(t, err)
		want := view.Environment{Tenant: "acme", Name: "prod",
			Server: "https://prod.example.com", Namespaces: []string{"checkout"}, Region: "eu",
			Labels: map[string]string{"tier": "prod"}, Engine: "eu-1",
			Placement: placement("acme", "prod", "eu-1"), Counts: view.Counts{
				Applications: 3, Synced: 3, Healthy: 2, Failed: 1}}
		if len(got) != 1 || !cmp.Equal(got[0], want) {
			t.Fatal(cmp.Diff([]view.Environment{want}, got))
		}
	})
	t.Run("a deployment with the environments that it names or selects", func(t *testing.T) {
		got, _, err := s.Views.Deployments(ctx, all, view.Filter{Tenant: "acme"}, page)
		check(t, err)
		if len(got) != 3 || got[0].Name != "cart" || !slices.Equal(got[0].Environments,
			[]fleet.EnvironmentName{"prod", "staging"}) || got[0].Problems != 2 ||
			got[0].Counts.Applications != 2 || !slices.Equal(got[2].Environments,
			[]fleet.EnvironmentName{"prod"}) ||
			got[0].Source.RepoURL != "https://git.example.com/acme/cart" {
			t.Fatalf("%+v", got)
		}
		got, _, err = s.Views.Deployments(
			ctx, all, view.Filter{Tenant: "acme", Environment: "staging"},
			page)
		check(t, err)
		if len(got) != 2 {
			t.Fatalf("of staging: %+v", got)
		}
	})
	t.Run("applications by every field", func(t *testing.T) {
		for name, c := range map[string]struct {
			by   view.Filter
			want int
		}{
			"none": {view.Filter{}, 10}, "tenant": {view.Filter{Tenant: "acme"}, 5},
			"environment": {view.Filter{Environment: "prod"}, 6},
			"deployment":  {view.Filter{Deployment: "web"}, 2}, "engine": {
				view.Filter{Engine: "us-1"}, 4}, "revision": {view.Filter{Revision: revision(2)},
				0},
			"sync": {view.Filter{Sync: mirror.SyncSynced}, 6}, "sync unknown": {
				view.Filter{Sync: mirror.SyncUnknown}, 4}, "health": {
				view.Filter{Health: mirror.HealthDegraded}, 3},
			"held": {view.Filter{Apply: mirror.ApplyHeld}, 1}, "failed": {
				view.Filter{Apply: mirror.ApplyFailed}, 1}, "pending": {
				view.Filter{Apply: mirror.ApplyPending}, 4},
			"name": {view.Filter{Name: application("eu-1", "acme", "web", "prod", "v1").Key.Name},
				1}, "quote": {view.Filter{Name: "' OR 1=1 --"}, 0},
		} {
			got, _, err := s.Views.Applications(ctx, all, c.by, page)
			check(t, err)
			if len(got) != c.want {
				t.Errorf("by %s: %d, want %d", name, len(got), c.want)
			}
		}
		got, _, err := s.Views.Applications(
			ctx, all, view.Filter{Tenant: "acme", Deployment: "web"},
			page)
		check(t, err)
		a := got[0]
		if a.RepoURL != "https://git.example.com/acme/web" || a.TargetRevision != "v1" ||
			a.Engine != "eu-1" || a.Sync != mirror.SyncSynced || a.Apply != mirror.ApplyApplied ||
			a.CreatedAt.IsZero() || a.Adopted != "" || a.Object() != a.Name {
			t.Errorf("%+v", a)
		}
	})
	t.Run("an adopted Application with its name in Argo CD", func(t *testing.T) {
		s, own := open(t, newDatabase(t)), application("eu-1", "acme", "a", "prod", "v1")
		further := application("eu-1", "acme", "b", "prod", "v1")
		own.Manifest = manifest(`{"kind":"Application","metadata":{"name":"checkout-prod"}}`)
		further.Manifest = manifest(`{"kind":"Application","metadata":{"name":"cart",` +
			`"namespace":"shop-apps"}}`)
		must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{tenantDeclaration("acme")}
			r.Rows = []mirror.Row{own, further}
		})))(t)
		got, _, err := s.Views.Applications(ctx, all, view.Filter{}, page)
		check(t, err)
		if len(got) != 2 || got[0].Object() != "checkout-prod" ||
			got[1].Object() != "shop-apps/cart" || got[1].Name != further.Key.Name {
			t.Errorf("%+v", got)
		}
	})
	t.Run("an engine with its load and its pending work", func(t *testing.T) {
		got, _, err := s.Views.Engines(ctx, all, view.Filter{}, page)
		check(t, err)
		if len(got) != 2 || got[0].Load != (fleet.EngineLoad{Applications: 6, Environments: 2}) ||
			got[0].Pending != 1 || got[1].Pending != 4 || got[0].State != fleet.EngineActive ||
			got[0].InstanceID != "eu-1" {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("problems by path, holds without those approved", func(t *testing.T) {
		problems, _, err := s.Views.Problems(ctx, all, view.Filter{Name: "cart"}, page)
		check(t, err)
		if len(problems) != 4 || problems[0].Message != "of acme" ||
			problems[1].Message != "also of acme" {
			t.Fatalf("%+v", problems)
		}
		holds, _, err := s.Views.Holds(ctx, all, view.Filter{Revision: revision(1)}, page)
		check(t, err)
		if len(holds) != 2 || holds[0].Tenant != "globex" || len(holds[0].Items) != 1 {
			t.Fatalf("%+v", holds)
		}
	})
	t.Run("why an environment is where it is", func(t *testing.T) {
		got := must(s.Views.Explain(ctx, view.Scope{Tenant: "acme"}, fleet.EnvironmentID{
			Tenant: "acme", Name: "prod"}))(t)
		if !cmp.Equal(got.Placement, placement("acme", "prod", "eu-1")) {
			t.Error(cmp.Diff(placement("acme", "prod", "eu-1"), got.Placement))
		}
		for _, c := range []struct {
			scope view.Scope
			id    fleet.EnvironmentID
		}{{all, fleet.EnvironmentID{Tenant: "acme", Name: "nope"}}, {view.Scope{Tenant: "globex"},
			fleet.EnvironmentID{Tenant: "acme", Name: "prod"}}} {
			if _, err := s.Views.Explain(ctx, c.scope, c.id); !errors.Is(err, mirror.ErrNotFound) {
				t.Errorf("%v in %v: %v", c.id, c.scope, err)
			}
		}
	})
}

// pages reads a list to its end in pages of size n.
func pages[T any](t *testing.T, n int, read func(view.Page) ([]T, string, error)) []T {
	t.Helper()
	var all []T
	for page := (view.Page{Limit: n}); ; {
		items, next, err := read(page)
		check(t, err)
		if len(items) > n || len(items) == 0 && next != "" {
			t.Fatalf("a page of %d with %d items", n, len(items))
		}
		all = append(all, items...)
		if page.After = next; next == "" {
			return all
		}
	}
}

func TestEveryListIsTheSameInPagesOfAnySize(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	for range 3 {
		must(s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopFleet, By: "token:ops",
			Reason: fmt.Sprint(time.Now())}, true))(t)
		_, _, err := s.Tokens.CreateToken(t.Context(), view.Token{Name: "ci", Role: view.RoleRead})
		check(t, err)
	}
	same := func(name string, count func(int) (int, string)) {
		n, one := count(1)
		m, whole := count(100)
		if n != m || one != whole || n < 2 {
			t.Errorf("%s: %d items in pages of 1, %d in one page", name, n, m)
		}
	}
	ctx, all := t.Context(), view.Scope{}
	same("tenants", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Tenants)))
	})
	same("environments", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Environments)))
	})
	same("deployments", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Deployments)))
	})
	same("applications", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Applications)))
	})
	same("engines", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Engines)))
	})
	same("operations", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Operations)))
	})
	same("problems", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Problems)))
	})
	same("holds", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Holds)))
	})
	same("tokens", func(n int) (int, string) {
		return lengthOf(pages(t, n, func(p view.Page) ([]view.Token, string, error) {
			return s.Tokens.ListTokens(ctx, p)
		}))
	})
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"),
		step(1, 2, func(r *mirror.Record) {
			r.Placements = []fleet.Placement{
				placement("acme", "prod", "eu-1")}
		})))(t)
	same("revisions", func(n int) (int, string) {
		return lengthOf(pages(t, n, lister(ctx, all, s.Views.Revisions)))
	})
}

func lengthOf[T any](items []T) (int, string) { return len(items), fmt.Sprintf("%+v", items) }

type listMethod[T any] func(context.Context, view.Scope, view.Filter, view.Page) ([]T, string,
	error)

func lister[T any](ctx context.Context, scope view.Scope,
	method listMethod[T]) func(view.Page) ([]T, string, error) {
	return func(p view.Page) ([]T, string, error) { return method(ctx, scope, view.Filter{}, p) }
}

func TestForgedCursorsAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	_, next, err := s.Views.Tenants(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 1})
	check(t, err)
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, after := range []string{next, "x", "!!", encode("holds"), encode("holds\x001\x002"),
		encode("holds\x00one"), encode("holds\x0099999999999999999999999"),
		encode("holds\x001' OR '1'='1"), encode("holds\x00"), encode("holds\x00\xff"),
		encode(`["holds","1"]`), encode("holds\x00" + strings.Repeat("1", 6200))} {
		if _, _, err := s.Views.Holds(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: 1, After: after}); !errors.Is(err, mirror.ErrCursor) {
			t.Errorf("cursor %q: %v", after, err)
		}
	}
	for _, limit := range []int{0, -1, 1001} {
		if _, _, err := s.Views.Holds(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: limit}); err == nil {
			t.Errorf("a page of %d items", limit)
		}
	}
}

// The longest paths, with whatever Git allows in them: each is recorded, and listed once, page by
// page.
func TestProblemsAreListedWhateverTheirPath(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	paths := []string{"tenants/acme/a.txt", "tenants/acme/z.txt"}
	for _, c := range []string{"x", "<", "\x01", "\\", "\xff", "é", "\U0001F6A2"} {
		for _, n := range []int{100, 500, 1000, 1024, 5000} {
			var noise strings.Builder // not to be compressed until it fits
			for range n {
				noise.WriteString(strings.Repeat(c, rand.IntN(2)) + string(rune('a'+rand.IntN(26))))
			}
			paths = append(paths, "tenants/acme/"+noise.String())
		}
	}
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		for _, path := range paths {
			key, _, problem := configschema.Classify(path)
			r.Problems = append(r.Problems, *problem)
			r.Quarantined = append(r.Quarantined, fleet.Quarantine{Key: key, Path: path,
				Problems: []fleet.Problem{*problem}})
		}
	})))(t)
	seen := map[string]int{}
	for page := (view.Page{Limit: 1}); ; {
		problems, next, err := s.Views.Problems(t.Context(), view.Scope{Tenant: "acme"},
			view.Filter{},
			page)
		check(t, err)
		for _, p := range problems {
			seen[p.Key.Name]++
		}
		if page.After = next; next == "" || len(seen) > len(paths) {
			break
		}
	}
	for _, path := range paths {
		if key, _, _ := configschema.Classify(path); seen[key.Name] != 1 {
			t.Errorf("%.60q is listed %d times", path, seen[key.Name])
		}
	}
}

func TestSourceHasTheStartOfItsFailure(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	set := func(v view.Source) view.Source {
		t.Helper()
		v.URL, v.Branch = "https://git.example.com/config", "main"
		check(t, s.Plans.SetSource(t.Context(), v))
		return must(s.Views.Source(t.Context()))(t)
	}
	if v := set(view.Source{Head: revision(1), FetchedAt: &at}); v.Head != revision(1) ||
		!v.FetchedAt.Equal(at) || v.Since != nil {
		t.Fatalf("%+v", v)
	}
	soon := at.Add(time.Second)
	if v := set(view.Source{Head: revision(1), FetchedAt: &soon}); !v.FetchedAt.Equal(at) {
		t.Errorf("written again after a second: %+v", v)
	}
	down := set(view.Source{Error: "connection refused"})
	if down.Error == "" || down.Since == nil || down.Head != revision(1) {
		t.Fatalf("%+v", down)
	}
	if still := set(view.Source{Error: "no route to host"}); !still.Since.Equal(*down.Since) ||
		still.Error != "no route to host" {
		t.Errorf("%+v", still)
	}
	if up := set(view.Source{Head: revision(2), FetchedAt: &soon}); up.Error != "" ||
		up.Since != nil || up.Head != revision(2) {
		t.Errorf("%+v", up)
	}
}

// A reader of the platform learns what happens to a misplaced environment; tenants cannot read the
// Fleet.
func TestAMisplacedEnvironmentIsShownWithItsPolicy(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease, key := hold(t, s, "reconciler"), fleet.Key{Kind: fleet.KindFleet, Name: "fleet"}
	for n, policy := range []fleet.MisplacedPolicy{"", fleet.MisplacedMove} {
		must(s.Plans.Record(t.Context(), lease, step(n, n+1, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), {Key: key,
				Path: "fleet/fleet.yaml", Blob: fmt.Sprint("f", n), Fleet: &fleet.FleetSpec{
					Placement: fleet.FleetPlacement{Misplaced: policy}}}}
			p := placement("acme", "prod", "eu-1")
			p.Misplaced = "engine eu-1 is in region eu"
			r.Placements = []fleet.Placement{p}
		})))(t)
		if policy == "" {
			policy = fleet.MisplacedStay
		}
		for tenant, want := range map[fleet.TenantName]fleet.MisplacedPolicy{"acme": "",
			"": policy} {
			got := must(s.Views.Explain(t.Context(), view.Scope{Tenant: tenant},
				fleet.EnvironmentID{Tenant: "acme", Name: "prod"}))(t)
			if got.MisplacedPolicy != want {
				t.Errorf("%q for %q: %q", policy, tenant, got.MisplacedPolicy)
			}
		}
	}
}
