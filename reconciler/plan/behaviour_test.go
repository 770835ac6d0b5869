package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
)

func TestExpansionResolvesOverridesAndDefaults(t *testing.T) {
	h := newHouse(t)
	files := small().edit("fleet/fleet.yaml", "gitHosts:",
		"defaults: {sync: {selfHeal: false}}\n  gitHosts:")
	h.apply(
		files.with("tenants/acme/deployments/checkout.yaml",
			deploymentFile("checkout", "acme/checkout", "environments: [prod, staging]",
				"  sync: {mode: manual, createNamespace: true}\n  deletionPolicy: Orphan\n  "+
					"overrides: "+
					"[{environment: staging, source: {targetRevision: main, kustomize: "+
					"{namePrefix: "+
					"s-}}}]\n")))
	apps := h.applications()
	staging, prod, cart := apps["checkout@staging"], apps["checkout@prod"], apps["cart@prod"]
	if staging.Sources[0].TargetRevision != "main" || staging.Sources[0].Kustomize == nil ||
		staging.Sources[0].Path != "deploy" || prod.Sources[0].TargetRevision != "v1" ||
		prod.Sources[0].Kustomize != nil {
		t.Errorf("override: %+v and %+v", staging.Sources, prod.Sources)
	}
	if prod.Sync != (fleet.Sync{Prune: true, CreateNamespace: true}) ||
		cart.Sync != (fleet.Sync{Automated: true, Prune: true}) {
		t.Errorf("sync: %+v and %+v", prod.Sync, cart.Sync)
	}
	if prod.Destination.Server != fleet.ServerKey("https://prod.example.com:6443",
		fleet.EnvironmentID{Tenant: "acme", Name: "prod"}) {
		t.Errorf("server key: %s", prod.Destination.Server)
	}
	for k, r := range h.rows {
		orphan := r.Deletion == fleet.DeletionOrphan
		if k.Kind == fleet.ObjectApplication && orphan != (r.Deployment == "checkout") {
			t.Errorf("%s: deletion policy %s", k.Name, r.Deletion)
		}
	}
	t.Run("a deletion policy alone changes its rows", func(t *testing.T) {
		p := h.apply(h.files.edit("tenants/acme/deployments/checkout.yaml", "Orphan", "Delete"))
		wantActions(t, p, "update Application checkout@prod", "update Application checkout@staging")
	})
}

// applications returns the rendered Applications by deployment@environment.
func (h *house) applications() map[string]fleet.Application {
	out := map[string]fleet.Application{}
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectApplication && !r.Unwanted {
			app := renderedOf(h.t, r.Manifest)
			out[string(r.Deployment)+"@"+string(r.Environment)] = app
		}
	}
	return out
}

func (h *house) project(tenant fleet.TenantName, engine fleet.EngineName) fleet.Project {
	var m struct{ Spec fleet.Project }
	unmarshal(
		h.t,
		h.rows[fleet.ObjectKey{
			Engine: engine, Kind: fleet.ObjectProject,
			Name: fleet.ProjectName(tenant)}].Manifest.Body, &m)
	return m.Spec
}

func (h *house) engineOf(tenant fleet.TenantName, env fleet.EnvironmentName) fleet.EngineName {
	return h.w.state.Placements.Base()[fleet.SliceID{Tenant: tenant, Environment: env}].Engine
}

func oneEngine() tree { return small().without("fleet/engines/eu-2.yaml") }

