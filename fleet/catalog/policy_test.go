package catalog

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// rules replaces the language of policies: a policy's Rule names one.
func rules(p *fleet.PolicySpec, s *fleet.Subject) (string, error) {
	switch p.Rule {
	case "no HEAD in prod":
		for _, t := range s.Targets {
			if t.Environment.Labels["tier"] == "prod" && t.Sources[0].TargetRevision == "HEAD" {
				return "HEAD in prod", nil
			}
		}
	case "no pruning":
		if slices.ContainsFunc(s.Targets, func(t fleet.Target) bool { return t.Sync.Prune }) {
			return "it prunes", nil
		}
	case "two owners":
		if len(s.Tenant.Tenant.Owners) < 2 {
			return "its tenant has one owner", nil
		}
	case "fails":
		return "", errors.New("no such thing")
	case "nothing":
		return "nothing is allowed", nil
	}
	return "", nil
}

// rule is a policy for deployments.
func rule(name, rule string, edits ...edit) Input {
	spec := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment}, Rule: rule,
		Fix: "fix it", Field: "spec.source.targetRevision"}
	i := declare(
		fleet.Declaration{Key: fleet.Key{Kind: fleet.KindPolicy, Name: name}, Policy: spec},
		edits...)
	i.Path = "fleet/policies/" + name + ".yaml"
	i.Declaration.Path = i.Path
	return i
}

func warning(d *fleet.Declaration) { d.Policy.Severity = fleet.SeverityWarning }

func judges(kinds ...fleet.Kind) edit {
	return func(d *fleet.Declaration) { d.Policy.Kinds = kinds }
}

// revised is a deployment at a revision.
func revised(id, revision string, environments ...fleet.EnvironmentName) Input {
	return deploymentWith(id, func(d *fleet.Declaration) {
		d.Deployment.Source.TargetRevision, d.Deployment.Destination.Environments = revision,
			environments
	})
}

// underRule is the fleet of acme with policies from the first commit on.
func underRule(t *testing.T, policies ...Input) *Catalog {
	t.Helper()
	c := New().Judging(rules)
	good(t, c, append(acme(), policies...)...)
	return c
}

func TestWhatBreaksAPolicyIsQuarantinedAlone(t *testing.T) {
	c := underRule(t, rule("no-head", "no HEAD in prod"))
	s := c.Prepare(
		[]Input{revised("acme/shop", "HEAD", "prod"), revised("acme/cart", "HEAD", "staging"),
			revised("acme/new", "HEAD", "prod")})
	if got := keys(s.Changes()); got != "+GitOpsDeployment acme/cart" {
		t.Errorf("changes: %s", got)
	}
	p := s.Problems()[0]
	if p.Code != "policy" || p.Message != "no-head: HEAD in prod" || p.Fix != "fix it" ||
		p.Field != "spec.source.targetRevision" || p.Severity != fleet.SeverityError {
		t.Errorf("the problem is %+v", p)
	}
	commit(t, c, s)
	if q, _ := c.Quarantine(deployment("acme/shop").Key); !q.HasLastGood ||
		c.Deployment(fleet.DeploymentID{Tenant: "acme", Name: "shop"}).
			Deployment.Source.TargetRevision != "main" {
		t.Errorf("the last good state is lost: %+v", q)
	}
	s = c.Prepare([]Input{revised("acme/shop", "v2", "prod")})
	if got := fmt.Sprint(s.Cleared()); got != "[GitOpsDeployment acme/shop]" {
		t.Errorf("fixed, cleared is %s", got)
	}
}

func TestAWarningHoldsNothingBack(t *testing.T) {
	c := underRule(t, rule("no-head", "no HEAD in prod", warning))
	s := c.Prepare([]Input{revised("acme/shop", "HEAD", "prod")})
	if got := keys(s.Changes()) + " " +
		codes(
			s.Problems()); got != "~GitOpsDeployment acme/shop GitOpsDeployment acme/shop "+
		"spec.source.targetRevision policy" || s.Problems()[0].Severity != fleet.SeverityWarning {
		t.Errorf("%s: %+v", got, s.Problems())
	}
	commit(t, c, s)
	s = c.Prepare([]Input{gone(rule("no-head", ""))})
	if got := fmt.Sprint(s.Checked()); got != "[Policy no-head GitOpsDeployment acme/shop]" ||
		len(s.Problems()) > 0 {
		t.Errorf("without the policy, checked is %s, problems %v", got, s.Problems())
	}
	commit(
		t, c,
		c.Prepare(
			[]Input{gone(rule("no-head", "")), revised("acme/shop", "HEAD", "prod", "staging")}))
	s = c.Prepare(nil)
	if got := fmt.Sprint(s.Checked()); got != "[GitOpsDeployment acme/shop]" ||
		len(s.Problems()) > 0 {
		t.Errorf("after both changed in one commit, checked is %s, problems %v", got, s.Problems())
	}
}

