package review

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

var update = flag.Bool("update", false, "write the golden files of testdata again")

// scenarios are pull requests as people meet them, each with the comment that they get in
// testdata/<name>.md.
var scenarios = map[string]func(t *testing.T) Facts{
	"clean": func(t *testing.T) Facts {
		f, _ := bump(t)
		return f
	},
	"ready": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Reviews = []forge.Review{approval(bob, noon)}
		return f
	},
	"ring": func(t *testing.T) Facts {
		f, _ := planned(t, ringFleet("2.14.21", "2.14.21"), ringFleet("3.5.7", "3.5.7"))
		f.Rendered = []mirror.Rendered{
			{Ring: "canary", Digest: ringDigest("3.5.7"), Applications: 40, Differences: 3,
				Pending: 1},
			{Ring: "stable", Digest: ringDigest("2.14.21"), Applications: 7, Differences: 7}}
		return f
	},
	"ring-first": func(t *testing.T) Facts {
		f, _ := planned(t, appliedFleet(), ringFleet("3.5.7", "2.14.21"))
		return f
	},
	"ring-unchecked": func(t *testing.T) Facts {
		f, _ := planned(t, ringFleet("2.14.21", "2.14.21"), ringFleet("2.14.21", "3.5.7").edit(
			"fleet/fleet.yaml", "version: 3.5.7,",
			"version: 3.5.7, atOnce: 2, gates: {skipShadow: true},"))
		return f
	},
	"not-ours": func(t *testing.T) Facts {
		f, _ := planned(t, appliedFleet(), appliedFleet())
		return f
	},
	"typo": func(t *testing.T) Facts {
		before := appliedFleet()
		after := before.edit("tenants/acme/deployments/checkout.yaml", "targetRevision",
			"targetRevison").
			edit("tenants/acme/deployments/cart.yaml", "v2.0.0", "v2.1.0")
		f, _ := planned(t, before, after)
		return f
	},
	"new-tenant": func(t *testing.T) Facts {
		after := appliedFleet().with("fleet/tenants/initech.yaml", tenantFile("initech")).
			with("tenants/initech/environments/prod.yaml",
				strings.ReplaceAll(environmentFile("prod", "eu"), "prod.eu", "initech.eu")).
			with("tenants/initech/deployments/tps.yaml", deploymentFile("tps", "initech", "v1",
				"prod"))
		f, _ := planned(t, appliedFleet(), after)
		f.Record.Author = carol
		f.Record.Consents = []forge.Clearance{{By: carol, Head: head, At: noon}}
		return f
	},
	"environment": func(t *testing.T) Facts {
		before := appliedFleet()
		after := before.with("tenants/acme/environments/prod-us.yaml",
			environmentFile("prod-us", "us")).
			edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]",
				"[prod, staging, prod-us]").
			without("tenants/acme/deployments/cart.yaml")
		f, p := planned(t, before, after)
		f.Outcomes = map[fleet.ObjectKey]forge.Outcome{}
		for _, e := range p.Effects() {
			f.Outcomes[e.Key] = forge.Outcome{Key: e.Key, Present: e.Deletes,
				Apply: mirror.ApplyFailed}
		}
		seen := noon.Add(-3 * time.Hour)
		f.Engines["us-1"] = Engine{State: fleet.EngineCordoned, Reachable: true, Agent: &Agent{
			Joined: true, LastSeen: &seen}}
		f.Engines["eu-1"] = Engine{State: fleet.EngineActive, Reachable: false, Since: &seen}
		return f
	},
	"agent": func(t *testing.T) Facts {
		f, seen := factory(t), noon.Add(-3*time.Hour)
		f.Engines["acme.berlin"] = Engine{
			Reachable: true, Agent: &Agent{Joined: true, LastSeen: &seen}}
		return f
	},
	"agent-connected": func(t *testing.T) Facts {
		f, seen := factory(t), noon.Add(-3*time.Second)
		f.Engines["acme.berlin"] = Engine{
			Reachable: true, Agent: &Agent{Joined: true, Connected: true, LastSeen: &seen}}
		return f
	},
	"agent-none": func(t *testing.T) Facts {
		f := factory(t)
		f.Engines["acme.berlin"] = Engine{Reachable: true, Agent: &Agent{}}
		return f
	},
	"deletions": func(t *testing.T) Facts {
		f, p := purge(t)
		f.Outcomes = map[fleet.ObjectKey]forge.Outcome{}
		for _, e := range p.Effects() { // deletions have no outcome
			f.Outcomes[e.Key] = forge.Outcome{Key: e.Key, Present: true, Sync: mirror.SyncOutOfSync,
				Health: mirror.HealthMissing}
		}
		f.Reviews = []forge.Review{approval(alice, noon)}
		return f
	},
	"deletions-approved": func(t *testing.T) Facts {
		f, _ := purge(t)
		f.Reviews = []forge.Review{approval(alice, noon)}
		f.Record, _ = Judge(Command{Word: "approve-deletions", Args: []string{string(head)}},
			forge.Clearance{By: bob, Head: head, At: noon}, RightsOf(bob, f), f.Record)
		return f
	},
	"fork": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Record.Fork, f.Plan = true, nil
		f.Record.Author = mallet
		return f
	},
	"conflict": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Conflicts, f.Plan = []string{"tenants/acme/deployments/checkout.yaml"}, nil
		return f
	},
	"crossed": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Files, f.Problems, f.Plan, f.Base = nil, nil, nil, ""
		f.Reviews = []forge.Review{approval(bob, noon)}
		f.Unmergeable =
			"more than one merge base: rebase onto main and push again; this head and main have " +
				"2 merge bases (111111111111, " +
				"222222222222), so no comparison shows what the merge would change"
		return f
	},
	"collision": func(t *testing.T) Facts {
		f, p := bump(t)
		f.Collisions = []forge.Collision{{Number: 12, Touches: f.Files},
			{Number: 9, Touches: f.Files}}
		f.Outcomes = map[fleet.ObjectKey]forge.Outcome{}
		for _, e := range p.Effects() {
			if e.Environment == "prod" {
				f.Outcomes[e.Key] = forge.Outcome{Key: e.Key, Present: true,
					Sync: mirror.SyncOutOfSync, Health: mirror.HealthDegraded,
					Message: "deployment \"checkout\" exceeded its progress deadline"}
			}
		}
		f.Stops = []mirror.Stop{{Scope: mirror.StopTenant, Name: "acme", By: "token:ops",
			Reason: "incident 4711", At: noon}}
		return f
	},
	"two-tenants": func(t *testing.T) Facts {
		before := appliedFleet()
		after := before.edit("tenants/acme/deployments/cart.yaml", "v2.0.0", "v2.1.0").edit(
			"tenants/globex/deployments/web.yaml", "v7", "v8")
		f, _ := planned(t, before, after)
		f.Reviews = []forge.Review{approval(bob, noon),
			{Author: mallet, State: forge.ReviewApproved, Head: head, At: noon}}
		return f
	},
	"held": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Reviews = []forge.Review{approval(bob, noon)}
		f.Record = commented(f, bob, "/argosy lock")
		f.Record = commented(f, mallet, "/argosy unlock")
		f.Record = commented(f, mallet, "/argosy aprove 1a2b3c4")
		f.Record = commented(f, alice, "/argosy help")
		return f
	},
	"behind": func(t *testing.T) Facts {
		f, _ := bump(t)
		f.Behind = true
		f.Reviews = []forge.Review{{Author: bob, State: forge.ReviewApproved, Head: older,
			At: noon}, {Author: alice, State: forge.ReviewChanges, Head: head, At: noon}}
		return f
	},
	"defaults": func(t *testing.T) Facts {
		before := appliedFleet()
		f, _ := planned(t, before, before.edit("fleet/fleet.yaml", "spec:\n",
			"spec:\n  defaults: {sync: {prune: false}}\n"))
		return f
	},
	"frozen": func(t *testing.T) Facts {
		f, _ := inFreeze(t)
		return f
	},
	"moved": func(t *testing.T) Facts {
		f, _ := bump(t)
		r := *f.Plan
		r.Counts, r.Tenants = report.Counts{}, slices.Clone(r.Tenants)
		row := func(a report.Action) []report.Change {
			return []report.Change{{Action: a, Kind: fleet.ObjectCluster, Subject: "prod",
				Object: "c"}, {Action: a, Kind: fleet.ObjectApplication, Subject: "cart@prod",
				Object: "a"}}
		}
		r.Tenants[0].Engines = []report.Engine{{Name: "eu-1", Changes: row(report.Delete)},
			{Name: "eu-2", Changes: row(report.Create)}}
		r.Tenants[0].Moves = []report.Move{
			{Environment: "prod", From: "eu-1", To: "eu-2", Applications: 1}}
		r.Tenants[0].Syncs = []report.Sync{
			{SyncRun: "rollback", Application: "cart@staging", Engine: "eu-1", Revision: "v1.9.0"}}
		f.Plan, f.Link = &r, ""
		f.Stops = []mirror.Stop{{Scope: mirror.StopEngine, Name: "eu-2", At: noon}}
		return f
	},
	"orphan": func(t *testing.T) Facts {
		before := appliedFleet()
		before["tenants/acme/deployments/cart.yaml"] += "  deletionPolicy: Orphan\n"
		f, _ := planned(t, before, before.without("tenants/acme/deployments/c"))
		return f
	},
	"medium": func(t *testing.T) Facts {
		before := appliedFleet().edit("fleet/tenants/acme.yaml",
			"deployments: 20, applications: 50", "deployments: 200, applications: 200").jobs(120)
		after := before.without("tenants/acme/deployments/c")
		for path, text := range before {
			if strings.Contains(path, "/job-") {
				after = after.with(path, strings.Replace(text, "targetRevision: v1",
					"targetRevision: v2", 1))
			}
		}
		f, _ := planned(t, before, after)
		return f
	},
	"huge": func(t *testing.T) Facts {
		before := appliedFleet().edit("fleet/tenants/acme.yaml",
			"deployments: 20, applications: 50", "deployments: 1600, applications: 1600").jobs(
			1500).edit("fleet/engines/eu-1.yaml", "applications: 1500", "applications: 2000")
		after := before
		for path, text := range before {
			if strings.Contains(path, "/job-") {
				after = after.with(path, strings.Replace(text, "targetRevision: v1",
					"targetRevision: v2", 1))
			}
		}
		f, _ := planned(t, before, after)
		return f
	},
}

