// Package github is the forge that the config repo lives on, spoken to over GitHub's REST API:
// github.com, GitHub Enterprise, and Gitea, which answers under the same paths. It implements
// webhook.Forge and is the only room that knows GitHub's client.
//
//	config.go, client.go   New: one client for the installation or the token, one that signs as the App
//	account.go             credentials, and who we are
//	wire.go, cache.go      every request and answer: bounds, redaction, conditional requests
//	call.go, errors.go     one call, its answer or what its failure means
//	list.go                lists, read to their end
//	pulls.go, conversation.go, people.go, say.go, mark.go, runs.go, deliveries.go   the Forge
//	manifest.go            how an App is registered
//
// Rules of this package:
//   - absence is proven: "no such" is only said when the repository itself answers and is the one that it was; whatever is not understood, not
//     complete, not JSON or not there is an error;
//   - the repository is its id. Each method reads it before anything else, and a name that now leads to another one ends everything;
//   - a credential goes to the host of the base URL and nowhere else, and is in no error: what the other side writes is redacted and cut;
//   - every answer is bounded in bytes and time; a limit or an outage is a *forge.Busy, at most an hour away;
//   - what is written once is found again: a comment by its author and marker, a check run by commit, name and App.
package github
