package catalog

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// A history is a seeded sequence of commits over a world so small that its files meet all the time.
type history struct {
	*rand.Rand
	heads     map[fleet.Key]Input // files at the head
	revisions []string            // of deployments; none: the same for all
}

func newHistory(seed uint64) *history {
	return &history{Rand: rand.New(rand.NewPCG(seed, 1)), heads: map[fleet.Key]Input{}}
}

var (
	someTenants = []string{"acme", "globex", "initech"}
	someNames   = []string{"a", "b", "c"}
	someSpaces  = []string{"web", "shop", "argocd-eu-2"}
)

func pick[T any](h *history, of []T) T { return of[h.IntN(len(of))] }

// several is one or two different ones.
func several[T any](h *history, of []T) []T {
	p := h.Perm(len(of))[:1+h.IntN(2)]
	var out []T
	for _, i := range p {
		out = append(out, of[i])
	}
	return out
}

// commit is one to six edits, of one tenant's files alone when tenant is set.
func (h *history) commit(tenant string) []Input {
	changed := map[fleet.Key]Input{}
	for range 1 + h.IntN(6) {
		i := h.edit(tenant)
		if i.Removed {
			if _, exists := h.heads[i.Key]; !exists {
				continue
			}
		}
		changed[i.Key] = i
	}
	var in []Input
	for k, i := range changed {
		in = append(in, i)
		h.heads[k] = i
		if i.Removed {
			delete(h.heads, k)
		}
	}
	h.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	return in
}

func (h *history) edit(only string) Input {
	i := h.file(only)
	switch n := h.IntN(20); {
	case n < 2:
		return broken(i)
	case n < 6:
		return gone(i)
	}
	return i
}

func (h *history) file(only string) Input {
	t := only
	if t == "" {
		t = pick(h, someTenants)
		switch h.IntN(12) {
		case 0:
			return theFleet(func(d *fleet.Declaration) {
				d.Fleet.GitHosts = several(
					h, []string{"git.example.com", "git.example.com", "other.example.com"})
			})
		case 1:
			return engine(pick(h, []string{"eu-1", "eu-2"}), func(d *fleet.Declaration) {
				d.Engine.Region = pick(h, []string{"eu", "us"})
				d.Engine.ArgoCD.InstallationID = pick(h, []string{"one", "two"})
				if h.IntN(3) == 0 {
					d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
				}
				if h.IntN(6) == 0 {
					d.Engine.ApplicationNamespaces = []fleet.ApplicationNamespace{
						{Namespace: pick(h, someSpaces), Tenant: fleet.TenantName(t)}}
				}
				switch h.IntN(6) {
				case 0, 1:
					d.Engine.DedicatedTo = []fleet.TenantName{fleet.TenantName(t)}
				case 2:
					d.Engine.PlatformTenant = fleet.TenantName(t)
				}
			})
		case 2, 3:
			return tenant(t, func(d *fleet.Declaration) {
				d.Tenant.Quota = fleet.Quota{
					Environments: 1 + h.IntN(3), Deployments: 1 + h.IntN(3),
					Applications: 1 + h.IntN(5)}
				if h.IntN(4) == 0 {
					d.Tenant.Placement.Regions = []string{pick(h, []string{"eu", "us"})}
				}
				if h.IntN(6) == 0 {
					d.Tenant.Repositories = []string{"https://git.example.com/" + t + "/a"}
				}
				switch h.IntN(4) {
				case 0:
					d.Tenant.Clusters = []string{
						"https://" + pick(h, []string{"one", "two"}) + ".example.com"}
				case 1:
					d.Tenant.Clusters, d.Tenant.Namespaces = []string{".example.com"},
						several(h, someSpaces)
				}
			})
		}
	}
	if h.IntN(12) == 0 {
		return tenantDefaults(fleet.TenantName(t), fleet.Defaults{
			DeletionPolicy: pick(h, []fleet.DeletionPolicy{fleet.DeletionDelete,
				fleet.DeletionOrphan})})
	}
	id := t + "/" + pick(h, someNames)
	switch n := h.IntN(12); {
	case n < 4:
		return environment(id, label(pick(h, []string{"tier", "tier", "zone"}),
			pick(h, []string{"prod", "test"})),
			func(d *fleet.Declaration) {
				d.Environment.Cluster.Server = "https://" + pick(h, []string{"one", "two"}) +
					".example.com"
				d.Environment.Namespaces = several(h, someSpaces)
				d.Environment.Region = pick(h, []string{"eu", "us"})
				if mode := pick(
					h, []fleet.AgentMode{
						"", "", fleet.AgentManaged, fleet.AgentAutonomous}); mode != "" {
					behindAgent(mode)(d)
				}
			})
	case n < 8:
		return h.deployment(id)
	case n < 9:
		return credential(id, "https://git.example.com/"+t+"/"+pick(h, someNames)+
			pick(h, []string{"", ".git"}))
	case n < 11:
		var of []Input
		for _, name := range several(h, someNames) {
			i := h.deployment(t + "/" + name)
			if h.IntN(6) == 0 {
				i = broken(i)
			}
			of = append(of, i)
		}
		return setOf(t+"/"+pick(h, []string{"first", "second"}), of...)
	default:
		return syncRun(id, pick(h, someNames), pick(h, []string{"v1", "v2"}),
			environmentNames(several(h, someNames))...)
	}
}

