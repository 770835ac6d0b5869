package argocd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// Every kind of resource that the moving Applications have.
const movingShop = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c, image: example.com/shop}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: CLUSTERROLE
  annotations: {argocd.argoproj.io/sync-wave: "-1"}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/none}]}}
`

const movingCart = `apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  replicas: 1
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: c, image: example.com/cart}]}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: farewell
  annotations: {argocd.argoproj.io/hook: PostDelete}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/none}]}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: forewarning
  annotations: {argocd.argoproj.io/hook: PreDelete}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/none}]}}
`

// movingLab has two engines for one cluster, and three Applications: shop is automated; cart is
// not, and people have scaled its Deployment, which it ignores; blog has several sources, its own
// namespace and every option of a sync that could matter.
type movingLab struct {
	testing.TB
	a, b     *argoLab
	role     string // the name of the ClusterRole
	began    time.Time
	shop     func(*argoLab) mirror.Row
	cart     func(*argoLab) mirror.Row
	blog     func(*argoLab) mirror.Row
	requests atomic.Int64
}

func newMovingLab(t *testing.T) *movingLab {
	l := &movingLab{
		TB: t, began: time.Now(),
		a: newArgoLabWith(t, "moving-a", stack.ArgoOptions{Version: "2.14"}),
		b: newArgoLabWith(t, "moving-b", stack.ArgoOptions{Version: "3.5",
			InstallationID: "eu-2"})}
	l.b.repo, l.b.spaceA, l.b.spaceB = l.a.repo, l.a.spaceA, l.a.spaceB
	l.role = l.a.spaceA
	for _, w := range []*argoLab{l.a, l.b} {
		w.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return counting{next, &l.requests}
		})
	}
	if err := l.a.cluster.CreateNamespace(t.Context(), l.a.spaceA); err != nil {
		t.Fatal(err)
	}
	l.commit("one")
	row := func(name fleet.DeploymentName, change func(*fleet.Application)) func(
		*argoLab) mirror.Row {
		return func(w *argoLab) mirror.Row {
			return w.app(fleet.ApplicationID{Tenant: acme, Deployment: name,
				Environment: prodEU.Name}, string(name), w.spaceA, fleet.DeletionDelete, change)
		}
	}
	l.shop = row("shop", nil)
	l.blog = row("blog", func(a *fleet.Application) {
		a.Destination.Namespace = l.a.spaceB
		a.Sources = []fleet.Source{
			{Ref: "values", RepoURL: l.a.repo.URL, TargetRevision: "main"},
			{RepoURL: l.a.repo.URL, Path: "blog", TargetRevision: "main", Helm: &fleet.HelmSource{
				ValueFiles: []string{"$values/values/blog.yaml"}}}}
		a.Sync = fleet.Sync{Automated: true, Prune: true, CreateNamespace: true,
			ServerSideApply: true, ApplyOutOfSyncOnly: true, PruneLast: true, SkipValidation: true,
			RespectIgnoreDifferences: true, FailOnSharedResource: true,
			ManagedNamespaceMetadata: &fleet.NamespaceMetadata{
				Labels: map[string]string{"example.com/team": "blog"}}}
		a.IgnoreDifferences = []fleet.IgnoreDifference{{Kind: "ConfigMap",
			JSONPointers: []string{"/data/live"}}}
	})
	l.cart = row("cart", func(a *fleet.Application) {
		a.Sync = fleet.Sync{}
		a.IgnoreDifferences = []fleet.IgnoreDifference{{Group: "apps", Kind: "Deployment",
			JSONPointers: []string{"/spec/replicas"}}}
	})
	return l
}

type counting struct {
	next     http.RoundTripper
	requests *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		c.requests.Add(1)
	}
	return c.next.RoundTrip(r)
}

// log writes when something has happened.
func (l *movingLab) log(format string, args ...any) {
	l.Helper()
	l.Logf("%6.2fs "+format, append([]any{time.Since(l.began).Seconds()}, args...)...)
}

func (l *movingLab) commit(value string) {
	l.a.commit(map[string]string{"shop/cm.yaml": configMap("shop", value),
		"shop/all.yaml": strings.ReplaceAll(movingShop, "CLUSTERROLE", l.role),
		"cart/all.yaml": movingCart, "cart/cm.yaml": configMap("cart", "one"),
		"blog/Chart.yaml": chartOfOne, "blog/templates/cm.yaml": helmConfigMap,
		"values/blog.yaml": "value: one\n",
		"forced/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: forced\n" +
			"  annotations: {argocd.argoproj.io/sync-options: 'Prune=false, Replace=true'}\n"})
}

// foundations applies the project and the cluster.
func (l *movingLab) foundations(w *argoLab, repositories ...string) {
	l.Helper()
	admin, err := os.ReadFile(w.cluster.Kubeconfig)
	if err != nil {
		l.Fatal(err)
	}
	project, cluster := projectObject(acme), clusterObject(prodEU, w.cluster.Server)
	project.Project.SourceRepos = repositories
	project.Project.ClusterResources = []fleet.GroupKind{
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, {Kind: "Namespace"}}
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, prodEU), Namespace: w.spaceA},
		{Server: fleet.ServerKey(w.cluster.Server, prodEU), Namespace: w.spaceB}}
	cluster.Cluster.Namespaces, cluster.Cluster.CAData = []string{w.spaceA, w.spaceB},
		base64.StdEncoding.EncodeToString(w.cluster.CA)
	cluster.Cluster.ClusterResources = true
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(w.row(cluster, ""), fleet.NewSecret(map[string][]byte{"kubeconfig": admin}))
}

// reopen is another replica of the control plane.
func (w *argoLab) reopen() {
	w.Helper()
	w.end()
	w.connect()
	w.begin()
}

// step repeats a step of a move until it ends, in two replicas.
func (l *movingLab) step(what string, w *argoLab, f func() error) {
	l.Helper()
	for range 2 {
		w.reopen()
		began, before, logged := time.Now(), l.requests.Load(), map[string]bool{}
		w.until(what, func() bool {
			err := f()
			if err != nil && !errors.Is(err, engine.ErrMove) {
				l.Fatalf("%s: %v", what, err)
			}
			if err != nil && !logged[err.Error()] {
				logged[err.Error()] = true
				l.log("%s: %v", what, err)
			}
			return err == nil
		})
		l.log("%s: %d requests in %s", what, l.requests.Load()-before,
			time.Since(began).Round(10*time.Millisecond))
	}
}

func (l *movingLab) check(w *argoLab, row mirror.Row) (d mirror.Departure) {
	l.Helper()
	l.step("check "+row.Key.Name, w, func() (err error) {
		d, err = w.e.CheckDeparture(l.Context(), row)
		return err
	})
	return d
}

func (l *movingLab) compare(w *argoLab, row mirror.Row, d mirror.Departure) {
	l.Helper()
	l.step("compare "+row.Key.Name, w, func() error {
		return w.e.Compare(l.Context(), row, d, w.lease)
	})
}

func (l *movingLab) freeze(w *argoLab, row mirror.Row, d mirror.Departure) {
	l.Helper()
	l.step("freeze "+row.Key.Name, w, func() error {
		return w.e.Freeze(l.Context(), row, d, w.lease)
	})
}

func (l *movingLab) adopt(w *argoLab, row mirror.Row, d mirror.Departure) {
	l.Helper()
	l.step("adopt "+row.Key.Name, w, func() error {
		return w.e.Adopt(l.Context(), row, d, w.lease)
	})
}

func (l *movingLab) returns(w *argoLab, row mirror.Row, d mirror.Departure) {
	l.Helper()
	l.step("return "+row.Key.Name, w, func() error {
		return w.e.Return(l.Context(), row, d, w.lease)
	})
}

func (l *movingLab) orphan(w *argoLab, row mirror.Row) {
	l.Helper()
	row.Unwanted, row.Deletion = true, fleet.DeletionOrphan
	l.step("delete "+row.Key.Name, w, func() error {
		done, err := w.e.Delete(l.Context(), row, w.lease)
		if err == nil && !done {
			err = engine.ErrMove
		}
		return err
	})
}

// waitsFor expects a step to wait with a reason.
func (l *movingLab) waitsFor(w *argoLab, reason string, f func() error) {
	l.Helper()
	var last error
	w.until("it waits: "+reason, func() bool {
		last = f()
		if !errors.Is(last, engine.ErrMove) {
			l.Fatalf("want %q: %v", reason, last)
		}
		return strings.Contains(last.Error(), reason)
	})
	l.log("%v", last)
}

// workload returns the identity of every object of the Applications.
func (l *movingLab) workload() map[string]string {
	l.Helper()
	all := map[string]string{}
	for _, r := range movedKinds {
		of := l.a.cluster.Dynamic().Resource(r).Namespace(l.a.spaceA)
		if r.Resource == "clusterroles" {
			of = nil
		}
		var items []unstructured.Unstructured
		if r.Resource == "configmaps" {
			o, err := l.a.cluster.Dynamic().Resource(r).Namespace(l.a.spaceB).Get(l.Context(),
				"helm", metav1.GetOptions{})
			if err != nil {
				l.Fatal(err)
			}
			items = append(items, *o)
		}
		if of == nil {
			o, err := l.a.cluster.Dynamic().Resource(r).Get(l.Context(), l.role,
				metav1.GetOptions{})
			if err != nil {
				l.Fatal(err)
			}
			items = append(items, *o)
		} else {
			list, err := of.List(l.Context(), metav1.ListOptions{})
			if err != nil {
				l.Fatal(err)
			}
			items = append(items, list.Items...)
		}
		for _, o := range items {
			replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
			template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
			data, _, _ := unstructured.NestedMap(o.Object, "data")
			all[r.Resource+" "+o.GetName()] = fmt.Sprint(o.GetUID(), o.GetCreationTimestamp(),
				o.GetLabels()["pod-template-hash"], replicas, template, data)
		}
	}
	return all
}

var movedKinds = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "configmaps"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}}

// untouched compares the workload with an earlier one, and reads from the audit log that no request
// has created or deleted one of its objects since.
func (l *movingLab) untouched(when string, before map[string]string, audited int) {
	l.Helper()
	if after := l.workload(); !maps.Equal(before, after) {
		for _, k := range slices.Sorted(maps.Keys(before)) {
			if before[k] != after[k] {
				l.Errorf("%s: %s was\n%s\nand is\n%s", when, k, before[k], after[k])
			}
		}
		l.Errorf("%s: %d objects, then %d", when, len(before), len(after))
	}
	for _, e := range l.audit()[audited:] {
		l.Errorf("%s: %s %s by %s", when, e.Verb, e.RequestURI, e.User.Username)
	}
}

// audit returns the requests so far that have created or deleted an object of the workload.
func (l *movingLab) audit() (all []stack.AuditEntry) {
	l.Helper()
	entries, err := stack.ReadAudit(shared.audit)
	if err != nil {
		l.Fatal(err)
	}
	for _, e := range entries {
		kind := slices.ContainsFunc(movedKinds, func(r schema.GroupVersionResource) bool {
			return r.Resource == e.ObjectRef.Resource
		})
		mine := e.ObjectRef.Namespace == l.a.spaceA || e.ObjectRef.Namespace == l.a.spaceB ||
			e.ObjectRef.Name == l.role
		if kind && mine && e.ObjectRef.Subresource == "" && e.ResponseStatus.Code != 0 &&
			(e.Verb == "create" || strings.HasPrefix(e.Verb, "delete")) {
			all = append(all, e)
		}
	}
	return all
}

// watchAutomation reports an Application that two engines would sync.
func (l *movingLab) watchAutomation() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	l.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			n := map[string]int{}
			for _, w := range []*argoLab{l.a, l.b} {
				all, err := w.applications().List(ctx, metav1.ListOptions{})
				if err != nil {
					break
				}
				for _, o := range all.Items {
					_, on, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
					if on {
						n[o.GetName()]++
					}
				}
			}
			for name, engines := range n {
				if engines > 1 {
					l.Errorf("two engines sync %s", name)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// marked waits until an engine has marked every resource but hooks.
func (l *movingLab) marked(by *argoLab) {
	l.Helper()
	by.until("every resource is marked by "+string(by.name), func() bool {
		for _, r := range movedKinds {
			names, of := map[string][]string{"deployments": {"shop", "cart"}, "services": {"shop"},
				"configmaps": {"shop", "cart"}, "clusterroles": {l.role}}[r.Resource], l.a.spaceA
			if r.Resource == "clusterroles" {
				of = ""
			}
			for _, name := range names {
				o, err := l.a.cluster.Dynamic().Resource(r).Namespace(of).Get(l.Context(), name,
					metav1.GetOptions{})
				if err != nil {
					l.Fatal(err)
				}
				if o.GetAnnotations()[annotationInstallation] != string(by.name) {
					return false
				}
			}
		}
		blog, err := l.a.cluster.Client().CoreV1().ConfigMaps(l.a.spaceB).Get(l.Context(), "helm",
			metav1.GetOptions{})
		return err == nil && blog.Annotations[annotationInstallation] == string(by.name)
	})
}

// served waits until the engine has nothing left to do, and expects a plain object of ours.
func (l *movingLab) served(w *argoLab, row mirror.Row) {
	l.Helper()
	w.settles(w.liveName(row))
	l.log("%s has settled", row.Key.Name)
	w.until("applied without a write", func() bool {
		return !w.apply(row, fleet.Secret{}).Changed
	})
	o := w.of(row)
	marks := o.GetAnnotations()
	_, ignoring, _ := unstructured.NestedSlice(o.Object, "spec", "ignoreDifferences")
	if marks[annotationMove] != "" || marks[annotationSkipReconcile] != "" ||
		ignoring != (row.Deployment == "cart" || row.Deployment == "blog") {
		l.Errorf("%s keeps traces of its move: %v", row.Key.Name, o.Object)
	}
	for _, f := range o.GetManagedFields() {
		if text := string(f.FieldsV1.Raw); f.Manager == fieldManager && strings.Contains(
			text, annotationMove) {
			l.Errorf("%s: %s keeps fields of the move", row.Key.Name, f.Operation)
		}
	}
}

func TestAMoveLeavesTheWorkloadAlone(t *testing.T) {
	l := newMovingLab(t)
	rows := []func(*argoLab) mirror.Row{l.shop, l.cart, l.blog}
	l.foundations(l.a, l.a.repo.URL)
	l.foundations(l.b, "https://git.example.com/other")
	for _, row := range rows {
		l.a.apply(row(l.a), fleet.Secret{})
	}
	l.a.sync(l.cart(l.a), "first", "main", "Succeeded")
	scale := `{"spec":{"replicas":3}}`
	if _, err := l.a.cluster.Client().AppsV1().Deployments(l.a.spaceA).Patch(t.Context(), "cart",
		types.MergePatchType, []byte(scale), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.a.observed("blog is synced", l.blog(l.a).Key, synced)
	live := `{"data":{"live":"kept"}}`
	if _, err := l.a.cluster.Client().CoreV1().ConfigMaps(l.a.spaceB).Patch(t.Context(), "helm",
		types.MergePatchType, []byte(live), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		l.served(l.a, row(l.a))
	}
	l.marked(l.a)
	l.a.until("all pods run", func() bool {
		pods, err := l.a.cluster.Client().CoreV1().Pods(l.a.spaceA).List(t.Context(),
			metav1.ListOptions{})
		return err == nil && len(pods.Items) >= 5
	})
	l.log("everything runs")
	l.watchAutomation()
	workload, audited := l.workload(), len(l.audit())
	untouched := func(when string) {
		t.Helper()
		l.untouched(when, workload, audited)
	}

	l.neverReplaces()
	audited = len(l.audit())
	l.refuses()
	untouched("after a refusal")
	l.undoes()
	untouched("after an undone move")
	l.deletionHooks(l.a)
	l.moves(l.a, l.b, rows)
	l.deletionHooks(l.b)
	untouched("after the move")
	l.moves(l.b, l.a, rows)
	untouched("after the move back")

	l.branchMoves(workload)
}

// branchMoves: a branch has a new commit during a move. The new engine adopts what the old one had
// synced, and syncs the commit when the move has ended, with its hooks.
func (l *movingLab) branchMoves(before map[string]string) {
	l.Helper()
	l.log("a commit during a move")
	from, to := l.shop(l.a), l.shop(l.b)
	d := l.check(l.a, from)
	l.compare(l.b, to, d)
	l.freeze(l.a, from, d)
	l.commit("two")
	l.adopt(l.b, to, d)
	l.orphan(l.a, from)
	if got, _ := l.a.value(l.a.spaceA, "shop"); got != "one" {
		l.Errorf("the move has brought the commit: %q", got)
	}
	l.b.apply(to, fleet.Secret{})
	l.b.refresh(l.b.liveName(to)) // the repo-server knows a branch for three minutes
	l.b.until("the next commit is synced, with its hook", func() bool {
		got, _ := l.a.value(l.a.spaceA, "shop")
		return got == "two" && l.workload()["jobs migrate"] != before["jobs migrate"]
	})
	after := l.workload()
	for _, o := range []string{"deployments shop", "services shop", "clusterroles " + l.role} {
		if before[o] == "" || after[o] != before[o] {
			l.Errorf("%s was %q and is %q", o, before[o], after[o])
		}
	}
}

// deletionHooks: Argo CD adds finalizers for the pre- and post-delete hooks of cart. Its move runs
// none of them.
func (l *movingLab) deletionHooks(w *argoLab) {
	l.Helper()
	o, err := w.applicationsIn("").Get(l.Context(), w.liveName(l.cart(w)), metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if !slices.ContainsFunc(o.GetFinalizers(), func(f string) bool {
		return strings.HasPrefix(f, "post-delete-finalizer.argocd.argoproj.io")
	}) {
		l.Errorf("%s has no finalizer for its post-delete hook: %v", w.name, o.GetFinalizers())
	}
}

// neverReplaces: a resource that Argo CD would replace does not move, in either direction.
func (l *movingLab) neverReplaces() {
	l.Helper()
	l.foundations(l.b, l.a.repo.URL)
	for _, way := range [][2]*argoLab{{l.a, l.b}, {l.b, l.a}} {
		from, to := way[0], way[1]
		row := func(w *argoLab) mirror.Row {
			return w.app(fleet.ApplicationID{Tenant: acme, Environment: prodEU.Name,
				Deployment: "forced-" + fleet.DeploymentName(from.name)}, "forced", w.spaceA,
				fleet.DeletionOrphan, nil)
		}
		from.apply(row(from), fleet.Secret{})
		from.observed("synced", row(from).Key, synced)
		l.served(from, row(from))
		d := l.check(from, row(from))
		l.waitsFor(to, fmt.Sprintf("engine %s would change ConfigMap %s/forced", to.name,
			from.spaceA), func() error {
			return to.e.Compare(l.Context(), row(to), d, to.lease)
		})
		l.orphan(to, row(to))
		l.orphan(from, row(from))
	}
	if err := l.a.cluster.Client().CoreV1().ConfigMaps(l.a.spaceA).Delete(l.Context(), "forced",
		metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	l.foundations(l.b, "https://git.example.com/other")
}

// refuses: the new engine does not equal the old one, which is not touched.
func (l *movingLab) refuses() {
	l.Helper()
	shop, cart := l.shop(l.a), l.cart(l.a)
	before := l.a.liveObjects([]mirror.Row{shop, cart})
	d := l.check(l.a, shop)
	compare := func(row mirror.Row, d mirror.Departure) func() error {
		return func() error { return l.b.e.Compare(l.Context(), row, d, l.b.lease) }
	}
	l.waitsFor(l.b, "is not permitted in project", compare(l.shop(l.b), d))
	l.foundations(l.b, l.a.repo.URL)
	l.compare(l.b, l.shop(l.b), d)

	ofCart := l.check(l.a, cart)
	change := func(value string) {
		l.Helper()
		if _, err := l.a.cluster.Client().CoreV1().ConfigMaps(l.a.spaceA).Patch(l.Context(), "cart",
			types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value),
			metav1.PatchOptions{}); err != nil {
			l.Fatal(err)
		}
	}
	change("by hand")
	l.waitsFor(l.b, "engine eu-2 would change ConfigMap "+l.a.spaceA+"/cart",
		compare(l.cart(l.b), ofCart))
	l.waitsFor(l.a, "ConfigMap "+l.a.spaceA+"/cart is OutOfSync", func() error {
		_, err := l.a.e.CheckDeparture(l.Context(), cart)
		return err
	})
	change("one")
	l.compare(l.b, l.cart(l.b), ofCart)
	another := d
	another.UID = "another"
	if err := l.b.e.Adopt(l.Context(), l.shop(l.b), another, l.b.lease); !errors.Is(err,
		engine.ErrForeign) {
		l.Errorf("another object of the old engine: %v", err)
	}
	l.compare(l.b, l.shop(l.b), another)
	if err := l.b.e.Adopt(l.Context(), l.shop(l.b), d, l.b.lease); !errors.Is(err,
		engine.ErrForeign) {
		l.Errorf("the former object of the old engine: %v", err)
	}
	l.a.areAsBefore(before, l.a.liveObjects([]mirror.Row{shop, cart}))
	for _, row := range []mirror.Row{l.shop(l.b), l.cart(l.b)} {
		l.orphan(l.b, row)
	}
}

// undoes a move after the adoption. The old engine marks its resources again: by itself, or by an
// adoption of its own.
func (l *movingLab) undoes() {
	l.Helper()
	for _, row := range []func(*argoLab) mirror.Row{l.shop, l.cart, l.blog} {
		d := l.check(l.a, row(l.a))
		l.compare(l.b, row(l.b), d)
		synced := d
		synced.LastOperation = "an earlier one"
		if err := l.a.e.Freeze(l.Context(), row(l.a), synced, l.a.lease); !errors.Is(err,
			engine.ErrMoveStale) {
			l.Errorf("synced since: %v", err)
		}
		l.freeze(l.a, row(l.a), d)
		l.adopt(l.b, row(l.b), d)
		l.orphan(l.b, row(l.b))
		if row(l.a).Deployment != "shop" { // which heals itself
			l.returns(l.a, row(l.a), d)
		}
		l.a.apply(row(l.a), fleet.Secret{})
		l.served(l.a, row(l.a))
		if err := l.a.e.Return(l.Context(), row(l.a), d, l.a.lease); err != nil {
			l.Errorf("a replica has not recorded the return: %v", err)
		}
	}
	l.marked(l.a)
}

// requestsAgain: an adoption that Argo CD does not begin is requested again, once for each while.
func (l *movingLab) requestsAgain(w *argoLab, row mirror.Row, d mirror.Departure) {
	l.Helper()
	adopt := func() error { return w.e.Adopt(l.Context(), row, d, w.lease) }
	l.waitsFor(w, "compares it once more", adopt)
	w.until("it is compared", func() bool {
		m, err := w.e.readMoving(l.Context(), row)
		return err == nil && !m.refreshes && m.compares
	})
	w.argo.Controller.Pause()
	defer w.argo.Controller.Resume()
	l.waitsFor(w, "adopts its resources", adopt)
	now := w.e.options.Now
	defer func() { w.e.options.Now = now }()
	w.e.options.Now = func() time.Time { return now().Add(noticedWithin) }
	if err := adopt(); err == nil || !strings.Contains(err.Error(), "requested again") {
		l.Errorf("an adoption that does not begin: %v", err)
	}
	if err := adopt(); err == nil || strings.Contains(err.Error(), "requested again") {
		l.Errorf("it is requested all the time: %v", err)
	}
}

func (l *movingLab) moves(from, to *argoLab, rows []func(*argoLab) mirror.Row) {
	l.Helper()
	var departures []mirror.Departure
	for _, row := range rows {
		d := l.check(from, row(from))
		l.compare(to, row(to), d)
		departures = append(departures, d)
	}
	for i, row := range rows {
		l.freeze(from, row(from), departures[i])
		if i == 0 {
			l.requestsAgain(to, row(to), departures[i])
		}
		l.adopt(to, row(to), departures[i])
		l.orphan(from, row(from))
		to.reopen()
		before := l.requests.Load()
		if out := to.apply(row(to), fleet.Secret{}); !out.Changed {
			l.Error("the end of the move writes nothing")
		}
		l.log("enable %s: %d requests", row(to).Key.Name, l.requests.Load()-before)
		l.served(to, row(to))
	}
	l.marked(to)
}
