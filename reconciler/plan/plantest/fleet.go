// Package plantest has a small fleet for the tests of single phases.
package plantest

import (
	"encoding/json"
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Prod is the only environment of the fleet.
var Prod = fleet.EnvironmentID{Tenant: "acme", Name: "prod"}

// Cart is the Application of Deployment("cart").
var Cart = fleet.ApplicationID{Tenant: "acme", Deployment: "cart", Environment: "prod"}

// Files declares engine eu-1, tenant acme, environment prod and the deployments.
func Files(deployments ...string) []catalog.Input {
	in := []catalog.Input{
		input(fleet.Declaration{
			Key:   fleet.Key{Kind: fleet.KindFleet, Name: "fleet"},
			Fleet: &fleet.FleetSpec{GitHosts: []string{"git.example.com"}},
		}),
		input(fleet.Declaration{
			Key: fleet.Key{Kind: fleet.KindEngine, Name: "eu-1"},
			Engine: &fleet.EngineSpec{
				ArgoCD:     fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"},
				Connection: fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: "eu-1"}},
				Region:     "eu",
				Capacity:   fleet.Capacity{Applications: 100, Environments: 10},
			},
		}),
		input(fleet.Declaration{
			Key: applied.TenantKey("acme"),
			Tenant: &fleet.TenantSpec{
				Owners:       []string{"group:acme"},
				Quota:        fleet.Quota{Environments: 10, Deployments: 50, Applications: 50},
				Repositories: []string{"https://git.example.com/acme/"},
				Clusters:     []string{".example.com"}, Namespaces: []string{"app"},
			},
		}),
		input(fleet.Declaration{
			Key: applied.EnvironmentKey(Prod),
			Environment: &fleet.EnvironmentSpec{
				Cluster: &fleet.ClusterSpec{
					Server:         "https://prod.example.com",
					CredentialsRef: fleet.SecretRef{Name: "prod"},
				},
				Namespaces: []string{"app"}, Region: "eu",
			},
		}),
	}
	for _, name := range deployments {
		in = append(in, Deployment(name))
	}
	return in
}

// Deployment declares a deployment in prod from a repository of its name.
func Deployment(name string) catalog.Input {
	id := fleet.ApplicationID{Tenant: "acme", Deployment: fleet.DeploymentName(name)}
	return input(fleet.Declaration{
		Key: applied.DeploymentKey(id),
		Deployment: &fleet.DeploymentSpec{
			Source: fleet.Source{
				RepoURL: "https://git.example.com/acme/" + name, Path: "deploy",
				TargetRevision: "v1",
			},
			Destination: fleet.Destinations{
				Environments: []fleet.EnvironmentName{"prod"}, Namespace: "app",
			},
		},
	})
}

// Removed removes the file of a declaration.
func Removed(k fleet.Key) catalog.Input {
	return catalog.Input{Key: k, Path: k.String() + ".yaml", Removed: true}
}

func input(d fleet.Declaration) catalog.Input {
	d.Path, d.Blob = d.Key.String()+".yaml", "blob-"+d.Key.String()
	return catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: &d}
}

// Renderer renders objects as JSON.
type Renderer struct{}

// Render returns the object itself as a manifest, hashed by its text.
func (Renderer) Render(_ fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	body, err := json.Marshal(o)
	return fleet.Manifest{Body: body, Hash: fmt.Sprintf("hash of %s", body)}, err
}

// Retarget returns the manifest as it is: no field of it is the engine's.
func (Renderer) Retarget(_ fleet.EngineSpec, _ fleet.EngineName, _ fleet.TenantName,
	m fleet.Manifest) (fleet.Manifest, error) {
	return m, nil
}
