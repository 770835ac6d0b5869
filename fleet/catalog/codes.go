package catalog

import (
	"fmt"

	"argosy.dev/argosy/fleet"
)

// CodeSharedClone is the code of a declaration by which a tenant would share Argo CD's clone of a
// repository with another tenant, although one of the two has a credential of its own. The planner
// finds it.
const CodeSharedClone = codeSharedClone

// CodeArtifact is the code of a deployment of an OCI artifact to an engine whose Argo CD deploys
// none. The planner finds it.
const CodeArtifact = codeArtifact

// Codes of the problems that this package finds. They are stable: people search for them and tools
// match them.
const (
	codeUndecoded         = "undecoded"
	codeDuplicate         = "duplicate-identity"
	codeFleetName         = "fleet-name"
	codeFleetRequired     = "fleet-required"
	codeReservedName      = "reserved-name"
	codeUnknownTenant     = "unknown-tenant"
	codeUnknownEnv        = "unknown-environment"
	codeUnknownEngine     = "unknown-engine"
	codeUnknownRing       = "unknown-ring"
	codeRingUnused        = "ring-without-managed"
	codeUnknownDeployment = "unknown-deployment"
	codeNotADestination   = "not-a-destination"
	codeDuplicateOverride = "duplicate-override"
	codeNamespace         = "namespace-not-in-environment"
	codeNamespaceInUse    = "namespace-in-use"
	codeNamespaceClaimed  = "namespace-claimed"
	codeEngineNamespace   = "namespace-of-engine"
	codeRepository        = "repository-not-granted"
	codeGitHost           = "git-host-not-allowed"
	codeClusterGrant      = "cluster-not-granted"
	codeNamespaceGrant    = "namespace-not-granted"
	codeNamespaceReserved = "namespace-reserved"
	codeWholeCluster      = "whole-cluster"
	codeClusterScope      = "cluster-resources-differ"
	codeUnknownCluster    = "unknown-cluster"
	codeSameServer        = "duplicate-cluster"
	codeDeclaredServer    = "server-of-cluster"
	codeSharedIdentity    = "cluster-identity-shared"
	codeClusterHost       = "cluster-host-not-allowed"
	codeClusterResources  = "cluster-resources-not-granted"
	codeAutonomous        = "autonomous-environment"
	codeRegion            = "region-not-allowed"
	codeNoEngine          = "region-without-engine"
	codeQuota             = "quota-exceeded"
	codeOverQuota         = "quota-below-use"
	codeSameRepository    = "duplicate-credential"
	codeInstallationID    = "installation-id-taken"
	codeInstance          = "instance-taken"
	codeSharedClone       = "shared-clone"
	codeArtifact          = "artifact-unsupported"

	codeApplicationNamespace = "application-namespace"
	codeImmutable            = "immutable"
	codeTool                 = "tool-not-granted"
	codeNotification         = "notification-not-granted"
	codeReceiver             = "receiver-not-allowed"
	codeNoChannel            = "subscription-without-channel"
	codeVersionRange         = "version-range-not-granted"
	codeFloats               = "floating-version"
	codePassesWaves          = "branch-passes-waves"
	codeRevisions            = "revisions-of-sources"
	codeReferenced           = "still-referenced"
	codePoolInUse            = "pool-in-use"
	codeSelectsNothing       = "selects-nothing"
	codeUnusedOverride       = "unused-override"
	codeRolloutWave          = "rollout-wave"
	codeRolloutMetric        = "rollout-metric"
	codeCreateNamespace      = "create-namespace"
	codeReplace              = "replace-not-granted"
	codeAdopt                = "adopt-not-granted"
	codeNamespaceMetadata    = "namespace-metadata-not-granted"
	codeSpentSyncRun         = "spent-sync-run"
	codeUnresolved           = "unresolved-variable"
	codeVariableInUse        = "variable-in-use"
	codeMetricsURL           = "metrics-url-behind-agent"
	codeUnmanagedSize        = "unmanaged-size"
	codePolicy               = "policy"
	codePolicyReached        = "policy-in-reach"
)

