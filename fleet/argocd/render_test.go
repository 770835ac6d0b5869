package argocd

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func notifying(all ...fleet.Notification) fleet.Object {
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Notifications = all
	return o
}

// partOf is the Secret of one repository, by a credential for its folder, with the part of a key.
func partOf(url, key string) fleet.Object {
	o := repositoryOf(fleet.RepositoryGit, url)
	o.Repository.Part = fleet.RepositoryPart(key)
	o.Repository.Name = fleet.RepositoryName(o.Repository.ID, o.Repository.Part)
	o.Key.Name = o.Repository.Name
	return o
}

func repositoryOf(of fleet.RepositoryType, url string) fleet.Object {
	o := repositoryObject(acme)
	o.Repository.Type, o.Repository.URL = of, url
	return o
}

func TestRenderedObjectsAreGolden(t *testing.T) {
	app := func(change func(*fleet.Application)) fleet.Object {
		o := applicationObject(checkoutID, exampleServer)
		change(o.Application)
		return o
	}
	cluster := clusterObject(prodEU, exampleServer)
	wide := clusterObject(prodEU, exampleServer)
	wide.Cluster.ClusterResources = true
	bare := projectObject(acme)
	bare.Project.SourceRepos, bare.Project.Destinations, bare.Project.ClusterResources = nil, nil,
		nil
	granted := projectObject(acme)
	granted.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(exampleServer, prodEU), Namespace: "kube-system", Granted: true}}
	whole := projectObject(acme)
	whole.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(exampleServer, prodEU), All: true}}
	whole.Project.ClusterResources, whole.Project.AllClusterResources = nil, true
	all := clusterObject(prodEU, exampleServer)
	all.Cluster.Namespaces, all.Cluster.AllNamespaces = nil, true
	idle := clusterObject(prodEU, exampleServer)
	idle.Cluster.Namespaces, idle.Cluster.Unused = nil, true
	near := clusterObject(prodEU, fleet.InClusterServer)
	near.Cluster.OnEngine = testEngine
	nearby := projectObject(acme)
	nearby.Project.Destinations = []fleet.Destination{{OnEngine: testEngine, Namespace: "web",
		Server: fleet.ServerKey(fleet.InClusterServer, prodEU)}}
	cases := map[string]fleet.Object{
		"cluster-of-the-engine":          near,
		"project-on-the-engine":          nearby,
		"cluster-without-applications":   idle,
		"project-granted":                granted,
		"project-whole-cluster":          whole,
		"cluster-with-all-namespaces":    all,
		"project":                        projectObject(acme),
		"project-with-nothing":           bare,
		"cluster":                        cluster,
		"cluster-with-cluster-resources": wide,
		"repository":                     repositoryObject(acme),
		"repository-helm": repositoryOf(fleet.RepositoryHelm,
			"https://charts.example.com"),
		"repository-of-a-folder": partOf("https://git.example.com/Acme/app.git",
			"https://git.example.com/acme/app"),
		"repository-oci": repositoryOf(fleet.RepositoryOCI,
			"registry.example.com/acme"),
		"repository-artifact": repositoryOf(fleet.RepositoryOCI,
			"oci://registry.example.com/acme/checkout"),
		"application":        app(func(*fleet.Application) {}),
		"application-manual": app(func(a *fleet.Application) { a.Sync = fleet.Sync{} }),
		"application-automated-only": app(func(a *fleet.Application) {
			a.Sync = fleet.Sync{Automated: true}
		}),
		"application-all-sync-options": app(func(a *fleet.Application) {
			a.Sync = fleet.Sync{Automated: true, Prune: true, SelfHeal: true, AllowEmpty: true,
				CreateNamespace: true, ServerSideApply: true, ApplyOutOfSyncOnly: true,
				PruneLast: true, PrunePropagation: fleet.PropagateBackground,
				RespectIgnoreDifferences: true, SkipValidation: true, Replace: true,
				SkipDryRunOnMissingResource: true, FailOnSharedResource: true,
				Retry: &fleet.Retry{Limit: fleet.RetryForever, Backoff: &fleet.Backoff{
					Duration: fleet.Duration(90 * time.Second), Factor: 2,
					MaxDuration: fleet.Duration(2 * time.Hour)}},
				ManagedNamespaceMetadata: &fleet.NamespaceMetadata{
					Labels: map[string]string{
						"pod-security.kubernetes.io/enforce": "restricted"},
					Annotations: map[string]string{"example.com/cost-center": "4711"}}}
		}),
		"application-no-retry": app(func(a *fleet.Application) {
			a.Sync = fleet.Sync{Retry: &fleet.Retry{}}
		}),
		"application-details": app(func(a *fleet.Application) {
			none := 0
			a.IgnoreDifferences = []fleet.IgnoreDifference{
				{Group: "apps", Kind: "Deployment", Name: "checkout", Namespace: "checkout",
					JSONPointers:      []string{"/spec/replicas", "/metadata/annotations/a~1b"},
					JQPathExpressions: []string{`.spec.containers[] | select(.name == "proxy")`}},
				{Group: fleet.AnyKind, Kind: fleet.AnyKind,
					ManagedFieldsManagers: []string{"kube-controller-manager"}}}
			a.RevisionHistoryLimit, a.Wave = &none, -2
			a.Info = []fleet.Info{{Name: "team", Value: "payments"}}
			a.Links = []fleet.Link{{Title: "dashboard", URL: "https://grafana.example.com/d/a?b=c"},
				{URL: "https://wiki.example.com/checkout"}}
		}),
		"application-annotations": app(func(a *fleet.Application) {
			a.Sync.Diff, a.WatchPaths = fleet.DiffServerWithWebhooks, []string{".", "/shared/base"}
			a.Notifications = []fleet.Notification{
				{Trigger: "on-sync-failed", Service: "slack",
					Recipients: []string{"acme-alerts", "#b"}}, {Service: "webhook"}}
		}),
		"application-held": app(func(a *fleet.Application) { a.Hold = "rollback-1" }),
		"application-kustomize": app(func(a *fleet.Application) {
			a.Sources[0].Kustomize = &fleet.KustomizeSource{
				Images:     []string{"checkout=registry.example.com/checkout:v1.4.0"},
				NamePrefix: "eu-"}
		}),
		"application-capabilities": app(func(a *fleet.Application) {
			a.Sources[0].Helm = &fleet.HelmSource{KubeVersion: "v1.31.2", SkipTests: true,
				APIVersions:          []string{"monitoring.coreos.com/v1/ServiceMonitor", "v1"},
				SkipSchemaValidation: true}
		}),
		"application-patch-file": app(func(a *fleet.Application) {
			a.Sources[0].Kustomize = &fleet.KustomizeSource{Patches: []fleet.KustomizePatch{{
				Path: "patches/replicas.yaml", Target: &fleet.KustomizeTarget{Kind: "Deployment"}}}}
		}),
		"application-helm": app(func(a *fleet.Application) {
			a.Sources[0].Path, a.Sources[0].Chart = "", "checkout"
			a.Sources[0].Helm = &fleet.HelmSource{ReleaseName: "checkout", ValueFiles: []string{
				"values-eu.yaml"}, Values: "replicas: 3\nnote: \"<a> & *b*\"\n",
				Parameters: []fleet.HelmParameter{
					{Name: "image.tag", Value: "{1,2}", ForceString: true},
					{Name: "empty", Value: ""}}}
		}),
		"application-chart": app(func(a *fleet.Application) {
			a.Sources[0].Path, a.Sources[0].Chart = "", "checkout"
		}),
		"application-helm-without-a-name": app(func(a *fleet.Application) {
			a.Sources[0].Helm = &fleet.HelmSource{Values: "replicas: 3\n"}
		}),
		"own-cluster-project":     ownProject(),
		"own-cluster-application": ownApplication(),
		"application-tools": app(func(a *fleet.Application) {
			a.Sources = []fleet.Source{
				{RepoURL: "https://git.example.com/acme/more", Path: "charts/app",
					TargetRevision: "v1", Helm: &fleet.HelmSource{
						ValueFiles:              []string{"../../values.yaml"},
						IgnoreMissingValueFiles: true, SkipCrds: true, Version: "v3",
						Namespace: "checkout", FileParameters: []fleet.HelmFileParameter{
							{Name: "config", Path: "../config.json"}}}},
				{RepoURL: "https://git.example.com/acme/more", Path: "overlays/eu",
					TargetRevision: "v1", Kustomize: &fleet.KustomizeSource{
						Namespace: "checkout", CommonLabels: map[string]string{"team": "payments"},
						CommonAnnotations:    map[string]string{"example.com/owner": "payments"},
						LabelWithoutSelector: true, ForceCommonLabels: true,
						ForceCommonAnnotations: true,
						Replicas:               []fleet.KustomizeReplica{{Name: "web", Count: 0}},
						Patches: []fleet.KustomizePatch{
							{Patch: "[{op: remove, path: /spec/replicas}]",
								Target:  &fleet.KustomizeTarget{Kind: "Deployment", Name: "web"},
								Options: &fleet.KustomizePatchOptions{AllowNameChange: true}},
							{Patch: "kind: X"}},
						Components: []string{"../../components/tls"}, Version: "v5.4.3"}},
				{RepoURL: "https://git.example.com/acme/more", Path: "app", TargetRevision: "v1",
					Plugin: &fleet.PluginSource{Name: "cdk8s-v1.0",
						Env: []fleet.PluginEnv{{Name: "STAGE", Value: "prod"}},
						Parameters: []fleet.PluginParameter{{Name: "a", String: "x"},
							{Name: "b", Array: []string{"x", "y"}},
							{Name: "c", Map: map[string]string{"x": "y"}}}}},
				{RepoURL: "https://git.example.com/acme/more", Path: ".", TargetRevision: "v1",
					Directory: &fleet.DirectorySource{Include: "*.yaml", Exclude: "{a,b}*"}}}
		}),
		"application-sources": app(func(a *fleet.Application) {
			a.Sources = []fleet.Source{
				{Ref: "values", RepoURL: "https://git.example.com/acme/values",
					TargetRevision: "main"},
				{RepoURL: "https://charts.example.com/stable", Chart: "app",
					TargetRevision: "1.2.3", Helm: &fleet.HelmSource{
						ValueFiles: []string{"$values/prod.yaml"}}},
				{RepoURL: "https://git.example.com/acme/more", Path: "deploy",
					TargetRevision: "v1"}}
		}),
		"application-directory": app(func(a *fleet.Application) {
			a.Sources[0].Directory = &fleet.DirectorySource{Recurse: true}
		}),
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Renderer{}.Render(engineSpec(), o)
			if err != nil {
				t.Fatal(err)
			}
			if m.Hash != hashOf(m.Body) {
				t.Errorf("the hash is not that of the body")
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, m.Body, "", "  "); err != nil {
				t.Fatal(err)
			}
			pretty.WriteByte('\n')
			file := filepath.Join("testdata", "golden", name+".json")
			if *update {
				if err := os.WriteFile(file, pretty.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, pretty.Bytes()) {
				t.Errorf("rendered:\n%s\nwant (go test -update rewrites it):\n%s",
					pretty.Bytes(), want)
			}
			assertCanonical(t, m.Body)
		})
	}
}

