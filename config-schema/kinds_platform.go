package configschema

import (
	"reflect"
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
		doc: "Who answers for `fleet/`, as `Tenant.owners`. Left out: whoever administers the " +
			"config repo on its forge.", example: `["github:acme/platform"]`, value: owners()},
	field{
		name: "guards",
		doc: "How many Applications may be deleted without an approval: by one tenant, and by " +
			"all together (`fleet`), summed over the window.", value: object(
			field{name: "maxDeletes", doc: "Applications.", example: "20", fallback: "20",
				value: integer(1, 100000)},
			field{name: "maxDeletePercent",
				doc: "Percent of the Applications that stood when the window began.", example: "20",
				fallback: "20", value: integer(1, 100)},
			field{name: "alwaysAllowed",
				doc: "So many Applications may go whatever the percentage says.", example: "5",
				fallback: "5", value: integer(1, 100000)},
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
					field{name: "maxDeletePercent",
						doc: "Percent of the fleet's Applications that stood when the window " +
							"began. Left out: as `guards.maxDeletePercent`.", example: "20",
						value: integer(1, 100)},
					field{name: "alwaysAllowed",
						doc: "So many Applications may go whatever the percentage says. Left " +
							"out: as `guards.alwaysAllowed`.", example: "5",
						value: integer(1, 100000)},
				)},
		)},
	field{
		name: "gitHosts",
		doc: "The hosts that a repoURL may name: exact, with `:port` when it is not the " +
			"default. `http://host` allows that host without TLS.", example: "[git.example.com]",
		required: true,
		value:    listOf(textOf(formatGitHost))},
	field{name: "clusterHosts",
		doc: "Hosts of API servers that may be internal addresses (loopback, names without " +
			"a domain, Services): `host` or `host:port`, exactly. For labs and single-host " +
			"installations.",
		example: `["127.0.0.1:6443"]`, value: listOf(textOf(formatClusterHost))},
	field{name: "refusePrivateClusters",
		doc: "Refuse API servers at addresses of private networks (10/8, 172.16/12, " +
			"192.168/16, 100.64/10) that `clusterHosts` does not list. Names are not resolved.",
		example: "true", fallback: "false", value: boolean()},
	field{name: "defaults", doc: "What deployments that leave a field out get.", value: object(
		field{name: "sync", doc: "Sync settings.",
			example: "{mode: automated, prune: true, selfHeal: true}", value: syncSettings()},
	)},
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
			field{name: "installationID",
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
				example: "{name: engine-eu-1}", value: secretRef("The secret's name.",
					"engine-eu-1")},
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
	field{
		name:    "taints",
		doc:     "An environment is placed here only if its tenant tolerates each of them.",
		example: "[{key: gpu}]", value: taints().by("key")},
	field{
		name: "state",
		doc: "`Active` takes new environments, `Cordoned` none, `Draining` none and is to be " +
			"emptied.", example: "Active", fallback: "Active",
		value: wordOf(string(fleet.EngineActive), string(fleet.EngineCordoned),
			string(fleet.EngineDraining))},
	field{name: "ring", doc: "The release ring that its Argo CD version follows.",
		example: "stable", fallback: "stable", value: textOf(formatLabelWord)},
), func(d *fleet.Declaration, s *fleet.EngineSpec) { d.Engine = s })

var kindTenant = describe(kind{
	name: fleet.KindTenant, place: "fleet/tenants/<name>.yaml",
	doc: "The platform's grant to one tenant: who owns it, how much it may declare, and what it " +
		"may use.",
}, object(
	field{
		name: "owners",
		doc: "Who answers for the tenant, and approves its pull requests: people and teams of " +
			"the forge, and groups that people sign in with.",
		example: `["github:alice", "github:acme/leads"]`, required: true, value: owners()},
	field{name: "quota", doc: "How much the tenant may declare. 0: none.", required: true,
		value: object(
			field{name: "environments", doc: "ManagedEnvironments.", example: "20", required: true,
				value: integer(0, 100000)},
			field{name: "deployments", doc: "GitOpsDeployments.", example: "200", required: true,
				value: integer(0, 100000)},
			field{name: "applications",
				doc: "Applications: deployments times the environments of each.", example: "500",
				required: true, value: integer(0, 100000)},
		)},
	field{name: "repositories",
		doc: "What may be deployed: the URL of a repository, or with a trailing slash " +
			"everything below it.", example: `["https://git.example.com/acme/"]`, required: true,
		value: listOf(textOf(formatGrant))},
	field{name: "clusters", first: true,
		doc: "API servers that its environments may name: the URL of one, or `.domain` for " +
			"every host below that domain. Left out: none; environments with an agent need none.",
		example: `["https://api.eu-1.example.com:6443", .acme.example.com]`,
		value:   listOf(textOf(formatServerGrant))},
	field{
		name: "namespaces",
		doc: "Namespaces that it may use on API servers that other tenants are granted too: " +
			"exact, or with a `-` at the end every one that begins so. On a server that is " +
			"granted to it alone it may use any.",
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
	field{name: "clusterResources",
		doc: "Cluster-scoped kinds that environments with `clusterResources: true` may deploy: exact.", example: `[{group: "", kind: Namespace}]`, value: groupKinds()},
), func(d *fleet.Declaration, s *fleet.TenantSpec) { d.Tenant = s })

func inClusterIsTrue(d *decoder, into reflect.Value, at node) {
	if c := into.Addr().Interface().(*fleet.Connection); !c.InCluster && c.KubeconfigRef == nil &&
		c.Agent == nil {
		d.at("inCluster", func() {
			d.problem(child(at, "inCluster"), codeInvalidValue,
				"inCluster: false says how the engine is not reached",
				"write inCluster: true, or kubeconfigRef: {name: ...} or agent: {} instead")
		})
	}
}

// uniqueGroupKinds runs on the list: an entry is told apart by both its fields.
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
