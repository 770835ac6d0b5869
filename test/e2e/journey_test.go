package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestACommitBecomesHealthyApplicationsOnTwoArgoCDs(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	for _, e := range list[view.Engine](t, f, "engines") {
		if !e.Reachable || e.Pending != 0 {
			t.Errorf("engine %s: reachable %v, %d behind: %s", e.Name, e.Reachable, e.Pending,
				e.Message)
		}
	}
	for _, o := range list[mirror.Operation](t, f, "operations") {
		if o.Kind == mirror.OperationSync && o.State != mirror.OperationSucceeded {
			t.Errorf("the SyncRun of the example: %+v", o)
		}
	}
	if out := f.must(t, "explain", "environment", "acme/prod-eu"); !strings.Contains(out, "eu-1") ||
		!strings.Contains(out, "us-1") {
		t.Errorf("explain names not both engines:\n%s", out)
	}
}

func TestABadFileHurtsOnlyItself(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	path := "tenants/globex/deployments/web.yaml"
	before, err := os.ReadFile("../../examples/config-repo/" + path)
	if err != nil {
		t.Fatal(err)
	}
	good := f.Rewrite(string(before))
	uid, _ := f.workload(t, "eu-1", "globex-web", "web")
	f.commit(t, "a typo beside a good change", map[string]string{
		path: strings.Replace(good, "targetRevision",
			"targetRevison", 1),
		"tenants/acme/deployments/promo.yaml": f.deployment("promo", "staging", "acme-staging", ""),
	})
	f.allHealthy(t, "acme/promo@staging")
	out, _, _ := f.argosy(t, "get", "problems")
	if !strings.Contains(out, "web.yaml:9:") || !strings.Contains(out, "targetRevison") {
		t.Errorf("the problem is not named at its line:\n%s", out)
	}
	if now, _ := f.workload(t, "eu-1", "globex-web", "web"); now != uid {
		t.Errorf("the last good state did not stay: workload %s became %s", uid, now)
	}
	f.commit(t, "the typo is fixed", map[string]string{path: good})
	eventually(t, "no problem left", func() string {
		if p := list[fleet.Problem](t, f, "problems"); len(p) > 0 {
			return p[0].String()
		}
		return ""
	})
	f.remove(t, "promo has ended", "tenants/acme/deployments/promo.yaml")
	f.allHealthy(t)
}

func TestRemovalDeletesTheWorkloadAndOrphanLeavesIt(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	f.commit(t, "two to come", map[string]string{
		"tenants/acme/deployments/going.yaml": f.deployment("going", "staging", "acme-staging", ""),
		"tenants/acme/deployments/staying.yaml": f.deployment("staying", "prod-eu", "acme-checkout",
			"  deletionPolicy: Orphan\n"),
	})
	f.allHealthy(t, "acme/going@staging", "acme/staying@prod-eu")
	gone, ok := f.workload(t, "eu-1", "acme-staging", "storefront")
	kept, ok2 := f.workload(t, "eu-1", "acme-checkout", "storefront")
	if !ok || !ok2 {
		t.Fatalf("workloads are not there: %q %q", gone, kept)
	}
	f.remove(t, "two to go", "tenants/acme/deployments/going.yaml",
		"tenants/acme/deployments/staying.yaml")
	f.allHealthy(t)
	if _, ok := f.workload(t, "eu-1", "acme-staging", "storefront"); ok {
		t.Error("policy Delete left the workload")
	}
	if now, _ := f.workload(t, "eu-1", "acme-checkout", "storefront"); now != kept {
		t.Errorf("policy Orphan touched the workload: %s became %q", kept, now)
	}
}

func TestAHandEditIsPutRight(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	a := f.live(t, "us-1", "globex", "billing", "prod-us")
	patch := []byte(`{"spec":{"source":{"path":"elsewhere"}}}`)
	if _, err := f.onEngine("us-1").Patch(t.Context(), a.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hand edit is undone", func() string {
		path, _, err := nestedString(f.live(t, "us-1", "globex", "billing", "prod-us"), "spec",
			"source", "path")
		if err != nil || path != "chart" {
			return "path is " + path
		}
		return ""
	})
	f.allHealthy(t)
}

func TestAnEmergencyStopStopsEveryWriteUntilResumed(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	f.must(t, "stop", "--yes", "--reason", "test")
	defer f.must(t, "resume")
	eventually(t, "the stop is kept on the engines", func() string {
		for _, engine := range []string{"eu-1", "us-1"} {
			p := f.Place(engine)
			if _, err := p.Cluster.Client().CoreV1().ConfigMaps(p.ArgoCD.Namespace).Get(t.Context(),
				"argosy-emergency-stop", metav1.GetOptions{}); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	before := f.writes(t, "eu-1") + f.writes(t, "us-1")
	f.commit(t, "while stopped", map[string]string{
		"tenants/acme/deployments/stopped.yaml": f.deployment("stopped", "staging", "acme-staging",
			"")})
	f.stopPlane(t)
	f.startPlane(t)
	eventually(t, "both engines are followed after a restart", func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			if !e.Reachable {
				return string(e.Name) + " is not"
			}
		}
		return ""
	})
	if after := f.writes(t, "eu-1") + f.writes(t, "us-1"); after != before {
		t.Errorf("%d writes while stopped", after-before)
	}
	f.must(t, "resume")
	f.allHealthy(t, "acme/stopped@staging")
	f.remove(t, "no longer", "tenants/acme/deployments/stopped.yaml")
	f.allHealthy(t)
}

func TestACredentialIsRotatedWithoutARestart(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	token, err := f.Place("eu-1").Cluster.TenantToken(t.Context(), "acme-rotated",
		"acme-staging")
	if err != nil {
		t.Fatal(err)
	}
	before := f.clusterSecret(t, "acme", "staging")
	if err := f.WriteSecret("acme", "staging", "token", token); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster Secret has the new token", func() string {
		if now := f.clusterSecret(t, "acme", "staging"); now == before ||
			!strings.Contains(now, token) {
			return "it has the old one"
		}
		return ""
	})
	f.allHealthy(t)
}

// clusterSecret is the `config` of an environment's cluster Secret on eu-1.
func (f *system) clusterSecret(t *testing.T, tenant, environment string) string {
	t.Helper()
	p := f.Place("eu-1")
	found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
		metav1.ListOptions{
			LabelSelector: "argocd.argoproj.io/secret-type=cluster,argosy.dev/tenant=" + tenant +
				",argosy.dev/environment=" + environment})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("cluster Secret of %s/%s: %d, %v", tenant, environment, len(found.Items), err)
	}
	return string(found.Items[0].Data["config"])
}

func (f *system) stopPlane(t *testing.T) {
	t.Helper()
	f.plane.Stop()
}

func (f *system) startPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := f.plane.Start(ctx); err != nil {
		t.Fatal(err)
	}
}
