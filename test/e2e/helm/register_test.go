package helm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// register installs an Argo CD that registers itself, follows the release's notes, and places an
// environment on it.
func (w *setup) register(p plane) {
	w.t.Helper()
	w.install(w.edge, "plant", "argosy-engine", plantArgo)
	w.complete(w.edge, plantArgo, newDoor(w.t, "127.0.0.1:8081"), newDoor(w.t, "127.0.0.1:6379"))
	agent := w.pod(w.edge, plantSpace, "app.kubernetes.io/name=argosy-agent", map[string]string{
		w.front.address: w.front.address}).start()

	notes := w.helm(w.edge, "get", "notes", "plant", "--namespace", plantArgo)
	file := w.noted(notes, `(?s)  # (\S+)\n(.*?)\n\n`)
	if file[0] != plantEngine {
		w.t.Errorf("the notes declare it in %s", file[0])
	}
	declaration := strings.ReplaceAll(strings.ReplaceAll(file[1], "\n  ", "\n"), "REGION", "plant")
	must(w.config.Commit(w.t.Context(), "an engine that registers itself", map[string]string{
		plantEngine: strings.TrimPrefix(declaration, "  ")}))(w.t)

	command := strings.Fields(w.noted(notes, `  argosy (agent token create .*) > token\n`)[0])
	token := ""
	eventually(w.t, "a token is made", func() string {
		out, err := p.argosy(command...) // until the config repo is read, the engine is unknown
		token = out
		return map[bool]string{true: out}[err != nil]
	})
	eventually(w.t, "the agent waits for its token", func() string {
		log := w.logOf(agent)
		return map[bool]string{true: log}[!strings.Contains(log, "the agent waits")]
	})
	secret := w.noted(notes,
		`  kubectl -n (\S+) create secret generic (\S+) --from-file=(\S+)=token\n`)
	w.secret(w.edge, secret[0], secret[1], map[string]string{secret[2]: token})

	must(w.config.Commit(w.t.Context(), "what is deployed there", w.plantFiles()))(w.t)
	eventually(w.t, "the config repo is read", p.sound)
	eventually(w.t, "from the commit to Healthy, by the engine that has registered itself",
		p.healthy(onEngine, onEdge, onPlant))
	eventually(w.t, "both agents are connected and up to date", p.followed(time.Time{}))
}

// noted are the parts of the notes that a pattern captures.
func (w *setup) noted(notes, pattern string) []string {
	w.t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(notes)
	if found == nil {
		w.t.Fatalf("the notes do not have %s:\n%s", pattern, notes)
	}
	return found[1:]
}

// plantFiles declare what is on the engine: the cluster that it runs on, by an account that may do
// everything in one namespace.
func (w *setup) plantFiles() map[string]string {
	return map[string]string{
		plant: fmt.Sprintf(
			"apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\nmetadata: {name: "+
				"plant}\nspec:\n  cluster: {server: %q, caData: %s, credentialsRef: {name: "+
				"plant}}\n"+
				"  namespaces: [%s]\n  region: plant\n", w.edge.cluster.Server,
			base64.StdEncoding.EncodeToString(w.edge.cluster.CA), plantWork),
		pressed: fmt.Sprintf(
			"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: "+
				"press}\nspec:\n  source: {repoURL: %q, path: deploy, targetRevision: main}\n"+
				"  destination: {environments: [plant], namespace: %s}\n", w.app.URL, plantWork),
	}
}

// engineViews are all engines, nil where the control plane does not answer.
func (p plane) engineViews() []view.Engine {
	out, err := p.argosy("get", "engines", "-o", "json")
	var answer struct{ Items []view.Engine }
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil {
		return nil
	}
	return answer.Items
}

// holder is the replica that writes to the engine in the control plane's own cluster.
func (p plane) holder() string {
	for _, e := range p.engineViews() {
		if e.Name == "eu-1" {
			return e.Holder
		}
	}
	return ""
}

// versions holds what is known of the engines' Argo CD against the charts'.
func (p plane) versions() {
	p.t.Helper()
	eventually(p.t, "the engines report their version", func() string {
		all := p.engineViews()
		for _, e := range all {
			// by default, the chart grants no reads of resources: the engine reports the right
			withoutReads := e.Name == "eu-1" && strings.Contains(e.Message, "rbac.engineReads")
			if e.ArgoCD != "v3.5.7" || !e.Reachable || e.Message != "" && !withoutReads {
				return fmt.Sprintf("%+v", e)
			}
		}
		return map[bool]string{true: fmt.Sprint(all)}[len(all) != 2]
	})
}

// upgraded changes a setting of the control plane by `helm upgrade`: the Pod is replaced by one
// that has it, and nothing is written to any Argo CD.
func (w *setup) upgraded(p plane, hub *stack.Process) *stack.Process {
	w.t.Helper()
	was := w.state(p)
	old := w.newest(w.hub, hubSpace, controlPlane)
	w.install(w.hub, "argosy", "argosy", hubSpace, "config.log.format=json")
	pod := w.hubPod(controlPlane)
	if pod.object.Name == old.Name {
		w.t.Fatal("no Pod is made for the changed setting")
	}
	next := pod.start()
	pod.behind(w.front)
	hub.Stop() // the old one goes when the new one is ready
	w.untouched("upgraded", p, was)
	if log := w.logOf(next); !strings.HasPrefix(log, "{") {
		w.t.Errorf("the changed setting is not taken up; it logs\n%.500s", log)
	}
	return next
}
