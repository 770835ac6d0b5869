package plan

import (
	"maps"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

var (
	acmeEdge  = fleet.EnvironmentID{Tenant: "acme", Name: "edge"}
	wholeEdge = acmeEdge.Whole()
)

// switching is a change of acme/edge between a cluster that engines reach and an agent of its own.
type switching struct {
	before, after string // declarations
	from, to      fleet.EngineName
	field, waits  string // of the warning; why the placement does not comply
}

func switches() map[string]switching {
	cluster := environmentFile("edge", "eu", "tier: plant", "app, other")
	return map[string]switching{
		"to an agent": {cluster, edgeFile("{}"), "eu-1", "acme.edge", "spec.agent",
			"its cluster is declared to have an agent of its own"},
		"to an engine": {edgeFile("{}"), cluster, "acme.edge", "eu-1", "spec.cluster",
			"its cluster is declared to be reached by an engine"}}
}

func (s switching) declared() tree {
	return plant().with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", "")).
		with(edgePath, s.before)
}

// The change of a declaration takes effect once the Applications have moved under both connections.
func TestAnEnvironmentMovesBetweenAClusterAndItsAgent(t *testing.T) {
	for name, s := range switches() {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(s.declared())
			before := h.desired()
			p := h.apply(h.files.with(edgePath, s.after))
			wantActions(t, p)
			if len(p.Quarantined) > 0 || len(p.Problems) != 1 ||
				p.Problems[0].Severity != fleet.SeverityWarning ||
				p.Problems[0].Field != s.field ||
				!strings.Contains(p.Problems[0].Fix, "argosy move environment acme/edge --to") {
				t.Fatalf("%+v, %+v", p.Quarantined, p.Problems)
			}
			h.work()
			h.restart()
			h.again()
			if pl, _ := h.w.state.Placements.Get(wholeEdge); pl.Engine != s.from ||
				!strings.Contains(pl.Misplaced, s.waits) || len(h.desired()) != len(before) {
				t.Fatalf("before the move: %+v", pl)
			}

			p = h.again(func(r *Request) {
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeEdge: {To: s.to}}
			})
			if p.Refused[wholeEdge] != "" || len(p.Begun) != 1 ||
				len(p.Begun[0].Applications) != 1 || p.Begun[0].From != s.from {
				t.Fatalf("%v, %+v", p.Refused, p.Begun)
			}
			checkNeeds(t, h)
			app := fleet.ApplicationID{Tenant: "acme", Deployment: "plc", Environment: "edge"}
			left := h.rows[applied.ApplicationKey(s.from, app)]
			if !left.Unwanted || left.Deletion != fleet.DeletionOrphan {
				t.Errorf("on the former engine: %+v", left)
			}
			server := renderedOf(t, h.rows[applied.ApplicationKey(s.to, app)].Manifest).
				Destination.Server
			if (server == fleet.InClusterServer) != s.to.OfEnvironment() {
				t.Errorf("engine %s deploys to %s", s.to, server)
			}
			h.restart()
			h.workWithRestarts()
			for k, r := range h.rows {
				if k.Engine != s.to || r.Unwanted {
					t.Errorf("left over: %v %+v", k, r)
				}
			}
			env := h.w.state.Catalog.Environment(acmeEdge).Environment
			if pl, _ := h.w.state.Placements.Get(wholeEdge); pl.Engine != s.to || pl.From != "" ||
				pl.Misplaced != "" || env.ReachedBy(s.from) || len(h.w.state.Deferred) > 0 {
				t.Errorf("after the move: %+v, %+v", pl, env)
			}
			checkState(t, h)
			h.equalsNothing(h.files)
		})
	}
}

// A reverted commit leaves everything as it was, also during the move, which is then undone.
func TestAnEnvironmentStaysWhenTheChangeOfItsConnectionIsReverted(t *testing.T) {
	for name, s := range switches() {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(s.declared())
			before := h.desired()
			h.apply(h.files.with(edgePath, s.after))
			h.again(func(r *Request) {
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeEdge: {To: s.to}}
			})
			p := h.apply(h.files.with(edgePath, s.before))
			wantActions(t, p)
			if len(p.Quarantined) > 0 {
				t.Errorf("%+v", p.Quarantined)
			}
			p = h.again(func(r *Request) {
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeEdge: {To: s.from, Undo: true}}
			})
			if p.Refused[wholeEdge] != "" {
				t.Fatal(p.Refused)
			}
			h.workWithRestarts()
			if got := h.desired(); !maps.Equal(got, before) {
				t.Errorf("%v, was %v", got, before)
			}
			if env := h.w.state.Catalog.Environment(acmeEdge).Environment; env.ReachedBy(s.to) {
				t.Errorf("%+v", env)
			}
			checkState(t, h)
		})
	}
}

