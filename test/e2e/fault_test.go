package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
)

func TestKillingTheControlPlaneAtAnyMomentLosesAndDoublesNothing(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	for i := range 4 {
		name := fmt.Sprintf("killed-%d", i)
		if _, err := f.Config.Commit(t.Context(), name, map[string]string{
			"tenants/acme/deployments/" + name + ".yaml": f.deployment(name, "staging",
				"acme-staging", "  sync: {mode: manual}\n"),
		}); err != nil {
			t.Fatal(err)
		}
		f.plane.Process.Kill()
		f.startPlane(t)
	}
	var ids []string
	for i := range 4 {
		ids = append(ids, fmt.Sprintf("acme/killed-%d@staging", i))
	}
	eventually(t, "every commit is applied", f.there(t, ids...))
	for i := range 4 {
		f.live(t, "eu-1", "acme", fmt.Sprintf("killed-%d", i), "staging") // exactly one
	}
	f.remove(t, "enough", "tenants/acme/deployments/killed-0.yaml",
		"tenants/acme/deployments/killed-1.yaml")
	f.remove(t, "enough of it", "tenants/acme/deployments/killed-2.yaml",
		"tenants/acme/deployments/killed-3.yaml")
	f.allHealthy(t)
}

func TestAnEngineThatIsAwayStopsNoOtherAndHealsByItself(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	back := f.lose(t, "us-1")
	f.commit(t, "while us-1 is away", map[string]string{
		"tenants/acme/deployments/during.yaml": f.deployment("during", "staging", "acme-staging",
			"")})
	eventually(t, "the other engine goes on", f.there(t, "acme/during@staging"))
	eventually(t, "the engine is shown as unreachable", func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			if e.Name == "us-1" && !e.Reachable && e.Message != "" && e.Since != nil {
				return ""
			}
		}
		return "us-1 is still called reachable"
	})
	eventually(t, "its Applications alone are Unknown, since it was last seen", func() string {
		all := list[view.Application](t, f, "applications")
		if len(all) == 0 {
			return "none are listed"
		}
		for _, a := range all {
			silent := a.LastSeenAt != nil && a.Sync == mirror.SyncUnknown &&
				a.Health == mirror.HealthUnknown
			if silent != (a.Engine == "us-1") {
				return fmt.Sprintf("%s@%s on %s is %s, %s", a.Deployment, a.Environment, a.Engine,
					a.Sync, a.Health)
			}
		}
		return ""
	})
	back()
	f.allHealthy(t, "acme/during@staging")
	f.remove(t, "no longer", "tenants/acme/deployments/during.yaml")
	f.allHealthy(t)
}

// lose ends the API server of an engine, as if its machine were gone. It returns a function that
// starts the API server and its Argo CD again, which happens at the end of the test at the latest.
func (f *system) lose(t *testing.T, engine string) (back func()) {
	t.Helper()
	place := f.Place(engine)
	place.Cluster.Process.Kill()
	back = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := place.Cluster.Start(ctx); err != nil {
			t.Error(err)
		}
		if err := place.ArgoCD.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(back)
	return back
}

func TestAConfigRepoThatIsAwayChangesNothing(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	f.Config.RequireAuth("somebody", "else")
	eventually(t, "the source shows the error", func() string {
		var s view.Source
		if err := f.api(t, "source", &s); err != nil {
			return err.Error()
		}
		if s.Error == "" || s.Since == nil {
			return "no error"
		}
		if strings.Contains(s.Error, "else") {
			t.Errorf("the error has a credential: %s", s.Error)
		}
		return ""
	})
	f.allHealthy(t)
	f.Config.RequireAuth("", "")
	eventually(t, "it heals", func() string {
		var s view.Source
		if err := f.api(t, "source", &s); err != nil {
			return err.Error()
		}
		return s.Error
	})
}

// api asks the JSON API itself.
func (f *system) api(t *testing.T, path string, into any) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.plane.URL+"/api/v1/"+path,
		nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+f.plane.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func TestTwoReplicasShareTheWorkAndOneTakesOver(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	second, err := f.StartPlane(t.Context(), example.PlaneOptions{
		Binary: binary, Name: "second", Database: f.database, Progress: func(string, ...any) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	f.commit(t, "with two", map[string]string{
		"tenants/acme/deployments/two.yaml": f.deployment("two",
			"staging", "acme-staging", "")})
	f.allHealthy(t, "acme/two@staging")
	second.Process.Kill() // whatever it held, the first takes over when the lease runs out
	f.remove(t, "with one", "tenants/acme/deployments/two.yaml")
	f.allHealthy(t)
}

func TestTheMirrorComesBackFromGitAndTheEnginesWithoutAWrite(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	eventually(t, "the environments that earlier tests removed are gone", func() string {
		for _, e := range list[view.Environment](t, f, "environments") {
			if e.Name == "workshop" {
				return "acme/workshop is still listed"
			}
		}
		return ""
	})
	placed := f.must(t, "get", "environments", "-o", "json")
	f.stopPlane(t)
	before := f.writes(t, "eu-1") + f.writes(t, "us-1")
	f.must(t, "rebuild", "-f", f.plane.Config, "--yes")
	f.startPlane(t)
	f.allHealthy(t)
	if n := f.writes(t, "eu-1") + f.writes(t, "us-1") - before; n != 0 {
		t.Errorf("the rebuild made %d writes", n)
	}
	type where struct {
		Items []view.Environment
	}
	var was, is where
	if err := json.Unmarshal([]byte(placed), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(f.must(t, "get", "environments", "-o", "json")),
		&is); err != nil {
		t.Fatal(err)
	}
	for i, e := range was.Items {
		if i >= len(is.Items) || is.Items[i].Engine != e.Engine {
			t.Errorf("%s/%s was on %s", e.Tenant, e.Name, e.Engine)
		}
	}
}

func TestATenantsTokenSeesThatTenantOnly(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	token := strings.TrimSpace(f.must(t, "token", "create", "ci", "--tenant", "acme"))
	out, errs, code := f.argosyAs(t, token, "get", "applications", "-o", "name")
	if code != 0 || !strings.Contains(out, "acme/") || strings.Contains(out, "globex") ||
		strings.Contains(out, "initech") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	_, stranger, code := f.argosyAs(t, token, "describe", "application", "globex/web@prod-us")
	_, unknown, code2 := f.argosyAs(t, token, "describe", "application", "globex/nothing@prod-us")
	if code == 0 || code2 == 0 || strings.ReplaceAll(stranger, "web", "nothing") != unknown {
		t.Errorf("another tenant's Application and none differ:\n%s%s", stranger, unknown)
	}
	if _, _, code := f.argosyAs(t, token, "stop", "--yes", "--reason", "not mine"); code != 4 {
		t.Errorf("a tenant may stop the fleet: exit code %d", code)
	}
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	f := edges.use(t)
	f.allHealthy(t)
	out, errs, code := f.argosy(t, "doctor", "-f", f.plane.Config)
	if code != 0 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
