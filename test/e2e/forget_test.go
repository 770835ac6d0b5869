package e2e

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// us-1 is lost for good: it is evacuated and forgotten, and its declaration is removed. The objects
// that were on it are listed as unproven. It comes back all the same, and Argosy freezes and
// removes its Application of staging, and touches no workload.
func TestAForgottenEngineThatReturnsProvesItsObjectsGone(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const environment, grant = "tenants/acme/environments/staging.yaml", "fleet/tenants/acme.yaml"
	const engine, initech = "fleet/engines/us-1.yaml", "fleet/tenants/initech.yaml"
	before := map[string]string{}
	for _, path := range []string{environment, grant, engine, initech} {
		before[path] = f.exampleFile(t, path)
	}
	others := []string{"globex/prod-us", "initech/prod-us"}
	anywhere := map[string]string{
		initech: strings.Replace(before[initech], "regions: [us]", "regions: [eu, us]", 1)}
	for _, id := range others {
		tenant, name, _ := strings.Cut(id, "/")
		path := "tenants/" + tenant + "/environments/" + name + ".yaml"
		before[path] = f.exampleFile(t, path)
		anywhere[path] = strings.Replace(before[path], "region: us", "region: eu", 1)
	}
	moves := func(id string, to fleet.EngineName) {
		t.Helper()
		eventually(t, id+" may move to "+string(to), func() string {
			out, errs, code := f.argosy(t, "move", "environment", id, "--to", string(to),
				"--dry-run")
			return map[bool]string{true: out + errs}[code != 0]
		})
		f.must(t, "move", "environment", id, "--to", string(to), "--watch")
	}
	f.commit(t, "staging belongs into the US", map[string]string{
		environment: strings.Replace(before[environment], "region: eu", "region: us", 1),
		grant:       strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)})
	f.allHealthy(t)
	moves(staging, "us-1")
	anywhere[environment] = before[environment]
	f.commit(t, "everything belongs into the EU", anywhere)
	for _, id := range others {
		moves(id, "eu-1")
	}
	f.allHealthy(t)
	workload, audited := f.workloadOf(t), len(f.audited(t))

	back := f.lose(t, "us-1")
	eventually(t, "a person evacuates it once it does not answer", func() string {
		_, errs, _ := f.argosy(t, "evacuate", "engine", "us-1", "--confirm-gone", "us-1")
		if strings.Contains(errs, "evacuated already") {
			return ""
		}
		return errs
	})
	eventually(t, "a person forgets it once all Applications are adopted", func() string {
		_, errs, code := f.argosy(t, "forget", "engine", "us-1", "--confirm-gone", "us-1",
			"--reason", "the site burned")
		return map[bool]string{true: errs}[code != 0]
	})
	unproven := func() []view.Unproven { return list[view.Unproven](t, f, "unproven") }
	lost := unproven()
	if !slices.ContainsFunc(lost, func(u view.Unproven) bool {
		return u.Engine == "us-1" && u.Kind == fleet.ObjectApplication && u.Tenant == "acme" &&
			u.Environment == "staging" && u.UID != "" && u.Risk != ""
	}) {
		t.Errorf("unproven are %+v", lost)
	}
	f.remove(t, "us-1 never returns", engine)
	eventually(t, "us-1 is not declared", func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			if e.Name == "us-1" && e.Evacuation == nil {
				return f.must(t, "get", "problems")
			}
		}
		return ""
	})
	f.live(t, "eu-1", "acme", "checkout-staging", "staging")

	back()
	eventually(t, "the returned engine proves that its objects are gone", func() string {
		if left := unproven(); len(left) > 0 {
			return f.must(t, "get", "unproven")
		}
		return ""
	})
	found, err := f.onEngine("us-1").List(t.Context(),
		metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme"})
	check(t, err)
	for _, o := range found.Items {
		t.Errorf("us-1 still has %s", o.GetName())
	}
	f.commit(t, "us-1 is declared again", before)
	eventually(t, "it takes environments again", func() string {
		if _, errs, code := f.argosy(t, "evacuate", "engine", "us-1", "--end"); code != 0 &&
			!strings.Contains(errs, "it is not evacuated") {
			return errs
		}
		if e := f.evacuation(t); e != nil {
			return string(e.State) + ": " + e.Message
		}
		return ""
	})
	for _, id := range others {
		moves(id, "us-1")
	}
	f.allHealthy(t)
	if now := f.workloadOf(t); !slices.Equal(workload, now) {
		t.Errorf("the workload was\n%q\nand is\n%q", workload, now)
	}
	for _, e := range f.audited(t)[audited:] {
		t.Errorf("after the engine was lost: %s", e)
	}
	if h := list[mirror.Hold](t, f, "holds"); len(h) > 0 {
		t.Errorf("at the end: %+v", h)
	}
}