// assertCanonical checks the invariants of every manifest.
func assertCanonical(t testing.TB, body []byte) {
	t.Helper()
	tree, err := decodeTree(body)
	if err != nil {
		t.Fatal(err)
	}
	again, err := canonical(tree)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, body) {
		t.Errorf("not canonical: %s", body)
	}
	meta := tree["metadata"].(map[string]any)
	for _, field := range []string{"finalizers", "creationTimestamp", "namespace",
		"resourceVersion"} {
		if _, there := meta[field]; there {
			t.Errorf("metadata.%s is rendered", field)
		}
	}
	for _, field := range []string{"status", "operation"} {
		if _, there := tree[field]; there {
			t.Errorf("%s is rendered", field)
		}
	}
	for k := range meta["annotations"].(map[string]any) {
		if !isStableAnnotation(k) {
			t.Errorf("annotation %s is not ours", k)
		}
	}
}

func TestJsonnetIsRenderedForAnEngineOfTheTenantAlone(t *testing.T) {
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Sources[0].Directory = &fleet.DirectorySource{Jsonnet: &fleet.JsonnetSource{
		Libs: []string{"vendor"}, TLAs: []fleet.JsonnetVar{{Name: "a", Value: "1", Code: true}}}}
	for _, c := range []struct {
		dedicated []fleet.TenantName
		want      bool
	}{{nil, false}, {[]fleet.TenantName{acme, "globex"}, false}, {[]fleet.TenantName{acme}, true}} {
		spec := engineSpec()
		spec.DedicatedTo = c.dedicated
		m, err := Renderer{}.Render(spec, o)
		if (err == nil) != c.want || c.want && !strings.Contains(string(m.Body),
			`"jsonnet":{"libs":["vendor"],"tlas":[{"code":true,"name":"a","value":"1"}]}`) {
			t.Errorf("dedicated to %v: %v %s", c.dedicated, err, m.Body)
		}
	}
	o.Application.Sources[0].Directory.Jsonnet.Libs = []string{"../../etc"}
	spec := engineSpec()
	spec.DedicatedTo = []fleet.TenantName{acme}
	if _, err := (Renderer{}).Render(spec, o); err == nil {
		t.Error("a library outside the repository is rendered")
	}
}

