package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// away is how long a lost engine is left alone, at least, before it comes back.
var away = flag.Duration("away", 0, "how long a lost engine stays away, beyond its evacuation")

// us-1 serves acme/staging, whose workload is on another cluster, and its API server is lost. The
// engine that comes back touches no workload, and serves nothing that it has lost.
func TestADeadEngineIsEvacuatedAndComesBack(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	before := map[string]string{environment: f.exampleFile(t, environment),
		grant: f.exampleFile(t, grant)}
	f.commit(t, "staging belongs into the US", map[string]string{
		environment: strings.Replace(before[environment], "region: eu", "region: us", 1),
		grant:       strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)})
	f.allHealthy(t)
	f.must(t, "move", "environment", staging, "--to", "us-1", "--watch")
	f.commit(t, "staging belongs into the EU", map[string]string{environment: before[environment]})
	f.allHealthy(t)
	workload, audited := f.workloadOf(t), len(f.audited(t))

	out, errs, code := f.argosy(t, "evacuate", "engine", "us-1", "--confirm-gone", "us-1")
	if code == 0 || !strings.Contains(errs, "its API server answers") {
		t.Fatalf("an engine that answers is evacuated: %s%s", out, errs)
	}
	back := f.lose(t, "us-1")
	eventually(t, "a person evacuates it once it does not answer", func() string {
		_, errs, _ := f.argosy(t, "evacuate", "engine", "us-1", "--confirm-gone", "us-1")
		if strings.Contains(errs, "evacuated already") {
			return ""
		}
		return errs
	})
	eventually(t, "staging is on eu-1, and the environments of the US stay", func() string {
		e := f.evacuation(t)
		if e == nil || e.State != mirror.EvacuationWaiting || e.Away != 1 || e.Open > 0 ||
			!strings.Contains(e.Message, "globex/prod-us: no other engine can take it") {
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
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}

	pacing.Sleep(t.Context(), *away)
	back()
	eventually(t, "us-1 loses what it has lost, and serves the rest again", func() string {
		if _, errs, code := f.argosy(t, "evacuate", "engine", "us-1", "--end"); code != 0 &&
			!strings.Contains(errs, "it is not evacuated") {
			return errs
		}
		if e := f.evacuation(t); e != nil {
			return fmt.Sprintf("%+v", e)
		}
		return ""
	})
	found, err := f.onEngine("us-1").List(t.Context(),
		metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme"})
	check(t, err)
	for _, o := range found.Items {
		t.Errorf("us-1 still has %s", o.GetName())
	}
	f.commit(t, "as before", before)
	f.allHealthy(t)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("during the evacuation: %s", e)
	}
	log, err := stack.ReadAudit(filepath.Join(f.Dir, "us-1.audit"))
	check(t, err)
	var writes []string
	for _, e := range log {
		if e.Stage == "ResponseComplete" && e.Writes() && e.ObjectRef.Resource == "applications" &&
			strings.Contains(e.ObjectRef.Name, "acme-checkout-staging") &&
			strings.Contains(e.User.Username, "argosy") {
			writes = append(writes, e.Verb)
		}
	}
	t.Logf("writes to the Application on us-1 since its arrival: %q", writes)
	if n := slices.Index(writes, "delete"); n < 1 || writes[n-1] != "patch" {
		t.Errorf("us-1 did not freeze the Application before it was removed: %q", writes)
	}
}

// evacuation is that of us-1; nil if there is none.
func (f *system) evacuation(t *testing.T) *mirror.Evacuation {
	t.Helper()
	for _, e := range list[view.Engine](t, f, "engines") {
		if e.Name == "us-1" {
			return e.Evacuation
		}
	}
	t.Fatal("there is no us-1")
	return nil
}
