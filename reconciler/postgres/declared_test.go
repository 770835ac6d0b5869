package postgres_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Credentials have the worst state of their Secrets, and those that no Application needs have none.
func TestACredentialHasTheWorstStateOfItsSecrets(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	credential := func(name, secret string) fleet.Declaration {
		return fleet.Declaration{Key: fleet.Key{Kind: fleet.KindRepositoryCredential,
			Tenant: "acme", Name: name}, Path: "tenants/acme/credentials/" + name + ".yaml",
			Blob: name, Credential: &fleet.CredentialSpec{
				RepoURL:        "https://git.example.com/acme/",
				CredentialsRef: fleet.SecretRef{Name: secret}}}
	}
	repository := func(engine fleet.EngineName) mirror.Row {
		return mirror.Row{Key: fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectRepository,
			Name: "repo"}, Tenant: "acme", Manifest: manifest(`{"kind":"Secret"}`),
			Credential: &fleet.CredentialSource{Tenant: "acme", Name: "git"}}
	}
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1"), engineDeclaration("us-1"),
			tenantDeclaration("acme"), environmentDeclaration("acme", "prod"),
			environmentDeclaration("acme", "staging"), credential("all", "git"),
			credential("unused", "other")}
		r.Placements = []fleet.Placement{placement("acme", "prod", "eu-1"),
			placement("acme", "staging", "us-1")}
		r.Rows = []mirror.Row{repository("eu-1"), repository("us-1")}
	})))(t)
	read := func() []view.Credential {
		t.Helper()
		all, _, err := s.Views.Credentials(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
		check(t, err)
		if len(all) != 2 || all[0].Name != "all" || all[1].State != "" ||
			len(all[1].Engines) != 0 || len(all[0].Engines) != 2 {
			t.Fatalf("%+v", all)
		}
		return all
	}
	if got := read()[0]; got.State != mirror.ApplyPending {
		t.Errorf("before the engines have it: %+v", got)
	}
	report := func(engine fleet.EngineName, state mirror.ApplyState, message string) {
		t.Helper()
		rows := must(s.Work.Changed(ctx, engine, 0, 10))(t)
		check(t, s.Work.Acknowledge(ctx, hold(t, s, "engine/"+string(engine)), []mirror.Ack{
			{Key: rows[0].Key, Seq: rows[0].Seq, State: state, Message: message}}))
	}
	report("eu-1", mirror.ApplyApplied, "")
	if got := read()[0]; got.State != mirror.ApplyPending {
		t.Errorf("one engine lacks it: %+v", got)
	}
	report("us-1", mirror.ApplyFailed, "no such secret")
	if got := read()[0]; got.State != mirror.ApplyFailed || got.Message != "no such secret" {
		t.Errorf("one engine cannot have it: %+v", got)
	}
}

// Expressions and lists of tenants of policies may name other tenants.
func TestATenantSeesThePoliciesThatEvaluateItsDeclarations(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	policy := func(name string, tenants ...fleet.TenantName) fleet.Declaration {
		return fleet.Declaration{Key: fleet.Key{Kind: fleet.KindPolicy, Name: name},
			Path: "fleet/policies/" + name + ".yaml", Blob: name, Policy: &fleet.PolicySpec{
				Kinds: []fleet.Kind{fleet.KindGitOpsDeployment}, Tenants: tenants,
				Rule: `tenant.name != "globex"`, Message: "not so", Fix: "otherwise"}}
	}
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1,
		func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), policy("a"),
				policy("b", "acme", "globex"), policy("c", "globex")}
		})))(t)
	read := func(scope fleet.TenantName, want int) []view.Policy {
		t.Helper()
		all, _, err := s.Views.Policies(t.Context(), view.Scope{Tenant: scope}, view.Filter{},
			view.Page{Limit: 10})
		check(t, err)
		if len(all) != want {
			t.Fatalf("%d policies: %+v", len(all), all)
		}
		return all
	}
	if all := read("", 3); all[2].Rule == "" || len(all[1].Tenants) != 2 ||
		all[0].Path != "fleet/policies/a.yaml" || all[0].Severity != fleet.SeverityError {
		t.Errorf("the platform sees %+v", all)
	}
	for _, p := range read("acme", 2) {
		if p.Rule != "" || len(p.Tenants) != 0 || p.Path != "" || p.Message != "not so" ||
			p.Fix != "otherwise" {
			t.Errorf("a tenant sees %+v", p)
		}
	}
}
