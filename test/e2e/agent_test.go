package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const (
	edgeFile       = "tenants/acme/environments/workshop.yaml"
	edgeDeployment = "tenants/acme/deployments/workshop.yaml"
	edgeApp        = "acme/workshop@workshop"
	edgeEngine     = "acme.workshop"
)

// workshop is an environment that an agent joins, and a deployment there of the storefront's plain
// manifests.
func (f *system) workshop(more string) map[string]string {
	return map[string]string{
		edgeFile: `apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata:
  name: workshop
  labels: {tier: staging}
spec:
  agent: {argocdNamespace: argocd}
  namespaces: [acme-workshop]
  region: eu
`,
		edgeDeployment: f.deployment("workshop", "workshop", "acme-workshop", more),
	}
}

// TestAClusterBehindAFirewallJoinsAndIsServed is the story of one edge cluster, from the
// declaration to the end of its agent.
func TestAClusterBehindAFirewallJoinsAndIsServed(t *testing.T) {
	f := edges.use(t)
	edge := f.Edge
	f.allHealthy(t)
	f.commit(t, "a workshop", f.workshop(""))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_, _ = f.Config.Remove(ctx, "no workshop", edgeDeployment, edgeFile)
	})
	eventually(t, "no agent has joined, and that is shown",
		f.agents(t, func(a view.Agent) string {
			if a.Connected || a.ID != "" || a.Pending == 0 {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		}))

	checked, err := edge.Run(binary, "agent", "join", "--check", edge.URL, "--ca-file", edge.CAFile)
	if err != nil {
		t.Errorf("the check before joining: %v", err)
	}
	t.Logf("argosy agent join --check:\n%s", checked)
	token := strings.TrimSpace(f.must(t, "agent", "token", "create", "acme/workshop"))
	joined, err := edge.Join(binary, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("argosy agent join:\n%s", joined)
	if strings.Contains(joined, token) {
		t.Error("joining prints the token")
	}
	if again, err := edge.Join(binary, token); err == nil && again == "" {
		t.Error("joining again prints nothing")
	}

	whole := t // outlives the steps below
	agent := startAgent(whole, edge)
	eventually(t, "the Application is applied, Synced and Healthy behind the firewall",
		f.healthy(t, edgeApp))
	eventually(t, "the agent is shown as connected and up to date", f.agents(t, upToDate))
	pods, prune := edgePods(t, edge), true
	changed := func() map[string]string {
		prune = !prune
		return f.workshop(fmt.Sprintf("  sync: {mode: automated, prune: %t}\n", prune))
	}

	t.Run("the hub away", func(t *testing.T) {
		edge.Hub.Block(true)
		defer edge.Hub.Block(false)
		f.commit(t, "while no agent is connected", changed())
		eventually(t, "the agent is shown as away", f.agents(t, func(a view.Agent) string {
			if a.Connected || a.SeenAt == nil || a.Lag == 0 {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		}))
		edge.Hub.Block(false)
		eventually(t, "what was missed arrives", f.agents(t, upToDate))
	})
	t.Run("a bad network", func(t *testing.T) {
		for i, fault := range []func(){
			func() { edge.Hub.Latency(100 * time.Millisecond) },
			func() { edge.Hub.Cut(700) },
			func() { edge.Hub.Block(true); edge.Hub.Block(false) },
		} {
			fault()
			f.commit(t, fmt.Sprintf("over a bad network, %d", i), changed())
			eventually(t, "the change arrives", f.agents(t, upToDate))
		}
		edge.Hub.Latency(0)
	})
	t.Run("the agent killed at any moment", func(t *testing.T) {
		for i := range 3 {
			if _, err := f.Config.Commit(t.Context(), fmt.Sprintf("kill %d", i),
				changed()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 400 * time.Millisecond) // another moment each time
			agent.Kill()
			agent = startAgent(whole, edge)
		}
		eventually(t, "the last change is applied", f.agents(t, upToDate))
		eventually(t, "it is Healthy", f.healthy(t, edgeApp))
	})
	t.Run("an emergency stop reaches it", func(t *testing.T) {
		f.must(t, "stop", "--yes", "--tenant", "acme", "--reason", "a test")
		defer func() { f.must(t, "resume", "--tenant", "acme") }()
		f.commit(t, "during the stop", changed())
		eventually(t, "the row waits", f.agents(t, func(a view.Agent) string {
			if a.Pending == 0 {
				return "nothing waits"
			}
			return ""
		}))
	})
	eventually(t, "after the stop it goes on", f.agents(t, upToDate))
	if now := edgePods(t, edge); now != pods {
		t.Errorf("the workload was touched: %s became %s", pods, now)
	}

	t.Run("revoked, and joined again", func(t *testing.T) {
		f.must(t, "agent", "revoke", "acme/workshop")
		ended := make(chan error, 1)
		go func() { ended <- agent.Wait() }()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the agent goes on after it was revoked")
		}
		if log, _ := os.ReadFile(agent.LogFile()); !strings.Contains(string(log),
			"run `argosy agent join`") {
			t.Errorf("the agent's last words do not name the fix: %s", log[max(0, len(log)-500):])
		}
		before := applicationUID(t, edge)
		if _, err := edge.Join(binary,
			strings.TrimSpace(f.must(t, "agent", "token", "create", "acme/workshop"))); err != nil {
			t.Fatal(err)
		}
		agent = startAgent(whole, edge)
		eventually(t, "the new identity serves it", f.agents(t, upToDate))
		if now := applicationUID(t, edge); now != before {
			t.Errorf("the Application was recreated: %s, then %s", before, now)
		}
		if now := edgePods(t, edge); now != pods {
			t.Errorf("the workload was touched: %s became %s", pods, now)
		}
	})
	t.Run("removed", func(t *testing.T) {
		f.remove(t, "the workshop closes", edgeDeployment)
		eventually(t, "the Application is gone there", func() string {
			list, err := edge.Cluster.Dynamic().Resource(applications).Namespace("argocd").List(
				t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) > 0 {
				return fmt.Sprintf("%d are there", len(list.Items))
			}
			return ""
		})
		f.remove(t, "and its environment goes", edgeFile)
		f.allHealthy(t)
	})
}

func startAgent(t *testing.T, edge *example.Edge) *stack.Process {
	t.Helper()
	p, err := edge.StartAgent(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			log, _ := os.ReadFile(p.LogFile())
			t.Logf("the agent's log ends with\n%s", log[max(0, len(log)-4000):])
		}
	})
	return p
}

