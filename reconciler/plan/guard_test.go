package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// crowd is acme with n deployments in prod, and globex with as many.
func crowd(n int) tree {
	files := small().without("tenants/acme/deployments", "tenants/acme/credentials")
	files["fleet/tenants/globex.yaml"] = tenantFile("globex", "")
	files["tenants/globex/environments/prod.yaml"] = strings.Replace(
		environmentFile("prod", "eu", "", "app"), "prod.example", "prod.globex.example", 1)
	for _, t := range []string{"acme", "globex"} {
		for i := range n {
			name := fmt.Sprintf("d-%02d", i)
			files["tenants/"+t+"/deployments/"+name+".yaml"] = deploymentFile(
				name, t+"/"+name, "environments: [prod]", "")
		}
	}
	return files
}

// drop removes the deployments from..to-1 of a tenant.
func (t tree) drop(tenant string, from, to int) tree {
	for i := from; i < to; i++ {
		t = t.without(fmt.Sprintf("tenants/%s/deployments/d-%02d.yaml", tenant, i))
	}
	return t
}

func approve(h *house, rev fleet.Revision) func(*Request) {
	return func(r *Request) {
		r.Approvals = append(
			r.Approvals, mirror.Approval{Revision: rev, By: "token:op", At: h.now.Add(time.Second)})
	}
}

func TestMassDeletionIsHeldAndReleasedByItsApproval(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	first := h.apply(
		h.files.drop("acme", 0, 25).with("tenants/globex/deployments/new.yaml",
			deploymentFile("new", "globex/new", "environments: [prod]", "")))
	held := revision(h.n)
	if first.Counts.Held != 25 || first.Counts.Deleted != 0 || first.Counts.Created != 1 ||
		len(first.Holds) != 1 || len(first.Holds[0].Items) != 25 ||
		first.Holds[0].Revision != held || first.Holds[0].Tenant != "acme" {
		t.Fatalf("counts %+v, holds %+v", first.Counts, first.Holds)
	}
	h.restart()

	t.Run("an unrelated commit leaves the hold as it is", func(t *testing.T) {
		p := h.apply(h.files.without("tenants/globex/deployments/new.yaml"))
		if p.Counts.Deleted != 1 || p.Counts.Held != 0 || len(p.Holds)+len(p.Ended) != 0 {
			t.Errorf("%+v, %v, %v", p.Counts, p.Holds, p.Ended)
		}
	})
	t.Run("what a later commit adds has its own revision", func(t *testing.T) {
		p := h.apply(h.files.drop("acme", 25, 30))
		if p.Counts.Deleted != 5 { // always allowed
			t.Fatalf("%+v", p.Counts)
		}
		p = h.apply(h.files.drop("globex", 0, 25))
		if p.Counts.Held != 25 || len(p.Holds) != 1 || p.Holds[0].Revision == held {
			t.Fatalf("%+v %v", p.Counts, p.Holds)
		}
	})
	t.Run("an approval that is older than the hold releases nothing", func(t *testing.T) {
		p := h.again(func(r *Request) {
			r.Approvals = []mirror.Approval{{Revision: held, At: h.now.Add(-time.Hour)}}
		})
		if p.Counts.Deleted != 0 {
			t.Errorf("%+v", p.Counts)
		}
	})
	t.Run("a restored file ends its hold", func(t *testing.T) {
		p := h.apply(
			h.files.with("tenants/acme/deployments/d-00.yaml",
				deploymentFile("d-00", "acme/d-00", "environments: [prod]", "")))
		if len(p.Freed) != 1 || len(p.Holds) != 1 || len(p.Holds[0].Items) != 24 ||
			len(p.Rows) != 0 {
			t.Errorf("freed %v, holds %v, rows %s", p.Freed, p.Holds, actions(p))
		}
	})
	t.Run("the approval releases exactly what that revision asked for", func(t *testing.T) {
		p := h.again(approve(h, held))
		if p.Counts.Deleted != 24 || len(p.Approved) != 24 || len(p.Ended) != 1 ||
			p.Ended[0].Revision != held {
			t.Errorf("%+v, approved %d, ended %v", p.Counts, len(p.Approved), p.Ended)
		}
		if r := p.Record(); len(r.Deletions) != 0 || len(r.Released) != 24 {
			t.Errorf("approved deletions count against the guards: %d", len(r.Deletions))
		}
		if slices.ContainsFunc(p.Rows, func(c diff.RowChange) bool {
			return c.Row.Tenant != "acme"
		}) {
			t.Error("another revision's items are released")
		}
	})
	t.Run("the same approval again releases nothing more", func(t *testing.T) {
		if p := h.again(approve(h, held)); !p.Empty() {
			t.Errorf("%s", actions(p))
		}
	})
	h.work()
	checkState(t, h)
}

