package e2e

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var environmentsToRoll = flag.Int("rollout.environments", 0,
	"how many environments of push engines and of two agents a rollout has, at least 12")

// rollingWaves are the waves of the environments by their number modulo 8.
var rollingWaves = []string{"canary", "early", "early", "late", "late", "late", "rest", "rest"}

// ward is one environment of the rollout, and the cluster that its Application deploys to.
type ward struct {
	name, wave, namespace, region string
	cluster                       *stack.Cluster
	bad                           bool // the revision gets Degraded there
}

// A revision goes in four waves to environments of two push engines, of an engine behind an agent
// and of an environment's own agent. It gets Degraded in the second wave, in one environment of a
// push engine and in one behind an agent: the later waves never see it, and the first two are back.
// The next revision reaches all. The test prints how long each takes.
func TestARevisionThatGetsDegradedInTheSecondOfManyWaves(t *testing.T) {
	if *environmentsToRoll == 0 {
		t.Skip("make load-rollout runs it: 30 environments take 10 minutes")
	}
	f := edges.use(t)
	f.allHealthy(t)
	second, err := f.StartEdge(t.Context(), example.Options{Dir: filepath.Join(f.Dir, "second"),
		Refresh: 3 * time.Second, Progress: t.Logf})
	check(t, err)
	defer func() { check(t, second.Stop()) }()
	second.Hub.Add(strings.TrimPrefix(f.plane.URL, "http://"))

	plant := &site{system: f, edge: f.Edge, name: "plant-1", engine: "plant-1"}
	own := &site{system: f, edge: second, name: "acme/ward-own", engine: "acme.ward-own"}
	wards := f.wards(t, *environmentsToRoll, second)
	files, ids := f.declareWards(t, wards)
	restore := map[string]string{guardsFile: looserGuards(guardsFile, f.exampleFile(t, guardsFile)),
		"fleet/tenants/acme.yaml": f.exampleFile(t, "fleet/tenants/acme.yaml")}
	f.commit(t, "an engine behind a firewall", map[string]string{plantEngine: plantFile})
	f.commit(t, "many environments", files)
	plant.join(t)
	defer func() { plant.agent.Stop(); plant.clear(t) }()
	own.join(t)
	defer func() { own.agent.Stop() }()
	good := f.pushRolling(t, "one", "restartPolicy: Always")
	began := time.Now()
	f.commit(t, "rolling", map[string]string{rollingFile: f.rollingWards(wards, good)})
	f.awaitsHealthy(t, ids...)
	t.Logf("%d environments are Healthy with the first revision after %s", len(wards),
		time.Since(began).Round(time.Second))
	f.rollout(t, mirror.RolloutDone)

	bad := f.pushRolling(t, "two", "priorityClassName: none-of-this-name")
	watch := watchWards(t, f, second)
	defer watch.stop() // before the clusters
	began = time.Now()
	f.commit(t, "a change that two wards do not run",
		map[string]string{rollingFile: f.rollingWards(wards, bad)})
	r := f.rolled(t, mirror.RolloutReturned, bad)
	t.Logf("returned %s after the push:\n%s", time.Since(began).Round(time.Second), timeline(r))
	for _, w := range wards {
		if w.bad && !strings.Contains(r.Message, w.name+" (Degraded") &&
			!strings.Contains(fmt.Sprint(r.Members), "Degraded") {
			t.Errorf("no message names %s as Degraded: %s", w.name, r.Message)
		}
	}
	f.awaitsHealthy(t, ids...)
	t.Logf("all are Healthy again %s after the push", time.Since(began).Round(time.Second))
	for _, w := range wards {
		had := watch.seen("rolling@" + w.name)
		workload := watch.seen("workload of " + w.namespace)
		switch later := w.wave == "late" || w.wave == "rest"; {
		case later && (had[bad] || workload["two"]):
			t.Errorf("%s of wave %s has seen the revision", w.name, w.wave)
		case !later && !had[bad]:
			t.Errorf("%s of wave %s has never had the revision: %v", w.name, w.wave, had)
		case !later && !w.bad && !workload["two"]:
			t.Errorf("the workload of %s never had the revision: %v", w.name, workload)
		case !had[good] || !workload["one"]:
			t.Errorf("the watch has not seen the state before of %s: %v %v", w.name, had, workload)
		}
		if now := watch.last("rolling@" + w.name); now != good {
			t.Errorf("%s has revision %s, not the last good one", w.name, now)
		}
		if now := watch.last("workload of " + w.namespace); now != "one" {
			t.Errorf("the workload of %s is %q, not that of before", w.name, now)
		}
	}
	t.Log(f.must(t, "get", "rollouts", "--deployment", "rolling"))
	t.Log(f.must(t, "describe", "rollout", "acme/rolling"))

	better := f.pushRolling(t, "three", "restartPolicy: Always")
	began = time.Now()
	f.commit(t, "a change that runs everywhere",
		map[string]string{rollingFile: f.rollingWards(wards, better)})
	r = f.rolled(t, mirror.RolloutDone, better)
	t.Logf("done %s after the push:\n%s", time.Since(began).Round(time.Second), timeline(r))
	f.awaitsHealthy(t, ids...)

	f.must(t, "release", string(f.remove(t, "rolling goes", rollingFile)))
	f.allHealthy(t)
	var paths []string
	for path := range files {
		if restore[path] == "" {
			paths = append(paths, path)
		}
	}
	f.remove(t, "the environments go", paths...)
	eventually(t, "nothing of the agents' engines is left", func() string {
		return plant.bare(t, applications, projects, secrets)() +
			own.bare(t, applications, projects, secrets)()
	})
	f.commit(t, "as before", restore)
	f.remove(t, "the engine goes", plantEngine)
	f.allHealthy(t)
}

