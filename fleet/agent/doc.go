// Package agent is pull mode's wire protocol: what an agent and the hub say to each other, how each
// request is proven, and how a credential travels sealed. The hub's side of it is in hub, the
// agent's own in edge.
//
//	POST /api/v1/agents/join                       one-time token and public keys -> an identity bound to the keys
//	POST /api/v1/agents/token                      client assertion (RFC 7523) -> access token bound to the keys (RFC 9449)
//	POST /api/v1/agents/keys                       new keys for old (rotation)
//	GET  /api/v1/cluster/self/applications         a complete snapshot: rows, epoch, cursor, digest
//	GET  /api/v1/cluster/self/applications/stream  changes since a cursor, as they happen (text/event-stream)
//	POST /api/v1/cluster/self/status               what was done and what the cluster shows, numbered
//	GET  /api/v1/cluster/probe                     a stream of a second, for whoever asks: whether something on the way holds streams back
//
// Rules of this package:
//   - who asks is told by the credential alone: no path, query or body names a cluster;
//   - every request carries a proof by the key over its method, its path, the access token and its body, so that neither a token nor a
//     recorded request is of use to who sees it; TLS may end anywhere on the way;
//   - order is told by numbers (epoch, sequence, cursor), never by clocks; an agent takes the time from the hub;
//   - what is not understood is left alone and said: an unknown operation, state or field is never read as a deletion;
//   - only tombstones delete: what a snapshot leaves out is a stray, which is reported and left alone.
package agent
