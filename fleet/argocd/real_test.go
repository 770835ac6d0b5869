package argocd

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/metering"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/reach"
	"argosy.dev/argosy/test/stack"
)

const realPatience = 8 * time.Minute

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n",
		name, value)
}

const deleteHook = `apiVersion: batch/v1
kind: Job
metadata:
  name: goodbye
  annotations: {argocd.argoproj.io/hook: PostDelete}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/none}]}}
`

// world is an Argo CD of one version, a cluster that it deploys to, and a repository.
type argoLab struct {
	testing.TB
	name    fleet.EngineName
	e       *Engine
	config  *rest.Config
	end     func() // ends the watch
	spec    fleet.EngineSpec
	cluster *stack.Cluster
	argo    *stack.ArgoCD
	git     *stack.GitServer
	repo    *stack.Repo
	spaceA  string
	spaceB  string
	further string // the namespace of the Application made by hand; empty: Argo CD's own
	listed  bool   // its source is the only one of a list
	lease   mirror.Lease
	mu      sync.Mutex
	seen    map[fleet.ObjectKey][]mirror.Observation
	board   *reach.Board
	work    *reach.Work
}

func newArgoLab(t *testing.T, version string) *argoLab {
	t.Helper()
	return newArgoLabWith(t, strings.ReplaceAll(version, ".", "-"), stack.ArgoOptions{
		Version:       version,
		ControllerEnv: []string{"ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION=2s"}})
}

// newArgoLabWith returns a world whose namespaces contain suffix and are new. An open Argo CD is
// dedicated to acme.
func newArgoLabWith(t testing.TB, suffix string, o stack.ArgoOptions) *argoLab {
	t.Helper()
	w := newArgoLabOff(t, suffix, o)
	w.begin()
	return w
}

// newArgoLabOff is newArgoLabWith without the preflight and the watch.
func newArgoLabOff(t testing.TB, suffix string, o stack.ArgoOptions) *argoLab {
	t.Helper()
	ctx := t.Context()
	c := apiServer(t)
	// what an earlier run left stays apart
	suffix = fmt.Sprintf("%s-%d", suffix, shared.spaces.Add(1))
	w := &argoLab{TB: t, cluster: c, spaceA: "shop-" + suffix, spaceB: "cart-" + suffix,
		lease: mirror.Lease{Epoch: 3}, seen: map[fleet.ObjectKey][]mirror.Observation{}}
	if o.InstallationID == "" {
		o.InstallationID = string(testEngine)
	}
	w.name = fleet.EngineName(o.InstallationID)
	o.Cluster, o.Namespace = c, "argocd-"+suffix
	o.Refresh = cmp.Or(o.Refresh, 3*time.Second)
	argo, err := stack.StartArgoCD(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	w.argo = argo
	t.Cleanup(func() {
		if err := argo.Stop(); err != nil {
			t.Error(err)
		}
	})
	if w.git, err = stack.StartGit(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.git.Stop() })
	if w.repo, err = w.git.CreateRepo(ctx, "acme/checkout"); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(argo.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if w.config, err = Kubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	w.spec = engineSpec()
	w.spec.ArgoCD.Namespace, w.spec.ArgoCD.InstallationID = argo.Namespace, o.InstallationID
	for _, namespace := range o.ApplicationNamespaces {
		w.further = namespace
		w.spec.ApplicationNamespaces = append(w.spec.ApplicationNamespaces,
			fleet.ApplicationNamespace{Namespace: namespace, Tenant: acme})
	}
	if o.Open {
		w.spec.DedicatedTo = []fleet.TenantName{acme}
	}
	w.connect()
	return w
}

func (w *argoLab) connect() {
	w.Helper()
	var err error
	w.e, err = Connect(w.name, w.spec, w.config, Options{Window: 20 * time.Millisecond,
		Stopped: func(fleet.TenantName) bool { return false }})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *argoLab) begin() {
	w.Helper()
	report, err := w.e.Preflight(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range report.Findings {
		w.Errorf("preflight of a good instance: %+v", f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.e.Watch(ctx, engine.Sink{Observe: func(all []mirror.Observation) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, o := range all {
				w.seen[o.Key] = append(w.seen[o.Key], o)
			}
		}, Contact: func(all []engine.Contact) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range all {
				if w.work != nil {
					w.work.Observe(time.Now(), c)
				}
				if w.board != nil {
					w.board.Observe(time.Now(), c)
				}
			}
		}})
	}()
	w.end = func() { cancel(); <-ended }
	w.Cleanup(w.end)
	w.until("read completely", w.e.Synced)
}

func (w *argoLab) until(what string, ok func() bool) {
	w.Helper()
	deadline := time.Now().Add(realPatience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("after %s still not: %s; health %v; seen %+v", realPatience, what,
				w.e.Health(), lastOf(w.seen))
		}
		<-tick.C
	}
}

