package githubtest

// handlers answer the operations. A request of a path in Paths without a handler fails the test.
var handlers = map[string]handler{
	"GET /app": getApp,
	"GET /app/installations/{installation_id}":                getInstallation,
	"POST /app/installations/{installation_id}/access_tokens": postToken,
	"GET /repos/{owner}/{repo}/installation":                  getInstallationOf,
	"POST /app-manifests/{code}/conversions":                  convertManifest,
	"GET /app/hook/deliveries":                                listTries,
	"POST /app/hook/deliveries/{delivery_id}/attempts":        postAttempt,

	"GET /repos/{owner}/{repo}/hooks":                                              listHooks,
	"GET /repos/{owner}/{repo}/hooks/{hook_id}/deliveries":                         listTries,
	"POST /repos/{owner}/{repo}/hooks/{hook_id}/deliveries/{delivery_id}/attempts": postAttempt,

	"GET /user":                                 getSelf,
	"GET /user/{account_id}":                    getAccount,
	"GET /users/{username}":                     getUser,
	"GET /orgs/{org}/teams":                     listTeams,
	"GET /orgs/{org}/teams/{team_slug}":         getTeam,
	"GET /orgs/{org}/teams/{team_slug}/members": listMembers,
	"GET /repos/{owner}/{repo}/collaborators/{username}/permission": getPermission,

	"GET /repos/{owner}/{repo}":                                 getRepository,
	"GET /repos/{owner}/{repo}/branches/{branch}":               getBranch,
	"GET /repos/{owner}/{repo}/branches/{branch}/protection":    getProtection,
	"GET /repos/{owner}/{repo}/rules/branches/{branch}":         listRules,
	"GET /repos/{owner}/{repo}/rulesets/{ruleset_id}":           getRuleset,
	"GET /repos/{owner}/{repo}/pulls":                           listPulls,
	"GET /repos/{owner}/{repo}/pulls/{pull_number}":             getPull,
	"GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews":     listReviews,
	"GET /repos/{owner}/{repo}/commits/{commit_sha}/pulls":      listPullsOf,
	"GET /repos/{owner}/{repo}/issues/{issue_number}/comments":  listComments,
	"POST /repos/{owner}/{repo}/issues/{issue_number}/comments": postComment,
	"GET /repos/{owner}/{repo}/issues/comments/{comment_id}":    getComment,
	"PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}":  patchComment,
	"DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}": deleteComment,

	"GET /repos/{owner}/{repo}/commits/{ref}/statuses":      listStatuses,
	"POST /repos/{owner}/{repo}/statuses/{sha}":             postStatus,
	"GET /repos/{owner}/{repo}/commits/{ref}/check-runs":    listRuns,
	"POST /repos/{owner}/{repo}/check-runs":                 postRun,
	"PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}": patchRun,

	"GET /repos/{owner}/{repo}/deployments":                           listDeployments,
	"POST /repos/{owner}/{repo}/deployments":                          postDeployment,
	"GET /repos/{owner}/{repo}/deployments/{deployment_id}/statuses":  listDeploymentStatuses,
	"POST /repos/{owner}/{repo}/deployments/{deployment_id}/statuses": postDeploymentStatus,
}
