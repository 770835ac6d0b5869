package charts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	argosyengine "argosy.dev/argosy/charts/argosy-engine"
	"argosy.dev/argosy/fleet/argocd/instance"
)

func TestTheEngineKeepsTenantsApartInTheRepoServer(t *testing.T) {
	for _, version := range versions {
		for _, values := range []string{"min", "full", "controller"} {
			all := engine(t, values, version)
			cm := object{"data": find(t, all, "ConfigMap", "argocd-cm").get("data")}
			if schemes, set := cm.get("data", "helm.valuesFileSchemes").(string); cm.at("data",
				"jsonnet.enable") != "false" || !set || schemes != "" {
				t.Errorf("%s %s: argocd-cm is %v", version, values, cm)
			}
			params := object{"data": find(t, all, "ConfigMap", "argocd-cmd-params-cm").get("data")}
			if params.at("data", "reposerver.enable.git.submodule") != "false" {
				t.Errorf("%s %s: argocd-cmd-params-cm is %v", version, values, params)
			}
		}
	}
}

// The default containers read the switches.
func TestTheRepoServerReadsTheSubmoduleSwitch(t *testing.T) {
	for _, version := range versions {
		container := find(t, engine(t, "min", version), "Deployment",
			"argocd-repo-server").pod().list("containers")[0]
		i := slices.IndexFunc(container.list("env"), func(e object) bool {
			return e.at("name") == "ARGOCD_GIT_MODULES_ENABLED"
		})
		if i < 0 {
			t.Fatalf("%s: the repo-server does not know ARGOCD_GIT_MODULES_ENABLED", version)
		}
		from := container.list("env")[i]
		if from.at("valueFrom", "configMapKeyRef", "name") != "argocd-cmd-params-cm" ||
			from.at("valueFrom", "configMapKeyRef", "key") != "reposerver.enable.git.submodule" {
			t.Errorf("%s: it reads %v", version, from)
		}
	}
}

func TestThePlatformMayOpenAnEngineOfOneTenant(t *testing.T) {
	all := engine(t, "min", "v3.5.7", "--set-string",
		`argocd.settings.jsonnet\.enable=true,argocd.settings.helm\.valuesFileSchemes=https,argocd.params.reposerver\.enable\.git\.submodule=true`,
		"--set", "repoServer.gitSettings=false")
	cm := object{"data": find(t, all, "ConfigMap", "argocd-cm").get("data")}
	params := object{"data": find(t, all, "ConfigMap", "argocd-cmd-params-cm").get("data")}
	if cm.at("data", "jsonnet.enable") != "true" ||
		cm.at("data", "helm.valuesFileSchemes") != "https" ||
		params.at("data", "reposerver.enable.git.submodule") != "true" {
		t.Errorf("%v, %v", cm, params)
	}
	if strings.Contains(text(t, find(t, all, "Deployment", "argocd-repo-server")),
		"GIT_CONFIG_GLOBAL") {
		t.Error("Git's settings are mounted all the same")
	}
}

func TestTheRepoServerRunsGitWithItsSettings(t *testing.T) {
	for _, version := range versions {
		all := engine(t, "min", version)
		settings := object{"data": find(t, all, "ConfigMap", "argosy-git").get("data")}
		for _, name := range []string{"gitconfig", "clones.gitconfig", "post-checkout"} {
			content, err := os.ReadFile(filepath.Join("argosy-engine", "files", "git", name))
			if err != nil {
				t.Fatal(err)
			}
			if settings.at("data", name) != string(content) {
				t.Errorf("%s: %s is %q", version, name, settings.at("data", name))
			}
		}
		pod := find(t, all, "Deployment", "argocd-repo-server").pod()
		volume := slices.IndexFunc(pod.list("volumes"), func(v object) bool {
			return v.at("configMap", "name") == "argosy-git"
		})
		// 0555: Git runs only executable hooks
		if volume < 0 ||
			text(t, pod.list("volumes")[volume].get("configMap", "defaultMode")) != "365" {
			t.Fatalf("%s: the volumes are %v", version, pod.list("volumes"))
		}
		container := pod.list("containers")[0]
		mounted := slices.ContainsFunc(container.list("volumeMounts"), func(m object) bool {
			return m.at("name") == "argosy-git" && m.at("mountPath") == "/app/config/argosy-git"
		})
		named := slices.ContainsFunc(container.list("env"), func(e object) bool {
			return e.at("name") == "GIT_CONFIG_GLOBAL" &&
				e.at("value") == "/app/config/argosy-git/gitconfig"
		})
		if !mounted || !named || !strings.Contains(settings.at("data", "gitconfig"),
			"hooksPath = /app/config/argosy-git\n") {
			t.Errorf("%s: mounted %t, named %t", version, mounted, named)
		}
	}
}

