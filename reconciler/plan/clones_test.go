package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

const (
	acmeCharts       = "tenants/acme/deployments/charts.yaml"
	globexCharts     = "tenants/globex/deployments/charts.yaml"
	acmeCredential   = "tenants/acme/credentials/charts.yaml"
	globexCredential = "tenants/globex/credentials/charts.yaml"
)

// neighbours has tenants acme and globex on eu-1. Both may read shared/charts, and neither does.
func neighbours() tree {
	return oneEngine().with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
		with("tenants/globex/environments/edge.yaml",
			environmentFile("edge", "eu", "tier: dev", "app")).
		with("tenants/globex/deployments/site.yaml",
			deploymentFile("site", "globex/site", "environments: [edge]", ""))
}

// restartedAt records when the platform replaced the Pods of eu-1's repo-server.
func (t tree) restartedAt(at time.Time) tree {
	return t.with("fleet/engines/eu-1.yaml", engineFile("eu-1", "eu", fmt.Sprintf(
		"  repoServerRestartedAt: %q\n", at.UTC().Format(time.RFC3339))))
}

func (t tree) acmeReads() tree {
	return t.with(acmeCharts, deploymentFile("charts", "shared/charts", "environments: [prod]", ""))
}

// globexReads spells the repository differently: Argo CD takes it for the same one.
func (t tree) globexReads() tree {
	return t.with(globexCharts,
		deploymentFile("charts", "shared/Charts.git", "environments: [edge]", ""))
}

func (t tree) acmeHasCredential() tree {
	return t.with(acmeCredential, credentialFile("charts", "shared/charts"))
}

func (t tree) globexHasCredential() tree {
	return t.with(globexCredential, credentialFile("charts", "shared/"))
}

// shared has the platform share a repository or folder.
func (t tree) shared(urls string) tree {
	return t.with("fleet/fleet.yaml", fleetFile("  sharedRepositories: ["+urls+"]\n"))
}

// wantRejectedFiles expects that the declarations in some files are rejected, and no others: with
// the field, the repository and what to do, and without the name of another tenant.
func wantRejectedFiles(t *testing.T, h *house, p *Plan, files ...string) {
	t.Helper()
	var got []string
	for _, k := range h.w.state.Catalog.SharingClones() {
		q, _ := h.w.state.Catalog.Quarantine(k)
		got = append(got, q.Path)
		for _, problem := range q.Problems {
			other := "acme"
			if k.Tenant == "acme" {
				other = "globex"
			}
			text := problem.Message + problem.Fix
			if problem.Code != catalog.CodeSharedClone || problem.Path != q.Path ||
				problem.Field == "" || strings.Contains(text, other) ||
				!strings.Contains(text, "https://git.example.com/shared/charts") ||
				!strings.Contains(text, "sharedRepositories") {
				t.Errorf("%+v", problem)
			}
		}
	}
	if strings.Join(got, " ") != strings.Join(files, " ") {
		t.Errorf("%v are rejected, not %v", got, files)
	}
	if p.Counts.Deleted != 0 {
		t.Errorf("deletes\n%s", actions(p))
	}
}

func (h *house) deploys(t *testing.T, app string, want bool) {
	t.Helper()
	if _, does := h.applications()[app]; does != want {
		t.Errorf("%s is deployed: %t", app, does)
	}
}

func TestATenantThatWouldShareACloneIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		before, after tree
		rejected      []string
	}{
		"without a credential, beside one with": {
			neighbours().acmeReads().acmeHasCredential(),
			neighbours().acmeReads().acmeHasCredential().globexReads(),
			[]string{globexCharts}},
		"with a credential, beside one with": {
			neighbours().acmeReads().acmeHasCredential(),
			neighbours().acmeReads().acmeHasCredential().globexReads().globexHasCredential(),
			[]string{globexCharts}},
		"with a credential, beside one without": {
			neighbours().acmeReads(),
			neighbours().acmeReads().globexReads().globexHasCredential(),
			[]string{globexCharts}},
		"both at once": {
			neighbours(),
			neighbours().acmeReads().acmeHasCredential().globexReads(),
			[]string{acmeCharts, globexCharts}},
		"by a credential that comes later": {
			neighbours().acmeReads().globexReads(),
			neighbours().acmeReads().globexReads().acmeHasCredential(),
			[]string{acmeCredential}},
		"by a credential for the folder that comes later": {
			neighbours().acmeReads().globexReads(),
			neighbours().acmeReads().globexReads().globexHasCredential(),
			[]string{globexCredential}},
		"by one of several sources": {
			neighbours().acmeReads().acmeHasCredential(),
			neighbours().acmeReads().acmeHasCredential().with(globexCharts, severalSources(
				deploymentFile("charts", "globex/site", "environments: [edge]", ""),
				"shared/charts")),
			[]string{globexCharts}},
		"by a label of its environment": {
			neighbours().acmeReads().acmeHasCredential().with(globexCharts, deploymentFile("charts",
				"shared/charts", "environmentSelector: {matchLabels: {tier: prod}}", "")),
			neighbours().acmeReads().acmeHasCredential().with(globexCharts, deploymentFile("charts",
				"shared/charts", "environmentSelector: {matchLabels: {tier: prod}}", "")).
				edit("tenants/globex/environments/edge.yaml", "tier: dev", "tier: prod"),
			[]string{"tenants/globex/environments/edge.yaml"}},
		"without any credential": {
			neighbours().acmeReads(), neighbours().acmeReads().globexReads(), nil},
		"the platform shares the repository": {
			neighbours().acmeReads().acmeHasCredential(),
			neighbours().acmeReads().acmeHasCredential().globexReads().
				shared(`"https://git.example.com/shared/charts.git"`), nil},
		"the platform shares the folder": {
			neighbours().acmeReads().globexReads().shared(`"https://git.example.com/shared/"`),
			neighbours().acmeReads().globexReads().shared(`"https://git.example.com/shared/"`).
				acmeHasCredential().globexHasCredential(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(neighbours())
			h.apply(c.before)
			p := h.apply(c.after)
			wantRejectedFiles(t, h, p, c.rejected...)
			for _, pl := range h.w.state.Placements.Base() {
				if pl.Engine != "eu-1" || pl.Misplaced != "" {
					t.Errorf("%+v", pl)
				}
			}
			h.restart()
			again := h.again()
			wantRejectedFiles(t, h, again, c.rejected...)
			wantActions(t, again)
		})
	}
}

