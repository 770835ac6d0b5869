package review

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// mergedOf returns a pull request after its merge, with the reviewed plan and the state of its
// objects.
func mergedOf(t testing.TB, make func(testing.TB) (Facts, []mirror.Effect)) (Facts,
	[]forge.Outcome) {
	f, effects := make(t)
	f.Record.State, f.Record.MergeCommit = forge.PullMerged, merge
	f.Merge = &Merge{Applied: merge, Reviewed: &forge.ReviewedPlan{Number: 7, Base: base,
		Head: head, Hash: f.Plan.Hash, Effects: effects, Touches: f.Files},
		Effects: slices.Clone(effects)}
	var outcomes []forge.Outcome
	for _, e := range effects {
		o := forge.Outcome{Key: e.Key, Present: !e.Deletes, Revision: merge, Hash: e.Hash,
			Apply: mirror.ApplyApplied}
		if e.Key.Kind == fleet.ObjectApplication && !e.Deletes {
			o.Sync, o.Health, o.SyncedRevision = mirror.SyncSynced, mirror.HealthHealthy,
				"4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a4f1c9e2a"
		}
		outcomes = append(outcomes, o)
	}
	return f, outcomes
}

func bumped(t testing.TB) (Facts, []mirror.Effect) {
	f, p := bump(t)
	return f, p.Effects()
}

func purged(t testing.TB) (Facts, []mirror.Effect) {
	f, p := purge(t)
	return f, p.Effects()
}

// application is the outcome of one Application, to be changed.
func application(t testing.TB, f Facts, outcomes []forge.Outcome,
	environment fleet.EnvironmentName) *forge.Outcome {
	t.Helper()
	for _, e := range f.Merge.Reviewed.Effects {
		if e.Environment != environment {
			continue
		}
		if i := slices.IndexFunc(outcomes, func(o forge.Outcome) bool {
			return o.Key == e.Key
		}); i >= 0 {
			return &outcomes[i]
		}
	}
	t.Fatal("no such Application")
	return nil
}

var results = map[string]func(t *testing.T) (Facts, []forge.Outcome){
	"merged": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		f.Merge.Applied = ""
		return f, outcomes
	},
	"merged-in-progress": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		o := application(t, f, outcomes, "prod")
		o.Apply, o.Sync, o.Health = mirror.ApplyPending, mirror.SyncSynced, mirror.HealthHealthy
		f.Engines["eu-1"] = Engine{Since: &noon}
		return f, outcomes
	},
	"merged-healthy": func(t *testing.T) (Facts, []forge.Outcome) { return mergedOf(t, bumped) },
	"merged-failed": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		o := application(t, f, outcomes, "prod")
		o.Health, o.Message = mirror.HealthDegraded,
			"Deployment checkout: ImagePullBackOff for registry.example.com/checkout:v1.5.0"
		return f, outcomes
	},
	"merged-frozen": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, func(t testing.TB) (Facts, []mirror.Effect) {
			f, p := inFreeze(t)
			return f, p.Effects()
		})
		hold := f.Plan.Holds[0]
		hold.Revision = merge
		o := application(t, f, outcomes, "prod")
		o.Held, o.Hash = true, "the hash before"
		hold.Items = []fleet.ObjectKey{o.Key}
		f.Merge.Holds = []mirror.Hold{hold}
		return f, outcomes
	},
	"merged-wave-1":       rolledOut(),
	"merged-wave-2-waits": rolledOut(healthy("staging"), after(soaked)),
	"merged-wave-1-soaks": rolledOut(healthy("staging")),
	"merged-wave-2":       rolledOut(healthy("staging"), after(soaked), approved),
	"merged-waves-returned": rolledOut(healthy("staging"), after(soaked), approved,
		degraded("prod"), after(soaked), healthy("staging", "prod")),
	"merged-waves-done": rolledOut(healthy("staging"), after(soaked), approved,
		healthy("prod")),
	"merged-deletions-held": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, purged)
		hold := mirror.Hold{Revision: merge, Reason: mirror.HoldDeletions, Tenant: "acme",
			Message: f.Plan.Holds[0].Message}
		for i := range outcomes {
			if i%3 > 0 {
				outcomes[i].Present, outcomes[i].Held, outcomes[i].Apply = true, true,
					mirror.ApplyHeld
				hold.Items = append(hold.Items, outcomes[i].Key)
			}
		}
		f.Merge.Holds = []mirror.Hold{hold}
		return f, outcomes
	},
	"merged-differing": func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		f.Merge.Effects[0].Hash = "another"
		for i := range outcomes {
			if outcomes[i].Key == f.Merge.Effects[0].Key {
				outcomes[i].Hash = "another"
			}
		}
		gone := mirror.Effect{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: "acme-cart-prod-x"}, Tenant: "acme", Environment: "prod", Deployment: "cart",
			Deletes: true}
		f.Merge.Effects = append(f.Merge.Effects, gone)
		f.Merge.Holds = []mirror.Hold{{Revision: merge, Reason: "unreviewed", Tenant: "acme",
			Message: "not reviewed: no merged pull request of the revision showed this change",
			Items:   []fleet.ObjectKey{gone.Key}}}
		return f, append(outcomes, forge.Outcome{Key: gone.Key, Present: true, Held: true,
			Apply: mirror.ApplyHeld, Revision: base})
	},
}

