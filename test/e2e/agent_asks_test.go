package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const yardApp = "acme/yard@yard"

// TestWhatIsAskedOfAnEdgeClusterIsDoneThere is about a SyncRun, actions, a rollback, deletions
// beyond the cluster's own cap, the order of waves, and a network that has gone without a word.
func TestWhatIsAskedOfAnEdgeClusterIsDoneThere(t *testing.T) {
	f := edges.use(t)
	repo := f.Apps["acme/storefront"]
	old, err := repo.Git(t.Context(), "rev-parse", "v2.0.1^{commit}")
	if err != nil {
		t.Fatal(err)
	}
	newer, err := repo.Commit(t.Context(), "for the yard", map[string]string{
		"deploy/config.yaml": motd("yard")})
	if err != nil {
		t.Fatal(err)
	}
	deployments := map[string]string{
		"yard": strings.Replace(f.deployment("yard", "yard", "acme-yard", ""), "v2.0.1", "main", 1)}
	for i := range 3 {
		name := fmt.Sprintf("yard-%d", i)
		deployments[name] = f.deployment(name, "yard", "acme-yard", "  sync: {mode: manual}\n")
	}
	s := f.declareSite(t, "yard", "{argocdNamespace: argocd}", deployments, "acme-yard")
	defer s.leave(t)
	s.join(t)
	eventually(t, "it is synced to the newest commit", f.syncedTo(t, "yard", newer))

	t.Run("a SyncRun that holds", func(t *testing.T) { s.rollsBack(t, old, newer) })
	t.Run("what a person asks of an Application", func(t *testing.T) { s.acts(t, yardApp) })
	t.Run("a person's rollback", func(t *testing.T) { s.isReturned(t, yardApp, old, newer) })
	t.Run("a push", func(t *testing.T) { s.comparesAPush(t) })
	t.Run("deletions beyond the cluster's own cap", func(t *testing.T) { s.holdsDeletions(t) })
	t.Run("a network that has gone without a word", func(t *testing.T) { s.freezes(t) })
	t.Run("waves", func(t *testing.T) {
		s.agent.Stop()
		s.capDeletions(t, 50)
		s.start(t)
		s.ordersWaves(t, "yard", "acme-yard")
	})
}

// rollsBack asks for an older commit by a SyncRun that holds, and goes on by another target.
func (s *site) rollsBack(t *testing.T, old, newer string) {
	name := "yard-back-from-" + newer[:7] // a SyncRun is done once
	run := "tenants/acme/syncs/" + name + ".yaml"
	s.files[run] = "apiVersion: argosy.dev/v1alpha1\nkind: SyncRun\nmetadata: {name: " + name +
		"}\n" +
		"spec: {deployment: yard, environments: [yard], revision: " + old + ", hold: true}\n"
	succeeded := s.syncEnded(t, yardApp)
	s.commit(t, "the yard rolls back", map[string]string{run: s.files[run]})
	eventually(t, "the SyncRun has succeeded", succeeded)
	if got := s.motd(t, "acme-yard"); got != "welcome" {
		t.Errorf("rolled back, and the workload has %q", got)
	}
	if s.automated(t, "yard") {
		t.Error("automation is on while the SyncRun holds it")
	}
	path := "tenants/acme/deployments/yard.yaml"
	s.files[path] = strings.Replace(s.files[path], "targetRevision: main", "targetRevision: "+newer,
		1)
	s.commit(t, "the yard goes on", map[string]string{path: s.files[path]})
	eventually(t, "automation is back, at the new target", func() string {
		if !s.automated(t, "yard") {
			return "automation is off"
		}
		if got := s.motd(t, "acme-yard"); got != "yard" {
			return "the workload has " + got
		}
		return ""
	})
	s.remove(t, "the SyncRun goes", run)
	delete(s.files, run)
}

// acts carries out each action on an Application. Nothing of it runs, so that no sync can be ended.
func (s *site) acts(t *testing.T, app string) {
	t.Helper()
	act := func(want string, arguments ...string) {
		t.Helper()
		out := s.must(t, append(arguments, "--yes", "--wait")...)
		if !strings.Contains(out, want) {
			t.Errorf("argosy %s:\n%s", strings.Join(arguments, " "), out)
		}
	}
	act("", "refresh", app, "--hard") // it fails unless the refresh succeeds
	act("ConfigMap", "sync", app, "--dry-run")
	act("ConfigMap", "sync", app)
	if out, _, code := s.argosy(t, "terminate", app, "--yes", "--wait"); code == 0 {
		t.Errorf("nothing runs, and it was ended:\n%s", out)
	}
	eventually(t, "automation goes on", func() string {
		for _, a := range list[view.Application](t, s.system, "applications", "--tenant", "acme") {
			if a.ID().String() == app && !example.Healthy(a) {
				return fmt.Sprintf("%+v", a)
			}
		}
		return ""
	})
}

