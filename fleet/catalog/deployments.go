package catalog

import (
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

func (ch *checker) checkRepository(e *entry, field, raw string,
	grant *fleet.TenantSpec) []fleet.Problem {
	u, folder, err := fleet.ParseRepoScope(raw)
	if err != nil {
		return []fleet.Problem{
			e.problem(field, codeRepository, "write an https:// or ssh:// URL", "%v", err)}
	}
	var problems []fleet.Problem
	if !fleet.GitHostAllowed(ch.hosts().GitHosts, u) {
		problems = append(
			problems,
			e.problem(field, codeGitHost, ch.allowedHosts(),
				"the fleet does not allow repositories of %s://%s", u.Scheme, u.Host))
	}
	if !fleet.RepositoryGranted(grant.Repositories, raw) {
		what := u.String()
		if folder {
			what = "every repository below " + what + "/"
		}
		problems = append(
			problems, e.problem(field, codeRepository, grantedTo(e.key.Tenant, grant),
				"tenant %q is not granted %s", e.key.Tenant, what))
	}
	return problems
}

func grantedTo(t fleet.TenantName, grant *fleet.TenantSpec) string {
	ask := "ask the platform to add it to repositories of fleet/tenants/" + string(t) + ".yaml"
	if len(grant.Repositories) == 0 {
		return ask
	}
	return "use " + some(sorted(grant.Repositories)) + ", or " + ask
}

// checkRange refuses a range of versions that the platform has not allowed.
func checkRange(e *entry, field, revision string, grant *fleet.TenantSpec) []fleet.Problem {
	if !fleet.IsVersionRange(revision) || grant.Allow.VersionRanges {
		return nil
	}
	return []fleet.Problem{e.problem(field+".targetRevision", codeVersionRange,
		"write one exact version, or ask the platform for allow: {versionRanges: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml",
		"%q is a range of versions, of which Argo CD takes the newest without a commit", revision)}
}

// checkTools refuses what the platform must allow of the tools that render a source.
func checkTools(e *entry, field string, k *fleet.KustomizeSource, p *fleet.PluginSource,
	grant *fleet.TenantSpec) []fleet.Problem {
	refuse := func(field, list string, granted []string, format string,
		name string) []fleet.Problem {
		if slices.Contains(granted, name) {
			return nil
		}
		fix := "leave it out, or ask the platform to add it to allow." + list +
			" of fleet/tenants/" + string(e.key.Tenant) + ".yaml"
		if len(granted) > 0 {
			fix = "use one of " + some(sorted(granted)) + "; or " + fix
		}
		return []fleet.Problem{e.problem(field, codeTool, fix, format, e.key.Tenant, name)}
	}
	switch {
	case k != nil && k.Version != "":
		return refuse(field+".kustomize.version", "kustomizeVersions",
			grant.Allow.KustomizeVersions, "tenant %q is not allowed to build with kustomize %s",
			k.Version)
	case p != nil:
		return refuse(field+".plugin.name", "plugins", grant.Allow.Plugins,
			"tenant %q is not allowed the plugin %q", p.Name)
	}
	return nil
}

// checkJsonnet refuses jsonnet to a tenant that shares engines: it can read files of the
// repo-server.
func checkJsonnet(e *entry, field string, d *fleet.DirectorySource,
	grant *fleet.TenantSpec) []fleet.Problem {
	if d == nil || d.Jsonnet == nil || grant.Placement.Alone {
		return nil
	}
	return []fleet.Problem{e.problem(field+".directory.jsonnet", codeTool,
		"render it in the repository's own CI, or ask the platform for placement: {alone: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml and for engines of the tenant's own",
		"jsonnet can read files of the repo-server, which tenant %q shares", e.key.Tenant)}
}

// checkArtifact refuses an OCI artifact that the platform does not trust to a tenant that shares
// engines: Argo CD merges a file .argocd-source.yaml of it over the declared source, and could so
// be made to run a plugin that the tenant is not granted. In Git repositories, a hook of the
// checkout refuses that file (ADR 0020).
func checkArtifact(e *entry, field string, s fleet.Source,
	grant *fleet.TenantSpec) []fleet.Problem {
	if !s.Artifact() || grant.Placement.Alone || grant.TrustsArtifact(s) {
		return nil
	}
	return []fleet.Problem{e.problem(field+".repoURL", codeTool,
		"deploy from Git or a chart; or ask the platform for placement: {alone: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml and engines of the tenant's own, or to "+
			"trust the artifact in its allow.artifacts",
		"a file .argocd-source.yaml of an OCI artifact can choose the tool that renders it, on "+
			"the repo-server that tenant %q shares", e.key.Tenant)}
}

// checkNotifications refuses services and recipients without the platform's grant: all tenants of
// an engine use the accounts that the platform has there.
func checkNotifications(e *entry, grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range e.head.Deployment.Notifications {
		if !fleet.NotificationGranted(grant.Allow.Notifications, n) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.notifications[%d]", i),
				codeNotification, "remove it, or ask the platform to add the service, with these "+
					"recipients or with any, to allow.notifications of fleet/tenants/"+
					string(e.key.Tenant)+".yaml",
				"tenant %q is not allowed to notify these recipients by %s", e.key.Tenant,
				n.Service))
		}
	}
	return problems
}

// checkAdoptions refuses Applications to adopt without the platform's grant, or in an environment
// where the deployment does not go.
func checkAdoptions(e *entry, grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	spec := e.head.Deployment
	if len(spec.Adopt) > 0 && !grant.Allow.Adopt {
		problems = append(problems, e.problem("spec.adopt", codeAdopt,
			"ask the platform for allow: {adopt: true} in fleet/tenants/"+string(e.key.Tenant)+
				".yaml, or remove adopt to create a new Application",
			"tenant %q is not allowed to take over Applications", e.key.Tenant))
	}
	for i, a := range spec.Adopt {
		if spec.Destination.EnvironmentSelector == nil &&
			!slices.Contains(spec.Destination.Environments, a.Environment) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.adopt[%d].environment", i),
				codeNotADestination, "add it to spec.destination.environments or remove the entry",
				"the deployment does not go to environment %q", a.Environment))
		}
	}
	return problems
}