// Nothing has to move if the Applications go: the change takes effect once they are deleted.
func TestAChangedConnectionWaitsForDeletions(t *testing.T) {
	for name, s := range switches() {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(s.declared())
			h.apply(h.files.with(edgePath, s.after).without("tenants/acme/deployments/"))
			if !h.w.state.Catalog.Environment(acmeEdge).Environment.ReachedBy(s.from) {
				t.Error("the connection is gone before the Application")
			}
			h.restart()
			h.work()
			if got := h.engineOf("acme", "edge"); got != s.to {
				t.Errorf("placed on %s", got)
			}
			checkState(t, h)
		})
	}
}

func TestAMoveToAnotherEnvironmentsAgentIsRefused(t *testing.T) {
	s := switches()["to an agent"]
	h := newHouse(t)
	h.apply(s.declared())
	for to, want := range map[fleet.EngineName]string{
		"acme.edge":  "its declaration has no agent (spec.agent)",
		"acme.other": "engine acme.other is the cluster of another environment"} {
		p := h.again(func(r *Request) {
			r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeEdge: {To: to}}
		})
		if p.Refused[wholeEdge] != want {
			t.Errorf("to %s: %q", to, p.Refused[wholeEdge])
		}
	}
}

// A drain, and with misplaced: Move any commit, moves it to its agent and nowhere else.
func TestASwitchedEnvironmentMovesByItselfToItsOwnClusterAlone(t *testing.T) {
	s := switches()["to an agent"]
	h := newHouse(t)
	h.apply(s.declared().with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")))
	from := h.engineOf("acme", "edge")
	h.apply(h.files.with(edgePath, s.after))
	for _, c := range []placement.Change{{Kind: placement.Drain, Engine: from},
		{Kind: placement.Drain, Engine: from, Misplaced: true}} {
		out, err := h.w.Simulate(c, nil)
		if err != nil || len(out.Moves) != 1 || out.Moves[0].To != "acme.edge" ||
			len(out.Left) > 0 {
			t.Errorf("%+v: %+v, %v", c, out, err)
		}
	}
	out, err := h.w.Simulate(placement.Change{Kind: placement.Join, Engine: "eu-3", Like: from},
		nil)
	if err != nil || len(out.Moves) > 0 {
		t.Errorf("another engine gets it: %+v, %v", out.Moves, err)
	}
}

// The encrypted credential of the cluster goes with the last Application that needs it.
func TestASwitchedEnvironmentKeepsTheCredentialOfItsCluster(t *testing.T) {
	s := switches()["to an agent"]
	const path = "tenants/acme/environments/edge.sops.yaml"
	const text = "ENC[AES256_GCM,data:eA==,iv:eA==,tag:eA==,type:str]"
	const sealed = "token: " + text + "\n" + fleet.EncryptedForKey + ": " + text + "\nsops:\n" +
		"    age:\n        - recipient: age1x\n          enc: |\n" +
		"            -----BEGIN AGE ENCRYPTED FILE-----\n    mac: " + text + "\n"
	h := newHouse(t)
	h.apply(s.declared().with(path, sealed))
	key := catalog.SealedKey("acme", "environments", "edge")
	if h.w.state.Catalog.Declaration(key) == nil {
		t.Fatal("the credential is not in effect")
	}
	before := h.desired()
	h.apply(h.files.with(edgePath, s.after).without(path))
	if got := h.desired(); !maps.Equal(got, before) {
		t.Errorf("the rows have changed: %v, were %v", got, before)
	}
	h.restart()
	h.again(func(r *Request) {
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeEdge: {To: s.to}}
	})
	if h.w.state.Catalog.Declaration(key) == nil {
		t.Error("the credential is gone during the move")
	}
	h.workWithRestarts()
	if h.w.state.Catalog.Declaration(key) != nil || len(h.w.state.Deferred) > 0 {
		t.Errorf("the credential is left: %v", h.w.state.Deferred)
	}
}
