package notify

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// CommitSettings decide about the commit statuses of a tenant.
type CommitSettings struct {
	Statuses []fleet.CommitStatuses
	Labels   func(fleet.EnvironmentID) map[string]string
	// Declared reports whether the Application is or may be declared. A declaration that is in
	// quarantine may.
	Declared func(fleet.ApplicationID) bool
}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// DecideCommits returns the commit statuses that change. It ends nothing because something is
// missing: an Application is gone if no file declares it and its deletion is under way or proven.
func DecideCommits(f mirror.CommitFacts, s CommitSettings) (step mirror.CommitStep) {
	known := map[fleet.ApplicationID][]mirror.CommitStatus{}
	for _, c := range f.Known {
		known[c.Of()] = append(known[c.Of()], c)
	}
	for _, app := range f.Applications {
		switch {
		case app.Absent:
			if !s.Declared(app.ID) {
				step.Put = append(step.Put, end(known[app.ID], "")...)
			}
		case app.Current && !app.Unknown:
			step.Put = append(step.Put, commitsOf(app, known[app.ID], s)...)
		}
		delete(known, app.ID)
	}
	for id, all := range known { // no row: Applications that are gone, or not known again yet
		if slices.Contains(f.Gone, fleet.ApplicationName(id)) && !s.Declared(id) {
			step.Put = append(step.Put, end(all, "")...)
		}
	}
	slices.SortFunc(step.Put, func(a, b mirror.CommitStatus) int {
		return strings.Compare(a.Of().String()+" "+a.Repository+" "+a.Commit,
			b.Of().String()+" "+b.Repository+" "+b.Commit)
	})
	return step
}

// commitsOf decides about one Application that Argo CD has compared as it is declared.
func commitsOf(app mirror.CommitApplication, known []mirror.CommitStatus,
	s CommitSettings) (put []mirror.CommitStatus) {
	commits := fleet.SplitRevisions(app.Synced)
	operation := fleet.SplitRevisions(app.Operation)
	if len(commits) != len(app.Repositories) {
		return nil
	}
	labels := s.Labels(fleet.EnvironmentID{Tenant: app.ID.Tenant, Name: app.ID.Environment})
	var repositories []string
	for i, repository := range app.Repositories {
		if repository == "" || slices.Contains(repositories, repository) {
			continue // of several sources from one repository, the first counts
		}
		repositories = append(repositories, repository)
		to := statusesFor(s.Statuses, repository, labels)
		if to == nil || !commitID.MatchString(commits[i]) {
			continue
		}
		of := ""
		if i < len(operation) {
			of = operation[i]
		}
		now := mirror.CommitStatus{Tenant: app.ID.Tenant, Deployment: app.ID.Deployment,
			Environment: app.ID.Environment, Repository: repository, Settings: to.Name,
			Commit: commits[i], State: commitState(app, commits[i], of)}
		if now.State == mirror.CommitFailed || now.State == mirror.CommitInProgress {
			now.Message = app.Message
		}
		others := slices.DeleteFunc(slices.Clone(known), func(c mirror.CommitStatus) bool {
			return c.Repository != repository || c.Commit == now.Commit
		})
		next, changed := advance(known, now)
		if changed {
			put = append(put, next)
		}
		// The commit before is deployed until the next one is, but one that was never deployed ends
		// when Argo CD turns to another.
		if next.State != mirror.CommitSucceeded {
			others = slices.DeleteFunc(others, func(c mirror.CommitStatus) bool {
				return c.State == mirror.CommitSucceeded || c.State == mirror.CommitFailed
			})
		}
		put = append(put, end(others, now.Commit)...)
	}
	return append(put, end(slices.DeleteFunc(slices.Clone(known),
		func(c mirror.CommitStatus) bool {
			return slices.Contains(repositories, c.Repository)
		}), "")...)
}

