package notify

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const checkoutRepo = "https://github.com/acme/checkout"

var (
	commitA = strings.Repeat("a", 40)
	commitB = strings.Repeat("b", 40)
	prod    = fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
)

// deploying is the Application at a commit, whose last operation was about the same.
func deploying(commit string, sync mirror.SyncState, health mirror.HealthState,
	phase string) mirror.CommitApplication {
	return mirror.CommitApplication{ID: prod, Repositories: []string{checkoutRepo}, Current: true,
		Sync: sync, Health: health, Synced: commit, Operation: commit, Phase: phase}
}

func declared(fleet.ApplicationID) bool { return true }
func removed(fleet.ApplicationID) bool  { return false }

func commitRules(known func(fleet.ApplicationID) bool) CommitSettings {
	return CommitSettings{Declared: known,
		Labels: func(fleet.EnvironmentID) map[string]string {
			return map[string]string{"tier": "prod"}
		},
		Statuses: []fleet.CommitStatuses{
			{Name: "stage", Repositories: []string{"https://github.com/acme/"},
				EnvironmentSelector: &fleet.LabelSelector{MatchLabels: map[string]string{
					"tier": "stage"}}},
			{Name: "github", Repositories: []string{"https://github.com/acme/"}}}}
}

// applied applies a step to what is known, as the store does.
func applied(known []mirror.CommitStatus, step mirror.CommitStep) []mirror.CommitStatus {
	for _, c := range step.Put {
		i := slices.IndexFunc(known, func(k mirror.CommitStatus) bool {
			return k.Commit == c.Commit
		})
		if i < 0 {
			known = append(known, c)
			continue
		}
		known[i] = c
	}
	return known
}

// words are the states of a step: "aaaa Succeeded".
func words(step mirror.CommitStep) string {
	var all []string
	for _, c := range step.Put {
		all = append(all, c.Commit[:4]+" "+string(c.State))
	}
	return strings.Join(all, ", ")
}

