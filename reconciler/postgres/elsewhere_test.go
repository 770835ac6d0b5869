package postgres_test

import (
	"errors"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAnEngineThatWasNotReadSinceARestoreMayHaveAnApplication(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	row := application("eu-1", "acme", "a", "prod", "v1")
	s, loop, _, _ := recorded(t, url, row)
	declare := func(n int, name string, connection fleet.Connection) {
		t.Helper()
		must(s.Plans.Record(t.Context(), loop, step(n, n+1, func(r *mirror.Record) {
			r.PlanHash = name
			r.Declarations = []fleet.Declaration{{
				Key:    fleet.Key{Kind: fleet.KindEngine, Name: name},
				Engine: &fleet.EngineSpec{Connection: connection}}}
		})))(t)
	}
	elsewhere := func(when string, want mirror.Elsewhere) {
		t.Helper()
		if got := must(s.Work.Elsewhere(t.Context(), row.Key))(t); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	push, agent := fleet.Connection{InCluster: true}, fleet.Connection{
		Agent: &fleet.AgentConnection{}}
	declare(1, "eu-2", push)
	elsewhere("declared before the rows are confirmed", mirror.Elsewhere{Unread: "eu-2"})
	worker := hold(t, s, "engine/eu-2")
	check(t, s.Work.ReportInventory(t.Context(), worker))
	elsewhere("read", mirror.Elsewhere{})
	at := must(s.Plans.Mirror(t.Context()))(t)
	if !must(s.Plans.Confirm(t.Context(), loop, at))(t) {
		t.Fatal("not confirmed")
	}
	declare(2, "eu-3", push)
	elsewhere("declared later", mirror.Elsewhere{})

	exec(t, url, `UPDATE mirror SET life = gen_random_uuid()`)
	elsewhere("after a restore", mirror.Elsewhere{Unread: "eu-2"})
	outrun := worker
	outrun.Epoch--
	if err := s.Work.ReportInventory(t.Context(), outrun); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("without the lease: %v", err)
	}
	exec(t, url, `UPDATE leases SET expires_at = '-infinity'`)
	loop = hold(t, s, "reconciler")
	declare(3, "eu-2", agent)
	elsewhere("an agent's engine", mirror.Elsewhere{Unread: "eu-3"})
	exec(t, url, `DELETE FROM declarations WHERE kind = 'Engine' AND name = 'eu-3'`)
	elsewhere("not declared any more", mirror.Elsewhere{})
	exec(t, url, `INSERT INTO strays (engine, kind, name, tenant, environment, deployment, uid, revision, epoch, found_at)
		VALUES ('eu-3', 'Application', '`+row.Key.Name+`', 'acme', 'prod', 'a', 'u', '', 1, now())`)
	elsewhere("an orphan", mirror.Elsewhere{Found: "eu-3"})
	exec(t, url, `INSERT INTO evacuations (engine, operation, state, by) VALUES ('eu-3', 'o', 'Moved', 'token:ann')`)
	elsewhere("on an evacuated engine", mirror.Elsewhere{})
}
