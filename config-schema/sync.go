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
			name: "artifacts",
			doc: "OCI artifacts that deployments may name on engines that other tenants use too: " +
				"an artifact, or with a trailing slash everything below it. A file " +
				"`.argocd-source.yaml` of an artifact can run any plugin of the engine, so name " +
				"those alone that only the platform pushes. `repositories` grants them too. A " +
				"tenant with `placement: {alone: true}` needs no entry.",
			example: `["oci://registry.example.com/platform/"]`,
			value:   listOf(textOf(formatArtifactGrant).atMost(256)).atMost(100)},
		field{
			name: "versionRanges",
			doc: "Whether targetRevision of charts and OCI artifacts may be a range of versions, " +
				"such as `^1.2`. Argo CD then deploys a new version without a commit: no plan " +
				"shows it, and no review sees it.",
			example: "true", fallback: "false", value: boolean()},
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
		field{
			name: "notifications",
			doc: "Services of the engines' notifications that `notifications` of deployments may " +
				"use: with the platform's account of the service, in the texts of its templates.",
			value: listOf(object(
				field{name: "service", doc: "The service.", example: "slack", required: true,
					value: textOf(formatNotification).atMost(50)},
				field{
					name: "recipients",
					doc: "The recipients, exactly. Left out: any, such as every channel or address " +
						"that the account of the service reaches.",
					example: "[acme-alerts]",
					value:   listOf(textOf(formatRecipient).atMost(253)).atMost(100)},
			)).atMost(fleet.MaxNotifications).by("service")},
	)
}

// notifications are the subscriptions of a deployment.
func notifications() field {
	return field{
		name: "notifications",
		doc: "Recipients of notifications about the Applications, by the engines' " +
			"argocd-notifications. The Tenant allows the service (`allow.notifications`).",
		value: listOf(object(
			field{
				name: "trigger",
				doc: "The trigger, of those that the platform has. Left out: the default " +
					"triggers of the service.",
				example: "on-sync-failed", value: textOf(formatNotification).atMost(50)},
			field{name: "service", doc: "The service.", example: "slack", required: true,
				value: textOf(formatNotification).atMost(50)},
			field{
				name: "recipients",
				doc: "Recipients, as the service takes them: channels, addresses. A service " +
					"such as a webhook has none.", example: "[acme-alerts]",
				value: listOf(textOf(formatRecipient).atMost(253)).atMost(fleet.MaxRecipients)},
		)).atMost(fleet.MaxNotifications).checked(subscriptionsDiffer)}
}

// subscriptionsDiffer runs on the list: trigger and service together are the key of an entry, and
// of an annotation.
func subscriptionsDiffer(d *decoder, into reflect.Value, at node) {
	first := map[string]bool{}
	for i, n := range into.Interface().([]fleet.Notification) {
		if err := n.Check(); err == nil && !first[n.AnnotationName()] {
			first[n.AnnotationName()] = true
			continue
		} else if err != nil && len(n.AnnotationName()) <= 63 {
			continue // the format of a field has reported it
		}
		d.steps = append(d.steps, step{"", i})
		if first[n.AnnotationName()] {
			d.problem(at.Content[i], codeDuplicateEntry,
				"trigger and service are named twice", "write all recipients into one entry")
		} else {
			d.problem(at.Content[i], codeInvalidValue, n.Check().Error(), "choose shorter names")
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
}

var (
	formatNotification = &format{
		code:    codeInvalidValue,
		what:    "letters, digits, '-' and '_'",
		pattern: `^[A-Za-z0-9_-]+$`, check: fleet.CheckNotificationWord}
	formatRecipient = &format{
		code: codeInvalidValue, what: "a recipient without blanks and ';'",
		pattern: `^[!-:<-~]+$`, check: fleet.CheckRecipient}
	formatWatchPath = &format{
		code: codeInvalidPath,
		what: "a path relative to the source's, `.` for that itself, or from the root of the " +
			"repository with a slash at the beginning; no `..` and no pattern",
		pattern: `^[A-Za-z0-9._@+=,/-]+$`, check: fleet.CheckWatchPath}
)

func watchPaths() field {
	return field{
		name: "watchPaths",
		doc: "Paths of the repository. Argo CD renders a commit again only if it changes a file " +
			"below one of them: relative to the source's path, or from the root of the " +
			"repository with a leading slash. Name everything that is rendered: value files, " +
			"bases, components. Left out: every commit.",
		example: "[., /shared/base]",
		value:   listOf(textOf(formatWatchPath).atMost(512)).atMost(fleet.MaxWatchPaths)}
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
			name: "diff",
			doc: "Who computes the differences: `client`, Argo CD; `server`, the API server of the " +
				"environment by a dry run; `serverWithWebhooks`, the same with the changes of its " +
				"mutating webhooks.", example: "server",
			fallback: inherited + "the engine's setting",
			value: wordOf(string(fleet.DiffClient), string(fleet.DiffServer),
				string(fleet.DiffServerWithWebhooks))},
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