func TestAResultIsNotFinalWhileAFileOfItIsHeld(t *testing.T) {
	for name, of := range map[string]string{
		"the tenant's":   "tenants/acme/deployments/checkout.yaml",
		"the platform's": "fleet/fleet.yaml", "none": ""} {
		f, outcomes := mergedOf(t, bumped)
		for i := range outcomes {
			outcomes[i].Hash = "as it was applied before"
		}
		if of != "" {
			f.Merge.Holds = []mirror.Hold{
				{Revision: merge, Reason: mirror.HoldUnreviewed, Tenant: "acme",
					Message: "not reviewed", Paths: []string{of}}}
		}
		r := Result(f, outcomes, MostComment)
		inspect(t, f.Link, r.Text)
		held := strings.Contains(r.Text, "its file is unreviewed") && strings.Contains(r.Text,
			of) && strings.Contains(r.Text, "argosy release "+string(merge))
		if r.Final == (of != "") || held != (of != "") {
			t.Errorf("%s: final %v\n%s", name, r.Final, r.Text)
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
			if want := name == "merged-healthy" || name == "merged-waves-done"; r.Final != want {
				t.Errorf("final: %v", r.Final)
			}
			golden(t, name+".md", r.Text+"\nverdict: "+r.Line+"\n")
		})
	}
}

func TestAReportNamesTheStateOfAnApplication(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*forge.Outcome)
		want   string
		final  bool
	}{
		"well": {func(*forge.Outcome) {}, "Synced, Healthy at `4f1c9e2a`",
			true},
		"a tag as its revision": {func(o *forge.Outcome) { o.SyncedRevision = "v1.5.0" },
			"at `v1.5.0`", true},
		"suspended": {func(o *forge.Outcome) { o.Health = mirror.HealthSuspended },
			"Synced, Suspended", true},
		"not applied yet": {func(o *forge.Outcome) { o.Apply = mirror.ApplyPending },
			"waits for its engine", false},
		"reported before it was applied": {
			func(o *forge.Outcome) { o.Stale = true }, "has not reported its state",
			false},
		"refused": {
			func(o *forge.Outcome) {
				o.Apply, o.ApplyMessage = mirror.ApplyFailed, "denied"
			}, "rejected by its engine: denied", false},
		"in conflict": {func(o *forge.Outcome) { o.Apply = mirror.ApplyConflict },
			"another manager", false},
		"out of sync": {func(o *forge.Outcome) { o.Sync = mirror.SyncOutOfSync },
			"OutOfSync, Healthy", false},
		"progressing": {func(o *forge.Outcome) { o.Health = mirror.HealthProgressing },
			"Synced, Progressing", false},
		"of a silent engine": {
			func(o *forge.Outcome) {
				o.Sync, o.Health, o.LastSeenAt = mirror.SyncUnknown, mirror.HealthUnknown, &noon
			}, "Unknown: engine `eu-1` or its cluster was last seen at 2026-11-20 12:00 UTC",
			false},
		"not applied yet by a silent engine": {
			func(o *forge.Outcome) { o.Apply, o.LastSeenAt = mirror.ApplyPending, &noon },
			"waits: engine `eu-1` or its cluster was last seen", false},
		"degraded": {
			func(o *forge.Outcome) {
				o.Health, o.Message = mirror.HealthDegraded, "crash"
			}, "Synced, Degraded at `4f1c9e2a`: crash", false},
		"nothing was reported yet": {
			func(o *forge.Outcome) {
				o.Sync, o.Health, o.SyncedRevision = "", "", ""
			}, "Unknown, Unknown", false},
		"changed since": {func(o *forge.Outcome) { o.Hash, o.Revision = "x", older },
			"superseded: it is as `0de50de5` has it", true},
		"to be deleted since": {func(o *forge.Outcome) { o.Unwanted, o.Revision = true, older },
			"superseded: to be deleted by `0de50de5`", true},
		"not there": {func(o *forge.Outcome) { *o = forge.Outcome{Key: o.Key} },
			"not there yet", false},
	} {
		f, outcomes := mergedOf(t, bumped)
		c.change(application(t, f, outcomes, "prod"))
		r := Result(f, outcomes, MostComment)
		if !strings.Contains(r.Text, c.want) || r.Final != c.final {
			t.Errorf("%s: final %v\n%s", name, r.Final, r.Text)
		}
		f.Merge.Over = true
		if over := Result(f, outcomes, MostComment); !over.Final || strings.Contains(over.Text,
			"no longer follows") == c.final {
			t.Errorf("%s, and no longer followed:\n%s", name, over.Text)
		}
	}
}

