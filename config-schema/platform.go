package configschema

import (
	"reflect"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

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
		name: "sharedRepositories",
		doc: "Repositories, or with a trailing slash everything below a folder, of which every " +
			"tenant with a grant may read all. Argo CD keeps one clone of a repository for all of " +
			"its readers: without this, a tenant with a credential of its own shares an engine " +
			"with no other reader of the repository. It grants nothing by itself: a tenant still " +
			"needs it in `Tenant.repositories`.",
		example: `["https://git.example.com/acme/monorepo"]`,
		value:   listOf(textOf(formatGrant))},
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
	field{
		name: "placement", doc: "What placement may do in the whole fleet.", value: object(
			field{
				name: "churn",
				doc: "How fast an engine with `state: Draining` is emptied, and misplaced " +
					"environments leave theirs. Each engine has this budget for itself. A " +
					"rebalance has what the moves of all engines leave of it.", value: object(
					field{
						name: "atOnce",
						doc: "Environments that leave the engine at once. A move that waits " +
							"counts.",
						example: "2", fallback: "2", value: integer(1, 100)},
					field{name: "perHour", doc: "Environments that begin to leave it in an hour.",
						example: "30", fallback: "30", value: integer(1, 10000)},
				)},
			field{
				name: "rebalance",
				doc: "How engines with a high measured load are relieved " +
					"(`docs/balancing.md`).", value: object(
					field{
						name: "mode",
						doc: "`Off`: nothing is proposed. `Propose`: Argosy proposes moves, " +
							"and a person accepts them. `Act`: Argosy also accepts them.",
						example:  string(fleet.RebalancePropose),
						fallback: string(fleet.RebalancePropose),
						value: wordOf(string(fleet.RebalanceOff), string(fleet.RebalancePropose),
							string(fleet.RebalanceAct))},
				)},
			field{
				name: "misplaced",
				doc: "What happens to an environment whose engine violates a constraint, for " +
					"example after a change of its region. `Move`: Argosy moves it to an engine " +
					"that satisfies all, within `churn`. `Stay`: it stays until a person moves it.",
				example: "Move", fallback: string(fleet.MisplacedStay),
				value: wordOf(string(fleet.MisplacedStay), string(fleet.MisplacedMove))},
			field{
				name: "slices",
				doc: "Whether Argosy splits an environment that is too large for every engine, " +
					"so that several engines serve it (`Allowed`), or leaves it without an engine " +
					"(`Forbidden`).",
				example: "Allowed", fallback: string(fleet.SlicesForbidden),
				value: wordOf(string(fleet.SlicesForbidden), string(fleet.SlicesAllowed))},
		)},
	field{
		name: "remedies",
		doc: "What Argosy may do by itself about an engine that does not work " +
			"(`docs/health.md`). An Engine may differ.",
		value: remedies("", field{
			name: "atOnce", doc: "Engines with a restart under way.", example: "1", fallback: "1",
			value: integer(1, 100)})},
	freezes("all tenants", "the platform runs"),
	rings(),
	bulletins(),
	prometheus(),
	fleetNotifications(),
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
			field{
				name: "managed",
				doc: "Argosy installs this Argo CD, or takes it over, and upgrades it with its `ring` " +
					"(`docs/rings.md`). Left out again: it is given back, and everything of it stays " +
					"as it is. Not for an engine behind an agent.",
				example: "true", fallback: "false", value: boolean()},
			field{
				name: "size",
				doc: "What its components have, with `managed: true` (`docs/rings.md`). Left out: " +
					"Argosy sets neither resources nor shards.",
				example: "{shards: 2}", value: object(instanceSize()...)},
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
		required: true, value: capacity(0)},
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
			"and its environments move to other engines (`docs/draining.md`).",
		example: "Active", fallback: "Active",
		value: wordOf(string(fleet.EngineActive), string(fleet.EngineCordoned),
			string(fleet.EngineDraining))},
	field{name: "ring", doc: "The ring of the Fleet whose version of Argo CD the engine has, with " +
		"`argocd.managed: true`, and whose version of the agent, with `connection.agent`.",
		example: "stable", fallback: "stable", value: textOf(formatLabelWord)},
	pauseAdoption("on the engine"),
	field{
		name: "repoServerRestartedAt",
		doc: "When you last began to replace every Pod of this Argo CD's repo-server, for example " +
			"with `kubectl rollout restart`. A clone of a private repository outlives the tenant that " +
			"read it: until a later restart, no other tenant begins to read the repository here " +
			"(`shared-clone`). The restart of a container keeps the clones.",
		example: `"2026-11-23T05:00:00Z"`, value: textOf(formatTime)},
	field{
		name: "applicationNamespaces",
		doc: "Namespaces besides `argocd.namespace` with Applications that the engine's Argo CD " +
			"serves (`application.namespaces` of its `argocd-cmd-params-cm`) and that a tenant " +
			"may adopt (`docs/adopting.md`). Each belongs to one tenant, whose AppProject permits " +
			"it: every account that may write Applications in the namespace may deploy as the " +
			"tenant, within that AppProject. Environments of other tenants may not name it.",
		example: "[{namespace: shop-apps, tenant: acme}]",
		value: listOf(object(
			field{name: "namespace", doc: "One exact namespace.", example: "shop-apps",
				required: true, value: textOf(formatApplicationNamespace)},
			field{name: "tenant", doc: "The tenant that its Applications belong to.",
				example: "acme", required: true, value: textOf(formatName)},
		)).by("namespace").atMost(100)},
	engineMetrics(),
	engineRemedies(),
).without("pool"), func(d *fleet.Declaration, s *fleet.EngineSpec) { d.Engine = s })