// advance returns the status after an observation, and whether it differs from the known one.
func advance(known []mirror.CommitStatus, now mirror.CommitStatus) (mirror.CommitStatus, bool) {
	i := slices.IndexFunc(known, func(c mirror.CommitStatus) bool {
		return c.Repository == now.Repository && c.Commit == now.Commit
	})
	if i < 0 || known[i].State == mirror.CommitEnded {
		return now, true
	}
	was := known[i]
	if commitRank(now.State) <= commitRank(was.State) {
		now.State, now.Message = was.State, was.Message
	}
	return now, now.State != was.State || now.Settings != was.Settings ||
		was.Delivery == mirror.NotificationDropped
}

// commitRank orders the states: a commit never goes back. So a health that flaps after the success
// is no report: that is for notifications.
func commitRank(s mirror.CommitState) int {
	return slices.Index([]mirror.CommitState{mirror.CommitQueued, mirror.CommitInProgress,
		mirror.CommitFailed, mirror.CommitSucceeded, mirror.CommitEnded}, s)
}

// commitState is the state of the commit that Argo CD compares an Application with. operation is
// the commit of its last operation, or "".
func commitState(app mirror.CommitApplication, commit, operation string) mirror.CommitState {
	own := operation == commit // the last operation was about this commit
	running := app.Phase == "Running" || app.Phase == "Terminating"
	synced := app.Sync == mirror.SyncSynced
	switch {
	case running && (own || synced):
		return mirror.CommitInProgress
	// of an agent of an earlier version, the operation's commit is not known
	case (own || operation == "") && (app.Phase == "Failed" || app.Phase == "Error"):
		return mirror.CommitFailed // although Synced and Healthy, if a hook after the sync failed
	case !own && !synced:
		return mirror.CommitQueued
	case app.Health == mirror.HealthDegraded:
		return mirror.CommitFailed
	case synced && app.Health == mirror.HealthHealthy && !running:
		return mirror.CommitSucceeded
	}
	return mirror.CommitInProgress
}

// end ends what has not ended.
func end(all []mirror.CommitStatus, by string) (put []mirror.CommitStatus) {
	for _, c := range all {
		if c.State == mirror.CommitEnded {
			continue
		}
		c.Was, c.State, c.ReplacedBy, c.Message = c.State, mirror.CommitEnded, by, ""
		put = append(put, c)
	}
	return put
}

func statusesFor(all []fleet.CommitStatuses, repository string,
	labels map[string]string) *fleet.CommitStatuses {
	for i := range all {
		if all[i].Covers(repository) && all[i].Selects(labels) {
			return &all[i]
		}
	}
	return nil
}

// CommitTime limits one report, whose requests follow one another. It is shorter than the claim of
// the report.
const CommitTime = 45 * time.Second

// Characters of a description that Git hosts take.
const maxDescription = 140

// DescribeCommit is the one line that people read beside a commit.
func DescribeCommit(c mirror.CommitStatus) string {
	env := string(c.Environment)
	text := ""
	switch c.State {
	case mirror.CommitQueued:
		text = "waits for its sync to " + env
	case mirror.CommitInProgress:
		text = "on its way to " + env
	case mirror.CommitSucceeded:
		text = "deployed to " + env
	case mirror.CommitFailed:
		text = "failed in " + env
	case mirror.CommitEnded:
		text = endedText(c)
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	return strings.TrimSpace(Sanitize(text, maxDescription))
}

func endedText(c mirror.CommitStatus) string {
	why := "the Application is no longer deployed from here"
	if c.ReplacedBy != "" {
		why = "replaced by " + fleet.Revision(c.ReplacedBy).Short()
	}
	switch c.Was {
	case mirror.CommitSucceeded:
		return fmt.Sprintf("was deployed to %s: %s", c.Environment, why)
	case mirror.CommitFailed:
		return fmt.Sprintf("failed in %s: %s", c.Environment, why)
	}
	return fmt.Sprintf("not deployed to %s: %s", c.Environment, why)
}

// CommitLink is the page of the Application, or "".
func CommitLink(c mirror.CommitStatus, public string) string {
	path := page(mirror.Notification{About: c.Tenant, Deployment: c.Deployment,
		Environment: c.Environment})
	if public == "" || path == "" {
		return ""
	}
	return strings.TrimSuffix(public, "/") + path
}
