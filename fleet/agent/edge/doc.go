// Package edge is the agent's side of pull mode: what a process on a cluster behind a firewall
// needs to be that cluster's own engine worker. It holds the identity, the connection to the hub,
// the rows as they were last heard, what is still to be reported, a limit on deletions that is the
// cluster's own, and what an admin applies and checks there.
//
//	Keeper    the keys and the agent's ID, in one Secret on the cluster
//	Client    requests to the hub, each proven by the key
//	Follower  a complete snapshot, then the stream; answers the worker from memory
//	Outbox    what was done and seen, until the hub has taken it
//	Cap       an engine that deletes no more than the cluster's admin allows
//
// Rules of this package:
//   - HTTPS only, and no switch that turns verification off (CVE-2025-23390 is what such a switch leads to);
//   - keys are stored before anything is asked for with them, so that a crash at any step ends in one identity;
//   - before the first complete snapshot every read is an error, never empty; what is cut, stale, unsound or not understood changes nothing;
//   - an outage changes nothing: the last good state is kept in force, and reports wait in memory, one per object;
//   - nothing is sent while nothing changes;
//   - what the hub says is checked as a stranger's: sizes, hashes, namespaces, and how much it has deleted here.
package edge
