package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

var (
	acmeProd  = fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	wholeProd = acmeProd.Whole()
)

func moving(to fleet.EngineName) func(*Request) {
	return func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeProd: {To: to}}
	}
}

// others returns the engine of prod, and the other one.
func (h *house) others() (on, other fleet.EngineName) {
	h.t.Helper()
	pl, _ := h.w.state.Placements.Get(wholeProd)
	on, other = pl.Engine, "eu-1"
	if on == "eu-1" {
		other = "eu-2"
	}
	return on, other
}

func (h *house) kindsOn(engine fleet.EngineName) map[fleet.ObjectKind]int {
	kinds := map[fleet.ObjectKind]int{}
	for k := range h.desired() {
		if k.Engine == engine {
			kinds[k.Kind]++
		}
	}
	return kinds
}

func TestAMovedEnvironmentLeavesNothingOnItsFormerEngine(t *testing.T) {
	for _, again := range []struct {
		name string
		work func(*house)
	}{{"one replica", (*house).work}, {"replicas that end", (*house).workWithRestarts}} {
		t.Run(again.name, func(t *testing.T) {
			h := newHouse(t)
			files := small()
			delete(files, "tenants/acme/environments/staging.yaml")
			files = files.edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]",
				"[prod]")
			h.apply(files)
			from, to := h.others()
			before := h.kindsOn(from)
			p := h.again(moving(to))
			if p.Refused[wholeProd] != "" || len(p.Begun) != 1 ||
				len(p.Begun[0].Applications) != 2 {
				t.Fatalf("%v, %+v", p.Refused, p.Begun)
			}
			if len(p.Record().Deletions) > 0 || p.Counts.Deleted > 0 || p.Counts.Moved != 2 {
				t.Errorf("the guards count a move: %+v", p.Counts)
			}
			// both engines have what the Applications share, until the last one has left
			now := h.kindsOn(from)
			if now[fleet.ObjectApplication] != 0 || now[fleet.ObjectProject] != 1 ||
				now[fleet.ObjectCluster] != 1 || now[fleet.ObjectRepository] != 1 {
				t.Errorf("on the former engine: %v", now)
			}
			for k, r := range h.rows {
				if k.Kind == fleet.ObjectApplication && k.Engine == from &&
					(!r.Unwanted || r.Deletion != fleet.DeletionOrphan) {
					t.Errorf("%s would be deleted by its policy: %+v", k.Name, r)
				}
			}
			if got := h.kindsOn(to); !maps.Equal(got, before) {
				t.Errorf("on the new engine: %v, want %v", got, before)
			}
			again.work(h)
			for k := range h.rows {
				if k.Engine == from {
					t.Errorf("%s %s is left", k.Kind, k.Name)
				}
			}
			pl, _ := h.w.state.Placements.Get(wholeProd)
			if pl.Engine != to || pl.From != "" || !pl.Forced {
				t.Errorf("placement %+v", pl)
			}
			if load, _ := h.w.state.Loads.Get(from); load != (fleet.EngineLoad{}) {
				t.Errorf("load of the former engine: %+v", load)
			}
			h.equalsNothing(files)
		})
	}
}

// equalsNothing compares the rows with those that a planner with the same placements computes from
// nothing.
func (h *house) equalsNothing(files tree) {
	h.t.Helper()
	fresh := newHouse(h.t)
	w, err := RestoreAppliedState(mirror.Snapshot{Placements: h.snapshot().Placements})
	if err != nil {
		h.t.Fatal(err)
	}
	fresh.w = w
	fresh.apply(files)
	if diff := cmp.Diff(fresh.desired(), h.desired()); diff != "" {
		h.t.Errorf("other rows than from nothing:\n%s", diff)
	}
}

func TestACommitDuringAMoveChangesTheNewEngineAlone(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	from, to := h.others()
	h.again(moving(to))
	key := func(on fleet.EngineName, name fleet.DeploymentName) fleet.ObjectKey {
		return applied.ApplicationKey(on, fleet.ApplicationID{Tenant: "acme",
			Environment: "prod", Deployment: name})
	}
	was := h.rows[key(from, "cart")].Manifest.Hash
	p := h.apply(h.files.edit("tenants/acme/deployments/cart.yaml", "v1}", "v2}").
		without("tenants/acme/deployments/checkout.yaml"))
	for _, c := range p.Rows {
		if c.Row.Key.Kind == fleet.ObjectApplication && c.Row.Environment == "prod" &&
			c.Row.Key.Engine != to {
			t.Errorf("%s %s on %s", c.Action, c.Subject, c.Row.Key.Engine)
		}
	}
	if h.rows[key(from, "cart")].Manifest.Hash != was ||
		h.rows[key(to, "cart")].Manifest.Hash == was || !h.rows[key(to, "checkout")].Unwanted {
		t.Error("the commit is not on the new engine alone")
	}
	h.restart()
	h.work()
	if pl, _ := h.w.state.Placements.Get(wholeProd); pl.From != "" {
		t.Errorf("the move does not end: %+v", pl)
	}
}

