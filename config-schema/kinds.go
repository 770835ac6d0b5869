package configschema

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// kinds are the kinds of this version, in the order in which people meet them.
var (
	kindOrder = []*kind{kindFleet, kindEngine, kindTenant, kindPolicy, kindEnvironment,
		kindDeployment, kindCredential, kindSyncRun}
	kinds = func() map[fleet.Kind]*kind {
		m := make(map[fleet.Kind]*kind, len(kindOrder))
		for _, k := range kindOrder {
			m[k.name] = k
		}
		return m
	}()
	kindNames = func() []string {
		var names []string
		for _, k := range kindOrder {
			names = append(names, string(k.name))
		}
		return slices.Clip(names)
	}()
)

// laterKinds belong to the contract, and act in a later version.
var laterKinds = map[string]bool{"EnginePool": true, "Rollout": true}

func notAllowed(message, fix string) word { return word{codeNotAllowed, message, fix} }

// neverAnywhere are fields of Argo CD and Kubernetes that people try. Each would let a declaration
// steer what is Argosy's or the platform's (CVE-2024-32476, CVE-2026-42880): none is passed
// through.
var neverAnywhere = map[string]word{
	"annotations": notAllowed(
		"declarations have no annotations: Argo CD, its notifications and its image updater act on them", "use labels to select by"),
	"finalizers": notAllowed(
		"finalizers are Argosy's to set, and only in a deletion that was planned",
		"use deletionPolicy"),
	"ignoreDifferences": notAllowed(
		"ignoreDifferences would let Argo CD evaluate expressions of a tenant", "remove it"),
	"info":             notAllowed("info is not passed to Argo CD", "remove it"),
	"managedFields":    notAllowed("the field is the API server's", "remove it"),
	"matchExpressions": notAllowed("a selector matches exact labels only", "use matchLabels"),
	"operation": notAllowed("a sync is asked for with a SyncRun",
		"write tenants/<tenant>/syncs/<name>.yaml"),
	"ownerReferences": notAllowed("the field is Kubernetes' own", "remove it"),
	"plugin": notAllowed("config management plugins are not for declarations",
		"use kustomize, helm or directory"),
	"project": notAllowed(
		"the AppProject follows from the tenant alone; no field steers it", "remove it"),
	"revisionHistoryLimit": notAllowed("the field is the platform's", "remove it"),
	"sources": notAllowed("a deployment has one source",
		"write one deployment per source"),
	"status": notAllowed("the status is not declared: see argosy get", "remove it"),
	"syncOptions": notAllowed(
		"sync options such as Replace and Force are not for declarations",
		"use sync: {createNamespace: true} for CreateNamespace"),
	"syncPolicy": notAllowed("the sync policy is written as sync",
		"use sync: {mode: automated, prune: true, selfHeal: true}"),
	"password": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"token": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"bearerToken": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"sshPrivateKey": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
}

var neverTop = map[string]word{
	"data": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
	"stringData": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
}

var neverMetadata = map[string]word{
	"namespace": notAllowed("the tenant follows from the folder", "remove it"),
	"uid":       notAllowed("the field is the API server's", "remove it"),
}

const joinsByToken = "remove it: the agent makes its own key, and joins with a one-time token of argosy agent token create"

// neverAgent are fields that people write from habit where an agent dials out.
var neverAgent = map[string]word{
	"server": notAllowed("an agent dials out: no address of its cluster is declared",
		"remove it, or write cluster: {server: ..., credentialsRef: {name: ...}} instead of agent"),
	"url": notAllowed("an agent dials out: no address of its cluster is declared",
		"remove it; the agent is given the control plane's address when it joins"),
	"caData": notAllowed("an agent dials out: no certificate of its cluster is declared",
		"remove it, or write cluster: {server: ..., caData: ..., credentialsRef: {name: ...}} "+
			"instead of agent"),
	"credentialsRef":    notAllowed("no credential of the agent's cluster leaves it", joinsByToken),
	"kubeconfigRef":     notAllowed("no credential of the agent's cluster leaves it", joinsByToken),
	"token":             {codePlaintextSecret, "no field holds a secret in clear", joinsByToken},
	"registrationToken": {codePlaintextSecret, "no field holds a secret in clear", joinsByToken},
	"name": notAllowed(
		"an agent is known by what it serves: the environment, or the Engine", "remove it"),
	"namespace": notAllowed("the agent works in the namespace of Argo CD",
		"of an environment write argocdNamespace; of an Engine it is spec.argocd.namespace"),
	"installationID": notAllowed(
		"an environment's own Argo CD keeps its installationID; that of an Engine is "+
			"spec.argocd.installationID", "remove it"),
}

// Parts that several kinds share.

func secretRef(doc, example string) value {
	return object(field{name: "name", doc: doc, example: example, required: true,
		value: textOf(formatLabelWord)})
}

func selector(doc, example string) value {
	return object(field{name: "matchLabels", doc: doc, example: example, required: true,
		value: value{shape: shapeLabels}})
}

func groupKinds() value {
	return listOf(object(
		field{
			name:    "group",
			doc:     "API group; `\"\"` is the core group. Argo CD's own groups are refused.",
			example: `"rbac.authorization.k8s.io"`, required: true,
			value: textOf(formatGroup).mayBeEmpty()},
		field{name: "kind", doc: "Kind, exactly.", example: "Namespace", required: true,
			value: textOf(formatKind).atMost(63)},
	)).atMost(50).checked(uniqueGroupKinds)
}

func taints() value {
	return listOf(object(
		field{name: "key", doc: "Key, exactly.", example: "gpu", required: true,
			value: textOf(formatLabelKey)},
		field{name: "value", doc: "Value, exactly. Left out: the taint has none.", example: "a100",
			value: textOf(formatLabel)},
	)).atMost(20)
}

func syncSettings() value {
	return object(
		field{
			name: "mode",
			doc: "Who starts a sync: `automated` (every change of the source) or `manual` (a " +
				"SyncRun).", example: "automated", fallback: "Fleet.defaults, else automated",
			value: wordOf(string(fleet.SyncAutomated), string(fleet.SyncManual))},
		field{name: "prune", doc: "Whether resources that left the source are removed.",
			example: "true", fallback: "Fleet.defaults, else true", value: boolean()},
		field{name: "selfHeal", doc: "Whether changes made on the cluster are put back.",
			example: "true", fallback: "Fleet.defaults, else true", value: boolean()},
		field{name: "createNamespace", doc: "Whether the namespace is made when it is not there.",
			example: "true", fallback: "Fleet.defaults, else false", value: boolean()},
	)
}