func lastOf(seen map[fleet.ObjectKey][]mirror.Observation) []mirror.Observation {
	var out []mirror.Observation
	for _, all := range seen {
		out = append(out, all[len(all)-1])
	}
	return out
}

// saw waits for an observation of the object, past or future.
func (w *argoLab) observed(what string, key fleet.ObjectKey, ok func(mirror.Observation) bool) {
	w.Helper()
	w.until(what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, o := range w.seen[key] {
			if ok(o) {
				return true
			}
		}
		return false
	})
}

func (w *argoLab) commit(files map[string]string) string {
	w.Helper()
	rev, err := w.repo.Commit(w.Context(), "change", files)
	if err != nil {
		w.Fatal(err)
	}
	return rev
}

func (w *argoLab) value(namespace, name string) (value, uid string) {
	cm, err := w.cluster.Client().CoreV1().ConfigMaps(namespace).Get(w.Context(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", ""
	}
	if err != nil {
		w.Fatal(err)
	}
	return cm.Data["value"], string(cm.UID)
}

func (w *argoLab) row(o fleet.Object, policy fleet.DeletionPolicy) mirror.Row {
	w.Helper()
	o.Key.Engine = w.name
	r := rowFor(w.TB, w.spec, o, 1)
	r.Deletion = policy
	return r
}

// foundation returns the project and the cluster of tenant acme.
func (w *argoLab) foundation(env fleet.EnvironmentID, namespaces ...string) []mirror.Row {
	project := projectObject(env.Tenant)
	key := fleet.ServerKey(w.cluster.Server, env)
	project.Project.SourceRepos, project.Project.Destinations, project.Project.ClusterResources =
		[]string{w.repo.URL}, nil, nil
	project.Project.SourceNamespaces = w.spec.ApplicationNamespacesOf(env.Tenant)
	for _, ns := range namespaces {
		project.Project.Destinations = append(project.Project.Destinations, fleet.Destination{
			Server: key, Namespace: ns})
	}
	cluster := clusterObject(env, w.cluster.Server)
	cluster.Cluster.Namespaces, cluster.Cluster.CAData = namespaces,
		base64.StdEncoding.EncodeToString(w.cluster.CA)
	return []mirror.Row{w.row(project, ""), w.row(cluster, "")}
}

func (w *argoLab) app(id fleet.ApplicationID, path, namespace string, policy fleet.DeletionPolicy,
	change func(*fleet.Application)) mirror.Row {
	o := applicationObject(id, w.cluster.Server)
	o.Application.Sources[0] = fleet.Source{RepoURL: w.repo.URL, Path: path, TargetRevision: "main"}
	o.Application.Destination.Namespace = namespace
	o.Application.Sync = fleet.Sync{Automated: true, Prune: true, SelfHeal: true}
	if change != nil {
		change(o.Application)
	}
	return w.row(o, policy)
}

func (w *argoLab) apply(row mirror.Row, secret fleet.Secret) engine.Outcome {
	w.Helper()
	out, err := w.e.Apply(w.Context(), row, secret, w.lease)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *argoLab) remove(row mirror.Row) {
	w.Helper()
	w.until("removed: "+row.Key.Name, func() bool {
		done, err := w.e.Delete(w.Context(), row, w.lease)
		// the cache may lag behind: workers ask again, too
		if err != nil && !errors.Is(err, engine.ErrInUse) {
			w.Fatal(err)
		}
		return done
	})
}

func synced(o mirror.Observation) bool {
	return o.Sync == mirror.SyncSynced && o.Health == mirror.HealthHealthy
}

func TestRealArgoCD(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			w := newArgoLab(t, version)
			token, err := w.cluster.TenantToken(t.Context(), "acme-"+w.spaceA, w.spaceA, w.spaceB)
			if err != nil {
				t.Fatal(err)
			}
			env := fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}
			credential := fleet.NewSecret(map[string][]byte{"token": []byte(token)})
			first := w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "one"),
				"cart/cm.yaml": configMap("cart", "one"), "cart/job.yaml": deleteHook})
			foundation := w.foundation(env, w.spaceA, w.spaceB)
			for _, row := range foundation {
				w.apply(row, credential)
			}
			w.deploysAndSyncs(first, foundation, credential)
			w.orphansDespiteHooks()
			w.cascadesWithHooks(foundation)
			w.createsNamespaces()
			w.keepsWhatItMayNotList()
			w.servesItsLoad()
			w.showsThatItWorks()
			w.showsWhichShardWorks()
		})
	}
}