func TestACommitGoesForwardAndTheOneBeforeEndsWhenItIsDeployed(t *testing.T) {
	var known []mirror.CommitStatus
	stale := deploying(commitB, mirror.SyncOutOfSync, mirror.HealthHealthy, "Failed")
	stale.Operation = commitA // it failed before, for the other commit
	for i, s := range []struct {
		app  mirror.CommitApplication
		want string
	}{
		{deploying(commitA, mirror.SyncOutOfSync, mirror.HealthMissing, "Running"),
			"aaaa InProgress"},
		{deploying(commitA, mirror.SyncSynced, mirror.HealthProgressing, "Succeeded"), ""},
		{deploying(commitA, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded"),
			"aaaa Succeeded"},
		{deploying(commitA, mirror.SyncSynced, mirror.HealthDegraded, "Succeeded"), ""},
		{deploying(commitA, mirror.SyncOutOfSync, mirror.HealthHealthy, "Running"), ""},
		{stale, "bbbb Queued"},
		{deploying(commitB, mirror.SyncOutOfSync, mirror.HealthHealthy, "Running"),
			"bbbb InProgress"},
		{deploying(commitB, mirror.SyncSynced, mirror.HealthDegraded, "Succeeded"), "bbbb Failed"},
		{deploying(commitB, mirror.SyncSynced, mirror.HealthProgressing, "Running"), ""},
		{deploying(commitB, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded"),
			"aaaa Ended, bbbb Succeeded"},
		{deploying(commitA, mirror.SyncOutOfSync, mirror.HealthHealthy, "Running"),
			"aaaa InProgress"}, // deployed again after its end
		{deploying(commitA, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded"),
			"aaaa Succeeded, bbbb Ended"},
	} {
		step := DecideCommits(mirror.CommitFacts{Applications: []mirror.CommitApplication{s.app},
			Known: known}, commitRules(declared))
		if got := words(step); got != s.want {
			t.Fatalf("step %d: %q, want %q", i, got, s.want)
		}
		known = applied(known, step)
	}
	if a := known[0]; a.Settings != "github" || a.Repository != checkoutRepo {
		t.Errorf("%+v", a)
	}
}

func TestACommitThatWasNeverDeployedEndsWhenAnotherComes(t *testing.T) {
	known := []mirror.CommitStatus{{Tenant: "acme", Deployment: "checkout", Environment: "prod",
		Repository: checkoutRepo, Settings: "github", Commit: commitA,
		State: mirror.CommitInProgress}}
	step := DecideCommits(mirror.CommitFacts{Known: known, Applications: []mirror.CommitApplication{
		deploying(commitB, mirror.SyncOutOfSync, mirror.HealthHealthy, "Running")}},
		commitRules(declared))
	if got := words(step); got != "aaaa Ended, bbbb InProgress" {
		t.Fatal(got)
	}
	if text := DescribeCommit(step.Put[0]); text != "not deployed to prod: replaced by bbbbbbbb" {
		t.Error(text)
	}
}

func TestWhatACommitsStateIs(t *testing.T) {
	other := func(a mirror.CommitApplication) mirror.CommitApplication {
		a.Operation = commitB
		return a
	}
	for _, c := range []struct {
		name string
		app  mirror.CommitApplication
		want mirror.CommitState
	}{
		{"a hook after the sync failed",
			deploying(commitA, mirror.SyncSynced, mirror.HealthHealthy, "Failed"),
			mirror.CommitFailed},
		{"OutOfSync for good", deploying(commitA, mirror.SyncOutOfSync, mirror.HealthHealthy,
			"Succeeded"), mirror.CommitInProgress},
		{"nothing to change for this commit", other(deploying(commitA, mirror.SyncSynced,
			mirror.HealthHealthy, "Failed")), mirror.CommitSucceeded},
		{"a sync that waits for a person", other(deploying(commitA, mirror.SyncOutOfSync,
			mirror.HealthHealthy, "Succeeded")), mirror.CommitQueued},
		{"unwell before the commit", other(deploying(commitA, mirror.SyncOutOfSync,
			mirror.HealthDegraded, "Succeeded")), mirror.CommitQueued},
		{"suspended", deploying(commitA, mirror.SyncSynced, mirror.HealthSuspended, "Succeeded"),
			mirror.CommitInProgress},
		{"terminated", deploying(commitA, mirror.SyncOutOfSync, mirror.HealthHealthy, "Error"),
			mirror.CommitFailed},
	} {
		step := DecideCommits(mirror.CommitFacts{Applications: []mirror.CommitApplication{c.app}},
			commitRules(declared))
		if len(step.Put) != 1 || step.Put[0].State != c.want {
			t.Errorf("%s: %s, want %s", c.name, words(step), c.want)
		}
	}
}

func TestOnlyWhatIsProvenGoneEnds(t *testing.T) {
	known := []mirror.CommitStatus{{Tenant: "acme", Deployment: "checkout", Environment: "prod",
		Repository: checkoutRepo, Commit: commitA, State: mirror.CommitSucceeded}}
	absent := mirror.CommitApplication{ID: prod, Absent: true}
	old := deploying(commitB, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded")
	old.Unknown = true
	before := deploying(commitB, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded")
	before.Current = false
	gone := []string{fleet.ApplicationName(prod)}
	for _, c := range []struct {
		name     string
		facts    mirror.CommitFacts
		declared func(fleet.ApplicationID) bool
		want     string
	}{
		{"a rebuild of the mirror", mirror.CommitFacts{}, removed, ""},
		{"a declaration in quarantine", mirror.CommitFacts{Gone: gone}, declared, ""},
		{"a move to another engine", mirror.CommitFacts{
			Applications: []mirror.CommitApplication{absent}}, declared, ""},
		{"a silent engine", mirror.CommitFacts{
			Applications: []mirror.CommitApplication{old}}, declared, ""},
		{"a state of an earlier declaration", mirror.CommitFacts{
			Applications: []mirror.CommitApplication{before}}, declared, ""},
		{"a deletion under way", mirror.CommitFacts{
			Applications: []mirror.CommitApplication{absent}}, removed, "aaaa Ended"},
		{"a proven deletion", mirror.CommitFacts{Gone: gone}, removed, "aaaa Ended"},
	} {
		c.facts.Known = known
		if got := words(DecideCommits(c.facts, commitRules(c.declared))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNoRepositoryIsReportedThatTheSettingsOrTheApplicationDoNotName(t *testing.T) {
	from := func(url string) func(*mirror.CommitApplication) {
		return func(a *mirror.CommitApplication) { a.Repositories[0] = url }
	}
	at := func(commit string) func(*mirror.CommitApplication) {
		return func(a *mirror.CommitApplication) { a.Synced = commit }
	}
	for name, edit := range map[string]func(*mirror.CommitApplication){
		"another owner":    from("https://github.com/globex/x"),
		"another host":     from("https://evil.example.com/acme/x"),
		"a chart":          from(""),
		"no commit":        at("1.4.0"),
		"a path as commit": at("../../../user"),
		"other sources":    at(commitA + "," + commitB),
	} {
		app := deploying(commitA, mirror.SyncSynced, mirror.HealthHealthy, "Succeeded")
		app.Repositories = slices.Clone(app.Repositories)
		edit(&app)
		if step := DecideCommits(mirror.CommitFacts{Applications: []mirror.CommitApplication{app}},
			commitRules(declared)); len(step.Put) != 0 {
			t.Errorf("%s: %+v", name, step.Put)
		}
	}
}

func TestEachRepositoryOfSeveralSourcesGetsItsOwnCommit(t *testing.T) {
	app := deploying(commitA+",1.2.3,"+commitB+","+commitB, mirror.SyncSynced, mirror.HealthHealthy,
		"Succeeded")
	app.Repositories = []string{checkoutRepo, "", "https://github.com/acme/values", checkoutRepo}
	step := DecideCommits(mirror.CommitFacts{Applications: []mirror.CommitApplication{app}},
		commitRules(declared))
	if got := words(step); got != "aaaa Succeeded, bbbb Succeeded" ||
		step.Put[1].Repository != "https://github.com/acme/values" {
		t.Errorf("%s %+v", got, step.Put)
	}
}

func TestADescriptionIsOneSanitizedLine(t *testing.T) {
	text := DescribeCommit(mirror.CommitStatus{Environment: "prod", State: mirror.CommitFailed,
		Message: "https://evil.example.com \u202e\x1b[31m\n" + strings.Repeat("x", 500)})
	if len([]rune(text)) > 140 || strings.ContainsAny(text, "\u202e\x1b\n") ||
		strings.Contains(text, "https://") || !strings.HasPrefix(text, "failed in prod: ") {
		t.Errorf("%q", text)
	}
}
