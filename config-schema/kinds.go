package configschema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/policy"
)

// kinds are the kinds of this version, in the order in which people meet them.
var (
	kindOrder = []*kind{kindFleet, kindEngine, kindCluster, kindTenant, kindPolicy, kindEnvironment,
		kindDeployment, kindSet, kindDefaults, kindCredential, kindSyncRun}
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

var neverTop = map[string]word{
	"data": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
	"stringData": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
}

// neverAnywhere are fields of Argo CD and Kubernetes that people try. Each would let a declaration
// control a setting of Argosy or of the platform (CVE-2024-32476, CVE-2026-42880): none is passed
// on.
var neverAnywhere = map[string]word{
	"annotations": notAllowed(
		"declarations have no annotations: Argo CD and its image updater act on them",
		"use labels to select by; notifications, watchPaths, links, wave and sync.diff are "+
			"fields of "+
			"a deployment"),
	"finalizers": notAllowed(
		"finalizers are Argosy's to set, and only in a deletion that was planned",
		"use deletionPolicy"),
	"ignoreDifferences": notAllowed("ignoreDifferences is a field of a deployment's spec",
		"write it below spec"),
	"info":          notAllowed("info is a field of a deployment's spec", "write it below spec"),
	"managedFields": notAllowed("the field is the API server's", "remove it"),
	"operation": notAllowed("a sync is asked for with a SyncRun",
		"write tenants/<tenant>/syncs/<name>.yaml"),
	"ownerReferences": notAllowed("the field is Kubernetes' own", "remove it"),
	"plugin": notAllowed("a config management plugin is part of a source",
		"write source: {plugin: {name: ...}}; the platform grants it in allow.plugins of the Tenant"),
	"project": notAllowed(
		"the AppProject follows from the tenant alone; no field steers it", "remove it"),
	"revisionHistoryLimit": notAllowed("revisionHistoryLimit is a field of a deployment's spec",
		"write it below spec"),
	"status": notAllowed("the status is not declared: see argosy get", "remove it"),
	"syncOptions": notAllowed(
		"each sync option is a field of sync",
		"write sync: {createNamespace: true, serverSideApply: true}; Force, Prune and Delete are "+
			"annotations of single resources"),
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

var neverMetadata = map[string]word{
	"namespace": notAllowed("the tenant follows from the folder", "remove it"),
	"uid":       notAllowed("the field is the API server's", "remove it"),
}

var kindFleet = describe(kind{
	name: fleet.KindFleet, place: "fleet/fleet.yaml",
	doc: "The guards and defaults of the whole fleet. There is exactly one, and it is the " +
		"platform's.",
}, object(
	field{
		name: "owners",
		doc: "Owners of `fleet/`, as `Tenant.owners`. Left out: the administrators of the " +
			"config repo on its Git host.", example: `["github:acme/platform"]`, value: owners()},
	field{
		name: "guards",
		doc: "How many Applications may be deleted without an approval: by one tenant, and by " +
			"all together (`fleet`), summed over the window.", value: object(
			field{name: "maxDeletes", doc: "Applications.", example: "20", fallback: "20",
				value: integer(1, 100000)},
			field{
				name:    "maxDeletePercent",
				doc:     "Percent of the Applications that existed when the window began.",
				example: "20", fallback: "20", value: integer(1, 100)},
			field{
				name:    "alwaysAllowed",
				doc:     "This many Applications may be deleted regardless of the percentage.",
				example: "5", fallback: "5", value: integer(1, 100000)},
			field{name: "window", doc: "How long deletions are summed: a duration from 1m to 168h.",
				example: "1h", fallback: "1h",
				value: value{shape: shapeDuration, least: int64(time.Minute),
					most: int64(168 * time.Hour)}},
			field{
				name: "fleet",
				doc: "What all tenants together may delete. Wider than what one may, so that " +
					"no tenant uses it up alone.", value: object(
					field{
						name:    "maxDeletes",
						doc:     "Applications. Left out: five times `guards.maxDeletes`.",
						example: "100", value: integer(1, 1000000)},
					field{
						name: "maxDeletePercent",
						doc: "Percent of the fleet's Applications that existed when the window " +
							"began. Left out: as `guards.maxDeletePercent`.", example: "20",
						value: integer(1, 100)},
					field{
						name: "alwaysAllowed",
						doc: "This many Applications may be deleted regardless of the percentage. " +
							"Left out: as `guards.alwaysAllowed`.", example: "5",
						value: integer(1, 100000)},
				)},
		)},
	field{
		name: "gitHosts",
		doc: "The hosts that a repoURL may name: exact, with `:port` when it is not the " +
			"default. `http://host` allows that host without TLS.", example: "[git.example.com]",
		required: true,
		value:    listOf(textOf(formatGitHost))},
	field{
		name: "clusterHosts",
		doc: "Hosts of API servers that may be internal addresses (loopback, names without " +
			"a domain, Services): `host` or `host:port`, exactly. For labs and single-host " +
			"installations.",
		example: `["127.0.0.1:6443"]`, value: listOf(textOf(formatClusterHost))},
	field{
		name: "refusePrivateClusters",
		doc: "Refuse API servers at addresses of private networks (10/8, 172.16/12, " +
			"192.168/16, 100.64/10) that `clusterHosts` does not list. Names are not resolved.",
		example: "true", fallback: "false", value: boolean()},
	field{name: "defaults", doc: "Fields that deployments inherit when they leave them out. " +
		"A tenant's TenantDefaults win.", value: defaults()},
), func(d *fleet.Declaration, s *fleet.FleetSpec) { d.Fleet = s })

var kindEngine = describe(kind{
	name: fleet.KindEngine, place: "fleet/engines/<name>.yaml",
	doc: "One Argo CD instance that Argosy fills.",
}, object(
	field{
		name:     "argocd",
		doc:      "Where the instance's Applications live, and what it marks its resources with.",
		required: true, value: object(
			field{name: "namespace", doc: "The namespace of Argo CD and of its Applications.",
				example: "argocd-eu-1", required: true, value: textOf(formatEngineNamespace)},
			field{
				name: "installationID",
				doc: "Argo CD's `installationID`. Unique in the fleet: two instances with one " +
					"ID take each other's resources for their own.", example: "eu-1",
				required: true, value: textOf(formatLabelWord)},
		)},
	field{name: "connection", doc: "How the control plane reaches the instance's cluster.",
		required: true, value: object(
			field{
				name: "inCluster",
				doc: "The instance is on the control plane's own cluster. Only `true` is " +
					"written.",
				example: "true", value: boolean()},
			field{name: "kubeconfigRef", doc: "A secret that holds a kubeconfig.",
				example: "{name: engine-eu-1}",
				value:   secretRef("The secret's name.", "engine-eu-1")},
			field{
				name: "agent",
				doc: "An agent beside the instance dials out: for an Argo CD behind a firewall " +
					"that serves several environments there. It has no field yet.", example: "{}",
				value: object().mayBeEmpty().not(neverAgent)},
		).exactlyOneOf("inCluster", "kubeconfigRef", "agent").
			when(
				"inCluster on the control plane's own cluster, kubeconfigRef where it reaches " +
					"another, agent where it cannot").checked(inClusterIsTrue)},
	field{name: "region", doc: "Environments of this region are placed here.", example: "eu",
		required: true, value: textOf(formatLabelWord)},
	field{
		name: "capacity", doc: "How much placement gives to the engine. 0: nothing is placed here.",
		required: true, value: object(
			field{name: "applications", doc: "Applications.", example: "1500", required: true,
				value: integer(0, 100000)},
			field{name: "environments", doc: "Environments.", example: "100", required: true,
				value: integer(0, 100000)},
		)},
	field{name: "dedicatedTo", doc: "The tenants that alone may use it. `[]` or left out: shared.",
		example: "[acme]", value: listOf(textOf(formatName)).mayBeEmpty()},
	field{name: "platformTenant", doc: "The tenant of the platform itself. Its environments may " +
		"be granted the namespace of this Argo CD, and `kube-*` on its cluster, although the " +
		"Engine serves other tenants too. Who may write there owns this Argo CD and all that it " +
		"deploys: name no tenant of anybody else.", example: "platform", value: textOf(formatName)},
	field{
		name:    "taints",
		doc:     "An environment is placed here only if its tenant tolerates each of them.",
		example: "[{key: gpu}]", value: taints().by("key")},
	field{
		name: "state",
		doc: "`Active` takes new environments. `Cordoned` takes none. `Draining` takes none, " +
			"and its environments move away.", example: "Active", fallback: "Active",
		value: wordOf(string(fleet.EngineActive), string(fleet.EngineCordoned),
			string(fleet.EngineDraining))},
	field{name: "ring", doc: "The release ring that its Argo CD version follows.",
		example: "stable", fallback: "stable", value: textOf(formatLabelWord)},
	pauseAdoption("on the engine"),
	field{
		name: "applicationNamespaces",
		doc: "Namespaces besides `argocd.namespace` with Applications that the engine's Argo CD " +
			"serves (`application.namespaces` of its `argocd-cmd-params-cm`) and that a tenant " +
			"may adopt (`docs/adopting.md`). Each belongs to one tenant, whose AppProject permits " +
			"it: every account that may write Applications in the namespace may deploy as the " +
			"tenant, within that AppProject.",
		example: "[{namespace: shop-apps, tenant: acme}]",
		value: listOf(object(
			field{name: "namespace", doc: "One exact namespace.", example: "shop-apps",
				required: true, value: textOf(formatApplicationNamespace)},
			field{name: "tenant", doc: "The tenant that its Applications belong to.",
				example: "acme", required: true, value: textOf(formatName)},
		)).by("namespace").atMost(100)},
), func(d *fleet.Declaration, s *fleet.EngineSpec) { d.Engine = s })

func pauseAdoption(where string) field {
	return field{name: "pauseAdoption",
		doc: "Argosy adopts no further Application " + where + ". Adopted ones stay as they " +
			"are, and can be changed and released.",
		example: "true", fallback: "false", value: boolean()}
}

func inClusterIsTrue(d *decoder, into reflect.Value, at node) {
	if c := into.Addr().Interface().(*fleet.Connection); !c.InCluster && c.KubeconfigRef == nil &&
		c.Agent == nil {
		d.at("inCluster", func() {
			d.problem(child(at, "inCluster"), codeInvalidValue,
				"inCluster: false does not describe a connection",
				"write inCluster: true, or kubeconfigRef: {name: ...} or agent: {} instead")
		})
	}
}

var kindCluster = describe(kind{
	name: fleet.KindCluster, place: "fleet/clusters/<name>.yaml",
	doc: "An API server of the platform that environments name (`cluster: {ref: <name>}`), with " +
		"the identity of Argo CD there. `Tenant.clusters` grants it as `cluster:<name>`.",
}, object(
	field{
		name: "server",
		doc: "`https://host[:port]` of the API server, lower case, without path. It does not " +
			"change while an environment names the Cluster.",
		example: "https://api.prod-1.example.com:6443", required: true,
		value: textOf(formatServer)},
	caData("Left out: the system's."),
	field{
		name: "credentialsRef",
		doc: "A secret of the platform (in the control plane's namespace): a token, a certificate " +
			"and key, or a kubeconfig. With it Argosy requests and renews tokens of one service " +
			"account per environment: the one with the environment's name in namespace " +
			"`argosy-tenant-<tenant>` of the cluster. Argo CD gets these tokens alone, so that " +
			"several tenants may share the Cluster.",
		example: "{name: prod-1}",
		value:   secretRef("The secret's name.", "prod-1")},
	field{
		name: "eks",
		doc: "Argo CD authenticates with the IAM role of its Pod. It is one identity for the " +
			"Cluster, which only one tenant may be granted.",
		value: object(
			field{name: "clusterName", doc: "The cluster's name in EKS.", example: "prod-1",
				required: true, value: textOf(formatEKSName)},
			field{
				name:    "roleARN",
				doc:     "An IAM role that Argo CD assumes first. Left out: the Pod's.",
				example: "arn:aws:iam::123456789012:role/argocd-prod-1",
				value:   textOf(formatRoleARN)},
		).not(map[string]word{"profile": notAllowed("a profile is a file in Argo CD's Pod",
			"write roleARN, or leave it out for the Pod's own role")})},
	field{
		name: "gke",
		doc: "Argo CD authenticates with the Google service account of its Pod (workload " +
			"identity). It has no field. Only one tenant may be granted the Cluster.",
		example: "{}", value: object().mayBeEmpty()},
	field{
		name: "aks",
		doc: "Argo CD authenticates with an Azure identity of its Pod. `{}` takes every default. " +
			"Only one tenant may be granted the Cluster.",
		example: "{login: workloadIdentity}", value: object(
			field{
				name: "login",
				doc: "`workloadIdentity`: the federated token of the Pod. `managedIdentity`: " +
					"the identity of the node.",
				example:  string(fleet.AKSWorkloadIdentity),
				fallback: string(fleet.AKSWorkloadIdentity),
				value: wordOf(string(fleet.AKSWorkloadIdentity),
					string(fleet.AKSManagedIdentity))},
			field{
				name: "clientID", doc: "The client ID of the identity. Left out: the Pod's.",
				example: "7d8cdf74-0a5f-4a5e-8f0c-2b3d4e5f6a7b", value: textOf(formatGUID)},
			field{
				name: "tenantID", doc: "The Azure tenant of the identity. Left out: the Pod's.",
				example: "0f1e2d3c-4b5a-4678-9abc-def012345678", value: textOf(formatGUID)},
			field{
				name: "environment", doc: "The cloud of Azure.",
				example:  string(fleet.AKSPublicCloud),
				fallback: string(fleet.AKSPublicCloud),
				value: wordOf(string(fleet.AKSPublicCloud), string(fleet.AKSUSGovernment),
					string(fleet.AKSChina))},
		).mayBeEmpty()},
).exactlyOneOf("credentialsRef", "eks", "gke", "aks").
	when("credentialsRef where several tenants share the cluster; an identity of the cloud for a "+
		"cluster of one tenant").
	checked(noKeyInCluster).
	not(map[string]word{
		"awsAuthConfig": notAllowed("Argosy writes what Argo CD runs",
			"write eks: {clusterName: ...}"),
		"execProviderConfig": notAllowed("Argosy writes what Argo CD runs",
			"write eks: {clusterName: ...}, gke: {} or aks: {}"),
		"exec": notAllowed("Argosy writes what Argo CD runs",
			"write eks: {clusterName: ...}, gke: {} or aks: {}"),
		"namespaces": notAllowed("a Cluster grants nothing",
			"write clusters and namespaces of the Tenant"),
	}),
	func(d *fleet.Declaration, s *fleet.PlatformClusterSpec) { d.Cluster = s })

// caData is the CA of an API server.
func caData(doc string) field {
	return field{
		name:    "caData",
		doc:     "The cluster's CA certificates: PEM, in base64. " + doc,
		example: exampleCA, value: textOf(formatCAData).atMost(64 << 10)}
}

const exampleCA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJuRENDQVVHZ0F3SUJBZ0lVRElmNU1LYmdTQTJqVXRLRFgxTzJudjlId0JFd0NnWUlLb1pJemowRUF3SXcKSWpFZ01CNEdBMVVFQXd3WFlYQnBMbVYxTFRFdVpYaGhiWEJzWlM1amIyMGdRMEV3SUJjTk1qWXhNVEl4TURRMApOVEE1V2hnUE1qRXlOakV3TWpnd05EUTFNRGxhTUNJeElEQWVCZ05WQkFNTUYyRndhUzVsZFMweExtVjRZVzF3CmJHVXVZMjl0SUVOQk1Ga3dFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRTdGNkRrSFRZaENaazJjUysKbDNEdmNJejV5c0RKcFhVSWVsblVBSFlDMDdLNndDOGRXYlMxdFZPVysrWFZ2U1ZBRlI1RldWM3lEVGZUam1DOQpQQmNLRDZOVE1GRXdIUVlEVlIwT0JCWUVGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUI4R0ExVWRJd1FZCk1CYUFGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3Q2dZSUtvWkkKemowRUF3SURTUUF3UmdJaEFPaC9manpadElqWG90MnJLMlVIWUM0MDI1N3JVc3VLMWk3VGgvVjA1ZjVzQWlFQQpscnFMQm1iWW4wZEZQWlE5bGRtSGRwM3draTFaU2VkaEcvK0hyQkpxY1VBPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="

var kindTenant = describe(kind{
	name: fleet.KindTenant, place: "fleet/tenants/<name>.yaml",
	doc: "The platform's grant to one tenant: its owners, its quota, and what it may use.",
}, object(
	field{
		name: "owners",
		doc: "Owners of the tenant, who approve its pull requests: people and teams of the Git " +
			"host, and groups of the identity provider.",
		example: `["github:alice", "github:acme/leads"]`, required: true, value: owners()},
	field{name: "quota", doc: "How much the tenant may declare. 0: none.", required: true,
		value: object(
			field{name: "environments", doc: "ManagedEnvironments.", example: "20", required: true,
				value: integer(0, 100000)},
			field{name: "deployments", doc: "GitOpsDeployments.", example: "200", required: true,
				value: integer(0, 100000)},
			field{
				name: "applications",
				doc:  "Applications: deployments times the environments of each.", example: "500",
				required: true, value: integer(0, 100000)},
		)},
	field{
		name: "repositories", first: true,
		doc: "What may be deployed: the URL of a repository, or with a trailing slash " +
			"everything below it. Left out: none, so that it deploys nothing.",
		example: `["https://git.example.com/acme/"]`,
		value:   listOf(textOf(formatGrant))},
	field{
		name: "clusters", first: true,
		doc: "API servers that its environments may name: the URL of one, `.domain` for every " +
			"host below that domain, `cluster:<name>` for a Cluster of the platform, or " +
			"`engine:<name>` for the cluster that an Engine runs on. Left out: none; " +
			"environments with an agent need none.",
		example: `["https://api.eu-1.example.com:6443", .acme.example.com]`,
		value:   listOf(textOf(formatServerGrant))},
	field{
		name: "namespaces",
		doc: "Namespaces that the tenant may use on API servers that other tenants are " +
			"granted too: exact names, or prefixes that end in `-`. It may use any namespace on " +
			"a server that is granted to it alone.",
		example: "[acme, acme-]", value: listOf(textOf(formatNamespaceGrant))},
	field{name: "placement", doc: "Which engines may serve the tenant.", value: object(
		field{name: "regions", doc: "Regions that its environments may be in. Left out: any.",
			example: "[eu]", value: listOf(textOf(formatLabelWord)).atMost(100)},
		field{name: "dedicated", doc: "Only engines that name the tenant in `dedicatedTo`.",
			example: "false", fallback: "false", value: boolean()},
		field{
			name: "alone",
			doc: "Only engines whose `dedicatedTo` names the tenant and no other: an " +
				"application-controller and a repo-server of its own.", example: "false",
			fallback: "false", value: boolean()},
		field{name: "engineSelector", doc: "Labels that an engine must carry.",
			value: selector("Label keys and exact values; all must match.", "{tier: shared}")},
		field{name: "tolerations", doc: "Taints of engines that do not keep the tenant off.",
			example: "[{key: gpu}]", value: taints()},
	)},
	field{
		name: "clusterResources",
		doc:  "Cluster-scoped kinds that environments with `clusterResources: true` may deploy: exact.", example: `[{group: "", kind: Namespace}]`, value: groupKinds()},
	field{name: "allow", doc: "Fields of declarations that are not for every tenant.",
		example: "{replace: true}", value: allowances()},
	pauseAdoption("of the tenant"),
	field{
		name: "environments",
		doc: "Grants to single environments of the tenant, beyond the fields above. Each one " +
			"holds for the environment of this name alone.", value: listOf(object(
			field{name: "name", doc: "The environment.", example: "prod-eu", required: true,
				value: textOf(formatName)},
			field{
				name: "namespaces",
				doc: "Namespaces that the environment may list although they are reserved: " +
					"`default`, `kube-*`, `argocd`, or the own namespace of an Engine whose " +
					"`dedicatedTo` names this tenant and no other, or whose `platformTenant` it " +
					"is. Exact names. Who may write to `kube-system` owns the cluster; who may " +
					"write to the namespace of an Argo CD owns that instance, its credentials " +
					"and what its service account may do.",
				example: "[kube-system, default]", value: listOf(textOf(formatGrantedNamespace))},
			field{
				name: "clusterResources",
				doc: "Cluster-scoped kinds besides the tenant's `clusterResources`, if the " +
					"environment has `clusterResources: true`.",
				example: `[{group: rbac.authorization.k8s.io, kind: ClusterRole}]`,
				value:   groupKinds()},
			field{
				name: "allNamespaces",
				doc: "The environment may write `allNamespaces: true`: every namespace of its " +
					"cluster, those of Kubernetes included. Only on a cluster of this tenant " +
					"alone; grant it nowhere where an Engine or the control plane runs.",
				example: "false", fallback: "false", value: boolean()},
			field{
				name: "allClusterResources",
				doc: "The environment may deploy every cluster-scoped kind, if it has " +
					"`clusterResources: true`. Only on a cluster of this tenant alone; grant it " +
					"nowhere where an Engine or the control plane runs.",
				example: "false", fallback: "false", value: boolean()},
		)).by("name").atMost(1000)},
), func(d *fleet.Declaration, s *fleet.TenantSpec) { d.Tenant = s })

// owners is a list of people, teams and groups.
func owners() value { return listOf(textOf(formatOwner)).atMost(100).checked(ownersOnce) }

// ownersOnce refuses an owner who is named twice with different case: Git hosts ignore case, so one
// person would count for two.
func ownersOnce(d *decoder, into reflect.Value, at node) {
	list := into.Interface().([]string)
	for i, o := range list {
		for j, before := range list[:i] {
			if o != before && strings.EqualFold(o, before) {
				d.steps = append(d.steps, step{"", i})
				d.problem(at.Content[i], codeDuplicateEntry,
					quoted(o)+" is named twice with different case; first as "+quoted(list[j]),
					"remove one of them")
				d.steps = d.steps[:len(d.steps)-1]
				break
			}
		}
	}
}

func taints() value {
	return listOf(object(
		field{name: "key", doc: "Key, exactly.", example: "gpu", required: true,
			value: textOf(formatLabelKey)},
		field{name: "value", doc: "Value, exactly. Left out: the taint has none.", example: "a100",
			value: textOf(formatLabel)},
	)).atMost(20)
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

// uniqueGroupKinds runs on the list, since both fields together are the key of an entry.
func uniqueGroupKinds(d *decoder, into reflect.Value, at node) {
	first := map[fleet.GroupKind]bool{}
	for i, gk := range into.Interface().([]fleet.GroupKind) {
		if first[gk] {
			d.steps = append(d.steps, step{"", i})
			d.problem(at.Content[i], codeDuplicateEntry,
				"kind "+gk.Kind+" of this group is named twice", "remove one of them")
			d.steps = d.steps[:len(d.steps)-1]
		}
		first[gk] = true
	}
}

var kindEnvironment = describe(kind{
	name: fleet.KindManagedEnvironment, place: "tenants/<tenant>/environments/<name>.yaml",
	doc: "A cluster to deploy to, and the tenant's namespaces on it. An engine reaches it " +
		"(`cluster`), or an agent on it dials out (`agent`).",
}, object(
	field{name: "cluster", doc: "How an engine reaches the API server.", value: object(
		field{
			name: "server",
			doc: "`https://host[:port]` of the API server, lower case, without path. Internal " +
				"addresses need an entry in `Fleet.clusterHosts`.",
			example: "https://api.eu-1.example.com:6443",
			value:   textOf(formatServer)},
		field{
			name: "engine",
			doc: "The Engine on whose own cluster the environment is, instead of `server`. It " +
				"serves the environment, with the credential of `credentialsRef` or as a service " +
				"account of the environment, and not with Argo CD's own. `Tenant.clusters` " +
				"grants it as `engine:<name>`, `Tenant.namespaces` each namespace.",
			example: "eu-1", value: textOf(formatName)},
		field{
			name: "ref",
			doc: "A Cluster of the platform, instead of `server`: it has the API server, the CA " +
				"and the identity. `Tenant.clusters` grants it as `cluster:<name>`.",
			example: "prod-1", value: textOf(formatName)},
		caData("Only beside `server` and `engine`. Left out: the system's."),
		field{
			name: "credentialsRef",
			doc: "The secret of this tenant that holds the credential: a token, or a " +
				"certificate and key; and a `ca.crt` if `caData` is left out. Required beside " +
				"`server`. Left out beside `engine`: Argosy requests and renews tokens of the " +
				"service account with the environment's name in namespace " +
				"`argosy-tenant-<tenant>` of that cluster. Refused beside `ref`.",
			example: "{name: prod-eu}", first: true,
			value: secretRef("The secret's name.", "prod-eu")},
	).exactlyOneOf("server", "ref", "engine").
		when("server, unless the platform declares the Cluster, or the environment is on the "+
			"cluster of the Engine that serves it").
		atMostOneOf("ref", "caData").when("the Cluster has its CA").
		atMostOneOf("ref", "credentialsRef").when("the Cluster has an identity").
		needs("server", "credentialsRef").checked(noKeyInCAData)},
	field{
		name: "agent",
		doc: "The cluster deploys to itself: an agent on it dials out to the control plane, " +
			"which needs neither the cluster's address nor a credential. `argosy agent token " +
			"create TENANT/ENVIRONMENT` creates the token that the agent joins with. `{}` takes " +
			"every default.", example: "{argocdNamespace: argocd}", value: object(
			field{
				name: "argocdNamespace",
				doc: "The namespace of the cluster's Argo CD, in which the agent works and in " +
					"no other.", example: "argocd", fallback: "argocd",
				value: textOf(formatEngineNamespace)},
			field{
				name: "mode",
				doc: "`managed`: the config repo declares the Applications. `autonomous`: the " +
					"cluster's own Applications are the truth; Argosy shows them and can sync " +
					"them, and no deployment goes there.", example: "managed", fallback: "managed",
				value: wordOf(string(fleet.AgentManaged), string(fleet.AgentAutonomous))},
		).mayBeEmpty().not(neverAgent)},
	field{
		name: "namespaces", first: true,
		doc: "The namespaces that may be deployed to: exact names, or prefixes that end in `-`. " +
			"A prefix covers the namespaces of the deployments that go here, and Argo CD gets " +
			"their exact names. Reserved namespaces, such as `kube-system`, need " +
			"`Tenant.environments`.",
		example: "[checkout, acme-]", value: listOf(textOf(formatNamespaceEntry))},
	field{
		name: "allNamespaces",
		doc: "Every namespace of the cluster, instead of `namespaces`. `Tenant.environments` " +
			"must grant it, and the cluster is this tenant's alone. Only `true` is written.",
		example: "true", value: boolean()},
	field{
		name:    "clusterResources",
		doc:     "Whether the cluster-scoped kinds that the Tenant grants may be deployed here.",
		example: "false", fallback: "false", value: boolean()},
	field{
		name: "region",
		doc: "An engine of this region serves it. With an agent: where the cluster is, one of " +
			"the regions that the Tenant may use.", example: "eu", required: true,
		value: textOf(formatLabelWord)},
	field{
		name: "variables",
		doc: "What differs between environments, for `${environment.variables.<name>}` in the " +
			"deployments that go here: at most 32. The result is checked as a text that was " +
			"written so. No secret belongs here.",
		example: "{zone: eu-1a, account: \"123456789012\"}",
		value: mapOf(formatOwnVariable,
			textOf(formatOwnValue).mayBeEmpty().atMost(fleet.MaxVariableValue))},
).exactlyOneOf("cluster", "agent").
	when(
		"cluster where an engine reaches the API server; agent, without server and credential, "+
			"where an agent on the cluster dials out").
	exactlyOneOf("namespaces", "allNamespaces").
	when("namespaces, unless the platform grants the tenant the whole cluster").
	checked(allNamespacesIsTrue).
	not(map[string]word{
		"server": notAllowed("the API server is part of cluster",
			"write cluster: {server: ..., credentialsRef: {name: ...}}; an environment with an "+
				"agent has none"),
		"caData": notAllowed("the API server's certificates are part of cluster",
			"write cluster: {server: ..., caData: ..., credentialsRef: {name: ...}}; an "+
				"environment with an agent has none"),
		"credentialsRef": notAllowed("the API server's credential is part of cluster",
			"write cluster: {server: ..., credentialsRef: {name: ...}}; an environment with an "+
				"agent has none"),
		"connection": notAllowed("an environment is reached by cluster or agent",
			"write cluster: {...} or agent: {argocdNamespace: argocd}"),
		"argocdNamespace": notAllowed("the namespace of the cluster's Argo CD is part of agent",
			"write agent: {argocdNamespace: argocd}"),
		"mode": notAllowed("the mode is the agent's", "write agent: {mode: managed}"),
	}),
	func(d *fleet.Declaration, s *fleet.EnvironmentSpec) { d.Environment = s })

func allNamespacesIsTrue(d *decoder, into reflect.Value, at node) {
	n := child(at, "allNamespaces")
	if n == nil || into.Addr().Interface().(*fleet.EnvironmentSpec).AllNamespaces {
		return
	}
	d.at("allNamespaces", func() {
		d.problem(n, codeInvalidValue, "allNamespaces: false leaves no namespace",
			"list the namespaces instead")
	})
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

var kindDeployment = describe(kind{
	name: fleet.KindGitOpsDeployment, place: "tenants/<tenant>/deployments/<name>.yaml",
	doc: "One source, or several, in one or many environments: each environment gives one " +
		"Application.",
}, object(
	field{name: "source", doc: "The source to deploy.",
		value: object(wholeSource()...).without("ref").exactlyOneOf("path", "chart").
			atMostOneOf("kustomize", "helm", "directory", "plugin").
			checked(chartIsHelm, repositoryFits).
			not(map[string]word{"ref": notAllowed("one source has no other that could read its "+
				"files", "write sources: with this source and the one that reads it")})},
	field{
		name: "sources",
		doc: "At most 20 sources, instead of `source`, that Argo CD joins into one Application: " +
			"where two have the same resource, the later one's wins. The Tenant grants every " +
			"repository.",
		value: listOf(object(append([]field{{
			name: "ref",
			doc: "A name by which helm.valueFiles of the other sources read this repository's " +
				"files, as `$<ref>/<path>`. Without `path` the source itself deploys nothing.",
			example: "values", value: textOf(formatRef).atMost(63)}}, wholeSource()...)...).
			atMostOneOf("path", "chart").atMostOneOf("kustomize", "helm", "directory", "plugin").
			checked(chartIsHelm, repositoryFits, refIsGit)).by("ref").atMost(20)},
	field{name: "destination", doc: "Where it is deployed.", required: true, value: object(
		field{name: "environments", doc: "Names of environments of this tenant.",
			example: "[staging, prod-eu]", value: listOf(textOf(formatName))},
		field{name: "environmentSelector", doc: "Selects environments of this tenant by label.",
			example: "{matchLabels: {tier: prod}}",
			value:   selector("Label keys and exact values; all must match.", "{tier: prod}")},
		field{name: "namespace", doc: "The namespace. Each of the environments must list it.",
			example: "checkout", required: true, value: textOf(formatTargetNamespace)},
	).exactlyOneOf("environments", "environmentSelector").not(map[string]word{
		"server": notAllowed("a destination is an environment, not a server",
			"declare a ManagedEnvironment and name it in environments"),
		"name": notAllowed("a destination is an environment, not a cluster",
			"declare a ManagedEnvironment and name it in environments"),
		"cluster": notAllowed("a destination is an environment, not a cluster",
			"declare a ManagedEnvironment and name it in environments"),
	})},
	field{name: "sync", doc: "When and how it is synced.",
		example: "{mode: automated, prune: true}", value: syncSettings()},
	deletionPolicy(),
	field{
		name: "overrides",
		doc: "Differences of some environments. Overrides with a `selector` apply in the order " +
			"of the file, the one that names the environment last; a later one wins. A field " +
			"that is left out is inherited.",
		example: "[{environment: staging, source: {targetRevision: main}}]",
		value: listOf(object(
			field{name: "environment", doc: "The environment.", example: "staging",
				value: textOf(formatName)},
			field{name: "selector",
				doc: "Selects environments of the deployment by label, instead of " +
					"`environment`.",
				example: "{matchLabels: {tier: prod}}",
				value: selector("Label keys and exact values; all must match.",
					"{tier: prod}")},
			field{name: "namespace", doc: "The namespace there. The environment must list it.",
				example: "checkout-staging", value: textOf(formatTargetNamespace)},
			field{
				name:    "sync",
				doc:     "Sync settings that differ, field by field.",
				example: "{mode: manual}", value: syncSettings()},
			field{
				name: "values",
				doc: "Values that are merged into the source's `helm.values`, which are a map, as " +
					"Helm merges files of values: maps merge, lists and scalars replace, and null " +
					"removes a value of the chart.",
				example: "{replicas: 1}", value: value{shape: shapeMap}},
			field{
				name: "source",
				doc: "Source fields that differ; `kustomize`, `helm` and `directory` are " +
					"replaced as a whole. The repository and chart cannot differ.",
				value: object(append([]field{{
					name: "of",
					doc: "The source to change, of several, which also gets `values`: its `ref`, " +
						"`chart` or `path`. Left out, `values` go to the only source that Helm " +
						"renders.",
					example: "deploy", value: textOf(formatAny)}},
					sourceFields(false)...)...).
					atMostOneOf("kustomize", "helm", "directory", "plugin").not(map[string]word{
					"repoURL": notAllowed("the repository is the same in every environment",
						"write another deployment"),
					"chart": notAllowed("the chart is the same in every environment",
						"write another deployment"),
				})},
		).exactlyOneOf("environment", "selector")).by("environment")},
	field{
		name: "wave",
		doc: "Order among the tenant's deployments of one environment. A change waits until " +
			"the deployments of lower waves are applied, Synced and Healthy there, at most 30 " +
			"minutes; deletions run in reverse order.", example: "1", fallback: "0",
		value: integer(fleet.MinWave, fleet.MaxWave)},
	ignoreDifferences(),
	revisionHistoryLimit(),
	field{
		name: "info", doc: "Information about the Application for people, shown by Argo CD.",
		example: `[{name: team, value: payments}]`, value: listOf(object(
			field{name: "name", doc: "Its name.", example: "team", required: true,
				value: textOf(formatAny).atMost(63)},
			field{name: "value", doc: "Its text.", example: "payments", required: true,
				value: textOf(formatInfo).atMost(1024)},
		)).atMost(fleet.MaxInfo)},
	field{
		name: "links", doc: "Links from the Application to pages about it, shown by Argo CD.",
		example: `[{title: dashboard, url: "https://grafana.example.com/d/checkout"}]`,
		value: listOf(object(
			field{name: "title", doc: "Its text. Left out: the URL.", example: "dashboard",
				value: textOf(formatLinkTitle).atMost(63)},
			field{name: "url", doc: "The page.",
				example: "https://grafana.example.com/d/checkout", required: true,
				value: textOf(formatLinkURL).atMost(1024)},
		)).atMost(fleet.MaxLinks).by("url")},
	notifications(), watchPaths(),
	field{
		name: "adopt",
		doc: "Existing Applications that the deployment takes over, with their name, history " +
			"and workload, once it changes nothing in them (`docs/adopting.md`). The Tenant " +
			"allows it (`allow.adopt`).",
		value: listOf(object(
			field{name: "environment", doc: "The environment.", example: "prod-eu", required: true,
				value: textOf(formatName)},
			field{name: "application", doc: "The Application's name in Argo CD's namespace, or " +
				"`<namespace>/<name>` in one that `Engine.applicationNamespaces` gives to the " +
				"tenant.", example: "checkout-prod", required: true,
				value: textOf(formatObject).atMost(256)},
			field{
				name: "orCreate",
				doc: "Argosy creates an Application of that name if the engine has none, as for " +
					"a new item of a set. Without it, the deployment waits for the Application.",
				example: "true", fallback: "false", value: boolean()},
		)).by("environment")},
).exactlyOneOf("source", "sources").
	checked(refsExist, revisionsFit, filesAreInside, overridesFit, releaseIsNamed,
		createdIsFree),
	func(d *fleet.Declaration, s *fleet.DeploymentSpec) {
		d.Deployment = s
	})

// deletionPolicy, revisionHistoryLimit, sync and ignoreDifferences are fields of a deployment that
// it inherits.
func deletionPolicy() field {
	return field{
		name: "deletionPolicy",
		doc: "Effect of removing a deployment: `Delete` removes the workload, `Orphan` leaves it " +
			"running, `Release` leaves the Application too, as it was before `adopt`.",
		example: "Delete", fallback: inherited + "Delete",
		value: wordOf(string(fleet.DeletionDelete), string(fleet.DeletionOrphan),
			string(fleet.DeletionRelease))}
}

func revisionHistoryLimit() field {
	return field{
		name:    "revisionHistoryLimit",
		doc:     "Number of syncs that Argo CD keeps in the Application's history.",
		example: "5", fallback: inherited + "Argo CD's: 10",
		value: integer(0, fleet.MaxRevisionHistory)}
}

// inherited begins the default of a field that a deployment inherits.
const inherited = "TenantDefaults, else Fleet.defaults, else "

// defaults are the fields of a deployment that the fleet and a tenant give to all.
func defaults() value {
	return object(
		field{name: "sync", doc: "Sync settings, field by field.", first: true,
			example: "{mode: automated, prune: true, selfHeal: true}", value: syncSettings()},
		deletionPolicy(), revisionHistoryLimit(), ignoreDifferences())
}

var kindDefaults = describe(kind{
	name: fleet.KindTenantDefaults, place: "tenants/<tenant>/defaults.yaml",
	doc: "Fields that the tenant's deployments inherit when they leave them out. There is at most " +
		"one, named `defaults`. Precedence, lowest first: built-in, `Fleet.defaults`, " +
		"TenantDefaults, the deployment, its overrides.",
}, defaults(), func(d *fleet.Declaration, s *fleet.Defaults) { d.Defaults = s })

// wholeSource are the fields of a source that is not an override.
func wholeSource() []field {
	return append([]field{
		{
			name: "repoURL",
			doc: "The repository of Git or of Helm, which may be the root of a host, a registry " +
				"of OCI charts, or `oci://` and the name of an OCI artifact; its host is listed " +
				"in `Fleet.gitHosts`, and the Tenant grants it.",
			example: "https://git.example.com/acme/checkout", required: true,
			value: textOf(formatRepoURL).atMost(1024)},
		{name: "chart", doc: "A chart of the Helm repository at `repoURL`, instead of `path`.",
			example: "checkout", value: textOf(formatChart).atMost(100)},
	}, sourceFields(true)...)
}

// sourceFields are the fields of a source that may differ per environment.
func sourceFields(whole bool) []field {
	revision := field{
		name: "targetRevision",
		doc: "Branch, tag, commit or chart version, exactly; of an OCI artifact a tag or digest. " +
			"For a chart or artifact, where the Tenant has `allow: {versionRanges: true}`, a " +
			"range of versions, e.g. `^1.2` or `>=1.2 <2`.",
		example: "v1.4.0", required: whole, value: textOf(formatRevision)}
	if !whole {
		revision.example = "main"
	}
	return []field{
		{name: "path", doc: "Folder of the repository; `.` is its root.", example: "deploy",
			value: textOf(formatPath).atMost(512)},
		revision,
		{name: "kustomize", doc: "The folder is built by kustomize, with these changes.",
			value: kustomizeFields()},
		{
			name: "helm",
			doc: "Helm renders the folder or chart, with these values. For a folder without " +
				"kustomize, helm and directory, Argo CD detects the tool; write helm if the " +
				"folder is a chart: its release would otherwise be named for the Application, " +
				"whose name may be longer than Helm allows.", value: object(
				field{
					name:    "releaseName",
					doc:     "At most 53 of a-z, 0-9 and '-'. Left out: the deployment's name.",
					example: "checkout", value: textOf(formatRelease)},
				field{
					name: "valueFiles",
					doc: "Files of values inside the repository, relative to the chart (`../` " +
						"leads to the folders above it), or `$<ref>/<path>` inside the " +
						"repository of the source with that `ref`; later ones win.",
					example: "[values.yaml, values-eu.yaml]",
					value:   listOf(textOf(formatValueFile).atMost(512)).atMost(50)},
				field{
					name:    "ignoreMissingValueFiles",
					doc:     "Whether a file of valueFiles that is not there is left out.",
					example: "true", fallback: "false", value: boolean()},
				field{
					name: "values",
					doc: "Values as a map, or as a text of YAML, at most 64 KiB. They win over " +
						"valueFiles. Only a map can be merged with the values of an override. " +
						"Known variables in them are replaced; any other ${...} is the chart's.",
					example: "{replicas: 2}",
					value:   textOf(formatAny).atMost(fleet.MaxValues).orAMap()},
				field{
					name:    "parameters",
					doc:     "Single values, as `helm --set` has them. They win over all else.",
					example: `[{name: replicas, value: "2"}]`, value: listOf(object(
						field{name: "name", doc: "Key of the chart's values.", example: "image.tag",
							required: true, value: textOf(formatParam)},
						field{name: "value", doc: "Its value, as text.", example: `"v1.4.0"`,
							required: true, value: textOf(formatAny).mayBeEmpty().atMost(4096)},
						field{
							name:    "forceString",
							doc:     "Whether the value stays text even if it is a number.",
							example: "true", fallback: "false", value: boolean()},
					).checked(parameterIsNoSecret)).atMost(200).by("name")},
				field{
					name:    "fileParameters",
					doc:     "Values that are the content of a file, as `helm --set-file` has them.",
					example: "[{name: config, path: files/config.json}]", value: listOf(object(
						field{name: "name", doc: "Key of the chart's values.", example: "config",
							required: true, value: textOf(formatParam)},
						field{name: "path", doc: "The file, as one of valueFiles.",
							example: "files/config.json", required: true,
							value: textOf(formatValueFile).atMost(512)},
					)).atMost(50).by("name")},
				field{
					name:    "skipCrds",
					doc:     "Whether the chart's folder `crds` is left out.",
					example: "true", fallback: "false", value: boolean()},
				field{
					name: "namespace",
					doc: "The release's namespace in templates. The namespace of a resource " +
						"must still be one that the environment lists.",
					example: "checkout", fallback: "destination.namespace",
					value: textOf(formatLabelWord)},
				field{name: "version", doc: "Of Helm: only `v3`.", example: "v3",
					value: wordOf("v3")},
				field{
					name: "kubeVersion",
					doc: "The version of Kubernetes that templates see, instead of the " +
						"environment's.", example: "1.31.2",
					value: textOf(formatKubeVersion).atMost(32)},
				field{
					name: "apiVersions",
					doc: "The API versions that templates see, instead of the environment's: " +
						"`group/version` or `group/version/Kind`.",
					example: "[monitoring.coreos.com/v1]",
					value:   listOf(textOf(formatAPIVersion).atMost(253)).atMost(100)},
				field{name: "skipTests", doc: "Whether the chart's tests are left out.",
					example: "true", fallback: "false", value: boolean()},
				field{
					name:    "skipSchemaValidation",
					doc:     "Whether values are not validated against the chart's JSON Schema.",
					example: "true", fallback: "false", value: boolean()},
			).not(map[string]word{
				"valuesObject": notAllowed("values are written as values, whether map or text",
					"use values: and the map below it"),
				"passCredentials": notAllowed("credentials are not passed to other hosts",
					"remove it"),
			}).checked(valuesArePlainYAML)},
		{name: "directory", doc: "The folder holds plain manifests.", value: object(
			field{name: "recurse", doc: "Whether folders below are read too.", example: "true",
				fallback: "false", value: boolean()},
			field{
				name: "include",
				doc: "Only files whose path, relative to the folder, matches the pattern: `*` " +
					"and `?` match characters, `{a,b}` one of the alternatives.",
				example: `"*.yaml"`, value: textOf(formatPattern).atMost(1024)},
			field{name: "exclude", doc: "No files that match this pattern.",
				example: `"{kustomization.yaml,README*}"`,
				value:   textOf(formatPattern).atMost(1024)},
			jsonnetFields(),
		)},
		{
			name: "plugin",
			doc: "A config management plugin of the engines renders the folder. The Tenant's " +
				"`allow.plugins` lists it.", value: pluginFields()},
	}
}

// valuesArePlainYAML holds a chart's values to the same rules as the file: a map, no anchors, no
// tags, not too deep, no key twice. They are parsed again by Argo CD and by Helm, and must not be a
// bomb there nor mean different things to the two.
func valuesArePlainYAML(d *decoder, into reflect.Value, at node) {
	values, n := into.Addr().Interface().(*fleet.HelmSource).Values, child(at, "values")
	if values == "" || n.Kind == yaml.MappingNode {
		return
	}
	root, found := parse([]byte(values), true)
	switch {
	case root == nil:
	case root.Kind != yaml.MappingNode:
		found.add(1, 1, codeWrongType, "values are a map", "write key: value")
	default:
		addRepeatedKeys(&found, root)
	}
	d.at("values", func() {
		for _, p := range found.problems {
			place := *n
			if n.Style&yaml.LiteralStyle != 0 && p.Line > 0 {
				place.Line, place.Column = n.Line+p.Line, 1
			}
			d.problem(&place, p.Code, "in the values: "+p.Message, p.Fix)
		}
	})
}

// addRepeatedKeys reports the repeated keys of every map of a tree.
func addRepeatedKeys(found *findings, n node) {
	if n.Kind == yaml.MappingNode {
		for _, r := range repeatedKeys(n) {
			found.add(r.second.Line, r.second.Column, codeDuplicateKey, r.message(),
				"keep one of them")
		}
	}
	for _, c := range n.Content {
		addRepeatedKeys(found, c)
	}
}

func chartIsHelm(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Source)
	if s.Chart == "" {
		return
	}
	if s.Kustomize != nil || s.Directory != nil || s.Plugin != nil {
		d.at("chart", func() {
			d.problem(child(at, "chart"), codeExclusive, "a chart is rendered by Helm",
				"remove kustomize, directory and plugin, or use path")
		})
	}
}

func selector(doc, example string) value {
	return object(
		field{name: "matchLabels", doc: doc, example: example, value: value{shape: shapeLabels}},
		field{
			name: "matchExpressions",
			doc: "Expressions as Kubernetes has them; all must match, and every label of " +
				"`matchLabels` too. `NotIn` and `DoesNotExist` also match where the label is " +
				"missing.",
			example: "[{key: tier, operator: In, values: [prod, staging]}]",
			value: listOf(object(
				field{name: "key", doc: "Key of the label.", example: "tier", required: true,
					value: textOf(formatLabelKey)},
				field{name: "operator", doc: "How the label is compared.", example: "In",
					required: true, value: wordOf(string(fleet.SelectorIn),
						string(fleet.SelectorNotIn), string(fleet.SelectorExists),
						string(fleet.SelectorDoesNotExist))},
				field{
					name:    "values",
					doc:     "Exact values, for `In` and `NotIn` alone.",
					example: "[prod, staging]",
					value:   listOf(textOf(formatLabel)).atMost(100)},
			).checked(valuesFitOperator)).atMost(20)},
	)
}

// valuesFitOperator refuses In and NotIn without values, and the other operators with them.
func valuesFitOperator(d *decoder, into reflect.Value, at node) {
	r := into.Addr().Interface().(*fleet.LabelRequirement)
	compares := r.Operator == fleet.SelectorIn || r.Operator == fleet.SelectorNotIn
	switch n := child(at, "values"); {
	case compares && n == nil:
		d.problem(at, codeMissingField, string(r.Operator)+" compares with values",
			"add values: [...]")
	case !compares && n != nil:
		d.at("values", func() {
			d.problem(n, codeExclusive, string(r.Operator)+" has no values",
				"remove values, or use In or NotIn")
		})
	}
}

func notAllowed(message, fix string) word { return word{codeNotAllowed, message, fix} }

// overridesFit refuses an override that changes nothing, or that would give its source two tools, a
// path beside a chart, or values that cannot be merged.
func overridesFit(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	for i := range spec.Overrides {
		n := child(at, "overrides").Content[i]
		d.steps = append(d.steps, step{"overrides", -1}, step{"", i})
		d.override(spec, &spec.Overrides[i], n)
		d.steps = d.steps[:len(d.steps)-2]
	}
}

func (d *decoder) override(spec *fleet.DeploymentSpec, o *fleet.Override, n node) {
	source := child(n, "source")
	if source == nil && o.Values == "" {
		if child(n, "namespace") == nil && child(n, "sync") == nil {
			d.problem(n, codeMissingField, "the override changes nothing",
				"write namespace, sync, values or source, or remove it")
		}
		return
	}
	place, err := spec.OverriddenSource(o)
	if err != nil {
		at, fix := n, "write source: {of: ...} with the ref, chart or path of the source"
		if source != nil {
			d.steps = append(d.steps, step{"source", -1})
			defer func() { d.steps = d.steps[:len(d.steps)-1] }()
			if at = source; child(source, "of") != nil {
				at, fix = child(source, "of"), "write the ref, chart or path of one source"
			}
		}
		d.problem(at, codeUnknownSource, err.Error(), fix)
		return
	}
	base := spec.AllSources()[place]
	read := toolOf(base.Kustomize, base.Helm, base.Directory, base.Plugin)
	if base.Chart != "" {
		read = "helm"
	}
	if o.Values != "" {
		d.at("values", func() { d.mergeable(spec, place, read, child(n, "values")) })
	}
	tool := toolOf(o.Source.Kustomize, o.Source.Helm, o.Source.Directory, o.Source.Plugin)
	d.at("source", func() {
		if tool != "" && read != "" && tool != read {
			d.at(tool, func() {
				d.problem(child(source, tool), codeExclusive, "the source is read by "+read+
					"; an override cannot read it by "+tool,
					"override "+read+", or write another deployment")
			})
		}
		if o.Source.Path != "" && base.Path == "" {
			d.at("path", func() {
				d.problem(child(source, "path"), codeExclusive,
					"the source is a chart or deploys nothing, and has no path", "remove path")
			})
		}
	})
}

// mergeable refuses values of an override for a source that Helm does not render, or that has a
// text of values anywhere.
func (d *decoder) mergeable(spec *fleet.DeploymentSpec, place int, read string, n node) {
	if read != "" && read != "helm" {
		d.problem(n, codeExclusive, "the source is read by "+read+", which has no values",
			"remove values, or override the source")
		return
	}
	text := func(h *fleet.HelmSource) bool {
		return h != nil && h.Values != "" && !h.Values.IsMap()
	}
	written := text(spec.AllSources()[place].Helm)
	for i := range spec.Overrides {
		o := &spec.Overrides[i]
		if of, err := spec.OverriddenSource(o); err == nil && of == place {
			written = written || text(o.Source.Helm)
		}
	}
	if written {
		d.problem(n, codeExclusive,
			"values of an override merge with a map, and helm.values of this source is a text",
			"write helm.values as a map: remove the | after values:")
	}
}

func toolOf(k *fleet.KustomizeSource, h *fleet.HelmSource, d *fleet.DirectorySource,
	p *fleet.PluginSource) string {
	switch {
	case k != nil:
		return "kustomize"
	case h != nil:
		return "helm"
	case d != nil:
		return "directory"
	case p != nil:
		return "plugin"
	}
	return ""
}

// createdIsFree refuses to create an Application with a name that Argosy gives to another one.
func createdIsFree(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	for i, a := range spec.Adopt {
		namespace, name := fleet.SplitObject(a.Application)
		message := "Argosy gives names that end in a hyphen and 16 of a-z and 2-7 to its own " +
			"Applications"
		switch {
		case a.OrCreate && namespace != "":
			message = "Argosy creates no Application in another namespace than Argo CD's own"
		case !a.OrCreate || !fleet.HasIdentityForm(name):
			continue
		}
		d.steps = append(d.steps, step{"adopt", -1}, step{"", i}, step{"application", -1})
		d.problem(child(child(at, "adopt").Content[i], "application"), codeInvalidName, message,
			"remove orCreate, or name the Application otherwise")
		d.steps = d.steps[:len(d.steps)-3]
	}
}

// maxRelease is the most characters of a Helm release's name.
const maxRelease = 53

// releaseIsNamed refuses what Helm would refuse: a release that is named for its deployment, where
// that has a longer name.
func releaseIsNamed(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	if len(d.key.Name) <= maxRelease {
		return
	}
	report := func(n node, field string) {
		d.at(field, func() {
			d.problem(child(n, field), codeInvalidName,
				fmt.Sprintf(
					"the release would be named for the deployment, whose name is %d characters "+
						"long; Helm allows %d", len(d.key.Name), maxRelease),
				"add helm: {releaseName: ...}, or give the deployment a shorter name")
		})
	}
	switch s := spec.Source; {
	case s.Helm != nil && s.Helm.ReleaseName == "":
		d.at("source", func() { report(child(at, "source"), "helm") })
	case s.Helm == nil && s.Chart != "":
		d.at("source", func() { report(child(at, "source"), "chart") })
	}
	for i, s := range spec.Sources {
		d.steps = append(d.steps, step{"sources", -1}, step{"", i})
		switch n := child(at, "sources").Content[i]; {
		case s.Helm != nil && s.Helm.ReleaseName == "":
			report(n, "helm")
		case s.Helm == nil && s.Chart != "":
			report(n, "chart")
		}
		d.steps = d.steps[:len(d.steps)-2]
	}
	for i, o := range spec.Overrides {
		if h := o.Source.Helm; h != nil && h.ReleaseName == "" {
			d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
			report(child(child(at, "overrides").Content[i], "source"), "helm")
			d.steps = d.steps[:len(d.steps)-3]
		}
	}
}

var kindCredential = describe(kind{
	name: fleet.KindRepositoryCredential, place: "tenants/<tenant>/credentials/<name>.yaml",
	doc: "Access of this tenant to a private repository, or to all repositories of a folder.",
}, object(
	field{
		name: "repoURL",
		doc: "The repository, exactly as deployments name it; or with a trailing slash every " +
			"repository below it that deployments read, which the Tenant grants as a whole. " +
			"A credential of the repository itself wins, then that of the nearest folder.",
		example: "https://git.example.com/acme/checkout", required: true,
		value: textOf(formatCredentialURL).atMost(1024)},
	field{
		name: "type",
		doc: "`git`, `helm` for a Helm repository, or `oci` for a registry of OCI charts or " +
			"artifacts. A chart's dependencies are read without the credential.",
		example: "git", fallback: "oci without a scheme and for oci://, else git",
		value: wordOf(string(fleet.RepositoryGit), string(fleet.RepositoryHelm),
			string(fleet.RepositoryOCI))},
	field{
		name: "credentialsRef",
		doc: "The secret of this tenant that holds a user and password, a token or, for Git, an " +
			"ssh key or a GitHub App's key.",
		example: "{name: checkout-git}", required: true,
		value: secretRef("The secret's name.", "checkout-git")},
).checked(typeFits), func(d *fleet.Declaration, s *fleet.CredentialSpec) { d.Credential = s })

// typeFits refuses a type that no repository of the URL can have.
func typeFits(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.CredentialSpec)
	u, _, err := fleet.ParseRepoScope(s.RepoURL)
	if err != nil {
		return // the format has reported it
	}
	if err := s.TypeOf().Fits(u); err != nil {
		d.at("repoURL", func() {
			d.problem(child(at, "repoURL"), codeInvalidURL, err.Error(),
				"write the URL of a "+string(s.TypeOf())+" repository, or another type")
		})
	}
}

// Parts that several kinds share.

func secretRef(doc, example string) value {
	return object(
		field{name: "name", doc: doc, example: example, required: true,
			value: textOf(formatLabelWord)})
}

var kindSyncRun = describe(kind{
	name: fleet.KindSyncRun, place: "tenants/<tenant>/syncs/<name>.yaml",
	doc: "One sync by hand at a revision. Immutable, and run once: the next one is a new file " +
		"with a new name. Its result is in `argosy get operations`.",
}, object(
	field{name: "deployment", doc: "The deployment of this tenant that is synced.",
		example: "checkout", required: true, value: textOf(formatName)},
	field{name: "environments", doc: "Some of its environments. Left out: all of them.",
		example: "[prod-eu]", value: listOf(textOf(formatName))},
	field{name: "revision", doc: "Of the deployment's source: a full commit id or a tag.",
		example: "v1.3.2", value: textOf(formatFixed)},
	field{
		name: "revisions",
		doc: "Of a deployment with several sources, instead of `revision`: one for each, in " +
			"their order.", example: "[v1.3.2, 4.2.0]",
		value: listOf(textOf(formatFixed)).atMost(20).mayRepeat()},
	field{
		name: "hold",
		doc: "Keeps automated sync off until the deployment's targetRevision changes in Git, " +
			"so that a rollback stays.", example: "true", fallback: "false", value: boolean()},
).exactlyOneOf("revision", "revisions"),
	func(d *fleet.Declaration, s *fleet.SyncRunSpec) { d.SyncRun = s })

var kindPolicy = describe(kind{
	name: fleet.KindPolicy, place: "fleet/policies/<name>.yaml",
	doc: "A rule over tenants' declarations, beyond the rules of the kinds themselves. Only the " +
		"declaration that breaks it is quarantined, or gets a warning.",
}, object(
	field{
		name: "kinds",
		doc: "The kinds of declarations that it judges: `ManagedEnvironment`, " +
			"`GitOpsDeployment`, `RepositoryCredential`, `SyncRun`.", example: "[GitOpsDeployment]",
		required: true, value: listOf(wordOf(policedKinds()...))},
	field{name: "tenants", doc: "Whose declarations it judges. Left out: every tenant's.",
		example: "[acme]", value: listOf(textOf(formatName))},
	field{
		name: "severity",
		doc: "`error` keeps a declaration that breaks the rule from taking effect, `warning` " +
			"only reports it.", example: "error", fallback: "error",
		value: wordOf(string(fleet.SeverityError), string(fleet.SeverityWarning))},
	field{
		name: "rule",
		doc: "What must hold. It sees `declaration` (the file: kind, metadata, spec), its " +
			"`tenant` (name, labels and the fields of the Tenant's spec), `path`, and of a " +
			"deployment " +
			"`environments` (that it reaches: name, labels and the fields of their spec) and " +
			"`applications` (one for each, and of several sources one for each source: " +
			"environment, namespace, source, sync, deletionPolicy; overrides and defaults " +
			"resolved). " +
			"An omitted field reads as \"\", false, 0 or []; has() tests for it.",
		example: `'!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")'`, required: true, value: textOf(formatExpression).atMost(4096)},
	field{name: "message", doc: "Message for a declaration that breaks the rule.",
		example: "deployments to prod name their revision",
		value:   textOf(formatSentence).atMost(300)},
	field{
		name:    "messageExpression",
		doc:     "The same as an expression that gives a text, over what the rule sees.",
		example: `'"deployments of " + tenant.name + " name a fixed revision"'`,
		value:   textOf(formatExpression).atMost(4096)},
	field{name: "fix", doc: "What to write instead.", example: "write a tag or a commit",
		value: textOf(formatSentence).atMost(300)},
	field{
		name: "field",
		doc: "The field whose line is shown; when the file does not write it, the nearest " +
			"above it.", example: "spec.source.targetRevision", value: textOf(formatField)},
).exactlyOneOf("message", "messageExpression").not(map[string]word{
	"expression": {codeUnknownField, "what must hold is written as rule",
		"use rule: '<expression>'"},
	"validations": {
		codeUnknownField, "a policy has one rule",
		"write one policy for each, with rule and message"},
	"match": {codeUnknownField, "kinds and tenants choose the declarations",
		"use kinds: [GitOpsDeployment]"},
}).checked(compiles), func(d *fleet.Declaration, s *fleet.PolicySpec) { d.Policy = s })

func policedKinds() []string {
	var names []string
	for _, k := range fleet.PolicedKinds() {
		names = append(names, string(k))
	}
	return names
}

var (
	formatExpression = &format{code: codeExpression, what: "an expression in CEL (https://cel.dev)",
		check: func(string) error { return nil }}
	formatSentence = &format{code: codeInvalidValue, what: "one line of text",
		pattern: `^[^\n]*$`, check: checkSentence}
	formatField = &format{
		code: codeInvalidValue,
		what: "the path of a field of the declaration, e.g. spec.overrides[0].source or " +
			"metadata.labels.team",
		pattern: `^[A-Za-z]`, check: checkFieldPath}
)

func checkSentence(s string) error {
	if strings.ContainsAny(s, "\r\n") {
		return errors.New("the text has several lines")
	}
	return nil
}

// checkFieldPath demands a path that Locate can read. It does not check that the policy's kinds
// have the field.
func checkFieldPath(s string) error {
	for rest := s; rest != ""; {
		var ok bool
		if _, rest, ok = nextStep(rest); !ok {
			return errors.New("the text is no path of a field")
		}
	}
	return nil
}

// compiles reports errors of the expressions, each at its position in the file.
func compiles(d *decoder, into reflect.Value, at node) {
	for _, f := range policy.Check(into.Addr().Interface().(*fleet.PolicySpec)) {
		n := child(at, f.In)
		place := *n
		place.Line, place.Column = within(d.bytes, n, f.Line, f.Column)
		code := codeExpression
		if f.In == "field" {
			code = codeInvalidValue
		}
		d.at(f.In, func() { d.problem(&place, code, f.Message, f.Fix) })
	}
}
