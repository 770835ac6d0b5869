package configschema

import (
	"fmt"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/jq"
)

func allowances() value {
	return object(
		field{
			name: "replace",
			doc: "Whether deployments may set `sync.replace`, which deletes and recreates what " +
				"cannot be changed.", example: "true", fallback: "false", value: boolean()},
		field{
			name: "adopt",
			doc: "Whether deployments may take over existing Applications of their engine " +
				"(`adopt`).", example: "true", fallback: "false", value: boolean()},
		field{
			name: "namespaceMetadata",
			doc: "Keys that deployments may set in `sync.managedNamespaceMetadata`. Admission, " +
				"quotas and other tenants' NetworkPolicies select namespaces by them.",
			example: "[pod-security.kubernetes.io/enforce]",
			value:   listOf(textOf(formatNamespaceKeyGrant)).atMost(100)},
		field{
			name: "versionRanges",
			doc: "Whether targetRevision of charts may be a range of versions, such as `^1.2`. " +
				"Argo CD then deploys a new version without a commit: no plan shows it, and no " +
				"review sees it.", example: "true", fallback: "false", value: boolean()},
		field{
			name: "kustomizeVersions",
			doc: "Versions that `kustomize.version` of deployments may name: those that the " +
				"engines' Argo CD has beside its own.", example: "[v5.4.3]",
			value: listOf(textOf(formatKustomizeVersion)).atMost(20)},
		field{
			name: "plugins",
			doc: "Config management plugins that `plugin.name` of deployments may name. A plugin " +
				"runs programs in the engine's repo-server, on the repository's files.",
			example: "[cdk8s-v1.0]", value: listOf(textOf(formatPlugin).atMost(100)).atMost(20)},
	)
}

func syncSettings() value {
	option := func(name, doc string) field {
		return field{name: name, doc: doc, example: "true",
			fallback: inherited + "false", value: boolean()}
	}
	return object(
		field{
			name:    "mode",
			doc:     "`automated` syncs at every change of the source, `manual` only by a SyncRun.",
			example: "automated", fallback: inherited + "automated",
			value: wordOf(string(fleet.SyncAutomated), string(fleet.SyncManual))},
		field{name: "prune", doc: "Whether resources that left the source are removed.",
			example: "true", fallback: inherited + "true", value: boolean()},
		field{name: "selfHeal", doc: "Whether changes made on the cluster are put back.",
			example: "true", fallback: inherited + "true", value: boolean()},
		option("createNamespace", "Whether Argo CD creates the namespace if it is missing. The "+
			"environment's credential needs get and create on namespaces."),
		option("allowEmpty", "Whether an automated sync may prune the last resource."),
		option("serverSideApply", "Apply on the API server, with field ownership."),
		option("applyOutOfSyncOnly", "Apply only the resources that differ."),
		option("pruneLast", "Prune after everything else is applied and healthy."),
		field{
			name: "prunePropagation",
			doc:  "Propagation of the deletion of pruned resources.", example: "foreground",
			fallback: inherited + "foreground",
			value: wordOf(string(fleet.PropagateForeground), string(fleet.PropagateBackground),
				string(fleet.PropagateOrphan))},
		option("respectIgnoreDifferences",
			"Whether a sync keeps the live value of ignored differences."),
		field{name: "validate", doc: "Whether manifests are validated before they are applied.",
			example: "false", fallback: inherited + "true", value: boolean()},
		option("replace",
			"Replace resources, and recreate those that cannot be changed. The Tenant allows it "+
				"(`allow.replace`)."),
		option("skipDryRunOnMissingResource",
			"Skip the dry run of resources whose kind the cluster does not have yet."),
		option("failOnSharedResource",
			"Fail if a resource belongs to another Application already."),
		field{
			name:    "retry",
			doc:     "Repeat failed automated syncs. Left out: Argo CD's default.",
			example: "{limit: 5, backoff: {duration: 5s, factor: 2, maxDuration: 3m}}",
			value: object(
				field{name: "limit", doc: "Repetitions; 0: none, -1: without end.", example: "5",
					required: true, value: integer(fleet.RetryForever, fleet.MaxRetries)},
				field{name: "backoff", doc: "Time between repetitions.", value: object(
					backoffDuration("duration", "Before the first.", "5s"),
					field{name: "factor", doc: "Multiplies it after each.", example: "2",
						fallback: "2", value: integer(1, fleet.MaxFactor)},
					backoffDuration("maxDuration", "At most.", "3m"),
				)},
			)},
		field{
			name: "managedNamespaceMetadata",
			doc: "Metadata of the namespace, with `createNamespace`. The Tenant grants each key " +
				"(`allow.namespaceMetadata`).",
			example: "{labels: {pod-security.kubernetes.io/enforce: restricted}}",
			value: object(
				field{name: "labels", doc: "Labels.",
					example: "{pod-security.kubernetes.io/enforce: restricted}",
					value:   mapOf(formatNamespaceKey, textOf(formatLabel).atMost(63))},
				field{name: "annotations", doc: "Annotations.",
					example: "{example.com/cost-center: \"4711\"}",
					value:   mapOf(formatNamespaceKey, textOf(formatAny).atMost(1024))},
			)},
	).checked(namespaceIsCreated)
}

