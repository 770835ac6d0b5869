package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// A cluster behind a firewall has nothing but an agent, with exactly the rights of its manifest. It
// gets Argo CD 2.14 from an Engine's file and a ring, and deploys. The agent finds a chart that 3.5
// renders differently before the ring moves. A hold of its admin keeps 3.5 away. Then the ring
// brings 3.5, and no workload but that of the chart is written.
func TestAnAgentInstallsAndUpgradesTheArgoCDBesideIt(t *testing.T) {
	f := edges.use(t)
	s := &site{system: f, edge: f.Edge, name: "plant-1", engine: "plant-1",
		files: map[string]string{}}
	around := plant(t, s)
	around[plantEngine] = strings.Replace(around[plantEngine], "installationID: edge}",
		"installationID: edge, managed: true}\n  ring: canary", 1)
	for p := range around {
		if p != plantEngine {
			s.around = append(s.around, p)
		}
	}
	fleetFile := looserGuards("fleet/fleet.yaml", f.exampleFile(t, "fleet/fleet.yaml"))
	files, rings := map[string]string{}, map[string]string{}
	for _, minor := range fleet.TestedArgoCD {
		version, manifests, err := stack.ArgoManifests(minor)
		check(t, err)
		for p, text := range manifests {
			files[path.Join("argocd", version, p)] = string(text)
		}
		rings[minor] = fleetFile + fmt.Sprintf("  rings:\n    - name: canary\n      version: %s\n"+
			"      manifests: {directory: argocd/%s, digest: %q}\n      soak: 5s\n",
			version, version, fleet.ManifestsDigest(manifests))
	}
	runner := emptyEdge(t, s)
	refused := len(f.agentRequests(t))
	files["fleet/fleet.yaml"], files[plantEngine] = rings["2.14"], around[plantEngine]
	f.commit(t, "an engine behind a firewall without an Argo CD", files)
	defer f.commit(t, "no ring", map[string]string{"fleet/fleet.yaml": fleetFile})
	defer f.remove(t, "the engine goes", plantEngine)
	defer s.leave(t)
	_, err := s.edge.Join(binary, s.token(t), "--install-argocd", "--self-upgrade")
	check(t, err)
	started := time.Now()
	s.start(t)
	f.ringIs(t, "canary", mirror.RingDone, "2.14.21")
	t.Logf("Argo CD 2.14 was installed in %s", time.Since(started).Round(time.Second))
	f.commit(t, "who uses it", around)
	s.files["tenants/umbrella/deployments/charted.yaml"] = f.chartedIn(t, "press",
		"umbrella-press")
	f.commit(t, "what is deployed there", s.files)
	for _, id := range []string{"press@press", "mill@mill", "charted@press"} {
		eventually(t, id+" is Healthy there", f.healthy(t, "umbrella/"+id))
	}
	f.commit(t, "canary gets 3.5", map[string]string{"fleet/fleet.yaml": rings["3.5"]})
	s.comparesBefore(t, runner)
	pods := s.pods(t, "umbrella-press") + s.pods(t, "umbrella-mill")

	_, err = s.edge.Run(binary, "agent", "hold", "--until", "1h", "--reason", "stocktaking")
	check(t, err)
	eventually(t, "the agent is held", s.shows(t, func(a view.Agent) string {
		if !strings.Contains(a.Message, "stocktaking") {
			return a.Message
		}
		return ""
	}))
	f.must(t, "rings", "approve", "canary", "--tenant", "umbrella", "--reason", "only the version")
	eventually(t, "the ring waits for the end of the hold", func() string {
		r := f.ringNamed(t, "canary")
		if len(r.Engines) != 1 || r.Engines[0].Version != "3.5.7" ||
			r.Engines[0].State != mirror.InstanceInstalling ||
			!strings.Contains(r.Engines[0].Message, "stocktaking") {
			return fmt.Sprintf("%+v", r)
		}
		return ""
	})
	if v := runner.runs(); v != "2.14" {
		t.Errorf("the held cluster runs %s", v)
	}
	started = time.Now()
	_, err = s.edge.Run(binary, "agent", "hold", "--end")
	check(t, err)
	eventuallyLong(t, "the edge runs 3.5", func() string {
		if v := runner.runs(); v != "3.5" {
			return v
		}
		return ""
	})
	s.agent.Kill() // in the middle
	s.start(t)
	f.ringIs(t, "canary", mirror.RingDone, "3.5.7")
	t.Logf("the edge went from 2.14 to 3.5 in %s", time.Since(started).Round(time.Second))
	eventually(t, "the shadow is gone", func() string {
		if _, err := s.edge.Cluster.Client().AppsV1().Deployments("argocd").Get(t.Context(),
			instance.Shadow, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	for _, name := range []string{"press", "mill"} {
		eventually(t, name+" is Healthy there", f.healthy(t, "umbrella/"+name+"@"+name))
	}
	if now := s.pods(t, "umbrella-press") + s.pods(t, "umbrella-mill"); now != pods {
		t.Errorf("the Pods were %s and are %s", pods, now)
	}
	works := s.agentUpgrades(t, rings["3.5"])
	s.agentWithoutAnImage(t, rings["3.5"])
	s.agentWithoutASession(t, rings["3.5"], works)
	for _, e := range f.agentRequests(t)[refused:] {
		if e.Refused() {
			t.Errorf("the agent was refused: %s %s (%d)", e.Verb, e.RequestURI,
				e.ResponseStatus.Code)
		}
	}
	s.leave(t)
}

// comparesBefore expects that the agent has compared all Applications, and has found the chart,
// while the edge runs 2.14.
func (s *site) comparesBefore(t *testing.T, runner *podRunner) {
	t.Helper()
	began := time.Now()
	s.ringIs(t, "canary", mirror.RingDiffers, "3.5.7")
	t.Logf("the agent has compared after %s", time.Since(began).Round(time.Second))
	for line := range strings.Lines(s.log(1 << 20)) {
		if strings.Contains(line, "Applications compared") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if v := runner.runs(); v != "2.14" {
		t.Errorf("the edge runs %s before the approval", v)
	}
	r := s.ringNamed(t, "canary")
	if w := r.Engines[0].Shadow; w == nil || w.Applications != 3 || w.Differences != 1 ||
		w.Pending != 1 || w.Unrendered != 0 || !strings.Contains(r.Message, "of umbrella") {
		t.Errorf("shadow %+v, message %q", w, r.Message)
	}
	found := list[mirror.Difference](t, s.system, "differences")
	if len(found) != 1 || found[0].Engine != s.engine || found[0].Deployment != "charted" ||
		found[0].Tenant != "umbrella" || found[0].Environment != "press" ||
		len(found[0].Resources) != 2 {
		t.Fatalf("differences %+v", found)
	}
	config := found[0].Resources[0]
	if config.Kind != "ConfigMap" || len(config.Fields) != 1 ||
		config.Fields[0].Path != "data.helm" ||
		!strings.HasPrefix(config.Fields[0].Before, "v3.") ||
		!strings.HasPrefix(config.Fields[0].After, "v4.") {
		t.Errorf("ConfigMap %+v", config)
	}
	if text := fmt.Sprintf("%+v", found[0].Resources[1]); strings.Contains(text, "hunter2") {
		t.Errorf("Secret %s", text)
	}
	if out := s.must(t, "rings", "differences", "canary"); !strings.Contains(out,
		"umbrella/charted@press on plant-1 under 3.5.7: pending") {
		t.Errorf("rings differences:\n%s", out)
	}
	if out := s.must(t, "describe", "ring", "canary"); !strings.Contains(out, "1 pending") {
		t.Errorf("describe ring:\n%s", out)
	}
}

// digestOf is the digest of an image of digits.
func digestOf(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// agentBuild builds a version of the program, for which files of the source may be replaced.
func agentBuild(t *testing.T, version string, replaced map[string]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "argosy")
	args := []string{"build", "-ldflags=-s -w -X main.version=" + version, "-o", file}
	if len(replaced) > 0 {
		overlay := filepath.Join(t.TempDir(), "overlay.json")
		text, err := json.Marshal(map[string]any{"Replace": replaced})
		check(t, err)
		check(t, os.WriteFile(overlay, text, 0o600))
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(t.Context(), "go", append(args, "./cmd/argosy")...)
	build.Dir, build.Stderr = "../..", os.Stderr
	check(t, build.Run())
	return file
}

// ringsAgent commits the agent that the ring's engines are to have.
func (s *site) ringsAgent(t *testing.T, ring, version, digest string) {
	t.Helper()
	s.commit(t, "canary gets another agent", map[string]string{"fleet/fleet.yaml": ring +
		fmt.Sprintf("      agent: {version: %s, digest: %q}\n", version, digest)})
}

// agentPods waits until the Deployment of the agent has only Pods of that image.
func (s *site) agentPods(t *testing.T, digest string) {
	t.Helper()
	eventuallyLong(t, "the agent's Deployment has the Pod of "+digest[:10], func() string {
		pods, err := s.edge.Cluster.Client().CoreV1().Pods(agentNamespace).List(t.Context(),
			metav1.ListOptions{})
		check(t, err)
		if len(pods.Items) != 1 || pods.Items[0].Spec.Containers[0].Image !=
			"registry.example.com/argosy@"+digest {
			return fmt.Sprintf("%d Pods, ring %+v", len(pods.Items), s.ringNamed(t, "canary"))
		}
		return ""
	})
}

// agentIs waits until the agent of a version is connected.
func (s *site) agentIs(t *testing.T, version string) {
	t.Helper()
	eventually(t, "agent "+version+" is connected", s.shows(t, func(a view.Agent) string {
		if !a.Connected || a.Version != version || a.Cloned {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
}

// returned waits until the ring is halted, with a message that has the parts, and its engine has
// the agent of before.
func (s *site) returned(t *testing.T, digest string, parts ...string) {
	t.Helper()
	eventuallyLong(t, "the ring is halted, and the agent has returned", func() string {
		r := s.ringNamed(t, "canary")
		missing := r.State != mirror.RingHalted || len(r.Engines) != 1 ||
			r.Engines[0].State != mirror.InstanceRunning || !r.Engines[0].Passed() ||
			r.Engines[0].AgentDigest != digest
		for _, part := range parts {
			missing = missing || !strings.Contains(r.Message, part)
		}
		if missing {
			return fmt.Sprintf("%+v", r)
		}
		return ""
	})
	t.Log(s.ringNamed(t, "canary").Message)
}

// agentUpgrades lets the ring bring version 0.5.0 of the agent: its Deployment gets another Pod,
// and the test runs the program of the Pod's image, as a kubelet would.
func (s *site) agentUpgrades(t *testing.T, ring string) (program string) {
	t.Helper()
	program = agentBuild(t, "0.5.0", nil)
	started := time.Now()
	s.ringsAgent(t, ring, "0.5.0", digestOf("5"))
	s.agentPods(t, digestOf("5"))
	s.agent.Stop()
	var err error
	s.agent, err = s.edge.StartAgent(t.Context(), program)
	check(t, err)
	eventuallyLong(t, "the ring has the agent", func() string {
		r := s.ringNamed(t, "canary")
		if r.State != mirror.RingDone || r.AgentVersion != "0.5.0" || len(r.Engines) != 1 ||
			!r.Engines[0].Passed() || r.Engines[0].AgentDigest != digestOf("5") {
			return fmt.Sprintf("%+v", r)
		}
		return ""
	})
	s.agentIs(t, "0.5.0")
	t.Logf("the agent was upgraded in %s", time.Since(started).Round(time.Second))
	return program
}

// agentWithoutAnImage lets the ring bring an image that no registry has. Its Pod never becomes
// ready: the old agent works, the ring halts, and the old agent returns the image.
func (s *site) agentWithoutAnImage(t *testing.T, ring string) {
	t.Helper()
	started := time.Now()
	s.ringsAgent(t, ring+"      gates: {within: 1m}\n", "0.6.0", digestOf("0"))
	eventually(t, "there is a Pod that does not become ready", func() string {
		pods, err := s.edge.Cluster.Client().CoreV1().Pods(agentNamespace).List(t.Context(),
			metav1.ListOptions{})
		check(t, err)
		for _, p := range pods.Items {
			if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.
				Waiting != nil && p.Spec.Containers[0].Image ==
				"registry.example.com/argosy@"+digestOf("0") {
				return ""
			}
		}
		return fmt.Sprintf("%d Pods", len(pods.Items))
	})
	s.agentIs(t, "0.5.0")
	s.returned(t, digestOf("5"), "engine plant-1 does not run 3.5.7 after 1m0s: its agent has "+
		"version 0.5.0; the Pod with the image registry.example.com/argosy@"+digestOf("0")+
		" is not ready", " decide: correct the cause")
	s.agentPods(t, digestOf("5"))
	s.agentIs(t, "0.5.0")
	t.Logf("the agent without an image has returned in %s",
		time.Since(started).Round(time.Second))
}

// agentWithoutASession lets the ring bring an agent of a protocol that the hub does not serve. It
// gets an access token, so that its Pod is ready and the old one ends, and opens no session. It
// returns the image by itself.
func (s *site) agentWithoutASession(t *testing.T, ring, works string) {
	t.Helper()
	wire, err := filepath.Abs("../../fleet/agent/wire.go")
	check(t, err)
	source, err := os.ReadFile(wire)
	check(t, err)
	foreign := regexp.MustCompile(`(?m)^\tProtocol = \d+$`).ReplaceAll(source,
		[]byte("\tProtocol = 0"))
	if bytes.Equal(source, foreign) {
		t.Fatalf("%s declares no Protocol", wire)
	}
	other := filepath.Join(t.TempDir(), "wire.go")
	check(t, os.WriteFile(other, foreign, 0o600))
	program := agentBuild(t, "0.7.0", map[string]string{wire: other})
	started := time.Now()
	s.ringsAgent(t, ring, "0.7.0", digestOf("7"))
	s.agentPods(t, digestOf("7"))
	s.agent.Stop()
	s.agent, err = s.edge.StartAgent(t.Context(), program, "--session-within", "10s")
	check(t, err)
	s.agentPods(t, digestOf("5"))
	s.agent.Stop()
	s.agent, err = s.edge.StartAgent(t.Context(), works)
	check(t, err)
	s.returned(t, digestOf("5"), "engine plant-1 cannot have 3.5.7: ", "its agent with the image "+
		"registry.example.com/argosy@"+digestOf("7")+", version 0.7.0, proved no session with "+
		"the control plane within 10s", "protocol", " decide: correct the cause")
	s.agentIs(t, "0.5.0")
	t.Logf("the agent without a session has returned in %s",
		time.Since(started).Round(time.Second))
}

// emptyEdge takes the Argo CD of the edge away: its processes, its settings and its kinds. The
// cleanup brings them back.
func emptyEdge(t *testing.T, s *site) *podRunner {
	t.Helper()
	ctx, argo := context.WithoutCancel(t.Context()), s.edge.ArgoCD
	core := s.edge.Cluster.Client().CoreV1()
	kinds := s.edge.Cluster.Dynamic().Resource(definitions)
	before, err := core.ConfigMaps("argocd").List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=argocd"})
	check(t, err)
	version := argo.Version
	check(t, argo.Switch(ctx, ""))
	for _, c := range before.Items {
		check(t, core.ConfigMaps("argocd").Delete(ctx, c.Name, metav1.DeleteOptions{}))
	}
	check(t, core.Secrets("argocd").Delete(ctx, "argocd-secret", metav1.DeleteOptions{}))
	crds := []string{"applications.argoproj.io", "appprojects.argoproj.io"}
	for _, name := range crds {
		check(t, kinds.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	eventually(t, "Argo CD's kinds are gone", func() string {
		for _, name := range crds {
			if _, err := kinds.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return name
			}
		}
		return ""
	})
	t.Cleanup(func() {
		for _, c := range before.Items {
			c.ResourceVersion, c.UID, c.ManagedFields = "", "", nil
			_ = core.ConfigMaps("argocd").Delete(ctx, c.Name, metav1.DeleteOptions{})
			if _, err := core.ConfigMaps("argocd").Create(ctx, &c,
				metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
		_ = core.ConfigMaps("argocd").Delete(ctx, "argosy-instance", metav1.DeleteOptions{})
		if err := argo.Switch(ctx, "3.5"); err != nil {
			t.Error(err)
		}
	})
	r := runPods(t, &example.Place{Engine: "plant-1", Cluster: s.edge.Cluster, ArgoCD: argo,
		Version: strings.Join(strings.Split(strings.TrimPrefix(version, "v"), ".")[:2], ".")})
	<-r.now
	r.now <- ""
	return r
}