func TestAProjectPermitsExactlyTheUseOnItsEngine(t *testing.T) {
	h := newHouse(t)
	h.apply(oneEngine())
	p := h.project("acme", "eu-1")
	if !slices.Equal(
		p.SourceRepos,
		[]string{"https://git.example.com/acme/cart", "https://git.example.com/acme/checkout"}) ||
		len(p.Destinations) != 3 || p.ClusterResources != nil {
		t.Fatalf("%+v", p)
	}
	t.Run(
		"a repository that falls out of use leaves it, with its Secret, when the Application is gone", func(t *testing.T) {
			plan := h.apply(h.files.without("tenants/acme/deployments/checkout.yaml"))
			wantActions(t, plan, "delete Application checkout@prod",
				"delete Application checkout@staging")
			if len(h.project("acme", "eu-1").SourceRepos) != 2 {
				t.Error("the project shrinks while Applications that need it exist")
			}
			h.work()
			if p := h.project("acme", "eu-1"); !slices.Equal(
				p.SourceRepos, []string{"https://git.example.com/acme/cart"}) {
				t.Errorf("%v", p.SourceRepos)
			}
			for k := range h.rows {
				if k.Kind == fleet.ObjectRepository {
					t.Errorf("%v is left", k)
				}
			}
		})
	t.Run("cluster-scoped kinds need the grant and an environment that asks", func(t *testing.T) {
		h.apply(
			h.files.with("fleet/tenants/acme.yaml",
				tenantFile("acme", "  clusterResources: [{group: \"\", kind: Namespace}]\n")))
		if got := h.project("acme", "eu-1").ClusterResources; got != nil {
			t.Errorf("granted without an environment that asks: %v", got)
		}
		h.apply(
			h.files.with("tenants/acme/environments/staging.yaml",
				h.files["tenants/acme/environments/staging.yaml"]+"  clusterResources: true\n"))
		if got := h.project("acme", "eu-1").ClusterResources; len(got) != 1 ||
			got[0].Kind != "Namespace" {
			t.Errorf("%v", got)
		}
	})
}

func TestAShrinkingEnvironmentWaitsForItsTerminatingApplications(t *testing.T) {
	h := newHouse(t)
	files := oneEngine().with("tenants/acme/deployments/other.yaml",
		strings.Replace(deploymentFile("other", "acme/other", "environments: [prod]", ""),
			"namespace: app", "namespace: other", 1))
	h.apply(files)
	p := h.apply(files.without("tenants/acme/deployments/other.yaml").edit(
		"tenants/acme/environments/prod.yaml", "app, other", "app").edit(
		"tenants/acme/environments/prod.yaml", "tier: prod", "tier: none"))
	wantActions(t, p, "delete Application cart@prod", "delete Application other@prod")
	checkNeeds(t, h)
	h.restart()
	h.work()
	if got := h.project("acme", "eu-1").Destinations; len(got) != 2 {
		t.Errorf("destinations: %v", got)
	}
	if len(h.w.state.Deferred) != 0 {
		t.Errorf("deferred: %v", h.w.state.Deferred)
	}
	h.restart()
	if p := h.apply(h.files); !p.Empty() {
		t.Errorf("not settled: %s", actions(p))
	}
}

func TestAnEnvironmentRestoredDuringItsRemovalKeepsItsEngine(t *testing.T) {
	h := newHouse(t)
	files := small()
	h.apply(files)
	engine := h.engineOf("acme", "prod")
	gone := files.without("tenants/acme/environments/prod.yaml").edit(
		"tenants/acme/deployments/checkout.yaml", "prod, staging", "staging")
	p := h.apply(gone)
	wantActions(t, p, "delete Application cart@prod", "delete Application checkout@prod")
	h.restart()
	p = h.apply(files)
	wantActions(t, p, "create Application cart@prod", "create Application checkout@prod")
	if got := h.engineOf("acme", "prod"); got != engine {
		t.Errorf("moved from %s to %s", engine, got)
	}
	checkState(t, h)
}

