package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAGoodCommitTakesEffect(t *testing.T) {
	c := New()
	s := good(t, c, acme()...)
	if n := len(s.Changes()); n != 6 {
		t.Errorf("%d changes: %s", n, keys(s.Changes()))
	}
	id := fleet.DeploymentID{Tenant: "acme", Name: "shop"}
	if got := fmt.Sprint(c.Targets(id)); got != "[acme/prod acme/staging]" {
		t.Errorf("targets are %s", got)
	}
	if got := fmt.Sprint(
		c.DeploymentsIn(fleet.EnvironmentID{Tenant: "acme", Name: "prod"})); got != "[acme/shop]" {
		t.Errorf("deployments in prod are %s", got)
	}
	want := fleet.Quota{Environments: 2, Deployments: 1, Applications: 2}
	if used := c.Used("acme"); used != want {
		t.Errorf("use is %+v", used)
	}
	if f := c.Fleet(); f.Guards.MaxDeletes != 20 || f.Defaults.Sync.Mode != fleet.SyncAutomated ||
		!*f.Defaults.Sync.Prune || *f.Defaults.Sync.CreateNamespace {
		t.Errorf("defaults are not resolved: %+v", f)
	}
	if again := c.Prepare(acme()); len(again.Changes()) > 0 || len(again.Problems()) > 0 {
		t.Errorf("the same commit again changes %s", keys(again.Changes()))
	}
}

func TestABadFileIsQuarantinedAloneAndKeepsItsLastGoodState(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	s := c.Prepare([]Input{broken(deployment("acme/shop")), deployment("acme/cart", "prod")})
	if got := keys(s.Changes()); got != "+GitOpsDeployment acme/cart" {
		t.Errorf("changes: %s", got)
	}
	if got := codes(s.Problems()); got != "GitOpsDeployment acme/shop syntax" {
		t.Errorf("problems: %s", got)
	}
	commit(t, c, s)
	q, held := c.Quarantine(deployment("acme/shop").Key)
	if !held || !q.HasLastGood || q.Declaration != nil ||
		len(c.Targets(fleet.DeploymentID{Tenant: "acme", Name: "shop"})) != 2 {
		t.Errorf("the last good state is lost: %+v", q)
	}
	s = c.Prepare([]Input{deployment("acme/shop", "prod")})
	if got := fmt.Sprint(s.Cleared()); got != "[GitOpsDeployment acme/shop]" {
		t.Errorf("cleared: %s", got)
	}
	commit(t, c, s)
}

func TestAnEnvironmentThatComesClearsTheDeploymentsThatMissedIt(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	s := c.Prepare([]Input{deployment("acme/cart", "stagin", "prod", "eu")})
	want :=
		"GitOpsDeployment acme/cart spec.destination.environments[0] unknown-environment; " +
			"GitOpsDeployment acme/cart spec.destination.environments[2] unknown-environment"
	if got := codes(s.Problems()); got != want {
		t.Errorf("problems: %s", got)
	}
	if fix := s.Problems()[0].Fix; !strings.Contains(fix, `did you mean "staging"`) {
		t.Errorf("fix: %s", fix)
	}
	commit(t, c, s)
	commit(t, c, c.Prepare([]Input{environment("acme/stagin")}))
	s = c.Prepare([]Input{environment("acme/eu")})
	if got := keys(s.Changes()); got != "+ManagedEnvironment acme/eu; +GitOpsDeployment acme/cart" {
		t.Errorf("changes: %s", got)
	}
	commit(t, c, s)
}
