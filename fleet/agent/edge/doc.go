// Package edge is the cluster's side of pull mode: the parts of a process that runs as the engine
// worker of a cluster behind a firewall. It holds the identity, the connection to the hub, the last
// known rows, the pending reports, the cluster's own limit on deletions, and the manifest and the
// checks for the cluster's admin.
//
//	IdentityStore    the keys and the agent's ID, in one Secret on the cluster
//	Client           requests to the hub, each signed with the key
//	Follower         a complete snapshot, then the stream; serves the worker from memory
//	Outbox           results and observations until the hub has accepted them
//	DeletionLimiter  an engine that deletes no more than the cluster's admin allows
//
// Rules of this package:
//   - HTTPS only, and no option disables verification (see CVE-2025-23390).
//   - Keys are stored before they are used, so that a crash at any step ends in one identity.
//   - Before the first complete snapshot every read fails and never returns an empty result.
//     Truncated, stale, invalid or unknown data changes nothing.
//   - An outage changes nothing: the last good state stays in force, and reports wait in memory,
//     one per object.
//   - Nothing is sent while nothing changes.
//   - The hub's data is untrusted: sizes, hashes, namespaces and the number of deletions are
//     checked.
package edge
