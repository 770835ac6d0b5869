package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
)

// An environment with live workloads is declared with a cluster in place of its agent, and back.
// Its Application moves under both connections, and no object of the workload changes.
func TestAnEnvironmentChangesBetweenAnAgentAndACluster(t *testing.T) {
	f := edges.use(t)
	const id, namespace, grant = "acme/dock@dock", "acme-dock", "fleet/tenants/acme.yaml"
	const file = "tenants/acme/environments/dock.yaml"
	s := f.declareSite(t, "dock", "{argocdNamespace: argocd}",
		map[string]string{"dock": f.deployment("dock", "dock", namespace, "")}, namespace)
	defer s.leave(t)
	s.join(t)
	eventually(t, "it is Healthy behind the firewall", f.healthy(t, id))
	unchanged := f.untouched(t, s.edge.Cluster, namespace)

	server := inlet(t, s.edge)
	token, err := s.edge.Cluster.TenantToken(t.Context(), "acme-dock", namespace)
	check(t, err)
	check(t, f.WriteSecret("acme", "dock", "token", token))
	before := f.exampleFile(t, grant)
	defer f.commit(t, "as before", map[string]string{grant: before})
	f.commit(t, "acme may use the cluster", map[string]string{grant: strings.Replace(before,
		"clusters:\n", "clusters:\n    - "+server+"\n", 1)})
	byAgent := environment("dock", "{argocdNamespace: argocd}", namespace)
	byEngine := fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: dock, labels: {tier: staging}}
spec:
  cluster: {server: %q, caData: %s, credentialsRef: {name: dock}}
  namespaces: [%s]
  region: eu
`, server, base64.StdEncoding.EncodeToString(s.edge.Cluster.CA), namespace)

	// changed commits a change of the environment's file, and moves what is deployed.
	changed := func(to, content string, engine fleet.EngineName) {
		t.Helper()
		f.commit(t, to, map[string]string{file: content})
		eventually(t, to+" waits for a move", func() string {
			for _, p := range list[fleet.Problem](t, f, "problems") {
				if p.Code == "environment-in-use" && p.Path == file &&
					p.Severity == fleet.SeverityWarning &&
					strings.Contains(p.Fix, "argosy move environment acme/dock --to") {
					return ""
				}
			}
			return f.must(t, "get", "problems")
		})
		if !engine.OfEnvironment() { // to its agent, it moves by itself: misplaced: Move
			eventually(t, "nothing is against the move", func() string {
				out, errs, code := f.argosy(t, "move", "environment", "acme/dock", "--to",
					string(engine), "--dry-run")
				return map[bool]string{true: out + errs}[code != 0]
			})
			f.must(t, "move", "environment", "acme/dock", "--to", string(engine), "--watch")
		}
		eventually(t, to+" is in effect", func() string {
			for _, p := range list[fleet.Problem](t, f, "problems") {
				if p.Path == file {
					return f.must(t, "get", "problems")
				}
			}
			for _, e := range list[view.Environment](t, f, "environments") {
				if e.Tenant == "acme" && e.Name == "dock" && e.Engine == engine {
					return ""
				}
			}
			return f.must(t, "get", "environments")
		})
		eventually(t, "it is Healthy: "+to, f.healthy(t, id))
		unchanged(to)
	}
	changed("a cluster in place of the agent", byEngine, "eu-1")
	eventually(t, "nothing is left behind the firewall", s.bare(t, applications, projects))
	guards := looserGuards(guardsFile, f.exampleFile(t, guardsFile))
	f.commit(t, "environments leave engines where they do not belong", map[string]string{
		guardsFile: guards + "  placement: {misplaced: Move}\n"})
	changed("an agent in place of the cluster", byAgent, s.engine)
	f.commit(t, "only a person moves environments", map[string]string{guardsFile: guards})
	eventually(t, "nothing is left on the engine", func() string {
		p := f.Place("eu-1")
		found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme,argosy.dev/environment=dock"})
		if err != nil || len(found.Items) > 0 {
			return fmt.Sprintf("%d Secrets, %v", len(found.Items), err)
		}
		return ""
	})
}

// inlet is an address outside of the firewall that leads to the API server behind it.
func inlet(t *testing.T, e *example.Edge) (server string) {
	t.Helper()
	if e.Firewall == nil {
		return e.Cluster.Server
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	target := strings.TrimPrefix(e.Cluster.Server, "https://")
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := e.Firewall.Dial(t.Context(), "tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			end := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() })
			go func() { defer end(); _, _ = io.Copy(out, in) }()
			go func() { defer end(); _, _ = io.Copy(in, out) }()
		}
	}()
	return "https://" + l.Addr().String()
}
