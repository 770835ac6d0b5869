package fleet

import (
	"fmt"
	"strings"
	"testing"
)

func place(name string, labels ...string) *Declaration {
	d := &Declaration{Key: Key{Kind: KindManagedEnvironment, Tenant: "acme", Name: name},
		Labels: map[string]string{}, Environment: &EnvironmentSpec{Region: "eu"}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		d.Labels[k] = v
	}
	return d
}

func deploying(spec DeploymentSpec) *Declaration {
	return &Declaration{Key: Key{Kind: KindGitOpsDeployment, Tenant: "acme", Name: "shop"},
		Deployment: &spec}
}

func in(k, v string) *LabelSelector {
	return &LabelSelector{MatchLabels: map[string]string{k: v}}
}

func TestOverridesApplyInTheOrderOfTheFileAndTheNamedOneLast(t *testing.T) {
	yes, no := true, false
	d := deploying(DeploymentSpec{
		Source: Source{Path: "base", TargetRevision: "v1",
			Helm: &HelmSource{ReleaseName: "r", Values: `{"a":{"x":1,"y":1},"l":[1]}`}},
		Destination: Destinations{Namespace: "shop"},
		Sync:        SyncSettings{Prune: &no},
		Overrides: []Override{
			{Environment: "prod", Namespace: "named", Source: SourceOverride{Path: "named"}},
			{Selector: in("tier", "prod"), Namespace: "first", Values: `{"a":{"x":2},"l":[2]}`,
				Sync: SyncSettings{Mode: SyncManual, Prune: &yes}},
			{Selector: in("zone", "a"), Namespace: "second", Values: `{"a":{"x":3,"y":null}}`,
				Sync:   SyncSettings{SelfHeal: &no},
				Source: SourceOverride{TargetRevision: "v2", Path: "second"}},
			{Selector: in("tier", "test"), Namespace: "never"},
		},
	})
	got, unresolved := d.TargetIn(place("prod", "tier=prod", "zone=a"),
		Defaults{Sync: SyncSettings{CreateNamespace: &yes}})
	if len(unresolved) > 0 {
		t.Fatal(unresolved)
	}
	s := got.Sources[0]
	if got.Namespace != "named" || s.Path != "named" || s.TargetRevision != "v2" {
		t.Errorf("namespace %q, path %q, revision %q", got.Namespace, s.Path, s.TargetRevision)
	}
	if v := compact(t, s.Helm.Values); v != `{"a":{"x":3,"y":null},"l":[2]}` ||
		s.Helm.ReleaseName != "r" {
		t.Errorf("values %s, release %q", v, s.Helm.ReleaseName)
	}
	if y := got.Sync; y.Automated || !y.Prune || y.SelfHeal || !y.CreateNamespace {
		t.Errorf("sync %+v", y)
	}
	other, _ := d.TargetIn(place("staging"), Defaults{})
	if s := other.Sources[0]; other.Namespace != "shop" || s.Path != "base" || other.Sync.Prune ||
		compact(t, s.Helm.Values) != `{"a":{"x":1,"y":1},"l":[1]}` {
		t.Errorf("another environment gets %+v", other)
	}
}

func TestAnOverrideChangesTheSourceThatItNames(t *testing.T) {
	d := deploying(DeploymentSpec{
		Sources: []Source{{Ref: "files", TargetRevision: "main"},
			{Chart: "shop", TargetRevision: "1.2.3", Helm: &HelmSource{
				ValueFiles: []string{"$files/base.yaml"}}},
			{Path: "more", TargetRevision: "main"}},
		Overrides: []Override{
			{Environment: "prod", Source: SourceOverride{Of: "files", TargetRevision: "v2"}},
			{Selector: in("tier", "prod"), Values: `{"a":1}`},
			{Selector: in("tier", "prod"), Source: SourceOverride{Of: "more", Path: "less"}},
		}})
	got, unresolved := d.TargetIn(place("prod", "tier=prod"), Defaults{})
	if len(unresolved) > 0 {
		t.Fatal(unresolved)
	}
	s := got.Sources
	if s[0].TargetRevision != "v2" || s[1].TargetRevision != "1.2.3" || s[2].Path != "less" ||
		compact(t, s[1].Helm.Values) != `{"a":1}` || d.Deployment.Sources[1].Helm.Values != "" {
		t.Errorf("%+v", s)
	}
}

