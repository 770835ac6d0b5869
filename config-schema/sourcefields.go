package configschema

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

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
