package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/pushes"
)

// deployed is an Application that deploys a folder of a repository.
func deployed(engine, tenant, name, repository, folder, revision string) mirror.Row {
	row := application(engine, tenant, name, "prod", "v1")
	source, _ := json.Marshal(map[string]string{"repoURL": repository, "path": folder,
		"targetRevision": revision})
	row.Manifest = manifest(`{"spec":{"source":` + string(source) + `}}`)
	return row
}

// indexed brings the index up to date as the runner does.
func indexed(t *testing.T, s *postgres.Store) {
	t.Helper()
	for {
		from, objects, err := s.SourcePushes.UnwatchedObjects(t.Context(), 2)
		check(t, err)
		if len(objects) == 0 {
			return
		}
		var watches []mirror.SourceWatch
		for _, o := range objects {
			if !o.Gone {
				watches = append(watches, must(pushes.Watches(o))(t)...)
			}
		}
		if !must(s.SourcePushes.Watch(t.Context(), from, objects[len(objects)-1].Seq, objects,
			watches))(t) {
			t.Fatal("the index was not counted on")
		}
	}
}

// pushed stores a push and handles it, and returns the Applications with an open refresh.
func pushed(t *testing.T, s *postgres.Store, p mirror.SourcePush) (refreshed []string) {
	t.Helper()
	check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	indexed(t, s)
	waiting := must(s.SourcePushes.SourcePushes(t.Context(), 10))(t)
	for _, p := range waiting {
		must(s.SourcePushes.RequestRefreshes(t.Context(), p, pushes.Refs(p), pushes.Places(p)))(t)
	}
	for _, engine := range []fleet.EngineName{"eu-1", "us-1"} {
		for _, a := range must(s.Work.OpenActions(t.Context(), engine))(t) {
			refreshed = append(refreshed, fmt.Sprintf("%s %s", engine, a.Deployment))
			if a.Kind != mirror.ActionRefresh || a.Key.Engine != engine || a.By != "argosy" {
				t.Errorf("%+v", a)
			}
		}
	}
	slices.Sort(refreshed)
	return refreshed
}

const shop, shopSSH = "https://git.example.com/acme/shop", "ssh://git@git.example.com/acme/shop"

func TestAPushRefreshesTheApplicationsOfItsPlacesAndNoOther(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	reconciler := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), tenantDeclaration("globex")}
		r.Rows = []mirror.Row{
			deployed("eu-1", "acme", "cart", shop, "cart", "main"),
			deployed("us-1", "acme", "pay", shop+".git", "pay", "HEAD"),
			deployed("eu-1", "acme", "all", shop, ".", "refs/heads/main"),
			deployed("eu-1", "acme", "old", shop, "cart", "release"),
			deployed("eu-1", "acme", "tagged", shop, "cart", "v1.*"),
			deployed("eu-1", "globex", "cart", shop, "cart", "main"),
			deployed("eu-1", "acme", "other", shop+"-2", "cart", "main"),
		}
	})))(t)
	main := func(paths ...string) mirror.SourcePush {
		return mirror.SourcePush{Repositories: []string{"https://x.example.com/y", shop},
			Ref: "refs/heads/main", Default: true, Paths: paths, Tenant: "acme"}
	}
	for name, c := range map[string]struct {
		push mirror.SourcePush
		want []string
	}{
		"one folder":                 {main("cart/deep/a.yaml"), []string{"eu-1 all", "eu-1 cart"}},
		"a name that begins equally": {main("cart-2/a.yaml"), []string{"eu-1 all"}},
		"the default branch":         {main("pay/a.yaml"), []string{"eu-1 all", "us-1 pay"}},
		"files are not known":        {main(), []string{"eu-1 all", "eu-1 cart", "us-1 pay"}},
		"another spelling that no source has": {mirror.SourcePush{
			Repositories: []string{shopSSH}, Ref: "refs/heads/main"}, nil},
		"a tag": {mirror.SourcePush{Repositories: []string{shop}, Ref: "refs/tags/v1.4.0"},
			[]string{"eu-1 tagged"}},
		"the platform's delivery": {mirror.SourcePush{Repositories: []string{shop},
			Ref: "refs/heads/main", Paths: []string{"cart/a"}},
			[]string{"eu-1 all", "eu-1 cart", "eu-1 cart"}},
	} {
		if got := pushed(t, s, c.push); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		exec(t, url, `DELETE FROM source_refreshes`)
	}

	// it follows what is declared: another folder, and none
	must(s.Plans.Record(t.Context(), reconciler, step(1, 2, func(r *mirror.Record) {
		gone := deployed("eu-1", "acme", "all", shop, ".", "main")
		gone.Unwanted = true
		r.Rows = []mirror.Row{deployed("eu-1", "acme", "cart", shop, "moved", "main"), gone}
	})))(t)
	if got := pushed(t, s, main("cart/a.yaml")); len(got) != 0 {
		t.Errorf("after a change: %q", got)
	}
	if got := pushed(t, s, main("moved/a.yaml")); !slices.Equal(got, []string{"eu-1 cart"}) {
		t.Errorf("after a change: %q", got)
	}
	exec(t, url, `DELETE FROM desired WHERE name LIKE '%cart%'`)
	expect(t, url, `SELECT count(*) FROM source_watches WHERE name LIKE '%cart%'`, 0)
}

func TestAPushIsHandledOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, _ := recorded(t, url, deployed("eu-1", "acme", "cart", shop, "cart", "main"))
	p := mirror.SourcePush{Repositories: []string{shop}, Ref: "refs/heads/main"}
	check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	from, objects, err := s.SourcePushes.UnwatchedObjects(t.Context(), 10)
	check(t, err)
	watches := must(pushes.Watches(objects[0]))(t)
	for i, want := range []bool{true, false} {
		if got := must(s.SourcePushes.Watch(t.Context(), from, objects[0].Seq, objects, watches))(
			t); got != want {
			t.Errorf("index %d: %v", i, got)
		}
	}
	waiting := must(s.SourcePushes.SourcePushes(t.Context(), 10))(t)
	for i, want := range []int{1, 0} {
		if n := must(s.SourcePushes.RequestRefreshes(t.Context(), waiting[0], pushes.Refs(p),
			nil))(t); n != want {
			t.Errorf("request %d: %d refreshes", i, n)
		}
	}

	// A push while a refresh is open leads to one more: what began may have read before it.
	life := ""
	ids := func() (all []string) {
		for _, a := range must(s.Work.OpenActions(t.Context(), "eu-1"))(t) {
			parts := strings.Split(a.ID, "-")
			life = parts[1]
			all = append(all, "push-"+parts[2]+" "+string(a.State))
		}
		return all
	}
	pushed(t, s, p)
	pushed(t, s, p)
	if got := ids(); !slices.Equal(got, []string{"push-1 Pending", "push-3 Pending"}) {
		t.Errorf("three pushes: %q", got)
	}
	update := func(lease mirror.Lease, id string, state mirror.OperationState) {
		t.Helper()
		check(t, s.Work.UpdateAction(t.Context(), lease, mirror.ActionUpdate{
			ID: strings.Replace(id, "-", "-"+life+"-", 1), State: state, Message: "as it is"}))
	}
	update(worker, "push-1", mirror.OperationPending)
	update(worker, "push-1", mirror.OperationRunning)
	pushed(t, s, p)
	if got := ids(); !slices.Equal(got, []string{"push-1 Running", "push-4 Pending"}) {
		t.Errorf("one runs: %q", got)
	}
	update(hold(t, s, "engine/us-1"), "push-1", mirror.OperationSucceeded)
	update(worker, "push-1", mirror.OperationSucceeded)
	update(worker, "push-2", mirror.OperationFailed)
	if got := ids(); !slices.Equal(got, []string{"push-4 Pending"}) {
		t.Errorf("one has ended: %q", got)
	}
	old := worker
	old.Epoch--
	check(t, s.Work.UpdateAction(t.Context(), worker, mirror.ActionUpdate{ID: "push-anotherlife-4",
		State: mirror.OperationSucceeded}))
	if got := ids(); !slices.Equal(got, []string{"push-4 Pending"}) {
		t.Errorf("a report from before a restore: %q", got)
	}
	if err := s.Work.UpdateAction(t.Context(), old, mirror.ActionUpdate{ID: "push-" + life + "-4",
		State: mirror.OperationSucceeded}); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("with a lease of before: %v", err)
	}
	exec(t, url, `UPDATE source_refreshes SET requested_at = now() - interval '11 minutes'`)
	if open := must(s.Work.OpenActions(t.Context(), "eu-1"))(t); len(open) != 1 || !open[0].Late {
		t.Errorf("late: %+v", open)
	}
	exec(t, url, `UPDATE source_refreshes SET requested_at = now() - interval '21 minutes'`)
	check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	exec(t, url, `UPDATE source_pushes SET at = now() - interval '61 minutes'`)
	check(t, s.SourcePushes.ExpireSourcePushes(t.Context()))
	expect(t, url, `SELECT (SELECT count(*) FROM source_refreshes) + (SELECT count(*) FROM source_pushes)`, 0)
}