func TestAnArtifactIsRenderedForAnEngineOfTheTenantAlone(t *testing.T) {
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Sources[0].RepoURL = "oci://registry.example.com/acme/checkout"
	tagged, pinned := "v1.4.0", "sha256:"+strings.Repeat("a1", 32)
	for _, c := range []struct {
		dedicated []fleet.TenantName
		revision  string
		want      bool
	}{
		{nil, tagged, false}, {[]fleet.TenantName{acme, "globex"}, tagged, false},
		{[]fleet.TenantName{acme}, tagged, true}, {[]fleet.TenantName{acme}, pinned, true},
		{[]fleet.TenantName{acme}, "release/1", false},
		{[]fleet.TenantName{acme}, pinned + ",a", false}, {nil, "trusted", true},
	} {
		o.Application.TrustedArtifacts = c.revision == "trusted"
		spec := engineSpec()
		spec.DedicatedTo = c.dedicated
		o.Application.Sources[0].TargetRevision = c.revision
		m, err := Renderer{}.Render(spec, o)
		if (err == nil) != c.want || c.want && !strings.Contains(string(m.Body),
			`"repoURL":"oci://registry.example.com/acme/checkout","targetRevision":"`+
				c.revision+`"`) {
			t.Errorf("%s dedicated to %v: %v %s", c.revision, c.dedicated, err, m.Body)
		}
	}
}

