package argocd

import (
	"encoding/base64"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/reach"
	"argosy.dev/argosy/test/stack"
)

// gate accepts connections and stays silent until it is opened: then it forwards to the API server.
type gate struct {
	listener net.Listener
	server   string // the forwarding target
	open     chan struct{}
	ended    chan struct{}
}

func startGate(t testing.TB, server string) *gate {
	t.Helper()
	behind, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, server: behind.Host, open: make(chan struct{}),
		ended: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.pass(conn) })
		}
	})
	t.Cleanup(func() { close(g.ended); _ = listener.Close(); all.Wait() })
	return g
}

func (g *gate) url() string { return "https://" + g.listener.Addr().String() }

func (g *gate) pass(conn net.Conn) {
	defer conn.Close()
	select {
	case <-g.ended:
		return
	case <-g.open:
	}
	var dialer net.Dialer
	behind, err := dialer.Dial("tcp", g.server)
	if err != nil {
		return
	}
	defer behind.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, behind}, {behind, conn}} {
		go func() { _, _ = io.Copy(way[0], way[1]); done <- struct{}{} }()
	}
	select {
	case <-g.ended:
	case <-done:
	}
}

// watchReach decides every half second which Applications to park, like a worker.
func (w *argoLab) watchReach(limits reach.Limits) {
	w.mu.Lock()
	w.board = reach.New(limits, func(d time.Duration) time.Duration { return d })
	w.mu.Unlock()
	for _, live := range w.e.Inventory() {
		if live.Key.Kind == fleet.ObjectApplication {
			w.board.Observe(time.Now(), w.e.cache.get(live.Key).contact)
		}
	}
	ended, over := make(chan struct{}), make(chan struct{})
	w.Cleanup(func() { close(over); <-ended })
	ctx := w.Context()
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			w.mu.Lock()
			requests := w.board.Decide(time.Now(), 1000)
			w.mu.Unlock()
			for _, r := range requests {
				if err := w.e.Park(ctx, r, w.lease); err != nil && ctx.Err() == nil {
					w.Errorf("park %s: %v", r.Key.Name, err)
				}
			}
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	}()
}

// parked counts the parked Applications of an environment on the API server.
func (w *argoLab) parked(env fleet.EnvironmentID) (n int) {
	w.Helper()
	all, err := w.applications().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range all.Items {
		l, marks := a.GetLabels(), a.GetAnnotations()
		if l[labelTenant] == string(env.Tenant) && l[labelEnvironment] == string(env.Name) &&
			marks[annotationParked] != "" && marks[annotationSkipReconcile] == "true" {
			n++
		}
	}
	return n
}

func (w *argoLab) comparedAt(key fleet.ObjectKey) string {
	w.Helper()
	app, err := w.applications().Get(w.Context(), key.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	at, _, _ := unstructured.NestedString(app.Object, "status", "reconciledAt")
	return at
}

// A cluster accepts connections and does not respond until later. Its errors are recognized, Argo
// CD ignores its Applications until the cluster answers again, and then continues with them,
// including deletions.
func TestAnUnresponsiveClusterIsParkedAndRecovers(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			w := newArgoLabWith(t, "quiet-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{
					Version: version, ControllerEnv: []string{
						"ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION=2s"},
				})
			w.recovers()
		})
	}
}