func TestAPolicyThatFailsReportsWithItsSeverity(t *testing.T) {
	c := underRule(t)
	good(t, c, rule("broken", "fails"), rule("odd", "fails", warning))
	s := c.Prepare([]Input{revised("acme/new", "v1", "prod")})
	var reported []string
	for _, p := range s.Problems() {
		reported = append(reported, string(p.Severity)+" "+p.Message+" ("+p.Fix+")")
	}
	if want :=
		"error broken: it could not be judged: no such thing (ask the platform to correct " +
			"fleet/policies/broken.yaml)"; len(reported) != 1 || reported[0] != want {
		t.Errorf("reported %q", reported)
	}
	s = c.Prepare([]Input{gone(rule("broken", ""))})
	commit(t, c, s)
	s = c.Prepare([]Input{revised("acme/new", "v1", "prod")})
	if p := s.Problems(); len(p) != 1 || p[0].Severity != fleet.SeverityWarning ||
		keys(s.Changes()) != "+GitOpsDeployment acme/new" {
		t.Errorf("reported %v", p)
	}
}

func TestAPolicyJudgesTheKindsAndTenantsThatItNames(t *testing.T) {
	c := New().Judging(rules)
	good(t, c, append(acme(), tenant("globex"), environment("globex/prod"),
		rule("of-globex", "nothing", func(d *fleet.Declaration) {
			d.Policy.Tenants = []fleet.TenantName{"globex"}
		}),
		rule("of-credentials", "nothing", judges(fleet.KindRepositoryCredential)))...)
	s := c.Prepare([]Input{revised("acme/new", "v1", "prod"), revised("globex/new", "v1", "prod"),
		credential("acme/git", "https://git.example.com/acme/x"), sealed("acme/credentials/git")})
	if got := codes(
		s.Problems()); got != "GitOpsDeployment globex/new spec.source.targetRevision policy; "+
		"RepositoryCredential acme/git spec.source.targetRevision policy" {
		t.Errorf("problems: %s", got)
	}
}

func TestAPolicyNamesTenantsThatAreThere(t *testing.T) {
	c := underRule(t)
	of := func(name fleet.TenantName) Input {
		return rule("p", "nothing", func(d *fleet.Declaration) {
			d.Policy.Tenants = []fleet.TenantName{name}
		})
	}
	s := c.Prepare([]Input{of("acmee")})
	if got := codes(s.Problems()); got != "Policy p spec.tenants[0] unknown-tenant" ||
		!strings.Contains(s.Problems()[0].Fix, `"acme"`) {
		t.Errorf("problems: %v", s.Problems())
	}
	good(t, c, tenant("globex"), of("globex"))
	s = c.Prepare([]Input{gone(tenant("globex"))})
	if p := s.Problems(); len(p) != 1 || p[0].Code != codeReferenced ||
		!strings.Contains(p[0].Message, "spec.tenants[0]") {
		t.Errorf("a tenant that a policy names goes: %v", p)
	}
}

// A commit cannot bring or loosen what its files are judged by.
func TestTheFilesOfACommitAreJudgedByTheEarlierPolicies(t *testing.T) {
	head := revised("acme/shop", "HEAD", "prod")
	loosened := rule("no-head", "no HEAD in prod", func(d *fleet.Declaration) {
		d.Policy.Rule = "anything"
	})
	for name, with := range map[string]Input{
		"removed": gone(rule("no-head", "")), "loosened": loosened} {
		c := underRule(t, rule("no-head", "no HEAD in prod"))
		s := c.Prepare([]Input{head, with})
		if got := codes(
			s.Problems()); got != "GitOpsDeployment acme/shop spec.source.targetRevision policy" {
			t.Errorf("%s in the same commit: %s", name, got)
		}
		commit(t, c, s)
		for what, c := range map[string]*Catalog{
			"": c, "after a restart, ": c.restored().Judging(rules)} {
			s = c.Prepare([]Input{deployment("acme/cart", "staging")})
			if got := keys(
				s.Changes()); got != "~GitOpsDeployment acme/shop; +GitOpsDeployment acme/cart" &&
				got != "+GitOpsDeployment acme/cart; ~GitOpsDeployment acme/shop" {
				t.Errorf("%s%s in the commit before: %s", what, name, got)
			}
		}
	}
	c := underRule(t)
	s := c.Prepare([]Input{head, rule("no-head", "no HEAD in prod")})
	if got := codes(s.Problems()); got != "" {
		t.Errorf("brought by the same commit: %s", got)
	}
	commit(t, c, s)
	if got := codes(
		c.Prepare([]Input{revised("acme/cart", "HEAD", "prod")}).
			Problems()); got != "GitOpsDeployment acme/cart spec.source.targetRevision policy" {
		t.Errorf("in the commit after: %s", got)
	}
	if got := codes(c.Prepare([]Input{rule("other", "anything")}).Problems()); got != "" {
		t.Errorf("what did not change is judged: %s", got)
	}
}

