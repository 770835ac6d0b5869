package configschema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// refIsGit refuses an entry of sources that has nothing to deploy and no name to be read by, and a
// name for a chart or an OCI artifact, whose files other sources cannot read.
func refIsGit(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Source)
	switch {
	case s.Ref != "" && s.Chart != "":
		d.at("ref", func() {
			d.problem(child(at, "ref"), codeExclusive,
				"a chart has no files for other sources; a Git repository has",
				"remove ref, or use path instead of chart")
		})
	case s.Ref != "" && s.Artifact():
		d.at("ref", func() {
			d.problem(child(at, "ref"), codeExclusive,
				"an OCI artifact has no files for other sources; a Git repository has",
				"remove ref")
		})
	case s.Ref == "" && s.Path == "" && s.Chart == "":
		d.problem(at, codeMissingField, d.subject()+" has none of path, chart and ref",
			"write path or chart of what is deployed, or the ref by which others read its files")
	case s.Path == "" && s.Chart == "" && toolOf(s.Kustomize, s.Helm, s.Directory, s.Plugin) != "":
		tool := toolOf(s.Kustomize, s.Helm, s.Directory, s.Plugin)
		d.at(tool, func() {
			d.problem(child(at, tool), codeExclusive,
				"a source without path deploys nothing: others read its files",
				"remove "+tool+", or write path")
		})
	}
}

// refsExist refuses a value file of a ref that no source has.
func refsExist(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	check := func(h *fleet.HelmSource, source node) {
		if h == nil {
			return
		}
		for i, file := range h.ValueFiles {
			reference, _, _ := strings.Cut(file, "/")
			ref, isRef := strings.CutPrefix(reference, "$")
			if !isRef || strings.HasPrefix(ref, "{") || slices.ContainsFunc(spec.Sources,
				func(s fleet.Source) bool { return s.Ref == ref }) {
				continue
			}
			fix := "give the source that has the file ref: " + ref
			if len(spec.Sources) == 0 {
				fix = "write sources: with this source and {ref: " + ref +
					", repoURL: ..., targetRevision: ...}"
			}
			n := child(child(source, "helm"), "valueFiles")
			d.steps = append(d.steps, step{"helm", -1}, step{"valueFiles", -1}, step{"", i})
			d.problem(n.Content[i], codeUnknownRef, "no source has the ref "+strconv.Quote(ref),
				fix)
			d.steps = d.steps[:len(d.steps)-3]
		}
	}
	if len(spec.Sources) == 0 {
		d.at("source", func() { check(spec.Source.Helm, child(at, "source")) })
	}
	for i, s := range spec.Sources {
		d.steps = append(d.steps, step{"sources", -1}, step{"", i})
		check(s.Helm, child(at, "sources").Content[i])
		d.steps = d.steps[:len(d.steps)-2]
	}
	for i, o := range spec.Overrides {
		d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
		check(o.Source.Helm, child(child(at, "overrides").Content[i], "source"))
		d.steps = d.steps[:len(d.steps)-3]
	}
}

