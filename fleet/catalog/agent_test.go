package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAnEnvironmentThatADeploymentReachesDoesNotBecomeAutonomous(t *testing.T) {
	for name, dep := range map[string]Input{
		"named":    deployment("acme/cart", "edge"),
		"selected": deploymentWith("acme/cart", selector("kind", "plant")),
	} {
		t.Run(name, func(t *testing.T) {
			plant := label("kind", "plant")
			c := New()
			good(t, c, append(acme(), environment("acme/edge", plant, behindAgent("")), dep)...)
			s := c.Prepare(
				[]Input{environment("acme/edge", plant, behindAgent(fleet.AgentAutonomous))})
			if got := codes(
				s.Problems()); got != "ManagedEnvironment acme/edge spec.agent.mode "+
				"autonomous-environment" || len(s.Changes()) > 0 {
				t.Fatalf("problems: %s, changes: %s", got, keys(s.Changes()))
			}
			if fix := s.Problems()[0].Fix; !strings.Contains(fix, dep.Path) {
				t.Errorf("the fix names no file: %s", fix)
			}
			commit(t, c, s)
			if got := fmt.Sprint(
				c.DeploymentsIn(
					fleet.EnvironmentID{Tenant: "acme", Name: "edge"})); got != "[acme/cart]" {
				t.Errorf("deployments there: %s", got)
			}
			s = c.Prepare([]Input{gone(dep)})
			if got := keys(
				s.Changes()); got != "-GitOpsDeployment acme/cart; ~ManagedEnvironment acme/edge" &&
				got != "~ManagedEnvironment acme/edge; -GitOpsDeployment acme/cart" {
				t.Errorf("when it is gone, changes are %s", got)
			}
			commit(t, c, s)
		})
	}
}

func TestAnAutonomousEnvironmentIsReachedByNothing(t *testing.T) {
	c := New()
	good(t, c, append(acme(), deploymentWith("acme/cart", selector("tier", "prod")))...)
	s := c.Prepare([]Input{environment("acme/edge", behindAgent(fleet.AgentAutonomous))})
	if got := codes(
		s.Problems()); got != "GitOpsDeployment acme/cart spec.destination.environmentSelector "+
		"autonomous-environment" {
		t.Errorf("problems: %s", got)
	}
	commit(t, c, s)
	edge := fleet.EnvironmentID{Tenant: "acme", Name: "edge"}
	if got := fmt.Sprint(c.Targets(fleet.DeploymentID{Tenant: "acme", Name: "cart"}),
		c.DeploymentsIn(edge), c.Used("acme").Applications); got != "[acme/prod] [] 3" {
		t.Errorf("targets, deployments there, Applications in use: %s", got)
	}
	s = c.Prepare([]Input{environment("acme/edge", behindAgent(fleet.AgentManaged))})
	if got := fmt.Sprint(s.Cleared(), s.Targets(fleet.DeploymentID{Tenant: "acme", Name: "cart"}),
		s.Used(
			"acme").Applications); got != "[GitOpsDeployment acme/cart] [acme/edge acme/prod] 4" {
		t.Errorf("managed, it clears and reaches %s", got)
	}
	commit(t, c, s)
}

func TestAnAgentsNamespacesOfApplicationsAreNotArgoCDsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		agent fleet.AgentSpec
		want  string
	}{
		"another one": {fleet.AgentSpec{ApplicationNamespaces: []string{"apps"}}, ""},
		"its own": {fleet.AgentSpec{ArgoCDNamespace: "gitops",
			ApplicationNamespaces: []string{"apps", "gitops"}},
			"ManagedEnvironment acme/edge spec.agent.applicationNamespaces[1] " +
				"application-namespace"},
		"of an autonomous cluster": {fleet.AgentSpec{Mode: fleet.AgentAutonomous,
			ApplicationNamespaces: []string{"apps"}}, "ManagedEnvironment acme/edge " +
			"spec.agent.applicationNamespaces application-namespace"},
	} {
		c0 := New()
		good(t, c0, acme()...)
		s := c0.Prepare([]Input{environment("acme/edge", func(d *fleet.Declaration) {
			d.Environment.Cluster, d.Environment.Agent = nil, &c.agent
		})})
		if got := codes(s.Problems()); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
