package argocd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const testEngine fleet.EngineName = "eu-1"

func engineSpec() fleet.EngineSpec {
	return fleet.EngineSpec{
		ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"}, Region: "eu"}
}

var (
	acme       fleet.TenantName = "acme"
	prodEU                      = fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}
	checkoutID                  = fleet.ApplicationID{Tenant: acme, Deployment: "checkout",
		Environment: "prod-eu"}
)

func projectObject(t fleet.TenantName) fleet.Object {
	env := fleet.EnvironmentID{Tenant: t, Name: "prod-eu"}
	return fleet.Object{
		Key: fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectProject,
			Name: fleet.ProjectName(t)},
		Project: &fleet.Project{
			Tenant: t, Name: fleet.ProjectName(t),
			SourceRepos: []string{"https://git.example.com/acme/web",
				"https://git.example.com/acme/checkout"},
			Destinations: []fleet.Destination{
				{Server: fleet.ServerKey("https://api.eu-1.example.com:6443", env),
					Namespace: "checkout"},
				{Server: fleet.ServerKey("https://api.eu-1.example.com:6443", env),
					Namespace: "cart"},
			},
			ClusterResources: []fleet.GroupKind{{Group: "", Kind: "Namespace"}},
		},
	}
}

func clusterObject(env fleet.EnvironmentID, server string) fleet.Object {
	return fleet.Object{
		Key: fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(env)},
		Cluster: &fleet.Cluster{
			ID: env, Name: fleet.ClusterName(env), Project: fleet.ProjectName(env.Tenant),
			Server:     fleet.ServerKey(server, env),
			Namespaces: []string{"checkout", "cart"}, Credential: fleet.CredentialSource{
				Tenant: env.Tenant, Name: string(env.Name)},
		},
	}
}

func repositoryObject(t fleet.TenantName) fleet.Object {
	id := fleet.CredentialID{Tenant: t, Name: "checkout"}
	return fleet.Object{
		Key: fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectRepository,
			Name: fleet.RepositoryName(id, "")},
		Repository: &fleet.Repository{
			ID: id, Name: fleet.RepositoryName(id, ""), Project: fleet.ProjectName(t),
			URL:        "https://git.example.com/acme/checkout",
			Credential: fleet.CredentialSource{Tenant: t, Name: "checkout-git"},
		},
	}
}

// ownEngine is prodEU's own cluster, which an agent serves.
const ownEngine fleet.EngineName = "acme.prod-eu"

func ownProject() fleet.Object {
	o := projectObject(acme)
	o.Key.Engine = ownEngine
	o.Project.Destinations = []fleet.Destination{
		{Server: fleet.InClusterServer, Namespace: "checkout"}, {Server: fleet.InClusterServer,
			Namespace: "cart"}}
	return o
}

func ownApplication() fleet.Object {
	o := applicationObject(checkoutID, exampleServer)
	o.Key.Engine = ownEngine
	o.Application.Destination.Server = fleet.InClusterServer
	return o
}

func applicationObject(id fleet.ApplicationID, server string) fleet.Object {
	return fleet.Object{
		Key: fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication,
			Name: fleet.ApplicationName(id)},
		Application: &fleet.Application{
			ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(id.Tenant),
			Sources: []fleet.Source{{RepoURL: "https://git.example.com/acme/checkout",
				Path: "deploy", TargetRevision: "v1.4.0"}},
			Destination: fleet.Destination{Server: fleet.ServerKey(server, id.In()),
				Namespace: "checkout"},
			Sync: fleet.Sync{Automated: true, Prune: true, SelfHeal: true,
				CreateNamespace: true},
			DeletionPolicy: fleet.DeletionDelete,
		},
	}
}

const exampleServer = "https://api.eu-1.example.com:6443"

// wireRow renders an object into a row.
func rowOf(t testing.TB, o fleet.Object, seq int64) mirror.Row {
	t.Helper()
	return rowFor(t, engineSpec(), o, seq)
}

func rowFor(t testing.TB, spec fleet.EngineSpec, o fleet.Object, seq int64) mirror.Row {
	t.Helper()
	m, err := Renderer{}.Render(spec, o)
	if err != nil {
		t.Fatal(err)
	}
	row := mirror.Row{Key: o.Key, Manifest: m, Seq: seq,
		Revision: "4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a"}
	switch {
	case o.Project != nil:
		row.Tenant = o.Project.Tenant
	case o.Cluster != nil:
		row.Tenant, row.Environment, row.Credential = o.Cluster.ID.Tenant, o.Cluster.ID.Name,
			&o.Cluster.Credential
	case o.Repository != nil:
		row.Tenant, row.Credential = o.Repository.ID.Tenant, &o.Repository.Credential
	case o.Application != nil:
		id := o.Application.ID
		row.Tenant, row.Environment, row.Deployment, row.Deletion = id.Tenant, id.Environment,
			id.Deployment, o.Application.DeletionPolicy
	}
	return row
}

// certificate returns a self-signed pair in PEM.
func certificate(t testing.TB, hosts ...string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: hosts}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kder})
}
