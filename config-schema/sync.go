package configschema

import (
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
)

func allowances() value {
	return object(
		field{
			name: "replace",
			doc: "Whether deployments may set `sync.replace`, which deletes and recreates what " +
				"cannot be changed.", example: "true", fallback: "false", value: boolean()},
		field{
			name: "namespaceMetadata",
			doc: "Keys that deployments may set in `sync.managedNamespaceMetadata`. Admission, " +
				"quotas and other tenants' NetworkPolicies select namespaces by them.",
			example: "[pod-security.kubernetes.io/enforce]",
			value:   listOf(textOf(formatNamespaceKeyGrant)).atMost(100)},
	)
}

func syncSettings() value {
	option := func(name, doc string) field {
		return field{name: name, doc: doc, example: "true",
			fallback: "Fleet.defaults, else false", value: boolean()}
	}
	return object(
		field{
			name:    "mode",
			doc:     "`automated` syncs at every change of the source, `manual` only by a SyncRun.",
			example: "automated", fallback: "Fleet.defaults, else automated",
			value: wordOf(string(fleet.SyncAutomated), string(fleet.SyncManual))},
		field{name: "prune", doc: "Whether resources that left the source are removed.",
			example: "true", fallback: "Fleet.defaults, else true", value: boolean()},
		field{name: "selfHeal", doc: "Whether changes made on the cluster are put back.",
			example: "true", fallback: "Fleet.defaults, else true", value: boolean()},
		option("createNamespace", "Whether the namespace is made when it is not there."),
		option("allowEmpty", "Whether an automated sync may prune the last resource."),
		option("serverSideApply", "Apply on the API server, with field ownership."),
		option("applyOutOfSyncOnly", "Apply only the resources that differ."),
		option("pruneLast", "Prune after everything else is applied and healthy."),
		field{
			name: "prunePropagation",
			doc:  "Propagation of the deletion of pruned resources.", example: "foreground",
			fallback: "Fleet.defaults, else foreground",
			value: wordOf(string(fleet.PropagateForeground), string(fleet.PropagateBackground),
				string(fleet.PropagateOrphan))},
		option("respectIgnoreDifferences",
			"Whether a sync keeps the live value of ignored differences."),
		field{name: "validate", doc: "Whether manifests are validated before they are applied.",
			example: "false", fallback: "Fleet.defaults, else true", value: boolean()},
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
