// Package policy evaluates the platform's policies over declarations: rules in CEL, the Common
// Expression Language.
//
//	Check   finds the faults of a policy, with positions, before its first use
//	Judge   returns whether a declaration satisfies a policy, and otherwise the policy's message
//
// Variables of a rule (fleet.Subject):
//
//	declaration    the file as it is written: kind, metadata.name, metadata.labels, spec
//	tenant         the declaration's Tenant: name, labels, owners, quota, repositories, placement,
//	               clusterResources
//	environments   of a deployment: its environments, each with name, labels, cluster, namespaces,
//	               clusterResources, region
//	applications   of a deployment: its application in each environment, with every override and
//	               default resolved: environment, namespace, source, sync, deletionPolicy
//	path           of the file
//
// Rules of this package:
//   - the only importer of cel-go;
//   - a rule is compiled against the types of its kinds, so that a misspelt field is reported when
//     the policy is written;
//   - an omitted field reads as "", false, 0, [] or an object of such fields, and a missing label
//     as "": has() distinguishes them. A rule needs no guard for optional fields;
//   - pure: the same policy and subject give the same answer. There is no clock and no order of
//     maps;
//   - a rule's cost is bounded twice: in the worst case when it is compiled, and in fact when it is
//     evaluated;
//   - no content of a policy or a declaration causes a panic.
//
// cel-go's AST, its checker's and its run-time's costs are described at
// https://github.com/google/cel-spec and in its package checker.
package policy
