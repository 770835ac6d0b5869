package forge_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

func TestWhatIsDoneAboutThePullRequestOfRollbacks(t *testing.T) {
	id := fleet.DeploymentID{Tenant: "acme", Name: "shop"}
	one := []forge.Rollback{{Environment: "prod", Operation: "op-1", Revision: "v1"}}
	two := append([]forge.Rollback{{Environment: "dev", Operation: "op-2", Revision: "v1"}}, one...)
	open := forge.Lasting{State: forge.LastingOpen, Covers: []string{"op-1"}, Blob: "b", Due: true}
	with := func(l forge.Lasting, change func(*forge.Lasting)) forge.Lasting {
		l.Deployment, l.Rollbacks = id, one
		change(&l)
		return l
	}
	for name, c := range map[string]struct {
		l    forge.Lasting
		want forge.LastingStep
	}{
		"a rollback": {forge.Lasting{Rollbacks: one, Due: true}, forge.LastingPropose},
		"a rollback whose revision is not known any more": {forge.Lasting{Due: true,
			Rollbacks: []forge.Rollback{{Operation: "op-1"}}}, forge.LastingKeep},
		"nothing new": {with(open, func(*forge.Lasting) {}), forge.LastingKeep},
		"another rollback": {with(open, func(l *forge.Lasting) {
			l.Rollbacks = two
		}), forge.LastingPropose},
		"another file": {with(open, func(l *forge.Lasting) { l.Blob = "a" }), forge.LastingPropose},
		"another file, not due": {with(open, func(l *forge.Lasting) {
			l.Blob, l.Due = "a", false
		}), forge.LastingKeep},
		"the rollback has ended": {with(open, func(l *forge.Lasting) {
			l.Rollbacks = nil
		}), forge.LastingWithdraw},
		"merged, the rollback lasts": {with(open, func(l *forge.Lasting) {
			l.Pull = forge.PullMerged
		}), forge.LastingEnd},
		"merged, not due": {with(open, func(l *forge.Lasting) {
			l.Pull, l.Due = forge.PullMerged, false
		}), forge.LastingEnd},
		"closed before": {with(open, func(l *forge.Lasting) {
			l.State = forge.LastingClosed
		}), forge.LastingKeep},
		"closed before, and another rollback": {with(open, func(l *forge.Lasting) {
			l.State, l.Rollbacks = forge.LastingClosed, two
		}), forge.LastingPropose},
		"closed for two, of which one has ended": {with(open, func(l *forge.Lasting) {
			l.State, l.Covers = forge.LastingClosed, []string{"op-2", "op-1"}
		}), forge.LastingKeep},
		"impossible": {with(open, func(l *forge.Lasting) {
			l.State = forge.LastingImpossible
		}), forge.LastingKeep},
		"impossible, and another file": {with(open, func(l *forge.Lasting) {
			l.State, l.Blob = forge.LastingImpossible, "a"
		}), forge.LastingPropose},
		"closed, and the rollback has ended": {with(open, func(l *forge.Lasting) {
			l.State, l.Rollbacks = forge.LastingClosed, nil
		}), forge.LastingKeep},
	} {
		if got := c.l.Next("b"); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}

	first := forge.Lasting{Deployment: id, Rollbacks: one}.Begin("b")
	if first.Branch != "argosy-rollback-acme-shop-op-1" {
		t.Errorf("the branch is %s", first.Branch)
	}
	first.State, first.Proposed, first.Rollbacks = forge.LastingOpen, forge.Proposed{Number: 7}, two
	if again := first.Begin("c"); again.Branch != first.Branch || again.Proposed.Number != 7 ||
		again.Blob != "c" || len(again.Covers) != 2 {
		t.Errorf("changed, it is %+v", again)
	}
	first.State = forge.LastingClosed
	if next := first.Begin("c"); next.Branch != "argosy-rollback-acme-shop-op-2" ||
		next.Proposed.Number != 0 {
		t.Errorf("its successor is %+v", next)
	}
}
