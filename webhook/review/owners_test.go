package review

import (
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

func review(p fleet.Person, state fleet.ReviewState, at fleet.Revision, minute int) fleet.Review {
	return fleet.Review{Author: p, State: state, Head: at,
		At: noon.Add(time.Duration(minute) * time.Minute)}
}

func consent(p fleet.Person, at fleet.Revision, minute int) fleet.Clearance {
	return fleet.Clearance{By: p, Head: at, At: noon.Add(time.Duration(minute) * time.Minute)}
}

func TestWhoseApprovalCounts(t *testing.T) {
	for name, c := range map[string]struct {
		reviews  []fleet.Review
		consents []fleet.Clearance
		met      bool
		state    fleet.CheckState
	}{
		"nobody has said anything": {nil, nil, false, fleet.CheckPending},
		"an owner approves": {
			[]fleet.Review{review(bob, fleet.ReviewApproved, head, 1)}, nil, true,
			fleet.CheckSuccess},
		"an owner who wrote it approves by command": {
			nil, []fleet.Clearance{consent(alice, head, 1)}, true, fleet.CheckSuccess},
		"a stranger approves": {
			[]fleet.Review{review(mallet, fleet.ReviewApproved, head, 1)}, []fleet.Clearance{
				consent(mallet, head, 2)}, false, fleet.CheckPending},
		"the platform approves for the tenant": {
			[]fleet.Review{review(carol, fleet.ReviewApproved, head, 1)}, nil, false,
			fleet.CheckPending},
		"an owner approves another head": {
			[]fleet.Review{review(bob, fleet.ReviewApproved, older, 1)}, []fleet.Clearance{
				consent(alice, older, 1)}, false, fleet.CheckPending},
		"an owner only comments": {
			[]fleet.Review{review(bob, fleet.ReviewCommented, head, 1)}, nil, false,
			fleet.CheckPending},
		"an owner takes it back": {
			[]fleet.Review{review(bob, fleet.ReviewApproved, head, 1),
				review(bob, fleet.ReviewChanges, head, 2)}, nil, false, fleet.CheckFailure},
		"in whatever order they are listed": {
			[]fleet.Review{review(bob, fleet.ReviewChanges, head, 2),
				review(bob, fleet.ReviewApproved, head, 1)}, nil, false, fleet.CheckFailure},
		"a dismissed review takes a command back": {
			[]fleet.Review{review(bob, fleet.ReviewDismissed, head, 2)}, []fleet.Clearance{
				consent(bob, head, 1)}, false, fleet.CheckFailure},
		"at the same moment it is taken back": {
			[]fleet.Review{review(bob, fleet.ReviewApproved, head, 1),
				review(bob, fleet.ReviewChanges, head, 1)}, nil, false, fleet.CheckFailure},
		"and is given again": {
			[]fleet.Review{review(bob, fleet.ReviewChanges, head, 2)}, []fleet.Clearance{
				consent(bob, head, 3)}, true, fleet.CheckSuccess},
		"a comment after it changes nothing": {
			[]fleet.Review{review(bob, fleet.ReviewApproved, head, 1),
				review(bob, fleet.ReviewCommented, head, 2)}, nil, true, fleet.CheckSuccess},
		"one takes back what another still gives": {
			[]fleet.Review{review(bob, fleet.ReviewChanges, head, 2)}, []fleet.Clearance{
				consent(alice, head, 1)}, true, fleet.CheckSuccess},
		"a stranger cannot take it back": {
			[]fleet.Review{review(mallet, fleet.ReviewChanges, head, 2)}, []fleet.Clearance{
				consent(alice, head, 1)}, true, fleet.CheckSuccess},
		"a login is not the person": {
			[]fleet.Review{review(fleet.Person{ID: 99, Login: "alice"}, fleet.ReviewApproved, head,
				1)}, nil, false, fleet.CheckPending},
		"a renamed person is still the person": {
			[]fleet.Review{review(fleet.Person{ID: alice.ID, Login: "renamed"},
				fleet.ReviewApproved, head, 1)}, nil, true, fleet.CheckSuccess},
		"an account that is gone": {
			[]fleet.Review{review(fleet.Person{Login: "ghost"}, fleet.ReviewApproved, head, 1)},
			nil, false, fleet.CheckPending},
		"changes were asked for at an earlier head": {
			[]fleet.Review{review(bob, fleet.ReviewChanges, older, 1)}, nil, false,
			fleet.CheckFailure},
		"and an earlier head was approved since": {
			[]fleet.Review{review(bob, fleet.ReviewChanges, older, 1),
				review(bob, fleet.ReviewApproved, older, 2)}, nil, false, fleet.CheckPending},
	} {
		f, _ := bump(t)
		f.Reviews, f.Record.Consents = c.reviews, c.consents
		f.Owned[1].Owners = append(f.Owned[1].Owners,
			Owner{Name: "github:ghost", People: []fleet.Person{{Login: "ghost"}}})
		v := Decide(f)
		if got := find(t, v, fleet.CheckOwners); v.Consented() != c.met ||
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
	f.Reviews = []fleet.Review{review(bob, fleet.ReviewApproved, head, 1)}
	v := Decide(f)
	if got := find(t, v, fleet.CheckOwners); got.State != fleet.CheckPending || v.Consented() ||
		!slices.Equal(v.Tenants, []fleet.TenantName{"acme", "globex"}) {
		t.Errorf("%+v %v", got, v.Tenants)
	}
	if text := Comment(f, v, MostComment); !strings.Contains(text,
		"`tenants/globex/deployments/web.yaml`, which `main` has in the same way by now") {
		t.Error(text)
	}
	f.Files, f.Plan.Tenants = nil, nil
	if state := Decide(f).State; state == fleet.CheckSuccess {
		t.Error("with nothing else it passes as none of Argosy's business")
	}
}

func TestOwnersAreTheBases(t *testing.T) {
	before := standingFleet()
	after := before.edit("fleet/tenants/acme.yaml", "github:acme/leads", "github:mallet").edit(
		"tenants/acme/deployments/cart.yaml", "v2.0.0", "v9")
	f, _ := planned(t, before, after)
	f.Reviews = []fleet.Review{review(mallet, fleet.ReviewApproved, head, 1)}
	v := Decide(f)
	if v.Consented() || !slices.Equal(v.Tenants, []fleet.TenantName{"", "acme"}) ||
		len(v.Ownership) != 2 {
		t.Errorf("%+v", v.Ownership)
	}
	f.Reviews = append(f.Reviews, review(alice, fleet.ReviewApproved, head, 1))
	if Decide(f).Consented() {
		t.Error("the platform has not approved")
	}
	f.Reviews = append(f.Reviews, review(carol, fleet.ReviewApproved, head, 1))
	if v := Decide(f); !v.Consented() || v.State != fleet.CheckSuccess {
		t.Errorf("both have approved: %v", v.Obstacles)
	}
}

func TestWhatNobodyOwnsIsThePlatforms(t *testing.T) {
	f, _ := bump(t)
	f.Owned[1].Owners = []Owner{{Name: "group:acme"}, {Name: "github:gone", Unknown: true},
		{Name: "github:acme/empty"}}
	f.Reviews = []fleet.Review{review(alice, fleet.ReviewApproved, head, 1)}
	v := Decide(f)
	todo := v.Obstacles[0].Todo
	for _, want := range []string{"An owner of the platform has to approve",
		"`group:acme` (a group of the sign-in", "`github:gone` (unknown to the forge)",
		"`github:acme/empty` (nobody is in it)"} {
		if !strings.Contains(todo, want) {
			t.Errorf("%q lacks %q", todo, want)
		}
	}
	f.Reviews = []fleet.Review{review(carol, fleet.ReviewApproved, head, 1)}
	if !Decide(f).Consented() {
		t.Error("the platform's owner is to count")
	}
	f.Owned[0].Owners = nil
	if Decide(f).Consented() {
		t.Error("carol owns nothing any more")
	}
	f.Permissions = map[int64]fleet.Permission{carol.ID: fleet.PermissionWrite}
	if Decide(f).Consented() {
		t.Error("write permission is not admin permission")
	}
	f.Permissions[carol.ID] = fleet.PermissionAdmin
	if !Decide(f).Consented() {
		t.Error("who may administer the repository is to count for a platform without owners")
	}
	f.Owned = nil
	f.Permissions = nil
	if v := Decide(f); v.Consented() || v.State == fleet.CheckSuccess {
		t.Error("what is not known counts for nobody")
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
	record := fleet.PullRecord{Pull: fleet.Pull{Head: head}, Consents: []fleet.Clearance{
		consent(alice, head, 1), consent(mallet, older, 1)}}
	got := Voices([]fleet.Review{review(bob, fleet.ReviewApproved, head, 1),
		review(carol, fleet.ReviewChanges, head, 1), review(bob, fleet.ReviewApproved, head, 2)},
		record)
	if !slices.Equal(got, []fleet.Person{alice, bob}) {
		t.Errorf("%v", got)
	}
}
