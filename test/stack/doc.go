// Package stack starts the real parts that Argosy works with, as child processes of the caller:
// Kubernetes clusters, Argo CD instances, PostgreSQL and a Git server. Tests, benchmarks and the
// demo share it.
//
// Its rules:
//
//   - Every part is the real thing. scripts/parts.sh builds or finds the binaries; the error for a
//     missing one names the command that makes it.
//   - A Start function returns when the part is ready for use, or with an error that holds the end
//     of the part's log and names the log file.
//   - Stop ends a part and everything that it started, waits for that, and removes the folders that
//     this package made. A part whose parent is killed ends by itself (on Linux, by its
//     parent-death signal), and the next start removes its temporary folders.
//   - Parts listen on loopback only, on ports that were free, so that any number of stacks run side
//     by side.
//   - The package knows nothing of testing and nothing of Argosy: any package outside the product
//     may import it.
package stack