func TestAHeldApplicationIsStillUpdated(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	h.apply(h.files.drop("acme", 0, 25))
	p := h.apply(
		h.files.edit("fleet/fleet.yaml", "gitHosts:",
			"defaults: {sync: {prune: false}}\n  gitHosts:"))
	if p.Counts.Changed != 60 {
		t.Errorf("a new default reaches %d of 60 Applications", p.Counts.Changed)
	}
	h.restart()
	checkState(t, h)
}

func TestACommitCannotLoosenTheGuardThatJudgesIt(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	p := h.apply(
		h.files.drop("acme", 0, 30).edit("fleet/fleet.yaml", "gitHosts:",
			"guards: {maxDeletes: 1000, maxDeletePercent: 100}\n  gitHosts:"))
	if p.Counts.Deleted != 0 || p.Counts.Held != 30 {
		t.Errorf("%+v", p.Counts)
	}
}

func TestDeletionsAddUpOverTheWindow(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(100))
	deleted := 0
	for from := 0; from < 40; from += 5 {
		deleted += h.apply(h.files.drop("acme", from, from+5)).Counts.Deleted
		h.work()
	}
	if deleted != 20 {
		t.Errorf("a trickle deletes %d within the window", deleted)
	}
	h.now = h.now.Add(61 * time.Minute)
	if p := h.apply(h.files.drop("acme", 40, 45)); p.Counts.Deleted != 5 {
		t.Errorf("after the window: %+v", p.Counts)
	}
}

func TestRecentlyCreatedApplicationsDoNotLoosenThePercentage(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(50))
	created := func(r *Request) { r.Created = map[fleet.TenantName]int{"acme": 25} }
	// 6 of 25 is beyond 20 %, 6 of 50 is not
	if p := h.apply(h.files.drop("acme", 0, 6), created); p.Counts.Held != 6 {
		t.Errorf("%+v", p.Counts)
	}
}

func TestAnEnvironmentIsRemovedAfterItsHeldDeployment(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	h.apply(h.files.without("tenants/acme/deployments/checkout.yaml"), with(&reviews.Deletions{}))
	held := revision(h.n)
	p := h.apply(h.files.without("tenants/acme/environments/staging.yaml"),
		with(&reviews.Deletions{}))
	if p.Counts.Deleted != 0 ||
		h.w.state.Catalog.Environment(fleet.EnvironmentID{Tenant: "acme", Name: "staging"}) == nil {
		t.Fatalf("%+v\n%s", p.Counts, actions(p))
	}
	checkState(t, h)
	h.again(approve(h, held))
	h.restart()
	h.work()
	if h.w.state.Catalog.Environment(fleet.EnvironmentID{Tenant: "acme", Name: "staging"}) != nil {
		t.Error("it stays when its Application is gone")
	}
	checkState(t, h)
}

func TestTheWholeTenantCountsEachApplication(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(8))
	p := h.apply(h.files.without("fleet/tenants/acme.yaml", "tenants/acme/"))
	if p.Counts.Held != 8 || p.Counts.Deleted != 0 {
		t.Fatalf("%+v", p.Counts)
	}
	if w := h.w.state.Catalog; w.Tenant("acme") == nil ||
		w.Environment(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}) == nil {
		t.Error("the tenant or its environment goes while its Applications are held")
	}
	if p.Problems != nil {
		t.Errorf("problems: %v", p.Problems)
	}
	checkNeeds(t, h)
	h.restart()
	h.again(approve(h, revision(h.n)))
	h.restart()
	checkNeeds(t, h)
	h.work()
	for k, r := range h.rows {
		if r.Tenant == "acme" {
			t.Errorf("%v is left of a tenant that is gone", k)
		}
	}
	if h.w.state.Catalog.Tenant("acme") != nil || len(h.w.state.Deferred) > 0 {
		t.Error("the tenant's declaration is left")
	}
}