func capacity(least int64) value {
	return object(
		field{name: "applications", doc: "Applications.", example: "1500", required: true,
			value: integer(least, 100000)},
		field{name: "environments", doc: "Environments.", example: "100", required: true,
			value: integer(least, 100000)},
	)
}

func engineMetrics() field {
	return field{
		name: "metrics",
		doc: "Where the load of the engine's components is measured (`docs/load.md`). Left out: " +
			"it is not, and placement counts Applications.", value: object(
			field{
				name: "applicationController",
				doc:  "The application-controller: one Service, or each Pod of several shards.",
				value: metricsEndpoints("argocd-metrics", "argocd-application-controller-0",
					"8082")},
			field{
				name: "repoServer", doc: "The repo-server.",
				value: metricsEndpoints("argocd-repo-server", "argocd-repo-server-0", "8084")},
		)}
}

func engineRemedies() field {
	return field{
		name: "remedies",
		doc: "What Argosy may do by itself when the engine does not work (`docs/health.md`). It " +
			"does nothing on an engine behind an agent.",
		value: remedies(" Left out: the Fleet's.")}
}

// remedies are the restarts that Argosy may make, and their budget.
func remedies(leftOut string, more ...field) value {
	fallback := func(text string) string {
		if leftOut != "" {
			return ""
		}
		return text
	}
	rule := func(what string) value {
		return object(
			field{
				name: "mode", doc: "`Allowed`: Argosy restarts the " + what + ". `Forbidden`: it " +
					"only reports the fault." + leftOut,
				example:  string(fleet.RemedyAllowed),
				fallback: fallback(string(fleet.RemedyForbidden)),
				value:    wordOf(string(fleet.RemedyForbidden), string(fleet.RemedyAllowed))},
			field{
				name:    "after",
				doc:     "How long the fault lasts before: a duration from 2m to 24h." + leftOut,
				example: "10m", fallback: fallback("10m"),
				value: value{shape: shapeDuration, least: int64(2 * time.Minute),
					most: int64(24 * time.Hour)}},
		)
	}
	return object(append([]field{
		{name: "restartController", doc: "Against `ControllerStuck`.",
			value: rule("application-controller")},
		{name: "restartRepoServer", doc: "Against `RepoServerSilent`.",
			value: rule("repo-server")},
		{name: "perHour", doc: "Restarts of one engine in an hour." + leftOut, example: "2",
			fallback: fallback("2"), value: integer(1, 60)},
		{name: "fence", doc: "`Allowed`: with `argosy evacuate engine ENGINE --fence`, a person may " +
			"have Argosy scale the controllers of an engine to zero " +
			"(`docs/evacuating.md`)." + leftOut,
			example: string(fleet.RemedyAllowed), fallback: fallback(string(fleet.RemedyForbidden)),
			value: wordOf(string(fleet.RemedyForbidden), string(fleet.RemedyAllowed))},
	}, more...)...)
}

// metricsEndpoints are addresses that the worker reads without a credential of its own, except the
// one that it has for the engine's API server.
func metricsEndpoints(service, pod, port string) value {
	of := func(what, example string) value {
		return object(
			field{name: "name", doc: "The name of the " + what + ".", example: example,
				required: true, value: textOf(formatLabelWord)},
			field{name: "port", doc: "The port that serves `/metrics`.", example: port,
				required: true, value: integer(1, 65535)})
	}
	return listOf(object(
		field{
			name: "service",
			doc: "A Service in `argocd.namespace`, reached through the engine's API server, which " +
				"chooses one of its Pods.", value: of("Service", service)},
		field{
			name: "pod", doc: "A Pod in `argocd.namespace`, reached through the engine's API server.",
			value: of("Pod", pod)},
		field{
			name: "url",
			doc: "An address that the control plane reaches: `/metrics` below it is read, without " +
				"a credential and without redirects. Not for an engine behind an agent.",
			example: "https://argocd-metrics.example.com", value: textOf(formatMetricsURL)},
	).exactlyOneOf("service", "pod", "url").
		when("service where one Pod serves it, pod for each of several, url where the API server " +
			"does not lead to it")).atMost(fleet.MaxMetricsEndpoints)
}

func pauseAdoption(where string) field {
	return field{name: "pauseAdoption",
		doc: "Argosy adopts no further Application " + where + ", and creates none for " +
			"`orCreate`. Adopted ones stay as they are, and can be changed and released.",
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

var kindTenant = describe(kind{
	name: fleet.KindTenant, place: "fleet/tenants/<name>.yaml",
	doc: "The platform's grant to one tenant: its owners, its quota, and what it may use.",
}, object(
	field{
		name: "owners",
		doc: "Owners of the tenant, who approve its pull requests: people and teams of the Git " +
			"host, and groups of the identity provider.",
		example: `["github:alice", "github:acme/leads"]`, required: true, value: owners()},
	field{
		name: "members",
		doc: "Who may act in the tenant besides its owners, such as sync, roll back and stop " +
			"(`docs/roles.md`): written as owners are. Members do not approve.",
		example: `["group:acme-dev"]`, value: owners()},
	field{
		name:    "viewers",
		doc:     "Who may read everything of the tenant, and change nothing: written as owners are.",
		example: `["group:support"]`, value: owners()},
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
	freezes("the tenant", "an owner of it, or the platform, runs"),
	field{
		name: "agentRing",
		doc: "The ring of the Fleet whose version of the agent the agents of the tenant's " +
			"environments follow (`docs/rings.md`), where the cluster's admin allows it. Left " +
			"out: they stay as they are.", example: "edges", value: textOf(formatLabelWord)},
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
			field{name: "agentRing", doc: "The ring that the environment's agent follows, instead " +
				"of the tenant's `agentRing`.", example: "edges",
				value: textOf(formatLabelWord)},
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
