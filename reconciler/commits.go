package reconciler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/notify"
)

// commitReview is between reviews of all Applications whose commits are reported. Between them,
// those of a tenant are reviewed after an event about one.
const commitReview = time.Minute

// CommitStore keeps what is reported of commits on the repositories of Applications.
type CommitStore interface {
	// ChangedCommits returns those of the tenants with events about Applications after one; all of
	// them if it is negative.
	ChangedCommits(ctx context.Context, after int64, tenants []fleet.TenantName) (
		[]fleet.TenantName, int64, error)
	// CommitFacts returns what decides about a tenant.
	CommitFacts(ctx context.Context, tenant fleet.TenantName) (mirror.CommitFacts, error)
	// TakeCommitStep records a decision, and jobs for what is due; mirror.ErrFenced when the lease
	// has passed on.
	TakeCommitStep(ctx context.Context, lease mirror.Lease, step mirror.CommitStep) error
	// ClaimCommit takes the next report of the settings of a tenant; false: there is none now.
	ClaimCommit(ctx context.Context, tenant fleet.TenantName, settings string) (
		mirror.CommitReport, bool, error)
	// SettleCommit records the outcome of a report. pause is how long the Git host asks to wait.
	SettleCommit(ctx context.Context, r mirror.CommitReport, o mirror.NotifyOutcome,
		pause time.Duration) error
	// DropCommits ends the reports of settings that are not declared.
	DropCommits(ctx context.Context, tenant fleet.TenantName, settings string) error
}

// CommitReporter writes on Git hosts of tenants.
type CommitReporter interface {
	ReportCommit(ctx context.Context, r notify.CommitDelivery) (answer string, err error)
}

// statusesChannel begins the name of the channel of a job that reports commits.
const statusesChannel = "statuses:"

// commitReviews is how far the reviews of this leader have come.
type commitReviews struct {
	after int64 // event
	whole time.Time
}

// decideCommits decides about the commits of the tenants that report them. A fault of one tenant
// keeps no other from its decision.
func (l *Loop) decideCommits(ctx context.Context, at *basis, done *commitReviews) error {
	view := &at.state.Catalog().View
	tenants := view.ReportingCommits()
	if len(tenants) == 0 {
		*done = commitReviews{after: -1}
		return nil
	}
	if time.Since(done.whole) >= commitReview {
		done.after, done.whole = -1, time.Now()
	}
	changed, last, err := l.Notifier.Commits.ChangedCommits(ctx, done.after, tenants)
	if err != nil {
		return err
	}
	var failed []error
	for _, tenant := range changed {
		facts, err := l.Notifier.Commits.CommitFacts(ctx, tenant)
		if err == nil {
			step := notify.DecideCommits(facts, commitSettings(view, tenant))
			err = l.Notifier.Commits.TakeCommitStep(ctx, at.lease, step)
		}
		failed = append(failed, err)
	}
	err = errors.Join(failed...)
	if err == nil {
		done.after = last
		if len(changed) == 0 { // reports of before may be due
			err = l.Notifier.Commits.TakeCommitStep(ctx, at.lease, mirror.CommitStep{})
		}
	}
	return err
}

func commitSettings(view *catalog.View, tenant fleet.TenantName) notify.CommitSettings {
	return notify.CommitSettings{
		Statuses: view.Notifications(tenant).CommitStatuses,
		Labels:   notifySettings(view).Labels,
		Declared: func(id fleet.ApplicationID) bool {
			deployment := fleet.DeploymentID{Tenant: id.Tenant, Name: id.Deployment}
			environment := fleet.EnvironmentID{Tenant: id.Tenant, Name: id.Environment}
			return slices.Contains(view.Targets(deployment), environment) ||
				quarantined(view, id)
		},
	}
}

