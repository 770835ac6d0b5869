package postgres_test

import (
	"context"
	"errors"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

func (k *agentKit) exec(sql string) {
	k.t.Helper()
	check(k.t, stack.ExecSQL(context.Background(), k.url, "SET search_path = argosy; "+sql))
}

// row is one row of the engine.
func (k *agentKit) row(engine fleet.EngineName) (row mirror.Row) {
	k.t.Helper()
	rows := must(k.Work.Changed(k.t.Context(), engine, 0, 1))(k.t)
	return rows[0]
}

func (k *agentKit) life() string {
	k.t.Helper()
	return must(k.Mirror(k.t.Context()))(k.t).Life
}

// A sequence number from before the database went back is given again, to another version of the
// object.
func TestAnAcknowledgementIsOfTheContentThatItNames(t *testing.T) {
	k := newAgentKit(t)
	lease := k.open(k.join(acmeEdge, "one"), "p1").Lease
	row := k.row(acmeEdge)
	ack := mirror.Ack{Key: row.Key, Seq: row.Seq, State: mirror.ApplyApplied,
		Hash: "content of the number before the restore"}
	check(t, k.Work.Acknowledge(t.Context(), lease, []mirror.Ack{ack}))
	if now := k.row(acmeEdge); now.Apply != mirror.ApplyPending {
		t.Errorf("another content is acknowledged: %s", now.Apply)
	}
	ack.Hash = row.Manifest.Hash
	check(t, k.Work.Acknowledge(t.Context(), lease, []mirror.Ack{ack}))
	if now := k.row(acmeEdge); now.Apply != mirror.ApplyApplied {
		t.Errorf("its own content is not: %s", now.Apply)
	}
	k.exec("UPDATE desired SET absent = true")
	ack.Removed, ack.Hash = true, "content of the number before the restore"
	check(t, k.Work.Acknowledge(t.Context(), lease, []mirror.Ack{ack}))
	if now := k.row(acmeEdge); now.Key != row.Key {
		t.Error("a row is gone for the removal of another content")
	}
}

func TestAnAgentOfAnotherIncarnationReadsItsRowsAgainOnceConfirmed(t *testing.T) {
	k := newAgentKit(t)
	a := k.join(acmeEdge, "one")
	first := k.open(a, "p1")
	if again := k.open(a, "p1"); again.Lease.Epoch != first.Lease.Epoch || again.Stale {
		t.Fatalf("in the same incarnation: %+v", again)
	}
	k.exec("UPDATE mirror SET life = gen_random_uuid()")
	unconfirmed := k.open(a, "p1")
	if unconfirmed.Lease.Epoch != first.Lease.Epoch || !unconfirmed.Stale ||
		unconfirmed.Lease.Life != k.life() {
		t.Errorf("before the rows are confirmed: %+v", unconfirmed)
	}
	row := k.row(acmeEdge) // as an agent of an earlier version acknowledges: by number alone
	check(t, k.Work.Acknowledge(t.Context(), mirror.Lease{Name: first.Lease.Name,
		Holder: first.Lease.Holder, Epoch: first.Lease.Epoch},
		[]mirror.Ack{{Key: row.Key, Seq: row.Seq, State: mirror.ApplyApplied}}))
	if now := k.row(acmeEdge); now.Apply != mirror.ApplyPending {
		t.Errorf("a number of another incarnation is acknowledged: %s", now.Apply)
	}
	of := session(a, "p1")
	of.Confirmed = k.life()
	confirmed := must(k.Agents.OpenAgent(t.Context(), of))(t)
	if confirmed.Lease.Epoch <= first.Lease.Epoch || confirmed.Stale {
		t.Errorf("once they are: %+v", confirmed)
	}
	of = withNewProof(of)
	if again := must(k.Agents.OpenAgent(t.Context(), of))(
		t); again.Lease.Epoch != confirmed.Lease.Epoch ||
		again.Stale {
		t.Errorf("and again: %+v", again)
	}
}

// The database was restored from before the agent's last sessions, and has a lower epoch than the
// agent, or none.
func TestAReportUnderAnEpochThatTheDatabaseLostEndsNoAgent(t *testing.T) {
	k := newAgentKit(t)
	a := k.join(acmeEdge, "one")
	k.open(a, "p1")
	k.open(a, "p2")
	had := k.open(a, "p3").Lease
	k.exec("UPDATE leases SET epoch = 1, holder = 'agent/" + a.ID +
		"/p1', life = '' WHERE name = 'engine/acme.edge'; UPDATE mirror SET life = " +
		"gen_random_uuid()")
	if _, err := k.Agents.TakeReport(t.Context(), had, 1); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a report: %v; the agent has to open a session, not to end", err)
	}
	of := session(a, "p3")
	of.Floor = had.Epoch - 1
	if o := must(k.Agents.OpenAgent(t.Context(), of))(t); !o.Stale || o.Lease.Epoch != had.Epoch {
		t.Errorf("before the rows are confirmed: %+v", o)
	}
	of = withNewProof(of)
	of.Confirmed = k.life()
	if o := must(k.Agents.OpenAgent(t.Context(), of))(t); o.Stale || o.Lease.Epoch <= had.Epoch {
		t.Errorf("once they are: %+v, which the agent takes for the session that it had (epoch %d)",
			o, had.Epoch)
	}
}

// A dump that is restored into the same database contains every value.
func TestARestoredTableIsAnotherIncarnation(t *testing.T) {
	k := newAgentKit(t)
	before := k.life()
	k.exec(
		"CREATE TEMPORARY TABLE kept AS SELECT * FROM mirror; TRUNCATE mirror; INSERT INTO " +
			"mirror SELECT * FROM kept")
	if k.life() == before {
		t.Errorf("the incarnation is still %s", before)
	}
	was := k.life()
	check(t, k.Agents.BeginLife(t.Context(), before))
	if k.life() != was {
		t.Error("an ended incarnation was replaced again")
	}
	check(t, k.Agents.BeginLife(t.Context(), was))
	if k.life() == was {
		t.Error("no other incarnation was begun")
	}
}
