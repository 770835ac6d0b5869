package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// An unusable credential is reported where people search: at the field, at the environment and at
// the objects that wait for it.
func TestAnUnusableCredentialIsReportedAtItsDeclaration(t *testing.T) {
	t.Parallel()
	t.Run("of a repository", func(t *testing.T) { unusableCredential(t, "web") })
	t.Run("of a folder", func(t *testing.T) { unusableCredential(t, "") })
}

// A token that Argosy requests is no secret of the tenant, and its source is not named.
func TestATokenThatIsNotGrantedIsReportedAtItsEnvironment(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]fleet.CredentialSource{
		"by the connection to the engine": {Tenant: "acme", Folder: "environments"},
		"with a secret of the platform":   {Folder: "environments", Name: "prod-1"}} {
		t.Run(name, func(t *testing.T) {
			s, ctx := open(t, newDatabase(t)), t.Context()
			cluster := mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectCluster,
				Name: "cluster-acme"}, Tenant: "acme", Environment: "prod", Credential: &source,
				Manifest: manifest(`{"kind":"Secret"}`)}
			must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
				r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"),
					tenantDeclaration("acme"), environmentDeclaration("acme", "prod")}
				r.Placements = []fleet.Placement{placement("acme", "prod", "eu-1")}
				r.Rows = []mirror.Row{cluster}
			})))(t)
			rows := must(s.Work.Changed(ctx, "eu-1", 0, 100))(t)
			if len(rows) != 1 || rows[0].Credential == nil || *rows[0].Credential != source {
				t.Fatalf("the row is %+v", rows)
			}
			check(t, s.Work.RowHeads(ctx, "eu-1", func(head mirror.RowHead) error {
				if !head.Credential {
					t.Error("the worker does not compare the token")
				}
				return nil
			}))
			check(t, s.Work.Acknowledge(ctx, hold(t, s, "engine/eu-1"), []mirror.Ack{{
				Key: cluster.Key, Seq: rows[0].Seq, State: mirror.ApplyFailed,
				Message: "the service account does not exist"}}))
			problems, _, err := s.Views.Problems(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
				view.Page{Limit: 10})
			if want := "the engine has not got a new token for the cluster: the service account " +
				"does not exist"; err != nil || len(problems) != 1 ||
				problems[0].Message != want || problems[0].Field != "spec.cluster" ||
				problems[0].Fix != "ask the platform; it is requested again by itself" {
				t.Errorf("%+v, %v", problems, err)
			}
		})
	}
}

// An object that stays because Applications use it has its reason in the view of its engine.
func TestAnEngineListsTheObjectsThatWait(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, newDatabase(t)), t.Context()
	var rows []mirror.Row
	for i := range view.MaxWaiting + 5 {
		rows = append(rows, mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1",
			Kind: fleet.ObjectProject, Name: fmt.Sprintf("project-%02d", i)}, Tenant: "acme",
			Manifest: manifest(`{"kind":"AppProject"}`)})
	}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"),
			engineDeclaration("us-1"), tenantDeclaration("acme")}
		r.Rows = append(rows, application("eu-1", "acme", "web", "prod", "v1"))
	})))(t)
	stored, worker := must(s.Work.Changed(ctx, "eu-1", 0, 100))(t), hold(t, s, "engine/eu-1")
	acknowledge := func(state mirror.ApplyState, message string) []view.Waiting {
		t.Helper()
		var acks []mirror.Ack
		for _, row := range stored {
			acks = append(acks, mirror.Ack{Key: row.Key, Seq: row.Seq, State: state,
				Message: message})
		}
		check(t, s.Work.Acknowledge(ctx, worker, acks))
		engines, _, err := s.Views.Engines(ctx, view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil || len(engines) != 2 || len(engines[1].Waiting) > 0 {
			t.Fatalf("%+v, %v", engines, err)
		}
		return engines[0].Waiting
	}
	const reason = "the object is still in use by Applications: by-hand"
	got := acknowledge(mirror.ApplyDeleting, reason)
	if want := (view.Waiting{Kind: fleet.ObjectProject, Name: "project-00",
		Message: reason}); len(got) != view.MaxWaiting || got[0] != want {
		t.Errorf("%d objects wait, the first is %+v", len(got), got)
	}
	if got := acknowledge(mirror.ApplyApplied, ""); len(got) > 0 {
		t.Errorf("when they are as declared, %+v wait", got)
	}
}

