package argocd

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/stack"
)

// Writes reach the cluster while the watches of Argo CD's own controller are interrupted: the
// controller resumes them, and lists again if necessary.
func TestArgoCDMissesNothingWhileItsWatchesAreCut(t *testing.T) {
	const apps = 24
	proxy, err := stack.StartProxy(apiServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	w := newArgoLabWith(t, "cut", stack.ArgoOptions{Version: "3.5", Via: proxy})
	token, err := w.cluster.TenantToken(t.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		t.Fatal(err)
	}
	env := fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}
	for _, row := range w.foundation(env, w.spaceA) {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	files := map[string]string{}
	for i := range apps {
		for _, v := range []string{"one", "two"} {
			files[fmt.Sprintf("%s-%d/cm.yaml", v, i)] = configMap(fmt.Sprintf("cm-%d", i), v)
		}
	}
	w.commit(files)
	write := func(v string) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { // interrupts during the writes, and a little longer
			defer close(stopped)
			for {
				proxy.Cut()
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		var all sync.WaitGroup
		for i := range apps {
			id := fleet.ApplicationID{
				Tenant: acme, Deployment: fleet.DeploymentName(fmt.Sprintf("d-%d", i)),
				Environment: env.Name}
			row := w.app(id, fmt.Sprintf("%s-%d", v, i), w.spaceA, fleet.DeletionDelete, nil)
			all.Go(func() {
				if _, err := w.e.Apply(t.Context(), row, fleet.Secret{}, w.lease); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		close(stop)
		<-stopped
	}
	watches := proxy.Count("GET", "applications", "watch=true")
	for _, v := range []string{"one", "two"} {
		write(v)
		for i := range apps {
			w.until(fmt.Sprintf("ConfigMap %d has %s", i, v), func() bool {
				got, _ := w.value(w.spaceA, fmt.Sprintf("cm-%d", i))
				return got == v
			})
		}
	}
	if n := proxy.Count("GET", "applications", "watch=true") - watches; n < 2 {
		t.Errorf("%d watches were reopened: nothing was cut", n)
	}
}