func TestAnUndoneMoveLeavesTheRowsAsTheyWere(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	before := h.desired()
	from, to := h.others()
	h.again(moving(to))
	h.restart()
	if p := h.again(moving(from)); !strings.Contains(p.Refused[wholeProd], "wait until that has") {
		t.Errorf("a move back while it moves: %q", p.Refused[wholeProd])
	}
	undo := func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeProd: {To: from, Undo: true}}
	}
	p := h.again(undo)
	if p.Refused[wholeProd] != "" || !p.Begun[0].Undo {
		t.Fatalf("%v %+v", p.Refused, p.Begun)
	}
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectApplication && k.Engine == to && r.Environment == "prod" &&
			(!r.Unwanted || r.Deletion != fleet.DeletionOrphan) {
			t.Errorf("%s on the engine that it does not move to: %+v", k.Name, r)
		}
	}
	h.work()
	if diff := cmp.Diff(before, h.desired()); diff != "" {
		t.Error(diff)
	}
	if pl, _ := h.w.state.Placements.Get(wholeProd); pl.Engine != from || pl.From != "" {
		t.Errorf("placement %+v", pl)
	}
}

func TestAMoveThatCannotWorkIsRefusedWithItsReason(t *testing.T) {
	files := small()
	agents := files.with(prodFile, withAgent(
		files[prodFile], "{argocdNamespace: argocd}"))
	for _, c := range []struct {
		name  string
		files tree
		to    func(on, other fleet.EngineName) fleet.EngineName
		want  string
	}{
		{"its own engine", files, func(on, _ fleet.EngineName) fleet.EngineName { return on },
			"it is on engine"},
		{"an unknown engine", files, func(_, _ fleet.EngineName) fleet.EngineName { return "eu-9" },
			"engine eu-9 is not declared under fleet/engines/"},
		{"another region", files.with("fleet/engines/us-1.yaml", engineFile("us-1", "us", "")),
			func(_, _ fleet.EngineName) fleet.EngineName { return "us-1" },
			"engine us-1 is in region us, the environment in eu"},
		{"a cordoned engine", files.with("fleet/engines/eu-3.yaml",
			engineFile("eu-3", "eu", "  state: Cordoned\n")),
			func(_, _ fleet.EngineName) fleet.EngineName { return "eu-3" },
			"engine eu-3 is cordoned"},
		{"an agent", agents, func(_, other fleet.EngineName) fleet.EngineName { return other },
			"its own Argo CD serves it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(c.files)
			on, other := h.others()
			p := h.again(moving(c.to(on, other)))
			if got := p.Refused[wholeProd]; !strings.Contains(got, c.want) || !p.Empty() {
				t.Errorf("%q, empty %v; want %q", got, p.Empty(), c.want)
			}
		})
	}
}

// Whether an agent knows the steps is not declared: the loop asks the mirror before a move begins.
func TestAnEnvironmentMovesToAndFromAnEngineBehindAnAgent(t *testing.T) {
	behind := func(engine string) string {
		return strings.Replace(engine, "{kubeconfigRef: {name: eu-2}}", "{agent: {}}", 1)
	}
	files := given(adopting(), "acme").with(firstFile, deploymentFile("first", "acme/app",
		"environments: [prod]", ""))
	agents := files.with("fleet/engines/eu-2.yaml", behind(engineFile("eu-2", "eu", "")))
	h := newHouse(t)
	h.apply(files)
	h.apply(agents)
	if p := h.again(moving("eu-2")); len(p.Begun) != 1 {
		t.Fatalf("to the agent: %v", p.Refused)
	}
	h.work()
	if pl, _ := h.w.state.Placements.Get(wholeProd); pl.Engine != "eu-2" || pl.From != "" {
		t.Fatalf("%+v", pl)
	}
	adopted := agents.with(firstFile, adopter("first", "acme", "shop"))
	h.apply(adopted)
	if p := h.again(moving("eu-1")); !strings.Contains(p.Refused[wholeProd], "acme/first@prod is "+
		"the adopted Application shop on engine eu-2, behind an agent") || !p.Empty() {
		t.Errorf("an adopted Application: %v", p.Refused)
	}
	h.apply(agents)
	h.work()
	if p := h.again(moving("eu-1")); len(p.Begun) != 1 {
		t.Errorf("from the agent: %v", p.Refused)
	}
}

