// Package policy holds declarations against the platform's policies: rules in CEL, the Common
// Expression Language.
//
//	Check   says what is wrong with a policy, at its place, before anything is judged by it
//	Judge   says whether a declaration keeps a policy, and in the policy's words why not
//
// What a rule sees (fleet.Subject):
//
//	declaration    the file as it is written: kind, metadata.name, metadata.labels, spec
//	tenant         the Tenant that it belongs to: name, labels, owners, quota, repositories, placement, clusterResources
//	environments   of a deployment: those that it reaches, each with name, labels, cluster, namespaces, clusterResources, region
//	applications   of a deployment: what it is in each of them, every override and default resolved: environment, namespace, source, sync,
//	               deletionPolicy
//	path           of the file
//
// Rules of this package:
//   - the only importer of cel-go;
//   - a rule is compiled against the types of the kinds that it judges, so that a misspelt field is found when the policy is written;
//   - a field that is left out reads as "", false, 0, [] or an object of such fields, and a label that is not there as "": has() tells them
//     apart. A rule needs no guard against what is optional;
//   - pure: the same policy and subject give the same answer. There is no clock and no order of maps;
//   - a rule's cost is bounded twice: what it may cost at worst when it is compiled, what it does cost when it judges;
//   - nothing that a policy or a declaration says makes it panic.
//
// cel-go's AST, its checker's and its run-time's costs are described at
// https://github.com/google/cel-spec and in its package checker.
package policy