func TestAPlacementIsKeptAndReportsItsMisplacement(t *testing.T) {
	h := newHouse(t)
	h.apply(oneEngine())
	for name, edit := range map[string]func(tree) tree{
		"another engine comes": func(f tree) tree {
			return f.with("fleet/engines/eu-0.yaml", engineFile("eu-0", "eu", ""))
		},
		"its labels change": func(f tree) tree {
			return f.edit("tenants/acme/environments/staging.yaml", "tier: dev", "tier: test")
		},
		"the engine is full": func(f tree) tree {
			return f.edit("fleet/engines/eu-1.yaml", "applications: 1000, environments: 100",
				"applications: 2, environments: 1")
		},
		"the engine is cordoned": func(f tree) tree {
			return f.with("fleet/engines/eu-1.yaml",
				engineFile("eu-1", "eu", "  state: Cordoned\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if p := h.compute(edit(h.files)); len(p.Placements)+len(p.Rows) != 0 {
				t.Errorf("%v\n%s", p.Placements, actions(p))
			}
		})
	}
	t.Run("a constraint no longer holds", func(t *testing.T) {
		p := h.apply(
			h.files.with("fleet/engines/eu-1.yaml",
				engineFile("eu-1", "eu", "  taints: [{key: gpu}]\n")))
		if len(p.Rows) != 0 || len(p.Placements) != 2 ||
			!strings.Contains(p.Placements[0].Misplaced, "taint gpu") ||
			p.Placements[0].Engine != "eu-1" || len(p.Placements[0].Alternatives) != 1 {
			t.Errorf("%+v\n%s", p.Placements, actions(p))
		}
		if p := h.apply(h.files.with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", ""))); len(
			p.Placements) != 2 || p.Placements[0].Misplaced != "" {
			t.Errorf("it holds again: %+v", p.Placements)
		}
	})
}

func TestAnEnvironmentWithoutAnEngineIsPlacedOnceOneFits(t *testing.T) {
	h := newHouse(t)
	tight := engineFile("eu-1", "eu", "")
	tight = strings.Replace(tight, "environments: 100", "environments: 1", 1)
	p := h.apply(oneEngine().with("fleet/engines/eu-1.yaml", tight))
	if len(p.Placements) != 2 || h.engineOf("acme", "prod") != "eu-1" ||
		h.engineOf("acme", "staging") != "" {
		t.Fatalf("%+v", p.Placements)
	}
	if i := slices.IndexFunc(p.Problems, func(p fleet.Problem) bool {
		return p.Code == "unplaced"
	}); i < 0 || p.Problems[i].Severity != fleet.SeverityWarning ||
		!strings.Contains(p.Problems[i].Message, "no room for another environment") {
		t.Errorf("problems: %v", p.Problems)
	}
	h.restart()
	for name, edit := range map[string]func(tree) tree{
		"an engine comes": func(f tree) tree {
			return f.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", ""))
		},
		"the engine has room": func(f tree) tree {
			return f.with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := h.compute(edit(h.files))
			if p.Counts.Placed != 1 || p.Counts.Created != 1 ||
				!slices.Contains(
					p.Checked, fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: "acme",
						Name: "staging"}) {
				t.Errorf("%+v, checked %v", p.Counts, p.Checked)
			}
		})
	}
	t.Run("another environment goes", func(t *testing.T) {
		h.apply(
			h.files.without("tenants/acme/environments/prod.yaml",
				"tenants/acme/deployments/cart.yaml").edit("tenants/acme/deployments/checkout.yaml",
				"prod, staging", "staging"))
		if h.engineOf("acme", "staging") != "" {
			t.Fatal("placed before the other has gone")
		}
		h.work()
		if h.engineOf("acme", "staging") != "eu-1" {
			t.Error("not placed when there is room")
		}
	})
}