func TestVariablesAreReplacedForEachEnvironment(t *testing.T) {
	d := deploying(DeploymentSpec{
		Source: Source{Path: "apps/${deployment.name}/${environment.name}",
			TargetRevision: "${environment.labels.release}",
			Helm: &HelmSource{ReleaseName: "shop-${environment.name}",
				ValueFiles: []string{"${environment.region}.yaml", "$x/${cluster.name}.yaml"},
				Values: "host: ${environment.name}.example.com # ${HOME} ${tenant.name\n" +
					"kept: $${environment.name} $$x ${environment.names} ${environment.labels.}\n",
				Parameters: []HelmParameter{{Name: "a", Value: "${tenant.name}$${tenant.name}"}}}},
		Destination: Destinations{Namespace: "shop-${environment.labels.example.com/team}"}})
	got, unresolved := d.TargetIn(place("prod", "release=v1.2.3", "example.com/team=web"),
		Defaults{})
	if len(unresolved) > 0 {
		t.Fatal(unresolved)
	}
	s := got.Sources[0]
	if s.Path != "apps/shop/prod" || s.TargetRevision != "v1.2.3" || got.Namespace != "shop-web" ||
		s.Helm.ReleaseName != "shop-prod" ||
		s.Helm.ValueFiles[0] != "eu.yaml" || s.Helm.ValueFiles[1] != "$x/prod.yaml" ||
		s.Helm.Parameters[0].Value != "acme${tenant.name}" {
		t.Errorf("%+v, helm %+v", got, s.Helm)
	}
	if want := "host: prod.example.com # ${HOME} ${tenant.name\n" +
		"kept: ${environment.name} $$x ${environment.names} ${environment.labels.}\n"; string(
		s.Helm.Values) != want {
		t.Errorf("values %q, want %q", s.Helm.Values, want)
	}
	if h := d.Deployment.Source.Helm; h.ValueFiles[0] != "${environment.region}.yaml" ||
		h.Parameters[0].Value == s.Helm.Parameters[0].Value {
		t.Errorf("the declaration changed: %+v", h)
	}
}

