package argocd

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet/engine"
)

// Keys of argocd-cm and argocd-cmd-params-cm that isolate tenants in a shared repo-server.
const (
	paramsName     = "argocd-cmd-params-cm"
	jsonnetKey     = "jsonnet.enable"
	schemesKey     = "helm.valuesFileSchemes"
	buildOptionKey = "kustomize.buildOptions"
	submodulesKey  = "reposerver.enable.git.submodule"
)

// openOptions are kustomize options that run programs, fetch charts or read outside the repository.
var openOptions = []string{"--enable-helm", "--enable-exec", "--enable-alpha-plugins",
	"--load-restrictor", "--network"}

// isolationFindings returns the settings with which a tenant reaches beyond its own repositories
// through a shared repo-server. Findings that expose secrets of other tenants or of the engine
// block.
func isolationFindings(settings map[string]string) []engine.Finding {
	var found []engine.Finding
	if v := settings[jsonnetKey]; v == "" || v == "true" {
		found = append(found, engine.Finding{Code: "jsonnet", Blocks: true,
			Message: "Argo CD evaluates *.jsonnet of repositories, which reads every file of " +
				"the repo-server that its tenants share",
			Fix: `set jsonnet.enable: "false" in argocd-cm, or dedicate the engine to one tenant (spec.dedicatedTo)`})
	}
	schemes, set := settings[schemesKey]
	if !set {
		schemes = "https, http"
	}
	if strings.Trim(schemes, ", \t\n") != "" {
		found = append(found, engine.Finding{Code: "values-schemes", Blocks: true,
			Message: "Argo CD fetches Helm value files by " + clip(schemes, 64) +
				" for any repository with .argocd-source.yaml, from any address that the " +
				"repo-server reaches",
			Fix: `set helm.valuesFileSchemes: "" in argocd-cm, or dedicate the engine to one tenant (spec.dedicatedTo)`})
	}
	var open []string
	for key, options := range settings {
		if key != buildOptionKey && !strings.HasPrefix(key, buildOptionKey+".") {
			continue
		}
		for _, option := range openOptions {
			if strings.Contains(options, option) {
				open = append(open, option+" in "+clip(key, 64))
			}
		}
	}
	if slices.Sort(open); len(open) > 0 {
		found = append(found, engine.Finding{Code: "kustomize-options", Blocks: true,
			Message: "Argo CD runs kustomize with " + strings.Join(open, ", ") +
				": repositories may run programs, fetch charts or read files of the repo-server " +
				"that its tenants share",
			Fix: "remove the options from argocd-cm, or dedicate the engine to one tenant " +
				"(spec.dedicatedTo)"})
	}
	return found
}

// submoduleFindings checks argocd-cmd-params-cm.
func submoduleFindings(params map[string]string) []engine.Finding {
	if on, err := strconv.ParseBool(params[submodulesKey]); err == nil && !on {
		return nil
	}
	return []engine.Finding{{Code: "submodules",
		Message: "the repo-server fetches Git submodules of any repository",
		Fix:     `set reposerver.enable.git.submodule: "false" in argocd-cmd-params-cm and restart the repo-server, or dedicate the engine to one tenant (spec.dedicatedTo)`}}
}

// gitConfigFindings checks the repo-server's container.
func gitConfigFindings(c container) []engine.Finding {
	if slices.ContainsFunc(c.Env, func(e envVar) bool {
		return e.Name == "GIT_CONFIG_GLOBAL" &&
			e.Value != ""
	}) {
		return nil
	}
	return []engine.Finding{{Code: "git-config",
		Message: "the repo-server merges .argocd-source.yaml of repositories over what is " +
			"declared, and kustomize fetches remote bases",
		Fix: "mount the Git settings of charts/argosy-engine (docs/security.md, " +
			"Engines), or dedicate the engine to one tenant (spec.dedicatedTo)"}}
}

// shared reports whether several tenants use the engine's repo-server.
func (e *Engine) shared() bool { return !e.name.OfEnvironment() && e.tenants != 1 }

// checkIsolation checks the isolation of the engine's tenants; data is the content of argocd-cm.
func (e *Engine) checkIsolation(ctx context.Context, data map[string]string) ([]engine.Finding,
	error) {
	if !e.shared() {
		return nil, nil
	}
	found := isolationFindings(data)
	if !e.options.NoParams {
		submodules, err := e.checkSubmodules(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, submodules...)
	}
	for i := range found {
		found[i].Blocks = found[i].Blocks && !e.options.Advise
	}
	for _, c := range e.repoServer(ctx) {
		found = append(found, gitConfigFindings(c)...)
	}
	return found, nil
}

// checkSubmodules reads argocd-cmd-params-cm, which is optional.
func (e *Engine) checkSubmodules(ctx context.Context) ([]engine.Finding, error) {
	var params struct{ Data map[string]string }
	err := e.get(ctx, e.configMaps()+"/"+paramsName, &params)
	switch {
	case codeOf(err) == http.StatusForbidden:
		return []engine.Finding{{Code: "params",
			Message: e.actor() + " may not get ConfigMap " + paramsName + " in namespace " +
				e.namespace +
				", so that it is unknown whether the repo-server fetches Git submodules",
			Fix: "grant get on it there"}}, nil
	case err != nil && !isMissing(err):
		return nil, err
	}
	return submoduleFindings(params.Data), nil
}

type envVar struct{ Name, Value string }

// container holds the fields of a workload's container that the checks read.
type container struct {
	Name, Image string
	Env         []envVar
}

// repoServer returns the repo-server's container; none if Deployments may not be listed.
func (e *Engine) repoServer(ctx context.Context) []container {
	var list struct{ Items []controller }
	query := url.Values{
		"labelSelector": {
			"app.kubernetes.io/part-of=argocd,app.kubernetes.io/component=repo-server"}}
	path := "/apis/apps/v1/namespaces/" + url.PathEscape(e.namespace) + "/deployments"
	if err := e.client.do(ctx, request{method: http.MethodGet, path: path, query: query},
		&list); err != nil {
		return nil
	}
	for _, item := range list.Items {
		for _, c := range item.Spec.Template.Spec.Containers {
			if c.Name == "argocd-repo-server" || c.Name == "repo-server" {
				return []container{c}
			}
		}
	}
	return nil
}
