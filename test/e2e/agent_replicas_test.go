package e2e

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const (
	dockFile = "tenants/acme/deployments/dock.yaml"
	dockApp  = "acme/dock@dock"
)

// TestAnyReplicaServesAnAgentAndTwoProcessesAreNotServed puts two replicas behind the one address
// that the edge knows, and then a copy of the agent beside the agent.
func TestAnyReplicaServesAnAgentAndTwoProcessesAreNotServed(t *testing.T) {
	f := edges.use(t)
	second, err := f.StartPlane(t.Context(), example.PlaneOptions{
		Binary: binary, Name: "second-hub", Database: f.database,
		Progress: func(string, ...any) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	s := f.declareSite(t, "dock", "{argocdNamespace: argocd}", map[string]string{
		"dock": f.deployment("dock", "dock", "acme-dock", "")}, "acme-dock")
	defer s.leave(t)
	var tapped bytes.Buffer
	s.edge.Hub.Tap(&tapped)
	defer s.edge.Hub.Tap(nil)
	s.join(t)
	s.edge.Hub.Tap(nil)
	t.Run("what was recorded on the way is of no use", func(t *testing.T) {
		f.replays(t, s.engine, tapped.Bytes(), f.plane, second)
	})
	eventually(t, "it is Healthy", f.healthy(t, dockApp))
	pods := s.pods(t, "acme-dock")
	pair := []*example.Plane{f.plane, second}
	defer func(first *example.Plane) { f.plane = first }(f.plane)

	t.Run("the replica that serves the stream is killed", func(t *testing.T) {
		serving, other := s.servedBy(t, pair)
		process := s.agent.PID()
		serving.Process.Kill()
		defer func() {
			if err := serving.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		f.plane = other
		s.files[dockFile] += "  sync: {mode: automated, prune: false}\n"
		f.commit(t, "while one is away", map[string]string{dockFile: s.files[dockFile]})
		eventually(t, "the other serves it", s.shows(t, upToDate))
		if now, _ := s.servedBy(t, pair); now != other || ended(s.agent) ||
			s.agent.PID() != process {
			t.Errorf("it is served by %s", now.URL)
		}
	})
	t.Run("it is revoked at the one and cut at the other", func(t *testing.T) {
		_, f.plane = s.servedBy(t, pair)
		f.must(t, "agent", "revoke", s.name)
		select {
		case <-s.agent.Done():
		case <-time.After(time.Minute):
			t.Error("the stream is open a minute after its agent was revoked")
			s.agent.Stop()
		}
	})
	f.plane = pair[0]
	second.Stop()
	s.join(t)
	t.Run("its Secret is copied", func(t *testing.T) { s.copied(t) })
	if now := s.pods(t, "acme-dock"); now != pods {
		t.Errorf("the workload was touched: %s became %s", pods, now)
	}
}

// servedBy is the replica that has the agent's stream, and another.
func (s *site) servedBy(t *testing.T, replicas []*example.Plane) (serving, other *example.Plane) {
	t.Helper()
	eventually(t, "a replica serves the agent", func() string {
		var name string
		s.query(t, &name, `SELECT connected_to FROM agents WHERE engine = $1 AND ended_at IS NULL`,
			string(s.engine))
		serving, other = nil, nil
		for _, p := range replicas {
			// host/process/start
			if parts := strings.Split(name, "/"); len(parts) == 3 &&
				parts[1] == strconv.Itoa(p.Process.PID()) {
				serving = p
			} else {
				other = p
			}
		}
		if serving == nil {
			return "it is connected to " + strconv.Quote(name)
		}
		return ""
	})
	return serving, other
}

// twice bounds how often a cluster starts a process again that has ended, before the control plane
// has to have seen that there are two.
const twice = 8

// copied runs a second process with a copy of the agent's Secret, and starts each again when it has
// ended, as their clusters would.
func (s *site) copied(t *testing.T) {
	core := s.edge.Cluster.Client().CoreV1()
	const elsewhere = "argosy-copy"
	if err := s.edge.Cluster.CreateNamespace(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = core.Namespaces().Delete(t.Context(), elsewhere, metav1.DeleteOptions{}) }()
	own, err := core.Secrets(agentNamespace).Get(t.Context(), agentNamespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets(elsewhere).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}, Data: own.Data},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	copied := *s
	run := map[*site]func(*testing.T){s: s.start, &copied: copied.startCopy(elsewhere)}
	copied.agent = nil
	run[&copied](t)
	defer func() { copied.agent.Stop() }()
	refused := func(p *site) bool {
		return strings.Contains(p.log(2000), "two processes alternate with this agent's identity")
	}
	starts := 0
	eventually(t, "both are refused", func() string {
		for p, start := range run {
			if ended(p.agent) && !refused(p) {
				if starts++; starts > twice {
					t.Fatalf(
						"they have taken over from each other %d times without a refusal; "+
							"the last words are %s", starts, p.log(600))
				}
				start(t)
			}
		}
		if !ended(s.agent) || !ended(copied.agent) {
			return fmt.Sprintf("after %d starts", starts)
		}
		return ""
	})
	eventually(t, "it is shown", s.shows(t, func(a view.Agent) string {
		if !a.Cloned || a.Connected {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	if out := s.must(t, "get", "agents"); !strings.Contains(out, "cloned") {
		t.Errorf("`get agents` does not show it:\n%s", out)
	}
	s.join(t) // the one that stays; the copy is of no use any more
	copied.startCopy(elsewhere)(t)
	eventually(t, "the copy is refused at once", func() string {
		if !ended(copied.agent) {
			return "it runs"
		}
		return ""
	})
	eventually(t, "and the other goes on", s.shows(t, upToDate))
}

// startCopy runs the agent by the Secret of another namespace, with an administrator's kubeconfig.
func (s *site) startCopy(namespace string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		command := s.edge.Command(binary, "agent", "run", "--hub", s.edge.URL, "--ca-file",
			s.edge.CAFile, "--namespace", namespace, "--kubeconfig", s.edge.Cluster.Kubeconfig,
			"--ops", "")
		var err error
		if s.agent, err = stack.StartProcess(command); err != nil {
			t.Fatal(err)
		}
	}
}