func TestTheValueOfAnEnvironmentsVariableIsOnePlainText(t *testing.T) {
	for value, ok := range map[string]bool{"": true, "a/b": true, "./a": true, "_a": true,
		"https://git.example.com/a.git": true, "arn:aws:iam::123456789012:role/x+y=z@w,v": true,
		"a-": true, "-a": false, "a:": false, ":a": false, "@a": false, "a b": false, "a#b": false,
		"a\nb": false, "${tenant.name}": false, "a'": false, `a"`: false, "{a}": false,
		"é": false} {
		if err := CheckVariableValue(value); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
	for name, ok := range map[string]bool{"a": true, "example.com/a_b-c": true, "": false,
		"a-": false, "_a": false, "a}": false, strings.Repeat("a", 254): false} {
		if err := CheckVariableName(name); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestTheNameOfAClusterIsThatOfThePlatform(t *testing.T) {
	d := deploying(DeploymentSpec{Source: Source{Path: "${cluster.name}/${environment.name}",
		TargetRevision: "main"}})
	env := place("prod")
	for ref, want := range map[PlatformClusterName]string{"": "prod/prod", "eu-7": "eu-7/prod"} {
		env.Environment.Cluster = &ClusterSpec{Ref: ref}
		if got, _ := d.TargetIn(env, Defaults{}); got.Sources[0].Path != want {
			t.Errorf("on cluster %q the path is %q, want %q", ref, got.Sources[0].Path, want)
		}
	}
}

// An artifact has digests, which no ref of Git is, and no repository in Git has them.
func TestAVariableGivesTheRevisionOfAnArtifact(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	const git, artifact = "https://git.example.com/a", "oci://registry.example.com/a"
	for _, c := range []struct{ repository, revision, err string }{
		{artifact, digest, ""},
		{artifact, "1.4.0", ""},
		{artifact, "1.x", "a range of versions"},
		{artifact, digest + "a", "an OCI artifact has tags"},
		{artifact, "a/b", "an OCI artifact has tags"},
		{artifact, "", "is empty"},
		{git, digest, "only letters, digits"},
		{git, "a/b", ""},
		{git, "", "is empty"},
	} {
		env := place("prod")
		env.Environment.Variables = map[string]string{"release": c.revision}
		got, unresolved := deploying(DeploymentSpec{Source: Source{RepoURL: c.repository,
			Path: ".", TargetRevision: "${environment.variables.release}"}}).TargetIn(env,
			Defaults{})
		if c.err == "" && (len(unresolved) > 0 || got.Sources[0].TargetRevision != c.revision) ||
			c.err != "" && (len(unresolved) != 1 ||
				!strings.Contains(unresolved[0].Err.Error(), c.err)) {
			t.Errorf("%s at %q: %v", c.repository, c.revision, unresolved)
		}
	}
}

func TestAVariableIsNotExpandedAgain(t *testing.T) {
	d := deploying(DeploymentSpec{Source: Source{Path: ".", TargetRevision: "main",
		Helm: &HelmSource{Values: "a: $${$${environment.name}} $${environment.name}"}}})
	got, _ := d.TargetIn(place("prod"), Defaults{})
	if v := got.Sources[0].Helm.Values; v != "a: $${${environment.name}} ${environment.name}" {
		t.Errorf("%q", v)
	}
}

func TestAResolvedTextPassesTheChecksOfAWrittenOne(t *testing.T) {
	label := "${environment.labels.x}"
	for name, c := range map[string]struct {
		spec  DeploymentSpec
		label string
		want  string
	}{
		"a missing label": {DeploymentSpec{Source: Source{Path: label}}, "",
			`spec.source.path: environment "prod" has no label "x"`},
		"a folder of Git": {DeploymentSpec{Source: Source{Path: "a/." + label}}, "git",
			`spec.source.path: in environment "prod" it is "a/.git": no part of a path`},
		"a range": {DeploymentSpec{Source: Source{Path: ".", TargetRevision: label}}, "1.x",
			`spec.source.targetRevision: in environment "prod" it is "1.x": the revision is a range`},
		"a lock": {DeploymentSpec{Source: Source{Path: ".", TargetRevision: "a." + label}}, "lock",
			`spec.source.targetRevision: in environment "prod" it is "a.lock": the revision is no`},
		"a release that Helm refuses": {DeploymentSpec{Source: Source{Path: ".",
			TargetRevision: "a", Helm: &HelmSource{ReleaseName: "shop-" + label}}}, "B",
			`spec.source.helm.releaseName: in environment "prod" it is "shop-B": only 1 to 63 of`},
		"no namespace": {DeploymentSpec{Destination: Destinations{Namespace: "a-" + label}}, "B",
			`spec.destination.namespace: in environment "prod" it is "a-B": a namespace is`},
		"an override": {DeploymentSpec{Overrides: []Override{{Environment: "other"},
			{Environment: "prod", Namespace: label}}}, "",
			`spec.overrides[1].namespace: environment "prod" has no label "x"`},
		"values of an override": {DeploymentSpec{Overrides: []Override{
			{Environment: "prod", Values: Values(`{"a":"` + label + `"}`)}}}, "",
			`spec.overrides[0].values: environment "prod" has no label "x"`},
		"a file of another folder": {DeploymentSpec{
			Source:    Source{Path: "a/b", Helm: &HelmSource{ValueFiles: []string{"../../x.yaml"}}},
			Overrides: []Override{{Environment: "prod", Source: SourceOverride{Path: "a"}}}}, "",
			`spec.source.helm.valueFiles[0]: in environment "prod" "../../x.yaml" leaves the`},
		"a file of a parameter": {DeploymentSpec{Source: Source{Path: ".", Helm: &HelmSource{
			FileParameters: []HelmFileParameter{{Name: "a", Path: label}}}}}, "",
			`spec.source.helm.fileParameters[0].path: environment "prod" has no label "x"`},
		"values that grow": {DeploymentSpec{Source: Source{Helm: &HelmSource{
			Values: Values(strings.Repeat(label, MaxValues/30))}}}, strings.Repeat("v", 63),
			`spec.source.helm.values: in environment "prod" it is "vvv`},
	} {
		env := place("prod")
		if c.label != "" {
			env.Labels["x"] = c.label
		}
		_, unresolved := deploying(c.spec).TargetIn(env, Defaults{})
		if len(unresolved) != 1 || !strings.HasPrefix(fmt.Sprintf("%s: %v", unresolved[0].Field,
			unresolved[0].Err), c.want) {
			t.Errorf("%s: %v", name, unresolved)
		}
		if !deploying(c.spec).Deployment.Varies() {
			t.Errorf("%s: the deployment does not vary", name)
		}
	}
	if (&DeploymentSpec{Source: Source{Path: "a", Helm: &HelmSource{
		Values: "$${environment.name} ${HOME}"}}}).Varies() {
		t.Error("a deployment without variables varies")
	}
}

// A text that the decoder accepts either resolves to a text that passes its check, or is reported.
func FuzzVariables(f *testing.F) {
	f.Add("apps/${environment.name}", "v1.2")
	f.Add("$${environment.labels.x}${environment.labels.x}", "git")
	f.Add("${environment.labels.a/b}${", "-")
	f.Fuzz(func(t *testing.T, text, label string) {
		if _, found := CheckVariables(text); found != "" || text == "" ||
			CheckPath(SampleVariables(text)) != nil {
			return
		}
		env := place("prod", "x="+label)
		got, unresolved := deploying(DeploymentSpec{Source: Source{Path: text}}).TargetIn(env,
			Defaults{})
		if len(unresolved) == 0 && CheckPath(got.Sources[0].Path) != nil {
			t.Errorf("%q with %q becomes %q", text, label, got.Sources[0].Path)
		}
	})
}
