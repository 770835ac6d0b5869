package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func yes() *bool { b := true; return &b }

// acme is a tenant, and shop one of its deployments in two environments, of which staging has no
// labels.
func acme() *fleet.Declaration {
	return &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindTenant, Name: "acme"},
		Labels: map[string]string{"class": "gold"}, Tenant: &fleet.TenantSpec{
			Owners: []string{"github:alice", "github:acme/leads"}, Quota: fleet.Quota{
				Environments: 3, Deployments: 5}, Repositories: []string{
				"https://git.example.com/acme/"},
			ClusterResources: []fleet.GroupKind{{Kind: "Namespace"}}}}
}

func environment(name string, labels map[string]string, namespaces ...string) *fleet.Declaration {
	return &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: "acme",
		Name: name}, Labels: labels, Path: "tenants/acme/environments/" + name + ".yaml",
		Environment: &fleet.EnvironmentSpec{Namespaces: namespaces, Region: "eu",
			Cluster: &fleet.ClusterSpec{Server: "https://api." + name + ".example.com",
				CredentialsRef: fleet.SecretRef{Name: name}}}}
}

func shop(edit ...func(*fleet.DeploymentSpec)) *fleet.Subject {
	spec := &fleet.DeploymentSpec{
		Source: fleet.Source{RepoURL: "https://git.example.com/acme/shop", Path: "deploy",
			TargetRevision: "v1.2.0",
			Kustomize: &fleet.KustomizeSource{
				Images: []string{"shop=registry.example.com/shop:v1.2.0"}}},
		Destination: fleet.Destinations{Environments: []fleet.EnvironmentName{"prod", "staging"},
			Namespace: "acme-shop"},
		Overrides: []fleet.Override{
			{Environment: "staging", Source: fleet.SourceOverride{TargetRevision: "HEAD"}}},
	}
	for _, e := range edit {
		e(spec)
	}
	d := &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: "acme",
		Name: "shop"}, Path: "tenants/acme/deployments/shop.yaml",
		Labels: map[string]string{"team": "web", "example.com/cost": "42"}, Deployment: spec}
	s := &fleet.Subject{Declaration: d, Tenant: acme()}
	for _, env := range []*fleet.Declaration{environment("prod", map[string]string{"tier": "prod"},
		"acme-shop"), environment("staging", nil, "acme-shop", "acme-cart")} {
		s.Targets = append(s.Targets, targetIn(s.Declaration, env))
	}
	return s
}

func targetIn(d, env *fleet.Declaration) fleet.Target {
	t, _ := d.TargetIn(env, fleet.Defaults{Sync: fleet.SyncSettings{Prune: yes()}})
	return t
}

func TestARuleSeesTheDeclarationItsTenantAndItsEnvironments(t *testing.T) {
	no := false
	manual := func(d *fleet.DeploymentSpec) {
		d.Sync = fleet.SyncSettings{Mode: fleet.SyncManual,
			Prune: &no}
	}
	for _, c := range []struct {
		rule    string
		subject *fleet.Subject
	}{
		{
			`declaration.apiVersion == "argosy.dev/v1alpha1" && declaration.kind == "GitOpsDeployment"`, shop()},
		{
			`declaration.metadata.name == "shop" && declaration.metadata.labels.team == "web" && declaration.metadata.labels["example.com/cost"] == "42"`, shop()},
		{
			`declaration.spec.source.targetRevision == "v1.2.0" && declaration.spec.source.kustomize.images[0].startsWith("shop=")`, shop()},
		{`declaration.spec.destination.environments == ["prod", "staging"]`, shop()},
		{
			`declaration.spec.overrides.exists(o, o.environment == "staging" && o.source.targetRevision == "HEAD")`, shop()},
		{`path == "tenants/acme/deployments/shop.yaml"`, shop()},
		{
			`tenant.name == "acme" && tenant.labels.class == "gold" && size(tenant.owners) == 2 && tenant.quota.environments == 3 && tenant.quota.applications == 0`, shop()},
		{
			`tenant.repositories.all(r, r.startsWith("https://")) && tenant.clusterResources.exists(k, k.kind == "Namespace") && !tenant.placement.dedicated`, shop()},
		{
			`environments.map(e, e.name) == ["prod", "staging"] && environments.all(e, e.region == "eu")`, shop()},
		{
			`environments[1].namespaces == ["acme-shop", "acme-cart"] && environments[0].cluster.credentialsRef.name == "prod"`, shop()},
		{
			`applications.map(a, a.source.targetRevision) == ["v1.2.0", "HEAD"] && applications.all(a, a.namespace == "acme-shop")`, shop()},
		{
			`applications.all(a, a.source.path == "deploy" && a.source.kustomize.images.size() == 1 && a.deletionPolicy == "Delete")`, shop()},
		{
			`applications.all(a, a.sync.automated && a.sync.prune && a.sync.selfHeal && !a.sync.createNamespace)`, shop()},
		{`applications.all(a, !a.sync.automated && !a.sync.prune)`, shop(manual)},
		{`applications.exists(a, a.environment.labels.tier == "prod")`, shop()},
	} {
		holds(t, c.rule, c.subject)
	}
}