// comparesAPush delivers a push with the tenant's secret: the agent has the Application compared.
func (s *site) comparesAPush(t *testing.T) {
	t.Helper()
	path := "tenants/acme/deployments/yard.yaml"
	newer, err := s.Apps["acme/storefront"].Commit(t.Context(), "a push", map[string]string{
		"deploy/config.yaml": motd("pushed")})
	check(t, err)
	s.commit(t, "the yard follows main", map[string]string{hooksFile: s.hookSecret(t),
		path: s.deploymentAt("yard", "yard", "acme-yard", "main")})
	eventually(t, "synced to the push before", s.syncedTo(t, "yard", newer))
	newest, err := s.Apps["acme/storefront"].Commit(t.Context(), "another push", map[string]string{
		"deploy/config.yaml": motd("yard")})
	check(t, err)
	s.delivers(t, "acme", tenantHook, s.Git.URL+"/acme/storefront", "deploy/config.yaml",
		http.StatusAccepted)
	pushed := time.Now()
	eventually(t, "synced to the push", s.syncedTo(t, "yard", newest))
	t.Logf("synced %s after the delivery", time.Since(pushed).Round(100*time.Millisecond))
	for _, o := range s.ours(t, applications) {
		if name := o.GetLabels()["argosy.dev/deployment"]; strings.HasPrefix(
			o.GetAnnotations()[markOfRefresh], "push-") != (name == "yard") {
			t.Errorf("%s has %v", name, o.GetAnnotations())
		}
	}
	s.commit(t, "the yard as it was", map[string]string{path: s.files[path]})
	s.remove(t, "no hook", hooksFile)
}

// isReturned rolls an Application back to a revision with which it was Healthy, and lets automation
// go on.
func (s *site) isReturned(t *testing.T, app, old, newer string) {
	t.Helper()
	path := "tenants/acme/deployments/yard.yaml"
	for _, revision := range []string{old, newer} {
		s.commit(t, "the yard runs "+revision, map[string]string{path: strings.Replace(
			s.files[path], newer, revision, 1)})
		eventually(t, "synced to "+revision, s.syncedTo(t, "yard", revision))
	}
	if shown := s.must(t, "rollback", app, "--list"); !strings.Contains(shown, old) {
		t.Errorf("the healthy revisions:\n%s", shown)
	}
	s.must(t, "rollback", app, "--to", old[:8], "--yes", "--wait", "--note", "the yard is faulty")
	if got := s.motd(t, "acme-yard"); got != "welcome" || s.automated(t, "yard") {
		t.Errorf("rolled back, the workload has %q, automation %v", got, s.automated(t, "yard"))
	}
	if out := s.must(t, "describe", "application", app); !strings.Contains(out,
		"paused by rollback") {
		t.Errorf("describe:\n%s", out)
	}
	s.must(t, "rollback", app, "--end", "--yes", "--wait")
	eventually(t, "automation goes on", func() string {
		if got := s.motd(t, "acme-yard"); got != "yard" || !s.automated(t, "yard") {
			return "the workload has " + got
		}
		return ""
	})
}

// syncEnded returns the state of an Application's sync until it has succeeded. It ignores syncs
// that existed before the call.
func (f *system) syncEnded(t *testing.T, subject string) func() string {
	t.Helper()
	before := map[string]bool{}
	for _, o := range list[mirror.Operation](t, f, "operations") {
		before[o.ID] = true
	}
	return func() string {
		t.Helper()
		for _, o := range list[mirror.Operation](t, f, "operations") {
			if o.Kind == mirror.OperationSync && strings.Contains(o.Subject, subject) &&
				!before[o.ID] {
				if o.State == mirror.OperationSucceeded {
					return ""
				}
				return string(o.State) + ": " + o.Message
			}
		}
		return "no operation"
	}
}

// motd is the message of the storefront in a namespace behind the firewall.
func (s *site) motd(t *testing.T, namespace string) string {
	t.Helper()
	return storefrontMotd(t, s.edge.Cluster, namespace)
}

