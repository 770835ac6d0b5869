package review

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// mergedOf is a pull request after its merge, with what was reviewed and how its objects stand.
func mergedOf(t testing.TB, make func(testing.TB) (Facts, []fleet.Effect)) (Facts,
	[]fleet.Outcome) {
	f, effects := make(t)
	f.Record.State, f.Record.MergeCommit = fleet.PullMerged, merge
	f.Merge = &Merge{Applied: merge, Reviewed: &fleet.ReviewedPlan{Number: 7, Base: base,
		Head: head, Hash: f.Plan.Hash, Effects: effects, Touches: f.Files},
		Effects: slices.Clone(effects)}
	var outcomes []fleet.Outcome
	for _, e := range effects {
		o := fleet.Outcome{Key: e.Key, Present: !e.Deletes, Revision: merge, Hash: e.Hash,
			Apply: fleet.ApplyApplied}
		if e.Key.Kind == fleet.ObjectApplication && !e.Deletes {
			o.Sync, o.Health, o.SyncedRevision = fleet.SyncSynced, fleet.HealthHealthy,
				"4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a"
		}
		outcomes = append(outcomes, o)
	}
	return f, outcomes
}

func bumped(t testing.TB) (Facts, []fleet.Effect) {
	f, p := bump(t)
	return f, p.Effects()
}

func purged(t testing.TB) (Facts, []fleet.Effect) {
	f, p := purge(t)
	return f, p.Effects()
}

// application is the outcome of one Application, to be changed.
func application(t testing.TB, f Facts, outcomes []fleet.Outcome,
	environment fleet.EnvironmentName) *fleet.Outcome {
	t.Helper()
	for _, e := range f.Merge.Reviewed.Effects {
		if e.Environment != environment {
			continue
		}
		if i := slices.IndexFunc(outcomes, func(o fleet.Outcome) bool {
			return o.Key == e.Key
		}); i >= 0 {
			return &outcomes[i]
		}
	}
	t.Fatal("no such Application")
	return nil
}

var results = map[string]func(t *testing.T) (Facts, []fleet.Outcome){
	"merged": func(t *testing.T) (Facts, []fleet.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		f.Merge.Applied = ""
		return f, outcomes
	},
	"merged-in-progress": func(t *testing.T) (Facts, []fleet.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		o := application(t, f, outcomes, "prod")
		o.Apply, o.Sync, o.Health = fleet.ApplyPending, fleet.SyncSynced, fleet.HealthHealthy
		f.Engines["eu-1"] = Engine{Since: &noon}
		return f, outcomes
	},
	"merged-healthy": func(t *testing.T) (Facts, []fleet.Outcome) { return mergedOf(t, bumped) },
	"merged-failed": func(t *testing.T) (Facts, []fleet.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		o := application(t, f, outcomes, "prod")
		o.Health, o.Message = fleet.HealthDegraded,
			"Deployment checkout: ImagePullBackOff for registry.example.com/checkout:v1.5.0"
		return f, outcomes
	},
	"merged-deletions-held": func(t *testing.T) (Facts, []fleet.Outcome) {
		f, outcomes := mergedOf(t, purged)
		hold := fleet.Hold{Revision: merge, Reason: fleet.HoldDeletions, Tenant: "acme",
			Message: f.Plan.Holds[0].Message}
		for i := range outcomes {
			if i%3 > 0 {
				outcomes[i].Present, outcomes[i].Held, outcomes[i].Apply = true, true,
					fleet.ApplyHeld
				hold.Items = append(hold.Items, outcomes[i].Key)
			}
		}
		f.Merge.Holds = []fleet.Hold{hold}
		return f, outcomes
	},
	"merged-differing": func(t *testing.T) (Facts, []fleet.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		f.Merge.Effects[0].Hash = "another"
		for i := range outcomes {
			if outcomes[i].Key == f.Merge.Effects[0].Key {
				outcomes[i].Hash = "another"
			}
		}
		gone := fleet.Effect{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: "acme-cart-prod-x"}, Tenant: "acme", Environment: "prod", Deployment: "cart",
			Deletes: true}
		f.Merge.Effects = append(f.Merge.Effects, gone)
		f.Merge.Holds = []fleet.Hold{{Revision: merge, Reason: "unreviewed", Tenant: "acme",
			Message: "nobody reviewed this: no merged pull request of the revision showed it",
			Items:   []fleet.ObjectKey{gone.Key}}}
		return f, append(outcomes, fleet.Outcome{Key: gone.Key, Present: true, Held: true,
			Apply: fleet.ApplyHeld, Revision: base})
	},
}

