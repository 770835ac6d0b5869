package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestACommitBecomesHealthyApplicationsOnTwoArgoCDs(t *testing.T) {
	allHealthy(t)
	for _, e := range list[fleet.EngineView](t, "engines") {
		if !e.Reachable || e.Pending != 0 {
			t.Errorf("engine %s: reachable %v, %d behind: %s", e.Name, e.Reachable, e.Pending,
				e.Message)
		}
	}
	for _, o := range list[fleet.Operation](t, "operations") {
		if o.Kind == fleet.OperationSync && o.State != fleet.OperationSucceeded {
			t.Errorf("the SyncRun of the example: %+v", o)
		}
	}
	if out := must(t, "explain", "environment", "acme/prod-eu"); !strings.Contains(out, "eu-1") ||
		!strings.Contains(out, "us-1") {
		t.Errorf("explain names not both engines:\n%s", out)
	}
}

func TestABadFileHurtsOnlyItself(t *testing.T) {
	allHealthy(t)
	path := "tenants/globex/deployments/web.yaml"
	before, err := os.ReadFile("../../examples/config-repo/" + path)
	if err != nil {
		t.Fatal(err)
	}
	good := world.Rewrite(string(before))
	uid, _ := workload(t, "eu-1", "globex-web", "web")
	commit(t, "a typo beside a good change", map[string]string{
		path: strings.Replace(good, "targetRevision",
			"targetRevison", 1),
		"tenants/acme/deployments/promo.yaml": deployment("promo", "staging", "acme-staging", ""),
	})
	allHealthy(t, "acme/promo@staging")
	out, _, _ := argosy(t, "get", "problems")
	if !strings.Contains(out, "web.yaml:9:") || !strings.Contains(out, "targetRevison") {
		t.Errorf("the problem is not named at its line:\n%s", out)
	}
	if now, _ := workload(t, "eu-1", "globex-web", "web"); now != uid {
		t.Errorf("the last good state did not stay: workload %s became %s", uid, now)
	}
	commit(t, "the typo is mended", map[string]string{path: good})
	eventually(t, "no problem left", func() string {
		if p := list[fleet.Problem](t, "problems"); len(p) > 0 {
			return p[0].String()
		}
		return ""
	})
	remove(t, "promo has ended", "tenants/acme/deployments/promo.yaml")
	allHealthy(t)
}

func TestRemovalDeletesTheWorkloadAndOrphanLeavesIt(t *testing.T) {
	allHealthy(t)
	commit(t, "two to come", map[string]string{
		"tenants/acme/deployments/going.yaml": deployment("going", "staging", "acme-staging", ""),
		"tenants/acme/deployments/staying.yaml": deployment("staying", "prod-eu", "acme-checkout",
			"  deletionPolicy: Orphan\n"),
	})
	allHealthy(t, "acme/going@staging", "acme/staying@prod-eu")
	gone, ok := workload(t, "eu-1", "acme-staging", "storefront")
	kept, ok2 := workload(t, "eu-1", "acme-checkout", "storefront")
	if !ok || !ok2 {
		t.Fatalf("workloads are not there: %q %q", gone, kept)
	}
	remove(t, "two to go", "tenants/acme/deployments/going.yaml",
		"tenants/acme/deployments/staying.yaml")
	allHealthy(t)
	if _, ok := workload(t, "eu-1", "acme-staging", "storefront"); ok {
		t.Error("policy Delete left the workload")
	}
	if now, _ := workload(t, "eu-1", "acme-checkout", "storefront"); now != kept {
		t.Errorf("policy Orphan touched the workload: %s became %q", kept, now)
	}
}

func TestAHandEditIsPutRight(t *testing.T) {
	allHealthy(t)
	a := live(t, "us-1", "globex", "billing", "prod-us")
	patch := []byte(`{"spec":{"source":{"path":"elsewhere"}}}`)
	if _, err := onEngine("us-1").Patch(t.Context(), a.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hand edit is undone", func() string {
		path, _, err := nestedString(live(t, "us-1", "globex", "billing", "prod-us"), "spec",
			"source", "path")
		if err != nil || path != "chart" {
			return "path is " + path
		}
		return ""
	})
	allHealthy(t)
}

func TestAnEmergencyStopStopsEveryWriteUntilResumed(t *testing.T) {
	allHealthy(t)
	must(t, "stop", "--reason", "test")
	defer must(t, "resume")
	eventually(t, "the stop is kept on the engines", func() string {
		for _, engine := range []string{"eu-1", "us-1"} {
			p := world.Place(engine)
			if _, err := p.Cluster.Client().CoreV1().ConfigMaps(p.ArgoCD.Namespace).Get(t.Context(),
				"argosy-emergency-stop", metav1.GetOptions{}); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	before := writes(t, "eu-1") + writes(t, "us-1")
	commit(t, "while stopped", map[string]string{
		"tenants/acme/deployments/stopped.yaml": deployment("stopped", "staging", "acme-staging",
			"")})
	stopPlane(t)
	startPlane(t)
	eventually(t, "both engines are followed after a restart", func() string {
		for _, e := range list[fleet.EngineView](t, "engines") {
			if !e.Reachable {
				return string(e.Name) + " is not"
			}
		}
		return ""
	})
	if after := writes(t, "eu-1") + writes(t, "us-1"); after != before {
		t.Errorf("%d writes while stopped", after-before)
	}
	must(t, "resume")
	allHealthy(t, "acme/stopped@staging")
	remove(t, "no longer", "tenants/acme/deployments/stopped.yaml")
	allHealthy(t)
}

func TestACredentialIsRotatedWithoutARestart(t *testing.T) {
	allHealthy(t)
	token, err := world.Place("eu-1").Cluster.TenantToken(t.Context(), "acme-rotated",
		"acme-staging")
	if err != nil {
		t.Fatal(err)
	}
	before := clusterSecret(t, "acme", "staging")
	if err := world.WriteSecret("acme", "staging", "token", token); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster Secret has the new token", func() string {
		if now := clusterSecret(t, "acme", "staging"); now == before ||
			!strings.Contains(now, token) {
			return "it has the old one"
		}
		return ""
	})
	allHealthy(t)
}

// clusterSecret is the `config` of an environment's cluster Secret on eu-1.
func clusterSecret(t *testing.T, tenant, environment string) string {
	t.Helper()
	p := world.Place("eu-1")
	found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
		metav1.ListOptions{
			LabelSelector: "argocd.argoproj.io/secret-type=cluster,argosy.dev/tenant=" + tenant +
				",argosy.dev/environment=" + environment})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("cluster Secret of %s/%s: %d, %v", tenant, environment, len(found.Items), err)
	}
	return string(found.Items[0].Data["config"])
}

func stopPlane(t *testing.T) {
	t.Helper()
	plane.Stop()
}

func startPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := plane.Start(ctx); err != nil {
		t.Fatal(err)
	}
}
