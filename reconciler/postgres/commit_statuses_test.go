package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/notify"
)

func commitOf(deployment fleet.DeploymentName, commit string,
	state mirror.CommitState) mirror.CommitStatus {
	return mirror.CommitStatus{Tenant: "acme", Deployment: deployment, Environment: "prod",
		Repository: "https://github.com/acme/web", Settings: "github",
		Commit: strings.Repeat(commit, 40), State: state}
}

func TestACommitIsReportedOnceAndAChangeDuringTheReportFollows(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	put := func(all ...mirror.CommitStatus) {
		t.Helper()
		check(t, s.Notifications.TakeCommitStep(ctx, loop, mirror.CommitStep{Put: all}))
	}
	put(commitOf("web", "a", mirror.CommitInProgress))
	put(commitOf("web", "a", mirror.CommitInProgress))
	if n := one[int](t, url, `SELECT count(*) FROM river_job WHERE kind = 'notify'`); n != 1 {
		t.Errorf("%d jobs", n)
	}
	r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github")
	if err != nil || !ok || !r.First || r.Superseded || r.Attempts != 1 ||
		r.State != mirror.CommitInProgress {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
	put(commitOf("web", "a", mirror.CommitSucceeded)) // while the report is on its way
	if again, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github"); ok || err != nil {
		t.Fatalf("two reports at once: %+v, %v", again, err)
	}
	check(t, s.Notifications.SettleCommit(ctx, r, mirror.NotifyOutcome{
		State: mirror.NotificationSent, Answer: "status pending"}, 0))
	r, ok, err = s.Notifications.ClaimCommit(ctx, "acme", "github")
	if err != nil || !ok || r.State != mirror.CommitSucceeded || r.First {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
	// the replica dies; another takes the report again when the claim ends
	exec(t, url, `UPDATE commit_statuses SET claimed_until = now() - interval '1 second'`)
	next := open(t, url)
	r, ok, err = next.Notifications.ClaimCommit(ctx, "acme", "github")
	if err != nil || !ok || r.Attempts != 2 {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
	check(t, next.Notifications.SettleCommit(ctx, r, mirror.NotifyOutcome{
		State: mirror.NotificationSent, Answer: "status success"}, 0))
	if r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github"); ok || err != nil {
		t.Errorf("reported again: %+v, %v", r, err)
	}
	all, _, err := s.Views.CommitStatuses(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	if err != nil || len(all) != 1 || all[0].Delivery != mirror.NotificationSent ||
		all[0].Answer != "status success" || all[0].SentAt == nil {
		t.Errorf("%+v, %v", all, err)
	}
	late := loop
	late.Epoch--
	if err := s.Notifications.TakeCommitStep(ctx, late, mirror.CommitStep{}); !errors.Is(err,
		mirror.ErrFenced) {
		t.Errorf("a former leader decides: %v", err)
	}
}

func TestEndsAreReportedFirstAndAnOlderCommitIsSuperseded(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	check(t, s.Notifications.TakeCommitStep(ctx, loop, mirror.CommitStep{
		Put: []mirror.CommitStatus{commitOf("web", "a", mirror.CommitSucceeded)}}))
	old := commitOf("web", "a", mirror.CommitEnded)
	old.Was, old.ReplacedBy = mirror.CommitSucceeded, strings.Repeat("b", 40)
	check(t, s.Notifications.TakeCommitStep(ctx, loop, mirror.CommitStep{
		Put: []mirror.CommitStatus{commitOf("web", "b", mirror.CommitSucceeded), old}}))
	var got []string
	for {
		r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github")
		check(t, err)
		if !ok {
			break
		}
		word := r.Commit[:1] + " " + string(r.State)
		if r.Superseded {
			word += " superseded"
		}
		got = append(got, word)
		check(t, s.Notifications.SettleCommit(ctx, r, mirror.NotifyOutcome{
			State: mirror.NotificationSent}, 0))
	}
	if text := strings.Join(got, ", "); text != "a Ended superseded, b Succeeded" {
		t.Error(text)
	}
	// deployed again, the commit before is the latest
	check(t, s.Notifications.TakeCommitStep(ctx, loop, mirror.CommitStep{
		Put: []mirror.CommitStatus{commitOf("web", "a", mirror.CommitInProgress)}}))
	if r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github"); err != nil || !ok ||
		r.Superseded {
		t.Errorf("%+v, %v, %v", r, ok, err)
	}
}

func TestABusyGitHostPausesAllReportsOfTheSettingsAndALimitToo(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	other := commitOf("web", "c", mirror.CommitQueued)
	other.Settings = "gitea"
	check(t, s.Notifications.TakeCommitStep(ctx, loop, mirror.CommitStep{
		Put: []mirror.CommitStatus{commitOf("web", "a", mirror.CommitQueued),
			commitOf("api", "b", mirror.CommitQueued), other}}))
	r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	check(t, s.Notifications.SettleCommit(ctx, r, mirror.NotifyOutcome{
		State: mirror.NotificationPending, Answer: "busy", Again: time.Hour}, time.Hour))
	if r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github"); ok || err != nil {
		t.Errorf("the Git host is asked again: %+v, %v", r, err)
	}
	if _, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "gitea"); !ok || err != nil {
		t.Errorf("another Git host waits: %v", err)
	}
	exec(t, url, `UPDATE commit_statuses SET due = now(), claimed_until = NULL`)
	exec(t, url, `INSERT INTO commit_statuses (tenant, deployment, environment, repository, commit, settings, state, delivery, sent_at)
		SELECT 'acme', 'd', 'e', 'r', i::text, 'github', 'Succeeded', 'Sent', now() FROM generate_series(1, 400) i`)
	if r, ok, err := s.Notifications.ClaimCommit(ctx, "acme", "github"); ok || err != nil {
		t.Errorf("reported beyond the limit: %+v, %v", r, err)
	}
	check(t, s.Notifications.DropCommits(ctx, "acme", "github"))
	expect(t, url, `SELECT count(*) FROM commit_statuses WHERE delivery = 'Dropped'`, 2)
}