func backoffDuration(name, doc, fallback string) field {
	return field{name: name, doc: doc + " A duration from 1s to 24h.", example: fallback,
		fallback: fallback, value: value{shape: shapeDuration, least: int64(time.Second),
			most: int64(fleet.MaxBackoff)}}
}

func ignoreDifferences() field {
	return field{
		name: "ignoreDifferences",
		doc: "Fields of resources whose difference from the source is ignored. With " +
			"`sync.respectIgnoreDifferences` a sync keeps their live values too.",
		example: "[{group: apps, kind: Deployment, jsonPointers: [/spec/replicas]}]",
		value: listOf(object(
			field{name: "group", doc: "API group. Left out: the core group.", example: "apps",
				value: textOf(formatIgnoredGroup).mayBeEmpty()},
			field{name: "kind", doc: "Kind.", example: "Deployment", required: true,
				value: textOf(formatIgnoredKind)},
			field{name: "name", doc: "Left out: every name.", example: "checkout",
				value: textOf(formatResourceName)},
			field{name: "namespace", doc: "Left out: every namespace.", example: "checkout",
				value: textOf(formatResourceName)},
			field{name: "jsonPointers", doc: "JSON pointers (RFC 6901).",
				example: "[/spec/replicas]",
				value:   listOf(textOf(formatJSONPointer).atMost(512)).atMost(50)},
			field{
				name: "jqPathExpressions",
				doc: "jq path expressions. Argo CD evaluates them in a controller that other " +
					"tenants share, so that only paths and conditions are allowed whose cost the " +
					"size of the resource bounds.",
				example: `['.spec.template.spec.containers[] | select(.name == "proxy")']`,
				value:   listOf(textOf(formatJQPath).atMost(jq.MaxText)).atMost(20)},
			field{
				name: "managedFieldsManagers", doc: "Field managers whose fields are ignored.",
				example: "[kube-controller-manager]",
				value:   listOf(textOf(formatFieldManager).atMost(128)).atMost(20)},
		).checked(somethingIsIgnored)).atMost(50).checked(fewExpressions),
	}
}

func somethingIsIgnored(d *decoder, into reflect.Value, at node) {
	i := into.Addr().Interface().(*fleet.IgnoreDifference)
	if len(i.JSONPointers)+len(i.JQPathExpressions)+len(i.ManagedFieldsManagers) == 0 {
		d.problem(at, codeMissingField, "the entry names no field to ignore",
			"add jsonPointers, jqPathExpressions or managedFieldsManagers")
	}
}

// maxExpressions bounds the evaluations for each resource of an Application.
const maxExpressions = 50

func fewExpressions(d *decoder, into reflect.Value, at node) {
	n := 0
	for _, i := range into.Interface().([]fleet.IgnoreDifference) {
		n += len(i.JQPathExpressions)
	}
	if n > maxExpressions {
		d.problem(at, codeOutOfRange, fmt.Sprintf(
			"ignoreDifferences has %d jq path expressions; at most %d are allowed", n,
			maxExpressions), "use jsonPointers")
	}
}

// namespaceIsCreated refuses metadata of a namespace that Argo CD does not create: it would be
// ignored.
func namespaceIsCreated(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.SyncSettings)
	if s.ManagedNamespaceMetadata == nil || s.CreateNamespace != nil && *s.CreateNamespace {
		return
	}
	d.at("managedNamespaceMetadata", func() {
		d.problem(child(at, "managedNamespaceMetadata"), codeExclusive,
			"managedNamespaceMetadata has no effect without createNamespace",
			"write createNamespace: true beside it")
	})
}
