// Package agent defines the wire protocol of pull mode: the messages between an agent and the hub,
// the proof of each request, and the sealing of credentials. Package hub is the control plane's
// side, package edge the cluster's.
//
//	POST /api/v1/agents/join                       one-time token and public keys -> identity
//	POST /api/v1/agents/token                      assertion (RFC 7523) -> access token (RFC 9449)
//	POST /api/v1/agents/keys                       new keys for old ones (rotation)
//	GET  /api/v1/cluster/self/applications         a snapshot: all rows, epoch, cursor, digest
//	GET  /api/v1/cluster/self/applications/stream  changes after a cursor (text/event-stream)
//	POST /api/v1/cluster/self/status               numbered reports: applied and observed state
//	POST /api/v1/cluster/self/manifests            the files of a version of Argo CD
//	POST /api/v1/cluster/self/comparisons          the next Applications to compare under it
//	POST /api/v1/cluster/self/inspections          parts of answers to reads of resources
//	GET  /api/v1/cluster/probe                     a short stream that reveals buffering proxies
//
// Rules of this package:
//   - The credential alone identifies the caller: no path, query or body names a cluster.
//   - Every request carries a proof: the key's signature over its method, its path, the access
//     token and its body. An intercepted token or request is therefore useless, and TLS may
//     terminate at any proxy.
//   - Numbers (epoch, sequence, cursor) define the order, never clocks. An agent takes the time
//     from the hub.
//   - Unknown input is left alone and reported: an unknown operation, state or field is never
//     read as a deletion.
//   - Only tombstones delete: an object that is missing from a snapshot is an orphan, which is
//     reported and left alone.
package agent
