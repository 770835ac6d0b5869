package catalog

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// byTeam is a deployment whose path needs a label of each environment.
func byTeam(id string, edits ...edit) Input {
	return deploymentWith(id, append([]edit{func(d *fleet.Declaration) {
		d.Deployment.Source.Path = "apps/${environment.labels.team}"
	}}, edits...)...)
}

func ofTeam(id, team string, labels ...string) Input {
	return environment(id, func(d *fleet.Declaration) {
		d.Labels = map[string]string{"tier": "prod"}
		if team != "" {
			d.Labels["team"] = team
		}
		for i := 0; i < len(labels); i += 2 {
			d.Labels[labels[i]] = labels[i+1]
		}
	})
}

// verdict prepares inputs and returns the errors and the changes.
func verdict(c *Catalog, in ...Input) string {
	s := c.Prepare(in)
	got := codes(onlyErrors(s.Problems())) + " / " + keys(s.Changes())
	s.Commit()
	return got
}

func TestAVariableHasAValueInEachEnvironment(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), ofTeam("acme/prod", "web"),
		ofTeam("acme/staging", ""))
	named := byTeam("acme/shop", func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod", "staging"}
	})
	if got, want := verdict(c, named), "GitOpsDeployment acme/shop spec.source.path "+
		"unresolved-variable / "; got != want {
		t.Errorf("a named environment without the label: %s", got)
	}
	selected := byTeam("acme/cart", selector("tier", "prod"))
	if got, want := verdict(c, selected), "GitOpsDeployment acme/cart spec.source.path "+
		"unresolved-variable / "; got != want {
		t.Errorf("a selected environment without the label: %s", got)
	}
	if got, want := verdict(c, ofTeam("acme/staging", "qa")), " / ~ManagedEnvironment "+
		"acme/staging; +GitOpsDeployment acme/cart; +GitOpsDeployment acme/shop"; got != want {
		t.Errorf("when the environment gets the label: %s", got)
	}
	consistent(t, c)
}

func TestAnEnvironmentKeepsTheVariablesThatItsDeploymentsNeed(t *testing.T) {
	with := func(variables map[string]string) Input {
		return environment("acme/prod", func(d *fleet.Declaration) {
			d.Environment.Variables = variables
		})
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), with(map[string]string{"zone": "a"}),
		deploymentWith("acme/shop", func(d *fleet.Declaration) {
			d.Deployment.Source.Path = "apps/${environment.variables.zone}"
			d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod"}
		}))
	for what, variables := range map[string]map[string]string{"none": nil,
		"one that is no part of a path": {"zone": "a:b"}} {
		if got, want := verdict(c, with(variables)), "ManagedEnvironment acme/prod "+
			"spec.variables variable-in-use / "; got != want {
			t.Errorf("%s: %s", what, got)
		}
	}
	consistent(t, c)
}

func TestAnEnvironmentKeepsTheLabelsThatItsDeploymentsNeed(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), ofTeam("acme/prod", "web"),
		byTeam("acme/cart", selector("tier", "prod")))
	for name, in := range map[string]Input{
		"loses the label": ofTeam("acme/prod", ""),
		"gets a label that is no part of a path": remake(ofTeam("acme/prod", "web"),
			func(d *fleet.Declaration) { d.Labels["team"] = ".." }),
	} {
		s := c.Prepare([]Input{in})
		got := codes(onlyErrors(s.Problems())) + " / " + keys(s.Changes())
		if want := "ManagedEnvironment acme/prod metadata.labels variable-in-use / "; got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	s := c.Prepare([]Input{ofTeam("acme/new", "")})
	if got, want := codes(onlyErrors(s.Problems()))+" / "+keys(s.Changes()),
		"ManagedEnvironment acme/new metadata.labels variable-in-use / "; got != want {
		t.Errorf("a new environment without the label: %s", got)
	}
	// in one commit with the deployment that no longer needs it
	if got, want := verdict(c, ofTeam("acme/prod", ""), deploymentWith("acme/cart",
		selector("tier", "prod"))), " / ~ManagedEnvironment acme/prod; "+
		"~GitOpsDeployment acme/cart"; got != want {
		t.Errorf("in one commit: %s", got)
	}
	consistent(t, c)
}

func TestANamespaceOfAnOverrideIsGrantedAsAnother(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), ofTeam("acme/prod", "shop"),
		ofTeam("acme/staging", "other", "zone", "a"))
	deploys := func(namespace string, to ...edit) Input {
		return deploymentWith("acme/cart", append([]edit{func(d *fleet.Declaration) {
			d.Deployment.Overrides = []fleet.Override{{Namespace: namespace,
				Selector: &fleet.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}}}
		}}, to...)...)
	}
	named := func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod", "staging"}
	}
	s := c.Prepare([]Input{deploys("${environment.labels.team}", named)})
	if got, want := codes(onlyErrors(s.Problems())), "GitOpsDeployment acme/cart "+
		"spec.overrides[0].namespace namespace-not-in-environment"; got != want {
		t.Errorf("a named environment: %s", got)
	}
	if p := s.Problems()[0]; !strings.Contains(p.Message, `"staging" has no namespace "other"`) {
		t.Errorf("message %q", p.Message)
	}
	s = c.Prepare([]Input{deploys("other", selector("tier", "prod"))})
	if got := codes(s.Problems()); got != "GitOpsDeployment acme/cart "+
		"spec.overrides[0].namespace namespace-not-in-environment; GitOpsDeployment acme/cart "+
		"spec.overrides[0].selector unused-override" || len(onlyErrors(
		s.Problems())) > 0 || len(s.Targets(fleet.DeploymentID{Tenant: "acme",
		Name: "cart"})) != 1 {
		t.Errorf("a selected environment: %v", s.Problems())
	}
	good(t, c, deploys("shop", named))
	narrow := func(in Input) Input {
		return remake(in, func(d *fleet.Declaration) { d.Environment.Namespaces = []string{"web"} })
	}
	if got, want := verdict(c, narrow(ofTeam("acme/staging", "other", "zone", "a"))),
		"ManagedEnvironment acme/staging spec.namespaces namespace-in-use / "; got != want {
		t.Errorf("the namespace of an override is dropped: %s", got)
	}
	if got, want := verdict(c, narrow(ofTeam("acme/prod", "shop", "zone", "a"))),
		"ManagedEnvironment acme/prod metadata.labels namespace-in-use / "; got != want {
		t.Errorf("labels move a deployment to a namespace that the environment has not: %s", got)
	}
	consistent(t, c)
}

func TestAnOverrideThatMatchesNothingIsReported(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	s := c.Prepare([]Input{deploymentWith("acme/cart", func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod"}
		d.Deployment.Overrides = []fleet.Override{{Namespace: "shop",
			Selector: &fleet.LabelSelector{MatchLabels: map[string]string{"tier": "test"}}}}
	})})
	if got, want := codes(s.Problems()), "GitOpsDeployment acme/cart spec.overrides[0].selector "+
		"unused-override"; got != want || len(onlyErrors(s.Problems())) > 0 {
		t.Errorf("%v", s.Problems())
	}
}

func TestAnOverrideOfSyncNeedsTheTenantsGrant(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	yes := true
	s := c.Prepare([]Input{deploymentWith("acme/cart", func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod"}
		d.Deployment.Overrides = []fleet.Override{{Environment: "prod",
			Sync: fleet.SyncSettings{Replace: &yes}}}
	})})
	if got, want := codes(onlyErrors(s.Problems())), "GitOpsDeployment acme/cart "+
		"spec.overrides[0].sync.replace replace-not-granted"; got != want {
		t.Error(got)
	}
}
