package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// nomads is a tenant with an environment on the cluster of eu-1, which the Argo CD behind the
// firewall reaches too.
func (f *system) nomads(t *testing.T) (around, deployed map[string]string) {
	t.Helper()
	c := f.Place("eu-1").Cluster
	token, err := c.TenantToken(t.Context(), "nomads", "nomads-camp")
	check(t, err)
	check(t, f.WriteSecret("nomads", "camp", "token", token))
	return map[string]string{
			"fleet/tenants/nomads.yaml": fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata: {name: nomads}
spec:
  owners: ["github:example/nomads"]
  quota: {environments: 5, deployments: 5, applications: 5}
  repositories: [%q]
  clusters: [%q]
  namespaces: [nomads-camp]
  placement: {regions: [eu]}
`, f.Git.URL+"/acme/storefront", c.Server),
			"tenants/nomads/environments/camp.yaml": fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: camp, labels: {tier: staging}}
spec:
  cluster:
    server: %s
    caData: %s
    credentialsRef: {name: camp}
  namespaces: [nomads-camp]
  region: eu
`, c.Server, base64.StdEncoding.EncodeToString(c.CA))},
		map[string]string{"tenants/nomads/deployments/camp.yaml": f.deployment("camp", "camp",
			"nomads-camp", "  sync: {mode: automated, prune: true, selfHeal: false}\n")}
}

// nomadSite is the environment nomads/camp on eu-1, and the engine plant-2 behind a firewall, which
// reaches its cluster.
type nomadSite struct {
	*site
	workload []string // before any move
	audited  int      // requests before any move
	end      []func()
}

// startNomads deploys nomads/camp to eu-1 and declares plant-2, without its agent.
func (f *system) startNomads(t *testing.T) *nomadSite {
	t.Helper()
	n := &nomadSite{}
	if address := strings.TrimPrefix(f.Place("eu-1").Cluster.Server,
		"https://"); f.Edge.Firewall != nil {
		outlet, err := f.Edge.Firewall.Outlet(address, nil, address)
		check(t, err)
		n.end = append(n.end, outlet.Close)
	}
	around, deployed := f.nomads(t)
	f.commit(t, "the nomads", around)
	f.commit(t, "what they deploy", deployed)
	eventually(t, "it is Healthy on eu-1", f.healthy(t, "nomads/camp@camp"))
	f.live(t, "eu-1", "nomads", "camp", "camp")

	n.site = &site{system: f, edge: f.Edge, name: "plant-2", engine: "plant-2"}
	const file = "fleet/engines/plant-2.yaml"
	f.commit(t, "an engine behind a firewall", map[string]string{
		file: `apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata: {name: plant-2}
spec:
  argocd: {namespace: argocd, installationID: edge}
  connection: {agent: {}}
  region: eu
  capacity: {applications: 10, environments: 10}
`})
	n.end = append(n.end, func() { f.remove(t, "the engine goes", file) })
	for path := range around {
		n.around = append(n.around, path)
	}
	n.files = deployed
	n.workload = f.workloadsIn(t, "eu-1", "nomads-camp")
	n.audited = len(f.auditedIn(t, "eu-1", "nomads-camp"))
	return n
}

// leave removes the site with all that is declared for it. To be deferred.
func (n *nomadSite) leave(t *testing.T) {
	t.Helper()
	n.site.leave(t)
	for _, end := range slices.Backward(n.end) {
		end()
	}
}

// move runs `argosy move environment nomads/camp`.
func (n *nomadSite) move(t *testing.T, to string, more ...string) (out string, code int) {
	t.Helper()
	out, errs, code := n.argosy(t, append([]string{"move", "environment", "nomads/camp", "--to",
		to}, more...)...)
	return out + errs, code
}

// movable waits until a dry run finds nothing against the move.
func (n *nomadSite) movable(t *testing.T, to string) {
	t.Helper()
	eventually(t, "a dry run finds nothing against the move", func() string {
		if out, code := n.move(t, to, "--dry-run"); code != 0 {
			return out
		}
		return ""
	})
}

// moved waits for the end of a move, and fails the test if it has touched the workload.
func (n *nomadSite) moved(t *testing.T, to string) {
	t.Helper()
	eventually(t, "it has moved to "+to, func() string {
		var open, there int
		n.query(t, &open, `SELECT count(*) FROM application_moves
			WHERE tenant = 'nomads' AND step <> 'Done'`)
		n.query(t, &there, `SELECT count(*) FROM desired WHERE engine = $1 AND kind = 'Application'
			AND tenant = 'nomads'`, to)
		if open == 0 && there == 1 {
			return ""
		}
		return "not yet: " + n.must(t, "describe", "move", "nomads/camp")
	})
	eventually(t, "it is Healthy there", n.healthy(t, "nomads/camp@camp"))
	if now := n.workloadsIn(t, "eu-1", "nomads-camp"); !slices.Equal(n.workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", n.workload, now)
	}
	for _, e := range n.auditedIn(t, "eu-1", "nomads-camp")[n.audited:] {
		t.Errorf("during the moves: %s", e)
	}
	behind := n.ours(t, applications)
	before, err := n.onEngine("eu-1").List(t.Context(), metav1.ListOptions{
		LabelSelector: "argosy.dev/tenant=nomads"})
	check(t, err)
	if len(behind)+len(before.Items) != 1 || (len(behind) == 1) != (to == n.name) {
		t.Errorf("%d Applications behind the firewall, %d on eu-1", len(behind), len(before.Items))
	}
}