// factory is a pull request that declares a cluster of its own, which an agent serves, and deploys
// to it.
func factory(t *testing.T) Facts {
	before := appliedFleet()
	factory := strings.Replace(environmentFile("berlin", "eu"), "cluster: ", "agent: {} # ", 1)
	f, _ := planned(t, before, before.with("tenants/acme/environments/berlin.yaml", factory).
		edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]",
			"[prod, staging, berlin]"))
	return f
}

// commented returns a record after one more comment.
func commented(f Facts, p forge.Person, body string) forge.PullRecord {
	commands, newest := Commands([]forge.Comment{
		{ID: f.Record.Commented + 1, Author: p, Body: body, At: noon}}, f.Record)
	record, _ := Judge(commands[0].Command, commands[0].By, RightsOf(p, f), f.Record)
	record.Commented = newest
	return record
}

func TestComments(t *testing.T) {
	for name, facts := range scenarios {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			v := Decide(f)
			text := Comment(f, v, MostComment)
			inspect(t, f.Link, text)
			if again := Comment(f, Decide(f), MostComment); again != text {
				t.Error("the same facts gave another text")
			}
			golden(t, name+".md", text)
			golden(t, name+".checks.md", checksText(t, f, v))
		})
	}
}

func checksText(t *testing.T, f Facts, v Verdict) string {
	var b strings.Builder
	for _, c := range v.Checks {
		fmt.Fprintf(&b, "%s %s: %s\n", c.Name, c.State, c.Title)
		for _, a := range c.Annotations {
			fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(a.String(), "\n", " "))
		}
		if c.Summary != "" {
			inspect(t, f.Link, c.Summary)
		}
	}
	fmt.Fprintf(&b, "\nverdict: %s\n\n", v.Line)
	for _, c := range v.Checks {
		if len(c.Summary) < 4000 {
			fmt.Fprintf(&b, "## %s\n\n%s\n", c.Name, c.Summary)
		}
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s (run with -update if it is meant):\n%s", name, got)
	}
}