// The facts come from the rows: what Argo CD compared, and with which repository.
func TestFactsOfCommitsAreOfTheRowsThatArgoCDHasCompared(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "web", "prod", "v1")
	a.Manifest = manifest(`{"spec": {"sources": [{"repoURL": "https://github.com/acme/web"},
		{"repoURL": "https://charts.example.com", "chart": "redis"}]}}`)
	s, loop, worker, _ := recorded(t, url, a)
	ctx := t.Context()
	commit := strings.Repeat("a", 40)
	check(t, s.Work.Observe(ctx, worker, []mirror.Observation{{Key: a.Key,
		Sync: mirror.SyncSynced, Health: mirror.HealthHealthy, SyncedRevision: commit + ",1.2.3",
		OperationRevision: commit + ",1.2.3", OperationPhase: "Succeeded",
		Compared: a.Manifest.Hash}}))
	f := must(s.Notifications.CommitFacts(ctx, "acme"))(t)
	if len(f.Applications) != 1 {
		t.Fatalf("%+v", f)
	}
	got := f.Applications[0]
	if !got.Current || got.Unknown || got.Operation != commit+",1.2.3" ||
		len(got.Repositories) != 2 ||
		got.Repositories[0] != "https://github.com/acme/web" || got.Repositories[1] != "" {
		t.Errorf("%+v", got)
	}
	step := notify.DecideCommits(f, notify.CommitSettings{
		Statuses: []fleet.CommitStatuses{{Name: "github",
			Repositories: []string{"https://github.com/acme/"}}},
		Labels:   func(fleet.EnvironmentID) map[string]string { return nil },
		Declared: func(fleet.ApplicationID) bool { return true }})
	if len(step.Put) != 1 || step.Put[0].State != mirror.CommitSucceeded ||
		step.Put[0].Commit != commit {
		t.Fatalf("%+v", step)
	}
	check(t, s.Notifications.TakeCommitStep(ctx, loop, step))
	changed, last, err := s.Notifications.ChangedCommits(ctx, -1, []fleet.TenantName{"acme"})
	if err != nil || len(changed) != 1 {
		t.Fatalf("%v, %v", changed, err)
	}
	if changed, last, err = s.Notifications.ChangedCommits(ctx, last,
		[]fleet.TenantName{"acme"}); err != nil || len(changed) != 0 {
		t.Errorf("without an event: %v, %v", changed, err)
	}
	check(t, s.Work.Observe(ctx, worker, []mirror.Observation{{Key: a.Key,
		Health: mirror.HealthDegraded}}))
	until(t, "the event", func() bool {
		changed, _, err := s.Notifications.ChangedCommits(ctx, last, []fleet.TenantName{"acme"})
		return err == nil && len(changed) == 1
	})
	// the mirror is rebuilt: nothing ends because no row is there
	check(t, s.Reset(ctx))
	f = must(s.Notifications.CommitFacts(ctx, "acme"))(t)
	if len(f.Applications) != 0 || len(f.Known) != 1 || len(f.Gone) != 0 {
		t.Errorf("after a rebuild: %+v", f)
	}
}
