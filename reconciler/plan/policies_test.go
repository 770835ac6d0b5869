package plan

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/policy"
)

const noHead = `apiVersion: argosy.dev/v1alpha1
kind: Policy
metadata: {name: no-head-in-prod}
spec:
  kinds: [GitOpsDeployment]
  rule: '!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")'
  message: deployments to prod name their revision
  field: spec.source.targetRevision
`

func atHead(f tree, path string) tree {
	return f.edit(path, "targetRevision: v1", "targetRevision: HEAD")
}

// A deployment that breaks a policy keeps its Applications unchanged; the rest of the commit
// proceeds.
func TestAPolicyKeepsADeploymentAtItsLastGoodState(t *testing.T) {
	const cart, checkout = "tenants/acme/deployments/cart.yaml",
		"tenants/acme/deployments/checkout.yaml"
	h := newHouse(t)
	h.w.Judging(policy.New().Judge)
	h.apply(small().with("fleet/policies/no-head-in-prod.yaml", noHead))
	good := h.files
	p := h.apply(atHead(good, cart).edit(checkout, "targetRevision: v1", "targetRevision: v2"))
	if got := actions(p); strings.Contains(got, "cart") || !strings.Contains(got, "checkout") ||
		len(p.Quarantined) != 1 {
		t.Fatalf("quarantined %v\n%s", p.Quarantined, got)
	}
	if pr := p.Problems[0]; pr.Code != "policy" || pr.Field != "spec.source.targetRevision" ||
		!strings.HasPrefix(pr.Message, "no-head-in-prod: ") {
		t.Errorf("reported %+v", pr)
	}
	h.restart()
	h.w.Judging(policy.New().Judge)
	if p := h.again(); !p.Empty() {
		t.Errorf("a restart changes %s, checked %v", actions(p), p.Checked)
	}
	p = h.apply(h.files.without("fleet/policies/no-head-in-prod.yaml"))
	if got := actions(p); !strings.Contains(got, "update Application cart@prod") ||
		len(p.Cleared) != 1 {
		t.Errorf("without the policy, cleared %v\n%s", p.Cleared, got)
	}
}

// If one commit adds a policy and a declaration that breaks it, both take effect: the policy judges
// from the next commit on.
func TestACommitIsPlannedByThePoliciesOfItsBase(t *testing.T) {
	const cart = "tenants/acme/deployments/cart.yaml"
	h := newHouse(t)
	h.w.Judging(policy.New().Judge)
	h.apply(small())
	p := h.apply(atHead(h.files, cart).with("fleet/policies/no-head-in-prod.yaml", noHead))
	if got := actions(p); !strings.Contains(got, "cart@prod") || len(p.Problems) > 0 {
		t.Fatalf("problems %v\n%s", p.Problems, got)
	}
	p = h.apply(atHead(h.files, "tenants/acme/deployments/checkout.yaml"))
	if len(p.Quarantined) != 1 || len(p.Rows) > 0 {
		t.Errorf("quarantined %v\n%s", p.Quarantined, actions(p))
	}
}

// After the loss of the mirror, objects that a later policy forbids keep existing: a rebuild
// removes nothing.
func TestARebuildRemovesNothingBecauseOfAPolicy(t *testing.T) {
	files := atHead(small(), "tenants/acme/deployments/cart.yaml").with(
		"fleet/policies/no-head-in-prod.yaml", noHead)
	found := mirror.Snapshot{
		Placements: []fleet.Placement{
			{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, Engine: "eu-1"}}}
	for name, c := range map[string]struct {
		snapshot mirror.Snapshot
		unread   []fleet.EngineName
		held     int
	}{
		"nothing exists":         {mirror.Snapshot{}, nil, 1},
		"objects were found":     {found, nil, 0},
		"an engine was not read": {mirror.Snapshot{}, []fleet.EngineName{"eu-2"}, 0},
	} {
		w, err := RestoreAppliedState(c.snapshot)
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.Judging(policy.New().Judge).Compute(
			Request{Revision: revision(1), Files: inputs(tree{}, files), Unread: c.unread},
			&jsonRenderer{})
		if err != nil {
			t.Fatal(err)
		}
		reported := slices.DeleteFunc(slices.Clone(p.Problems), func(pr fleet.Problem) bool {
			return pr.Code != "policy"
		})
		if len(p.Quarantined) != c.held || len(reported) != 1 ||
			(reported[0].Severity == fleet.SeverityError) != (c.held == 1) {
			t.Errorf("%s: quarantined %v, problems %v", name, p.Quarantined, p.Problems)
		}
	}
}
