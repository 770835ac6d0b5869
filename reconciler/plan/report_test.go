package plan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// reported returns the plan's report after a round trip through its JSON.
func reported(t *testing.T, p *Plan) report.Report {
	t.Helper()
	r, err := p.Report()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back report.Report
	unmarshal(t, b.Bytes(), &back)
	if d := cmp.Diff(r, back); d != "" {
		t.Errorf("the report is another one after a round trip:\n%s", d)
	}
	return back
}

// busy is a plan of two tenants: acme loses 25 Applications, which are held, and gets one; globex
// has a bad file and a changed one; and a default of the platform affects both.
func busy(t *testing.T) *Plan {
	t.Helper()
	h := newHouse(t)
	h.apply(crowd(30))
	return h.compute(h.files.drop("acme", 0, 25).
		with("tenants/acme/deployments/new.yaml",
			deploymentFile("new", "acme/new", "environments: [prod]", "")).
		with("tenants/globex/deployments/d-00.yaml", "kind: GitOpsDeployment\n").
		edit("fleet/tenants/globex.yaml", "deployments: 500", "deployments: 501").
		edit("fleet/fleet.yaml", "gitHosts:", "defaults: {sync: {prune: false}}\n  gitHosts:"))
}

func TestReportCountsByTenantAndEngine(t *testing.T) {
	p := busy(t)
	r := reported(t, p)
	var all report.Counts
	for _, tenant := range r.Tenants {
		c := tenant.Counts()
		all.Sum(c)
		if len(tenant.Engines) != 1 || tenant.Engines[0].Counts() != c {
			t.Errorf("%s: %+v", tenant.Name, c)
		}
		if want := map[fleet.TenantName]report.Counts{
			"acme": {Created: 1, Changed: 5, Held: 25}, "globex": {
				Changed: 30}}[tenant.Name]; c.Created != want.Created ||
			c.Changed != want.Changed || c.Held != want.Held || c.Deleted != 0 {
			t.Errorf("%s: %+v", tenant.Name, c)
		}
	}
	if all.Placed = p.Counts.Placed; all != p.Counts {
		t.Errorf("the tenants' counts come to %+v, the plan's are %+v", all, p.Counts)
	}
}

func TestATenantsReaderSeesOnlyTheTenant(t *testing.T) {
	p := busy(t)
	for tenant, other := range map[fleet.TenantName]string{"acme": "globex", "globex": "acme"} {
		t.Run(string(tenant), func(t *testing.T) {
			r := reported(t, p).For(tenant)
			body, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(body), other) || strings.Contains(string(body), "Fleet") {
				t.Errorf("it reads of %s or the platform: %s", other, body)
			}
			if len(r.Tenants) != 1 || r.Counts.Rows == 0 || r.Counts != r.Tenants[0].Counts() ||
				!strings.Contains(r.Summary, "Applications: ") {
				t.Errorf("%+v %s", r.Counts, r.Summary)
			}
			if wants := map[fleet.TenantName][3]int{
				"acme": {1, 0, 0}, "globex": {0, 3, 1}}[tenant]; [3]int{
				len(r.Holds), len(r.Problems), len(r.Platform)} != wants {
				t.Errorf("holds %v, problems %v, platform %v", r.Holds, r.Problems, r.Platform)
			}
		})
	}
	t.Run("initech, which it does not touch", func(t *testing.T) {
		if r := reported(t, p).For("initech"); r.Summary != "nothing changes" ||
			len(r.Tenants) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestATenantsReaderSeesThatTheWholeRevisionWaits(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	p := h.compute(h.files.drop("acme", 0, 30), func(r *Request) {
		r.Relation = mirror.RelationRewritten
	})
	r := reported(t, p).For("globex")
	if r.RevisionHold == nil || r.RevisionHold.Reason != mirror.HoldRewritten ||
		len(r.RevisionHold.Items) != 0 ||
		len(p.RevisionHold.Items) != 30 || !strings.Contains(r.Summary, "waits for an approval") {
		t.Errorf("%+v", r)
	}
}

func TestAPlacementThatHadAnotherEngineIsAMove(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	prod, staging := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, fleet.EnvironmentID{
		Tenant: "acme", Name: "staging"}
	was := h.w.state.Placements.Base()[prod.Whole()].Engine
	to := map[fleet.EngineName]fleet.EngineName{"eu-1": "eu-2", "eu-2": "eu-1"}[was]
	p := h.compute(h.files)
	p.Placements = []fleet.Placement{{Environment: prod, Engine: to, Applications: 2},
		h.w.state.Placements.Base()[staging.Whole()],
		{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "new"}, Engine: to}}
	p.outcome.moves, p.outcome.quotas = p.outcome.movesOf(p.Placements), []report.QuotaUse{
		{Tenant: "acme"}}
	r, err := p.Report()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]report.Move{{Environment: "prod", From: was, To: to, Applications: 2}},
		r.Tenants[0].Moves); d != "" {
		t.Error(d)
	}
}