// kustomizeFields are the changes that a deployment gives to kustomize.
func kustomizeFields() value {
	text := func(name, doc, example string) field {
		return field{name: name, doc: doc, example: example, value: textOf(formatAny).atMost(253)}
	}
	return object(
		field{name: "images", doc: "Image overrides: `[name=]image[:tag][@digest]`.",
			example: `["checkout=registry.example.com/checkout:v1.4.0"]`,
			value:   listOf(textOf(formatImage).atMost(512)).atMost(100)},
		field{name: "namePrefix", doc: "Put before the names of all resources.",
			example: "eu-",
			value:   textOf(formatAffix).atMost(63)},
		field{name: "nameSuffix", doc: "Put after the names of all resources.",
			example: "-eu",
			value:   textOf(formatAffix).atMost(63)},
		field{
			name: "namespace",
			doc: "Set as the namespace of all resources. It must be one that the environment " +
				"lists.", example: "checkout", value: textOf(formatLabelWord)},
		field{name: "commonLabels", doc: "Added to all resources, and to selectors.",
			example: "{team: payments}",
			value:   mapOf(formatPairKey, textOf(formatLabel).atMost(63))},
		field{
			name:    "commonAnnotations",
			doc:     "Added to all resources. A value holds no comma, quote or `$`.",
			example: "{example.com/owner: payments}",
			value:   mapOf(formatPairKey, textOf(formatPairValue).atMost(1024))},
		field{name: "labelWithoutSelector", doc: "Whether commonLabels stay out of selectors.",
			example: "true", fallback: "false", value: boolean()},
		field{
			name:    "forceCommonLabels",
			doc:     "Whether commonLabels replace those of the kustomization.",
			example: "true", fallback: "false", value: boolean()},
		field{
			name:    "forceCommonAnnotations",
			doc:     "Whether commonAnnotations replace those of the kustomization.",
			example: "true", fallback: "false", value: boolean()},
		field{name: "replicas", doc: "Replicas of workloads by name.",
			example: "[{name: checkout, count: 3}]", value: listOf(object(
				field{name: "name", doc: "The workload.", example: "checkout", required: true,
					value: textOf(formatLabelWord)},
				field{name: "count", doc: "Its replicas.", example: "3", required: true,
					value: integer(0, 10000)},
			)).atMost(100).by("name")},
		field{
			name: "patches",
			doc: "Patches that are added to those of the kustomization, each a strategic merge " +
				"patch or a JSON patch of at most 16 KiB.", value: listOf(object(
				field{name: "patch", doc: "The patch, as text of YAML.",
					example: `"- {op: remove, path: /spec/replicas}"`,
					value:   textOf(formatAny).atMost(16 << 10)},
				field{
					name: "path",
					doc: "The file of the patch, below the source's folder: kustomize reads no " +
						"other.", example: "patches/replicas.yaml",
					value: textOf(formatPlainPath).atMost(512)},
				field{
					name: "target",
					doc: "The resources that it changes; a strategic merge patch can name its " +
						"own.", example: "{kind: Deployment}", value: object(
						text("group", "API group, as an anchored expression.", "apps"),
						text("version", "Version of the API group.", "v1"),
						text("kind", "Kind.", "Deployment"),
						text("name", "Name, as an anchored expression.", "checkout"),
						text("namespace", "Namespace.", "checkout"),
						text("labelSelector", "Label selector.", "app=checkout"),
						text("annotationSelector", "Annotation selector.", "example.com/a=b"))},
				field{name: "options", doc: "What the patch may change of a resource's identity.",
					example: "{allowNameChange: true}", value: object(
						field{name: "allowNameChange", doc: "Its name.", example: "true",
							fallback: "false", value: boolean()},
						field{name: "allowKindChange", doc: "Its kind.", example: "true",
							fallback: "false", value: boolean()})},
			).exactlyOneOf("patch", "path").checked(patchIsPlainYAML)).atMost(50)},
		field{
			name: "components",
			doc: "Folders of components inside the repository, relative to the source's; `../` " +
				"leads to the folders above it.", example: "[../components/tls]",
			value: listOf(textOf(formatBelow).atMost(512)).atMost(50)},
		field{
			name: "version",
			doc: "The version of kustomize, one of those that `allow.kustomizeVersions` of the " +
				"Tenant lists and the engines have.", example: "v5.4.3",
			value: textOf(formatKustomizeVersion).atMost(32)},
	).not(map[string]word{
		"buildOptions": notAllowed("options of the build are the engine's, for all tenants: they "+
			"could run programs and load files from anywhere", "remove it"),
		"kubeVersion": notAllowed(
			"kustomize uses it for Helm charts alone, and renders none: that "+
				"needs an option of the build with which it runs programs",
			"write a source of its own for the chart, with helm.kubeVersion"),
		"apiVersions": notAllowed("kustomize uses them for Helm charts alone, and renders none: "+
			"that needs an option of the build with which it runs programs",
			"write a source of its own for the chart, with helm.apiVersions"),
		"commonAnnotationsEnvsubst": notAllowed("annotations are taken as they are written",
			"write the value"),
	})
}

func jsonnetFields() field {
	variables := func(name, doc, example string) field {
		return field{name: name, doc: doc, example: example, value: listOf(object(
			field{name: "name", doc: "Its name.", example: "stage", required: true,
				value: textOf(formatVariableName).atMost(100)},
			field{name: "value", doc: "Its value.", example: "prod", required: true,
				value: textOf(formatAny).mayBeEmpty().atMost(4096)},
			field{name: "code", doc: "Whether the value is an expression of jsonnet.",
				example: "true", fallback: "false", value: boolean()},
		)).atMost(50).by("name")}
	}
	return field{
		name: "jsonnet",
		doc: "How files `*.jsonnet` are evaluated. Only for a Tenant with `placement: {alone: " +
			"true}`, on engines where the platform enables jsonnet: it can read files of the " +
			"repo-server.", value: object(
			variables("extVars", "External variables.", "[{name: stage, value: prod}]"),
			variables("tlas", "Top-level arguments.", "[{name: stage, value: prod}]"),
			field{
				name:    "libs",
				doc:     "Folders of libraries, from the root of the repository.",
				example: "[vendor]", value: listOf(textOf(formatPlainPath).atMost(512)).atMost(50)},
		)}
}