// checkSync checks sync settings that a tenant wrote against its grant. Settings of Fleet.defaults
// are the platform's and need none.
func checkSync(e *entry, field string, s fleet.SyncSettings,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	file := "fleet/tenants/" + string(e.key.Tenant) + ".yaml"
	if s.Replace != nil && *s.Replace && !grant.Allow.Replace {
		problems = append(problems, e.problem(field+".replace", codeReplace,
			"use serverSideApply: true, annotate the one resource with "+
				"argocd.argoproj.io/sync-options: Replace=true in its manifest, or ask the "+
				"platform for allow: {replace: true} in "+file,
			"tenant %q is not allowed to replace resources", e.key.Tenant))
	}
	if m := s.ManagedNamespaceMetadata; m != nil {
		for _, part := range []struct {
			name string
			keys map[string]string
		}{{"labels", m.Labels}, {"annotations", m.Annotations}} {
			for _, key := range slices.Sorted(maps.Keys(part.keys)) {
				if fleet.NamespaceKeyGranted(grant.Allow.NamespaceMetadata, key) {
					continue
				}
				problems = append(problems, e.problem(
					field+".managedNamespaceMetadata."+part.name, codeNamespaceMetadata,
					"remove it, or ask the platform to add the key to allow.namespaceMetadata of "+
						file, "tenant %q is not granted the key %q of namespaces", e.key.Tenant,
					key))
			}
		}
	}
	return problems
}

func (ch *checker) checkDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range spec.Destination.Environments {
		field := fmt.Sprintf("spec.destination.environments[%d]", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		env := ch.st.get(environmentKey(id))
		if env == nil {
			problems = append(problems, ch.unknownEnvironment(e, field, id, i))
		} else if env.Environment.Agent.Autonomous() {
			problems = append(
				problems,
				e.problem(field, codeAutonomous,
					"remove it here: who runs that cluster makes its Applications there; or set "+
						"spec.agent.mode: managed in "+env.Path,
					"environment %q is autonomous: its cluster's own Applications are the truth, "+
						"and nothing is deployed there from here", n))
		} else if !lists(env, e.head) {
			ns, at := e.head.NamespaceIn(env)
			if fleet.HasVariables(ns) {
				continue // checkResolved names the missing label
			}
			problems = append(problems, e.problem(at, codeNamespace,
				"use one of "+some(sorted(listed(env.Environment)))+
					", or add it to namespaces of "+env.Path, "environment %q has no namespace %q",
				n, ns))
		}
	}
	return append(problems, ch.checkSelected(e)...)
}

// listed are the namespaces of an environment for a message: a prefix is shop-<name>.
func listed(spec *fleet.EnvironmentSpec) []string {
	names := slices.Clone(spec.Namespaces)
	for i, n := range names {
		if fleet.IsNamespacePrefix(n) {
			names[i] = n + "<name>"
		}
	}
	return names
}

// checkOverrides checks the environments that overrides name. The labels that an override selects
// are of other files, so that an unused selector is a warning.
func (ch *checker) checkOverrides(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, o := range spec.Overrides {
		if o.Environment == "" {
			continue
		}
		field := fmt.Sprintf("spec.overrides[%d].environment", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: o.Environment}
		named := slices.Contains(spec.Destination.Environments, o.Environment)
		switch {
		case slices.ContainsFunc(spec.Overrides[:i], func(p fleet.Override) bool {
			return p.Environment == o.Environment
		}):
			problems = append(
				problems,
				e.problem(field, codeDuplicateOverride, "merge the two",
					"environment %q has an override already", o.Environment))
		case spec.Destination.EnvironmentSelector == nil && !named:
			problems = append(
				problems,
				e.problem(field, codeNotADestination,
					"add it to spec.destination.environments or remove the override",
					"the deployment does not go to environment %q", o.Environment))
		case !named && ch.st.get(environmentKey(id)) == nil:
			problems = append(problems, ch.unknownEnvironment(e, field, id, i))
		}
	}
	return problems
}

// checkResolved refuses a text that one of the deployment's environments gives no valid value.
func (ch *checker) checkResolved(e *entry) []fleet.Problem {
	if !e.head.Deployment.Varies() {
		return nil
	}
	var problems []fleet.Problem
	for _, id := range ch.st.targets(e.head) {
		env := ch.st.get(environmentKey(id))
		_, unresolved := e.head.TargetIn(env, fleet.Defaults{})
		for _, u := range unresolved {
			problems = append(problems, e.problem(u.Field, codeUnresolved,
				"correct the text, or the labels and variables in "+env.Path, "%v", u.Err))
		}
	}
	return problems
}

// checkSelected refuses a selector that matches autonomous environments: the label shows that
// someone expects the deployment there.
func (ch *checker) checkSelected(e *entry) []fleet.Problem {
	names := ch.matched(e.head, func(env *fleet.Declaration) bool {
		return matches(e.head, env) && env.Environment.Agent.Autonomous()
	})
	if len(names) == 0 {
		return nil
	}
	return []fleet.Problem{e.problem("spec.destination.environmentSelector", codeAutonomous,
		"narrow the selector or take the label off them, or set spec.agent.mode: managed there",
		"the selector matches autonomous environments: their clusters' own Applications are the "+
			"truth, and nothing is deployed there from here: %s", some(names))}
}