func TestTheFirstCommitIsJudgedByItsOwnPolicies(t *testing.T) {
	c := New().Judging(rules)
	first := append(acme(), revised("acme/new", "HEAD", "prod"), rule("no-head", "no HEAD in prod"))
	s := c.Prepare(first)
	if got := codes(
		s.Problems()); got != "GitOpsDeployment acme/new spec.source.targetRevision policy" {
		t.Errorf("problems: %s", got)
	}
	s = c.Resume(first)
	if p := s.Problems(); len(p) != 1 || p[0].Severity != fleet.SeverityWarning ||
		len(s.Quarantined()) > 0 {
		t.Errorf("resumed: %v", p)
	}
	if p := s.Refuse(fleet.Problem{Key: revised("acme/shop", "").Key, Code: "no"}).Problems(); len(
		onlyErrors(p)) != 1 {
		t.Errorf("resumed and refused: %v", p)
	}
	commit(t, c, s)
	if got := codes(
		c.Prepare([]Input{revised("acme/new", "HEAD", "prod", "staging")}).
			Problems()); got != "GitOpsDeployment acme/new spec.source.targetRevision policy" {
		t.Errorf("its first change: %s", got)
	}
	if p := New().Prepare(first).Problems(); len(p) > 0 {
		t.Errorf("without a judge: %v", p)
	}
}

func TestADeploymentIsJudgedWhereItIsKnownToGo(t *testing.T) {
	c := underRule(t, rule("nothing-goes", "no HEAD in prod"))
	s := c.Prepare([]Input{revised("acme/new", "HEAD", "prod", "nowhere")})
	if got := codes(
		s.Problems()); got != "GitOpsDeployment acme/new spec.destination.environments[1] "+
		"unknown-environment" {
		t.Errorf("problems: %s", got)
	}
	s = c.Prepare([]Input{revised("acme/new", "HEAD", "prod"), revised("acme/new2", "HEAD", "prod"),
		deploymentWith("acme/new3", selector("tier", "prod"), func(d *fleet.Declaration) {
			d.Deployment.Source.TargetRevision = "v1"
			d.Deployment.Overrides = []fleet.Override{
				{Environment: "prod", Source: fleet.SourceOverride{TargetRevision: "HEAD"}}}
		})})
	if len(s.Problems()) != 3 {
		t.Errorf("problems: %v", s.Problems())
	}
}

func TestAChangeOfAPolicysOtherInputsJudgesAgain(t *testing.T) {
	c := underRule(t)
	good(t, c, rule("two", "two owners"))
	s := c.Prepare([]Input{revised("acme/new", "v1", "prod")})
	commit(t, c, s)
	s = c.Prepare(
		[]Input{
			tenant("acme", func(d *fleet.Declaration) {
				d.Tenant.Owners = []string{"github:alice", "github:bob"}
			})})
	if got := keys(s.Changes()); got != "~Tenant acme; +GitOpsDeployment acme/new" {
		t.Errorf("with a second owner: %s", got)
	}

	c = underRule(t)
	good(t, c, rule("no-prune", "no pruning"))
	commit(t, c, c.Prepare([]Input{revised("acme/new", "v1", "prod")}))
	no := false
	s = c.Prepare([]Input{theFleet(func(d *fleet.Declaration) {
		d.Fleet.Defaults.Sync.Prune = &no
	})})
	if got := keys(s.Changes()); got != "~Fleet fleet; +GitOpsDeployment acme/new" {
		t.Errorf("with another default: %s", got)
	}
}

