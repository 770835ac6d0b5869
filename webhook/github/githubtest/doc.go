// Package githubtest is a small GitHub in memory: what webhook/github needs of the REST API, Apps
// with their check runs and tokens, limits and faults to order.
//
// It is held to GitHub's published OpenAPI description: every request that it is sent and every
// answer that it gives is checked against it, and what does not fit fails the test. A request may
// have no parameter and no field that the description does not know; an answer has every field that
// the description requires, and those that matter are the state's. Only a fault answers with what
// GitHub would not.
//
//	description.go, shape.go   the description, and answers that fit it
//	server.go, caller.go       requests, and who asks
//	answer.go                  pages, ETags, limits
//	fault.go                   what goes wrong, to order
//	people.go, repositories.go, pulls.go, comments.go, checks.go, apps.go, hooks.go   the state
//
// scripts/parts.sh github-openapi fetches the description; command describe keeps the operations of
// it that are needed.
package githubtest
