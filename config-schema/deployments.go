package configschema

import (
	"fmt"
	"reflect"

	"argosy.dev/argosy/fleet"
)

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
	notifications(), deploymentSubscriptions(), watchPaths(),
	rollout("Left out: those of the defaults."),
	field{
		name: "adopt",
		doc: "Existing Applications that the deployment takes over, with their name, history " +
			"and workload, once it changes nothing in them (`docs/adopting.md`). The Tenant " +
			"allows it (`allow.adopt`).",
		value: listOf(object(
			field{name: "environment", doc: "The environment.", example: "prod-eu", required: true,
				value: textOf(formatName)},
			field{name: "application", doc: "The Application's name in Argo CD's namespace, or " +
				"`<namespace>/<name>` in one that `applicationNamespaces` of the Engine gives " +
				"to the tenant, or of the environment's `agent`.", example: "checkout-prod",
				required: true,
				value:    textOf(formatObject).atMost(256)},
			field{
				name: "orCreate",
				doc: "Argosy creates an Application of that name if the engine has none, as for " +
					"a new item of a set. Without it, the deployment waits for the Application.",
				example: "true", fallback: "false", value: boolean()},
		)).by("environment")},
).exactlyOneOf("source", "sources").
	checked(refsExist, revisionsFit, filesAreInside, overridesFit, releaseIsNamed,
		createdIsFree, wavesFit),
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

// defaults are the fields of a deployment that the fleet and a tenant give to all.
func defaults() value {
	return object(
		field{name: "sync", doc: "Sync settings, field by field.", first: true,
			example: "{mode: automated, prune: true, selfHeal: true}", value: syncSettings()},
		deletionPolicy(), revisionHistoryLimit(), ignoreDifferences(),
		rollout("A deployment with waves of its own does not inherit them."))
}

var kindDefaults = describe(kind{
	name: fleet.KindTenantDefaults, place: "tenants/<tenant>/defaults.yaml",
	doc: "Fields that the tenant's deployments inherit when they leave them out. There is at most " +
		"one, named `defaults`. Precedence, lowest first: built-in, `Fleet.defaults`, " +
		"TenantDefaults, the deployment, its overrides.",
}, defaults(), func(d *fleet.Declaration, s *fleet.Defaults) { d.Defaults = s })

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
