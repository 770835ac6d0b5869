// Package hub is pull mode's side of the control plane: it swaps one-time tokens for identities,
// gives access tokens for assertions, sends each agent the rows of its engine and nothing else, and
// takes what it reports.
//
//	Hub        answers the paths of the protocol; made once for a replica
//	feed       one look at the store for all open streams; wakes those that are concerned
//	admission  lets what costs the database through at a bounded rate, first come, first served
//	Store      what is kept, declared here, implemented by the mirror
//
// Rules of this package:
//   - who asks is told by the access token and the key alone; path, query and body name no cluster, and a header that stands twice counts
//     for nothing;
//   - who cannot prove who it is learns one thing: that the proof does not hold. What has become of an identity is told to the holder
//     of its key;
//   - an idle stream costs no query; a slow one costs itself only, for each message has a deadline;
//   - what an agent says is a stranger's: its size is bounded before it is read, its texts are cleaned before they are kept, and what is not
//     understood is never a removal;
//   - no secret leaves unsealed, and no token stands in a log, a metric or an error.
package hub
