// Package github talks to the config repo's Git host over GitHub's REST API: github.com, GitHub
// Enterprise, and Gitea, which answers under the same paths. It implements webhook.Host and is the
// only importer of GitHub's client.
//
//	config.go, client.go   New: the Forge and its parts, the clients and their credentials
//	connection.go          the repository, which every part reads first
//	account.go             credentials, and our own account
//	wire.go, cache.go      every request and response: bounds, redaction, conditional requests
//	call.go, errors.go     one call, its response or the meaning of its failure
//	list.go                lists, read to their end
//	pulls.go, conversation.go, comment.go, statuses.go, runs.go, people.go, protection.go,
//	deliveries.go          the parts of Forge
//	manifest.go            the registration of an App
//	commits.go             reports on the repositories of tenants' Applications
//
// Rules of this package:
//   - absence is proven: "no such" is reported only if the repository itself answers and has the
//     same ID; a response that is unknown, incomplete, no JSON or missing is an error;
//   - the repository is its ID. Each method reads it first, and fails if the name now leads to
//     another repository;
//   - a credential goes to the host of the base URL and nowhere else, and is in no error: text of
//     the other side is redacted and cut;
//   - every response is bounded in bytes and time; a limit or an outage is a *forge.Busy, at most
//     an hour away;
//   - a write is found again: a comment by its author and marker, a check run by commit, name and
//     App.
package github
