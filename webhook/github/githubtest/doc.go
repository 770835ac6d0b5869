// Package githubtest is a small GitHub in memory: the parts of the REST API that webhook/github
// calls, Apps with their check runs and tokens, limits, and faults on request.
//
// GitHub's published OpenAPI description checks it: a request or an answer that does not fit the
// description fails the test. A request may have no parameter and no field that the description
// does not know; an answer has every field that the description requires, and the fields that
// matter come from the state. Only a fault answers with anything that GitHub would not.
//
//	description.go, shape.go   the description, and answers that fit it
//	server.go, caller.go       requests and their callers
//	answer.go                  pages, ETags, limits
//	fault.go                   faults on request
//	people.go, repositories.go, pulls.go, comments.go, checks.go, apps.go, hooks.go   the state
//
// scripts/parts.sh github-openapi fetches the description; command describe extracts the operations
// that are needed.
package githubtest
