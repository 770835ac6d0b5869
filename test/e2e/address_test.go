package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// A cluster gets another address: at rest, while a workload on it is being deleted, and during a
// move. Real Argo CDs forget a cluster whose Secret changes, and strip the finalizers of the
// Applications that still name it.
func TestAClusterGetsAnotherAddressUnderItsWorkloads(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const leaving = "tenants/acme/deployments/leaving.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant)}
	direct := f.Place("eu-1").Cluster.Server
	reach, other := door(t, f.Place("eu-1").Cluster)
	at := func(server, region string) string {
		return strings.NewReplacer("server: "+direct, "server: "+server, "region: eu",
			"region: "+region).Replace(before[environment])
	}

	unchanged := f.untouched(t, f.Place("eu-1").Cluster, "acme-staging")
	f.commit(t, "another address of staging's cluster", map[string]string{
		environment: at(other, "eu"), grant: strings.NewReplacer("regions: [eu]",
			"regions: [eu, us]", "    - "+direct+"\n", "    - "+direct+"\n    - "+other+"\n").
			Replace(before[grant])})
	f.servedAt(t, "eu-1", other)
	if reach.Connections() == 0 {
		t.Error("Argo CD does not use the new address")
	}
	f.allHealthy(t)
	unchanged("at rest")

	// A finalizer holds up the deletion of a workload until the test removes it.
	f.commit(t, "one more workload", map[string]string{leaving: f.deployment("leaving", "staging",
		"acme-staging", "")})
	f.allHealthy(t, "acme/leaving@staging")
	deployments := f.Place("eu-1").Cluster.Client().AppsV1().Deployments("acme-staging")
	finalizer := func(patch string) {
		t.Helper()
		_, err := deployments.Patch(t.Context(), "storefront", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+patch+`}}`), metav1.PatchOptions{})
		check(t, err)
	}
	finalizer(`["example.com/hold"]`)
	_, err := f.Config.Remove(t.Context(), "the workload goes", leaving)
	check(t, err)
	f.commit(t, "and the address is as before", map[string]string{environment: at(direct, "us")})
	eventually(t, "Argo CD deletes the workload", func() string {
		d, err := deployments.Get(t.Context(), "storefront", metav1.GetOptions{})
		if err != nil || d.DeletionTimestamp == nil {
			return fmt.Sprint("it is not being deleted: ", err)
		}
		return ""
	})
	eventually(t, "the change waits for the deletion, with the reason", func() string {
		for _, p := range list[fleet.Problem](t, f, "problems") {
			if p.Code == "environment-in-use" && strings.Contains(p.Message, "deleted") {
				return ""
			}
		}
		return f.must(t, "get", "problems")
	})
	f.servedAt(t, "eu-1", other)
	finalizer("null")
	f.servedAt(t, "eu-1", direct)
	f.allHealthy(t)
	if _, left := f.workload(t, "eu-1", "acme-staging", "storefront"); left {
		t.Error("the deployment was removed, and its workload is left")
	}
	unchanged = f.untouched(t, f.Place("eu-1").Cluster, "acme-staging")

	// The new engine's controller does not answer, so that the move waits in Compare.
	compares := f.Place("us-1").ArgoCD.Controller
	compares.Pause()
	defer compares.Resume()
	moves := f.followMoves(t, "acme", "staging")
	moves.next(t)
	f.must(t, "move", "environment", staging, "--to", "us-1")
	moves.reaches(t, mirror.MoveCompare)
	f.commit(t, "another address during the move", map[string]string{environment: at(other, "us")})
	eventually(t, "the change waits for the end of the move", func() string {
		for _, p := range list[fleet.Problem](t, f, "problems") {
			if p.Code == "environment-in-use" && strings.Contains(p.Message, "moving to engine") {
				return ""
			}
		}
		return f.must(t, "get", "problems")
	})
	compares.Resume()
	f.servedAt(t, "us-1", other)
	f.allHealthy(t)
	if p := list[fleet.Problem](t, f, "problems"); len(p) > 0 {
		t.Errorf("after the move: %v", p)
	}
	unchanged("during the move")

	f.commit(t, "as before", before)
	f.must(t, "move", "environment", staging, "--to", "eu-1", "--watch")
	f.servedAt(t, "eu-1", direct)
	f.allHealthy(t)
	unchanged("at the end")
}

// servedAt waits until an engine has staging's Application with this address of its cluster, and
// Argo CD has compared it there.
func (f *system) servedAt(t *testing.T, engine, server string) {
	t.Helper()
	name := fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme",
		Deployment: "checkout-staging", Environment: "staging"})
	eventually(t, "staging is served at "+server+" by "+engine, func() string {
		o, err := f.onEngine(engine).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		declared, _, _ := nestedString(o, "spec", "destination", "server")
		compared, _, _ := nestedString(o, "status", "sync", "comparedTo", "destination", "server")
		status, _, _ := nestedString(o, "status", "sync", "status")
		if !strings.HasPrefix(declared, server+"?") || compared != declared || status != "Synced" {
			return fmt.Sprintf("it is declared at %s, compared at %s, and %s", declared, compared,
				status)
		}
		for _, a := range list[view.Application](t, f, "applications", "--environment", "staging") {
			if a.Deployment == "checkout-staging" && string(a.Engine) != engine {
				return "it is on " + string(a.Engine)
			}
		}
		return ""
	})
}

// door is an address of a cluster's API server that a test can close.
func door(t *testing.T, c *stack.Cluster) (d *stack.Outlet, server string) {
	t.Helper()
	d, err := (*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil,
		strings.TrimPrefix(c.Server, "https://"))
	check(t, err)
	t.Cleanup(d.Close)
	return d, "https://" + d.Address
}