// agents asks for the edge's agent and returns what the check finds missing.
func (f *system) agents(t *testing.T, look func(view.Agent) string) func() string {
	return func() string {
		t.Helper()
		for _, a := range list[view.Agent](t, f, "agents") {
			if a.Engine == edgeEngine {
				return look(a)
			}
		}
		return "not in `get agents`"
	}
}

func upToDate(a view.Agent) string {
	if a.Connected && a.Pending == 0 && a.Lag == 0 && a.ArgoCD != "" && a.Version != "" {
		return ""
	}
	return fmt.Sprintf("%+v", a)
}

// healthy returns what one Application lacks.
func (f *system) healthy(t *testing.T, id string) func() string {
	return func() string {
		t.Helper()
		for _, a := range list[view.Application](t, f, "applications") {
			if (fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
				Environment: a.Environment}).String() != id {
				continue
			}
			if example.Healthy(a) {
				return ""
			}
			return fmt.Sprintf("%s %s %s %s%s", a.Apply, a.Sync, a.Health, a.ApplyMessage,
				a.Message)
		}
		return id + " is not there"
	}
}

// edgePods are the UIDs of the Pods behind the firewall.
func edgePods(t *testing.T, edge *example.Edge) string {
	t.Helper()
	var uids []string
	list, err := edge.Cluster.Client().CoreV1().Pods("acme-workshop").List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		uids = append(uids, string(pod.UID))
	}
	if len(uids) == 0 {
		t.Error("no Pod runs behind the firewall")
	}
	return strings.Join(uids, " ")
}

func applicationUID(t *testing.T, edge *example.Edge) types.UID {
	t.Helper()
	list, err := edge.Cluster.Dynamic().Resource(applications).Namespace("argocd").List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d Applications behind the firewall", len(list.Items))
	}
	return list.Items[0].GetUID()
}