func TestAResultIsNotSettledWhileAFileOfItIsHeld(t *testing.T) {
	for name, of := range map[string]string{
		"the tenant's":   "tenants/acme/deployments/checkout.yaml",
		"the platform's": "fleet/fleet.yaml", "none": ""} {
		f, outcomes := mergedOf(t, bumped)
		for i := range outcomes {
			outcomes[i].Hash = "as it was applied before"
		}
		if of != "" {
			f.Merge.Holds = []fleet.Hold{
				{Revision: merge, Reason: fleet.HoldUnreviewed, Tenant: "acme",
					Message: "nobody reviewed this", Paths: []string{of}}}
		}
		r := Result(f, outcomes, MostComment)
		inspect(t, f.Link, r.Text)
		told := strings.Contains(r.Text, "nobody reviewed its file") && strings.Contains(r.Text,
			of) && strings.Contains(r.Text, "argosy approve "+string(merge))
		if r.Settled == (of != "") || told != (of != "") {
			t.Errorf("%s: settled %v\n%s", name, r.Settled, r.Text)
		}
	}
}

func TestResults(t *testing.T) {
	for name, facts := range results {
		t.Run(name, func(t *testing.T) {
			f, outcomes := facts(t)
			r := Result(f, outcomes, MostComment)
			inspect(t, f.Link, r.Text)
			slices.Reverse(outcomes)
			if again := Result(f, outcomes, MostComment); again != r {
				t.Error("the same facts gave another text")
			}
			if want := name == "merged-healthy"; r.Settled != want {
				t.Errorf("settled: %v", r.Settled)
			}
			golden(t, name+".md", r.Text+"\nverdict: "+r.Line+"\n")
		})
	}
}

func TestHowAnApplicationStands(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fleet.Outcome)
		says    string
		settled bool
	}{
		"well": {func(*fleet.Outcome) {}, "Synced, Healthy at `4f1c9e2a`",
			true},
		"a tag as its revision": {func(o *fleet.Outcome) { o.SyncedRevision = "v1.5.0" },
			"at `v1.5.0`", true},
		"suspended": {func(o *fleet.Outcome) { o.Health = fleet.HealthSuspended },
			"Synced, Suspended", true},
		"not applied yet": {func(o *fleet.Outcome) { o.Apply = fleet.ApplyPending },
			"waits for its engine", false},
		"said before it was taken": {func(o *fleet.Outcome) { o.Stale = true }, "has yet to say",
			false},
		"refused": {
			func(o *fleet.Outcome) {
				o.Apply, o.ApplyMessage = fleet.ApplyFailed, "denied"
			}, "not taken by its engine: denied", false},
		"in conflict": {func(o *fleet.Outcome) { o.Apply = fleet.ApplyConflict },
			"another manager", false},
		"out of sync": {func(o *fleet.Outcome) { o.Sync = fleet.SyncOutOfSync },
			"OutOfSync, Healthy", false},
		"progressing": {func(o *fleet.Outcome) { o.Health = fleet.HealthProgressing },
			"Synced, Progressing", false},
		"degraded": {
			func(o *fleet.Outcome) {
				o.Health, o.Message = fleet.HealthDegraded, "crash"
			}, "Synced, Degraded at `4f1c9e2a`: crash", false},
		"nothing was said yet": {
			func(o *fleet.Outcome) {
				o.Sync, o.Health, o.SyncedRevision = "", "", ""
			}, "Unknown, Unknown", false},
		"changed since": {func(o *fleet.Outcome) { o.Hash, o.Revision = "x", older },
			"superseded: it is as `0de50de5` has it", true},
		"to be deleted since": {func(o *fleet.Outcome) { o.Unwanted, o.Revision = true, older },
			"superseded: to be deleted by `0de50de5`", true},
		"not there": {func(o *fleet.Outcome) { *o = fleet.Outcome{Key: o.Key} },
			"not there yet", false},
	} {
		f, outcomes := mergedOf(t, bumped)
		c.change(application(t, f, outcomes, "prod"))
		r := Result(f, outcomes, MostComment)
		if !strings.Contains(r.Text, c.says) || r.Settled != c.settled {
			t.Errorf("%s: settled %v\n%s", name, r.Settled, r.Text)
		}
		f.Merge.Over = true
		if over := Result(f, outcomes, MostComment); !over.Settled || strings.Contains(over.Text,
			"not followed any longer") == c.settled {
			t.Errorf("%s, and no longer followed:\n%s", name, over.Text)
		}
	}
}

