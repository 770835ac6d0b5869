package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

const edgePath = "tenants/acme/environments/edge.yaml"

func edgeFile(agent string) string {
	return withAgent(environmentFile("edge", "eu", "tier: plant", "app, other"), agent)
}

// plant is a fleet without any engine: acme has one environment with an agent, and a deployment
// from a private repository.
func plant() tree {
	return tree{
		"fleet/fleet.yaml":        fleetFile(""),
		"fleet/tenants/acme.yaml": tenantFile("acme", ""),
		edgePath:                  edgeFile("{}"),
		"tenants/acme/deployments/plc.yaml": deploymentFile("plc", "acme/plc",
			"environments: [edge]", ""),
		"tenants/acme/credentials/plc.yaml": credentialFile("plc", "acme/plc"),
	}
}

func TestAnEnvironmentWithAnAgentIsItsOwnEngine(t *testing.T) {
	h := newHouse(t)
	p := h.apply(plant())
	wantActions(t, p, "create AppProject acme", "create Application plc@edge",
		"create Repository plc")
	if len(p.Placements) != 1 {
		t.Fatalf("placements: %+v", p.Placements)
	}
	pl := p.Placements[0]
	if pl.Engine != "acme.edge" || pl.Reason != ownCluster["managed"] || pl.Misplaced != "" ||
		pl.Applications != 1 || pl.Alternatives == nil || len(pl.Alternatives) > 0 ||
		len(p.Problems) > 0 {
		t.Errorf("placement: %+v, problems: %v", pl, p.Problems)
	}
	for _, c := range p.Rows {
		if c.Row.Key.Engine != "acme.edge" {
			t.Errorf("%v is not on the own cluster", c.Row.Key)
		}
	}
	var app struct {
		Namespace string
		Spec      fleet.Application
	}
	unmarshal(
		t,
		bodyOf(
			p,
			applied.ApplicationKey("acme.edge", fleet.ApplicationID{
				Tenant: "acme", Deployment: "plc", Environment: "edge"})), &app)
	own := fleet.Destination{Server: "https://kubernetes.default.svc", Namespace: "app"}
	if app.Namespace != "argocd" || app.Spec.Destination != own {
		t.Errorf("application in namespace %s: %+v", app.Namespace, app.Spec)
	}
	var project struct{ Spec fleet.Project }
	unmarshal(
		t,
		bodyOf(
			p, fleet.ObjectKey{Engine: "acme.edge", Kind: fleet.ObjectProject,
				Name: fleet.ProjectName("acme")}), &project)
	want := []fleet.Destination{{Server: fleet.InClusterServer, Namespace: "app"},
		{Server: fleet.InClusterServer, Namespace: "other"}}
	if !slices.Equal(project.Spec.Destinations, want) {
		t.Errorf("destinations: %v", project.Spec.Destinations)
	}
	for _, e := range p.Effects() {
		if !e.Key.Engine.OfEnvironment() {
			t.Errorf("an effect has no engine: %+v", e)
		}
	}
}

func TestTheNamespaceOfTheClustersArgoCDIsTheDeclaredOne(t *testing.T) {
	h := newHouse(t)
	p := h.apply(plant().with(edgePath, edgeFile("{argocdNamespace: gitops}")))
	for _, c := range p.Rows {
		if !strings.Contains(string(c.Row.Manifest.Body), `"namespace":"gitops"`) {
			t.Errorf("%s", c.Row.Manifest.Body)
		}
	}
}

func TestAnOwnClusterIsNoEngineForOthersAndCountsForTheQuota(t *testing.T) {
	files := plant()
	files["tenants/acme/environments/prod.yaml"] = environmentFile("prod", "eu", "", "app")
	h := newHouse(t)
	p := h.apply(files)
	for _, pl := range p.Placements {
		if pl.Environment.Name == "prod" && (pl.Engine != "" || len(pl.Alternatives) > 0) {
			t.Errorf("%+v", pl)
		}
	}
	want := fleet.Quota{Environments: 2, Deployments: 1, Applications: 1}
	if u := p.outcome.quotas[0].After; u != want {
		t.Errorf("use: %+v", u)
	}
}

