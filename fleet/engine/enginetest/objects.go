package enginetest

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	tenant      fleet.TenantName      = "acme"
	environment fleet.EnvironmentName = "prod-eu"
	deployment  fleet.DeploymentName  = "checkout"
	apiServer                         = "https://api.eu-1.example.com:6443"
	repository                        = "https://git.example.com/acme/checkout"
	commit      fleet.Revision        = "4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a"
)

func envID() fleet.EnvironmentID { return fleet.EnvironmentID{Tenant: tenant, Name: environment} }

// row renders an object into a row.
func row(t *testing.T, b *Fixture, o fleet.Object) mirror.Row {
	t.Helper()
	o.Key.Engine = b.Name
	m, err := b.Render.Render(b.Spec, o)
	if err != nil {
		t.Fatal(err)
	}
	r := mirror.Row{Key: o.Key, Tenant: tenant, Manifest: m, Revision: commit}
	switch {
	case o.Cluster != nil:
		r.Environment, r.Credential = environment, &o.Cluster.Credential
	case o.Repository != nil:
		r.Credential = &o.Repository.Credential
	case o.Application != nil:
		r.Environment, r.Deployment, r.Deletion = environment, deployment,
			o.Application.DeletionPolicy
	}
	return r
}

func project(t *testing.T, b *Fixture) mirror.Row {
	name := fleet.ProjectName(tenant)
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectProject, Name: name},
		Project: &fleet.Project{
			Tenant: tenant, Name: name, SourceRepos: []string{repository},
			Destinations: []fleet.Destination{
				{Server: fleet.ServerKey(apiServer, envID()), Namespace: "checkout"}},
		}})
}

func cluster(t *testing.T, b *Fixture) mirror.Row {
	name := fleet.ClusterName(envID())
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectCluster, Name: name},
		Cluster: &fleet.Cluster{
			ID: envID(), Name: name, Project: fleet.ProjectName(tenant),
			Server: fleet.ServerKey(apiServer, envID()), Namespaces: []string{"checkout"},
			Credential: fleet.CredentialSource{Tenant: tenant, Name: string(environment)},
		}})
}

func repo(t *testing.T, b *Fixture) mirror.Row {
	id := fleet.CredentialID{Tenant: tenant, Name: "checkout"}
	name := fleet.RepositoryName(id)
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectRepository, Name: name},
		Repository: &fleet.Repository{
			ID: id, Name: name, Project: fleet.ProjectName(tenant), URL: repository,
			Credential: fleet.CredentialSource{Tenant: tenant, Name: "checkout-git"},
		}})
}

// application returns the only Application of the suite, modified by change.
func application(t *testing.T, b *Fixture, change func(*fleet.Application)) mirror.Row {
	id := fleet.ApplicationID{Tenant: tenant, Deployment: deployment, Environment: environment}
	a := &fleet.Application{
		ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(tenant),
		Source: fleet.Source{RepoURL: repository, Path: "deploy", TargetRevision: "v1"},
		Destination: fleet.Destination{Server: fleet.ServerKey(apiServer, envID()),
			Namespace: "checkout"},
		Sync:           fleet.Sync{Automated: true, Prune: true},
		DeletionPolicy: fleet.DeletionOrphan,
	}
	if change != nil {
		change(a)
	}
	return row(t, b, fleet.Object{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication, Name: a.Name},
		Application: a})
}

func at(revision string) func(*fleet.Application) {
	return func(a *fleet.Application) { a.Source.TargetRevision = revision }
}

// everything returns one row of each kind, in the order of creation.
func everything(t *testing.T, b *Fixture) []mirror.Row {
	return []mirror.Row{project(t, b), cluster(t, b), repo(t, b), application(t, b, nil)}
}

// secretFor returns a valid credential for the row.
func secretFor(r mirror.Row) fleet.Secret { return secretOf(r, "canary-1") }

func secretOf(r mirror.Row, token string) fleet.Secret {
	switch r.Key.Kind {
	case fleet.ObjectCluster:
		return fleet.NewSecret(map[string][]byte{"token": []byte(token)})
	case fleet.ObjectRepository:
		return fleet.NewSecret(map[string][]byte{"username": []byte("git"),
			"password": []byte(token)})
	}
	return fleet.Secret{}
}