func TestAMoveWaitsForTheEndOfADeletion(t *testing.T) {
	h := newHouse(t)
	files := small()
	h.apply(files)
	_, other := h.others()
	h.apply(files.without("tenants/acme/deployments/checkout.yaml"))
	p := h.again(moving(other))
	if got := p.Refused[wholeProd]; !strings.Contains(got,
		"acme/checkout@prod is being deleted; repeat the move when that has ended") || !p.Empty() {
		t.Errorf("%q, empty %v", got, p.Empty())
	}
	h.work()
	if p := h.again(moving(other)); p.Refused[wholeProd] != "" || len(p.Begun) != 1 {
		t.Errorf("after the deletion: %v", p.Refused)
	}
}

func TestAnAdoptedApplicationMovesOnlyIfItKeepsItsName(t *testing.T) {
	h := newHouse(t)
	h.apply(given(adopting(), "acme").with(firstFile, adopter("first", "acme", "apps/shop")))
	if pl, _ := h.w.state.Placements.Get(wholeProd); pl.Engine != "eu-1" {
		t.Fatalf("%+v", pl)
	}
	h.apply(given(adopting(), "acme").
		with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")).
		with(firstFile, adopter("first", "acme", "apps/shop")))
	refused := func(want string) {
		t.Helper()
		p := h.again(moving("eu-2"))
		if got := p.Refused[wholeProd]; !strings.Contains(got, want) || !p.Empty() {
			t.Errorf("%q, want %q", got, want)
		}
	}
	refused("is Application apps/shop, outside Argo CD's own namespace")

	h = newHouse(t)
	h.apply(adopting().with(firstFile, adopter("first", "acme", "shop")))
	h.apply(adopting().with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")).
		with(firstFile, adopter("first", "acme", "shop")))
	globex := fleet.EnvironmentID{Tenant: "globex", Name: "prod"}
	if p := h.again(func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{globex.Whole(): {To: "eu-2"}}
	}); len(p.Begun) != 1 {
		t.Fatalf("%v", p.Refused)
	}
	h.apply(h.files.with(otherFile, adopter("other", "globex", "shop")))
	refused("is Application shop, and engine eu-2 has another Application of that name")
	h.apply(h.files.without(otherFile))
	h.work()
	if p := h.again(moving("eu-2")); len(p.Begun) != 1 || len(p.Begun[0].Applications) != 1 {
		t.Errorf("%v, %+v", p.Refused, p.Begun)
	}
}

func TestTheFormerEngineKeepsWhatTheLastApplicationNeeds(t *testing.T) {
	h := newHouse(t)
	files := small()
	delete(files, "tenants/acme/environments/staging.yaml")
	files = files.edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]",
		"[prod]")
	h.apply(files)
	from, to := h.others()
	h.again(moving(to))
	left := h.w.Terminating()
	if len(left) != 2 {
		t.Fatalf("%v", left)
	}
	h.restart()
	delete(h.rows, left[0])
	// a change of the environment reaches the AppProject too
	h.apply(files.edit(prodFile, "[app, ", "[app, shop, "), func(r *Request) {
		r.Deleted = left[:1]
	})
	kinds := h.kindsOn(from)
	if kinds[fleet.ObjectProject] != 1 || kinds[fleet.ObjectCluster] != 1 ||
		!strings.Contains(string(h.projectOn(from).Manifest.Body), `"shop"`) {
		t.Errorf("one Application is left: %v", kinds)
	}
	h.restart()
	h.work()
	if kinds := h.kindsOn(from); len(kinds) > 0 {
		t.Errorf("none is left: %v", kinds)
	}
}

func (h *house) projectOn(engine fleet.EngineName) mirror.Row {
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectProject && k.Engine == engine {
			return r
		}
	}
	return mirror.Row{}
}