// pluginFields are what a deployment gives to a plugin. The plugin gets the variables of env with
// ARGOCD_ENV_ before their names.
func pluginFields() value {
	return object(
		field{name: "name", doc: "The plugin, `<name>` or `<name>-<version>`.",
			example: "cdk8s-v1.0", required: true, value: textOf(formatPlugin).atMost(100)},
		field{name: "env", doc: "Variables; a plugin sees them as `ARGOCD_ENV_<name>`.",
			example: "[{name: STAGE, value: prod}]", value: listOf(object(
				field{name: "name", doc: "The variable.", example: "STAGE", required: true,
					value: textOf(formatVariableName).atMost(100)},
				field{name: "value", doc: "Its value.", example: "prod", required: true,
					value: textOf(formatAny).atMost(4096)},
			).checked(envIsNoSecret)).atMost(50).by("name")},
		field{name: "parameters", doc: "Parameters, each a text, a list or a map.",
			value: listOf(object(
				field{name: "name", doc: "The parameter.", example: "images", required: true,
					value: textOf(formatPlugin).atMost(100)},
				field{name: "string", doc: "Its value, as text.", example: "prod",
					value: textOf(formatAny).atMost(4096)},
				field{name: "array", doc: "Its value, as a list of texts.", example: "[a, b]",
					value: listOf(textOf(formatAny).atMost(4096)).atMost(100).mayRepeat()},
				field{name: "map", doc: "Its value, as a map of texts.", example: "{a: b}",
					value: mapOf(formatPairKey, textOf(formatAny).atMost(4096))},
			).exactlyOneOf("string", "array", "map")).atMost(50).by("name")},
	)
}

func envIsNoSecret(d *decoder, into reflect.Value, at node) {
	if e := into.Addr().Interface().(*fleet.PluginEnv); secretName(e.Name) && !reference(e.Value) {
		d.at("value", func() {
			d.problem(child(at, "value"), codePlaintextSecret, "the value of "+plainName(e.Name)+
				" is in plaintext", "let the plugin read a Secret of the engine, and revoke this "+
				"one")
		})
	}
}

// patchIsPlainYAML holds a patch to the rules of the file: one document without anchors and tags.
// kustomize reads a patch that begins with "[" as JSON.
func patchIsPlainYAML(d *decoder, into reflect.Value, at node) {
	n := child(at, "patch")
	if n == nil {
		return // its file is in the repository
	}
	text := []byte(into.Addr().Interface().(*fleet.KustomizePatch).Patch)
	root, found := parse(text, true)
	switch {
	case bytes.HasPrefix(text, []byte("[")) && !json.Valid(text):
		found.add(1, 1, codeInvalidValue, "kustomize reads a text that begins with [ as JSON",
			"write a list of YAML, e.g. - {op: remove, path: /spec/replicas}, or quote all texts")
	case root != nil && root.Kind == yaml.ScalarNode:
		found.add(1, 1, codeWrongType, "a patch is a map or a list",
			"write a strategic merge patch or a JSON patch")
	}
	d.at("patch", func() {
		for _, p := range found.problems {
			place := *n
			if n.Style&yaml.LiteralStyle != 0 && p.Line > 0 {
				place.Line, place.Column = n.Line+p.Line, 1
			}
			d.problem(&place, p.Code, "in the patch: "+p.Message, p.Fix)
		}
	})
}