func TestAListOfOneSourceIsRenderedAsAList(t *testing.T) {
	o := applicationObject(checkoutID, exampleServer)
	one := rowOf(t, o, 1).Manifest
	o.Application.SourceList = true
	list := rowOf(t, o, 1).Manifest
	for text, want := range map[string]string{string(one.Body): `"source":{`,
		string(list.Body): `"sources":[{`} {
		if !strings.Contains(text, want) || strings.Count(text, `"repoURL"`) != 1 {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if one.Hash == list.Hash {
		t.Error("a change of the form is no change")
	}
}

func TestArgoCDsNamespaceIsRenderedForATenantThatMayOwnIt(t *testing.T) {
	for name, c := range map[string]struct {
		dedicated []fleet.TenantName
		platform  fleet.TenantName
		granted   bool
		want      bool
	}{
		"shared":                    {nil, "", true, false},
		"the tenant's alone":        {[]fleet.TenantName{acme}, "", true, true},
		"the platform's":            {nil, acme, true, true},
		"the platform's, no grant":  {nil, acme, false, false},
		"another platform tenant":   {nil, "globex", true, false},
		"two tenants, one platform": {[]fleet.TenantName{acme, "globex"}, acme, true, true},
	} {
		spec := engineSpec()
		spec.DedicatedTo, spec.PlatformTenant = c.dedicated, c.platform
		o := projectObject(acme)
		o.Project.Destinations = []fleet.Destination{{
			Server:    fleet.ServerKey(exampleServer, prodEU),
			Namespace: spec.ArgoCD.Namespace, Granted: c.granted}}
		if _, err := (Renderer{}).Render(spec, o); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEqualGrantsRenderEqually(t *testing.T) {
	a, b := projectObject(acme), projectObject(acme)
	b.Project.SourceRepos = []string{a.Project.SourceRepos[1], a.Project.SourceRepos[0],
		a.Project.SourceRepos[1]}
	b.Project.Destinations = []fleet.Destination{a.Project.Destinations[1],
		a.Project.Destinations[0], a.Project.Destinations[0]}
	if rowOf(t, a, 1).Manifest.Hash != rowOf(t, b, 1).Manifest.Hash {
		t.Error("the order in which a grant was gathered changes the manifest")
	}
	c, d := clusterObject(prodEU, exampleServer), clusterObject(prodEU, exampleServer)
	d.Cluster.Namespaces = []string{"cart", "checkout"}
	if rowOf(t, c, 1).Manifest.Hash != rowOf(t, d, 1).Manifest.Hash {
		t.Error("the order of namespaces changes the manifest")
	}
}

// A manifest that moves to another engine is the one that would be rendered for it. A shared engine
// does not get what may read the files of its repo-server.
func TestAManifestIsRetargetedToAnotherEngine(t *testing.T) {
	alone := engineSpec()
	alone.DedicatedTo = []fleet.TenantName{acme}
	for name, c := range map[string]struct {
		change func(*fleet.Source)
		shared string // why a shared engine must not get it
	}{
		"plain": {change: func(*fleet.Source) {}},
		"jsonnet": {func(s *fleet.Source) {
			s.Kustomize, s.Directory = nil, &fleet.DirectorySource{Jsonnet: &fleet.JsonnetSource{}}
		}, "directory.jsonnet"},
		"artifact": {func(s *fleet.Source) {
			*s = fleet.Source{RepoURL: "oci://registry.example.com/acme/checkout",
				Path: ".", TargetRevision: "v1.4.0"}
		}, "OCI artifact"},
	} {
		t.Run(name, func(t *testing.T) {
			o := applicationObject(checkoutID, exampleServer)
			c.change(&o.Application.Sources[0])
			m, err := Renderer{}.Render(alone, o)
			if err != nil {
				t.Fatal(err)
			}
			o.Key.Engine = "eu-2"
			want, err := Renderer{}.Render(alone, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Renderer{}.Retarget(alone, "eu-2", acme, m)
			if err != nil || got.Hash != want.Hash || !bytes.Equal(got.Body, want.Body) {
				t.Errorf("%v\n%s\n%s", err, got.Body, want.Body)
			}
			_, err = Renderer{}.Retarget(engineSpec(), "eu-2", acme, m)
			if (err != nil) != (c.shared != "") || err != nil && !strings.Contains(err.Error(),
				c.shared) {
				t.Errorf("a shared engine: %v", err)
			}
		})
	}
}

func TestRenderRejectsUnsafeObjects(t *testing.T) {
	_, privateKey := certificate(t)
	app := func(change func(*fleet.Application)) fleet.Object {
		o := applicationObject(checkoutID, exampleServer)
		change(o.Application)
		return o
	}
	project := func(change func(*fleet.Project)) fleet.Object {
		o := projectObject(acme)
		change(o.Project)
		return o
	}
	cluster := func(change func(*fleet.Cluster)) fleet.Object {
		o := clusterObject(prodEU, exampleServer)
		change(o.Cluster)
		return o
	}
	repo := func(url string) fleet.Object {
		o := repositoryObject(acme)
		o.Repository.URL = url
		return o
	}
	dest := func(server, ns string) func(*fleet.Project) {
		return func(p *fleet.Project) {
			p.Destinations = []fleet.Destination{
				{Server: server, Namespace: ns}}
		}
	}
	key := fleet.ServerKey(exampleServer, prodEU)
	src := func(change func(*fleet.Source)) fleet.Object {
		return app(func(a *fleet.Application) { change(&a.Sources[0]) })
	}
	noEngine := applicationObject(checkoutID, exampleServer)
	noEngine.Key.Engine = ""
	twoParts := projectObject(acme)
	twoParts.Application = applicationObject(checkoutID, exampleServer).Application
	wrongKind := projectObject(acme)
	wrongKind.Key.Kind = fleet.ObjectCluster
	own := func(change func(*fleet.Application)) fleet.Object {
		o := ownApplication()
		change(o.Application)
		return o
	}
	ownDest := func(server string) fleet.Object {
		o := ownProject()
		o.Project.Destinations = append(o.Project.Destinations, fleet.Destination{
			Server: server, Namespace: "checkout"})
		return o
	}
	onEngine := func(o fleet.Object, name fleet.EngineName) fleet.Object {
		o.Key.Engine = name
		return o
	}
	all := func(change func(*fleet.Destination)) fleet.Object {
		return project(func(p *fleet.Project) {
			p.Destinations = []fleet.Destination{{Server: key, Granted: true}}
			change(&p.Destinations[0])
		})
	}
	near := fleet.ServerKey(fleet.InClusterServer, prodEU)
	several := func(change func([]fleet.Source)) fleet.Object {
		return app(func(a *fleet.Application) {
			a.Sources = []fleet.Source{
				{Ref: "values", RepoURL: "https://git.example.com/acme/values",
					TargetRevision: "main"},
				{RepoURL: "https://charts.example.com", Chart: "app", TargetRevision: "1.2.3",
					Helm: &fleet.HelmSource{ValueFiles: []string{"$values/prod.yaml"}}}}
			change(a.Sources)
		})
	}
	file := func(name string) fleet.Object {
		return several(func(s []fleet.Source) { s[1].Helm.ValueFiles = []string{name} })
	}
	kustomized := func(k fleet.KustomizeSource) fleet.Object {
		return src(func(s *fleet.Source) { s.Kustomize = &k })
	}
	cases := map[string]fleet.Object{
		"no source": app(func(a *fleet.Application) { a.Sources = nil }),
		"more than 20 sources": app(func(a *fleet.Application) {
			a.Sources = slices.Repeat(a.Sources, 21)
		}),
		"a value file of another ref":    file("$other/prod.yaml"),
		"a value file of no ref":         file("$/prod.yaml"),
		"a ref alone":                    file("$values"),
		"a value file beyond a ref":      file("$values/../../prod.yaml"),
		"a value file above a chart":     file("../prod.yaml"),
		"a value file by URL of a chart": file("https://evil.example.com/values.yaml"),
		"a variable behind a ref":        file("$values/$ARGOCD_APP_NAME.yaml"),
		"a variable of the environment":  file("$ARGOCD_APP_NAME/prod.yaml"),
		"a ref that is an expression":    several(func(s []fleet.Source) { s[0].Ref = "a/b" }),
		"a ref of a chart":               several(func(s []fleet.Source) { s[1].Ref = "app" }),
		"a ref twice": several(func(s []fleet.Source) {
			s[1] = s[0]
		}),
		"one source with a ref": src(func(s *fleet.Source) { s.Ref = "values" }),
		"an unsafe second source": several(func(s []fleet.Source) {
			s[1].RepoURL = "https://*.example.com"
		}),
		"a range of Git's tags": several(func(s []fleet.Source) {
			s[0].TargetRevision = "^1.2"
		}),
		"a range that is none": several(func(s []fleet.Source) {
			s[1].TargetRevision = "^1.2,<2"
		}),
		"a folder of a registry":    src(func(s *fleet.Source) { s.RepoURL = "ghcr.io/acme/x" }),
		"a folder at a host's root": src(func(s *fleet.Source) { s.RepoURL = "https://ghcr.io" }),
		"a chart over ssh": several(func(s []fleet.Source) {
			s[1].RepoURL = "git@h.io:a"
		}),
		"a component outside": kustomized(fleet.KustomizeSource{
			Components: []string{"../../x"}}),
		"a component of another host": kustomized(fleet.KustomizeSource{
			Components: []string{"github.com/x/y"}}),
		"a component that is an option": kustomized(fleet.KustomizeSource{
			Components: []string{"--x"}}),
		"replicas of an option": kustomized(fleet.KustomizeSource{
			Replicas: []fleet.KustomizeReplica{{Name: "-x"}}}),
		"replicas of two": kustomized(fleet.KustomizeSource{
			Replicas: []fleet.KustomizeReplica{{Name: "a=1"}}}),
		"an annotation that is two": kustomized(fleet.KustomizeSource{
			CommonAnnotations: map[string]string{"a": "b,c:d"}}),
		"a label with a variable": kustomized(fleet.KustomizeSource{
			CommonLabels: map[string]string{"a": "$HOME"}}),
		"a pattern with a class": src(func(s *fleet.Source) {
			s.Directory = &fleet.DirectorySource{Include: "[a-z]"}
		}),
		"another version of helm": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{Version: "/bin/sh"}
		}),
		"a version of Kubernetes with an option": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{KubeVersion: "1.31 --post-renderer"}
		}),
		"an API version with an option": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{APIVersions: []string{"--post-renderer=/bin/sh"}}
		}),
		"a patch from outside": kustomized(fleet.KustomizeSource{
			Patches: []fleet.KustomizePatch{{Path: "../patch.yaml"}}}),
		"a patch from a URL": kustomized(fleet.KustomizeSource{
			Patches: []fleet.KustomizePatch{{Path: "https://example.com/patch.yaml"}}}),
		"the digest of an artifact in Git": src(func(s *fleet.Source) {
			s.TargetRevision = "sha256:" + strings.Repeat("a1", 32)
		}),
		"a Git repository as an artifact's credential": repositoryOf(fleet.RepositoryGit,
			"oci://registry.example.com/acme/checkout"),
		"jsonnet on a shared engine": src(func(s *fleet.Source) {
			s.Directory = &fleet.DirectorySource{Jsonnet: &fleet.JsonnetSource{}}
		}),
		"two recipients in one": notifying(fleet.Notification{Service: "slack",
			Recipients: []string{"a;b"}}),
		"a service with a trigger": notifying(fleet.Notification{Service: "on-failed.slack"}),
		"a service twice": notifying(fleet.Notification{Service: "slack"},
			fleet.Notification{Service: "slack"}),
		"a longer key than Kubernetes allows": notifying(fleet.Notification{
			Service: strings.Repeat("s", 60)}),
		"a pattern of watched paths": app(func(a *fleet.Application) {
			a.WatchPaths = []string{"*"}
		}),
		"two watched paths in one": app(func(a *fleet.Application) {
			a.WatchPaths = []string{"a;b"}
		}),
		"another mode of comparison": app(func(a *fleet.Application) {
			a.Sync.Diff = "ServerSideDiff=true"
		}),
		"the part of another repository": partOf("https://git.example.com/acme/app",
			"https://git.example.com/acme/cart"),
		"a folder": repositoryOf(fleet.RepositoryGit, "https://git.example.com/acme/"),
		"a Helm repository over ssh": func() fleet.Object {
			return repositoryOf(fleet.RepositoryHelm, "ssh://git@git.example.com/a")
		}(),
		"the engine's own cluster with Argo CD's service account": all(func(d *fleet.Destination) {
			d.Server, d.OnEngine, d.Namespace = fleet.InClusterServer, testEngine, "web"
		}),
		"another engine's own cluster": all(func(d *fleet.Destination) {
			d.Server, d.OnEngine, d.Namespace = near, "eu-2", "web"
		}),
		"another server as the engine's": all(func(d *fleet.Destination) {
			d.OnEngine, d.Namespace = testEngine, "web"
		}),
		"a cluster Secret for Argo CD's service account": cluster(func(c *fleet.Cluster) {
			c.Server, c.OnEngine = fleet.InClusterServer, testEngine
		}),
		"a cluster Secret of another engine's cluster": cluster(func(c *fleet.Cluster) {
			c.Server, c.OnEngine = near, "eu-2"
		}),
		"all namespaces of every server": all(func(d *fleet.Destination) {
			d.Server, d.All = "*", true
		}),
		"all namespaces and one": all(func(d *fleet.Destination) {
			d.Namespace, d.All = "web", true
		}),
		"a granted pattern": all(func(d *fleet.Destination) { d.Namespace = "kube-*" }),
		"a granted namespace of Argosy": all(func(d *fleet.Destination) {
			d.Namespace = "argosy-tenant-globex"
		}),
		"the namespace of a shared engine, granted": all(func(d *fleet.Destination) {
			d.Namespace = "argocd"
		}),
		"all kinds and one": project(func(p *fleet.Project) { p.AllClusterResources = true }),
		"a cluster without applications and with a namespace": cluster(func(c *fleet.Cluster) {
			c.Unused = true
		}),
		"a cluster with all namespaces and one": cluster(func(c *fleet.Cluster) {
			c.AllNamespaces = true
		}),
		"a cluster with another namespace granted": cluster(func(c *fleet.Cluster) {
			c.Namespaces, c.Granted = []string{"kube-system"}, []string{"kube-public"}
		}),
		"an own cluster's Application elsewhere": own(func(a *fleet.Application) {
			a.Destination.Server = key
		}),
		"an own cluster's other name": own(func(a *fleet.Application) {
			a.Destination.Server = "https://kubernetes.default.svc:443"
		}),
		"an own cluster's Argo CD": own(func(a *fleet.Application) {
			a.Destination.Namespace = "argocd"
		}),
		"an own cluster's project elsewhere":  ownDest(key),
		"an own cluster's project everywhere": ownDest("*"),
		"an own cluster's cluster Secret": onEngine(clusterObject(prodEU, exampleServer),
			ownEngine),
		"another environment's own cluster":   onEngine(ownApplication(), "acme.staging"),
		"another tenant's own cluster":        onEngine(ownApplication(), "globex.prod-eu"),
		"an engine of three names":            onEngine(ownApplication(), "acme.prod-eu.x"),
		"an engine with a pattern":            onEngine(ownApplication(), "acme.*"),
		"an own cluster on a declared engine": onEngine(ownApplication(), testEngine),
		"nothing set":                         {Key: projectObject(acme).Key},
		"two parts set":                       twoParts,
		"a kind that is not the content's":    wrongKind,
		"no engine":                           noEngine,
		"a star for every repository": project(func(p *fleet.Project) {
			p.SourceRepos = []string{"*"}
		}),
		"a repository pattern": project(func(p *fleet.Project) {
			p.SourceRepos = []string{"https://git.example.com/acme/*"}
		}),
		"a negated repository": project(func(p *fleet.Project) {
			p.SourceRepos = []string{"!https://git.example.com/x"}
		}),
		"alternatives in a repository": project(func(p *fleet.Project) {
			p.SourceRepos = []string{"https://git.example.com/{a,b}"}
		}),
		"a regular expression for a repository": project(func(p *fleet.Project) {
			p.SourceRepos = []string{"/re[a]/"}
		}),
		"a star for every server":        project(dest("*", "checkout")),
		"a negated server":               project(dest("!https://a", "checkout")),
		"a server that is no server key": project(dest(exampleServer, "checkout")),
		"a second question mark":         project(dest(key+"?x", "checkout")),
		"the engine's own cluster": project(
			dest("https://kubernetes.default.svc?managedEnvironment=x", "checkout")),
		"a star for every namespace": project(dest(key, "*")),
		"a negated namespace":        project(dest(key, "!kube-system")),
		"kube-system":                project(dest(key, "kube-system")),
		"Argo CD's namespace":        project(dest(key, "argocd")),
		"every cluster resource": project(func(p *fleet.Project) {
			p.ClusterResources = []fleet.GroupKind{{Group: "*", Kind: "*"}}
		}),
		"Argo CD's own kinds": project(func(p *fleet.Project) {
			p.ClusterResources = []fleet.GroupKind{{Group: "argoproj.io", Kind: "AppProject"}}
		}),
		"another project's name": project(func(p *fleet.Project) { p.Name = "default" }),
		"the default project":    app(func(a *fleet.Application) { a.Project = "default" }),
		"another tenant's project": app(func(a *fleet.Application) {
			a.Project = fleet.ProjectName("globex")
		}),
		"another environment's server key": app(func(a *fleet.Application) {
			a.Destination.Server = fleet.ServerKey(exampleServer, fleet.EnvironmentID{
				Tenant: "globex", Name: "prod-eu"})
		}),
		"an application of another name": app(func(a *fleet.Application) {
			a.ID.Deployment = "cart"
		}),
		"an empty namespace": app(func(a *fleet.Application) {
			a.Destination.Namespace = ""
		}),
		"a hold that is no name": app(func(a *fleet.Application) {
			a.Hold = "x\ny"
		}),
		"no target revision": src(func(s *fleet.Source) {
			s.TargetRevision = ""
		}),
		"a range of versions": src(func(s *fleet.Source) {
			s.TargetRevision = ">=1.0.0"
		}),
		"a revision with a star": src(func(s *fleet.Source) {
			s.TargetRevision = "1.*"
		}),
		"a revision that is an option": src(func(s *fleet.Source) {
			s.TargetRevision = "--upload-pack=x"
		}),
		"a path out of the repository": src(func(s *fleet.Source) {
			s.Path = "a/../../b"
		}),
		"an absolute path": src(func(s *fleet.Source) { s.Path = "/etc" }),
		"an escaped path": src(func(s *fleet.Source) {
			s.Path = "%2e%2e/x"
		}),
		"a path into .git": src(func(s *fleet.Source) {
			s.Path = "x/.GIT/hooks"
		}),
		"neither path nor chart": src(func(s *fleet.Source) { s.Path = "" }),
		"path and chart":         src(func(s *fleet.Source) { s.Chart = "c" }),
		"a value file by URL": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{ValueFiles: []string{"http://169.254.169.254/x"}}
		}),
		"an absolute value file": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{ValueFiles: []string{"/etc/passwd"}}
		}),
		"a pattern of value files": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{ValueFiles: []string{"*.yaml"}}
		}),
		"two tools": src(func(s *fleet.Source) {
			s.Helm, s.Directory = &fleet.HelmSource{}, &fleet.DirectorySource{}
		}),
		"credentials in a repository URL": src(func(s *fleet.Source) {
			s.RepoURL = "https://user:secret-9@git.example.com/x"
		}),
		"values beyond a mebibyte": src(func(s *fleet.Source) {
			s.Helm = &fleet.HelmSource{Values: fleet.Values(strings.Repeat("x", maxObject))}
		}),
		"a cluster without namespaces": cluster(func(c *fleet.Cluster) {
			c.Namespaces = nil
		}),
		"a cluster's star for every namespace": cluster(func(c *fleet.Cluster) {
			c.Namespaces = []string{"*"}
		}),
		"a namespace that is two": cluster(func(c *fleet.Cluster) {
			c.Namespaces = []string{"a,kube-system"}
		}),
		"a cluster without a project": cluster(func(c *fleet.Cluster) {
			c.Project = ""
		}),
		"a cluster by plain http": cluster(func(c *fleet.Cluster) {
			c.Server = fleet.ServerKey("http://api.example.com", prodEU)
		}),
		"a server with a path": cluster(func(c *fleet.Cluster) {
			c.Server = fleet.ServerKey("https://api.example.com/x", prodEU)
		}),
		"a server with a user": cluster(func(c *fleet.Cluster) {
			c.Server = fleet.ServerKey("https://u@api.example.com", prodEU)
		}),
		"a server that is not the environment's": cluster(func(c *fleet.Cluster) {
			c.Server = exampleServer
		}),
		"a private key for a CA": cluster(func(c *fleet.Cluster) {
			c.CAData = base64.StdEncoding.EncodeToString(privateKey)
		}),
		"a CA that is not base64": cluster(func(c *fleet.Cluster) {
			c.CAData = "%%%"
		}),
		"a repository without a scheme":  repo("git.example.com/x"),
		"a local repository":             repo("file:///srv/x"),
		"a transport helper":             repo("ext::sh -c x"),
		"an option for ssh":              repo("ssh://-oProxyCommand=x/y"),
		"a repository with a line break": repo("https://git.example.com/x\ny"),
		"a homoglyph":                    repo("https://git.exаmple.com/x"),
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Renderer{}.Render(engineSpec(), o)
			if err == nil {
				t.Fatalf("rendered: %s", m.Body)
			}
			if m.Body != nil || m.Hash != "" {
				t.Error("a refused object has a manifest")
			}
			if strings.Contains(err.Error(), "secret-9") || strings.Contains(err.Error(),
				"PRIVATE KEY") {
				t.Errorf("the error shows a credential: %v", err)
			}
			if !strings.Contains(err.Error(), o.Key.Name) {
				t.Errorf("the error does not name the object: %v", err)
			}
		})
	}
}

