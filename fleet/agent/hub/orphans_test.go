package hub

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAnAgentsOrphansBelongToItsOwnEngineAndTenant(t *testing.T) {
	o := newHouse(t)
	d := o.device("acme.edge", "acme")
	epoch := d.open()
	send := func(seq int64, listed ...agent.Orphan) {
		t.Helper()
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq, Status: &agent.AgentStatus{
			Listed: append([]agent.Orphan{}, listed...)}}); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	app := func(name, uid string) agent.Orphan {
		return agent.Orphan{Kind: fleet.ObjectApplication, Name: name, Tenant: "globex", UID: uid}
	}
	send(1, app("one", "u1"), app("no-uid", ""), app("a/path", "u2"), agent.Orphan{
		Kind: "Secret", Name: "other", UID: "u3"})
	key := fleet.ObjectKey{Engine: "acme.edge", Kind: fleet.ObjectApplication, Name: "one"}
	if got := o.store.orphans; len(got) != 1 || got[key].Tenant != "acme" || got[key].UID != "u1" {
		t.Errorf("listed: %+v", got)
	}
	send(2, app("two", "u4"))
	if _, there := o.store.orphans[key]; there || len(o.store.orphans) != 1 {
		t.Errorf("a deleted orphan is listed: %+v", o.store.orphans)
	}
	if w := d.report(agent.Report{Epoch: epoch, Seq: 3,
		Status: &agent.AgentStatus{}}); w.Code != 204 || len(o.store.orphans) != 1 {
		t.Errorf("an agent without a list removes orphans: %+v", o.store.orphans)
	}
}

// An earlier agent would remove any object of that name. It does not know this operation and leaves
// the object alone.
func TestTheRemovalOfOneUIDIsAnOperationOfItsOwn(t *testing.T) {
	row := mirror.Row{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}, Unwanted: true, UID: "u1"}
	if got := wireRow(row); got.Operation == agent.OperationRemove || got.UID != "u1" {
		t.Errorf("%+v", got)
	}
}
