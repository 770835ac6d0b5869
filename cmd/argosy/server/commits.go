package server

import (
	"context"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/deliver"
	"argosy.dev/argosy/reconciler/notify"
	"argosy.dev/argosy/webhook/github"
)

// commitReporter writes commit statuses and deployments, under the rules of deliver for hosts that
// tenants choose.
type commitReporter struct{ sender *deliver.Sender }

// ReportCommit implements reconciler.CommitReporter.
func (c commitReporter) ReportCommit(ctx context.Context, d notify.CommitDelivery) (string, error) {
	host, err := fleet.CommitHostOf(d.Report.Repository, d.Settings.API)
	if err != nil {
		return "", &notify.Refused{Why: "the repository " + d.Report.Repository + ": " +
			err.Error()}
	}
	token := strings.TrimSpace(string(d.Secret.Value("token")))
	if token == "" {
		return "", fmt.Errorf("the secret %s has no key token", d.Settings.CredentialsRef.Name)
	}
	through, err := c.sender.Through(d.Fleet, host.Authority)
	if err != nil {
		return "", err
	}
	client, err := github.NewCommits(github.Config{BaseURL: host.Base, Repository: host.Repository,
		Auth: github.Auth{Token: func(context.Context) (string, error) { return token, nil }}},
		through)
	if err != nil {
		return "", &notify.Refused{Why: err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, notify.CommitTime,
		fmt.Errorf("%s did not answer within %s", host.Authority, notify.CommitTime))
	defer cancel()
	answer, err := client.Report(ctx, commitReport(d))
	switch {
	case err != nil && ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil && github.IsRefusal(err):
		return "", &notify.Refused{Why: err.Error()}
	}
	return answer, err
}

// commitReport is a report in the words of GitHub, which Gitea shares.
func commitReport(d notify.CommitDelivery) github.CommitReport {
	r := d.Report
	report := github.CommitReport{Commit: r.Commit, Context: "argosy/" + r.Of().String(),
		State: statusOf(r.CommitStatus), Description: notify.DescribeCommit(r.CommitStatus),
		Target: notify.CommitLink(r.CommitStatus, d.Public)}
	if d.Settings.Deployments {
		report.Deployment = &github.Deployment{
			Environment: string(r.Deployment) + "@" + string(r.Environment),
			Task:        "argosy:" + string(r.Tenant) + "/" + string(r.Deployment),
			State:       deploymentStates[r.State],
			Create:      !r.Superseded && r.State != mirror.CommitEnded,
		}
	}
	return report
}

var deploymentStates = map[mirror.CommitState]string{
	mirror.CommitQueued: "queued", mirror.CommitInProgress: "in_progress",
	mirror.CommitFailed: "failure", mirror.CommitSucceeded: "success",
	mirror.CommitEnded: "inactive",
}

// statusOf is the state of a commit status. The end of a commit keeps how its deployment went.
func statusOf(c mirror.CommitStatus) string {
	state := c.State
	if state == mirror.CommitEnded {
		state = c.Was
		if state != mirror.CommitSucceeded && state != mirror.CommitFailed {
			return "error" // it was never deployed
		}
	}
	switch state {
	case mirror.CommitSucceeded:
		return "success"
	case mirror.CommitFailed:
		return "failure"
	}
	return "pending"
}