const plantFile = `apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata: {name: plant-1}
spec:
  argocd: {namespace: argocd, installationID: edge}
  connection: {agent: {}}
  region: plant
  capacity: {applications: 100, environments: 100}
`

// wards returns n environments: every fifth one behind the agent of plant-1, one with an agent of
// its own, and the others on the push engines in turn.
func (f *system) wards(t *testing.T, n int, own *example.Edge) (all []ward) {
	t.Helper()
	for i := range n {
		w := ward{name: fmt.Sprintf("ward-%02d", i), wave: rollingWaves[i%len(rollingWaves)]}
		w.namespace = "acme-" + w.name
		switch {
		case i == 1:
			w.name, w.region, w.cluster = "ward-own", "eu", own.Cluster
			w.namespace = "acme-ward-own"
		case i%5 == 0:
			w.region, w.cluster = "plant", f.Edge.Cluster
		case i%5%2 == 0:
			w.region, w.cluster = "us", f.Place("us-1").Cluster
		default:
			w.region, w.cluster = "eu", f.Place("eu-1").Cluster
		}
		w.bad = i == 9 || i == 10 // of wave early, by push and behind an agent
		all = append(all, w)
	}
	return all
}

// declareWards returns the files of the environments, and the Applications of their deployment.
func (f *system) declareWards(t *testing.T, wards []ward) (files map[string]string, ids []string) {
	t.Helper()
	const grant, fifty = "fleet/tenants/acme.yaml", "environments: 100"
	files = map[string]string{grant: strings.NewReplacer("regions: [eu]",
		"regions: [eu, us, plant]", "environments: 20", fifty, "  clusters:\n",
		fmt.Sprintf("  clusters:\n    - %s\n    - %s\n", f.Place("us-1").Cluster.Server,
			f.Edge.Cluster.Server)).Replace(f.exampleFile(t, grant))}
	for _, w := range wards {
		ids = append(ids, "acme/rolling@"+w.name)
		spec := fmt.Sprintf("  agent: {argocdNamespace: argocd}\n  region: %s\n", w.region)
		if w.name == "ward-own" {
			check(t, w.cluster.CreateNamespace(t.Context(), w.namespace))
		} else {
			token, err := w.cluster.TenantToken(t.Context(), "acme-"+w.name, w.namespace)
			check(t, err)
			check(t, f.WriteSecret("acme", w.name, "token", token))
			spec = fmt.Sprintf("  cluster: {server: %q, caData: %s, credentialsRef: {name: %s}}\n"+
				"  region: %s\n", w.cluster.Server,
				base64.StdEncoding.EncodeToString(w.cluster.CA), w.name, w.region)
		}
		files["tenants/acme/environments/"+w.name+".yaml"] = fmt.Sprintf(
			"apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\n"+
				"metadata: {name: %s, labels: {tier: dev, wave: %s}}\nspec:\n%s  namespaces: [%s]\n",
			w.name, w.wave, spec, w.namespace)
	}
	return files, ids
}

// rollingWards is the deployment of a revision to all of them.
func (f *system) rollingWards(wards []ward, revision string) string {
	var names, overrides []string
	for _, w := range wards {
		names = append(names, w.name)
		source := ""
		if w.bad {
			source = ", source: {path: rolling/prod}"
		}
		overrides = append(overrides, fmt.Sprintf("    - {environment: %s, namespace: %s%s}\n",
			w.name, w.namespace, source))
	}
	return strings.NewReplacer("v2.0.1", revision, "path: deploy", "path: rolling/base").Replace(
		f.deployment("rolling", strings.Join(names, ", "), wards[0].namespace, "  overrides:\n"+
			strings.Join(overrides, "")+`  rollout:
    patience: 1s
    timeout: 5m
    waves:
      - {name: canary, environmentSelector: {matchLabels: {wave: canary}}, soak: 2s}
      - {name: early, environmentSelector: {matchLabels: {wave: early}}, soak: 2s}
      - {name: late, environmentSelector: {matchLabels: {wave: late}}, soak: 2s}
`))
}

