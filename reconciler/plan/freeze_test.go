package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/report"
)

const (
	checkoutFile = "tenants/acme/deployments/checkout.yaml"
	cartFile     = "tenants/acme/deployments/cart.yaml"
	weekend      = "  freezes: [{name: weekend, schedule: \"0 18 * * 5\", duration: 60h%s}]\n"
	ofProd       = ", environmentSelector: {matchLabels: {tier: prod}}"
)

// frozenHouse is a fleet on a Friday at 19:00, one hour into a freeze of acme's prod.
func frozenHouse(t *testing.T) *house {
	h := newHouse(t)
	h.apply(small().with("fleet/tenants/acme.yaml",
		tenantFile("acme", fmt.Sprintf(weekend, ofProd))))
	h.now = time.Date(2026, 11, 20, 19, 0, 0, 0, time.UTC)
	return h
}

// monday is after the end of the freeze.
func (h *house) monday() { h.now = time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC) }

func (h *house) hashOf(subject string) string {
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectApplication && !r.Unwanted &&
			string(r.Deployment)+"@"+string(r.Environment) == subject {
			return r.Manifest.Hash
		}
	}
	return ""
}

// sorted returns the changes of Applications, sorted.
func sorted(actions string) string {
	lines := slices.DeleteFunc(strings.Split(actions, "\n"), func(l string) bool {
		return !strings.Contains(l, "Application")
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestAFreezeHoldsTheApplicationsOfItsEnvironments(t *testing.T) {
	h := frozenHouse(t)
	prod, staging := h.hashOf("checkout@prod"), h.hashOf("checkout@staging")
	p := h.apply(h.files.edit(checkoutFile, "v1}", "v2}").
		with("tenants/acme/deployments/new.yaml", deploymentFile("new", "acme/new",
			"environments: [prod]", "")))
	want := "freeze Application checkout@prod\nfreeze Application new@prod\n" +
		"update Application checkout@staging"
	if got := sorted(actions(p)); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if h.hashOf("checkout@prod") != prod || h.hashOf("checkout@staging") == staging ||
		h.hashOf("new@prod") != "" {
		t.Error("the rows are not those of the freeze")
	}
	if p.Counts.Frozen != 2 || p.Counts.Changed != 1 || p.Counts.Created != 0 {
		t.Errorf("%+v", p.Counts)
	}
	if len(p.Holds) != 1 || p.Holds[0].Reason != mirror.HoldFrozen ||
		p.Holds[0].Tenant != "acme" || len(p.Holds[0].Items) != 2 ||
		!strings.Contains(p.Holds[0].Message, "2026-11-23 06:00 UTC") {
		t.Errorf("%+v", p.Holds)
	}
	for _, c := range p.Rows {
		if c.Action == report.Freeze && !strings.Contains(c.Note, "lasts until") {
			t.Errorf("%s: %q", c.Subject, c.Note)
		}
	}
	h.restart()
	if h.w.Thaws(h.now) || !h.w.Freezes() {
		t.Error("it thaws too early, or not at all")
	}
	if p := h.again(); len(p.Rows)+len(p.Holds)+len(p.Ended) > 0 {
		t.Errorf("planned again, it changes %s", actions(p))
	}
	h.monday()
	if !h.w.Thaws(h.now) {
		t.Error("it does not thaw")
	}
	p = h.again()
	want = "create Application new@prod\nupdate Application checkout@prod"
	if got := sorted(actions(p)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if len(p.Ended) != 1 || len(p.Freed) != 1 || h.w.Freezes() {
		t.Errorf("ended %v, freed %v", p.Ended, p.Freed)
	}
}

// The rows after a freeze are those of a fleet that had none.
func TestNothingIsLeftOfAFreeze(t *testing.T) {
	h := frozenHouse(t)
	changed := h.files.edit(checkoutFile, "acme/checkout", "acme/other").
		with(cartFile, deploymentFile("cart", "acme/cart", "environments: [prod, staging]",
			"  sync: {mode: manual}\n")).
		without("tenants/acme/credentials/checkout.yaml")
	h.apply(changed)
	pl, _ := h.w.state.PlacementOf(fleet.ApplicationID{Tenant: "acme", Deployment: "checkout",
		Environment: "prod"})
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectRepository && k.Engine == pl.Engine && r.Unwanted {
			t.Errorf("a Secret that a frozen Application needs goes: %s", k.Name)
		}
	}
	h.restart()
	h.monday()
	h.again()
	h.work()
	fresh := newHouse(t)
	fresh.apply(small().with("fleet/tenants/acme.yaml",
		tenantFile("acme", fmt.Sprintf(weekend, ofProd))))
	fresh.apply(changed)
	fresh.work()
	if got, want := h.desired(), fresh.desired(); !maps.Equal(got, want) {
		t.Errorf("the rows are\n%v\nwant\n%v", got, want)
	}
}

func TestAFreezeHoldsDeletions(t *testing.T) {
	h := frozenHouse(t)
	p := h.apply(h.files.without(checkoutFile))
	if got := actions(p); !strings.Contains(got, "hold Application checkout@prod") ||
		!strings.Contains(got, "delete Application checkout@staging") {
		t.Fatal(got)
	}
	if p.Holds[0].Reason != mirror.HoldFrozen {
		t.Errorf("%+v", p.Holds)
	}
	h.restart()
	if p := h.again(); len(p.Rows) > 0 {
		t.Errorf("planned again, it changes %s", actions(p))
	}
	h.monday()
	if !h.w.Thaws(h.now) {
		t.Error("it does not thaw")
	}
	if got := actions(h.again()); !strings.Contains(got, "delete Application checkout@prod") {
		t.Error(got)
	}
}

func TestAReleasePassesAFreezeOnceForItsContent(t *testing.T) {
	h := frozenHouse(t)
	was := h.hashOf("checkout@prod")
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	held := revision(h.n)
	early := func(r *Request) {
		r.Approvals = []mirror.Approval{{Revision: held, At: h.now.Add(-time.Hour)}}
	}
	if p := h.again(early); len(p.Rows) > 0 {
		t.Errorf("an earlier approval releases it: %s", actions(p))
	}
	// the same plan has the approval, and a later commit that changes the Application again
	p := h.apply(h.files.edit(checkoutFile, "v2}", "v3}"), approve(h, held))
	if h.hashOf("checkout@prod") != was {
		t.Fatalf("an approval releases a later content: %s", actions(p))
	}
	second := revision(h.n)
	if len(p.Holds) != 1 || p.Holds[0].Revision != second || len(p.Ended) != 1 {
		t.Errorf("%+v, %v", p.Holds, p.Ended)
	}
	h.now = h.now.Add(time.Minute)
	p = h.again(approve(h, second))
	if got := actions(p); got != "update Application checkout@prod" || h.w.Freezes() {
		t.Errorf("%s", got)
	}
	// Argo CD would sync it at the end of the freeze only
	if len(p.Syncs) != 1 || p.Syncs[0].Deployment != "checkout" || p.Syncs[0].Revision != "v3" {
		t.Errorf("%+v", p.Syncs)
	}
	h.now = h.now.Add(time.Minute)
	if got := actions(h.apply(h.files.edit(checkoutFile, "v3}", "v4}"))); !strings.Contains(got,
		"freeze Application checkout@prod") {
		t.Errorf("the release covers the next commit: %s", got)
	}
}

// pass is an approval of an owner of acme.
func pass(h *house, rev fleet.Revision) func(*Request) {
	return func(r *Request) {
		r.Approvals = append(r.Approvals, mirror.Approval{Revision: rev, Tenant: "acme",
			By: "group:acme (token:acme/alice)", At: h.now.Add(time.Second)})
	}
}

// fleetFreeze has the fleet freeze acme's prod until an hour.
func (h *house) fleetFreeze(hours int) {
	h.t.Helper()
	h.apply(h.files.with("fleet/fleet.yaml", fleetFile(fmt.Sprintf("  freezes: [{name: night, "+
		"schedule: \"0 18 * * 5\", duration: %dh%s}]\n", hours, ofProd))))
}

func TestAnOwnerPassesTheFreezeOfTheTenant(t *testing.T) {
	h := frozenHouse(t)
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	held := revision(h.n)
	other := func(r *Request) {
		r.Approvals = []mirror.Approval{{Revision: held, Tenant: "globex",
			At: h.now.Add(time.Hour)}}
	}
	if p := h.again(other); len(p.Rows) > 0 {
		t.Fatalf("another tenant's owner passes it: %s", actions(p))
	}
	p := h.again(pass(h, held))
	if got := actions(p); got != "update Application checkout@prod" || h.w.Freezes() {
		t.Errorf("%s", got)
	}
	if len(p.Syncs) != 1 || len(p.Ended) != 1 {
		t.Errorf("syncs %+v, ended %v", p.Syncs, p.Ended)
	}
}

// While the fleet and the tenant freeze an environment, the platform alone decides, whichever of
// the two lasts longer. Then the tenant's freeze holds the change, and its owners decide.
func TestNoOwnerPassesAFreezeOfTheFleet(t *testing.T) {
	for name, hours := range map[string]int{"the fleet's ends first": 6, "the tenant's does": 70} {
		t.Run(name, func(t *testing.T) {
			h := frozenHouse(t)
			h.fleetFreeze(hours)
			h.apply(h.files.edit(checkoutFile, "v1}", "v2}").without(cartFile))
			held := revision(h.n)
			hold := h.held()
			if hold.Tenant != "" || strings.Contains(hold.Message, ", then freeze weekend of "+
				"tenant acme lasts until 2026-11-23 06:00 UTC") != (hours == 6) {
				t.Errorf("%+v", hold)
			}
			early := mirror.Approval{Revision: held, Tenant: "acme", At: h.now.Add(time.Second)}
			approval := func(r *Request) { r.Approvals = []mirror.Approval{early} }
			if p := h.again(approval); len(p.Rows)+len(p.Holds) > 0 {
				t.Fatalf("an owner of the tenant passes it: %s", actions(p))
			}
			if hours != 6 {
				return
			}
			h.now = h.now.Add(6 * time.Hour)
			if !h.w.Thaws(h.now) {
				t.Fatal("the end of the fleet's freeze changes nothing")
			}
			p := h.again(approval)
			if got := strings.Contains(actions(p), "update") ||
				strings.Contains(actions(p), "delete"); got || h.held().Tenant != "acme" {
				t.Fatalf("held by %q\n%s", h.held().Tenant, actions(p))
			}
			h.restart()
			if h.w.Thaws(h.now) {
				t.Error("it is planned again and again")
			}
			if p := h.again(approval); len(p.Rows) > 0 {
				t.Errorf("a release from before it was the owners' counts: %s", actions(p))
			}
			if got := actions(h.again(pass(h, held))); !strings.Contains(got,
				"update Application checkout@prod") ||
				!strings.Contains(got, "delete Application cart@prod") {
				t.Errorf("%s", got)
			}
		})
	}
}

// The fleet's freeze begins between an owner's release and the plan that reads it.
func TestALaterFreezeOfTheFleetHoldsWhatAnOwnerReleased(t *testing.T) {
	h := frozenHouse(t)
	h.apply(h.files.with("fleet/fleet.yaml", fleetFile("  freezes: [{name: night, schedule: "+
		"\"0 20 * * 5\", duration: 10h}]\n")))
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}").without(cartFile))
	if hold := h.held(); hold.Tenant != "acme" {
		t.Fatalf("%+v", hold)
	}
	approval := pass(h, revision(h.n))
	h.now = h.now.Add(90 * time.Minute)
	if p := h.again(approval); strings.Contains(actions(p), "update Application") ||
		strings.Contains(actions(p), "delete Application") || h.held().Tenant != "" {
		t.Errorf("held by %q\n%s", h.held().Tenant, actions(p))
	}
}

// held returns the only hold.
func (h *house) held() mirror.Hold {
	h.t.Helper()
	all := guard.Holds(h.w.state.Held.Base(), h.w.state.Frozen.Base(), nil)
	if len(all) != 1 {
		h.t.Fatalf("%d holds: %+v", len(all), all)
	}
	return slices.Collect(maps.Values(all))[0]
}

// The deletion guards judge a deletion that passes a freeze, as at its end; the platform's release
// passes them too.
func TestAnOwnerPassesNoDeletionGuard(t *testing.T) {
	h := frozenHouse(t)
	h.apply(h.files.with("fleet/fleet.yaml", fleetFile("  guards: {maxDeletes: 1, "+
		"maxDeletePercent: 1, alwaysAllowed: 1}\n")))
	h.apply(h.files.with("fleet/tenants/acme.yaml", tenantFile("acme", fmt.Sprintf(weekend, ""))))
	h.apply(h.files.without(checkoutFile).without(cartFile))
	if hold := h.held(); hold.Reason != mirror.HoldFrozen || len(hold.Items) < 3 {
		t.Fatalf("%+v", hold)
	}
	p := h.again(pass(h, revision(h.n)))
	if hold := h.held(); hold.Reason != mirror.HoldDeletions ||
		strings.Contains(actions(p), "delete Application") {
		t.Errorf("%+v\n%s", hold, actions(p))
	}
	h.now = h.now.Add(time.Minute)
	if p := h.again(pass(h, revision(h.n))); len(p.Rows) > 0 {
		t.Errorf("an owner releases what a guard holds: %s", actions(p))
	}
	if got := actions(h.again(approve(h, revision(h.n)))); strings.Count(got,
		"delete Application") < 3 {
		t.Errorf("%s", got)
	}
}

func TestARevertedChangeIsNotHeld(t *testing.T) {
	h := frozenHouse(t)
	before := h.files
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	p := h.apply(before)
	if got := actions(p); got != "update Application checkout@staging" {
		t.Error(got)
	}
	if len(p.Ended) != 1 || h.w.Freezes() {
		t.Errorf("ended %v", p.Ended)
	}
}

// Defaults, and variables and labels of environments, change Applications too.
func TestAFreezeHoldsWhatOtherDeclarationsChange(t *testing.T) {
	h := frozenHouse(t)
	p := h.apply(h.files.with("tenants/acme/defaults.yaml", defaultsFile(
		"  sync: {mode: manual}\n")))
	got := actions(p)
	for _, subject := range []string{"cart@prod", "checkout@prod"} {
		if !strings.Contains(got, "freeze Application "+subject) {
			t.Errorf("%s changes:\n%s", subject, got)
		}
	}
	if !strings.Contains(got, "update Application checkout@staging") {
		t.Error(got)
	}
}

// A commit ends no freeze for its own changes. The next plan sees that the freeze is gone.
func TestACommitThatRemovesAFreezeDoesNotPassIt(t *testing.T) {
	h := frozenHouse(t)
	p := h.apply(h.files.with("fleet/tenants/acme.yaml", tenantFile("acme", "")).
		edit(checkoutFile, "v1}", "v2}"))
	if !strings.Contains(actions(p), "freeze Application checkout@prod") {
		t.Error(actions(p))
	}
	if !h.w.Thaws(h.now) {
		t.Error("it does not thaw")
	}
	if got := actions(h.again()); got != "update Application checkout@prod" {
		t.Error(got)
	}
}

func TestAMoveWaitsForAFrozenChange(t *testing.T) {
	h := frozenHouse(t)
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	id := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	pl, _ := h.w.state.PlacementOf(fleet.ApplicationID{Tenant: "acme", Deployment: "checkout",
		Environment: "prod"})
	to := map[fleet.EngineName]fleet.EngineName{"eu-1": "eu-2", "eu-2": "eu-1"}[pl.Engine]
	move := func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{id.Whole(): {Environment: id, To: to}}
	}
	p := h.again(move)
	if why := p.Refused[id.Whole()]; !strings.Contains(why, "freeze weekend of tenant acme") {
		t.Errorf("%q", why)
	}
	h.monday()
	h.again()
	if p := h.again(move); len(p.Begun) != 1 {
		t.Errorf("%v", p.Refused)
	}
}

func TestAFreezeHoldsNoMove(t *testing.T) {
	h := frozenHouse(t)
	id := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	pl, _ := h.w.state.PlacementOf(fleet.ApplicationID{Tenant: "acme", Deployment: "checkout",
		Environment: "prod"})
	to := map[fleet.EngineName]fleet.EngineName{"eu-1": "eu-2", "eu-2": "eu-1"}[pl.Engine]
	p := h.again(func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{id.Whole(): {Environment: id, To: to}}
	})
	if len(p.Begun) != 1 || p.Counts.Frozen > 0 {
		t.Errorf("%s, %v", actions(p), p.Refused)
	}
}

