package diff

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// checkArtifacts rejects changed deployments of OCI artifacts that go to an engine whose Argo CD is
// known to deploy none. An unchanged deployment that gets there is left to the engine, which writes
// no such Application, and so is every deployment of a rebuild: its Applications may exist.
func (p *phase) checkArtifacts() {
	if len(p.ArgoCD) == 0 || !p.Applied.Started() {
		return
	}
	for _, c := range p.Declared.Changes {
		if c.After == nil || c.After.Deployment == nil {
			continue
		}
		i := slices.IndexFunc(c.After.Deployment.AllSources(), fleet.Source.Artifact)
		if i < 0 {
			continue
		}
		of := fleet.DeploymentID{Tenant: c.Key.Tenant, Name: fleet.DeploymentName(c.Key.Name)}
		for _, env := range p.after.Targets(of) {
			pl, _ := p.PlacementOf(applied.ApplicationID(of, env))
			version := p.ArgoCD[pl.Engine]
			if able, known := fleet.DeploysArtifacts(version); known && !able {
				p.rejectArtifact(c.After, i, env.Name, pl.Engine, version)
				break
			}
		}
	}
}

func (p *phase) rejectArtifact(d *fleet.Declaration, i int, env fleet.EnvironmentName,
	engine fleet.EngineName, version string,
) {
	field := "spec.source.repoURL"
	if len(d.Deployment.Sources) > 0 {
		field = fmt.Sprintf("spec.sources[%d].repoURL", i)
	}
	if _, generated := fleet.SetOf(d.Key, d.Path); generated {
		field = fleet.TemplateField + field
	}
	p.out.Rejected = append(p.out.Rejected, fleet.Problem{
		Key: d.Key, Path: d.Path, Field: field, Severity: fleet.SeverityError,
		Code: catalog.CodeArtifact,
		Message: fmt.Sprintf("environment %s is on engine %s, whose Argo CD %s deploys no OCI "+
			"artifacts: it takes %s for a Git repository", env, engine, version,
			d.Deployment.AllSources()[i].RepoURL),
		Fix: "deploy from Git or from a Helm repository (repoURL and chart), leave this environment " +
			"out, or ask the platform to move it to an engine with Argo CD 3.1 or later, or to " +
			"upgrade this one",
	})
}
