package configschema

import (
	"fmt"
	"reflect"
	"strings"

	"argosy.dev/argosy/fleet"
)

var kindEnvironment = describe(kind{
	name: fleet.KindManagedEnvironment, place: "tenants/<tenant>/environments/<name>.yaml",
	doc: "A cluster to deploy to, and the namespaces of it that are the tenant's. An engine " +
		"reaches it (`cluster`), or an agent on it dials out (`agent`).",
}, object(
	field{name: "cluster", doc: "How an engine reaches the API server.", value: object(
		field{
			name: "server",
			doc: "`https://host[:port]` of the API server, lower case, without path. Internal " +
				"addresses need an entry in `Fleet.clusterHosts`.",
			example: "https://api.eu-1.example.com:6443", required: true,
			value: textOf(formatServer)},
		field{
			name:    "caData",
			doc:     "The cluster's CA certificates: PEM, in base64. Left out: the system's.",
			example: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJuRENDQVVHZ0F3SUJBZ0lVRElmNU1LYmdTQTJqVXRLRFgxTzJudjlId0JFd0NnWUlLb1pJemowRUF3SXcKSWpFZ01CNEdBMVVFQXd3WFlYQnBMbVYxTFRFdVpYaGhiWEJzWlM1amIyMGdRMEV3SUJjTk1qWXhNVEl4TURRMApOVEE1V2hnUE1qRXlOakV3TWpnd05EUTFNRGxhTUNJeElEQWVCZ05WQkFNTUYyRndhUzVsZFMweExtVjRZVzF3CmJHVXVZMjl0SUVOQk1Ga3dFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRTdGNkRrSFRZaENaazJjUysKbDNEdmNJejV5c0RKcFhVSWVsblVBSFlDMDdLNndDOGRXYlMxdFZPVysrWFZ2U1ZBRlI1RldWM3lEVGZUam1DOQpQQmNLRDZOVE1GRXdIUVlEVlIwT0JCWUVGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUI4R0ExVWRJd1FZCk1CYUFGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3Q2dZSUtvWkkKemowRUF3SURTUUF3UmdJaEFPaC9manpadElqWG90MnJLMlVIWUM0MDI1N3JVc3VLMWk3VGgvVjA1ZjVzQWlFQQpscnFMQm1iWW4wZEZQWlE5bGRtSGRwM3draTFaU2VkaEcvK0hyQkpxY1VBPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==", value: textOf(formatCAData).atMost(64 << 10)},
		field{name: "credentialsRef",
			doc: "The secret of this tenant that holds the credential: a token, or a " +
				"certificate and key.", example: "{name: prod-eu}", required: true,
			value: secretRef("The secret's name.", "prod-eu")},
	).checked(noKeyInCAData)},
	field{
		name: "agent",
		doc: "The cluster deploys to itself: an agent on it dials out to the control plane, " +
			"which needs neither its address nor a credential of it. `argosy agent token create " +
			"TENANT/ENVIRONMENT` gives the token that it joins with. `{}` takes every default.",
		example: "{argocdNamespace: argocd}", value: object(
			field{name: "argocdNamespace",
				doc: "The namespace of the cluster's Argo CD, in which the agent works and in " +
					"no other.", example: "argocd", fallback: "argocd",
				value: textOf(formatEngineNamespace)},
			field{
				name: "mode",
				doc: "`managed`: the Applications are those that the config repo declares. " +
					"`autonomous`: the cluster's own Applications are the truth; they are shown " +
					"and may be synced, and no deployment goes there.", example: "managed",
				fallback: "managed",
				value:    wordOf(string(fleet.AgentManaged), string(fleet.AgentAutonomous))},
		).mayBeEmpty().not(neverAgent)},
	field{
		name:    "namespaces",
		doc:     "The namespaces that may be deployed to: exact names, never a pattern.",
		example: "[checkout, cart]", required: true, value: listOf(textOf(formatNamespace))},
	field{name: "clusterResources",
		doc:     "Whether the cluster-scoped kinds that the Tenant grants may be deployed here.",
		example: "false", fallback: "false", value: boolean()},
	field{
		name: "region",
		doc: "An engine of this region serves it. With an agent: where the cluster is, one of " +
			"the regions that the Tenant may use.", example: "eu", required: true,
		value: textOf(formatLabelWord)},
).exactlyOneOf("cluster", "agent").
	when(
		"cluster where an engine reaches the API server; agent, without server and credential, "+
			"where an agent on the cluster dials out").
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

var kindDeployment = describe(kind{
	name: fleet.KindGitOpsDeployment, place: "tenants/<tenant>/deployments/<name>.yaml",
	doc: "One source in one or many environments: each environment gives one Application.",
}, object(
	field{name: "source", doc: "What is deployed.", required: true, value: object(append([]field{
		{
			name: "repoURL",
			doc: "The repository; its host is listed in `Fleet.gitHosts`, and the Tenant " +
				"grants it.", example: "https://git.example.com/acme/checkout", required: true,
			value: textOf(formatRepoURL).atMost(1024)},
		{name: "chart", doc: "A chart of the Helm repository at `repoURL`, instead of `path`.",
			example: "checkout", value: textOf(formatChart).atMost(100)},
	}, sourceFields(true)...)...).exactlyOneOf("path", "chart").atMostOneOf("kustomize", "helm",
		"directory").checked(chartIsHelm)},
	field{name: "destination", doc: "Where it is deployed.", required: true, value: object(
		field{name: "environments", doc: "Names of environments of this tenant.",
			example: "[staging, prod-eu]", value: listOf(textOf(formatName))},
		field{name: "environmentSelector", doc: "Selects environments of this tenant by label.",
			example: "{matchLabels: {tier: prod}}",
			value:   selector("Label keys and exact values; all must match.", "{tier: prod}")},
		field{name: "namespace", doc: "The namespace, one that each of the environments lists.",
			example: "checkout", required: true, value: textOf(formatNamespace)},
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
	field{name: "deletionPolicy",
		doc: "What happens to the workload when this file goes: `Delete` removes it, `Orphan` " +
			"leaves it running.", example: "Delete", fallback: "Delete",
		value: wordOf(string(fleet.DeletionDelete), string(fleet.DeletionOrphan))},
	field{
		name: "overrides",
		doc: "Source fields that differ in one environment. A field that is left out is " +
			"inherited; `kustomize`, `helm` and `directory` are replaced as a whole.",
		value: listOf(object(
			field{name: "environment", doc: "The environment.", example: "staging", required: true,
				value: textOf(formatName)},
			field{name: "source", doc: "What differs. The repository and chart cannot.",
				required: true,
				value: object(sourceFields(false)...).
					atMostOneOf("kustomize", "helm", "directory").not(map[string]word{
					"repoURL": notAllowed("the repository is the same in every environment",
						"write another deployment"),
					"chart": notAllowed("the chart is the same in every environment",
						"write another deployment"),
				})},
		)).by("environment")},
).checked(overridesFit, releaseIsNamed), func(d *fleet.Declaration, s *fleet.DeploymentSpec) {
	d.Deployment = s
})

var kindCredential = describe(kind{
	name: fleet.KindRepositoryCredential, place: "tenants/<tenant>/credentials/<name>.yaml",
	doc: "Access of this tenant to a private repository.",
}, object(
	field{name: "repoURL", doc: "The repository, exactly as deployments name it.",
		example: "https://git.example.com/acme/checkout", required: true,
		value: textOf(formatRepoURL).atMost(1024)},
	field{name: "credentialsRef",
		doc:     "The secret of this tenant that holds a user and password, a token or an ssh key.",
		example: "{name: checkout-git}", required: true, value: secretRef("The secret's name.",
			"checkout-git")},
), func(d *fleet.Declaration, s *fleet.CredentialSpec) { d.Credential = s })

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
		example: "v1.3.2", required: true, value: textOf(formatFixed)},
	field{
		name: "hold",
		doc: "Keeps automated sync off until the deployment's targetRevision changes in Git, " +
			"so that a rollback stays.", example: "true", fallback: "false", value: boolean()},
), func(d *fleet.Declaration, s *fleet.SyncRunSpec) { d.SyncRun = s })

// sourceFields are the fields of a source that may differ per environment.
func sourceFields(whole bool) []field {
	revision := field{name: "targetRevision",
		doc: "Branch, tag, commit or chart version, exactly; never a range.", example: "v1.4.0",
		required: whole, value: textOf(formatRevision)}
	if !whole {
		revision.example = "main"
	}
	return []field{
		{name: "path", doc: "Folder of the repository; `.` is its root.", example: "deploy",
			value: textOf(formatPath).atMost(512)},
		revision,
		{name: "kustomize", doc: "The folder is built by kustomize, with these changes.",
			value: object(
				field{name: "images", doc: "Image overrides: `[name=]image[:tag][@digest]`.",
					example: `["checkout=registry.example.com/checkout:v1.4.0"]`,
					value:   listOf(textOf(formatImage).atMost(512)).atMost(100)},
				field{name: "namePrefix", doc: "Put before the names of all resources.",
					example: "eu-",
					value:   textOf(formatAffix).atMost(63)},
				field{name: "nameSuffix", doc: "Put after the names of all resources.",
					example: "-eu",
					value:   textOf(formatAffix).atMost(63)},
			)},
		{
			name: "helm",
			doc: "The folder or chart is rendered by Helm, with these values. A folder without " +
				"any of the three is rendered by what Argo CD finds in it; say helm if that is " +
				"a chart: its release would be named for the Application, which may be longer " +
				"than Helm allows.", value: object(
				field{
					name:    "releaseName",
					doc:     "At most 53 of a-z, 0-9 and '-'. Left out: the deployment's name.",
					example: "checkout", value: textOf(formatRelease)},
				field{
					name: "valueFiles",
					doc: "Files of values inside the repository, relative to the chart; later " +
						"ones win.", example: "[values.yaml, values-eu.yaml]",
					value: listOf(textOf(formatPath).atMost(512)).atMost(50)},
				field{
					name:    "values",
					doc:     "Values as a text of YAML, at most 64 KiB. They win over valueFiles.",
					example: "\"replicas: 2\"", value: textOf(formatAny).atMost(64 << 10)},
				field{
					name:    "parameters",
					doc:     "Single values, as `helm --set` has them. They win over all else.",
					example: `[{name: replicas, value: "2"}]`, value: listOf(object(
						field{name: "name", doc: "Key of the chart's values.", example: "image.tag",
							required: true, value: textOf(formatParam)},
						field{name: "value", doc: "Its value, as text.", example: `"v1.4.0"`,
							required: true, value: textOf(formatAny).mayBeEmpty().atMost(4096)},
						field{name: "forceString",
							doc:     "Whether the value stays text when it looks like a number.",
							example: "true", fallback: "false", value: boolean()},
					).checked(parameterIsNoSecret)).atMost(200).by("name")},
			).not(map[string]word{
				"fileParameters": notAllowed("files are named in valueFiles", "use valueFiles"),
				"valuesObject": notAllowed("values are written as a text",
					"use values: | and the YAML below it"),
				"passCredentials": notAllowed("credentials are not passed to other hosts",
					"remove it"),
			}).checked(valuesArePlainYAML)},
		{name: "directory", doc: "The folder holds plain manifests.", value: object(
			field{name: "recurse", doc: "Whether folders below are read too.", example: "true",
				fallback: "false", value: boolean()},
		).not(map[string]word{
			"jsonnet": notAllowed("jsonnet is not for declarations", "remove it"),
			"include": notAllowed("patterns are not for declarations",
				"put what belongs together into one folder"),
			"exclude": notAllowed("patterns are not for declarations",
				"put what belongs together into one folder"),
		})},
	}
}

func chartIsHelm(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Source)
	if s.Chart == "" {
		return
	}
	if s.Kustomize != nil || s.Directory != nil {
		d.at("chart", func() {
			d.problem(child(at, "chart"), codeExclusive, "a chart is rendered by Helm",
				"remove kustomize and directory, or use path")
		})
	}
	if !strings.HasPrefix(s.RepoURL, "http") {
		d.at("repoURL", func() {
			d.problem(child(at, "repoURL"), codeInvalidURL, "a Helm repository is read over https",
				"write https://...")
		})
	}
}

