package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const gitHost = "https://git.example.com/api/v1/"

// The first account with a name keeps it. Another one is reported once, and counts after the
// platform has released that number.
func TestANameIsPinnedToItsFirstAccount(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		acme := tenantDeclaration("acme")
		acme.Tenant.Owners = []string{"github:Alice", "group:acme"}
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), acme,
			tenantDeclaration("globex")}
	})))(t)
	pin := func(name string, id int64) view.Owner {
		return must(s.Pulls.PinOwner(ctx, gitHost, name, id))(t)
	}
	var replicas sync.WaitGroup
	for range 4 {
		replicas.Go(func() {
			if v, err := s.Pulls.PinOwner(ctx, gitHost, "alice", 7); err != nil || v.ID != 7 ||
				v.Changed() {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
	replicas.Wait()
	entries := `SELECT count(*) FROM audit WHERE action = 'owner-changed'`
	expect(t, url, entries, 0)
	for range 3 {
		if v := pin("Alice", 12); v.ID != 7 || v.NowID != 12 || v.ChangedAt == nil {
			t.Fatalf("another account with the login is reported as %+v", v)
		}
	}
	expect(t, url, entries, 1)
	expect(t, url, `SELECT count(*) FROM events WHERE kind = 'owner'`, 1)
	if other := must(s.Pulls.PinOwner(ctx, "https://other.example.com/", "alice", 12))(
		t); other.ID != 12 || other.Changed() {
		t.Errorf("the name on another host is reported as %+v", other)
	}

	page := view.Page{Limit: 100}
	problems := func(tenant fleet.TenantName) (texts []string) {
		found, _, err := s.Views.Problems(ctx, view.Scope{Tenant: tenant}, view.Filter{}, page)
		check(t, err)
		for _, p := range found {
			texts = append(texts, p.Path+" "+p.Field+" "+p.Code+" "+p.Message+" "+p.Fix)
		}
		return texts
	}
	if got := problems(""); len(got) != 1 || !strings.HasPrefix(got[0],
		"fleet/tenants/acme.yaml spec.owners owner-changed alice is now the account or team 12") {
		t.Errorf("problems: %q", got)
	}
	if got := problems("globex"); len(got) != 0 {
		t.Errorf("another tenant gets %q", got)
	}
	if all, _, err := s.Views.Owners(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		page); err != nil || len(all) != 0 {
		t.Errorf("a tenant is shown %+v (%v)", all, err)
	}

	if _, err := s.Decisions.ReleaseOwner(ctx, mirror.OwnerRelease{Name: "alice", ID: 13,
		By: "token:ops"}); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("an account that does not have the login is released: %v", err)
	}
	check(t, s.Reset(ctx)) // a rebuilt mirror keeps every pin
	if v := pin("alice", 12); v.ID != 7 {
		t.Errorf("after a rebuild alice is %+v", v)
	}
	if changed := must(s.Pulls.ChangedOwners(ctx))(t); len(changed) != 1 {
		t.Errorf("changed are %+v", changed)
	}
	if v := must(
		s.Decisions.ReleaseOwner(ctx, mirror.OwnerRelease{Name: "alice", ID: 12, By: "token:ops",
			Note: "asked her"}))(t); v.ID != 12 || v.Changed() {
		t.Errorf("released it is %+v", v)
	}
	expect(t, url,
		`SELECT count(*) FROM audit WHERE action = 'pin-owner' AND actor = 'token:ops' AND detail = 'asked her'`, 1)
	if v := pin("alice", 12); v.ID != 12 || v.Changed() {
		t.Errorf("after the release it is %+v", v)
	}
	if v := pin("alice", 7); v.ID != 12 || v.NowID != 7 {
		t.Errorf("the account of before is %+v", v)
	}
	if v := pin("alice", 12); v.Changed() {
		t.Errorf("the account that has its login again is %+v", v)
	}
	if _, err := s.Pulls.PinOwner(ctx, gitHost, "bob", 0); err == nil {
		t.Error("no account is pinned")
	}
}
