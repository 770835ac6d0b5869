package argocd

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
)

// Argo CD's own rules decide: during a freeze it syncs no Application of the environment by itself,
// a person's sync passes, and no other environment waits.
func TestAFreezeIsADenyWindowOfExactlyItsEnvironments(t *testing.T) {
	staging := fleet.EnvironmentID{Tenant: acme, Name: "staging"}
	o := projectObject(acme)
	o.Project.Freezes = []fleet.FreezeWindow{{Schedule: "* * * * *",
		Duration: fleet.Duration(time.Hour), TimeZone: "Europe/Berlin",
		Clusters: []fleet.Destination{{Server: fleet.ServerKey(exampleServer, prodEU)}}}}
	m, err := (Renderer{}).Render(engineSpec(), o)
	if err != nil {
		t.Fatal(err)
	}
	var project v1alpha1.AppProject
	if err := json.Unmarshal(m.Body, &project); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		server string
		manual bool
		want   bool
	}{
		{fleet.ServerKey(exampleServer, prodEU), false, false},
		{fleet.ServerKey(exampleServer, prodEU), true, true},
		{fleet.ServerKey(exampleServer, staging), false, true},
		{exampleServer, false, true},
	} {
		app := &v1alpha1.Application{Spec: v1alpha1.ApplicationSpec{
			Destination: v1alpha1.ApplicationDestination{Server: c.server}}}
		can, err := project.Spec.SyncWindows.Matches(app).CanSync(c.manual)
		if err != nil || can != c.want {
			t.Errorf("%s, manual %v: %v, %v", c.server, c.manual, can, err)
		}
	}
}

func TestAFreezeThatArgoCDRejectsIsNotRendered(t *testing.T) {
	for name, w := range map[string]fleet.FreezeWindow{
		"schedule": {Schedule: "0 0", Duration: fleet.Duration(time.Hour)},
		"pattern": {Schedule: "0 0 * * *", Duration: fleet.Duration(time.Hour),
			Clusters: []fleet.Destination{{Server: "https://*.example.com:6443"}}},
	} {
		o := projectObject(acme)
		o.Project.Freezes = []fleet.FreezeWindow{w}
		if _, err := (Renderer{}).Render(engineSpec(), o); err == nil ||
			!strings.Contains(err.Error(), "syncWindows") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
