package postgres_test

import (
	"fmt"
	"slices"
	"strings"
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

// An owner's release covers what freezes of the own tenant hold, until the tenant is removed.
func TestAnOwnersReleaseCoversTheFreezesOfTheTenant(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	key := application("eu-1", "acme", "web", "prod", "v1").Key
	of := func(reason mirror.HoldReason, tenant fleet.TenantName) mirror.Hold {
		return mirror.Hold{Revision: revision(1), Reason: reason, Tenant: tenant,
			Message: "it waits", Items: []fleet.ObjectKey{key},
			Since: must(s.Plans.Recent(ctx, time.Hour))(t).Now}
	}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), tenantDeclaration("globex")}
		r.Holds = []mirror.Hold{of(mirror.HoldFrozen, "acme"), of(mirror.HoldFrozen, "globex"),
			of(mirror.HoldFrozen, ""), of(mirror.HoldDeletions, "acme")}
	})))(t)
	left := func() string {
		holds, _, err := s.Views.Holds(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
		check(t, err)
		out := []string{}
		for _, h := range holds {
			out = append(out, fmt.Sprintf("%s/%s", h.Tenant, h.Reason))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	owner := mirror.Approval{Revision: revision(1), Tenant: "acme",
		By: "group:acme (token:acme/ann)", Note: "an urgent fix"}
	done := must(s.Decisions.Approve(ctx, owner))(t)
	if got, want := left(), "/frozen acme/deletions globex/frozen"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	own, _, err := s.Views.Holds(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(own) != 1 || own[0].Reason != mirror.HoldDeletions {
		t.Errorf("the tenant sees %+v", own)
	}
	read := must(s.Plans.Approvals(ctx))(t)
	if len(read) != 1 || read[0].Tenant != "acme" || read[0].By != owner.By ||
		!read[0].At.Equal(done.At) || read[0].Note != owner.Note {
		t.Errorf("%+v", read)
	}
	if snap := must(s.Plans.Load(ctx))(t); len(snap.Approvals) != 1 ||
		snap.Approvals[0].Tenant != "acme" {
		t.Errorf("the snapshot has %+v", snap.Approvals)
	}
	again := must(s.Decisions.Approve(ctx, owner))(t)
	must(s.Decisions.Approve(ctx, mirror.Approval{Revision: revision(1), By: "token:ops"}))(t)
	read = must(s.Plans.Approvals(ctx))(t)
	if len(read) != 2 || read[0].Tenant != "acme" || !read[0].At.Equal(again.At) ||
		read[1].Tenant != "" || left() != "" {
		t.Errorf("%+v, left %q", read, left())
	}
	entries, _, err := s.Views.Operations(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(entries) != 2 || entries[0].RequestedBy != owner.By ||
		entries[0].Message != owner.Note {
		t.Errorf("the tenant's record has %+v", entries)
	}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(1, 2, func(r *mirror.Record) {
		r.Removed = []fleet.Key{{Kind: fleet.KindTenant, Name: "acme"}}
	})))(t)
	if read := must(s.Plans.Approvals(ctx))(t); len(read) != 1 || read[0].Tenant != "" {
		t.Errorf("the release of a removed tenant counts: %+v", read)
	}
}