// quarantined reports whether a declaration that decides about the Application is in quarantine:
// the Application may be declared although no version of a file is in effect, as after a loss of
// the database.
func quarantined(view *catalog.View, id fleet.ApplicationID) bool {
	for _, k := range []fleet.Key{
		{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant, Name: string(id.Deployment)},
		{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant, Name: string(id.Environment)},
		{Kind: fleet.KindTenant, Name: string(id.Tenant)},
	} {
		if _, held := view.Quarantine(k); held {
			return true
		}
	}
	return false
}

// sendCommits reports the commits of one of a tenant's settings, one after the other, until there
// is none or one fails.
func (l *Loop) sendCommits(ctx context.Context, tenant fleet.TenantName, name string) error {
	for {
		at := l.at.Load()
		if at == nil {
			return errors.New("the declarations are not loaded yet")
		}
		view := &at.state.Catalog().View
		settings := statusesOf(view, tenant, name)
		if settings == nil {
			return l.Notifier.Commits.DropCommits(ctx, tenant, name)
		}
		r, ok, err := l.Notifier.Commits.ClaimCommit(ctx, tenant, name)
		if err != nil || !ok {
			return err
		}
		o, pause := l.reportCommit(ctx, view, settings, r)
		if o.State != mirror.NotificationSent {
			l.Log.Warn("the status of a commit was not reported", "tenant", tenant, "settings",
				name, "application", r.Of(), "commit", r.Commit, "attempt", r.Attempts,
				"state", o.State, "error", o.Answer)
		}
		if l.Notifier.CountCommit != nil {
			l.Notifier.CountCommit(settings.API, o.State)
		}
		// a report that was written is recorded although the replica stops
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err = l.Notifier.Commits.SettleCommit(settle, r, o, pause)
		cancel()
		if err != nil || pause > 0 {
			return err
		}
	}
}

// reportCommit tries one report once.
func (l *Loop) reportCommit(ctx context.Context, view *catalog.View, s *fleet.CommitStatuses,
	r mirror.CommitReport) (o mirror.NotifyOutcome, pause time.Duration) {
	if r.State == mirror.CommitEnded && r.First {
		return mirror.NotifyOutcome{State: mirror.NotificationSent,
			Answer: "it ended before anything was reported"}, 0
	}
	if !s.Covers(r.Repository) {
		return mirror.NotifyOutcome{State: mirror.NotificationDropped,
			Answer: "the settings do not cover the repository any more"}, 0
	}
	token, err := l.Notifier.Secret(ctx, ownSecret(view, r.Tenant, s.CredentialsRef.Name))
	answer := ""
	if err == nil {
		answer, err = l.Notifier.Reporter.ReportCommit(ctx, notify.CommitDelivery{Settings: *s,
			Secret: token, Fleet: view.Fleet().Notifications, Public: l.Notifier.Public, Report: r})
	}
	var refused *notify.Refused
	var busy *forge.Busy
	switch {
	case err == nil:
		return mirror.NotifyOutcome{State: mirror.NotificationSent, Answer: answer}, 0
	case errors.As(err, &refused):
		return notify.Outcome(r.Attempts, err.Error(), notify.AttemptsRefused, 0), 0
	case errors.As(err, &busy): // all reports of the settings wait, and this one is not given up
		pause = max(time.Until(busy.Until), time.Second)
		return mirror.NotifyOutcome{State: mirror.NotificationPending, Answer: err.Error(),
			Again: pause}, pause
	}
	return notify.Outcome(r.Attempts, err.Error(), notify.Attempts, 0), 0
}

func statusesOf(view *catalog.View, tenant fleet.TenantName, name string) *fleet.CommitStatuses {
	if set := view.Notifications(tenant); set != nil {
		for i := range set.CommitStatuses {
			if set.CommitStatuses[i].Name == name {
				return &set.CommitStatuses[i]
			}
		}
	}
	return nil
}

// statusesIn returns the name of the settings if the job of a channel reports commits.
func statusesIn(channel string) (name string, ok bool) {
	return strings.CutPrefix(channel, statusesChannel)
}