// An engine that is gone loses its environments during a freeze too, since nothing of them changes;
// one with a change that waits stays.
func TestAnEvacuationGoesOnInAFreeze(t *testing.T) {
	id := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	for _, waits := range []bool{false, true} {
		h := frozenHouse(t)
		if waits {
			h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
		}
		pl, _ := h.w.state.PlacementOf(fleet.ApplicationID{Tenant: "acme", Deployment: "checkout",
			Environment: "prod"})
		p := h.again(func(r *Request) {
			r.Evacuated = []fleet.EngineName{pl.Engine}
			r.Moves = map[fleet.SliceID]mirror.MoveRequest{id.Whole(): {Environment: id,
				Evacuates: true}}
		})
		why := p.Refused[id.Whole()]
		created := strings.Count(actions(p), "create Application")
		if waits != strings.Contains(why, "freeze weekend") || waits == (created == 2) ||
			p.Counts.Frozen > 0 {
			t.Errorf("with a change that waits: %v: %q\n%s", waits, why, actions(p))
		}
	}
}

// The changes that a freeze held are lost with the mirror: the Applications that their engines do
// not show as declared wait for its end, and nothing else does.
func TestALostMirrorHoldsWhatAFreezeMayHaveHeld(t *testing.T) {
	for name, hidden := range map[string][]fleet.EngineName{
		"engines show their Applications": nil, "agents show none": {"eu-1", "eu-2"}} {
		t.Run(name, func(t *testing.T) {
			h := frozenHouse(t)
			h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
			files, before := h.files, h.hashOf("checkout@prod")
			shown := h.lose(hidden...)
			p := h.apply(files, shown)
			if p.RevisionHold != nil || h.hashOf("checkout@prod") != "" {
				t.Fatalf("%+v\n%s", p.RevisionHold, actions(p))
			}
			if h.hashOf("checkout@staging") == "" {
				t.Errorf("staging, which no freeze holds, waits: %s", actions(p))
			}
			if (h.hashOf("cart@prod") == "") != (hidden != nil) {
				t.Errorf("cart@prod, which is as declared: %s", actions(p))
			}
			if !h.w.Freezes() {
				t.Error("nothing plans it again")
			}
			projects := h.projects()
			h.restart()
			if p := h.again(); len(p.Rows) > 0 {
				t.Errorf("planned again, it changes %s", actions(p))
			}
			h.monday()
			if !h.w.Thaws(h.now) {
				t.Error("the end of the freeze thaws nothing")
			}
			h.again(func(r *Request) { r.Thaws = true })
			if now := h.hashOf("checkout@prod"); now == "" || now == before {
				t.Errorf("after the freeze checkout@prod has %q", now)
			}
			fresh := newHouse(t)
			fresh.now = h.now
			fresh.apply(files)
			if got, want := h.desired(), fresh.desired(); !maps.Equal(got, want) {
				t.Errorf("not the rows of a fleet without a freeze:\n%v\n%v", got, want)
			}
			if got := h.projects(); !maps.Equal(got, projects) {
				t.Error("an AppProject has shrunk under an Application that waits")
			}
		})
	}
}