func FuzzRender(f *testing.F) {
	f.Add("https://git.example.com/acme/x", "deploy", "v1", "checkout", "values: 1", "a=b:c",
		exampleServer)
	f.Add("ssh://git@git.example.com/x", "*", "!x", "[a]", "\x00", "{a,b}", "https://[::1]:6443")
	f.Fuzz(func(t *testing.T, repo, path, revision, ns, values, image, server string) {
		app := applicationObject(checkoutID, server)
		app.Application.Sources = []fleet.Source{{RepoURL: repo, Path: path,
			TargetRevision: revision,
			Helm: &fleet.HelmSource{Values: fleet.Values(values),
				ValueFiles: []string{path}}}}
		app.Application.Destination.Namespace = ns
		kustomized := applicationObject(checkoutID, server)
		kustomized.Application.Sources[0].Kustomize = &fleet.KustomizeSource{
			Images: []string{image}}
		project := projectObject(acme)
		project.Project.SourceRepos = []string{repo}
		project.Project.Destinations = []fleet.Destination{{Server: server, Namespace: ns}}
		project.Project.ClusterResources = []fleet.GroupKind{{Group: path, Kind: revision}}
		cluster := clusterObject(prodEU, server)
		cluster.Cluster.Namespaces, cluster.Cluster.CAData = []string{ns}, values
		repository := repositoryObject(acme)
		repository.Repository.URL = repo
		onOwn := ownApplication()
		onOwn.Application.Destination = fleet.Destination{Server: server, Namespace: ns}
		for _, o := range []fleet.Object{app, kustomized, project, cluster, repository, onOwn} {
			m, err := Renderer{}.Render(engineSpec(), o)
			if err != nil {
				continue
			}
			assertCanonical(t, m.Body)
			assertNoPattern(t, m.Body)
		}
	})
}