func TestNothingNewIsPlacedUntilAllEnginesAreRead(t *testing.T) {
	h := newHouse(t)
	unread := func(r *Request) { r.Unread = []fleet.EngineName{"eu-2"} }
	// A rebuild: the objects on eu-1 report the placement of prod.
	w, err := RestoreAppliedState(
		mirror.Snapshot{
			Placements: []fleet.Placement{
				{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, Engine: "eu-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	h.w = w
	p := h.apply(small(), unread)
	if h.engineOf("acme", "prod") != "eu-1" || h.engineOf("acme", "staging") != "" ||
		p.Counts.Created != 2 {
		t.Fatalf("%+v", p.Placements)
	}
	if len(p.Placements) != 2 || p.Placements[0].Engine != "eu-1" ||
		len(p.Placements[0].Alternatives) != 2 {
		t.Fatalf("reported placements are not recorded: %+v", p.Placements)
	}
	if p := h.apply(h.files, unread); !p.Empty() {
		t.Errorf("%+v", p.Placements)
	}
	h.restart()
	t.Run("all are read, and one of them has it", func(t *testing.T) {
		s := h.snapshot()
		s.Placements = append(s.Placements, fleet.Placement{
			Environment: fleet.EnvironmentID{Tenant: "acme", Name: "staging"}, Engine: "eu-2",
			Reason: "found there"})
		w, err := RestoreAppliedState(s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.Compute(Request{Revision: h.w.Revision(), Relation: mirror.RelationSame},
			&h.render)
		if err != nil || p.Counts.Created != 1 || len(p.Placements) != 1 ||
			p.Placements[0].Engine != "eu-2" || p.Rows[0].Row.Key.Engine != "eu-2" {
			t.Errorf("%v: %+v\n%s", err, p.Placements, actions(p))
		}
		w.Commit(p)
		if p, err := w.Compute(Request{Revision: h.w.Revision(), Relation: mirror.RelationSame},
			&h.render); err != nil || !p.Empty() {
			t.Errorf("it does not settle: %v %s", err, actions(p))
		}
	})
	t.Run("all are read, and none of them has it", func(t *testing.T) {
		if p := h.again(); p.Counts.Placed != 1 || h.engineOf("acme", "staging") == "" {
			t.Errorf("not placed once all are read: %+v", p.Counts)
		}
	})
}

func TestAnEnvironmentRecoveredOnAnUndeclaredEngineWaitsForIt(t *testing.T) {
	h := newHouse(t)
	w, err := RestoreAppliedState(
		mirror.Snapshot{
			Placements: []fleet.Placement{
				{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, Engine: "lost"}}})
	if err != nil {
		t.Fatal(err)
	}
	h.w = w
	p := h.apply(small())
	if h.engineOf("acme", "prod") != "lost" || p.Counts.Created != 1 || len(p.Placements) != 2 ||
		!strings.Contains(p.Placements[0].Misplaced, "lost is not declared") {
		t.Fatalf("%+v\n%s", p.Placements, actions(p))
	}
	p = h.apply(h.files.with("fleet/engines/lost.yaml", engineFile("lost", "eu", "")))
	if p.Counts.Created != 2 || len(p.Placements) != 1 || p.Placements[0].Misplaced != "" {
		t.Errorf("%+v\n%s", p.Placements, actions(p))
	}
}

func TestAnEngineInUseIsTakenOver(t *testing.T) {
	h := newHouse(t)
	h.apply(oneEngine())
	p := h.compute(h.files.edit("fleet/engines/eu-1.yaml", "installationID: eu-1",
		"managed: true, installationID: eu-1").edit("fleet/fleet.yaml", "gitHosts:",
		"rings: [{name: stable, version: 3.5.7, manifests: {directory: argocd, digest: \"sha256:"+
			strings.Repeat("1", 64)+"\"}}]\n  gitHosts:"))
	if len(p.Quarantined) > 0 || len(p.Rows) > 0 || len(p.Declarations) != 2 {
		t.Errorf("%+v, %d rows, %d declarations", p.Quarantined, len(p.Rows), len(p.Declarations))
	}
}

func TestAnEngineInUseKeepsItsDeclaration(t *testing.T) {
	h := newHouse(t)
	h.apply(oneEngine())
	for name, edit := range map[string]func(tree) tree{
		"removed": func(f tree) tree { return f.without("fleet/engines/eu-1.yaml") },
		"another namespace": func(f tree) tree {
			return f.edit("fleet/engines/eu-1.yaml", "argocd-eu-1", "elsewhere")
		},
		"another installationID": func(f tree) tree {
			return f.edit("fleet/engines/eu-1.yaml", "installationID: eu-1", "installationID: eu-9")
		},
		"another connection": func(f tree) tree {
			return f.edit("fleet/engines/eu-1.yaml", "{kubeconfigRef: {name: eu-1}}",
				"{inCluster: true}")
		},
		"an agent instead": func(f tree) tree {
			return f.edit("fleet/engines/eu-1.yaml", "{kubeconfigRef: {name: eu-1}}", "{agent: {}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := h.compute(edit(h.files))
			if len(p.Rows) != 0 || len(p.Quarantined) != 1 ||
				p.Quarantined[0].Problems[0].Code != "engine-in-use" ||
				!strings.Contains(p.Quarantined[0].Problems[0].Message, "2 environments") {
				t.Errorf("%s\n%v", actions(p), p.Problems)
			}
		})
	}
	for name, work := range map[string]func(*house){
		"with one replica": (*house).work, "with replicas that end": (*house).workWithRestarts,
	} {
		t.Run("it is removed when the last object is deleted, "+name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(oneEngine())
			h.apply(h.files.without("tenants/acme/", "fleet/engines/eu-1.yaml"), func(r *Request) {
				r.Files = append(
					r.Files,
					inputs(
						tree{},
						tree{
							"tenants/acme/deployments/keep.yaml": deploymentFile(
								"keep", "acme/keep",
								"environmentSelector: {matchLabels: {tier: none}}", "")})...)
			})
			if h.w.state.Catalog.Engine("eu-1") == nil {
				t.Fatal("it went before its objects")
			}
			h.restart()
			work(h)
			if h.w.state.Catalog.Engine("eu-1") != nil || len(h.rows) != 0 {
				t.Errorf("it stays: %d rows, deferred %v", len(h.rows), h.w.state.Deferred)
			}
		})
	}
}

func TestTwoTenantsWithCredentialsForOneRepositoryDoNotShareAnEngine(t *testing.T) {
	files := oneEngine()
	files["fleet/tenants/globex.yaml"] = tenantFile("globex", "")
	files["tenants/globex/environments/edge.yaml"] = environmentFile("edge", "eu", "", "app")
	for tenant, env := range map[string]string{"acme": "prod", "globex": "edge"} {
		files["tenants/"+tenant+"/deployments/charts.yaml"] = deploymentFile(
			"charts", map[string]string{
				"acme": "shared/charts", "globex": "shared/Charts.git"}[tenant],
			"environments: ["+env+"]", "")
		files["tenants/"+tenant+"/credentials/charts.yaml"] = credentialFile(
			"charts", "shared/charts")
	}
	t.Run("a newcomer goes elsewhere, or waits", func(t *testing.T) {
		h := newHouse(t)
		p := h.apply(files)
		if h.engineOf("acme", "prod") != "eu-1" || h.engineOf("globex", "edge") != "" {
			t.Fatalf("%+v", p.Placements)
		}
		for _, pl := range p.Placements {
			if pl.Environment.Tenant == "globex" &&
				(!strings.Contains(pl.Reason, "credential of its own") ||
					strings.Contains(pl.Reason, "acme")) {
				t.Errorf("reason: %s", pl.Reason)
			}
		}
		if len(p.Problems) != 1 || p.Problems[0].Code != catalog.CodeSharedClone ||
			p.Problems[0].Path != "tenants/globex/environments/edge.yaml" ||
			!strings.Contains(p.Problems[0].Fix, "sharedRepositories") {
			t.Errorf("problems: %+v", p.Problems)
		}
		if h.apply(
			h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", ""))); h.engineOf(
			"globex", "edge") != "eu-2" {
			t.Error("not placed on an engine of its own")
		}
	})
	t.Run("a newcomer that waits comes in after the other has left and the repo-server restarted", func(t *testing.T) {
		h := newHouse(t)
		h.apply(files)
		h.apply(
			h.files.edit("tenants/acme/deployments/charts.yaml", "shared/charts", "acme/charts"))
		if h.engineOf("globex", "edge") != "" {
			t.Error("it comes to a clone that is left")
		}
		h.work()
		if h.apply(h.files.restartedAt(h.now.Add(time.Hour))); h.engineOf("globex",
			"edge") != "eu-1" {
			t.Error("it waits on")
		}
	})
}

func TestSyncRuns(t *testing.T) {
	run := "tenants/acme/syncs/rollback.yaml"
	prod := fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
	start := func(t *testing.T) *house {
		h := newHouse(t)
		h.apply(small())
		p := h.apply(
			h.files.with(
				run,
				syncFile(
					"rollback",
					"deployment: checkout, environments: [prod], revision: v0, hold: true")))
		wantActions(t, p, "update Application checkout@prod")
		if len(p.Syncs) != 1 || p.Syncs[0].Revision != "v0" ||
			p.Syncs[0].ID != "acme/rollback/checkout@prod:v0" || !p.Syncs[0].Prune ||
			len(p.SyncHolds) != 1 {
			t.Fatalf("%+v %+v", p.Syncs, p.SyncHolds)
		}
		if app := h.applications()["checkout@prod"]; app.Hold != "rollback" || app.Sync.Automated {
			t.Fatalf("%+v", app)
		}
		h.restart()
		return h
	}
	automated := func(t *testing.T, h *house, want bool) {
		t.Helper()
		if app := h.applications()["checkout@prod"]; app.Sync.Automated != want ||
			(app.Hold == "") != want {
			t.Errorf("%+v", app)
		}
	}
	t.Run("a hold lasts through other changes", func(t *testing.T) {
		h := start(t)
		h.apply(
			h.files.edit("tenants/acme/deployments/checkout.yaml", "path: deploy", "path: other"))
		automated(t, h, false)
	})
	t.Run("a hold ends with another target revision", func(t *testing.T) {
		h := start(t)
		p := h.apply(h.files.edit("tenants/acme/deployments/checkout.yaml", "targetRevision: v1",
			"targetRevision: v2"))
		automated(t, h, true)
		if !slices.Equal(p.EndedSyncHolds, []fleet.ApplicationID{prod}) || len(p.Syncs) != 0 {
			t.Errorf("%v %v", p.EndedSyncHolds, p.Syncs)
		}
	})
	t.Run("an override in another environment does not end it", func(t *testing.T) {
		h := start(t)
		h.apply(
			h.files.with("tenants/acme/deployments/checkout.yaml",
				h.files["tenants/acme/deployments/checkout.yaml"]+
					"  overrides: [{environment: staging, source: {targetRevision: v7}}]\n"))
		automated(t, h, false)
	})
	t.Run("a hold ends with its file", func(t *testing.T) {
		h := start(t)
		wantActions(t, h.apply(h.files.without(run)), "update Application checkout@prod")
		automated(t, h, true)
	})
	t.Run("the newest hold counts", func(t *testing.T) {
		h := start(t)
		h.apply(
			h.files.with("tenants/acme/syncs/again.yaml",
				syncFile("again", "deployment: checkout, revision: v00, hold: true")))
		h.apply(h.files.without(run))
		if app := h.applications()["checkout@prod"]; app.Hold != "again" {
			t.Errorf("%+v", app)
		}
	})
	t.Run("without hold the Application stays as it is", func(t *testing.T) {
		h := start(t)
		p := h.apply(
			h.files.with("tenants/acme/syncs/once.yaml",
				syncFile("once", "deployment: checkout, revision: v00")))
		if len(p.Rows) != 0 || len(p.Syncs) != 2 {
			t.Errorf("%s %v", actions(p), p.Syncs)
		}
	})
	t.Run("a rebuild runs none again and keeps the holds", func(t *testing.T) {
		h := start(t)
		s := h.snapshot()
		w, err := RestoreAppliedState(
			mirror.Snapshot{
				Placements: s.Placements, SyncHolds: []mirror.SyncHold{
					{SyncRun: "rollback", Application: prod}}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.Compute(Request{Revision: revision(9), Files: inputs(tree{}, h.files)},
			&h.render)
		if err != nil || len(p.Syncs) != 0 || len(p.SyncHolds) != 1 ||
			p.SyncHolds[0].TargetRevision != "v1" {
			t.Fatalf("%v %v %v", err, p.Syncs, p.SyncHolds)
		}
		for _, c := range p.Rows {
			if stored := h.rows[c.Row.Key]; stored.Manifest.Hash != c.Row.Manifest.Hash {
				t.Errorf("%s %s differs after a rebuild", c.Row.Key.Kind, c.Subject)
			}
		}
	})
	t.Run("a first revision runs what has never run", func(t *testing.T) {
		h := newHouse(t)
		p := h.apply(small().with(run, syncFile("rollback", "deployment: checkout, revision: v0")))
		if len(p.Syncs) != 2 {
			t.Errorf("%v", p.Syncs)
		}
	})
}

func TestOneBadFileHurtsOnlyItself(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	p := h.apply(h.files.edit("tenants/acme/deployments/cart.yaml", "spec:", "spec: {").edit(
		"tenants/acme/deployments/checkout.yaml", "targetRevision: v1", "targetRevision: v2"))
	wantActions(t, p, "update Application checkout@prod", "update Application checkout@staging")
	if len(p.Quarantined) != 1 || !p.Quarantined[0].HasLastGood {
		t.Errorf("%+v", p.Quarantined)
	}
	if p := h.apply(
		h.files.with("tenants/acme/deployments/cart.yaml",
			small()["tenants/acme/deployments/cart.yaml"])); len(p.Rows) != 0 ||
		len(p.Cleared) != 1 {
		t.Errorf("%s %v", actions(p), p.Cleared)
	}
}

func TestThePlanReviewedIsThePlanApplied(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	head := h.files.edit("tenants/acme/deployments/cart.yaml", "targetRevision: v1",
		"targetRevision: v2").with("tenants/acme/environments/new.yaml",
		environmentFile("new", "eu", "tier: prod", "app"))
	reviewed := h.compute(
		head, func(r *Request) { r.Revision, r.Now = revision(500), r.Now.Add(time.Hour) })
	applied := h.apply(head)
	if reviewed.Hash != applied.Hash {
		t.Error("the same change has another hash when it is merged")
	}
	for i, c := range applied.Rows {
		if string(c.Row.Manifest.Body) != string(reviewed.Rows[i].Row.Manifest.Body) {
			t.Errorf("%s differs", c.Subject)
		}
	}
	if other := h.compute(
		h.files.edit("tenants/acme/deployments/cart.yaml", "targetRevision: v2",
			"targetRevision: v3")); other.Hash == applied.Hash {
		t.Error("another change has the same hash")
	}
}

func TestOfflineRendersOneEngine(t *testing.T) {
	files := inputs(tree{}, small())
	all, err := Offline(files, "", nil, &jsonRenderer{})
	if err != nil || len(all.Rows) == 0 {
		t.Fatal(err, all)
	}
	one, err := Offline(files, "eu-1", nil, &jsonRenderer{})
	if err != nil || len(one.Rows) == 0 || len(one.Rows) >= len(all.Rows) {
		t.Fatalf("%v: %d of %d rows", err, len(one.Rows), len(all.Rows))
	}
	for _, c := range one.Rows {
		if c.Row.Key.Engine != "eu-1" || !json.Valid(c.Row.Manifest.Body) {
			t.Errorf("%+v", c.Row.Key)
		}
	}
	if _, err := Offline(files, "nowhere", nil, &jsonRenderer{}); err == nil ||
		!strings.Contains(err.Error(), "eu-1") {
		t.Errorf("%v", err)
	}
}