func TestHowADeletionStands(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fleet.Outcome)
		says    string
		settled bool
	}{
		"gone": {func(*fleet.Outcome) {}, "| deleted |", true},
		"under way": {func(o *fleet.Outcome) {
			o.Present, o.Unwanted, o.Apply = true, true,
				fleet.ApplyDeleting
		}, "is being deleted", false},
		"held": {func(o *fleet.Outcome) { o.Present, o.Held = true, true },
			"**deletion held**", false},
		"fails": {func(o *fleet.Outcome) {
			o.Present, o.Unwanted, o.Apply, o.ApplyMessage = true, true, fleet.ApplyFailed, "denied"
		}, "its deletion fails: denied", false},
		"kept since": {func(o *fleet.Outcome) { o.Present, o.Revision = true, older },
			"superseded: `0de50de5` keeps it", true},
	} {
		f, outcomes := mergedOf(t, purged)
		c.change(&outcomes[3])
		if r := Result(f, outcomes, MostComment); !strings.Contains(r.Text, c.says) ||
			r.Settled != c.settled {
			t.Errorf("%s: settled %v\n%s", name, r.Settled, r.Text)
		}
	}
}

func TestWhatCameIsHeldAgainstWhatWasReviewed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Merge)
		says   string
	}{
		"the same": {func(*Merge) {}, ""},
		"another manifest": {func(m *Merge) { m.Effects[0].Hash = "x" },
			"its manifest is not the one that was reviewed"},
		"a deletion instead": {func(m *Merge) { m.Effects[0].Deletes = true },
			"a change was reviewed, and it is to be deleted"},
		"a deletion that is not": {func(m *Merge) { m.Reviewed.Effects[0].Deletes = true },
			"its deletion was reviewed, and it stays"},
		"one more": {func(m *Merge) { m.Reviewed.Effects = m.Reviewed.Effects[1:] },
			"its change was in no plan that was reviewed"},
		"one less": {func(m *Merge) { m.Effects = m.Effects[1:] },
			"its change was reviewed, and does not come"},
		"never shown": {func(m *Merge) { m.Reviewed = nil }, "Nobody was shown a plan"},
		"a project alone": {func(m *Merge) {
			m.Effects = append(m.Effects, fleet.Effect{
				Key: fleet.ObjectKey{Kind: fleet.ObjectProject}})
		}, ""},
	} {
		f, outcomes := mergedOf(t, bumped)
		c.change(f.Merge)
		text := Result(f, outcomes, MostComment).Text
		differs, stands := strings.Index(text, "What came is not what was reviewed"),
			strings.Index(text, "| what |")
		if (differs >= 0) != (c.says != "") || !strings.Contains(text, c.says) || differs > stands {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestWithoutAPlanOfTheMergeTheRowsTell(t *testing.T) {
	f, outcomes := mergedOf(t, bumped)
	f.Merge.Effects = nil
	if text := Result(f, outcomes, MostComment).Text; strings.Contains(text, "What came") {
		t.Error(text)
	}
	application(t, f, outcomes, "prod").Hash = "another"
	application(t, f, outcomes, "staging").Hash = "another"
	text := Result(f, outcomes, MostComment).Text
	if strings.Count(text, "its manifest is not the one that was reviewed") != 2 {
		t.Error(text)
	}
	slices.Reverse(outcomes)
	if again := Result(f, outcomes, MostComment).Text; again != text {
		t.Errorf("in another order it reads\n%s", again)
	}
}

func TestAMergeOfNothingIsOneLine(t *testing.T) {
	f, _ := planned(t, standingFleet(), standingFleet())
	f.Record.State, f.Merge = fleet.PullMerged, &Merge{Applied: merge}
	if r := Result(f, nil, MostComment); r.Text != Marker+
		"\n\nNothing that Argosy manages changed.\n" || !r.Settled {
		t.Errorf("%q %v", r.Text, r.Settled)
	}
}