// releaseDeletions releases the deletions that wait behind the firewall until the returned function
// is called, as the cluster's admin does after more than 20 moves in an hour.
func (n *nomadSite) releaseDeletions(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	option := regexp.MustCompile(`--digest ([0-9a-f]+)`)
	var ended sync.WaitGroup
	ended.Go(func() {
		stack.Until(ctx, func() string {
			shown, _ := n.edge.Run(binary, "agent", "release-deletions")
			if digest := option.FindStringSubmatch(shown); digest != nil {
				_, _ = n.edge.Run(binary, "agent", "release-deletions", "--digest", digest[1])
			}
			return "until the end"
		})
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// An environment moves from an engine that Argosy reaches to one behind an agent and back. The
// agent is killed during its steps.
func TestAnEnvironmentMovesBehindAnAgentAndBackWithItsWorkload(t *testing.T) {
	f := edges.use(t)
	n := f.startNomads(t)
	defer n.leave(t)
	if out, code := n.move(t, "plant-2", "--dry-run"); code != 1 ||
		!strings.Contains(out, "argosy agent token create --engine plant-2") {
		t.Errorf("a dry run to an engine without its agent ends with %d: %s", code, out)
	}
	n.join(t)
	n.movable(t, "plant-2")
	step := func() (mirror.MoveStep, string) {
		for _, m := range list[view.Move](t, f, "moves") {
			if m.Environment == "camp" && len(m.Applications) == 1 {
				return m.Applications[0].Step, m.Applications[0].Message
			}
		}
		return "", ""
	}
	moves := f.followMoves(t, "nomads", "camp")
	// killed kills the agent once one of these steps is next, or later, and starts it again.
	killed := func(at mirror.MoveStep) {
		t.Helper()
		moves.reaches(t, at)
		n.agent.Kill()
		n.start(t)
	}

	ready := n.Place("eu-1").ArgoCD.Controller
	ready.Pause() // Check waits for its comparison
	defer ready.Resume()
	if out, code := n.move(t, "plant-2"); code != 0 {
		t.Fatalf("the move ends with %d: %s", code, out)
	}
	moves.reaches(t, mirror.MoveCheck)
	n.agent.Stop()
	ready.Resume()
	eventually(t, "the move waits for the agent, with the reason", func() string {
		if now, why := step(); now != mirror.MoveCompare || !strings.Contains(why, "plant-2") {
			return fmt.Sprint(now, ": ", why)
		}
		return ""
	})
	n.start(t)
	killed(mirror.MoveFreeze)
	n.moved(t, "plant-2")

	moves.next(t)
	if out, code := n.move(t, "eu-1"); code != 0 {
		t.Fatalf("the move back ends with %d: %s", code, out)
	}
	killed(mirror.MoveCheck)
	killed(mirror.MoveFreeze)
	n.moved(t, "eu-1")
	f.live(t, "eu-1", "nomads", "camp", "camp")
	eventually(t, "nothing is left behind the firewall", n.bare(t, applications, projects, secrets))
}

// The agent of one of the two engines fails at every step of a move.
func TestMovesMeetFaultsOfAnAgent(t *testing.T) {
	if !*everyMoveFault {
		t.Skip("TestAnEnvironmentMovesBehindAnAgentAndBackWithItsWorkload kills the agent; " +
			"make chaos-moves runs every step")
	}
	f := edges.use(t)
	n := f.startNomads(t)
	defer n.leave(t)
	n.join(t)
	defer n.releaseDeletions(t)()
	moves := f.followMoves(t, "nomads", "camp")
	faults := []struct {
		name       string
		begin, end func()
	}{
		{"agent killed", func() { n.agent.Kill() }, func() { n.start(t) }},
		{"agent paused", func() { n.agent.Pause() }, func() { n.agent.Resume() }},
	}
	for _, step := range faultySteps {
		for _, ends := range [][2]string{{"eu-1", "plant-2"}, {"plant-2", "eu-1"}} {
			from, to := ends[0], ends[1]
			for _, fault := range faults {
				n.movable(t, to)
				began := time.Now()
				moves.next(t)
				if out, code := n.move(t, to); code != 0 {
					t.Fatalf("the move ends with %d: %s", code, out)
				}
				target, resume, undone := to, func() {}, func() {}
				if step == mirror.MoveReturn {
					moves.reaches(t, mirror.MoveFreeze)
					controller := n.controllerOf(to)
					controller.Pause()
					resume = controller.Resume
					moves.reaches(t, mirror.MoveAdopt)
					undone = n.undo(t, "nomads/camp", from)
					target = from
				}
				moves.reaches(t, step)
				fault.begin()
				limit, cancel := context.WithTimeout(t.Context(), faultLasts)
				stack.Until(limit, func() string {
					var open int
					n.query(t, &open, `SELECT count(*) FROM application_moves
						WHERE tenant = 'nomads' AND step <> 'Done'`)
					return strings.Repeat("open ", open)
				})
				cancel()
				fault.end()
				resume()
				undone()
				n.moved(t, target)
				t.Logf("%-8s %-7s to %-7s %-12s %5.1f s", step, from, to, fault.name,
					time.Since(began).Seconds())
				if t.Failed() {
					return
				}
				if target == to { // and back, for the next fault
					n.movable(t, from)
					if out, code := n.move(t, from); code != 0 {
						t.Fatalf("the move back ends with %d: %s", code, out)
					}
					n.moved(t, from)
				}
			}
			// The next direction begins where this one would have ended.
			n.movable(t, to)
			if out, code := n.move(t, to); code != 0 {
				t.Fatalf("the move to %s ends with %d: %s", to, code, out)
			}
			n.moved(t, to)
		}
	}
}

// controllerOf is the application-controller of an engine.
func (n *nomadSite) controllerOf(engine string) *stack.Process {
	if engine == n.name {
		return n.edge.ArgoCD.Controller
	}
	return n.Place(engine).ArgoCD.Controller
}