func (h *history) deployment(id string) Input {
	return deploymentWith(id, func(d *fleet.Declaration) {
		d.Deployment.Destination.Namespace = pick(h, someSpaces[:2])
		if len(h.revisions) > 0 {
			d.Deployment.Source.TargetRevision = pick(h, h.revisions)
		}
		if h.IntN(2) == 0 {
			d.Deployment.Destination.EnvironmentSelector = anySelector(h)
		} else {
			d.Deployment.Destination.Environments = environmentNames(several(h, someNames))
		}
		if h.IntN(4) == 0 {
			d.Deployment.Overrides = []fleet.Override{
				{Environment: fleet.EnvironmentName(pick(h, someNames))}}
		}
		if h.IntN(4) == 0 {
			d.Deployment.Overrides = append(d.Deployment.Overrides, fleet.Override{
				Selector: anySelector(h), Namespace: pick(h, someSpaces[:2])})
		}
		if h.IntN(4) == 0 {
			d.Deployment.Source.Path = "${environment.labels.tier}/${environment.name}"
		}
	})
}

// declared returns the heads of all keys: of the files, and of the deployments that the sets
// generate and no file declares.
func (h *history) declared(c *Catalog) map[fleet.Key]Input {
	all := maps.Clone(h.heads)
	for _, k := range slices.SortedFunc(maps.Keys(h.heads), compareKeys) {
		d := h.heads[k].Declaration
		if k.Kind == fleet.KindGitOpsDeploymentSet && d == nil {
			d = c.Declaration(k)
		}
		if d == nil || d.Set == nil {
			continue
		}
		for _, g := range d.Set.Generated {
			id := deploymentKey(fleet.DeploymentID{Tenant: k.Tenant, Name: g.Name})
			if _, taken := all[id]; !taken {
				all[id] = Input{Key: id, Path: d.Path, Blob: g.Blob, Declaration: g.Declaration,
					Problems: g.Problems}
			}
		}
	}
	return all
}

// anySelector is a selector with each kind of anchor.
func anySelector(h *history) *fleet.LabelSelector {
	s, tier := &fleet.LabelSelector{}, pick(h, []string{"prod", "test"})
	expression := func(o fleet.SelectorOperator, values ...string) {
		s.MatchExpressions = append(s.MatchExpressions,
			fleet.LabelRequirement{Key: "tier", Operator: o, Values: values})
	}
	switch h.IntN(6) {
	case 0, 1:
		s.MatchLabels = map[string]string{"tier": tier}
	case 2:
		expression(fleet.SelectorIn, tier, "other")
	case 3:
		expression(fleet.SelectorExists)
	case 4:
		expression(fleet.SelectorNotIn, tier)
	default:
		expression(fleet.SelectorDoesNotExist)
	}
	return s
}

func environmentNames(names []string) []fleet.EnvironmentName {
	var ns []fleet.EnvironmentName
	for _, n := range names {
		ns = append(ns, fleet.EnvironmentName(n))
	}
	return ns
}