func TestAnAutonomousEnvironmentHasNoObjects(t *testing.T) {
	h := newHouse(t)
	files := plant().without("tenants/acme/deployments/").with(
		edgePath, edgeFile("{mode: autonomous}"))
	p := h.apply(files)
	wantActions(t, p)
	if len(p.Placements) != 1 || p.Placements[0].Engine != "acme.edge" ||
		p.Placements[0].Reason != ownCluster["autonomous"] {
		t.Errorf("%+v", p.Placements)
	}
	p = h.apply(files.with(edgePath, edgeFile("{mode: managed}")))
	wantActions(t, p, "create AppProject acme")
	if len(p.Placements) != 1 || p.Placements[0].Reason != ownCluster["managed"] {
		t.Errorf("managed: %+v", p.Placements)
	}
	p = h.apply(files)
	wantActions(t, p, "delete AppProject acme")
	if len(p.Placements) != 1 || p.Placements[0].Reason != ownCluster["autonomous"] {
		t.Errorf("autonomous again: %+v", p.Placements)
	}
}

func TestAnEnvironmentInUseKeepsItsConnection(t *testing.T) {
	cluster := environmentFile("edge", "eu", "tier: plant", "app, other")
	for name, c := range map[string]struct{ before, after, field, after2 string }{
		"to autonomous": {edgeFile("{}"), edgeFile("{mode: autonomous}"), "spec.agent.mode",
			"acme.edge"},
		"another Argo CD": {edgeFile("{}"), edgeFile("{argocdNamespace: gitops}"),
			"spec.agent.argocdNamespace", "acme.edge"},
		"from a reached one": {cluster, edgeFile("{mode: autonomous}"), "spec.agent", "acme.edge"},
	} {
		t.Run(name, func(t *testing.T) {
			files := plant().with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", ""))
			h := newHouse(t)
			h.apply(files.with(edgePath, c.before))
			p := h.apply(files.with(edgePath, c.after))
			wantActions(t, p)
			if got := quarantinesOf(p); !strings.Contains(c.after, "autonomous") &&
				got != "ManagedEnvironment acme/edge "+c.field+" environment-in-use" {
				t.Errorf("it is reported as %s", got)
			}
			// While the Application terminates, everything else stays.
			files = h.files.without("tenants/acme/deployments/")
			p = h.apply(files)
			wantActions(t, p, "delete Application plc@edge")
			if q, _ := h.w.state.Catalog.Quarantine(
				applied.EnvironmentKey(fleet.EnvironmentID{Tenant: "acme", Name: "edge"})); len(
				q.Problems) != 1 || q.Problems[0].Code != "environment-in-use" ||
				q.Problems[0].Field != c.field {
				t.Errorf("during its removal, it is reported as %v", q.Problems)
			}
			h.restart()
			h.work()
			if got := h.engineOf("acme", "edge"); got != fleet.EngineName(c.after2) {
				t.Errorf("placed on %s", got)
			}
			if _, held := h.w.state.Catalog.Quarantine(
				applied.EnvironmentKey(fleet.EnvironmentID{Tenant: "acme", Name: "edge"})); held {
				t.Error("still held")
			}
			for k, r := range h.rows {
				if r.Unwanted || k.Engine != fleet.EngineName(c.after2) ||
					strings.Contains(c.after, "autonomous") {
					t.Errorf("left over: %v %+v", k, r)
				}
			}
			checkState(t, h)
		})
	}
}

func quarantinesOf(p *Plan) string {
	var out []string
	for _, q := range p.Quarantined {
		for _, problem := range q.Problems {
			out = append(out, fmt.Sprint(q.Key, " ", problem.Field, " ", problem.Code))
			if problem.Fix == "" || problem.Message == "" {
				out = append(out, "without words")
			}
		}
	}
	return strings.Join(out, "; ")
}

