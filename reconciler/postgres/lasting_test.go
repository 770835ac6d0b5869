package postgres_test

import (
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
)

func TestThePullRequestOfRollbacksFollowsThem(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, _, _, _ := recorded(t, url, a)
	only := func() forge.Lasting {
		t.Helper()
		all := must(s.Pulls.Lasting(t.Context()))(t)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if all := must(s.Pulls.Lasting(t.Context()))(t); len(all) != 0 {
		t.Errorf("without a rollback: %+v", all)
	}
	hold := func(environment, operation string) {
		exec(t, url, `INSERT INTO sync_holds (tenant, deployment, environment, sync_run, target_revision)
			VALUES ('acme', 'a', $1, 'rollback-' || $2, 'v1')`, environment, operation)
	}
	exec(t, url, `INSERT INTO sync_holds (tenant, deployment, environment, sync_run, target_revision)
		VALUES ('acme', 'b', 'prod', 'a-sync', 'v1')`)
	exec(t, url, `INSERT INTO actions (id, request, kind, engine, name, tenant, tenant_uid, environment, deployment, options, by, note)
		VALUES ('op1', 'r', 'rollback', 'eu-1', 'x', 'acme', live_tenant('acme'), 'prod', 'a', '{"revision": "v0"}', 'token:ops', 'faulty')`)
	hold("prod", "op1")
	hold("dev", "gone")
	l := only()
	want := []forge.Rollback{{Environment: "dev", Operation: "gone"}, {Environment: "prod",
		Operation: "op1", Revision: "v0", By: "token:ops", Note: "faulty"}}
	if l.Deployment.String() != "acme/a" || !slices.Equal(l.Rollbacks, want) || !l.Due ||
		l.Pull != "" || l.State != forge.LastingNone {
		t.Errorf("%+v", l)
	}
	exec(t, url, `DELETE FROM sync_holds WHERE environment = 'dev'`)
	l = only().Begin("blob")
	l.Proposed = forge.Proposed{Number: 7, URL: "https://git.example.com/7"}
	l.State, l.Message, l.Attempts = forge.LastingOpen, "busy", 2
	check(t, s.Pulls.SaveLasting(t.Context(), l, time.Hour))
	exec(t, url, `INSERT INTO pulls (number, state, head, settled, tenants, tenant_uids, body)
		VALUES (7, 'open', '', false, '{}', '{}', '{}')`)
	got := only()
	if got.Due || got.Pull != forge.PullOpen || got.State != forge.LastingOpen ||
		got.Branch != l.Branch || got.Proposed != l.Proposed || got.Blob != "blob" ||
		got.Attempts != 2 || got.Message != "busy" || !slices.Equal(got.Covers, []string{"op1"}) {
		t.Errorf("%+v", got)
	}

	exec(t, url, `UPDATE desired SET body = convert_to('{"metadata": {"annotations": {"argosy.dev/hold": "rollback-op1"}}}', 'UTF8')`)
	shown := func(scope view.Scope) *view.RollbackPull {
		t.Helper()
		all, _, err := s.Views.Applications(t.Context(), scope, view.Filter{}, view.Page{Limit: 10})
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].RollbackPull
	}
	for _, scope := range []view.Scope{{}, {Tenant: "acme"}} {
		if p := shown(scope); p == nil || p.Number != 7 || p.State != forge.LastingOpen ||
			p.URL != l.Proposed.URL {
			t.Errorf("shown to %q: %+v", scope.Tenant, p)
		}
	}
	exec(t, url, `UPDATE lasting_rollbacks SET covers = '{another}'`)
	if p := shown(view.Scope{}); p != nil {
		t.Errorf("the pull request of another rollback is shown: %+v", p)
	}

	exec(t, url, `DELETE FROM sync_holds`)
	if l := only(); len(l.Rollbacks) != 0 || l.State != forge.LastingOpen {
		t.Errorf("%+v", l)
	}
	l.State = forge.LastingClosed
	check(t, s.Pulls.SaveLasting(t.Context(), l, 0))
	if all := must(s.Pulls.Lasting(t.Context()))(t); len(all) != 0 {
		t.Errorf("closed, and no rollback is in force: %+v", all)
	}
}