func TestAReportNamesTheStateOfADeletion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*forge.Outcome)
		want   string
		final  bool
	}{
		"gone": {func(*forge.Outcome) {}, "| deleted |", true},
		"under way": {func(o *forge.Outcome) {
			o.Present, o.Unwanted, o.Apply = true, true,
				mirror.ApplyDeleting
		}, "is being deleted", false},
		"held": {func(o *forge.Outcome) { o.Present, o.Held = true, true },
			"**deletion held**", false},
		"fails": {func(o *forge.Outcome) {
			o.Present, o.Unwanted, o.Apply, o.ApplyMessage = true, true, mirror.ApplyFailed,
				"denied"
		}, "its deletion fails: denied", false},
		"kept since": {func(o *forge.Outcome) { o.Present, o.Revision = true, older },
			"superseded: `0de50de5` keeps it", true},
	} {
		f, outcomes := mergedOf(t, purged)
		c.change(&outcomes[3])
		if r := Result(f, outcomes, MostComment); !strings.Contains(r.Text, c.want) ||
			r.Final != c.final {
			t.Errorf("%s: final %v\n%s", name, r.Final, r.Text)
		}
	}
}

func TestWhatCameIsHeldAgainstWhatWasReviewed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Merge)
		want   string
	}{
		"the same": {func(*Merge) {}, ""},
		"another manifest": {func(m *Merge) { m.Effects[0].Hash = "x" },
			"its manifest is not the one that was reviewed"},
		"a deletion instead": {func(m *Merge) { m.Effects[0].Deletes = true },
			"a change was reviewed, and it will be deleted"},
		"a deletion that is not": {func(m *Merge) { m.Reviewed.Effects[0].Deletes = true },
			"its deletion was reviewed, and it stays"},
		"one more": {func(m *Merge) { m.Reviewed.Effects = m.Reviewed.Effects[1:] },
			"its change was in no plan that was reviewed"},
		"one less": {func(m *Merge) { m.Effects = m.Effects[1:] },
			"its change was reviewed, and does not come"},
		"never shown": {
			func(m *Merge) { m.Reviewed = nil }, "No plan of the merged head was shown"},
		"a project alone": {func(m *Merge) {
			m.Effects = append(m.Effects, mirror.Effect{
				Key: fleet.ObjectKey{Kind: fleet.ObjectProject}})
		}, ""},
	} {
		f, outcomes := mergedOf(t, bumped)
		c.change(f.Merge)
		text := Result(f, outcomes, MostComment).Text
		differs, table := strings.Index(text, "What came is not what was reviewed"),
			strings.Index(text, "| what |")
		if (differs >= 0) != (c.want != "") || !strings.Contains(text, c.want) || differs > table {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestWithoutAPlanOfTheMergeTheRowsShowTheDifferences(t *testing.T) {
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
	f, _ := planned(t, appliedFleet(), appliedFleet())
	f.Record.State, f.Merge = forge.PullMerged, &Merge{Applied: merge}
	if r := Result(f, nil, MostComment); r.Text != Marker+
		"\n\nNothing that Argosy manages changed.\n" || !r.Final {
		t.Errorf("%q %v", r.Text, r.Final)
	}
}