func TestDefaultsBringNoDeploymentUnderAPolicyThatItBreaks(t *testing.T) {
	no, yes := false, true
	defaults := func(prune *bool) Input {
		return tenantDefaults("acme", fleet.Defaults{Sync: fleet.SyncSettings{Prune: prune}})
	}
	c := underRule(t, rule("no-prune", "no pruning"), defaults(&no))
	good(t, c, gone(deployment("acme/shop")), revised("acme/new", "v1", "prod"))
	s := c.Prepare([]Input{defaults(&yes)})
	if got, want := codes(s.Problems()), "TenantDefaults acme/defaults policy-in-reach"; got !=
		want || len(s.Changes()) > 0 {
		t.Errorf("%s; changes %s", got, keys(s.Changes()))
	}
	commit(t, c, s)
	s = c.Prepare([]Input{remake(revised("acme/new", "v1", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Sync.Prune = &no
	})})
	if got := keys(s.Changes()); got !=
		"~TenantDefaults acme/defaults; ~GitOpsDeployment acme/new" {
		t.Errorf("when the deployment is fixed: %s, %v", got, s.Problems())
	}
	commit(t, c, s)
	s = c.Prepare([]Input{gone(defaults(nil))})
	if got := keys(s.Changes()); got != "-TenantDefaults acme/defaults" {
		t.Errorf("when the defaults go: %s, %v", got, s.Problems())
	}
	consistent(t, c)
}

// An environment that is made production, or that comes as such and is selected, must not carry
// what may not be there.
func TestAnEnvironmentBringsNoDeploymentUnderAPolicyThatItBreaks(t *testing.T) {
	prod := func(id string) Input { return environment(id, label("tier", "prod")) }
	dev := func(id string) Input { return environment(id, label("tier", "dev")) }
	bySelector := deploymentWith("acme/lab", selector("zone", "a"), func(d *fleet.Declaration) {
		d.Deployment.Source.TargetRevision = "HEAD"
	})
	inZone := func(id, tier string) Input {
		return environment(id, func(d *fleet.Declaration) {
			d.Labels = map[string]string{"tier": tier, "zone": "a"}
		})
	}
	t.Run("by its labels", func(t *testing.T) {
		c := underRule(t, rule("no-head", "no HEAD in prod"))
		good(t, c, dev("acme/lab"), revised("acme/cart", "HEAD", "lab"))
		s := c.Prepare([]Input{prod("acme/lab"), revised("acme/other", "v1", "staging")})
		if got := keys(s.Changes()); got != "+GitOpsDeployment acme/other" {
			t.Errorf("changes: %s", got)
		}
		if p := s.Problems(); len(p) != 1 || p[0].Code != codePolicyReached ||
			p[0].Key != prod("acme/lab").Key ||
			!strings.Contains(p[0].Message, "no-head: HEAD in prod") ||
			!strings.Contains(p[0].Fix, "cart.yaml") {
			t.Errorf("problems: %v", p)
		}
		commit(t, c, s)
		s = c.Prepare([]Input{revised("acme/cart", "v1", "lab")})
		if got := keys(
			s.Changes()); got != "~ManagedEnvironment acme/lab; ~GitOpsDeployment acme/cart" {
			t.Errorf("when the deployment is fixed: %s, %v", got, s.Problems())
		}
	})
	t.Run("with the deployment fixed in the same commit", func(t *testing.T) {
		c := underRule(t, rule("no-head", "no HEAD in prod"))
		good(t, c, dev("acme/lab"), revised("acme/cart", "HEAD", "lab"))
		good(t, c, prod("acme/lab"), revised("acme/cart", "v1", "lab"))
	})
	t.Run("by coming, and being selected", func(t *testing.T) {
		c := underRule(t, rule("no-head", "no HEAD in prod"))
		good(t, c, inZone("acme/one", "dev"), bySelector)
		s := c.Prepare([]Input{inZone("acme/two", "prod"), inZone("acme/three", "dev")})
		if got := keys(s.Changes()); got != "+ManagedEnvironment acme/three" {
			t.Errorf("changes: %s, %v", got, s.Problems())
		}
		commit(t, c, s)
		s = c.Prepare([]Input{gone(bySelector)})
		if got := keys(
			s.Changes()); got != "+ManagedEnvironment acme/two; -GitOpsDeployment acme/lab" {
			t.Errorf("when the deployment goes: %s, %v", got, s.Problems())
		}
	})
	t.Run("each of two that would", func(t *testing.T) {
		c := underRule(t, rule("no-head", "no HEAD in prod"))
		good(t, c, inZone("acme/one", "dev"), bySelector)
		s := c.Prepare([]Input{inZone("acme/two", "prod"), inZone("acme/three", "prod")})
		if got := keys(s.Changes()); got != "" {
			t.Errorf("changes: %s", got)
		}
	})
	t.Run("not what broke it before, or because of another thing", func(t *testing.T) {
		c := underRule(t)
		good(t, c, revised("acme/cart", "HEAD", "prod"))
		good(t, c, rule("no-head", "no HEAD in prod"))
		s := c.Prepare(
			[]Input{
				environment("acme/prod", func(d *fleet.Declaration) {
					d.Environment.Namespaces = []string{"web", "shop", "more"}
				})})
		if got := keys(s.Changes()); got != "~ManagedEnvironment acme/prod" {
			t.Errorf("changes: %s, %v", got, s.Problems())
		}
	})
}

