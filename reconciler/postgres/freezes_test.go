package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Every tenant sees the freezes of the fleet, and those of no other tenant.
func TestFreezesAreListedForTheirReaders(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	weekly := func(name string) fleet.Freeze {
		return fleet.Freeze{Name: name, Schedule: "0 18 * * 5",
			Duration: fleet.Duration(60 * time.Hour)}
	}
	acme, globex := tenantDeclaration("acme"), tenantDeclaration("globex")
	acme.Tenant.Freezes = []fleet.Freeze{weekly("one"), weekly("two")}
	acme.Tenant.Freezes[1].EnvironmentSelector = &fleet.LabelSelector{
		MatchLabels: map[string]string{"tier": "prod"}}
	acme.Tenant.Freezes[1].Kinds = []fleet.FreezeKind{fleet.FreezeSyncs}
	globex.Tenant.Freezes = []fleet.Freeze{weekly("three")}
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{acme, globex, {
			Key:  fleet.Key{Kind: fleet.KindFleet, Name: "fleet"},
			Path: "fleet/fleet.yaml", Blob: "f",
			Fleet: &fleet.FleetSpec{Freezes: []fleet.Freeze{weekly("all")}}}}
	})))(t)
	for _, c := range []struct {
		scope, by fleet.TenantName
		want      string
	}{
		{"", "", "[/all acme/one acme/two globex/three]"},
		{"", "globex", "[/all globex/three]"},
		{"acme", "", "[/all acme/one acme/two]"},
		{"acme", "globex", "[]"},
	} {
		for _, limit := range []int{1, 100} {
			got := []string{}
			for page := (view.Page{Limit: limit}); ; {
				found, next, err := s.Views.Freezes(t.Context(), view.Scope{Tenant: c.scope},
					view.Filter{Tenant: c.by}, page)
				check(t, err)
				for _, f := range found {
					got = append(got, fmt.Sprintf("%s/%s", f.Tenant, f.Name))
					if f.Name == "two" && (f.EnvironmentSelector != "tier=prod" ||
						len(f.Kinds) != 1) || f.Name == "one" && len(f.Kinds) != 3 {
						t.Errorf("%+v", f)
					}
				}
				if page.After = next; next == "" {
					break
				}
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%q asks for %q: %v, want %s", c.scope, c.by, got, c.want)
			}
		}
	}
}

// The pull request whose content is there is done, although a freeze holds a later change of it.
func TestAFrozenApplicationHasTheStateOfItsPresentContent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	frozen := application("eu-1", "acme", "frozen", "prod", "v1")
	deleted := application("eu-1", "acme", "deleted", "prod", "v1")
	keys := []fleet.ObjectKey{frozen.Key, deleted.Key}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme")}
		r.Rows, r.Held = []mirror.Row{frozen, deleted}, keys
		r.Holds = []mirror.Hold{
			{Revision: revision(1), Reason: mirror.HoldFrozen, Tenant: "acme",
				Items: keys[:1], Message: "a freeze", Since: time.Now()},
			{Revision: revision(1), Reason: mirror.HoldDeletions, Tenant: "acme",
				Items: keys[1:], Message: "too many", Since: time.Now()}}
	})))(t)
	got := must(s.Views.Outcomes(ctx, keys))(t)
	if got[0].Held || got[0].Apply != mirror.ApplyPending {
		t.Errorf("the frozen one: %+v", got[0])
	}
	if !got[1].Held || got[1].Apply != mirror.ApplyHeld {
		t.Errorf("the held deletion: %+v", got[1])
	}
}