// showsThatItWorks: a requested refresh of the probe is answered, except while the
// application-controller hangs, and the probe is no object of ours.
func (w *argoLab) showsThatItWorks() {
	w.Helper()
	ctx := w.Context()
	ask := func() {
		w.Helper()
		if err := w.e.RequestProbe(ctx); err != nil {
			w.Fatal(err)
		}
	}
	answered := func() bool {
		left, err := w.e.Probed(ctx)
		if err != nil {
			w.Fatal(err)
		}
		return left == ""
	}
	for range 2 { // the first one creates it
		ask()
		w.until("the probe is answered", answered)
	}
	w.argo.Controller.Pause()
	ask()
	if answered() {
		w.Error("a stopped application-controller answers")
	}
	w.argo.Controller.Resume()
	late := time.Now()
	w.until("the probe is answered again", func() bool {
		if time.Since(late) > 20*time.Second { // as workers do
			late = time.Now()
			ask()
		}
		return answered()
	})
	for _, live := range w.e.Inventory() {
		if live.Key.Name == engine.ProbeName {
			w.Errorf("the probe counts as %+v", live)
		}
	}
	if err := w.e.RemoveProbe(ctx); err != nil {
		w.Error(err)
	}
	if _, err := w.e.Probed(ctx); !errors.Is(err, engine.ErrNoProbe) {
		w.Errorf("a removed probe is answered: %v", err)
	}
}

// showsWhichShardWorks: each of two application-controllers answers its own probe, and a smaller
// instance has no probe left of a larger one.
func (w *argoLab) showsWhichShardWorks() {
	w.Helper()
	ctx := w.Context()
	size := w.e.size
	defer func() { w.e.size = size }()
	resize := func(shards int) {
		if err := w.argo.Reshard(ctx, shards); err != nil {
			w.Fatal(err)
		}
		w.e.size, w.e.managed = &fleet.InstanceSize{Shards: shards}, true
		w.e.probesKnown.Store(false)
	}
	left := func() string {
		left, err := w.e.Probed(ctx)
		if err != nil {
			w.Fatal(err)
		}
		return left
	}
	ask := func() {
		if err := w.e.RequestProbe(ctx); err != nil {
			w.Fatal(err)
		}
	}
	answers := func() bool {
		late := time.Now()
		ask()
		w.until("all probes are answered", func() bool {
			if time.Since(late) > 20*time.Second {
				late = time.Now()
				ask()
			}
			return left() == ""
		})
		return true
	}
	resize(2)
	answers()
	answers()
	w.argo.Shards[0].Pause()
	ask()
	const second = "Application argosy-probe-1 of shard 1"
	w.until("the first shard answers", func() bool { return left() == second })
	time.Sleep(2 * time.Second)
	if got := left(); got != second {
		w.Errorf("while shard 1 hangs, %q has not answered", got)
	}
	w.argo.Shards[0].Resume()
	answers()
	resize(1)
	answers()
	for _, list := range []string{w.e.places.path(applications, ""), w.e.probeSecretPath("")} {
		var live struct {
			Items []struct{ Metadata liveMetadata }
		}
		if err := w.e.client.do(ctx, request{method: http.MethodGet, path: list,
			accept: metadataListOnly, query: url.Values{"labelSelector": {labelProbe + "=true"}}},
			&live); err != nil {
			w.Fatal(err)
		}
		for _, o := range live.Items {
			if o.Metadata.Name != engine.ProbeName || strings.HasSuffix(list, "secrets") {
				w.Errorf("%s has %s", list, o.Metadata.Name)
			}
		}
	}
	if err := w.e.RemoveProbe(ctx); err != nil {
		w.Error(err)
	}
}