func TestAnAgentsEnvironmentWaitsForNoEngineAfterARebuild(t *testing.T) {
	files := plant().with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", "")).
		with("tenants/acme/environments/prod.yaml", environmentFile("prod", "eu", "", "app"))
	h := newHouse(t)
	unread := func(r *Request) { r.Unread = []fleet.EngineName{"eu-1"} }
	h.apply(files, unread)
	if h.engineOf("acme", "edge") != "acme.edge" || h.engineOf("acme", "prod") != "" {
		t.Errorf("edge is on %q, prod on %q", h.engineOf("acme", "edge"),
			h.engineOf("acme", "prod"))
	}
	h = newHouse(t)
	h.apply(plant(), unread)
	if h.w.Blocked() {
		t.Error("it is blocked though no environment needs a placement")
	}
}

func TestNoSyncRunsTwiceBehindAnAgent(t *testing.T) {
	files := plant()
	files["tenants/acme/syncs/back.yaml"] = syncFile(
		"back", "deployment: plc, revision: v0, hold: true")
	h := newHouse(t)
	p := h.apply(files)
	if len(p.Syncs) != 0 || len(p.SyncHolds) != 1 || p.SyncHolds[0].SyncRun != "back" {
		t.Errorf("a new mirror runs %v and holds %v", p.Syncs, p.SyncHolds)
	}
	if !slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool {
		return p.Code == "sync-not-run" && strings.Contains(p.Message, "edge")
	}) {
		t.Errorf("no problem is reported: %v", p.Problems)
	}
	p = h.apply(
		h.files.with("tenants/acme/syncs/again.yaml",
			syncFile("again", "deployment: plc, revision: v2")))
	if len(p.Syncs) != 1 || p.Syncs[0].Key.Engine != "acme.edge" || p.Syncs[0].Revision != "v2" {
		t.Errorf("a SyncRun that is new: %+v", p.Syncs)
	}
	p = h.apply(h.files.without("tenants/acme/syncs/back.yaml"))
	wantActions(t, p, "update Application plc@edge")
}

func TestARestartKeepsOwnClusters(t *testing.T) {
	h := newHouse(t)
	h.apply(plant())
	h.restart()
	p := h.apply(
		h.files.edit("tenants/acme/deployments/plc.yaml", "targetRevision: v1",
			"targetRevision: v2"))
	wantActions(t, p, "update Application plc@edge")
	p = h.apply(h.files.without("tenants/acme/deployments/", edgePath))
	wantActions(t, p, "delete Application plc@edge")
	h.restart()
	h.work()
	if len(h.rows) > 0 || len(h.w.state.Placements.Base()) > 0 {
		t.Errorf("left: %v %v", h.rows, h.w.state.Placements.Base())
	}
}

func TestAnEngineBehindAnAgentIsAnEngineLikeAnyOther(t *testing.T) {
	h := newHouse(t)
	h.apply(tree{
		"fleet/fleet.yaml": fleetFile(""),
		"fleet/engines/far.yaml": strings.Replace(engineFile("far", "eu", ""),
			"kubeconfigRef: {name: far}", "agent: {}", 1),
		"fleet/tenants/acme.yaml":             tenantFile("acme", ""),
		"tenants/acme/environments/prod.yaml": environmentFile("prod", "eu", "", "app"),
		"tenants/acme/deployments/checkout.yaml": deploymentFile("checkout", "acme/checkout",
			"environments: [prod]", ""),
	})
	if h.engineOf("acme", "prod") != "far" {
		t.Fatalf("placed on %q", h.engineOf("acme", "prod"))
	}
	if _, ok := h.rows[fleet.ObjectKey{
		Engine: "far", Kind: fleet.ObjectCluster,
		Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: "acme", Name: "prod"})}]; !ok {
		t.Error("it has no Cluster of the environment")
	}
}