// An omitted field has a value of its type, and has() detects it. No rule fails because of it.
func TestAnOmittedFieldIsNoError(t *testing.T) {
	for _, rule := range []string{
		`declaration.spec.source.helm.parameters.all(p, p.name != "x") && declaration.spec.source.helm.releaseName == ""`,
		`!has(declaration.spec.source.helm) && has(declaration.spec.source.kustomize) && !has(declaration.spec.source.helm.values)`,
		`!has(declaration.spec.sync.prune) && !declaration.spec.sync.prune`,
		`!has(declaration.spec.destination.environmentSelector) && size(declaration.spec.destination.environmentSelector.matchLabels) == 0`,
		`declaration.metadata.labels.missing == "" && !has(declaration.metadata.labels.missing) && has(declaration.metadata.labels.team)`,
		`!("missing" in declaration.metadata.labels) && "team" in declaration.metadata.labels`,
		`environments[1].labels.tier == "" && environments[1].labels["tier"] == "" && !has(environments[1].labels.tier)`,
		`declaration.metadata.labels[?"missing"].orValue("none") == "none" && declaration.metadata.?labels.?team.orValue("none") == "web"`,
		`declaration.spec.?source.?helm.?values.orValue("none") == "none"`,
		`declaration.metadata.labels.all(k, k.size() > 0) && size(environments[1].labels) == 0`,
	} {
		holds(t, rule, shop())
	}
}

func TestEveryKindOfATenantIsJudged(t *testing.T) {
	cred := &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindRepositoryCredential, Tenant: "acme",
		Name: "git"}, Credential: &fleet.CredentialSpec{RepoURL: "https://git.example.com/acme/x",
		CredentialsRef: fleet.SecretRef{Name: "git"}}}
	run := &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindSyncRun, Tenant: "acme", Name: "once"},
		SyncRun: &fleet.SyncRunSpec{Deployment: "shop", Revision: "v1", Hold: true}}
	holds(t,
		`declaration.spec.repoURL.startsWith("https://") && declaration.spec.credentialsRef.name == "git"`, &fleet.Subject{Declaration: cred, Tenant: acme()})
	holds(t,
		`declaration.spec.hold && declaration.spec.deployment == "shop" && environments.size() == 0 && applications.size() == 0`, &fleet.Subject{Declaration: run, Tenant: acme()})
	holds(t,
		`declaration.spec.namespaces.all(n, n.startsWith(tenant.name + "-")) && !declaration.spec.clusterResources`,
		&fleet.Subject{Declaration: environment("prod", nil, "acme-a", "acme-b"), Tenant: acme()})
	if len(shapes.kinds) != len(fleet.PolicedKinds()) {
		t.Errorf("there are %d kinds to judge, and %d may be named", len(shapes.kinds),
			len(fleet.PolicedKinds()))
	}
}

// holds checks that a rule compiles, is true, and is false when negated: a rule that is never
// evaluated cannot be both.
func holds(t *testing.T, rule string, s *fleet.Subject) {
	t.Helper()
	p := &fleet.PolicySpec{Kinds: []fleet.Kind{s.Declaration.Key.Kind}, Rule: rule,
		Message: "broken"}
	for _, f := range Check(p) {
		t.Errorf("%s\n  %+v", rule, f)
	}
	j := New()
	if broken, err := j.Judge(p, s); broken != "" || err != nil {
		t.Errorf("%s\n  %q, %v", rule, broken, err)
	}
	p.Rule = "!(" + rule + ")"
	if broken, err := j.Judge(p, s); broken != "broken" || err != nil {
		t.Errorf("%s\n  %q, %v", p.Rule, broken, err)
	}
}

func TestAViolationHasThePolicysMessage(t *testing.T) {
	for _, c := range []struct{ message, expression, want string }{
		{"name a tag", "", "name a tag"},
		{"", `"deployment " + declaration.metadata.name + " of " + tenant.name`,
			"deployment shop of acme"},
		{"", `declaration.metadata.labels.missing`, "its rule does not hold"},
		{"", `"a\n  b\tc"`, "a b c"},
		{"", `environments[7].name`,
			"its rule does not hold (messageExpression: index out of bounds: 7)"},
		{"", `"` + strings.Repeat("é", 1000) + `"`, strings.Repeat("é", mostMessage) + "…"},
	} {
		p := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment}, Rule: "false",
			Message: c.message, MessageExpression: c.expression}
		if got, err := New().Judge(p, shop()); got != c.want || err != nil {
			t.Errorf("%q, want %q (%v)", got, c.want, err)
		}
	}
}

