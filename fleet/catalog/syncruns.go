package catalog

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

func (ch *checker) checkSyncRun(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	if e.effective != nil {
		return checkImmutable(e, spec)
	}
	id := fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}
	d := ch.st.get(deploymentKey(id))
	if d == nil {
		return []fleet.Problem{ch.unknownDeployment(e, id)}
	}
	targets := ch.st.targets(d)
	problems := checkRevisions(e, spec, d)
	for i, n := range spec.Environments {
		field := fmt.Sprintf("spec.environments[%d]", i)
		env := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		switch {
		case ch.st.get(environmentKey(env)) == nil:
			problems = append(problems, ch.unknownEnvironment(e, field, env, i))
		case !slices.Contains(targets, env):
			problems = append(
				problems, e.problem(field, codeNotADestination, goesTo(d, targets),
					"deployment %q does not go to environment %q", id.Name, n))
		}
	}
	return problems
}

// checkRevisions refuses a SyncRun that does not have a revision for each source of the deployment.
func checkRevisions(e *entry, spec *fleet.SyncRunSpec, d *fleet.Declaration) []fleet.Problem {
	sources, revisions := len(d.Deployment.AllSources()), max(1, len(spec.Revisions))
	if revisions == sources {
		return nil
	}
	field := "spec.revisions"
	if len(spec.Revisions) == 0 {
		field = "spec.revision"
	}
	return []fleet.Problem{e.problem(field, codeRevisions,
		"write revisions: [...] with a full commit id, tag or chart version for each source, in "+
			"the order of "+d.Path,
		"deployment %q has %d sources, and the SyncRun names %d revisions", d.Key.Name, sources,
		revisions)}
}

// checkImmutable refuses a changed SyncRun: its first state was acted on, and a second state would
// not be.
func checkImmutable(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	was := e.effective.SyncRun
	if was.Deployment == spec.Deployment && was.AllRevisions() == spec.AllRevisions() &&
		was.Hold == spec.Hold && slices.Equal(was.Environments, spec.Environments) {
		return nil
	}
	return []fleet.Problem{
		e.problem("spec", codeImmutable, "restore it, and write another SyncRun under a new name",
			"a SyncRun does not change once it is in effect")}
}

func goesTo(d *fleet.Declaration, targets []fleet.EnvironmentID) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = string(t.Name)
	}
	if len(names) == 0 {
		return "it goes to none: see " + d.Path
	}
	return "it goes to " + some(names)
}

func (ch *checker) warnSpent(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	d := ch.st.get(deploymentKey(fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}))
	if d == nil || len(spec.Environments) == 0 {
		return nil
	}
	targets := ch.st.targets(d)
	for i, n := range spec.Environments {
		if !slices.Contains(targets, fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}) {
			return []fleet.Problem{
				e.warning(fmt.Sprintf("spec.environments[%d]", i), codeSpentSyncRun,
					"remove the file",
					"deployment %q no longer goes to environment %q; the SyncRun has had its effect",
					spec.Deployment, n)}
		}
	}
	return nil
}