func unusableCredential(t *testing.T, repository string) {
	s := open(t, newDatabase(t))
	ctx := t.Context()
	secret := func(kind fleet.ObjectKind, tenant, name string) mirror.Row {
		return mirror.Row{
			Key: fleet.ObjectKey{Engine: "eu-1", Kind: kind, Name: strings.ToLower(string(kind)) +
				"-" + tenant}, Tenant: fleet.TenantName(tenant),
			Environment: "prod", Manifest: manifest(`{"kind":"Secret"}`),
			Credential: &fleet.CredentialSource{Tenant: fleet.TenantName(tenant), Name: name}}
	}
	var rows []mirror.Row
	leader := hold(t, s, "reconciler")
	must(s.Plans.Record(ctx, leader, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1")}
		for _, tenant := range []string{"acme", "globex"} {
			r.Declarations = append(r.Declarations, tenantDeclaration(tenant),
				environmentDeclaration(tenant, "prod"), deploymentDeclaration(tenant, "web",
					"prod"),
				fleet.Declaration{Key: fleet.Key{Kind: fleet.KindRepositoryCredential,
					Tenant: fleet.TenantName(tenant), Name: "git"},
					Path: "tenants/" + tenant + "/credentials/git.yaml", Blob: "c-" + tenant,
					Credential: &fleet.CredentialSpec{RepoURL: "https://git.example.com/" + tenant +
						"/" + repository, CredentialsRef: fleet.SecretRef{Name: "t-git"}}})
			r.Placements = append(r.Placements, placement(tenant, "prod", "eu-1"))
			r.Rows = append(r.Rows, secret(fleet.ObjectCluster, tenant, "t-exec"),
				secret(fleet.ObjectRepository, tenant, "t-git"), application("eu-1", tenant, "web",
					"prod", "v1"))
		}
		rows = r.Rows
	})))(t)
	seqs := map[fleet.ObjectKey]int64{}
	for _, r := range must(s.Work.Changed(ctx, "eu-1", 0, 100))(t) {
		seqs[r.Key] = r.Seq
	}
	worker := hold(t, s, "engine/eu-1")
	ack := func(state mirror.ApplyState) {
		var acks []mirror.Ack
		for _, r := range rows[:3] {
			a := mirror.Ack{Key: r.Key, Seq: seqs[r.Key], State: state,
				Message: "kubeconfig: exec is refused"}
			if r.Key.Kind == fleet.ObjectApplication {
				a.State, a.Message = mirror.ApplyPending,
					"waits for Cluster cluster-acme on engine eu-1"
			}
			acks = append(acks, a)
		}
		check(t, s.Work.Acknowledge(ctx, worker, acks))
	}
	ack(mirror.ApplyFailed)
	credentials, _, err := s.Views.Credentials(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(credentials) != 1 || credentials[0].State != mirror.ApplyFailed ||
		credentials[0].Message != "kubeconfig: exec is refused" ||
		credentials[0].Secret != "t-git" || credentials[0].Type != fleet.RepositoryGit ||
		len(credentials[0].Engines) != 1 {
		t.Errorf("credentials %+v", credentials)
	}

	page := view.Page{Limit: 1} // by cursor
	var got []string
	for after := ""; ; {
		problems, next, err := s.Views.Problems(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
			view.Page{Limit: page.Limit, After: after})
		check(t, err)
		for _, p := range problems {
			got = append(got, p.Path+" "+p.Field+" "+p.Message)
			if p.Code != "unusable-credential" || p.Severity != fleet.SeverityError ||
				p.Key.Tenant != "acme" {
				t.Error(p)
			}
		}
		if after = next; after == "" {
			break
		}
	}
	want := []string{
		"tenants/acme/credentials/git.yaml spec.credentialsRef.name the engine has not got the " +
			"secret t-git: kubeconfig: exec is refused",
		"tenants/acme/environments/prod.yaml spec.cluster.credentialsRef.name the engine has " +
			"not got the secret t-exec: kubeconfig: exec is refused"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
	if foreign, _, err := s.Views.Problems(ctx, view.Scope{Tenant: "globex"}, view.Filter{},
		view.Page{
			Limit: 10}); err != nil || len(foreign) != 0 {
		t.Error(foreign, err)
	}
	apps, _, err := s.Views.Applications(ctx, view.Scope{Tenant: "acme"}, view.Filter{}, view.Page{
		Limit: 10})
	check(t, err)
	if len(apps) != 1 ||
		apps[0].ApplyMessage != "waits for Cluster cluster-acme on engine eu-1, whose secret "+
			"t-exec cannot be used: kubeconfig: exec is refused; "+
			"the secret t-git of its repository cannot be used: kubeconfig: exec is refused" {
		t.Error(apps)
	}
	environments, _, err := s.Views.Environments(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(environments) != 1 || environments[0].Problems != 1 {
		t.Error(environments)
	}
	tenants, _, err := s.Views.Tenants(ctx, view.Scope{Tenant: "acme"}, view.Filter{}, view.Page{
		Limit: 10})
	check(t, err)
	if len(tenants) != 1 || tenants[0].Problems != 2 {
		t.Errorf("the tenant's problems are not counted: %+v", tenants)
	}
	if f, err := s.Views.FleetStats(ctx, view.StatsQuery{Holder: leader.Holder}); err != nil ||
		f.Problems[fleet.SeverityError] != 2 {
		t.Errorf("the metric counts %v, %v", f.Problems, err)
	}
	ack(mirror.ApplyApplied)
	apps, _, err = s.Views.Applications(ctx, view.Scope{Tenant: "acme"}, view.Filter{}, view.Page{
		Limit: 10})
	check(t, err)
	if len(apps) != 1 || strings.Contains(apps[0].ApplyMessage, "of its repository") {
		t.Error(apps)
	}
	if left, _, err := s.Views.Problems(ctx, view.Scope{}, view.Filter{}, view.Page{
		Limit: 10}); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}
