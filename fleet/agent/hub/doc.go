// Package hub is the control plane's side of pull mode: it exchanges one-time tokens for identities
// and assertions for access tokens, sends each agent the rows of its engine and nothing else, and
// accepts reports.
//
//	Hub          serves the protocol's paths; one per replica
//	feed         polls the store once for all open streams and wakes those with changes
//	rateLimiter  bounds the rate of requests that cost the database, first come, first served
//	Store        the interfaces that the mirror implements
//
// Rules of this package:
//   - The access token and the key alone identify the caller. Path, query and body name no
//     cluster, and a duplicate header is rejected.
//   - A caller that cannot prove its identity learns only that the proof is invalid. The state of
//     an identity is for the holder of its key.
//   - An idle stream costs no query. A slow one costs only itself, because each message has a
//     deadline.
//   - An agent's input is untrusted: its size is bounded before it is read, its texts are
//     sanitized before they are stored, and an unknown value is never a removal.
//   - No secret leaves unsealed, and no token appears in a log, a metric or an error.
package hub
