// Package argocd is one Argo CD instance as an engine, reached by push: it renders desired objects,
// applies them, removes them, asks for syncs and observes what Argo CD makes of them. It is the
// only package that knows Argo CD's types.
//
// Rules of this package:
//   - Constructive: every field that Argo CD reads is written here from a typed value. Nothing that a tenant wrote arrives as a map, an
//     annotation or a pattern; a character that Argo CD takes for a pattern is refused even though earlier walls have refused it.
//   - One request for a changed object, none for an unchanged one. The watch cache decides; there is no GET before and no dry run.
//   - Every write names what it knows: an update carries UID and resourceVersion, a creation demands that nothing is there, a deletion
//     carries both preconditions after an uncached read. The epoch of the lease is written with the object, and a higher one is obeyed.
//   - Absence is a complete, successful read. A 403, a missing CRD, an expired page or a silent watch means "unknown".
//   - Applications are made without a finalizer. The cascade finalizer is set only within a deletion that was planned and allowed.
//   - No empty field is ever rendered: an empty list in an apply makes every identical apply a write.
//   - Credentials pass through to the one request that needs them and are kept nowhere: not in the cache, an error or a log.
//
// Supported are Argo CD 2.14 and 3.x with resource tracking by annotation and an installationID of
// its own per instance.
package argocd