func TestTheRepoServerDialsNoPrivateNetworkThatIsNotListed(t *testing.T) {
	for _, version := range versions {
		for values, listed := range map[string][]string{"min": nil, "full": {"10.20.0.0/24"}} {
			all := engine(t, values, version)
			policy := find(t, all, "NetworkPolicy", "argosy-engine-repo-server")
			var private []string
			for _, to := range policy.list("spec", "egress")[0].list("to") {
				switch cidr := to.at("ipBlock", "cidr"); cidr {
				// public addresses; private and link-local networks are not part of it
				case "2000::/3":
				case "0.0.0.0/0":
					for _, closed := range []string{"10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
						"172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"} {
						if !strings.Contains(text(t, to.get("ipBlock", "except")), `"`+closed+`"`) {
							t.Errorf("%s %s: %s is open", version, values, closed)
						}
					}
				default:
					private = append(private, cidr)
				}
			}
			if !slices.Equal(private, listed) {
				t.Errorf("%s %s: it may dial %v", version, values, private)
			}
			selector := text(t, policy.get("spec", "podSelector"))
			for _, name := range []string{"argocd-repo-server", instance.Shadow} {
				if !strings.Contains(selector, `"`+name+`"`) {
					t.Errorf("%s %s: %s has no way out: %s", version, values, name, selector)
				}
			}
			other := text(t, find(t, all, "NetworkPolicy", "argosy-engine-egress").get("spec",
				"podSelector"))
			if strings.Contains(other, "repo-server") {
				t.Errorf("%s %s: another policy opens the repo-server's ways out: %s", version,
					values, other)
			}
		}
	}
}

// bounds are the limits that keep unresponsive clusters from occupying the application-controller.
var bounds = map[string]string{
	"ARGOCD_K8S_TLS_HANDSHAKE_TIMEOUT": "5s", "ARGOCD_K8S_TCP_TIMEOUT": "30s",
	"ARGOCD_K8S_SERVER_SIDE_TIMEOUT": "30s", "ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION": "3m",
}

// bounded checks the bounds of the application-controller.
func bounded(t *testing.T, version string, container object) {
	t.Helper()
	if container.at("name") != "argocd-application-controller" {
		return
	}
	seen := map[string]string{}
	for _, e := range container.list("env") {
		if _, twice := seen[e.at("name")]; twice {
			t.Errorf("%s: %s is set twice", version, e.at("name"))
		}
		seen[e.at("name")] = e.at("value")
	}
	for name, want := range bounds {
		if seen[name] != want {
			t.Errorf("%s: %s is %q, want %s", version, name, seen[name], want)
		}
	}
}

// unbounded removes the bounds from a container's environment. The rest is that of the published
// manifest, which takes the bounds from a ConfigMap, if it has them.
func unbounded(container object) {
	var rest []any
	for _, e := range container.list("env") {
		if bounds[e.at("name")] == "" {
			rest = append(rest, map[string]any(e))
		}
	}
	if container.at("name") == "argocd-application-controller" {
		container["env"] = rest
	}
}

func TestTestsRunTheControllerWithTheChartsBounds(t *testing.T) {
	all := engine(t, "min", "v3.5.7")
	env := map[string]string{}
	for _, e := range find(t, all, "StatefulSet", "argocd-application-controller").pod().list(
		"containers")[0].list("env") {
		env[e.at("name")] = e.at("value")
	}
	params := object{"data": find(t, all, "ConfigMap", "argocd-cmd-params-cm").get("data")}
	env["ARGOCD_APPLICATION_CONTROLLER_STATUS_PROCESSORS"] = params.at("data",
		"controller.status.processors")
	env["ARGOCD_APPLICATION_CONTROLLER_OPERATION_PROCESSORS"] = params.at("data",
		"controller.operation.processors")
	for _, set := range argosyengine.ControllerEnvironment {
		name, value, _ := strings.Cut(set, "=")
		if env[name] != value {
			t.Errorf("tests set %s, the chart %q", set, env[name])
		}
	}
}
