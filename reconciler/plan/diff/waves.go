package diff

import (
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// CodeWave is the code of a change that brings a wave into a split environment.
const CodeWave = "wave-in-slices"

// checkWaves rejects changes that bring a wave into a split environment: a deployment that gets a
// wave or the environment, or the environment's labels. The worker of one engine runs the waves of
// an environment, and does not know the Applications of another engine.
func (p *phase) checkWaves() {
	for _, c := range p.Declared.Changes {
		switch {
		case c.After == nil:
		case c.After.Deployment != nil && c.After.Deployment.Wave != 0:
			for _, env := range p.after.Targets(applied.DeploymentID(c.Key)) {
				if p.isSplit(env) {
					p.rejectWave(c, "spec.wave", c.Key.Name, c.After.Deployment.Wave, env)
					break
				}
			}
		case c.After.Environment != nil && p.isSplit(applied.EnvironmentID(c.Key)):
			env := applied.EnvironmentID(c.Key)
			for _, dep := range p.after.DeploymentsIn(env) {
				if w := p.after.Deployment(dep).Deployment.Wave; w != 0 {
					p.rejectWave(c, "metadata.labels", string(dep.Name), w, env)
					break
				}
			}
		}
	}
}

func (p *phase) isSplit(env fleet.EnvironmentID) bool { return len(p.Partition(env)) > 1 }

func (p *phase) rejectWave(c catalog.Change, field, deployment string, wave int,
	env fleet.EnvironmentID) {
	if _, generated := fleet.SetOf(c.Key, c.After.Path); generated {
		field = fleet.TemplateField + field
	}
	p.out.Rejected = append(p.out.Rejected, fleet.Problem{
		Key: c.Key, Path: c.After.Path, Field: field, Severity: fleet.SeverityError, Code: CodeWave,
		Message: fmt.Sprintf("deployment %s has wave %d, and environment %s is split into slices: "+
			"no worker has all of its Applications to order them", deployment, wave, env),
		Fix: fmt.Sprintf("remove spec.wave, or have the platform join the environment first: "+
			"argosy join environment %s --to ENGINE", env)})
}
