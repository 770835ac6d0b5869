package e2e

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Nothing gives this Service an address, so that it stays Progressing.
const waitingService = `apiVersion: v1
kind: Service
metadata: {name: wave-base}
spec: {type: LoadBalancer, selector: {app: wave-base}, ports: [{port: 80}]}
`

func waveConfig(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

func TestALaterWaveWaitsUntilTheEarlierOneIsHealthy(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	f.ordersWaves(t, "staging", "acme-staging")
	f.allHealthy(t)
}

// ordersWaves deploys two waves to an environment of acme, of which the first is unhealthy for a
// while, and removes them again.
func (f *system) ordersWaves(t *testing.T, environment, namespace string) {
	t.Helper()
	repo := f.Apps["acme/storefront"]
	if _, err := repo.Commit(t.Context(), "two waves", map[string]string{
		"waves/base/base.yaml": waitingService, "waves/ready/base.yaml": waveConfig("wave-base"),
		"waves/top/top.yaml": waveConfig("wave-top"),
	}); err != nil {
		t.Fatal(err)
	}
	declare := func(name, folder, rest string) string {
		return strings.NewReplacer("v2.0.1", "main", "path: deploy", "path: waves/"+folder).Replace(
			f.deployment(name, environment, namespace, rest))
	}
	base, top := "tenants/acme/deployments/base.yaml", "tenants/acme/deployments/top.yaml"
	f.commit(t, "two waves", map[string]string{
		base: declare("base", "base", "  wave: -1\n"), top: declare("top", "top", "")})
	eventually(t, "the later wave waits", func() string {
		found := list[view.Application](t, f, "applications", "--deployment", "top")
		if len(found) != 1 {
			return "not there"
		}
		if a := found[0]; a.Apply != mirror.ApplyPending ||
			a.ApplyMessage != "waits for wave -1: base is Progressing" {
			return string(a.Apply) + " " + a.ApplyMessage
		}
		return ""
	})
	if out := f.must(t, "describe", "application", "acme/top@"+environment); !strings.Contains(out,
		"waits for wave -1: base is Progressing") {
		t.Errorf("describe does not name the wave:\n%s", out)
	}
	f.commit(t, "a base that waits for nothing", map[string]string{
		base: declare("base", "ready", "  wave: -1\n")})
	for _, name := range []string{"base", "top"} {
		eventually(t, name+" is Synced and Healthy", func() string {
			found := list[view.Application](t, f, "applications", "--deployment", name)
			if len(found) != 1 || found[0].Sync != mirror.SyncSynced ||
				found[0].Health != mirror.HealthHealthy {
				return fmt.Sprintf("%+v", found)
			}
			return ""
		})
	}
	f.remove(t, "no waves", base, top)
	eventually(t, "the waves are deleted", func() string {
		for _, name := range []string{"base", "top"} {
			if found := list[view.Application](t, f, "applications", "--deployment",
				name); len(found) > 0 {
				return name + " is still there"
			}
		}
		return ""
	})
}