// The Applications that leave keep their destination, which names the cluster by its address.
func TestTheAddressOfAClusterWaitsForTheEndOfAMove(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	from, to := h.others()
	h.again(moving(to))
	key := func(on fleet.EngineName) fleet.ObjectKey { return applied.ClusterKey(on, acmeProd) }
	before := h.rows[key(from)]
	path := "tenants/acme/environments/prod.yaml"
	p := h.apply(h.files.edit(path, "https://", "https://new."))
	if got := quarantinesOf(p); got !=
		"ManagedEnvironment acme/prod spec.cluster environment-in-use" {
		t.Errorf("it is reported as %q", got)
	}
	if h.rows[key(from)].Manifest.Hash != before.Manifest.Hash {
		t.Errorf("engine %s has another address", from)
	}
	h.work()
	if got := quarantinesOf(h.again()); got != "" {
		t.Errorf("after the move: %s", got)
	}
	if body := string(h.rows[key(to)].Manifest.Body); !strings.Contains(body, "https://new.") {
		t.Errorf("the change has no effect after the move: %s", body)
	}
}

func TestAnotherClusterOfThePlatformWaitsForTheEndOfAMove(t *testing.T) {
	h := newHouse(t)
	files := small().edit("fleet/tenants/acme.yaml", "clusters: [.example.com]",
		`clusters: [.example.com, "cluster:a", "cluster:b"]`).edit(
		"tenants/acme/environments/prod.yaml",
		`{server: "https://prod.example.com:6443", credentialsRef: {name: prod}}`, "{ref: a}")
	for _, name := range []string{"a", "b"} {
		files = files.with("fleet/clusters/"+name+".yaml", "apiVersion: argosy.dev/v1alpha1\n"+
			"kind: Cluster\nmetadata: {name: "+name+"}\nspec: {server: \"https://"+name+
			".example.com\", credentialsRef: {name: "+name+"}}\n")
	}
	h.apply(files)
	_, to := h.others()
	h.again(moving(to))
	p := h.apply(h.files.edit("tenants/acme/environments/prod.yaml", "ref: a", "ref: b"))
	if got := quarantinesOf(p); got !=
		"ManagedEnvironment acme/prod spec.cluster environment-in-use" {
		t.Errorf("it is reported as %q", got)
	}
}

// Argo CD strips the finalizers of an Application whose cluster it does not know, and the workload
// would be left.
func TestTheAddressOfAClusterWaitsForTheEndOfDeletions(t *testing.T) {
	for name, together := range map[string]bool{"in one commit": true,
		"one after the other": false} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(small())
			path := "tenants/acme/environments/prod.yaml"
			files := h.files.without("tenants/acme/deployments/cart.yaml")
			if !together {
				h.apply(files)
			}
			key := applied.ClusterKey(h.engineOf("acme", "prod"), acmeProd)
			before := h.rows[key]
			p := h.apply(files.edit(path, "https://", "https://new."))
			i := slices.IndexFunc(p.Problems, func(p fleet.Problem) bool {
				return p.Code == "environment-in-use" && p.Path == path
			})
			if i < 0 || !strings.Contains(p.Problems[i].Message, "waits until 1 Application") {
				t.Errorf("the reason is not named: %v", p.Problems)
			}
			if h.rows[key].Manifest.Hash != before.Manifest.Hash {
				t.Error("the cluster has another address while an Application is being deleted")
			}
			h.work()
			if p := h.again(); len(p.Problems) > 0 {
				t.Errorf("after the deletion: %v", p.Problems)
			}
			if body := string(h.rows[key].Manifest.Body); !strings.Contains(body, "https://new.") {
				t.Errorf("the change has no effect after the deletion: %s", body)
			}
		})
	}
}

func TestARequestOfADrainIsRefusedOnceItsEngineIsActiveAgain(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	from, to := h.others()
	draining := func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeProd: {To: to, Drain: true}}
	}
	p := h.again(draining)
	if got := p.Refused[wholeProd]; got != "engine "+string(from)+" does not drain any more" {
		t.Errorf("refused with %q", got)
	}
	path := "fleet/engines/" + string(from) + ".yaml"
	h.apply(h.files.edit(path, "region: eu", "region: eu\n  state: Draining"))
	p = h.again(draining)
	if len(p.Begun) != 1 || p.Refused[wholeProd] != "" {
		t.Fatalf("%+v, %v", p.Begun, p.Refused)
	}
	pl, _ := h.w.state.Placements.Get(wholeProd)
	if pl.Engine != to || pl.Reason != "moved from engine "+string(from)+", which drains" {
		t.Errorf("%+v", pl)
	}
	h.work()
	h.apply(h.files.without(path))
	if h.w.state.Catalog.Engine(from) != nil {
		t.Errorf("the declaration of an emptied engine is in effect")
	}
}
