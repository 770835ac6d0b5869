package catalog

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

// severalSources is a deployment of a chart and of the repository with its values.
func severalSources(name, values string, env fleet.EnvironmentName) Input {
	i := deployment(name, env)
	return remake(i, func(d *fleet.Declaration) {
		d.Deployment.Source, d.Deployment.Sources = fleet.Source{}, []fleet.Source{
			{Ref: "values", RepoURL: values, TargetRevision: "main"},
			{RepoURL: "https://git.example.com/acme/charts", Chart: "app", TargetRevision: "1.2.3"},
		}
	})
}

func TestEverySourceNeedsAGrant(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), environment("acme/prod"))
	s := c.Prepare([]Input{severalSources("acme/web", "https://git.example.com/globex/values",
		"prod")})
	if got := codes(s.Problems()); got !=
		"GitOpsDeployment acme/web spec.sources[0].repoURL repository-not-granted" {
		t.Error(got)
	}
}

func TestEveryRepositoryOfADeploymentHasItsCredential(t *testing.T) {
	const values = "https://git.example.com/acme/values"
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), environment("acme/prod"),
		severalSources("acme/web", values, "prod"),
		credential("acme/values", "https://git.example.com/acme/values.git"))
	id := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	v := c.View
	got := v.Repositories(id)
	if len(got) != 2 || got[0].Credential.Name != "" || got[1].Credential.Name != "values" {
		t.Errorf("repositories: %+v", got)
	}
	for _, url := range []string{values, "https://git.example.com/ACME/charts"} {
		if from := v.DeploymentsFrom("acme", url); len(from) != 1 {
			t.Errorf("deployments from %s: %v", url, from)
		}
	}
}

// The nearest credential serves a repository: its own, or that of a folder above it, which the
// tenant is granted as a whole.
func TestTheNearestCredentialServesARepository(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme"), tenant("globex"),
		credential("acme/all", "https://git.example.com/acme/"),
		credential("acme/team", "https://git.example.com/ACME/team/"),
		credential("acme/app", "https://git.example.com/acme/team/app"))
	for url, want := range map[string]string{
		"https://git.example.com/acme/team/App.git": "app",
		"https://git.example.com/acme/team/other":   "team",
		"https://git.example.com/acme/team":         "all",
		"https://git.example.com/acme-evil/app":     "", "ssh://git@git.example.com/acme/app": "",
	} {
		got := ""
		if d := c.CredentialFor("acme", url); d != nil {
			got = d.Key.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		if c.CredentialFor("globex", url) != nil {
			t.Errorf("%s: a credential serves another tenant", url)
		}
	}
	for name, i := range map[string]struct {
		url, want string
	}{
		"the same folder": {"https://git.example.com/Acme/",
			"RepositoryCredential acme/more spec.repoURL duplicate-credential"},
		"a folder that is not granted": {"https://git.example.com/globex/",
			"RepositoryCredential acme/more spec.repoURL repository-not-granted"},
	} {
		if got := codes(c.Prepare([]Input{credential("acme/more", i.url)}).Problems()); got !=
			i.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestASyncRunHasARevisionForEachSource(t *testing.T) {
	run := func(revision string, revisions ...string) Input {
		return remake(syncRun("acme/run", "web", "v1"), func(d *fleet.Declaration) {
			d.SyncRun.Revision, d.SyncRun.Revisions = revision, revisions
		})
	}
	for name, c := range map[string]struct {
		run  Input
		want string
	}{
		"one for all": {run("v1"), "SyncRun acme/run spec.revision revisions-of-sources"},
		"too many": {run("", "v1", "v2", "v3"),
			"SyncRun acme/run spec.revisions revisions-of-sources"},
		"one for each": {run: run("", "v1", "1.2.3")},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := New()
			good(t, catalog, theFleet(), engine("eu-1"), tenant("acme"),
				environment("acme/prod"),
				severalSources("acme/web", "https://git.example.com/acme/values", "prod"))
			if got := codes(catalog.Prepare([]Input{c.run}).Problems()); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestATenantIsAllowedRangesOfVersions(t *testing.T) {
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Source = fleet.Source{RepoURL: "https://git.example.com/acme/charts",
			Chart: "app", TargetRevision: "^1.2"}
	})
	for allowed, want := range map[bool]string{
		true:  "GitOpsDeployment acme/web spec.source.targetRevision floating-version",
		false: "GitOpsDeployment acme/web spec.source.targetRevision version-range-not-granted",
	} {
		c := New()
		good(t, c, theFleet(), engine("eu-1"), environment("acme/prod"),
			tenant("acme", func(d *fleet.Declaration) { d.Tenant.Allow.VersionRanges = allowed }))
		if got := codes(c.Prepare([]Input{web}).Problems()); got != want {
			t.Errorf("%v: %q, want %q", allowed, got, want)
		}
	}
}

func TestATenantIsAllowedPlugins(t *testing.T) {
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Source.Plugin = &fleet.PluginSource{Name: "cdk8s"}
	})
	for want, plugins := range map[string][]string{
		"": {"cdk8s"},
		"GitOpsDeployment acme/web spec.source.plugin.name tool-not-granted": {"cdk8s-v1"},
	} {
		c := New()
		good(t, c, theFleet(), engine("eu-1"), environment("acme/prod"),
			tenant("acme", func(d *fleet.Declaration) { d.Tenant.Allow.Plugins = plugins }))
		if got := codes(onlyErrors(c.Prepare([]Input{web}).Problems())); got != want {
			t.Errorf("%v: %q, want %q", plugins, got, want)
		}
	}
}