// Codes returns the codes of this package with their meaning, in one sentence each.
func Codes() map[string]string {
	return map[string]string{
		codeUndecoded: "The file did not decode.",
		codeMetricsURL: "An engine's metrics are at an address that only the control plane could " +
			"read, and the engine is behind an agent.",
		codeDuplicate: "Two files declare the same identity; neither takes effect.",
		codeFleetName: "There is exactly one Fleet, and its name is fleet.",
		codeFleetRequired: "The Fleet cannot be removed: without it no host is allowed and " +
			"no guard is set.",
		codeReservedName:  "The name is reserved, or too long for what is made of it.",
		codeUnknownTenant: "No such tenant is declared in fleet/tenants/.",
		codeUnknownEnv:    "The tenant has no such environment in effect.",
		codeUnmanagedSize: "An Engine has the size of an Argo CD that Argosy does not install: " +
			"`argocd.managed` is missing.",
		codeUnknownRing:       "No such ring is declared in the Fleet.",
		codeRingUnused:        "An Engine names a ring, and Argosy does not install its Argo CD.",
		codeUnknownEngine:     "No such engine is declared in fleet/engines/.",
		codeUnknownDeployment: "The tenant has no such deployment in effect.",
		codeNotADestination:   "An environment is named that the deployment does not go to.",
		codeDuplicateOverride: "Two overrides are for the same environment.",
		codeNamespace:         "The deployment's namespace is not one of the environment's.",
		codeNamespaceInUse: "The environment drops a namespace that a deployment which names " +
			"it still goes to; the environment keeps its last good state.",
		codeNamespaceClaimed: "Another tenant deploys to this namespace of this API server, or " +
			"wants to at the same time.",
		codeEngineNamespace: "The namespace is one in which an engine's Argo CD lives or serves " +
			"another tenant's Applications.",
		codeRepository: "The tenant's grant does not cover the repository.",
		codeGitHost:    "The fleet does not allow the repository's host.",
		codeClusterGrant: "The API server is none of those that the tenant is granted in " +
			"Tenant.clusters.",
		codeNamespaceGrant: "The API server is granted to several tenants, and the namespace " +
			"on it is not granted to this one in Tenant.namespaces.",
		codeNamespaceReserved: "The namespace is one of Kubernetes or Argo CD, and " +
			"Tenant.environments does not grant it to this environment.",
		codeWholeCluster: "All namespaces or all cluster-scoped kinds of a cluster are not " +
			"granted to this environment, or are on a cluster that several tenants use.",
		codeClusterScope: "Another environment of the tenant in this region may deploy other " +
			"cluster-scoped kinds; Argo CD has one list for both.",
		codeUnknownCluster: "No such cluster is declared in fleet/clusters/.",
		codeSameServer:     "Another Cluster has the same API server.",
		codeDeclaredServer: "The API server is a Cluster of the platform, which environments name by " +
			"ref; what is in effect stays.",
		codeSharedIdentity: "Argo CD has one identity of a cloud on the Cluster, and several tenants " +
			"would use it.",
		codeClusterHost:      "The API server is an internal address that the fleet does not except.",
		codeClusterResources: "The tenant's grant has no cluster-scoped kinds.",
		codeAutonomous: "The deployment names or selects an environment whose cluster " +
			"has Applications of its own, and takes none.",
		codeRegion: "The tenant may not be placed in this region.",
		codeNoEngine: "No engine is in this region, so the environment cannot be " +
			"placed yet.",
		codeQuota: "The tenant's quota has no room; what is in effect already stays.",
		codeOverQuota: "The tenant uses more than its quota allows; what is in effect " +
			"stays, and nothing is added.",
		codeSameRepository: "The tenant has another credential for the same repository.",
		codeInstallationID: "Another engine has this installationID; Argo CD would take the " +
			"one's resources for the other's.",
		codeApplicationNamespace: "The engine cannot give the Applications of this namespace " +
			"to a tenant.",
		codeInstance: "Another engine is the same Argo CD (same connection, same namespace), or " +
			"serves the Applications of the namespace.",
		codeRevisions:    "A SyncRun of a deployment with several sources has a revision for each.",
		codeVersionRange: "The Tenant is not allowed ranges of versions.",
		codeFloats: "The version is a range; Argo CD deploys each new version in it without a " +
			"commit.",
		codePassesWaves: "A deployment with a rollout follows a branch, whose commits reach all " +
			"environments at once.",
		codeReceiver: "The Fleet allows no messages to the host or the domain of a channel.",
		codeNoChannel: "A deployment's subscription names a channel that the tenant's " +
			"notifications.yaml does not declare.",
		codeNotification: "The Tenant is not allowed the service or recipients of the notification.",
		codeTool:         "The Tenant is not allowed the version or plug-in that renders the source.",
		codeImmutable: "A SyncRun does not change once it is in effect, nor does the API server of a " +
			"Cluster while an environment is on it.",
		codePoolInUse: "The pool is removed, or loses a cluster, while it has instances there; " +
			"it stays in effect until they are removed.",
		codeReferenced: "The declaration is removed while something still names it; it " +
			"keeps its last good state.",
		codeSelectsNothing: "The selector matches no environment that lists the deployment's " +
			"namespace.",
		codeUnusedOverride: "The override matches no environment of the deployment.",
		codeRolloutWave: "The wave of a rollout selects no environment of the deployment, or one that " +
			"an earlier wave selects too.",
		codeRolloutMetric: "A wave of a rollout names a metric that the Fleet does not have.",
		codeUnresolved: "A text with variables has no valid value in one of the deployment's " +
			"environments.",
		codeVariableInUse: "With this change of an environment, a deployment would have a text " +
			"without a valid value there.",
		codeCreateNamespace: "Argo CD may not create the namespace there.",
		codeAdopt:           "Tenant.allow does not let the tenant's deployments adopt Applications.",
		codeReplace:         "Tenant.allow does not let the tenant's syncs replace resources.",
		codeNamespaceMetadata: "Tenant.allow does not grant the key of the namespace's labels or " +
			"annotations.",
		codeSpentSyncRun: "The SyncRun names an environment that its deployment no longer " +
			"goes to.",
		codePolicy: "A policy of the platform (fleet/policies/) is not kept, or " +
			"cannot be judged.",
		codePolicyReached: "The environment's change would make a deployment that reaches " +
			"it break a policy; the environment keeps its last good state.",
	}
}

func (e *entry) warning(field, code, fix, message string, args ...any) fleet.Problem {
	p := e.problem(field, code, fix, message, args...)
	p.Severity = fleet.SeverityWarning
	return p
}

// problem is an error in the file of an entry. A generated deployment has the file of its set, in
// which the deployment's fields are below the template.
func (e *entry) problem(field, code, fix, message string, args ...any) fleet.Problem {
	if e.key.Kind == fleet.KindEngine && fleet.IsGenerated(e.key, e.path) {
		field = poolField(field)
		message, args = "instance %q: "+message, append([]any{e.key.Name}, args...)
	} else if fleet.IsGenerated(e.key, e.path) {
		if field != "" {
			field = fleet.TemplateField + field
		}
		message, args = "%s"+message, append([]any{ofGenerated(e.key)}, args...)
	}
	return fleet.Problem{Key: e.key, Path: e.path, Field: field, Severity: fleet.SeverityError,
		Code:    code,
		Message: fmt.Sprintf(message, args...), Fix: fix}
}

// ofGenerated precedes the message of a problem of a generated deployment: the line is the same for
// all of its set.
func ofGenerated(k fleet.Key) string { return fmt.Sprintf("deployment %q: ", k.Name) }
