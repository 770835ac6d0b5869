package configschema

import (
	"reflect"
	"slices"

	"argosy.dev/argosy/fleet"
)

// kinds are the kinds of this version, in the order in which people meet them.
var (
	kindOrder = []*kind{kindFleet, kindEngine, kindPool, kindCluster, kindTenant, kindPolicy,
		kindAccess, kindEnvironment,
		kindDeployment, kindSet, kindDefaults, kindNotifications, kindCredential,
		kindSyncRun}
	kinds = func() map[fleet.Kind]*kind {
		m := make(map[fleet.Kind]*kind, len(kindOrder))
		for _, k := range kindOrder {
			m[k.name] = k
		}
		return m
	}()
	kindNames = func() []string {
		var names []string
		for _, k := range kindOrder {
			names = append(names, string(k.name))
		}
		return slices.Clip(names)
	}()
)

// laterKinds belong to the contract, and act in a later version.
var laterKinds = map[string]bool{"Rollout": true}

var neverTop = map[string]word{
	"data": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
	"stringData": {codePlaintextSecret, "no declaration holds data of a Secret",
		"put it into a Secret, and name that in credentialsRef"},
}

// neverAnywhere are fields of Argo CD and Kubernetes that people try. Each would let a declaration
// control a setting of Argosy or of the platform (CVE-2024-32476, CVE-2026-42880): none is passed
// on.
var neverAnywhere = map[string]word{
	"annotations": notAllowed(
		"declarations have no annotations: Argo CD and its image updater act on them",
		"use labels to select by; notifications, watchPaths, links, wave and sync.diff are "+
			"fields of "+
			"a deployment"),
	"finalizers": notAllowed(
		"finalizers are Argosy's to set, and only in a deletion that was planned",
		"use deletionPolicy"),
	"ignoreDifferences": notAllowed("ignoreDifferences is a field of a deployment's spec",
		"write it below spec"),
	"info":          notAllowed("info is a field of a deployment's spec", "write it below spec"),
	"managedFields": notAllowed("the field is the API server's", "remove it"),
	"operation": notAllowed("a sync is asked for with a SyncRun",
		"write tenants/<tenant>/syncs/<name>.yaml"),
	"ownerReferences": notAllowed("the field is Kubernetes' own", "remove it"),
	"plugin": notAllowed("a config management plugin is part of a source",
		"write source: {plugin: {name: ...}}; the platform grants it in allow.plugins of the Tenant"),
	"project": notAllowed(
		"the AppProject follows from the tenant alone; no field steers it", "remove it"),
	"revisionHistoryLimit": notAllowed("revisionHistoryLimit is a field of a deployment's spec",
		"write it below spec"),
	"status": notAllowed("the status is not declared: see argosy get", "remove it"),
	"syncOptions": notAllowed(
		"each sync option is a field of sync",
		"write sync: {createNamespace: true, serverSideApply: true}; Force, Prune and Delete are "+
			"annotations of single resources"),
	"syncPolicy": notAllowed("the sync policy is written as sync",
		"use sync: {mode: automated, prune: true, selfHeal: true}"),
	"password": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"token": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"bearerToken": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
	"sshPrivateKey": {codePlaintextSecret, "no field holds a secret in clear",
		"revoke it, put it into a Secret, and name that in credentialsRef"},
}

var neverMetadata = map[string]word{
	"namespace": notAllowed("the tenant follows from the folder", "remove it"),
	"uid":       notAllowed("the field is the API server's", "remove it"),
}

const exampleCA = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJuRENDQVVHZ0F3SUJBZ0lVRElmNU1LYmdTQTJqVXRLRFgxTzJudjlId0JFd0NnWUlLb1pJemowRUF3SXcKSWpFZ01CNEdBMVVFQXd3WFlYQnBMbVYxTFRFdVpYaGhiWEJzWlM1amIyMGdRMEV3SUJjTk1qWXhNVEl4TURRMApOVEE1V2hnUE1qRXlOakV3TWpnd05EUTFNRGxhTUNJeElEQWVCZ05WQkFNTUYyRndhUzVsZFMweExtVjRZVzF3CmJHVXVZMjl0SUVOQk1Ga3dFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRTdGNkRrSFRZaENaazJjUysKbDNEdmNJejV5c0RKcFhVSWVsblVBSFlDMDdLNndDOGRXYlMxdFZPVysrWFZ2U1ZBRlI1RldWM3lEVGZUam1DOQpQQmNLRDZOVE1GRXdIUVlEVlIwT0JCWUVGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUI4R0ExVWRJd1FZCk1CYUFGQk96ZWJScWx5cGtHRXM0MFVWYWVhNTRxRkRsTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3Q2dZSUtvWkkKemowRUF3SURTUUF3UmdJaEFPaC9manpadElqWG90MnJLMlVIWUM0MDI1N3JVc3VLMWk3VGgvVjA1ZjVzQWlFQQpscnFMQm1iWW4wZEZQWlE5bGRtSGRwM3draTFaU2VkaEcvK0hyQkpxY1VBPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="

const joinsByToken = "remove it: the agent makes its own key, and joins with a one-time token of argosy agent token create"

// inherited begins the default of a field that a deployment inherits.
const inherited = "TenantDefaults, else Fleet.defaults, else "

func selector(doc, example string) value {
	return object(
		field{name: "matchLabels", doc: doc, example: example, value: value{shape: shapeLabels}},
		field{
			name: "matchExpressions",
			doc: "Expressions as Kubernetes has them; all must match, and every label of " +
				"`matchLabels` too. `NotIn` and `DoesNotExist` also match where the label is " +
				"missing.",
			example: "[{key: tier, operator: In, values: [prod, staging]}]",
			value: listOf(object(
				field{name: "key", doc: "Key of the label.", example: "tier", required: true,
					value: textOf(formatLabelKey)},
				field{name: "operator", doc: "How the label is compared.", example: "In",
					required: true, value: wordOf(string(fleet.SelectorIn),
						string(fleet.SelectorNotIn), string(fleet.SelectorExists),
						string(fleet.SelectorDoesNotExist))},
				field{
					name:    "values",
					doc:     "Exact values, for `In` and `NotIn` alone.",
					example: "[prod, staging]",
					value:   listOf(textOf(formatLabel)).atMost(100)},
			).checked(valuesFitOperator)).atMost(20)},
	)
}

// valuesFitOperator refuses In and NotIn without values, and the other operators with them.
func valuesFitOperator(d *decoder, into reflect.Value, at node) {
	r := into.Addr().Interface().(*fleet.LabelRequirement)
	compares := r.Operator == fleet.SelectorIn || r.Operator == fleet.SelectorNotIn
	switch n := child(at, "values"); {
	case compares && n == nil:
		d.problem(at, codeMissingField, string(r.Operator)+" compares with values",
			"add values: [...]")
	case !compares && n != nil:
		d.at("values", func() {
			d.problem(n, codeExclusive, string(r.Operator)+" has no values",
				"remove values, or use In or NotIn")
		})
	}
}

func notAllowed(message, fix string) word { return word{codeNotAllowed, message, fix} }

// maxRelease is the most characters of a Helm release's name.
const maxRelease = 53