// assertNoPattern checks a manifest for characters of Argo CD's matcher.
func assertNoPattern(t testing.TB, body []byte) {
	var o struct {
		Spec struct {
			SourceRepos              []string
			Destinations             []fleet.Destination
			ClusterResourceWhitelist []fleet.GroupKind
			Source                   struct{ RepoURL, Path, TargetRevision string }
			Destination              fleet.Destination
		}
		Data map[string][]byte
	}
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	s := o.Spec
	texts := append([]string{s.Source.RepoURL, s.Source.Path, s.Source.TargetRevision,
		string(o.Data["url"]), string(o.Data["namespaces"])}, s.SourceRepos...)
	for _, d := range append(s.Destinations, s.Destination, fleet.Destination{
		Server: string(o.Data["server"])}) {
		texts = append(texts, d.Namespace, strings.Replace(d.Server, "?managedEnvironment=", "", 1))
	}
	for _, gk := range s.ClusterResourceWhitelist {
		texts = append(texts, gk.Group, gk.Kind)
	}
	for _, text := range texts {
		if strings.ContainsAny(text, patternChars) {
			t.Errorf("a pattern character reached Argo CD in %q", text)
		}
	}
}

func BenchmarkRenderApplication(b *testing.B) {
	o := applicationObject(checkoutID, exampleServer)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Renderer{}).Render(engineSpec(), o); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAReleaseHasANameThatHelmAllows(t *testing.T) {
	render := func(deployment, release string) (string, error) {
		id := fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(deployment),
			Environment: prodEU.Name}
		o := applicationObject(id, exampleServer)
		o.Application.Sources[0].Helm = &fleet.HelmSource{ReleaseName: release}
		m, err := Renderer{}.Render(engineSpec(), o)
		return string(m.Body), err
	}
	long := strings.Repeat("x", maxRelease)
	for deployment, release := range map[string]string{"checkout": "", long: "",
		long + "x": "checkout"} {
		body, err := render(deployment, release)
		if want := `"releaseName":"` + cmp.Or(release, deployment) + `"`; err != nil ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %v, want %s in\n%s", deployment, err, want, body)
		}
	}
	for deployment, release := range map[string]string{long + "x": "", "checkout": long + "x"} {
		if _, err := render(deployment, release); err == nil || !strings.Contains(err.Error(),
			"Helm allows 53") {
			t.Errorf("%s, %s: %v", deployment, release, err)
		}
	}
}

func TestTheClusterOfASplitEnvironmentNamesItsSlices(t *testing.T) {
	whole, split := clusterObject(prodEU, exampleServer), clusterObject(prodEU, exampleServer)
	split.Cluster.Slices = []fleet.Slice{"1", "01"}
	annotation := func(o fleet.Object) string {
		var object liveObject
		if err := json.Unmarshal(rowOf(t, o, 1).Manifest.Body, &object); err != nil {
			t.Fatal(err)
		}
		return object.Metadata.Annotations[annotationSlices]
	}
	if got := annotation(split); got != "01,1" ||
		!slices.Equal(fleet.SlicesIn(got), []fleet.Slice{"01", "1"}) {
		t.Errorf("the slices are %q", got)
	}
	if got := annotation(whole); got != "" || fleet.SlicesIn(got) != nil {
		t.Errorf("an environment that is not split has slices %q", got)
	}
}
