package review

import (
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

func review(p forge.Person, state forge.ReviewState, at fleet.Revision, minute int) forge.Review {
	return forge.Review{Author: p, State: state, Head: at,
		At: noon.Add(time.Duration(minute) * time.Minute)}
}

func consent(p forge.Person, at fleet.Revision, minute int) forge.Clearance {
	return forge.Clearance{By: p, Head: at, At: noon.Add(time.Duration(minute) * time.Minute)}
}

func TestWhoseApprovalCounts(t *testing.T) {
	for name, c := range map[string]struct {
		reviews  []forge.Review
		consents []forge.Clearance
		met      bool
		state    forge.CheckState
	}{
		"no review and no command": {nil, nil, false, forge.CheckPending},
		"an owner approves": {
			[]forge.Review{review(bob, forge.ReviewApproved, head, 1)}, nil, true,
			forge.CheckSuccess},
		"an owner who wrote it approves by command": {
			nil, []forge.Clearance{consent(alice, head, 1)}, true, forge.CheckSuccess},
		"a stranger approves": {
			[]forge.Review{review(mallet, forge.ReviewApproved, head, 1)}, []forge.Clearance{
				consent(mallet, head, 2)}, false, forge.CheckPending},
		"the platform approves for the tenant": {
			[]forge.Review{review(carol, forge.ReviewApproved, head, 1)}, nil, false,
			forge.CheckPending},
		"an owner approves another head": {
			[]forge.Review{review(bob, forge.ReviewApproved, older, 1)}, []forge.Clearance{
				consent(alice, older, 1)}, false, forge.CheckPending},
		"an owner only comments": {
			[]forge.Review{review(bob, forge.ReviewCommented, head, 1)}, nil, false,
			forge.CheckPending},
		"an owner takes it back": {
			[]forge.Review{review(bob, forge.ReviewApproved, head, 1),
				review(bob, forge.ReviewChanges, head, 2)}, nil, false, forge.CheckFailure},
		"in whatever order they are listed": {
			[]forge.Review{review(bob, forge.ReviewChanges, head, 2),
				review(bob, forge.ReviewApproved, head, 1)}, nil, false, forge.CheckFailure},
		"a dismissed review takes a command back": {
			[]forge.Review{review(bob, forge.ReviewDismissed, head, 2)}, []forge.Clearance{
				consent(bob, head, 1)}, false, forge.CheckFailure},
		"at the same moment it is taken back": {
			[]forge.Review{review(bob, forge.ReviewApproved, head, 1),
				review(bob, forge.ReviewChanges, head, 1)}, nil, false, forge.CheckFailure},
		"and is given again": {
			[]forge.Review{review(bob, forge.ReviewChanges, head, 2)}, []forge.Clearance{
				consent(bob, head, 3)}, true, forge.CheckSuccess},
		"a comment after it changes nothing": {
			[]forge.Review{review(bob, forge.ReviewApproved, head, 1),
				review(bob, forge.ReviewCommented, head, 2)}, nil, true, forge.CheckSuccess},
		"one takes back what another still gives": {
			[]forge.Review{review(bob, forge.ReviewChanges, head, 2)}, []forge.Clearance{
				consent(alice, head, 1)}, true, forge.CheckSuccess},
		"a stranger cannot take it back": {
			[]forge.Review{review(mallet, forge.ReviewChanges, head, 2)}, []forge.Clearance{
				consent(alice, head, 1)}, true, forge.CheckSuccess},
		"a login is not the person": {
			[]forge.Review{review(forge.Person{ID: 99, Login: "alice"}, forge.ReviewApproved, head,
				1)}, nil, false, forge.CheckPending},
		"a renamed person is still the person": {
			[]forge.Review{review(forge.Person{ID: alice.ID, Login: "renamed"},
				forge.ReviewApproved, head, 1)}, nil, true, forge.CheckSuccess},
		"an account that is gone": {
			[]forge.Review{review(forge.Person{Login: "ghost"}, forge.ReviewApproved, head, 1)},
			nil, false, forge.CheckPending},
		"changes were asked for at an earlier head": {
			[]forge.Review{review(bob, forge.ReviewChanges, older, 1)}, nil, false,
			forge.CheckFailure},
		"and an earlier head was approved since": {
			[]forge.Review{review(bob, forge.ReviewChanges, older, 1),
				review(bob, forge.ReviewApproved, older, 2)}, nil, false, forge.CheckPending},
	} {
		f, _ := bump(t)
		f.Reviews, f.Record.Consents = c.reviews, c.consents
		f.Owned[1].Owners = append(f.Owned[1].Owners,
			Owner{Name: "github:ghost", People: []forge.Person{{Login: "ghost"}}})
		v := Decide(f)
		if got := find(t, v, forge.CheckOwners); v.Consented() != c.met ||
			v.Ownership[0].Met() != c.met || got.State != c.state {
			t.Errorf("%s: %v %+v", name, got, v.Ownership)
		}
	}
}

// The head has a file of globex otherwise than where it parted, and the base has it in the same way
// by now.
func TestContentThatTheBaseHasTooNeedsItsOwner(t *testing.T) {
	f, _ := bump(t)
	f.Kept = []string{"tenants/globex/deployments/web.yaml"}
	f.Reviews = []forge.Review{review(bob, forge.ReviewApproved, head, 1)}
	v := Decide(f)
	if got := find(t, v, forge.CheckOwners); got.State != forge.CheckPending || v.Consented() ||
		!slices.Equal(v.Tenants, []fleet.TenantName{"acme", "globex"}) {
		t.Errorf("%+v %v", got, v.Tenants)
	}
	if text := Comment(f, v, MostComment); !strings.Contains(text,
		"`tenants/globex/deployments/web.yaml`, which `main` has in the same way by now") {
		t.Error(text)
	}
	f.Files, f.Plan.Tenants = nil, nil
	if state := Decide(f).State; state == forge.CheckSuccess {
		t.Error("with nothing else it passes as none of Argosy's business")
	}
}

func TestOwnersAreTheBases(t *testing.T) {
	before := appliedFleet()
	after := before.edit("fleet/tenants/acme.yaml", "github:acme/leads", "github:mallet").edit(
		"tenants/acme/deployments/cart.yaml", "v2.0.0", "v9")
	f, _ := planned(t, before, after)
	f.Reviews = []forge.Review{review(mallet, forge.ReviewApproved, head, 1)}
	v := Decide(f)
	if v.Consented() || !slices.Equal(v.Tenants, []fleet.TenantName{"", "acme"}) ||
		len(v.Ownership) != 2 {
		t.Errorf("%+v", v.Ownership)
	}
	f.Reviews = append(f.Reviews, review(alice, forge.ReviewApproved, head, 1))
	if Decide(f).Consented() {
		t.Error("the platform has not approved")
	}
	f.Reviews = append(f.Reviews, review(carol, forge.ReviewApproved, head, 1))
	if v := Decide(f); !v.Consented() || v.State != forge.CheckSuccess {
		t.Errorf("both have approved: %v", v.Obstacles)
	}
}

func TestThePlatformOwnsFilesWithoutAnOwner(t *testing.T) {
	f, _ := bump(t)
	f.Owned[1].Owners = []Owner{{Name: "group:acme"}, {Name: "github:gone", Unknown: true},
		{Name: "github:acme/empty"}}
	f.Reviews = []forge.Review{review(alice, forge.ReviewApproved, head, 1)}
	v := Decide(f)
	todo := v.Obstacles[0].Todo
	for _, want := range []string{"An owner of the platform has to approve",
		"`group:acme` (an identity-provider group", "`github:gone` (unknown to the Git host)",
		"`github:acme/empty` (without members)"} {
		if !strings.Contains(todo, want) {
			t.Errorf("%q lacks %q", todo, want)
		}
	}
	f.Reviews = []forge.Review{review(carol, forge.ReviewApproved, head, 1)}
	if !Decide(f).Consented() {
		t.Error("the platform's owner is to count")
	}
	f.Owned[0].Owners = nil
	if Decide(f).Consented() {
		t.Error("carol owns nothing any more")
	}
	f.Permissions = map[int64]forge.Permission{carol.ID: forge.PermissionWrite}
	if Decide(f).Consented() {
		t.Error("write permission is not admin permission")
	}
	f.Permissions[carol.ID] = forge.PermissionAdmin
	if !Decide(f).Consented() {
		t.Error("an administrator of the repository does not count for a platform without owners")
	}
	f.Owned = nil
	f.Permissions = nil
	if v := Decide(f); v.Consented() || v.State == forge.CheckSuccess {
		t.Error("a pull request without known owners and permissions is approved")
	}
}

func TestTouchedIsWhoseFilesTheyAre(t *testing.T) {
	got := Touched([]string{"tenants/acme/deployments/a.yaml", "fleet/fleet.yaml", "tenants/acme/x",
		"tenants/stray.yaml", "tenants/b c/../d", "tenants//x"})
	if want := []fleet.TenantName{"", "acme", "b c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVoicesAreThoseWhosePermissionMayDecide(t *testing.T) {
	record := forge.PullRecord{Pull: forge.Pull{Head: head}, Consents: []forge.Clearance{
		consent(alice, head, 1), consent(mallet, older, 1)}}
	got := Voices([]forge.Review{review(bob, forge.ReviewApproved, head, 1),
		review(carol, forge.ReviewChanges, head, 1), review(bob, forge.ReviewApproved, head, 2)},
		record)
	if !slices.Equal(got, []forge.Person{alice, bob}) {
		t.Errorf("%v", got)
	}
}