func TestAFailedEvaluationHasAReason(t *testing.T) {
	for rule, want := range map[string]string{
		`declaration.spec.destination.environments[9] == "x"`: "index out of " +
			"bounds: 9",
		`1 / size(declaration.spec.source.helm.parameters) == 1`: "division by zero",
		`int(declaration.metadata.name) > 3`: "type conversion" +
			" error",
		`declaration.spec.nothing == ""`: "there is no field \"nothing\" " +
			"in DeploymentSpec",
		`declaration.metadata.name.matches(tenant.name + "(")`: "error parsing regexp",
	} {
		p := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment}, Rule: rule,
			Message: "broken"}
		if broken, err := New().Judge(p, shop()); broken != "" || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", rule, broken, err)
		}
	}
}

// manyTargets returns a deployment in n environments with m images in each.
func manyTargets(n, m int) *fleet.Subject {
	s := shop(func(d *fleet.DeploymentSpec) { d.Overrides = nil })
	s.Targets = nil
	images := make([]string, m)
	for i := range images {
		images[i] = fmt.Sprintf("image-%d=registry.example.com/shop/image-%d:v1", i, i)
	}
	s.Declaration.Deployment.Source.Kustomize = &fleet.KustomizeSource{Images: images}
	for i := range n {
		s.Targets = append(s.Targets,
			targetIn(s.Declaration, environment(fmt.Sprintf("env-%d", i),
				map[string]string{"tier": "prod"}, "acme-shop")))
	}
	return s
}

func TestACostlyRuleIsCut(t *testing.T) {
	quadratic := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
		Message: "two environments have one name",
		Rule:    `environments.all(a, environments.exists_one(b, a.name == b.name))`}
	if faults := Check(quadratic); len(faults) > 0 {
		t.Fatal(faults)
	}
	j := New()
	if broken, err := j.Judge(quadratic, manyTargets(50, 1)); broken != "" || err != nil {
		t.Errorf("over 50 environments: %q, %v", broken, err)
	}
	broken, err := j.Judge(quadratic, manyTargets(1000, 1))
	if broken != "" || err == nil ||
		err.Error() != fmt.Sprintf("it costs more than %d for this declaration", Most) {
		t.Errorf("over 1,000 environments: %q, %v", broken, err)
	}
	cubic := *quadratic
	cubic.Rule =
		`environments.all(a, environments.all(b, environments.all(c, a.name != b.name || b.name != c.name)))`
	if faults := Check(&cubic); len(faults) != 1 || !strings.Contains(faults[0].Message,
		"over the largest declarations") {
		t.Errorf("a rule over triples: %+v", faults)
	}
	linear := *quadratic
	linear.Rule =
		`applications.all(a, a.source.kustomize.images.all(i, i.contains("registry.example.com/")))`
	if faults := Check(&linear); len(faults) > 0 {
		t.Errorf("a rule over each image of each application: %+v", faults)
	}
	if broken, err := j.Judge(&linear, manyTargets(100, 10)); broken != "" || err != nil {
		t.Errorf("1,000 images: %q, %v", broken, err)
	}
}

func TestAnEvaluationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment}, Message: "m",
		Rule: `environments.all(a, a.name != "")`}
	if _, err := New().judge(ctx, p, manyTargets(1000, 1)); err == nil ||
		err.Error() != "it was interrupted" {
		t.Errorf("with its context ended: %v", err)
	}
}

// A rule over maps gives the same answer every time: labels are ordered by key.
func TestJudgingIsDeterministic(t *testing.T) {
	s := shop()
	for i := range 30 {
		s.Declaration.Labels[fmt.Sprintf("label-%d", i)] = fmt.Sprint(i)
	}
	p := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
		Rule:              `declaration.metadata.labels.map(k, k)[0] == "z"`,
		MessageExpression: `declaration.metadata.labels.filter(k, k != "team")[0] + declaration.metadata.labels.map(k, declaration.metadata.labels[k])[30]`}
	want, err := New().Judge(p, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got, err := New().Judge(p, s); got != want || err != nil {
			t.Fatalf("%q, then %q (%v)", want, got, err)
		}
	}
}

func TestAJudgeKeepsABoundedNumberOfPrograms(t *testing.T) {
	j := New()
	for i := range mostKept + 5 {
		p := &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
			Rule: fmt.Sprintf("%d == 1", i), Message: "m"}
		j.programs[expression{kind: fleet.KindGitOpsDeployment, text: p.Rule}] = compiled{}
		if i > mostKept {
			if _, err := j.Judge(p, shop()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(j.programs) > 10 {
		t.Errorf("%d programs are kept", len(j.programs))
	}
}
