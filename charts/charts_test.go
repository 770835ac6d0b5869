package charts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// cases returns all values files by chart, with further arguments by name.
func cases(t *testing.T) map[string][]string {
	t.Helper()
	found, err := filepath.Glob("*/ci/*-values.yaml")
	if err != nil || len(found) == 0 {
		t.Fatalf("no values to test with: %v", err)
	}
	all := map[string][]string{}
	for _, file := range found {
		chart := strings.Split(filepath.ToSlash(file), "/")[0]
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		all[chart+" "+name] = []string{chart, "--values", file}
		all[chart+" "+name+" on OpenShift"] = []string{chart, "--values", file, "--api-versions",
			"route.openshift.io/v1"}
	}
	return all
}

func TestEveryObjectMatchesTheKubernetesSchemas(t *testing.T) {
	schemas, err := filepath.Abs("../.cache/kube-schemas")
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := render(t, args[0], "ns", args[1:]...)
			if err != nil {
				t.Fatal(err)
			}
			out, errs, err := run(t, []byte(text), "kubeconform", "-strict", "-summary",
				"-schema-location",
				schemas+"/{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json", "-")
			if err != nil || !strings.Contains(out, "Skipped: 0") {
				t.Errorf("%v\n%s%s", err, out, errs)
			}
		})
	}
}

func TestChartsPassHelmLint(t *testing.T) {
	for name, args := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasSuffix(name, "OpenShift") {
				args = args[:3] // lint has no capabilities
			}
			if out, errs, err := run(t, nil, "helm",
				append([]string{"lint", "--strict", "--kube-version", kubeVersion},
					args...)...); err != nil {
				t.Errorf("%v\n%s%s", err, out, errs)
			}
		})
	}
}

func TestChartsPassHelmUnittest(t *testing.T) {
	out, errs, err := run(t, nil, "helm-unittest", "--with-subchart=false", "argosy",
		"argosy-agent", "argosy-engine")
	if err != nil {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

func TestAnUnknownValueIsRejectedByName(t *testing.T) {
	for name, c := range map[string]struct {
		chart, set, want string
	}{
		"a key":                       {"argosy", "replicas=3", "replicas"},
		"within a section":            {"argosy", "image.tagg=x", "tagg"},
		"a setting":                   {"argosy", "config.source.ulr=x", "ulr"},
		"a setting that is filled in": {"argosy", "config.dataDir=/x", "dataDir"},
		"a secret in clear": {"argosy", "credentials.database.url=postgres://u:p@h/d",
			"url"},
		"a type":        {"argosy", "replicaCount=many", "replicaCount"},
		"a choice":      {"argosy", "database.migrations=never", "migrations"},
		"of the agent":  {"argosy-agent", "hub.ulr=x", "ulr"},
		"of the engine": {"argosy-engine", "argocd.vesrion=v3.5.7", "vesrion"},
		"of the agent in the engine": {"argosy-engine", "registration.enabled=true,agent.hbu=x",
			"hbu"},
		"a setting that is ours": {"argosy-engine", "argocd.settings.installationID=x",
			"installationID"},
		"an http hub": {"argosy-agent", "hub.url=http://argosy.example.com", "url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, c.chart, "ns", append(ci(c.chart, "min"), "--set", c.set)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to name %s", err, c.want)
			}
		})
	}
	if _, err := render(t, "argosy", "ns", append(ci("argosy", "min"), "--set",
		"global.any.key=x")...); err != nil {
		t.Errorf("global is not open: %v", err)
	}
}