func (w *argoLab) recovers() {
	w.commit(map[string]string{"n0/cm.yaml": configMap("n0", "v"),
		"q0/cm.yaml": configMap("q0", "v"), "q1/cm.yaml": configMap("q1", "v")})
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA, w.spaceB)
	if err != nil {
		w.Fatal(err)
	}
	secret := fleet.NewSecret(map[string][]byte{"token": []byte(token)})
	for _, row := range w.foundation(prodEU, w.spaceA) {
		w.apply(row, secret)
	}
	neighbour := w.app(fleet.ApplicationID{Tenant: acme, Deployment: "n0",
		Environment: prodEU.Name}, "n0", w.spaceA, fleet.DeletionOrphan, nil)
	w.apply(neighbour, fleet.Secret{})
	w.observed("the neighbour is synced", neighbour.Key, synced)

	const other fleet.TenantName = "globex"
	env, g := fleet.EnvironmentID{Tenant: other, Name: "quiet"}, startGate(w.TB, w.cluster.Server)
	project, cluster := projectObject(other), clusterObject(env, g.url())
	server := fleet.ServerKey(g.url(), env)
	project.Project.SourceRepos, project.Project.ClusterResources = []string{w.repo.URL}, nil
	project.Project.Destinations = []fleet.Destination{{Server: server, Namespace: w.spaceB}}
	cluster.Cluster.Namespaces, cluster.Cluster.CAData = []string{w.spaceB},
		base64.StdEncoding.EncodeToString(w.cluster.CA)
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(w.row(cluster, ""), secret)
	quiet := func(name, revision string, policy fleet.DeletionPolicy) mirror.Row {
		id := fleet.ApplicationID{Tenant: other, Deployment: fleet.DeploymentName(name),
			Environment: env.Name}
		return w.app(id, name, w.spaceB, policy, func(a *fleet.Application) {
			a.Destination.Server, a.Sources[0].TargetRevision = server, revision
		})
	}
	kept, deleted := quiet("q0", "main", fleet.DeletionOrphan),
		quiet("q1", "main", fleet.DeletionDelete)
	w.watchReach(reach.Limits{
		Patience: 3 * time.Second, Relapse: time.Hour, ProbeFirst: 5 * time.Second,
		ProbeMost: 5 * time.Second, ProbeTime: 30 * time.Second,
		ProbeSoon: time.Second, OfTenant: 1, OfEngine: 1, Grace: 2, Share: 1, Least: 20,
	})
	w.apply(kept, fleet.Secret{})
	w.apply(deleted, fleet.Secret{})
	w.until("its Applications are parked", func() bool { return w.parked(env) == 2 })
	if c := w.e.cache.get(kept.Key).contact; c.Reason != mirror.UnreachableTimeout {
		w.Errorf("the reason is %s: %s", c.Reason, c.Message)
	} else {
		w.Logf("Argo CD reports: %s", c.Message)
	}
	if n := w.parked(prodEU); n > 0 {
		w.Errorf("%d Applications of the neighbour are parked", n)
	}
	// The probe fails; then the parked Applications are left alone while the neighbour's continue.
	w.until("a probe", func() bool { return w.parked(env) == 1 })
	w.until("it fails", func() bool { return w.parked(env) == 2 })
	changed := quiet("q0", "v-next", fleet.DeletionOrphan)
	w.apply(changed, fleet.Secret{})
	deleted.Unwanted = true
	if done, err := w.e.Delete(w.Context(), deleted, w.lease); done || err != nil {
		w.Fatalf("a deletion that waits: done %t, %v", done, err)
	}
	was := w.comparedAt(neighbour.Key)
	w.until("the neighbour is compared", func() bool { return w.comparedAt(neighbour.Key) != was })
	for _, key := range []fleet.ObjectKey{kept.Key, deleted.Key} {
		if live, ok := w.e.Live(key); !ok || live.Drifted {
			w.Errorf("known as %+v, %t", live, ok)
		}
	}
	w.apply(kept, fleet.Secret{}) // back to an existing revision
	close(g.open)
	w.observed("it is synced, once its cluster answers", kept.Key, synced)
	w.until("nothing is parked any more", func() bool { return w.parked(env) == 0 })
	w.until("the deletion has ended", func() bool { return w.e.cache.get(deleted.Key) == nil })
	if got, _ := w.value(w.spaceB, "q0"); got != "v" {
		w.Errorf("ConfigMap q0 has %q", got)
	}
	if got, _ := w.value(w.spaceB, "q1"); got != "" {
		w.Errorf("ConfigMap q1, whose Application was deleted, has %q", got)
	}
}