// An Application that a declaration creates waits too.
func TestALostMirrorHoldsACreationInAFreeze(t *testing.T) {
	h := frozenHouse(t)
	h.apply(h.files.with("tenants/acme/deployments/new.yaml", deploymentFile("new", "acme/new",
		"environments: [prod]", "")))
	files := h.files
	if h.hashOf("new@prod") != "" {
		t.Fatal("the freeze does not hold it")
	}
	h.apply(files, h.lose())
	if h.hashOf("new@prod") != "" {
		t.Error("it is created in the freeze")
	}
	h.monday()
	h.again(func(r *Request) { r.Thaws = true })
	if h.hashOf("new@prod") == "" {
		t.Error("it is not created after the freeze")
	}
}

// Argo CD syncs no branch by itself meanwhile: the AppProject names the environments.
func TestAFreezeKeepsArgoCDFromSyncing(t *testing.T) {
	h := frozenHouse(t)
	if got := h.windows(t); got != "0 18 * * 5 60h0m0s https://prod.example.com:6443" {
		t.Error(got)
	}
	h.apply(h.files.edit("tenants/acme/environments/staging.yaml", "tier: dev", "tier: prod"))
	if got := h.windows(t); !strings.Contains(got, "https://staging.example.com:6443") {
		t.Errorf("a label does not change the windows: %s", got)
	}
	h.apply(h.files.with("fleet/fleet.yaml", fleetFile(fmt.Sprintf(weekend,
		", kinds: [Changes, Deletions]"))).with("fleet/tenants/acme.yaml", tenantFile("acme", "")))
	if got := h.windows(t); got != "" {
		t.Errorf("a freeze without syncs has windows: %s", got)
	}
	h.apply(h.files.with("fleet/fleet.yaml", fleetFile(fmt.Sprintf(weekend, ", kinds: [Syncs]"))))
	if got := h.windows(t); !strings.Contains(got, "prod") || !strings.Contains(got, "staging") {
		t.Errorf("the fleet's freeze has no windows: %s", got)
	}
}

// windows are the freezes of all AppProjects.
func (h *house) windows(t *testing.T) string {
	t.Helper()
	var out []string
	for k, r := range h.rows {
		if k.Kind != fleet.ObjectProject || r.Unwanted {
			continue
		}
		var of struct{ Spec fleet.Project }
		unmarshal(t, r.Manifest.Body, &of)
		for _, w := range of.Spec.Freezes {
			for _, c := range w.Clusters {
				server, _, _ := strings.Cut(c.Server, "?")
				out = append(out, fmt.Sprintf("%s %s %s", w.Schedule, time.Duration(w.Duration),
					server))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