// overridesFit refuses an override that, put over the source, would give it two tools or a path
// beside a chart.
func overridesFit(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	base := toolOf(spec.Source.Kustomize, spec.Source.Helm, spec.Source.Directory)
	if spec.Source.Chart != "" {
		base = "helm"
	}
	for i, o := range spec.Overrides {
		n := child(child(at, "overrides").Content[i], "source")
		tool := toolOf(o.Source.Kustomize, o.Source.Helm, o.Source.Directory)
		d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
		if tool != "" && base != "" && tool != base {
			d.at(tool, func() {
				d.problem(child(n, tool), codeExclusive, "the source is read by "+base+
					"; an override cannot read it by "+tool,
					"override "+base+", or write another deployment")
			})
		}
		if o.Source.Path != "" && spec.Source.Chart != "" {
			d.at("path", func() {
				d.problem(child(n, "path"), codeExclusive,
					"the source is a chart, which has no path", "remove path")
			})
		}
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
	tell := func(n node, field string) {
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
		d.at("source", func() { tell(child(at, "source"), "helm") })
	case s.Helm == nil && s.Chart != "":
		d.at("source", func() { tell(child(at, "source"), "chart") })
	}
	for i, o := range spec.Overrides {
		if h := o.Source.Helm; h != nil && h.ReleaseName == "" {
			d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
			tell(child(child(at, "overrides").Content[i], "source"), "helm")
			d.steps = d.steps[:len(d.steps)-3]
		}
	}
}

func toolOf(k *fleet.KustomizeSource, h *fleet.HelmSource, d *fleet.DirectorySource) string {
	switch {
	case k != nil:
		return "kustomize"
	case h != nil:
		return "helm"
	case d != nil:
		return "directory"
	}
	return ""
}