func TestMissingValuesAreReportedWithTheNextStep(t *testing.T) {
	for name, c := range map[string]struct {
		chart, namespace, want string
		args                   []string
	}{
		"no config repo": {"argosy", "ns", "config.source.url is required",
			[]string{"--set", "postgresql.trial.enabled=true"}},
		"no database": {"argosy", "ns", "postgresql.trial.enabled",
			[]string{"--set", "config.source.url=https://h/x"}},
		"two databases": {"argosy", "ns", "exclude each other",
			append(ci("argosy", "min"), "--set", "postgresql.trial.enabled=true")},
		"a Job before its database": {"argosy", "ns", "use startup",
			append(ci("argosy", "trial"), "--set", "database.migrations=job")},
		"a token and no forge": {"argosy", "ns", "config.forge.repository",
			append(ci("argosy", "min"), "--set", "credentials.forgeToken.existingSecret=x")},
		"an App without a key": {"argosy", "ns", "credentials.forgeAppKey",
			append(ci("argosy", "min"), "--set", "config.forge.app.id=1")},
		"a key without an App": {"argosy", "ns", "config.forge.app.id",
			append(ci("argosy", "min"), "--set",
				"config.forge.repository=a/b,credentials.forgeAppKey.existingSecret=x")},
		"a CA twice": {"argosy", "ns", "exclude each other",
			append(ci("argosy", "min"), "--set",
				"credentials.sourceCA.existingSecret=x,credentials.sourceCA.existingConfigMap=y")},
		"an Ingress without a host": {"argosy", "ns", "config.listen.publicURL",
			append(ci("argosy", "min"), "--set", "ingress.api.enabled=true")},
		"a route to nowhere": {"argosy", "ns", "parentRefs",
			append(ci("argosy", "min"), "--set", "httpRoute.api.enabled=true")},
		"no installationID": {"argosy-engine", "ns", "installationID is required", nil},
		"a version that is not in it": {"argosy-engine", "ns", "argocd.sh v2.0.0",
			append(ci("argosy-engine", "min"), "--set", "argocd.version=v2.0.0")},
		"a controller without a hub": {"argosy-engine", "ns", "hub.repoServer",
			append(ci("argosy-engine", "min"), "--set", "pattern=controller")},
		"an agent without a namespace": {"argosy-engine", "ns",
			"agent.namespaceOverride is required", append(ci("argosy-engine", "min"), "--set",
				"registration.enabled=true,agent.hub.url=https://h.example.com")},
		"no hub": {"argosy-agent", "ns", "hub.url is required", nil},
		"one namespace for both": {"argosy-agent", "argocd", "namespace of its own",
			ci("argosy-agent", "min")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := render(t, c.chart, c.namespace, c.args...); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Pods satisfy Pod Security's level `restricted` and have a read-only file system.
func TestEveryPodIsRestricted(t *testing.T) {
	for name, args := range cases(t) {
		if strings.HasPrefix(name, "argosy-engine") {
			// Argo CD's own manifests are restricted already, except for the writable file system
			// of Redis
			continue
		}
		pods := 0
		for _, o := range objects(t, args[0], "ns", args[1:]...) {
			pod := o.pod()
			if pod == nil {
				continue
			}
			pods++
			if pod.get("securityContext", "runAsNonRoot") != true || pod.at("securityContext",
				"seccompProfile", "type") != "RuntimeDefault" {
				t.Errorf("%s: %s: the Pod's context is %v", name, o, pod.get("securityContext"))
			}
			if strings.HasSuffix(name, "OpenShift") &&
				(pod.get("securityContext", "runAsUser") != nil || pod.get("securityContext",
					"fsGroup") != nil) {
				t.Errorf("%s: %s has a user of its own", name, o)
			}
			for _, c := range append(pod.list("containers"), pod.list("initContainers")...) {
				context := object{"c": c.get("securityContext")}
				if context.get("c", "allowPrivilegeEscalation") != false ||
					context.get("c", "readOnlyRootFilesystem") != true ||
					text(t, context.get("c", "capabilities", "drop")) != `["ALL"]` {
					t.Errorf("%s: %s: the container's context is %v", name, o, context)
				}
			}
		}
		if pods == 0 {
			t.Errorf("%s: no Pods", name)
		}
	}
}

// createDefinitions is the right to bring the CustomResourceDefinitions of Argo CD.
const createDefinitions = `{"apiGroups":["apiextensions.k8s.io"],` +
	`"resources":["customresourcedefinitions"],"verbs":["create"]}`

func TestNoRightIsAWildcardAndNoneOfOursIsOnTheWholeCluster(t *testing.T) {
	for name, args := range cases(t) {
		for _, o := range objects(t, args[0], "ns", args[1:]...) {
			for _, rule := range o.list("rules") {
				if strings.HasSuffix(o.at("kind"), "Role") && strings.Contains(text(t, rule),
					`"*"`) && !strings.HasPrefix(name, "argosy-engine") {
					t.Errorf("%s: %s has the rule %v", name, o, rule)
				}
				// RBAC cannot restrict create to a name
				if names, _ := rule.get("resourceNames").([]any); o.at("kind") == "ClusterRole" &&
					len(names) == 0 && !strings.HasSuffix(o.at("metadata", "name"),
					"-tenant-secrets") && text(t, rule) != createDefinitions {
					t.Errorf("%s: %s has the rule %s", name, o, text(t, rule))
				}
			}
			if o.at("kind") == "ClusterRoleBinding" && strings.HasSuffix(o.at("roleRef", "name"),
				"-tenant-secrets") {
				t.Errorf("%s: every Secret of the cluster may be read", name)
			}
		}
	}
}

func TestTenantsSecretsAreBoundOneByOne(t *testing.T) {
	tenants := []string{"acme", "globex", strings.Repeat("x", 49), strings.Repeat("x", 50),
		strings.Repeat("x", 20) + "---" + strings.Repeat("y", 40)}
	var namespaces, want []string
	for _, name := range tenants {
		want = append(want, fleet.TenantNamespace(fleet.TenantName(name)))
	}
	all := objects(t, "argosy", "hub", append(ci("argosy", "min"), "--set",
		"secrets.kubernetes.tenants={"+strings.Join(tenants, ",")+"}")...)
	for _, o := range all {
		if o.at("kind") == "RoleBinding" && o.at("roleRef", "kind") == "ClusterRole" {
			namespaces = append(namespaces, o.at("metadata", "namespace"))
		}
	}
	if !slices.Equal(namespaces, want) || want[0] != "argosy-tenant-acme" {
		t.Errorf("bound in %q, want %q", namespaces, want)
	}
	platform := find(t, all, "Role", "release-argosy-platform-secrets")
	if platform.at("metadata", "namespace") != "hub" {
		t.Errorf("the platform's Secrets are in %s", platform.at("metadata", "namespace"))
	}
}

func TestImagesComeFromRegistryTagAndDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct{ set, want string }{
		"the chart's": {"image.pullPolicy=Always", "argosy.dev/argosy:0.1.0"},
		"a tag":       {"image.tag=v1", "argosy.dev/argosy:v1"},
		"a digest": {"image.tag=v1,image.digest=" + digest, "argosy.dev/argosy@" +
			digest},
		"everybody's registry": {"global.imageRegistry=mirror:5000,image.digest=" + digest,
			"mirror:5000/argosy@" + digest},
	} {
		deployment := find(t, objects(t, "argosy", "ns", append(ci("argosy", "min"), "--set",
			c.set)...), "Deployment", "release-argosy")
		if got := deployment.pod().list("containers")[0].at("image"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