// A history with two policies from the first commit on.
func policed(t *testing.T, check func(t *testing.T, h *history, c *Catalog, in []Input)) {
	t.Parallel()
	for seed := range *seeds {
		h, c := newHistory(uint64(seed)), New().Judging(rules)
		h.revisions = []string{"HEAD", "v1"}
		commit(
			t, c,
			c.Prepare(
				[]Input{theFleet(), rule("no-head", "no HEAD in prod"),
					rule("no-prune", "no pruning", warning)}))
		for n := range 60 {
			in := h.commit("")
			check(t, h, c, in)
			if t.Failed() {
				t.Fatalf("seed %d, commit %d: %s", seed, n, describe(in))
			}
		}
	}
}

func TestNoEffectiveDeclarationBreaksAPolicyOfTheFirstCommit(t *testing.T) {
	held := 0
	policed(t, func(t *testing.T, _ *history, c *Catalog, in []Input) {
		commit(t, c, c.Prepare(in))
		for _, d := range c.Effective() {
			if d.Deployment == nil {
				continue
			}
			if broken, _ := rules(&fleet.PolicySpec{Rule: "no HEAD in prod"},
				c.st.subject(d)); broken != "" {
				t.Errorf("%s is in effect: %s", d.Key, broken)
			}
		}
		for _, q := range c.Quarantines() {
			if hasCode(q.Problems, codePolicy) || hasCode(q.Problems, codePolicyReached) {
				held++
			}
		}
	})
	if held == 0 {
		t.Error("no history has anything that a policy holds back")
	}
}

// Catalogs with policies keep every property of catalogs without.
func TestPoliciesChangeNoneOfTheCatalogsProperties(t *testing.T) {
	policed(t, func(t *testing.T, h *history, c *Catalog, in []Input) {
		restored := c.restored().Judging(rules)
		a, b := c.Prepare(in), restored.Prepare(in)
		if x, y := outcome(a), outcome(b); x != y {
			t.Errorf("restored, the commit gives\n%s", difference(y, x))
		}
		slices.Reverse(in)
		if x, y := outcome(a), outcome(c.Prepare(in)); x != y {
			t.Errorf("reversed, the commit gives\n%s", difference(y, x))
		}
		commit(t, c, a)
		var again []fleet.Key
		for k := range c.st.entries.all() {
			again = append(again, k)
		}
		full := c.Prepare(slices.Collect(maps.Values(h.heads)), again...)
		if got := keys(full.Changes()); got != "" {
			t.Errorf("a full judgement changes %s", got)
		}
		for _, k := range again {
			if head, exists := h.declared(c)[k]; exists &&
				!reflect.DeepEqual(c.Declaration(k), head.Declaration) {
				if _, held := c.Quarantine(k); !held {
					t.Errorf("%s is neither in effect nor quarantined", k)
				}
			}
		}
	})
}

func TestAPolicyCostsNothingToWhatDoesNotChange(t *testing.T) {
	judged := 0
	c := grown(t, 2000)
	c.Judging(func(*fleet.PolicySpec, *fleet.Subject) (string, error) { judged++; return "", nil })
	commit(t, c, c.Prepare([]Input{rule("p", "anything"), rule("q", "anything")}))
	if judged > 0 {
		t.Errorf("%d judgements for policies that come", judged)
	}
	commit(t, c, c.Prepare(one(1)))
	if judged != 4 {
		t.Errorf("%d judgements for two files and two policies, and one that goes nowhere", judged)
	}
}
