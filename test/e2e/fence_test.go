package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// us-1 serves acme/staging, and its application-controller stops. A move off it names the fence,
// and the fence moves staging without the controller, which is back once the fence is lifted.
func TestAStuckArgoCDIsFencedAndEvacuated(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const engine = "us-1"
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const file = "fleet/engines/" + engine + ".yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant), file: f.exampleFile(t, file)}
	place := f.Place(engine)
	runs := applicationController.pod(t, place)
	f.commit(t, "staging belongs into the US", map[string]string{
		environment: strings.Replace(before[environment], "region: eu", "region: us", 1),
		grant:       strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1),
		file:        before[file] + "  remedies: {fence: Allowed}\n"})
	f.allHealthy(t)
	f.must(t, "move", "environment", staging, "--to", engine, "--watch")
	f.commit(t, "staging belongs into the EU", map[string]string{environment: before[environment]})
	f.allHealthy(t)
	workload, audited := f.workloadOf(t), len(f.audited(t))

	place.ArgoCD.Controller.Pause()
	f.awaits(t, "the fault is noticed", func(e view.Engine) bool {
		return e.Work != nil && e.Work.State == mirror.ControllerStuck
	})
	out, errs, code := f.argosy(t, "move", "environment", staging, "--to", "eu-1", "--dry-run")
	if code == 0 || !strings.Contains(out+errs, "evacuate engine "+engine+" --fence") {
		t.Errorf("a move off a stuck engine: %s%s", out, errs)
	}
	out = f.must(t, "evacuate", "engine", engine, "--fence", "--dry-run")
	if !strings.Contains(out, "StatefulSet "+applicationController.name()+" (replicas: 1)") {
		t.Errorf("the dry run: %s", out)
	}
	f.must(t, "evacuate", "engine", engine, "--fence", "--reason", "it is stuck")
	began := time.Now()
	eventually(t, "staging is on eu-1, and the environments of the US stay", func() string {
		e := f.evacuation(t)
		if e == nil || e.State != mirror.EvacuationWaiting || e.Away != 1 || e.Open > 0 {
			return fmt.Sprintf("%+v", e)
		}
		return ""
	})
	f.live(t, "eu-1", "acme", "checkout-staging", "staging")
	eventually(t, "staging is Synced and Healthy", func() string {
		for _, a := range list[view.Application](t, f, "applications", "--tenant", "acme") {
			if a.Environment == "staging" && (a.Sync != mirror.SyncSynced ||
				a.Health != mirror.HealthHealthy || a.Engine != "eu-1") {
				return fmt.Sprintf("%s on %s is %s, %s", a.Deployment, a.Engine, a.Sync, a.Health)
			}
		}
		return ""
	})
	t.Logf("fenced, and staging Synced and Healthy elsewhere, after %s",
		time.Since(began).Round(time.Second))
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}

	apps := place.Cluster.Client().AppsV1()
	_, err := apps.StatefulSets(place.ArgoCD.Namespace).Patch(t.Context(),
		applicationController.name(), types.MergePatchType, []byte(`{"spec":{"replicas":1}}`),
		metav1.PatchOptions{FieldManager: "argocd-operator"})
	check(t, err)
	eventually(t, "describe names who has scaled it back", func() string {
		text := f.must(t, "describe", "engine", engine)
		if !strings.Contains(text, "Broken") || !strings.Contains(text, "set by argocd-operator") {
			return text
		}
		return ""
	})
	f.must(t, "evacuate", "engine", engine, "--fence", "--reason", "the operator is stopped")
	eventually(t, "it is fenced again", func() string {
		if text := f.must(t, "describe", "engine", engine); !strings.Contains(text, "Fenced for") {
			return text
		}
		return ""
	})
	started := runs()
	eventually(t, "the evacuation ends, and the controller runs again", func() string {
		if _, errs, code := f.argosy(t, "evacuate", "engine", engine, "--end"); code != 0 &&
			!strings.Contains(errs, "it is not evacuated") {
			return errs
		}
		if e := f.evacuation(t); e != nil || runs() == started {
			return fmt.Sprintf("%+v, %d runs", e, runs())
		}
		return ""
	})
	found, err := f.onEngine(engine).List(t.Context(),
		metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme"})
	check(t, err)
	for _, o := range found.Items {
		t.Errorf("%s still has %s", engine, o.GetName())
	}
	f.commit(t, "as before", before)
	f.allHealthy(t)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("during the evacuation: %s", e)
	}
}
