package e2e

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
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
			"nomads-camp", "")}
}

// An environment moves from an engine that Argosy reaches to one behind an agent and back. The
// agent is killed during its steps.
func TestAnEnvironmentMovesBehindAnAgentAndBackWithItsWorkload(t *testing.T) {
	f := edges.use(t)
	if address := strings.TrimPrefix(f.Place("eu-1").Cluster.Server,
		"https://"); f.Edge.Firewall != nil {
		outlet, err := f.Edge.Firewall.Outlet(address, nil, address)
		check(t, err)
		defer outlet.Close()
	}
	around, deployed := f.nomads(t)
	f.commit(t, "the nomads", around)
	f.commit(t, "what they deploy", deployed)
	eventually(t, "it is Healthy on eu-1", f.healthy(t, "nomads/camp@camp"))
	f.live(t, "eu-1", "nomads", "camp", "camp")

	s := &site{system: f, edge: f.Edge, name: "plant-2", engine: "plant-2"}
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
	defer f.remove(t, "the engine goes", file)
	for path := range around {
		s.around = append(s.around, path)
	}
	s.files = deployed
	move := func(to string, more ...string) (string, int) {
		out, errs, code := f.argosy(t, append([]string{"move", "environment", "nomads/camp", "--to",
			to}, more...)...)
		return out + errs, code
	}
	if out, code := move("plant-2", "--dry-run"); code != 1 ||
		!strings.Contains(out, "argosy agent token create --engine plant-2") {
		t.Errorf("a dry run to an engine without its agent ends with %d: %s", code, out)
	}
	defer s.leave(t)
	s.join(t)
	eventually(t, "a dry run finds nothing against the move", func() string {
		if out, code := move("plant-2", "--dry-run"); code != 0 {
			return out
		}
		return ""
	})

	workload := f.workloadsIn(t, "eu-1", "nomads-camp")
	audited := len(f.auditedIn(t, "eu-1", "nomads-camp"))
	step := func() (mirror.MoveStep, string) {
		for _, m := range list[view.Move](t, f, "moves") {
			if m.Environment == "camp" && len(m.Applications) == 1 {
				return m.Applications[0].Step, m.Applications[0].Message
			}
		}
		return "", ""
	}
	// killed kills the agent once one of these steps is next, or later, and starts it again.
	killed := func(steps ...mirror.MoveStep) {
		t.Helper()
		eventually(t, fmt.Sprint("one of the steps ", steps), func() string {
			if now, _ := step(); !slices.Contains(steps, now) {
				return string(now)
			}
			return ""
		})
		s.agent.Kill()
		s.start(t)
	}
	moved := func(to string) {
		t.Helper()
		eventually(t, "it has moved to "+to, func() string {
			for _, m := range list[view.Move](t, f, "moves") {
				if m.Environment == "camp" && string(m.To) == to &&
					m.State == mirror.OperationSucceeded {
					return ""
				}
			}
			return f.must(t, "describe", "move", "nomads/camp")
		})
		eventually(t, "it is Healthy there", f.healthy(t, "nomads/camp@camp"))
		if now := f.workloadsIn(t, "eu-1", "nomads-camp"); !slices.Equal(workload, now) {
			t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
		}
		for _, e := range f.auditedIn(t, "eu-1", "nomads-camp")[audited:] {
			t.Errorf("during the moves: %s", e)
		}
	}

	s.agent.Stop()
	if out, code := move("plant-2"); code != 0 {
		t.Fatalf("the move ends with %d: %s", code, out)
	}
	eventually(t, "the move waits for the agent, with the reason", func() string {
		if now, why := step(); now != mirror.MoveCompare || !strings.Contains(why, "plant-2") {
			return fmt.Sprint(now, ": ", why)
		}
		return ""
	})
	s.start(t)
	killed(mirror.MoveFreeze, mirror.MoveAdopt, mirror.MoveDelete, mirror.MoveEnable,
		mirror.MoveDone)
	moved("plant-2")
	if there := s.ours(t, applications); len(there) != 1 {
		t.Errorf("%d Applications behind the firewall", len(there))
	}
	left, err := f.onEngine("eu-1").List(t.Context(), metav1.ListOptions{
		LabelSelector: "argosy.dev/tenant=nomads"})
	check(t, err)
	if len(left.Items) > 0 {
		t.Errorf("%d Applications are left on eu-1", len(left.Items))
	}

	if out, code := move("eu-1"); code != 0 {
		t.Fatalf("the move back ends with %d: %s", code, out)
	}
	killed(mirror.MoveCheck, mirror.MoveCompare, mirror.MoveFreeze)
	killed(mirror.MoveFreeze, mirror.MoveAdopt, mirror.MoveDelete, mirror.MoveEnable,
		mirror.MoveDone)
	moved("eu-1")
	f.live(t, "eu-1", "nomads", "camp", "camp")
	eventually(t, "nothing is left behind the firewall", s.bare(t, applications, projects, secrets))
}