// throughProxy publishes the components to the API server's proxy, the application-controller
// behind a Service and the repo-server as a Pod. It returns the engine as an account with only the
// right to read them, and the endpoints.
func (w *argoLab) throughProxy() (*Engine, map[fleet.Component]fleet.MetricsEndpoint) {
	w.Helper()
	urls := map[fleet.Component]*url.URL{}
	controller, repoServer := w.argo.Metrics()
	for component, address := range map[fleet.Component]string{
		fleet.ApplicationController: controller, fleet.RepoServer: repoServer} {
		u, err := url.Parse(address)
		if err != nil {
			w.Fatal(err)
		}
		urls[component] = u
	}
	in, ip := w.argo.Namespace, ownAddress(w)
	port, err := strconv.Atoi(urls[fleet.ApplicationController].Port())
	if err != nil {
		w.Fatal(err)
	}
	// the repo-server of the tests serves metrics on loopback alone
	relayed := published(w, httputil.NewSingleHostReverseProxy(urls[fleet.RepoServer]))
	pod(w, w.cluster, in, "argocd-application-controller-0", ip)
	pod(w, w.cluster, in, "argocd-repo-server-0", ip)
	service(w, w.cluster, in, "argocd-metrics", behind(in, "argocd-application-controller-0", ip,
		port))
	of := map[fleet.Component]fleet.MetricsEndpoint{
		fleet.ApplicationController: {Service: &fleet.MetricsPort{Name: "argocd-metrics",
			Port: metricsPort}},
		fleet.RepoServer: {Pod: &fleet.MetricsPort{Name: "argocd-repo-server-0", Port: relayed}}}
	e, err := Connect(w.name, w.spec, metricsReader(w, w.cluster, in,
		of[fleet.ApplicationController].Service.String(), of[fleet.RepoServer].Pod.String()),
		Options{Stopped: func(fleet.TenantName) bool { return false }})
	if err != nil {
		w.Fatal(err)
	}
	return e, of
}

// servesItsLoad: the metrics of both components have the families that are read, and the counters
// count what the Applications of this test needed. The first reading is direct, the others lead
// through the API server's proxy.
func (w *argoLab) servesItsLoad() {
	w.Helper()
	controller, repoServer := w.argo.Metrics()
	for component, address := range map[fleet.Component]string{
		fleet.ApplicationController: controller, fleet.RepoServer: repoServer} {
		body, err := metering.Get(w.Context(), address)
		if err != nil {
			w.Fatal(err)
		}
		if _, _, err := metering.Parse(component, body); err != nil {
			w.Errorf("%s: %v", component, err)
		}
		_ = body.Close()
	}
	through, endpoints := w.throughProxy()
	meter := metering.NewMeter()
	read := func() (mirror.Load, metering.Sample) {
		w.Helper()
		var readings []metering.Reading
		for component, from := range endpoints {
			body, err := through.ReadMetrics(w.Context(), from)
			if err != nil {
				w.Fatal(err)
			}
			sample, size, err := metering.Parse(component, body)
			_ = body.Close()
			// the tests' builds of Argo CD may link nothing that reports the controller's process
			if err != nil || component == fleet.RepoServer && (sample.CPU <= 0 ||
				sample.Memory <= 0 || sample.Started <= 0) {
				w.Fatalf("%s serves %d bytes, %+v: %v", component, size, sample, err)
			}
			readings = append(readings, metering.Reading{Component: component,
				Endpoint: from.String(), Sample: sample})
		}
		last := slices.IndexFunc(readings, func(r metering.Reading) bool {
			return r.Component == fleet.ApplicationController
		})
		return meter.Add(time.Now(), readings), readings[last].Sample
	}
	_, first := read()
	if n := len(first.Compared); n < 2 || first.Compared[n-1].Count == 0 || first.WaitCount == 0 {
		w.Fatalf("the application-controller serves %+v", first)
	}
	if err := w.e.RequestProbe(w.Context()); err != nil {
		w.Fatal(err)
	}
	var load mirror.Load
	w.until("the refresh of the probe leaves the queue", func() bool {
		var now metering.Sample
		load, now = read()
		return now.WaitCount > first.WaitCount
	})
	// an idle repo-server uses no CPU between two readings
	if !load.Fresh(time.Now()) || load.RepoServer == nil || load.RepoServer.Processes != 1 ||
		load.RepoServer.Memory < 1<<20 {
		w.Errorf("the load is %+v of %+v", load.Controller, load)
	}
}

