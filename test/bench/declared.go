package main

import (
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan"
)

// declared is a fleet that one plan has placed.
type declared struct {
	state *plan.AppliedState
	on    map[fleet.EnvironmentID]fleet.EngineName
}

// declare plans environments on engines, each with one Application.
func declare(environments, engines int) (*declared, error) {
	files := []catalog.Input{
		file(fleet.Declaration{Key: fleet.Key{Kind: fleet.KindFleet, Name: "fleet"},
			Fleet: &fleet.FleetSpec{GitHosts: []string{"git.example.com"}}})}
	for i := range engines {
		files = append(files, engineFile(i))
	}
	d := &declared{state: plan.NewAppliedState(), on: map[fleet.EnvironmentID]fleet.EngineName{}}
	p, err := d.state.Compute(plan.Request{
		Revision: "1", Files: append(files, tenantFiles(0, environments)...)}, argocd.Renderer{})
	if err != nil {
		return nil, err
	}
	if p.Counts.Created != environments || p.Counts.Placed != environments {
		return nil,
			fmt.Errorf("void: %d of %d environments are placed, with %d Applications: %.500v",
				p.Counts.Placed, environments, p.Counts.Created, p.Problems)
	}
	for _, at := range p.Placements {
		d.on[at.Environment] = at.Engine
	}
	d.state.Commit(p)
	return d, nil
}

// plan returns, in per cent of the placed environments, those that a plan of the files moves to
// another engine, and those that it reports as misplaced.
func (d *declared) plan(files ...catalog.Input) (moved, misplaced float64, err error) {
	p, err := d.state.Compute(plan.Request{Revision: "2", Files: files}, argocd.Renderer{})
	if err != nil {
		return 0, 0, err
	}
	if len(p.Problems) > 0 || len(p.Declarations) != len(files) {
		return 0, 0, fmt.Errorf("void: %d of %d declarations change: %.500v", len(p.Declarations),
			len(files), p.Problems)
	}
	moves, waits := len(p.Unplaced), 0
	for _, at := range p.Placements {
		was, known := d.on[at.Environment]
		if known && was != at.Engine {
			moves++
		}
		if at.Misplaced != "" {
			waits++
		}
	}
	all := float64(len(d.on))
	return 100 * float64(moves) / all, 100 * float64(waits) / all, nil
}

func file(d fleet.Declaration) catalog.Input {
	d.Path, d.Blob = d.Key.String()+".yaml", d.Key.String()
	return catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: &d}
}

// drained is the engine's file with the engine drained.
func drained(i int) catalog.Input {
	f := engineFile(i)
	f.Blob += "'"
	f.Declaration.Blob, f.Declaration.Engine.State = f.Blob, fleet.EngineDraining
	return f
}

func engineFile(i int) catalog.Input {
	e, name := engines(i + 1)[i].Spec, string(engineName(i))
	e.ArgoCD, e.Connection = fleet.ArgoCDInstance{Namespace: "argocd-" + name,
		InstallationID: name}, fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: name}}
	return file(fleet.Declaration{Key: fleet.Key{Kind: fleet.KindEngine, Name: name}, Engine: &e})
}

// tenantFiles is the environments from to until, with their tenants and a deployment to each.
func tenantFiles(from, until int) []catalog.Input {
	var files []catalog.Input
	in := map[fleet.TenantName][]fleet.EnvironmentName{}
	for i := from; i < until; i++ {
		id := environmentOf(i, 0)
		in[id.Tenant] = append(in[id.Tenant], id.Name)
		files = append(files,
			file(fleet.Declaration{
				Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant,
					Name: string(id.Name)}, Environment: &fleet.EnvironmentSpec{
					Cluster: &fleet.ClusterSpec{
						Server: fmt.Sprintf("https://%s.%s.example.com", id.Name,
							id.Tenant), CredentialsRef: fleet.SecretRef{Name: string(id.Name)}},
					Namespaces: []string{"app"}, Region: "eu",
				}}))
	}
	for tenant, environments := range in {
		repo := "https://git.example.com/" + string(tenant) + "/"
		files = append(files,
			file(fleet.Declaration{Key: fleet.Key{Kind: fleet.KindTenant, Name: string(tenant)},
				Tenant: &fleet.TenantSpec{
					Owners: []string{"group:x"}, Quota: fleet.Quota{Environments: perTenant,
						Deployments: perTenant, Applications: perTenant}, Repositories: []string{
						repo},
					Clusters: []string{"." + string(tenant) + ".example.com"},
				}}),
			file(fleet.Declaration{Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: tenant,
				Name: "app"}, Deployment: &fleet.DeploymentSpec{
				Source: fleet.Source{RepoURL: repo + "app", Path: "deploy",
					TargetRevision: "v1"},
				Destination: fleet.Destinations{Environments: environments, Namespace: "app"},
			}}))
	}
	return files
}
