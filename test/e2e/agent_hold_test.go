package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// The admin of a cluster behind an agent holds it: a commit changes nothing there, also after a
// restart of the agent, and the control plane shows until when. It follows once the hold ends.
func TestTheAdminOfAnEdgeClusterHoldsItsAgent(t *testing.T) {
	f := edges.use(t)
	const id, namespace, file = "acme/quiet@quiet", "acme-quiet",
		"tenants/acme/deployments/quiet.yaml"
	declare := func(limit int) string {
		return f.deployment("quiet", "quiet", namespace, fmt.Sprintf("  revisionHistoryLimit: %d\n",
			limit))
	}
	s := f.declareSite(t, "quiet", "{argocdNamespace: argocd}", map[string]string{
		"quiet": declare(3)}, namespace)
	defer s.leave(t)
	s.join(t)
	eventually(t, "it is Healthy behind the firewall", f.healthy(t, id))
	limit := func() int64 {
		t.Helper()
		name := fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme", Deployment: "quiet",
			Environment: "quiet"})
		o, err := s.edge.Cluster.Dynamic().Resource(applications).Namespace("argocd").Get(
			t.Context(), name, metav1.GetOptions{})
		check(t, err)
		spec, _ := o.Object["spec"].(map[string]any)
		n, _ := spec["revisionHistoryLimit"].(int64)
		return n
	}
	hold := func(want string, args ...string) {
		t.Helper()
		out, err := s.edge.Run(binary, append([]string{"agent", "hold"}, args...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("agent hold %v: %s, %v", args, out, err)
		}
	}
	hold("the agent is not held")
	hold("writes nothing from a few seconds on", "--until", "8h", "--reason", "stocktaking")
	hold("holds every write until")
	eventually(t, "the control plane shows the hold", s.shows(t, func(a view.Agent) string {
		if !strings.Contains(a.Message, "holds every write until") ||
			!strings.Contains(a.Message, "stocktaking") || !a.Connected || !a.Reachable {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	f.commit(t, "a change that waits", map[string]string{file: declare(4)})
	waits := s.shows(t, func(a view.Agent) string {
		if a.Pending != 1 || !a.Connected || !strings.Contains(a.Message, "stocktaking") {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	})
	eventually(t, "the change waits", waits)
	s.agent.Kill()
	s.start(t)
	eventually(t, "the change waits after a restart", waits)
	if got := limit(); got != 3 {
		t.Errorf("the held cluster has the limit %d", got)
	}
	hold("ended the hold", "--end")
	eventually(t, "the change follows", func() string {
		if got := limit(); got != 4 {
			return fmt.Sprintf("the limit is %d", got)
		}
		return ""
	})
	eventually(t, "no hold is shown", s.shows(t, func(a view.Agent) string {
		if strings.Contains(a.Message, "holds every write") || a.Pending > 0 {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	s.files[file] = declare(4)
}
