package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// moves begins a move of acme/prod from eu-1 to far-1, behind an agent.
func (k *agentKit) moves(to fleet.EngineName) (operation string) {
	k.t.Helper()
	request := mirror.MoveRequest{Environment: prod, To: to, By: "token:ann"}
	request.Operation = must(k.Decisions.RequestMove(k.t.Context(), request))(k.t)
	leaves := application("eu-1", "acme", "c", "prod", "v1")
	arrives := leaves
	arrives.Key.Engine = to
	leaves.Unwanted, leaves.Deletion = true, fleet.DeletionOrphan
	k.record(func(r *mirror.Record) {
		r.Rows = []mirror.Row{leaves, arrives}
		r.Moves = []mirror.Move{{MoveRequest: request, From: "eu-1",
			Applications: []fleet.ApplicationID{leaves.Application()}}}
	})
	return request.Operation
}

func TestAnAgentReadsTheMovesOfItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	far := k.open(k.join("far-1", "f"), "one")
	k.open(k.join(acmeEdge, "a"), "one")
	before := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	k.moves("far-1")
	got := must(k.Agents.AgentMoves(ctx, "far-1"))(t)
	if len(got.All) != 1 || got.All[0].Step != mirror.MoveCheck || got.All[0].To != "far-1" ||
		got.Rows <= before.Seq || got.Life != before.Life {
		t.Fatalf("%+v", got)
	}
	if other := must(k.Agents.AgentMoves(ctx, acmeEdge))(t); len(other.All) != 0 {
		t.Errorf("acme.edge gets %+v", other)
	}
	news := must(k.Agents.AgentNews(ctx, before.Seq, before.Now))(t)
	if !slices.Equal(news.Moves, []fleet.EngineName{"far-1"}) || len(before.Moves) != 0 {
		t.Errorf("news of moves: %v, before %v", news.Moves, before.Moves)
	}
	var arrives mirror.Row
	_, err := k.Agents.AgentRows(ctx, "far-1", func(r mirror.Row) error {
		if r.Deployment == "c" {
			arrives = r
		} else if r.Moving {
			t.Errorf("%s moves", r.Key.Name)
		}
		return nil
	})
	if check(t, err); !arrives.Moving {
		t.Error("the row of an Application that arrives is sent as any other")
	}
	// without the query's own condition
	conn := connect(t, k.url)
	defer conn.Close(ctx)
	for engine, want := range map[string]int{"far-1": 1, "acme.edge": 0, "": 0} {
		tx := must(conn.Begin(ctx))(t)
		_, err := tx.Exec(ctx, `SELECT set_config('argosy.engine', $1, true)`, engine)
		check(t, err)
		_, err = tx.Exec(ctx, `SET LOCAL ROLE argosy_agent`)
		check(t, err)
		var n int
		check(t, tx.QueryRow(ctx, `SELECT count(*) FROM application_moves`).Scan(&n))
		if n != want {
			t.Errorf("%q sees %d moves, want %d", engine, n, want)
		}
		check(t, tx.Rollback(ctx))
	}
	// the lease of its engine is what lets an agent end a step
	m := got.All[0]
	old := hold(t, k.Store, "engine/eu-1")
	m.Departure.UID = "u"
	check(t, k.Work.AdvanceMove(ctx, old, m, mirror.MoveCompare, mirror.Row{}))
	m = must(k.Agents.AgentMoves(ctx, "far-1"))(t).All[0]
	if m.At() != "far-1" || m.Departure.UID != "u" {
		t.Fatalf("%+v", m)
	}
	_, moves, err := k.Work.ApplicationMove(ctx, far.Lease, m.Application)
	if err != nil || !moves {
		t.Errorf("%v %v", moves, err)
	}
	check(t, k.Work.AdvanceMove(ctx, far.Lease, m, mirror.MoveReady, arrives))
	if m = must(k.Agents.AgentMoves(ctx, "far-1"))(t).All[0]; m.Step != mirror.MoveFreeze {
		t.Errorf("%+v", m)
	}
}

func TestAMoveNeedsAgentsThatKnowItsSteps(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	k.exec(`INSERT INTO placements (tenant, environment, engine, applications, body)
		VALUES ('acme', 'prod', 'eu-1', 1, '{}') ON CONFLICT (tenant, environment) DO UPDATE SET engine = 'eu-1'`)
	request := mirror.MoveRequest{Environment: prod, To: "far-1"}
	unfit := func() string {
		return strings.Join(must(k.Plans.UnfitAgents(ctx, request))(t), "; ")
	}
	if why := unfit(); !strings.Contains(
		why, "engine far-1 is behind an agent, and none has joined") {
		t.Errorf("without an agent: %q", why)
	}
	far := k.join("far-1", "f")
	old := session(far, "one")
	old.Protocol = agent.ProtocolMoves - 1
	must(k.Agents.OpenAgent(ctx, old))(t)
	if why := unfit(); !strings.Contains(why, "version v1.1.0) does not know the steps of a move: "+
		"upgrade it") {
		t.Errorf("with an earlier agent: %q", why)
	}
	fresh := session(far, "two")
	fresh.Protocol = agent.ProtocolMoves
	must(k.Agents.OpenAgent(ctx, fresh))(t)
	if why := unfit(); why != "" {
		t.Errorf("with a fit agent: %q", why)
	}
	if request.To = "eu-2"; unfit() != "" {
		t.Errorf("between engines that Argosy reaches: %q", unfit())
	}
	k.exec(`UPDATE placements SET engine = 'far-1'`)
	must(k.Agents.OpenAgent(ctx, withNewProof(old)))(t)
	if why := unfit(); !strings.Contains(why, "engine far-1") {
		t.Errorf("away from an earlier agent: %q", why)
	}
}

// Only the engine records why a step waits: while it is silent, the list shows that.
func TestAMoveShowsTheEngineThatIsSilent(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	k.moves("far-1")
	k.exec(
		`INSERT INTO engines (engine, reachable, message, since) VALUES ('eu-1', false, 'no route', now() - interval '1 hour')
		ON CONFLICT (engine) DO UPDATE SET reachable = false, since = excluded.since`)
	all, _, err := k.Views.Moves(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 10})
	check(t, err)
	if len(all) != 1 || len(all[0].Applications) != 1 || !strings.HasPrefix(
		all[0].Applications[0].Message, "engine eu-1 does not answer since 20") {
		t.Errorf("%+v", all)
	}
}