// revisionsFit refuses a range of versions for a Git repository, where it would select among the
// tags; and a digest for another source than an artifact, which has nothing but tags and digests.
func revisionsFit(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	check := func(revision string, of fleet.Source, source node) {
		var message, fix string
		switch {
		case revision == "":
		case of.Artifact():
			if err := fleet.CheckArtifactRevision(fleet.SampleVariables(revision)); err != nil {
				message, fix = err.Error(), "write a tag of the artifact, or sha256: and its digest"
			}
		case fleet.IsDigest(revision):
			message = "a digest is the revision of an OCI artifact alone"
			fix = "write a branch, tag, commit or version, exactly"
		case of.Chart == "" && fleet.IsVersionRange(revision):
			message = "the revision is a range of versions, of which Argo CD takes the newest"
			fix = "write a branch, tag or commit, exactly"
		}
		if message != "" {
			d.at("targetRevision", func() {
				d.problem(child(source, "targetRevision"), codeInvalidRevision,
					"targetRevision: "+message, fix)
			})
		}
	}
	if len(spec.Sources) == 0 {
		d.at("source", func() {
			check(spec.Source.TargetRevision, spec.Source, child(at, "source"))
		})
	}
	for i, s := range spec.Sources {
		d.steps = append(d.steps, step{"sources", -1}, step{"", i})
		check(s.TargetRevision, s, child(at, "sources").Content[i])
		d.steps = d.steps[:len(d.steps)-2]
	}
	for i, o := range spec.Overrides {
		d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
		if of, err := spec.OverriddenSource(&o); err == nil {
			check(o.Source.TargetRevision, spec.AllSources()[of],
				child(child(at, "overrides").Content[i], "source"))
		}
		d.steps = d.steps[:len(d.steps)-3]
	}
}

// filesAreInside refuses files that lead out of the repository: relative to a folder that a source
// or its override names.
func filesAreInside(d *decoder, into reflect.Value, at node) {
	spec := into.Addr().Interface().(*fleet.DeploymentSpec)
	check := func(folder string, h *fleet.HelmSource, k *fleet.KustomizeSource, source node) {
		report := func(files []string, of func(string) error, where ...string) {
			for i, file := range files {
				err := of(file)
				if err == nil && !strings.HasPrefix(file, "$") {
					err = fleet.CheckBelow(fleet.SampleVariables(folder),
						fleet.SampleVariables(file))
				}
				if err == nil {
					continue
				}
				n := source
				before := len(d.steps)
				for _, name := range where {
					n = child(n, name)
					d.steps = append(d.steps, step{name, -1})
				}
				d.steps = append(d.steps, step{"", i})
				d.problem(n.Content[i], codeInvalidPath, err.Error(),
					"write a path inside the repository")
				d.steps = d.steps[:before]
			}
		}
		any := func(string) error { return nil }
		if h != nil {
			report(h.ValueFiles, any, "helm", "valueFiles")
			var paths []string
			for _, p := range h.FileParameters {
				paths = append(paths, p.Path)
			}
			report(paths, any, "helm", "fileParameters")
		}
		if k != nil && folder != "" { // chartIsHelm reports kustomize with a chart
			report(k.Components, fleet.CheckComponent, "kustomize", "components")
		}
	}
	if len(spec.Sources) == 0 {
		d.at("source", func() {
			check(spec.Source.Path, spec.Source.Helm, spec.Source.Kustomize, child(at, "source"))
		})
	}
	for i, s := range spec.Sources {
		d.steps = append(d.steps, step{"sources", -1}, step{"", i})
		check(s.Path, s.Helm, s.Kustomize, child(at, "sources").Content[i])
		d.steps = d.steps[:len(d.steps)-2]
	}
	for i, o := range spec.Overrides {
		d.steps = append(d.steps, step{"overrides", -1}, step{"", i}, step{"source", -1})
		n := child(child(at, "overrides").Content[i], "source")
		if of, err := spec.OverriddenSource(&o); err == nil {
			check(cmp.Or(o.Source.Path, spec.AllSources()[of].Path), o.Source.Helm,
				o.Source.Kustomize, n)
		}
		d.steps = d.steps[:len(d.steps)-3]
	}
}

// repositoryFits refuses a repository that cannot hold what the source names: a chart over ssh, a
// folder of Git in a registry or at the root of a host.
func repositoryFits(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Source)
	u, err := fleet.ParseRepoURL(s.RepoURL)
	var message, fix string
	switch {
	case err != nil: // the format has reported it
	case s.Chart != "" && u.Artifact():
		message = "an OCI artifact has no chart"
		fix = "write the registry of a chart without oci://; or add the chart's name to the URL, " +
			"and path: . instead of chart"
	case s.Chart != "" && !u.Helm():
		message, fix = "a Helm repository is read over https", "write https://..."
	case u.Artifact():
	case s.Chart == "" && u.OCI():
		message, fix = "without a scheme, this is a registry of OCI charts",
			"add chart; or write oci:// before an OCI artifact, https:// or ssh:// before a Git "+
				"repository"
	case s.Chart == "" && !u.Git():
		message, fix = "the URL names no repository on the host",
			"add the path of the repository; only a chart's repository may be the root of a host"
	}
	if message != "" {
		d.at("repoURL", func() {
			d.problem(child(at, "repoURL"), codeInvalidURL, message, fix)
		})
	}
}
