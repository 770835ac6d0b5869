package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// checker judges one file at the head against the effective state.
type checker struct {
	st       *state
	policies *policySet
	// suggestions for unknown tenants, computed once: every file of a folder needs the same
	guess map[string]string
}

// checkOwn checks the references of a head and the grants over it. checkShared checks conflicts
// with other declarations.
func (ch *checker) checkOwn(e *entry, d *fleet.Declaration) []fleet.Problem {
	var grant *fleet.TenantSpec
	if e.key.Tenant != "" {
		t := ch.st.get(tenantKey(e.key.Tenant))
		if t == nil {
			return []fleet.Problem{ch.unknownTenant(e, "", e.key.Tenant)}
		}
		grant = t.Tenant
	}
	switch {
	case d.Fleet != nil:
		return checkFleet(e)
	case d.Tenant != nil:
		return slices.Concat(checkTenant(e), ch.checkWholeGrants(e, d.Tenant),
			ch.checkAgentRings(e, d.Tenant))
	case d.Engine != nil:
		return slices.Concat(ch.checkTenants(e, "spec.dedicatedTo", d.Engine.DedicatedTo),
			ch.checkPlatformTenant(e, d.Engine), ch.checkApplicationNamespaces(e, d.Engine),
			checkMetrics(e, d.Engine), ch.checkManaged(e, d.Engine), ch.checkInstanceName(e))
	case d.Pool != nil:
		return ch.checkPool(e, d.Pool)
	case d.Cluster != nil:
		return ch.checkCluster(e, d.Cluster)
	case d.Policy != nil:
		return ch.checkTenants(e, "spec.tenants", d.Policy.Tenants)
	case d.Environment != nil:
		return ch.checkEnvironment(e, d.Environment, grant)
	case d.Credential != nil:
		return ch.checkRepository(e, "spec.repoURL", d.Credential.RepoURL, grant)
	case d.Deployment != nil:
		var problems []fleet.Problem
		for i, s := range d.Deployment.AllSources() {
			field := "spec.source"
			if len(d.Deployment.Sources) > 0 {
				field = fmt.Sprintf("spec.sources[%d]", i)
			}
			problems = slices.Concat(problems,
				ch.checkRepository(e, field+".repoURL", s.RepoURL, grant),
				checkRange(e, field, s.TargetRevision, grant),
				checkTools(e, field, s.Kustomize, s.Plugin, grant),
				checkArtifact(e, field, s, grant),
				checkJsonnet(e, field, s.Directory, grant))
		}
		for i, o := range d.Deployment.Overrides {
			field := fmt.Sprintf("spec.overrides[%d].source", i)
			problems = slices.Concat(problems,
				checkRange(e, field, o.Source.TargetRevision, grant),
				checkTools(e, field, o.Source.Kustomize, o.Source.Plugin, grant),
				checkJsonnet(e, field, o.Source.Directory, grant))
		}
		problems = slices.Concat(problems, ch.checkDestinations(e, d.Deployment),
			ch.checkOverrides(e, d.Deployment), ch.checkResolved(e), checkWaves(e, d.Deployment),
			checkSync(e, "spec.sync", d.Deployment.Sync, grant), checkAdoptions(e, grant),
			checkNotifications(e, grant))
		for i, o := range d.Deployment.Overrides {
			problems = append(problems,
				checkSync(e, fmt.Sprintf("spec.overrides[%d].sync", i), o.Sync, grant)...)
		}
		return problems
	case d.Set != nil:
		return ch.checkSet(e, d.Set, grant)
	case d.SyncRun != nil:
		return ch.checkSyncRun(e, d.SyncRun)
	case d.Defaults != nil:
		return checkSync(e, "spec.sync", d.Defaults.Sync, grant)
	case d.Notifications != nil:
		return ch.checkChannels(e, d.Notifications)
	}
	return nil
}

func (ch *checker) unknownDeployment(e *entry, id fleet.DeploymentID) fleet.Problem {
	if other := ch.st.entries.get(deploymentKey(id)); other != nil {
		return e.problem("spec.deployment", codeUnknownDeployment, "correct "+other.path,
			"deployment %q is quarantined and has no good state", id.Name)
	}
	fix := didYouMean(string(id.Name), ch.st.effectiveNames(id.Tenant, fleet.KindGitOpsDeployment),
		"declare it in tenants/"+string(id.Tenant)+"/deployments/"+string(id.Name)+".yaml")
	return e.problem("spec.deployment", codeUnknownDeployment, fix,
		"tenant %q has no deployment %q", id.Tenant, id.Name)
}

// unknownEnvironment names the closest environment for the first few mistakes of a file.
func (ch *checker) unknownEnvironment(e *entry, field string, id fleet.EnvironmentID,
	nth int) fleet.Problem {
	path := "tenants/" + string(id.Tenant) + "/environments/" + string(id.Name) + ".yaml"
	if other := ch.st.entries.get(environmentKey(id)); other != nil {
		return e.problem(field, codeUnknownEnv, "correct "+other.path,
			"environment %q is quarantined and has no good state", id.Name)
	}
	fix := "declare it in " + path
	if nth < 10 {
		fix = didYouMean(
			string(id.Name), ch.st.effectiveNames(id.Tenant, fleet.KindManagedEnvironment), fix)
	}
	return e.problem(field, codeUnknownEnv, fix, "tenant %q has no environment %q", id.Tenant,
		id.Name)
}

// didYouMean is a fix that names the closest of some names, or otherwise.
func didYouMean(written string, names []string, otherwise string) string {
	if best := fleet.Closest(written, names); best != "" {
		return fmt.Sprintf("did you mean %q? Otherwise %s", best, otherwise)
	}
	return otherwise
}

// effectiveNames are the names of a kind of a tenant that are in effect.
func (s *state) effectiveNames(t fleet.TenantName, k fleet.Kind) []string {
	var names []string
	for _, key := range s.index.list(membersOf(t, k)) {
		if s.get(key) != nil {
			names = append(names, key.Name)
		}
	}
	return names
}

func (e *entry) itself(k fleet.Key) bool { return k == e.key }

// checkQuota refuses a declaration that would exceed the tenant's quota. Effective declarations
// stay, and may change if the change adds no more Applications than the quota has left.
func (ch *checker) checkQuota(e *entry) []fleet.Problem {
	t := ch.st.get(tenantKey(e.key.Tenant))
	if t == nil {
		return nil // the platform's
	}
	used, quota := ch.st.usedBy(e.key.Tenant), t.Tenant.Quota
	var problems []fleet.Problem
	over := func(field, what string, more, used, quota int) {
		if more > 0 && used+more > quota {
			problems = append(
				problems,
				e.problem(field, codeQuota, "remove some, or ask the platform for more in "+t.Path,
					"tenant %q has %d of %d %s and no room for %d more", e.key.Tenant, used, quota,
					what, more))
		}
	}
	over("spec", "environments", count(e.effective == nil && e.head.Environment != nil),
		used.Environments, quota.Environments)
	over("spec", "deployments", count(e.effective == nil && e.head.Deployment != nil),
		used.Deployments, quota.Deployments)
	field := "spec"
	if e.head.Deployment != nil {
		field = "spec.destination"
	}
	over(field, "applications", ch.st.applications(e.head)-ch.st.applications(e.effective),
		used.Applications, quota.Applications)
	return problems
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// some lists names, not too many.
func some(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + fmt.Sprintf(" or one of %d others", len(names)-8)
	}
	return strings.Join(names, ", ")
}