// deploysAndSyncs: Argo CD reports status and causes no drift; a SyncRun goes back to a revision,
// held or automated; and a deletion deletes the workload.
func (w *argoLab) deploysAndSyncs(first string, foundation []mirror.Row, credential fleet.Secret) {
	w.Helper()
	id := fleet.ApplicationID{Tenant: acme, Deployment: "shop", Environment: "prod-eu"}
	app := w.app(id, "shop", w.spaceA, fleet.DeletionDelete, nil)
	w.apply(app, fleet.Secret{})
	w.observed("Synced and Healthy at the first commit", app.Key, func(o mirror.Observation) bool {
		return synced(o) && o.SyncedRevision == first && o.Resources == 1
	})
	second := w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "two")})
	w.refresh(app.Key.Name)
	w.observed("Synced at the second commit", app.Key, func(o mirror.Observation) bool {
		return synced(o) && o.SyncedRevision == second
	})
	for _, row := range append(foundation, app) {
		if out := w.apply(row, credential); out.Changed {
			w.Errorf("Argo CD's own work on %s is taken for a drift", row.Key.Name)
		}
	}

	held := w.app(id, "shop", w.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Hold = "rollback"
	})
	w.apply(held, fleet.Secret{})
	w.sync(app, "rollback-1", first, "Succeeded")
	if got, _ := w.value(w.spaceA, "shop"); got != "one" {
		w.Errorf("after the rollback the workload has %q", got)
	}
	w.apply(app, fleet.Secret{})
	w.until("automation continues when the hold ends", func() bool {
		got, _ := w.value(w.spaceA, "shop")
		return got == "two"
	})
	w.sync(app, "automated-1", second, "Succeeded")

	w.remove(app)
	if got, _ := w.value(w.spaceA, "shop"); got != "" {
		w.Error("the Application is deleted and its workload remains")
	}
}