func TestATenantsPushesAreBounded(t *testing.T) {
	t.Parallel()
	s, _, _, _ := recorded(t, newDatabase(t))
	p := mirror.SourcePush{Repositories: []string{shop}, Ref: "refs/heads/main", Tenant: "acme"}
	for range 200 { // equal ones wait once
		check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	}
	accepted := 0
	var err error
	for i := range 200 {
		p.Ref = fmt.Sprint("refs/heads/", i)
		if err = s.SourcePushes.AcceptSourcePush(t.Context(), p); err != nil {
			break
		}
		accepted++
	}
	if accepted != 99 || !errors.Is(err, mirror.ErrTooManyPushes) {
		t.Errorf("%d accepted, then %v", accepted, err)
	}
	p.Tenant = "" // of the platform's deliveries, one repository leaves room for the others
	for i := range 101 {
		p.Ref = fmt.Sprint("refs/heads/", i)
		err = s.SourcePushes.AcceptSourcePush(t.Context(), p)
	}
	if !errors.Is(err, mirror.ErrTooManyPushes) {
		t.Errorf("of one repository: %v", err)
	}
	p.Repositories = []string{shop + "-2"}
	check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	p.Tenant = "globex"
	check(t, s.SourcePushes.AcceptSourcePush(t.Context(), p))
	first := []string{"acme " + shop, " " + shop, " " + shop + "-2", "globex " + shop + "-2"}
	for i, p := range must(s.SourcePushes.SourcePushes(t.Context(), 4))(t) {
		if got := string(p.Tenant) + " " + p.Repositories[0]; got != first[i] {
			t.Errorf("push %d is of %s, want %s", i, got, first[i])
		}
	}
	if _, err := s.SourcePushes.SealedOf(t.Context(), "nobody", "credentials",
		"push-webhook"); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a tenant that is not declared: %v", err)
	}
	if blob, err := s.SourcePushes.SealedOf(t.Context(), "acme", "credentials",
		"push-webhook"); err != nil || blob != "" {
		t.Errorf("without a file: %q, %v", blob, err)
	}
}

// A tenant whose refreshes wait, as for its cluster, keeps no other one's from the list.
func TestRefreshesOfOneTenantDoNotHideThoseOfAnother(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, _, _ := recorded(t, url)
	exec(t, url, `INSERT INTO source_refreshes (engine, name, tenant, environment, deployment)
		SELECT 'eu-1', 'a' || i, 'acme', 'prod', 'a' || i FROM generate_series(1, 500) i
		UNION ALL SELECT 'eu-1', 'b', 'globex', 'prod', 'b'`)
	open := must(s.Work.OpenActions(t.Context(), "eu-1"))(t)
	if len(open) != 200 || !slices.ContainsFunc(open, func(a mirror.Action) bool {
		return a.Tenant == "globex"
	}) {
		t.Errorf("%d refreshes, none of globex", len(open))
	}
}

func TestAnAgentIsNotifiedOfAPush(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newAgentKit(t)
	k.record(func(r *mirror.Record) {
		r.Rows = []mirror.Row{deployed(string(acmeEdge), "acme", "a", shop, "cart", "main"),
			deployed("globex.edge", "globex", "a", shop+"-2", "cart", "main")}
	})
	session := session(k.join(acmeEdge, "a"), "one")
	session.Protocol = agent.ProtocolActions
	o := must(k.Agents.OpenAgent(ctx, session))(t)
	k.join("globex.edge", "g")
	pushed(t, k.Store, mirror.SourcePush{Repositories: []string{shop}, Ref: "refs/heads/main"})
	news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	if !slices.Equal(news.Actions, []fleet.EngineName{acmeEdge}) {
		t.Errorf("news %+v", news.Actions)
	}
	open := must(k.Agents.AgentActions(ctx, acmeEdge))(t)
	if len(open) != 1 || !strings.HasPrefix(open[0].ID, "push-") || open[0].Deployment != "a" {
		t.Fatalf("open %+v", open)
	}
	if others := must(k.Agents.AgentActions(ctx, "globex.edge"))(t); len(others) != 0 {
		t.Errorf("another agent reads %+v", others)
	}
	check(t, k.Work.UpdateAction(ctx, o.Lease, mirror.ActionUpdate{ID: open[0].ID,
		State: mirror.OperationSucceeded}))
	if news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t); len(news.Actions) != 0 {
		t.Errorf("it has ended: %+v", news)
	}
	// nothing of it is an action of people
	if all, _, err := k.Views.Actions(ctx, view.Scope{}, view.Filter{},
		view.Page{Limit: 10}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