func TestAnEnvironmentThatASelectorSelectsCountsEachApplication(t *testing.T) {
	h := newHouse(t)
	files := crowd(0)
	for i := range 10 {
		name := fmt.Sprintf("s-%d", i)
		files["tenants/acme/deployments/"+name+".yaml"] = deploymentFile(name, "acme/"+name,
			"environmentSelector: {matchLabels: {tier: prod}}", "")
	}
	h.apply(files)
	for name, after := range map[string]tree{
		"removed": files.without("tenants/acme/environments/prod.yaml"),
		"labels changed": files.edit("tenants/acme/environments/prod.yaml", "tier: prod",
			"tier: none"),
	} {
		t.Run(name, func(t *testing.T) {
			if p := h.compute(after); p.Counts.Held != 10 || p.Counts.Deleted != 0 {
				t.Errorf("%+v", p.Counts)
			}
		})
	}
}

func TestARecreatedApplicationInOneCommitIsNoDeletion(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	files := h.files
	// the same files in another spelling: every blob changes, and each also comes as a removal
	for i := range 30 {
		path := fmt.Sprintf("tenants/acme/deployments/d-%02d.yaml", i)
		files = files.with(path, files[path]+"\n# moved\n")
	}
	p := h.compute(files, func(r *Request) {
		for _, i := range slices.Clone(r.Files) {
			i.Removed, i.Declaration = true, nil
			r.Files = append(r.Files, i)
		}
	})
	if len(p.Rows) != 0 {
		t.Errorf("%s", actions(p))
	}
}

func TestAnEmptyHeadWaitsWhateverThePercentages(t *testing.T) {
	for name, prefixes := range map[string][]string{
		"everything": {"fleet/", "tenants/"}, "tenants renamed": {"tenants/"}, "fleet renamed": {
			"fleet/"}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			files := small().edit("fleet/fleet.yaml", "gitHosts:",
				"guards: {maxDeletes: 1000, maxDeletePercent: 100, alwaysAllowed: 1000}\n  "+
					"gitHosts:")
			h.apply(files)
			before := len(h.rows)
			p := h.apply(files.without(prefixes...))
			if p.RevisionHold == nil || p.RevisionHold.Reason != mirror.HoldEmpty ||
				len(p.Rows) != 0 ||
				len(p.Declarations) != 0 || !p.Record().RevisionHeld {
				t.Fatalf("waiting %v, rows %s", p.RevisionHold, actions(p))
			}
			if h.w.Revision() != revision(1) || len(h.rows) != before {
				t.Error("the revision is applied")
			}
			h.restart()
			p = h.apply(files)
			if p.RevisionHold != nil || len(p.Rows) != 0 || len(p.Ended) != 1 {
				t.Errorf("a good head does not end it: %v, %s, %v", p.RevisionHold, actions(p),
					p.Ended)
			}
		})
	}
}

func TestOlderAndRewrittenHistoryWaits(t *testing.T) {
	for relation, reason := range map[mirror.Relation]mirror.HoldReason{
		mirror.RelationOlder: mirror.HoldOlder, mirror.RelationRewritten: mirror.HoldRewritten,
		mirror.RelationUnknown: mirror.HoldRewritten, "something new": mirror.HoldRewritten} {
		t.Run(string(relation), func(t *testing.T) {
			h := newHouse(t)
			h.apply(crowd(30))
			head := h.files.drop("acme", 0, 30)
			as := func(r *Request) { r.Revision, r.Relation = revision(77), relation }
			p := h.apply(head, as)
			if p.RevisionHold == nil || p.RevisionHold.Reason != reason ||
				len(p.RevisionHold.Items) != 30 ||
				len(p.Rows) != 0 {
				t.Fatalf("%+v", p.RevisionHold)
			}
			h.restart()
			if p := h.apply(head, as); p.RevisionHold == nil || len(p.Holds) != 0 {
				t.Errorf("the same head again is reported as new: %v", p.Holds)
			}
			if p := h.again(); len(p.Ended) != 0 || h.w.state.RevisionHold == nil {
				t.Error("planning the applied revision again ends the hold of the head")
			}
			p = h.apply(head, as, approve(h, revision(77)))
			if p.RevisionHold != nil || p.Counts.Deleted != 30 || len(p.Approved) != 30 ||
				len(p.Ended) != 1 {
				t.Errorf("approved: %v, %+v, ended %v", p.RevisionHold, p.Counts, p.Ended)
			}
		})
	}
}

func TestTwoPlansOfOneBase(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	a := h.compute(h.files.without("tenants/acme/deployments/cart.yaml"))
	b := h.compute(
		h.files.edit("tenants/acme/deployments/cart.yaml", "targetRevision: v1",
			"targetRevision: v2"))
	h.commit(a)
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "compute it again") {
			t.Errorf("an outdated plan is committed: %v", s)
		}
	}()
	h.w.Commit(b)
}