// storefrontMotd is the message of the storefront in a namespace, or why it cannot be read.
func storefrontMotd(t *testing.T, on *stack.Cluster, namespace string) string {
	t.Helper()
	config, err := on.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), "storefront",
		metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return config.Data["motd"]
}

func (s *site) automated(t *testing.T, deployment string) bool {
	t.Helper()
	for _, o := range s.ours(t, applications) {
		if o.GetLabels()["argosy.dev/deployment"] == deployment {
			spec, _ := o.Object["spec"].(map[string]any)
			policy, _ := spec["syncPolicy"].(map[string]any)
			_, on := policy["automated"]
			return on
		}
	}
	t.Errorf("no Application of %s", deployment)
	return false
}

// holdsDeletions lowers the cap by the Deployment's arguments, as the cluster's admin would, and
// removes more than that.
func (s *site) holdsDeletions(t *testing.T) {
	pods := s.pods(t, "acme-yard")
	s.agent.Stop()
	s.capDeletions(t, 2)
	s.start(t)
	eventually(t, "it is connected again", s.shows(t, upToDate))
	var going []string
	for i := range 3 {
		path := fmt.Sprintf("tenants/acme/deployments/yard-%d.yaml", i)
		going = append(going, path)
		delete(s.files, path)
	}
	s.remove(t, "three at once", going...)
	eventually(t, "they wait for the cluster's admin", s.shows(t, func(a view.Agent) string {
		if a.HeldDeletions != 3 || a.PendingDeletions != 3 {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	if out := s.must(t, "get", "agents"); !strings.Contains(out, "3 (3 held)") {
		t.Errorf("`get agents` does not show what waits:\n%s", out)
	}
	if there := s.ours(t, applications); len(there) != 4 {
		t.Errorf("%d Applications exist while deletions wait", len(there))
	}
	shown, err := s.edge.Run(binary, "agent", "release-deletions")
	digest := regexp.MustCompile(`--digest ([0-9a-f]+)`).FindStringSubmatch(shown)
	if err == nil || digest == nil {
		t.Fatalf("what waits is not shown: %v\n%s", err, shown)
	}
	if out, err := s.edge.Run(binary, "agent", "release-deletions", "--digest",
		digest[1]); err != nil || !strings.Contains(out, "released 3 deletions") {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the released deletions happen", func() string {
		if there := s.ours(t, applications); len(there) != 1 {
			return fmt.Sprintf("%d Applications exist", len(there))
		}
		return ""
	})
	eventually(t, "and nothing waits", s.shows(t, func(a view.Agent) string {
		if a.HeldDeletions+a.PendingDeletions+a.Pending > 0 {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	if now := s.pods(t, "acme-yard"); now != pods {
		t.Errorf("a workload that stays was touched: %s became %s", pods, now)
	}
}

func (s *site) capDeletions(t *testing.T, most int) {
	t.Helper()
	all := s.edge.Cluster.Client().AppsV1().Deployments(agentNamespace)
	d, err := all.Get(t.Context(), agentNamespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	args[slices.Index(args, "--max-deletions")+1] = fmt.Sprint(most)
	if _, err := all.Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awayWithin bounds the time until an agent on a silently broken network is shown as away: three
// missed beats of its stream and one more until the next request for it, twice for a slow machine.
// TCP alone would take 15 minutes.
const awayWithin = 2 * (3*15*time.Second + 15*time.Second)

// freezes holds everything back on the way to the hub, both ways and without an end of any
// connection.
func (s *site) freezes(t *testing.T) {
	began := time.Now()
	s.edge.Hub.Freeze()
	defer s.edge.Hub.Thaw()
	path := "tenants/acme/deployments/yard.yaml"
	s.files[path] += "  sync: {mode: automated, prune: false}\n"
	s.commit(t, "into the silence", map[string]string{path: s.files[path]})
	eventually(t, "the agent is shown as away", s.shows(t, func(a view.Agent) string {
		if a.Connected || a.Pending == 0 {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	}))
	if took := time.Since(began); took > awayWithin {
		t.Errorf("the agent was shown as connected for %s", took)
	}
	s.edge.Hub.Thaw()
	eventually(t, "it comes back, and nothing is lost", s.shows(t, upToDate))
	eventually(t, "it is Healthy", s.healthy(t, yardApp))
}
