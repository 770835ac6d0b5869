// Package stack starts the real parts that Argosy works with, as child
// processes of the caller: Kubernetes clusters, Argo CD instances, PostgreSQL
// and a Git server. Tests, benchmarks and the demo share it.
//
// Its rules:
//
//   - Every part is the real thing. The binaries are built or found by
//     scripts/parts.sh; a missing one is an error that says which command
//     makes it.
//   - A Start function returns when the part is ready for use, or with an error
//     that holds the end of the part's log and names the log file.
//   - Stop ends a part and everything that it started, waits for that, and
//     removes the folders that this package made. A part whose parent is killed
//     ends by itself (on Linux, by its parent-death signal), and what it left in
//     the temporary folder goes with the next start.
//   - Parts listen on loopback only, on ports that were free, so that any number
//     of stacks run side by side.
//   - The package knows nothing of testing and nothing of Argosy: it may be
//     imported by anything outside the product.
package stack
