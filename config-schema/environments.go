package configschema

import (
	"reflect"

	"argosy.dev/argosy/fleet"
)

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
				name:    "argocdNamespace",
				doc:     "The namespace of the cluster's Argo CD, in which the agent works.",
				example: "argocd", fallback: "argocd", value: textOf(formatEngineNamespace)},
			field{
				name: "mode",
				doc: "`managed`: the config repo declares the Applications. `autonomous`: the " +
					"cluster's own Applications are the truth; Argosy shows them and can sync " +
					"them, and no deployment goes there.", example: "managed", fallback: "managed",
				value: wordOf(string(fleet.AgentManaged), string(fleet.AgentAutonomous))},
			field{
				name: "applicationNamespaces",
				doc: "Namespaces besides `argocdNamespace` with Applications that the cluster's " +
					"Argo CD serves (`application.namespaces`) and that the tenant may adopt " +
					"(`docs/adopting.md`). The agent works in those that the cluster's admin " +
					"allows too (`argocd.applicationNamespaces` of the chart argosy-agent): every " +
					"account that may write Applications there may deploy as the tenant, within " +
					"its AppProject on this cluster.", example: "[shop-apps]",
				value: listOf(textOf(formatApplicationNamespace)).atMost(100)},
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