func TestJsonnetNeedsEnginesOfTheTenantsOwn(t *testing.T) {
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Source.Directory = &fleet.DirectorySource{Jsonnet: &fleet.JsonnetSource{}}
	})
	for want, alone := range map[string]bool{
		"": true,
		"GitOpsDeployment acme/web spec.source.directory.jsonnet tool-not-granted": false,
	} {
		c := New()
		good(t, c, theFleet(), engine("eu-1"), environment("acme/prod"),
			tenant("acme", func(d *fleet.Declaration) { d.Tenant.Placement.Alone = alone }))
		if got := codes(onlyErrors(c.Prepare([]Input{web}).Problems())); got != want {
			t.Errorf("alone %t: %q, want %q", alone, got, want)
		}
	}
}

func TestAnArtifactNeedsEnginesOfTheTenantsOwnOrThePlatformsTrust(t *testing.T) {
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Source.RepoURL = "oci://git.example.com/acme/web"
	})
	own := func(d *fleet.Declaration) { d.Tenant.Placement.Alone = true }
	granted := func(d *fleet.Declaration) {
		d.Tenant.Repositories = []string{"oci://git.example.com/acme/"}
	}
	trusted := func(d *fleet.Declaration) {
		d.Tenant.Allow.Artifacts = []string{"oci://git.example.com/acme/web"}
	}
	elsewhere := func(d *fleet.Declaration) {
		d.Tenant.Allow.Artifacts = []string{"oci://git.example.com/platform/"}
	}
	const web0 = "GitOpsDeployment acme/web spec.source.repoURL "
	for _, given := range []struct {
		want    string
		changes []edit
	}{
		{"", []edit{own, granted}}, {web0 + "repository-not-granted", []edit{own}},
		{web0 + "tool-not-granted", []edit{granted}}, {"", []edit{granted, trusted}},
		{web0 + "tool-not-granted", []edit{granted, elsewhere}},
		{web0 + "repository-not-granted", []edit{trusted}},
	} {
		want, changes := given.want, given.changes
		c := New()
		good(t, c, theFleet(), engine("eu-1"), environment("acme/prod"), tenant("acme", changes...))
		if got := codes(onlyErrors(c.Prepare([]Input{web}).Problems())); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestATenantIsAllowedNotifications(t *testing.T) {
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Notifications = []fleet.Notification{{Service: "slack",
			Recipients: []string{"acme"}}}
	})
	for want, grant := range map[string]fleet.NotificationGrant{
		"": {Service: "slack", Recipients: []string{"acme"}},
		"GitOpsDeployment acme/web spec.notifications[0] notification-not-granted": {
			Service: "slack", Recipients: []string{"globex"}},
	} {
		c := New()
		good(t, c, theFleet(), engine("eu-1"), environment("acme/prod"),
			tenant("acme", func(d *fleet.Declaration) {
				d.Tenant.Allow.Notifications = []fleet.NotificationGrant{grant}
			}))
		if got := codes(onlyErrors(c.Prepare([]Input{web}).Problems())); got != want {
			t.Errorf("%v: %q, want %q", grant, got, want)
		}
	}
}

func TestATenantIsAllowedVersionsOfKustomize(t *testing.T) {
	c := New()
	allow := func(versions ...string) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Allow.KustomizeVersions = versions
		})
	}
	good(t, c, theFleet(), engine("eu-1"), allow("v5.4.3"), environment("acme/prod"),
		remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
			d.Deployment.Source.Kustomize = &fleet.KustomizeSource{Version: "v5.4.3"}
		}))
	if got := codes(onlyErrors(c.Prepare([]Input{allow("v5.6.0")}).Problems())); got !=
		"GitOpsDeployment acme/web spec.source.kustomize.version tool-not-granted" {
		t.Error(got)
	}
}
