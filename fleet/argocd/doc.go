// Package argocd implements engine.Engine for one Argo CD instance, reached by push: it renders,
// applies and deletes desired objects, requests syncs and reports the state of Applications. It is
// the only package that imports Argo CD's types.
//
// Rules of this package:
//   - Constructive rendering: every field that Argo CD reads is written here from a typed value.
//     No input of a tenant becomes a map, an annotation or a pattern. A pattern character of Argo
//     CD is rejected even though earlier checks have rejected it.
//   - One request for a changed object, none for an unchanged one. The watch cache decides,
//     without a GET before and without a dry run.
//   - Every write has preconditions: an update carries UID and resourceVersion, a creation
//     requires that no object exists, and a deletion carries both after an uncached read. The
//     lease's epoch is written to the object, and a higher one is respected.
//   - Only a complete, successful read proves absence. A 403, a missing CRD, an expired page or a
//     silent watch means "unknown".
//   - Applications are created without a finalizer. The cascade finalizer is set only during a
//     deletion that was planned and allowed.
//   - Empty fields are never rendered: an empty list makes every identical apply a write.
//   - Credentials exist only in the request that needs them: not in the cache, an error or a log.
//
// Supported are Argo CD 2.14 and 3.x with resource tracking by annotation and a unique
// installationID per instance; docs/operations.md lists the versions.
package argocd