// refresh makes Argo CD fetch from Git for an Application, like a webhook. Its name has its
// namespace and "/" before it if that is not Argo CD's own.
func (w *argoLab) refresh(object string) {
	w.Helper()
	patch := []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`)
	namespace, name := fleet.SplitObject(object)
	if _, err := w.applicationsIn(namespace).Patch(w.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "webhook"}); err != nil {
		w.Fatal(err)
	}
}

// settles waits until Argo CD has nothing left to do for a synced Application. A comparison soon
// after a sync may not see yet what the sync made: Argo CD then heals it with a second one.
func (w *argoLab) settles(object string) {
	w.Helper()
	w.refresh(object)
	namespace, name := fleet.SplitObject(object)
	w.until("Argo CD has compared "+object+" and has nothing to do", func() bool {
		app, err := w.applicationsIn(namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		_, refreshing := app.GetAnnotations()["argocd.argoproj.io/refresh"]
		phase, _, _ := unstructured.NestedString(app.Object, "status", "operationState", "phase")
		state, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		return !refreshing && app.Object["operation"] == nil && phase == "Succeeded" &&
			state == "Synced"
	})
}

func (w *argoLab) sync(row mirror.Row, id, revision, phase string) {
	w.Helper()
	if got := w.syncEnds(row, id, revision); got != phase {
		w.Fatalf("sync %s has %s, not %s", id, got, phase)
	}
}

// syncEnds requests a sync, and returns the phase in which it ends.
func (w *argoLab) syncEnds(row mirror.Row, id, revision string) (phase string) {
	w.Helper()
	w.until("asked for "+id, func() bool {
		out, err := w.e.Sync(w.Context(), engine.SyncRequest{Key: row.Key, Tenant: row.Tenant,
			ID: id, Revision: revision}, w.lease)
		if err != nil {
			w.Fatal(err)
		}
		return out.State == mirror.ApplyApplied
	})
	w.observed("result of "+id, row.Key, func(o mirror.Observation) bool {
		phase = o.OperationPhase
		return o.OperationID == id && slices.Contains([]string{"Succeeded", "Failed", "Error"},
			phase)
	})
	return phase
}

// orphansDespiteHooks: with Orphan the workload stays and no delete hook runs, although Argo CD
// has set its finalizers.
func (w *argoLab) orphansDespiteHooks() {
	w.Helper()
	app := w.cart(fleet.DeletionOrphan)
	_, uid := w.value(w.spaceB, "cart")
	w.remove(app)
	if _, got := w.value(w.spaceB, "cart"); got != uid || uid == "" {
		w.Errorf("the orphaned workload is another one: %q, was %q", got, uid)
	}
	jobs, err := w.cluster.Client().BatchV1().Jobs(w.spaceB).List(w.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 0 {
		w.Errorf("a delete hook ran: %d jobs, %v", len(jobs.Items), err)
	}
}

// cart deploys the Application with a PostDelete hook and waits until Argo CD has set its
// finalizer.
func (w *argoLab) cart(policy fleet.DeletionPolicy) mirror.Row {
	w.Helper()
	app := w.app(fleet.ApplicationID{Tenant: acme, Deployment: "cart", Environment: "prod-eu"},
		"cart", w.spaceB, policy, nil)
	w.apply(app, fleet.Secret{})
	w.until("the hook's finalizer is set", func() bool {
		known := w.e.cache.get(app.Key)
		got, _ := w.value(w.spaceB, "cart")
		return known != nil && strings.Contains(strings.Join(known.finalizers, " "),
			"post-delete-finalizer") && got == "one"
	})
	if out := w.apply(app, fleet.Secret{}); out.Changed {
		w.Error("Argo CD's finalizer for delete hooks is taken for a drift")
	}
	return app
}

// cascadesWithHooks: with Delete the hook runs, the workload is deleted, then the Application; the
// cluster and the project stay until then.
func (w *argoLab) cascadesWithHooks(foundation []mirror.Row) {
	w.Helper()
	app := w.cart(fleet.DeletionDelete)
	if done, err := w.e.Delete(w.Context(), app, w.lease); done || err != nil {
		w.Fatalf("delete: %v, %v", done, err)
	}
	for _, row := range foundation {
		if _, err := w.e.Delete(w.Context(), row, w.lease); err == nil &&
			w.e.cache.get(app.Key) != nil {
			w.Errorf("%s went before the Application", row.Key.Kind)
		}
	}
	w.remove(app)
	if got, _ := w.value(w.spaceB, "cart"); got != "" {
		w.Error("the Application is deleted and its workload remains")
	}
	for i := len(foundation) - 1; i >= 0; i-- {
		w.remove(foundation[i])
	}
}

// createsNamespaces: CreateNamespace works if the project grants the kind Namespace, and only then;
// the message of a sync that Argo CD keeps retrying is reported.
func (w *argoLab) createsNamespaces() {
	w.Helper()
	env, fresh := fleet.EnvironmentID{Tenant: "globex", Name: "own"}, w.spaceA+"-fresh"
	kubeconfig, err := os.ReadFile(w.cluster.Kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	rows := w.foundation(env, fresh)
	for _, row := range rows {
		w.apply(row, fleet.NewSecret(map[string][]byte{"kubeconfig": kubeconfig}))
	}
	id := fleet.ApplicationID{Tenant: env.Tenant, Deployment: "fresh", Environment: env.Name}
	app := w.app(id, "shop", fresh, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Sync = fleet.Sync{CreateNamespace: true}
	})
	w.apply(app, fleet.Secret{})
	w.observed("compared with its project and its cluster", app.Key,
		func(o mirror.Observation) bool { return o.Sync == mirror.SyncOutOfSync })
	w.sync(app, "refused", "main", "Failed")
	w.observed("reason reported", app.Key, func(o mirror.Observation) bool {
		return o.OperationID == "refused" && strings.Contains(o.OperationError,
			":Namespace is not permitted in project ") && strings.Contains(o.OperationError,
			"not valid")
	})

	o := projectObject(env.Tenant)
	o.Project.SourceRepos, o.Project.ClusterResources = []string{w.repo.URL}, []fleet.GroupKind{
		{Kind: "Namespace"}}
	o.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, env), Namespace: fresh}}
	w.apply(w.row(o, ""), fleet.Secret{})
	attempts := 0
	w.until("Argo CD has read the project, and syncs", func() bool {
		attempts++
		return w.syncEnds(app, fmt.Sprintf("granted-%d", attempts), "main") == "Succeeded"
	})
	if got, _ := w.value(fresh, "shop"); got == "" {
		w.Error("the sync succeeded and nothing exists in the new namespace")
	}
	w.remove(app)
}