var seeds = flag.Int("seeds", 25, "histories that each property is checked on")

// histories runs a check over many commits of many histories.
func histories(t *testing.T, check func(t *testing.T, h *history, c *Catalog, tenant string,
	in []Input)) {
	t.Parallel()
	for seed := range *seeds {
		h, c := newHistory(uint64(seed)), New()
		for n := range 60 {
			tenant := ""
			if n > 10 && h.IntN(2) == 0 {
				tenant = pick(h, someTenants)
			}
			in := h.commit(tenant)
			check(t, h, c, tenant, in)
			if t.Failed() {
				t.Fatalf("seed %d, commit %d: %s", seed, n, describe(in))
			}
		}
	}
}

func describe(in []Input) string {
	var s []string
	for _, i := range in {
		sign := "~"
		if i.Removed {
			sign = "-"
		} else if i.Declaration == nil {
			sign = "!"
		}
		s = append(s, sign+i.Key.String())
	}
	slices.Sort(s)
	return strings.Join(s, "; ")
}

func TestOnlyARemovalThatWasGoodTakesAnythingAway(t *testing.T) {
	histories(t, func(t *testing.T, h *history, c *Catalog, _ string, in []Input) {
		before := map[fleet.Key]*fleet.Declaration{}
		for _, d := range c.Effective() {
			before[d.Key] = d
		}
		commit(t, c, c.Prepare(in))
		after := map[fleet.Key]*fleet.Declaration{}
		for _, d := range c.Effective() {
			after[d.Key] = d
		}
		heads := h.declared(c)
		for k, d := range before {
			if _, exists := heads[k]; after[k] == nil && exists {
				t.Errorf("%s was lost though its file exists", k)
			} else if after[k] != nil && after[k] != d && after[k] != heads[k].Declaration {
				t.Errorf("%s is neither its last good state nor its file", k)
			}
		}
		for k, d := range after {
			_, held := c.Quarantine(k)
			switch head := heads[k].Declaration; {
			case before[k] == nil && d != head:
				t.Errorf("%s took effect and is not its file", k)
			case !held && !reflect.DeepEqual(d, head):
				t.Errorf("%s is not quarantined and is not its file", k)
			}
		}
		for k, i := range heads {
			if _, held := c.Quarantine(k); !held && !reflect.DeepEqual(after[k], i.Declaration) {
				t.Errorf("%s is neither in effect nor quarantined", k)
			}
		}
	})
}

func TestOneTenantsFilesTakeNothingFromAnother(t *testing.T) {
	histories(t, func(t *testing.T, h *history, c *Catalog, tenant string, in []Input) {
		before, held := c.Effective(), quarantinedKeys(c)
		s := c.Prepare(in)
		commit(t, c, s)
		if tenant == "" {
			return
		}
		for _, d := range before {
			if d.Key.Tenant != fleet.TenantName(tenant) && !held[d.Key] &&
				c.Declaration(d.Key) != d {
				t.Errorf("a commit of %s changes %s", tenant, d.Key)
			}
		}
		for k := range quarantinedKeys(c) {
			if k.Tenant != fleet.TenantName(tenant) && !held[k] {
				t.Errorf("a commit of %s quarantines %s", tenant, k)
			}
		}
		for _, ch := range s.Changes() {
			if ch.Key.Tenant != fleet.TenantName(tenant) &&
				!reflect.DeepEqual(ch.After, h.declared(c)[ch.Key].Declaration) {
				t.Errorf("a commit of %s makes %s something that its file is not", tenant, ch.Key)
			}
		}
	})
}

func quarantinedKeys(c *Catalog) map[fleet.Key]bool {
	ks := map[fleet.Key]bool{}
	for _, q := range c.Quarantines() {
		ks[q.Key] = true
	}
	return ks
}