func TestOfflineRendersOneOwnCluster(t *testing.T) {
	files := inputs(
		tree{}, small().with(edgePath, edgeFile("{}")).with("tenants/acme/deployments/plc.yaml",
			deploymentFile("plc", "acme/plc", "environments: [edge]", "")))
	p, err := Offline(files, "acme.edge", nil, &jsonRenderer{})
	if err != nil {
		t.Fatal(err)
	}
	wantActions(t, p, "create AppProject acme", "create Application plc@edge")
	if _, err := Offline(files, "acme.nowhere", nil, &jsonRenderer{}); err == nil ||
		!strings.Contains(err.Error(), "TENANT.ENVIRONMENT") {
		t.Errorf("%v", err)
	}
}

// After a rebuild Argosy does not read the objects behind an agent: an environment that may exist
// there is not placed, and others do not wait for it.
func TestAnEnvironmentThatMayExistBehindAnAgentWaitsForItsReport(t *testing.T) {
	files := tree{
		"fleet/fleet.yaml":        fleetFile(""),
		"fleet/engines/eu-1.yaml": engineFile("eu-1", "eu", ""),
		"fleet/engines/us-1.yaml": engineFile("us-1", "us", ""),
		"fleet/engines/far.yaml": strings.Replace(
			engineFile("far", "eu", "  state: Draining\n"), "kubeconfigRef: {name: far}",
			"agent: {}", 1),
		"fleet/tenants/acme.yaml":              tenantFile("acme", ""),
		"tenants/acme/environments/prod.yaml":  environmentFile("prod", "eu", "", "app"),
		"tenants/acme/environments/us.yaml":    environmentFile("us", "us", "", "app"),
		"tenants/acme/environments/found.yaml": environmentFile("found", "eu", "", "app"),
		edgePath:                               edgeFile("{}"),
	}
	h := newHouse(t)
	w, err := RestoreAppliedState(
		mirror.Snapshot{
			Placements: []fleet.Placement{
				{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "found"}, Engine: "eu-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	h.w = w
	silent := func(r *Request) { r.SilentAgents = []fleet.EngineName{"far"} }
	h.apply(files, silent)
	for env, want := range map[fleet.EnvironmentName]fleet.EngineName{
		"prod": "", "us": "us-1", "found": "eu-1", "edge": "acme.edge"} {
		if got := h.engineOf("acme", env); got != want {
			t.Errorf("%s is on %q, not %q", env, got, want)
		}
	}
	if !h.w.Blocked() ||
		!strings.Contains(
			h.w.state.Placements.Base()[fleet.SliceID{Tenant: "acme", Environment: "prod"}].Reason,
			"engine far, whose agent has not reported") {
		t.Errorf("blocked %v: %+v", h.w.Blocked(), h.w.state.Placements.Base())
	}
	if p := h.apply(h.files, silent); !p.Empty() || !h.w.Blocked() {
		t.Errorf("asked again: %s, blocked %v", actions(p), h.w.Blocked())
	}
	h.restart()
	if p := h.again(); p.Counts.Placed != 1 || h.engineOf("acme", "prod") != "eu-1" ||
		h.w.Blocked() {
		t.Errorf("reported: %+v, on %q", p.Counts, h.engineOf("acme", "prod"))
	}
}

// farFile is an Engine behind an agent, cordoned: it takes only environments that exist there.
func farFile(name, region string) string {
	return strings.Replace(engineFile(name, region, "  state: Cordoned\n"),
		"kubeconfigRef: {name: "+name+"}", "agent: {}", 1)
}

func TestAfterARebuildAnEnvironmentIsPlacedWhereAnAgentReportsIt(t *testing.T) {
	prod := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	far, other := fleet.EngineName("far"), fleet.EngineName("far-2")
	for name, c := range map[string]struct {
		reported []fleet.EngineName
		silent   []fleet.EngineName
		region   string // of prod
		at       fleet.EngineName
		reason   string
	}{
		"one agent reports it": {
			reported: []fleet.EngineName{far}, at: far, reason: "its objects exist on far"},
		"one agent reports it, and is still silent about others": {
			reported: []fleet.EngineName{far}, silent: []fleet.EngineName{far}, at: far},
		"another agent is silent": {
			reported: []fleet.EngineName{far}, silent: []fleet.EngineName{other},
			reason: "engine far-2, whose agent has not reported"},
		"two agents report it": {
			reported: []fleet.EngineName{other, far}, reason: "engines far and far-2 both report"},
		"the agent of an ineligible engine reports it": {
			reported: []fleet.EngineName{far}, region: "us", at: "us-1"},
		"the agent of an undeclared engine reports it": {
			reported: []fleet.EngineName{"gone"}, at: "eu-1"},
		"no agent reports it": {at: "eu-1"},
		"a second agent of an ineligible engine reports it": {
			reported: []fleet.EngineName{far, "us-far"}, at: far},
	} {
		t.Run(name, func(t *testing.T) {
			region := c.region
			if region == "" {
				region = "eu"
			}
			h := newHouse(t)
			h.apply(map[string]string{
				"fleet/fleet.yaml":                    fleetFile(""),
				"fleet/engines/eu-1.yaml":             engineFile("eu-1", "eu", ""),
				"fleet/engines/us-1.yaml":             engineFile("us-1", "us", ""),
				"fleet/engines/far.yaml":              farFile("far", "eu"),
				"fleet/engines/far-2.yaml":            farFile("far-2", "eu"),
				"fleet/engines/us-far.yaml":           farFile("us-far", "us"),
				"fleet/tenants/acme.yaml":             tenantFile("acme", ""),
				"tenants/acme/environments/prod.yaml": environmentFile("prod", region, "", "app"),
			}, func(r *Request) {
				r.SilentAgents, r.Reported = c.silent, map[fleet.EnvironmentID][]fleet.EngineName{
					prod: c.reported}
			})
			p := h.w.state.Placements.Base()[prod.Whole()]
			if p.Engine != c.at || !strings.Contains(p.Reason, c.reason) ||
				h.w.Blocked() != (c.at == "") {
				t.Errorf("blocked %t: %+v", h.w.Blocked(), p)
			}
		})
	}
}

// After a rebuild the syncs behind an agent are unknown: nothing runs a second time, and a possible
// hold is kept.
func TestASyncRunIsNotRunAgainWhereAnAgentReportsItsEnvironment(t *testing.T) {
	files := tree{
		"fleet/fleet.yaml":                    fleetFile(""),
		"fleet/engines/eu-1.yaml":             engineFile("eu-1", "eu", ""),
		"fleet/engines/far.yaml":              farFile("far", "eu"),
		"fleet/tenants/acme.yaml":             tenantFile("acme", ""),
		"tenants/acme/environments/prod.yaml": environmentFile("prod", "eu", "", "app"),
		"tenants/acme/deployments/checkout.yaml": deploymentFile("checkout", "acme/checkout",
			"environments: [prod]", ""),
		"tenants/acme/syncs/rollback.yaml": syncFile(
			"rollback", "deployment: checkout, revision: v0, hold: true"),
	}
	for name, c := range map[string]struct {
		reported map[fleet.EnvironmentID][]fleet.EngineName
		at       fleet.EngineName
		syncs    int
	}{
		"it is reported": {
			map[fleet.EnvironmentID][]fleet.EngineName{{Tenant: "acme", Name: "prod"}: {"far"}},
			"far", 0},
		"it is not reported": {nil, "eu-1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			p := h.apply(files, func(r *Request) { r.Reported = c.reported })
			if h.engineOf("acme", "prod") != c.at || len(p.Syncs) != c.syncs ||
				len(p.SyncHolds) != 1 {
				t.Errorf("on %q: %v, holds %v", h.engineOf("acme", "prod"), p.Syncs, p.SyncHolds)
			}
		})
	}
}

// ownCluster has the reasons of an agent's placement, by mode.
var ownCluster = map[string]string{
	"managed": "its own cluster: the agent on it applies",
	"autonomous": "its own cluster: its own Applications are the truth, and the agent on it " +
		"shows them",
}