// rolled waits until the rollout of a revision of the application repository has a state.
func (f *system) rolled(t *testing.T, state mirror.RolloutState, commit string) (
	r mirror.Rollout) {
	t.Helper()
	head, err := f.Config.Head(t.Context(), "main")
	check(t, err)
	eventually(t, "the rollout of "+commit[:8]+" is "+string(state), func() string {
		all := list[mirror.Rollout](t, f, "rollouts", "--deployment", "rolling")
		if len(all) == 0 || all[0].Revision != fleet.Revision(head) {
			return "there is none"
		}
		if r = all[0]; r.State != state {
			return fmt.Sprintf("%s %s %+v", r.State, r.Message, r.Waves)
		}
		return ""
	})
	return r
}

// timeline has a line for each wave: its members, and when they reached their states, in seconds
// from the begin of the rollout.
func timeline(r mirror.Rollout) string {
	var b strings.Builder
	at := func(x time.Time) float64 { return x.Sub(r.BegunAt).Seconds() }
	for i, w := range r.Waves {
		n, first, last := 0, time.Time{}, time.Time{}
		for _, m := range r.Members {
			if m.Wave != i {
				continue
			}
			n++
			if first.IsZero() || m.Since.Before(first) {
				first = m.Since
			}
			if m.Since.After(last) {
				last = m.Since
			}
		}
		fmt.Fprintf(&b, "  wave %d %s: %d environments, %s at %.1f s, members at %.1f to %.1f s\n",
			i+1, w.Name, n, w.State, at(w.Since), at(first), at(last))
	}
	fmt.Fprintf(&b, "  %s at %.1f s: %s\n", r.State, at(r.Since), r.Message)
	return b.String()
}

// wardWatch has every revision that an Application or a workload has had since it began.
type wardWatch struct {
	stop   func()
	mu     sync.Mutex
	values map[string][]string // in their order
}

// watchWards watches the Applications and Deployments of all clusters until it is stopped. A watch
// that ends earlier fails the test: it could have missed something.
func watchWards(t *testing.T, f *system, second *example.Edge) *wardWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	w := &wardWatch{values: map[string][]string{}, stop: func() { cancel(); all.Wait() }}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}
	of := map[schema.GroupVersionResource]func(*unstructured.Unstructured) (key, value string){
		applications: func(o *unstructured.Unstructured) (string, string) {
			value, _, _ := nestedString(o, "spec", "source", "targetRevision")
			return o.GetLabels()["argosy.dev/deployment"] + "@" +
				o.GetLabels()["argosy.dev/environment"], value
		},
		deployments: func(o *unstructured.Unstructured) (string, string) {
			return "workload of " + o.GetNamespace(), o.GetLabels()["version"]
		},
	}
	for _, c := range []*stack.Cluster{f.Place("eu-1").Cluster, f.Place("us-1").Cluster,
		f.Edge.Cluster, second.Cluster} {
		for resource, read := range of {
			objects := c.Dynamic().Resource(resource)
			listed, err := objects.List(ctx, metav1.ListOptions{})
			check(t, err)
			for i := range listed.Items {
				w.add(read(&listed.Items[i]))
			}
			all.Go(func() {
				w.follow(ctx, t, objects, listed.GetResourceVersion(), read)
			})
		}
	}
	return w
}

func (w *wardWatch) follow(ctx context.Context, t *testing.T,
	objects dynamic.NamespaceableResourceInterface, from string,
	read func(*unstructured.Unstructured) (string, string)) {
	events, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Errorf("watch: %v", err)
		return
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok && ctx.Err() == nil {
			t.Errorf("watch: %+v", e.Object)
		}
		if !ok {
			return
		}
		w.add(read(o))
	}
	if ctx.Err() == nil {
		t.Error("a watch has ended before the test")
	}
}

func (w *wardWatch) add(key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if had := w.values[key]; len(had) == 0 || had[len(had)-1] != value {
		w.values[key] = append(had, value)
	}
}

func (w *wardWatch) seen(key string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := map[string]bool{}
	for _, value := range w.values[key] {
		had[value] = true
	}
	return had
}

func (w *wardWatch) last(key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if had := w.values[key]; len(had) > 0 {
		return had[len(had)-1]
	}
	return ""
}