// Judging every file again must change nothing: whatever a commit touched was found through the
// index.
func TestWhatChangedIsAllThatNeedsJudging(t *testing.T) {
	histories(t, func(t *testing.T, h *history, c *Catalog, _ string, in []Input) {
		commit(t, c, c.Prepare(in))
		var again []fleet.Key
		for k := range c.st.entries.all() {
			again = append(again, k)
		}
		full := c.Prepare(slices.Collect(maps.Values(h.heads)), again...)
		if got := keys(full.Changes()); got != "" {
			t.Errorf("a full judgement changes %s", got)
		}
		for _, k := range again {
			was, _ := c.Quarantine(k)
			is, _ := full.Quarantine(k)
			if got, want := kinds(is.Problems), kinds(was.Problems); got != want &&
				(got == "" || want == "" || got != "waits" && want != "waits") {
				t.Errorf("%s: a full judgement returns %q, the index %q", k, got, want)
			}
		}
	})
}

// kinds returns the codes of problems, each once. The message of a file that waits for several
// others may name any of them.
func kinds(problems []fleet.Problem) string {
	var cs []string
	for _, p := range problems {
		switch p.Code {
		case codeQuota, codeNamespaceInUse, codeReferenced, codeAutonomous,
			codeVariableInUse:
			cs = append(cs, "waits")
		default:
			cs = append(cs, p.Code)
		}
	}
	slices.Sort(cs)
	return strings.Join(slices.Compact(cs), "; ")
}

// With nothing quarantined and nothing that only history explains, the commits that led here do not
// matter.
func TestAHistoryWithoutErrorsEqualsItsHead(t *testing.T) {
	compared := 0
	histories(t, func(t *testing.T, h *history, c *Catalog, _ string, in []Input) {
		commit(t, c, c.Prepare(in))
		var all []fleet.Key
		for k := range h.heads {
			all = append(all, k)
		}
		for _, p := range c.Prepare(nil, all...).Problems() {
			if p.Severity == fleet.SeverityError || p.Code == codeSpentSyncRun ||
				p.Code == codeOverQuota {
				return
			}
		}
		if _, held := c.Count(); held > 0 {
			return
		}
		compared++
		fresh := New()
		commit(t, fresh, fresh.Prepare(slices.Collect(maps.Values(h.heads))))
		if got, want := fresh.Effective(), c.Effective(); !reflect.DeepEqual(got, want) {
			t.Errorf("from scratch %d declarations, with history %d", len(got), len(want))
		}
	})
	if compared == 0 {
		t.Error("no history came to a head without errors")
	}
}

func TestARestoredCatalogGoesOnLikeTheOriginal(t *testing.T) {
	histories(t, func(t *testing.T, _ *history, c *Catalog, _ string, in []Input) {
		restored := c.restored()
		consistent(t, restored)
		a, b := c.Prepare(in), restored.Prepare(in)
		if x, y := outcome(a), outcome(b); x != y {
			t.Errorf("restored, the commit gives\n%s", difference(y, x))
		}
		commit(t, c, a)
	})
}

func (c *Catalog) restored() *Catalog {
	var effective []fleet.Declaration
	for _, d := range c.Effective() {
		effective = append(effective, *d)
	}
	return Restore(effective, c.Quarantines())
}

func TestTheOrderOfFilesDoesNotMatter(t *testing.T) {
	histories(t, func(t *testing.T, _ *history, c *Catalog, _ string, in []Input) {
		a := c.Prepare(in)
		slices.Reverse(in)
		if x, y := outcome(a), outcome(c.Prepare(in)); x != y {
			t.Errorf("reversed, the commit gives\n%s", difference(y, x))
		}
		commit(t, c, a)
	})
}

// difference is the lines that only one of two texts has.
func difference(got, want string) string {
	var b strings.Builder
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, l := range g {
		if !slices.Contains(w, l) {
			fmt.Fprintln(&b, "got ", l)
		}
	}
	for _, l := range w {
		if !slices.Contains(g, l) {
			fmt.Fprintln(&b, "want", l)
		}
	}
	return b.String()
}

// outcome prints everything that a changeset returns.
func outcome(s *Changeset) string {
	var b strings.Builder
	fmt.Fprintln(&b, keys(s.Changes()))
	for _, q := range s.Quarantined() {
		fmt.Fprintln(&b, q.Key, q.HasLastGood, q.Removed, q.Blob)
	}
	fmt.Fprintln(&b, "cleared", s.Cleared(), "checked", s.Checked())
	for _, p := range s.Problems() {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}