func TestARejectedReaderComesIn(t *testing.T) {
	taken := neighbours().acmeReads().acmeHasCredential()
	for name, free := range map[string]func(*house){
		"when the other no longer reads the repository": func(h *house) {
			h.apply(h.files.without(acmeCharts))
			h.work()
			h.apply(h.files.restartedAt(h.now.Add(time.Hour)))
		},
		"when the other has no credential any more": func(h *house) {
			h.apply(h.files.without(acmeCredential))
			h.work()
			h.apply(h.files.restartedAt(h.now.Add(time.Hour)))
		},
		"when the platform shares the repository": func(h *house) {
			h.apply(h.files.shared(`"https://git.example.com/shared/charts"`))
		},
		"when its own environment moves": func(h *house) {
			h.apply(h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")))
			edge := fleet.EnvironmentID{Tenant: "globex", Name: "edge"}
			h.again(func(r *Request) {
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{edge.Whole(): {To: "eu-2"}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(neighbours())
			h.apply(taken)
			p := h.apply(taken.globexReads())
			wantRejectedFiles(t, h, p, globexCharts)
			h.deploys(t, "charts@edge", false)
			h.restart()
			free(h)
			if left := h.w.state.Catalog.SharingClones(); len(left) != 0 {
				t.Errorf("%v are still rejected", left)
			}
			h.deploys(t, "charts@edge", true)
		})
	}
}

// A clone outlives the tenant that read it, until the repo-server's Pods are replaced.
func TestACloneThatATenantLeftKeepsOthersOut(t *testing.T) {
	left := func(h *house) {
		h.apply(h.files.without(acmeCharts))
		h.work()
	}
	for name, c := range map[string]struct {
		leave func(*house)
		ready func(*house) // before globex begins to read
		in    bool
	}{
		"its deployment is removed": {leave: left},
		"its credential is removed": {leave: func(h *house) {
			h.apply(h.files.without(acmeCredential))
		}},
		"both are removed": {leave: func(h *house) {
			h.apply(h.files.without(acmeCharts).without(acmeCredential))
			h.work()
		}},
		"its environment moves": {leave: func(h *house) {
			h.apply(h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")))
			prod := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
			h.again(func(r *Request) {
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{prod.Whole(): {To: "eu-2"}}
			})
			h.work()
		}},
		"a restart while Argo CD has the Secret": {leave: func(h *house) {
			h.apply(h.files.without(acmeCredential))
		}, ready: func(h *house) {
			h.apply(h.files.restartedAt(h.now.Add(time.Minute)))
			h.work()
		}},
		"a restart before Argo CD lost the Secret": {leave: func(h *house) {
			h.apply(h.files.without(acmeCredential))
			restart := h.now.Add(time.Minute)
			h.now = h.now.Add(time.Hour)
			h.work()
			h.apply(h.files.restartedAt(restart))
		}},
		"a restart before it left": {leave: left, ready: func(h *house) {
			h.apply(h.files.restartedAt(h.now.Add(-time.Minute)))
		}},
		"a restart after it left": {leave: left, in: true, ready: func(h *house) {
			h.apply(h.files.restartedAt(h.now.Add(time.Minute)))
		}},
		"the platform shares the repository": {leave: left, in: true, ready: func(h *house) {
			h.apply(h.files.shared(`"https://git.example.com/shared/charts"`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(neighbours())
			h.apply(h.files.acmeReads().acmeHasCredential())
			c.leave(h)
			h.restart()
			if c.ready != nil {
				c.ready(h)
			}
			p := h.apply(h.files.globexReads())
			if c.in {
				wantRejectedFiles(t, h, p)
			} else {
				wantRejectedFiles(t, h, p, globexCharts)
				if t.Failed() {
					return
				}
				q, _ := h.w.state.Catalog.Quarantine(h.w.state.Catalog.SharingClones()[0])
				if !strings.Contains(q.Problems[0].Fix,
					"spec.repoServerRestartedAt of fleet/engines/eu-1.yaml") {
					t.Errorf("%+v", q.Problems)
				}
			}
			h.deploys(t, "charts@edge", c.in)
			h.restart()
			wantActions(t, h.again())
		})
	}
}

// A tenant that gets the name of a removed one is another tenant.
func TestATenantOfAFormerNameDoesNotGetItsClone(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().acmeHasCredential())
	rest := h.files
	for path := range h.files {
		if strings.HasPrefix(path, "tenants/acme/") {
			rest = rest.without(path)
		}
	}
	h.apply(rest)
	h.work()
	h.apply(rest.without("fleet/tenants/acme.yaml"))
	h.restart()
	if h.w.state.Catalog.Tenant("acme") != nil {
		t.Fatal("the tenant stays")
	}
	p := h.apply(neighbours().acmeReads())
	if got := h.engineOf("acme", "prod"); got != "" {
		t.Errorf("it is on %s\n%s", got, actions(p))
	}
	h.apply(h.files.restartedAt(h.now.Add(time.Minute)))
	if got := h.engineOf("acme", "prod"); got != "eu-1" {
		t.Errorf("it is on %q", got)
	}
}

// The tenant that left its clone may come back, and readers without credentials leave none.
func TestACloneKeepsNoReaderOutWhoMayReadIt(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours())
	h.apply(h.files.acmeReads().acmeHasCredential())
	h.apply(h.files.without(acmeCharts))
	h.work()
	p := h.apply(h.files.acmeReads())
	wantRejectedFiles(t, h, p)
	h.deploys(t, "charts@prod", true)

	h = newHouse(t)
	h.apply(neighbours())
	h.apply(h.files.acmeReads())
	h.apply(h.files.without(acmeCharts))
	h.work()
	p = h.apply(h.files.globexReads().globexHasCredential())
	wantRejectedFiles(t, h, p)
	h.deploys(t, "charts@edge", true)
}

// An environment goes to an engine without the clone.
func TestANewEnvironmentAvoidsAClone(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().acmeHasCredential())
	h.apply(h.files.without(acmeCharts))
	h.work()
	p := h.apply(h.files.with("tenants/globex/environments/far.yaml",
		environmentFile("far", "eu", "", "app")).with("tenants/globex/deployments/far.yaml",
		deploymentFile("far", "shared/charts", "environments: [far]", "")))
	for _, pl := range p.Placements {
		if pl.Engine != "" || strings.Contains(pl.Reason, "acme") ||
			!strings.Contains(pl.Reason, "a clone of https://git.example.com/shared/charts") {
			t.Errorf("%+v", pl)
		}
	}
	h.apply(h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")))
	if got := h.engineOf("globex", "far"); got != "eu-2" {
		t.Errorf("it is on %q", got)
	}
}

func TestARejectedReaderWithACredentialComesIn(t *testing.T) {
	for name, free := range map[string]func(tree) tree{
		"when it has no credential any more": func(t tree) tree {
			return t.without(globexCredential)
		},
		"when the other no longer reads the repository": func(t tree) tree {
			return t.edit(acmeCharts, "shared/charts", "acme/charts")
		},
		"when the platform shares the folder": func(t tree) tree {
			return t.shared(`"https://git.example.com/shared/"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(neighbours().acmeReads())
			p := h.apply(h.files.globexReads().globexHasCredential())
			wantRejectedFiles(t, h, p, globexCharts)
			h.apply(free(h.files))
			h.deploys(t, "charts@edge", true)
		})
	}
}

func TestARejectedCredentialComesInWhenTheOtherReaderLeaves(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().globexReads())
	p := h.apply(h.files.acmeHasCredential())
	wantRejectedFiles(t, h, p, acmeCredential)
	p = h.apply(h.files.edit(globexCharts, "shared/Charts.git", "globex/charts"))
	if left := h.w.state.Catalog.SharingClones(); len(left) != 0 ||
		!strings.Contains(actions(p), "create Repository") {
		t.Errorf("%v\n%s", left, actions(p))
	}
}

// An Application keeps its last good form when its newer form is rejected.
func TestARejectedChangeKeepsWhatRuns(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().acmeHasCredential().with(globexCharts,
		deploymentFile("charts", "globex/charts", "environments: [edge]", "")))
	p := h.apply(h.files.globexReads())
	wantRejectedFiles(t, h, p, globexCharts)
	wantActions(t, p)
	if got := h.applications()["charts@edge"].Sources[0].RepoURL; !strings.HasSuffix(got,
		"globex/charts") {
		t.Errorf("reads %s", got)
	}
}

// Readers of a repository that the platform no longer shares go on, and are reported.
func TestReadersOfARepositoryThatIsNoLongerSharedAreMisplaced(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours())
	h.apply(neighbours().acmeReads().acmeHasCredential().globexReads().
		shared(`"https://git.example.com/shared/charts"`))
	p := h.apply(neighbours().acmeReads().acmeHasCredential().globexReads())
	wantRejectedFiles(t, h, p)
	misplaced := map[fleet.TenantName]bool{}
	for _, pl := range p.Placements {
		misplaced[pl.Environment.Tenant] = strings.Contains(pl.Misplaced, "shared/charts")
	}
	if !misplaced["acme"] || !misplaced["globex"] {
		t.Errorf("%+v", p.Placements)
	}
	h.deploys(t, "charts@edge", true)
	h.restart()
	if p := h.apply(h.files.without(acmeCredential)); len(p.Placements) != 2 ||
		p.Placements[0].Misplaced != "" {
		t.Errorf("it is over: %+v", p.Placements)
	}
}

// An earlier version has let both in.
func TestReadersOfAnEarlierVersionAreMisplacedAfterARestart(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().globexReads())
	h.apply(h.files.acmeHasCredential().shared(`"https://git.example.com/shared/charts"`))
	stored := h.snapshot()
	for i, d := range stored.Declarations {
		if d.Fleet != nil {
			stored.Declarations[i].Fleet = &fleet.FleetSpec{GitHosts: d.Fleet.GitHosts}
		}
	}
	w, err := RestoreAppliedState(stored)
	if err != nil {
		t.Fatal(err)
	}
	h.w = w
	p := h.again()
	if len(p.Placements) != 2 || p.Placements[0].Misplaced == "" ||
		p.Placements[1].Misplaced == "" || len(p.Rows) != 0 {
		t.Errorf("%+v\n%s", p.Placements, actions(p))
	}
	if p := h.again(); len(p.Placements) != 0 {
		t.Errorf("again: %+v", p.Placements)
	}
}

// A rebuilt mirror does not know who read the repository first.
func TestARebuildLetsNoReaderWithoutACredentialIn(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours())
	h.apply(neighbours().acmeReads().acmeHasCredential().globexReads())
	var placements []fleet.Placement
	for _, pl := range h.w.state.Placements.Base() {
		placements = append(placements, pl)
	}
	w, err := RestoreAppliedState(mirror.Snapshot{Placements: placements})
	if err != nil {
		t.Fatal(err)
	}
	rebuilt := newHouse(t)
	rebuilt.w = w
	p := rebuilt.apply(h.files)
	wantRejectedFiles(t, rebuilt, p, globexCharts)
	rebuilt.deploys(t, "charts@prod", true)
	rebuilt.deploys(t, "charts@edge", false)
}

func TestANewEnvironmentGoesWhereNoOtherTenantReadsItsRepository(t *testing.T) {
	taken := small().acmeReads().acmeHasCredential().
		with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
		with("tenants/globex/environments/edge.yaml", environmentFile("edge", "eu", "", "app")).
		globexReads()
	h := newHouse(t)
	h.apply(taken)
	acmes, globexes := h.engineOf("acme", "prod"), h.engineOf("globex", "edge")
	if globexes == "" || acmes == globexes {
		t.Errorf("acme is on %s, globex on %q", acmes, globexes)
	}
	h = newHouse(t)
	p := h.apply(taken.without("fleet/engines/eu-2.yaml"))
	if got := h.engineOf("globex", "edge"); got != "" {
		t.Errorf("globex is on %s", got)
	}
	for _, pl := range p.Placements {
		if pl.Environment.Tenant == "globex" && (strings.Contains(pl.Reason, "acme") ||
			!strings.Contains(pl.Reason, "already serves another tenant that reads "+
				"https://git.example.com/shared/charts")) {
			t.Errorf("reason: %s", pl.Reason)
		}
	}
	if h.apply(h.files.shared(`"https://git.example.com/shared/charts"`)); h.engineOf("globex",
		"edge") != "eu-1" {
		t.Error("a shared repository keeps them apart")
	}
}

// Tenants without credentials share an engine, however many, and a plan visits none of the others.
func TestAPublicRepositoryOfManyTenantsCostsNoPlan(t *testing.T) {
	files := oneEngine()
	for n := range 60 {
		tenant := fmt.Sprintf("t-%d", n)
		files["fleet/tenants/"+tenant+".yaml"] = tenantFile(tenant, "")
		files["tenants/"+tenant+"/environments/"+tenant+".yaml"] = environmentFile(tenant, "eu", "",
			"app")
		files["tenants/"+tenant+"/deployments/charts.yaml"] = deploymentFile("charts",
			"shared/charts", "environments: ["+tenant+"]", "")
	}
	h := newHouse(t)
	h.apply(files)
	if h.engineOf("t-59", "t-59") != "eu-1" {
		t.Fatal("tenants without credentials are kept apart")
	}
	p := h.apply(h.files.acmeReads())
	if len(p.Placements) != 0 || len(p.Rows) != 2 { // the Application and acme's AppProject
		t.Errorf("%+v\n%s", p.Placements, actions(p))
	}
	p = h.apply(h.files.acmeHasCredential())
	wantRejectedFiles(t, h, p, acmeCredential)
}

func TestADrainKeepsReadersOfARepositoryApart(t *testing.T) {
	h := newHouse(t)
	h.apply(neighbours().acmeReads().acmeHasCredential().
		without("tenants/acme/deployments/cart.yaml"))
	h.apply(h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")).
		with("tenants/globex/environments/far.yaml", environmentFile("far", "eu", "", "app")).
		with("tenants/globex/deployments/far.yaml",
			deploymentFile("far", "shared/charts", "environments: [far]", "")))
	if got := h.engineOf("globex", "far"); got != "eu-2" {
		t.Fatalf("globex is on %q", got)
	}
	o := h.simulate(placement.Change{Kind: placement.Drain, Engine: "eu-1"}, nil)
	for _, m := range o.Moves {
		if m.Environment.Tenant == "acme" && m.Environment.Name == "prod" {
			t.Errorf("%+v", m)
		}
	}
}
