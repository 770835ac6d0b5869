package argocd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/test/stack"
)

var loadApplications = flag.Int("adopt.applications", 12, "Applications of the adoption test")

const (
	loadBatch   = 30
	trackingID  = "argocd.argoproj.io/tracking-id"
	installedBy = "argocd.argoproj.io/installation-id"
)

// People have created Applications by hand, an ApplicationSet and an app of apps have created
// others, and Argo CD tracks their resources by label. They are prepared, imported, adopted in
// batches, changed and released. Argo CD syncs only the change, and no request writes to the
// workloads.
func TestManyApplicationsMoveInAndOut(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			refresh := max(5, *loadApplications/5)
			w := newArgoLabOff(t, "many-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{Version: version, ApplicationSets: true,
					ApplicationSetController: version != "2.14",
					Refresh:                  time.Duration(refresh) * time.Second,
					Settings: map[string]string{"application.resourceTrackingMethod": "label",
						"installationID": ""}})
			l := &load{argoLab: w, n: *loadApplications, started: time.Now(),
				generates: version != "2.14"}
			l.create()
			l.importAll()
			l.prepare()
			l.letGo()
			l.begin()
			l.adoptAll()
			l.moveOn()
			l.releaseAll()
		})
	}
}

type load struct {
	*argoLab
	n          int
	generates  bool // a real controller makes the Applications of ApplicationSets
	token      string
	foundation []mirror.Row
	rows       []mirror.Row // of the Applications
	started    time.Time
}

// until reads all Applications each time, so it waits longer between reads of many.
func (l *load) until(what string, ok func() bool) {
	l.Helper()
	next := time.Now()
	l.argoLab.until(what, func() bool {
		if time.Now().Before(next) {
			return false
		}
		is := ok()
		next = time.Now().Add(time.Duration(l.n) * 10 * time.Millisecond)
		return is
	})
}

// lap logs the time since the last lap.
func (l *load) lap(what string, args ...any) {
	l.Logf("%6.1f s  %s", time.Since(l.started).Seconds(), fmt.Sprintf(what, args...))
	l.started = time.Now()
}

func loadName(i int) string { return fmt.Sprintf("app-%03d", i) }

// workloadOf has two ConfigMaps, and every tenth a Deployment.
func workloadOf(i int, value string) map[string]string {
	name := loadName(i)
	files := map[string]string{name + "/cm.yaml": configMap(name, value),
		name + "/extra.yaml": configMap(name+"-extra", "one")}
	if i%10 == 0 {
		files[name+"/web.yaml"] = fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {web: %[1]s}}
  template:
    metadata: {labels: {web: %[1]s}}
    spec: {containers: [{name: c, image: example.com/none}]}
`, name)
	}
	return files
}

func (l *load) manifest(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": argoAPI,
		"kind": "Application",
		"metadata": map[string]any{"name": loadName(i), "namespace": l.spec.ArgoCD.Namespace,
			"finalizers": []any{cascadeFinalizer}},
		"spec": map[string]any{"project": "legacy",
			"destination": map[string]any{"server": l.cluster.Server, "namespace": l.spaceA},
			"source": map[string]any{"repoURL": l.repo.URL, "path": loadName(i),
				"targetRevision": "main"},
			"syncPolicy": map[string]any{"automated": map[string]any{"prune": true,
				"selfHeal": true}}}}}
}

var applicationSets = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applicationsets"}

// create makes a third of the Applications by hand, a third with an ApplicationSet, and a third
// from the repository of a parent.
func (l *load) create() {
	l.Helper()
	ctx, namespace := l.Context(), l.spec.ArgoCD.Namespace
	var err error
	if l.token, err = l.cluster.TenantToken(ctx, "many-"+l.spaceA, l.spaceA,
		namespace); err != nil {
		l.Fatal(err)
	}
	files := map[string]string{"root/note.yaml": configMap("root-note", "one")}
	for i := range l.n {
		maps.Copy(files, workloadOf(i, "one"))
		if i%3 == 2 {
			text, err := json.Marshal(l.manifest(i).Object)
			if err != nil {
				l.Fatal(err)
			}
			files["root/"+loadName(i)+".yaml"] = string(text)
		}
	}
	l.commit(files)
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": namespace}
	}
	var items []string
	for i := 1; i < l.n; i += 3 {
		items = append(items, loadName(i))
	}
	set := l.set("many", items...)
	root := l.manifest(0)
	root.SetName("root")
	spec := child(root.Object, "spec")
	child(spec, "source")["path"] = "root"
	child(spec, "destination")["namespace"] = namespace
	config := fmt.Sprintf(`{"bearerToken":%q,"tlsClientConfig":{"caData":%q}}`, l.token,
		base64.StdEncoding.EncodeToString(l.cluster.CA))
	if err := l.cluster.Apply(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Namespace: namespace,
			Labels: map[string]string{labelSecretType: "cluster"}},
		StringData: map[string]string{"name": "prod-eu", "server": l.cluster.Server,
			"namespaces": l.spaceA + "," + namespace, "config": config},
	}, &unstructured.Unstructured{Object: map[string]any{"apiVersion": argoAPI,
		"kind": "AppProject", "metadata": meta("legacy"), "spec": map[string]any{
			"sourceRepos": []any{l.repo.URL}, "destinations": []any{
				map[string]any{"server": l.cluster.Server, "namespace": l.spaceA},
				map[string]any{"server": l.cluster.Server, "namespace": namespace}}}},
	}, set, root); err != nil {
		l.Fatal(err)
	}
	for i := range l.n {
		switch app := l.manifest(i); {
		case i%3 == 1 && !l.generates:
			l.owned(app, "many")
		case i%3 == 0:
			if err := l.cluster.Apply(ctx, app); err != nil {
				l.Fatal(err)
			}
		}
	}
	l.until("all are synced and healthy", func() bool {
		all := l.all()
		return len(all) == l.n+1 && !slices.ContainsFunc(all, loadApp.busy)
	})
	l.compared("all are compared after their syncs")
	l.lap("%d Applications created and synced, tracked by label", l.n)
}

// set is an ApplicationSet with an Application for each item, as manifest makes it.
func (l *load) set(name string, items ...string) *unstructured.Unstructured {
	elements := []any{}
	for _, item := range items {
		elements = append(elements, map[string]any{"name": item})
	}
	spec := child(l.manifest(0).Object, "spec")
	child(spec, "source")["path"] = "{{name}}"
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": argoAPI,
		"kind": "ApplicationSet", "metadata": map[string]any{"name": name,
			"namespace": l.spec.ArgoCD.Namespace}, "spec": map[string]any{
			"generators": []any{map[string]any{"list": map[string]any{"elements": elements}}},
			"template": map[string]any{"metadata": map[string]any{"name": "{{name}}"},
				"spec": spec}}}}
}

// owned creates an Application as the controller of ApplicationSets does.
func (l *load) owned(app *unstructured.Unstructured, set string) {
	l.Helper()
	owner, err := l.cluster.Dynamic().Resource(applicationSets).Namespace(
		l.spec.ArgoCD.Namespace).Get(l.Context(), set, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	yes := true
	app.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: argoAPI, Kind: "ApplicationSet",
		Name: set, UID: owner.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}})
	if err := l.cluster.Apply(l.Context(), app); err != nil {
		l.Fatal(err)
	}
}

// loadApp is the part of a live Application that the test reads.
type loadApp struct {
	Metadata struct {
		Name, UID   string
		Annotations map[string]string
		Owners      []any `json:"ownerReferences"`
		Finalizers  []string
	}
	Spec struct {
		Project     string
		Destination struct{ Server string }
	}
	Operation *struct{}
	Status    struct {
		Health struct{ Status string }
		Sync   struct {
			Status, Revision string
			ComparedTo       struct{ Destination struct{ Server string } }
		}
		OperationState struct{ Phase, StartedAt string }
		History        []struct{}
		Resources      []struct{ Group, Kind, Namespace, Name, Status string }
	}
}

// busy reports whether Argo CD is not done with it.
func (a loadApp) busy() bool {
	_, refreshing := a.Metadata.Annotations["argocd.argoproj.io/refresh"]
	return a.Status.Sync.Status != "Synced" || a.Status.Health.Status != "Healthy" ||
		a.Status.OperationState.Phase != "Succeeded" || a.Operation != nil || refreshing
}

// all returns the live Applications, sorted by name; "root" is the last one.
func (l *load) all() []loadApp {
	l.Helper()
	list, err := l.applications().List(l.Context(), metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	out := make([]loadApp, 0, len(list.Items))
	for _, item := range list.Items {
		text, err := json.Marshal(item.Object)
		if err != nil {
			l.Fatal(err)
		}
		var a loadApp
		if err := json.Unmarshal(text, &a); err != nil {
			l.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

func (l *load) refreshAll() {
	l.Helper()
	for _, a := range l.all() {
		l.annotate(applicationsGVR, l.spec.ArgoCD.Namespace, a.Metadata.Name,
			`"argocd.argoproj.io/refresh":"hard"`)
	}
}

var applicationsGVR = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

func (l *load) annotate(r schema.GroupVersionResource, namespace, name, annotations string) {
	l.Helper()
	if _, err := l.cluster.Dynamic().Resource(r).Namespace(namespace).Patch(l.Context(), name,
		types.MergePatchType, []byte(`{"metadata":{"annotations":{`+annotations+`}}}`),
		metav1.PatchOptions{FieldManager: "people"}); err != nil {
		l.Fatal(err)
	}
}

// compared waits until Argo CD has compared every Application again, found it in sync and has
// nothing left to do: see settles.
func (l *load) compared(what string) {
	l.Helper()
	l.refreshAll()
	l.until(what, func() bool { return !slices.ContainsFunc(l.all(), loadApp.busy) })
}

// prepare changes tracking by label to annotations in the order of docs/adopting.md.
func (l *load) prepare() {
	l.Helper()
	before := l.syncs()
	for _, a := range l.all() {
		for _, r := range a.Status.Resources {
			gvr := schema.GroupVersionResource{Group: r.Group, Version: "v1",
				Resource: strings.ToLower(r.Kind) + "s"}
			if r.Kind == "Application" {
				gvr = applicationsGVR
			}
			l.annotate(gvr, r.Namespace, r.Name, fmt.Sprintf(`%q:%q,%q:%q`, trackingID,
				fmt.Sprintf("%s:%s/%s:%s/%s", a.Metadata.Name, r.Group, r.Kind, r.Namespace,
					r.Name), installedBy, "eu-1"))
		}
	}
	if _, err := l.cluster.Client().CoreV1().ConfigMaps(l.spec.ArgoCD.Namespace).Patch(
		l.Context(), "argocd-cm", types.MergePatchType, []byte(`{"data":{
			"application.resourceTrackingMethod":"annotation","installationID":"eu-1"}}`),
		metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
	l.compared("all are compared by annotation")
	if after := l.syncs(); !maps.Equal(before, after) {
		l.Errorf("the preparation caused syncs: %v, then %v", before, after)
	}
	l.lap("tracking changed to annotations")
}

// awaitCollector waits until the garbage collector follows the kinds, which are new on this
// cluster: until then it would not find the dependents to orphan, and delete them later.
func (l *load) awaitCollector() {
	l.Helper()
	sets := l.cluster.Dynamic().Resource(applicationSets).Namespace(l.spec.ArgoCD.Namespace)
	canary := l.set("canary", "canary")
	spec := child(canary.Object, "spec")
	spec["syncPolicy"] = map[string]any{"preserveResourcesOnDeletion": true}
	delete(child(child(spec, "template"), "spec"), "syncPolicy")
	if err := l.cluster.Apply(l.Context(), canary); err != nil {
		l.Fatal(err)
	}
	if !l.generates {
		app := l.manifest(0)
		app.SetName("canary")
		app.SetFinalizers(nil)
		delete(child(app.Object, "spec"), "syncPolicy")
		l.owned(app, "canary")
	}
	l.until("the ApplicationSet has its Application", func() bool {
		_, err := l.applications().Get(l.Context(), "canary", metav1.GetOptions{})
		return err == nil
	})
	if err := sets.Delete(l.Context(), "canary", metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	l.until("the garbage collector follows the kinds", func() bool {
		_, err := l.applications().Get(l.Context(), "canary", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// letGo releases the Applications from their ApplicationSet and their parent, in the order of
// docs/adopting.md.
func (l *load) letGo() {
	l.Helper()
	l.awaitCollector()
	before, namespace := l.syncs(), l.spec.ArgoCD.Namespace
	orphan := metav1.DeletePropagationOrphan
	if err := l.cluster.Dynamic().Resource(applicationSets).Namespace(namespace).Delete(
		l.Context(), "many", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		l.Fatal(err)
	}
	var manifests []string
	for i := 2; i < l.n; i += 3 {
		l.annotate(applicationsGVR, namespace, loadName(i),
			`"argocd.argoproj.io/sync-options":"Prune=false"`)
		manifests = append(manifests, "root/"+loadName(i)+".yaml")
	}
	rev, err := l.repo.Remove(l.Context(), "release", manifests...)
	if err != nil {
		l.Fatal(err)
	}
	root := func() loadApp {
		all := l.all()
		return all[len(all)-1]
	}
	l.annotate(applicationsGVR, namespace, "root", `"argocd.argoproj.io/refresh":"hard"`)
	l.until("the parent is out of sync", func() bool {
		return root().Status.Sync.Status == "OutOfSync" && root().Status.Sync.Revision == rev
	})
	for i := 2; i < l.n; i += 3 {
		l.annotate(applicationsGVR, namespace, loadName(i), fmt.Sprintf(
			`%q:null,%q:null,"argocd.argoproj.io/sync-options":null`, trackingID, installedBy))
	}
	l.annotate(applicationsGVR, namespace, "root", `"argocd.argoproj.io/refresh":"hard"`)
	l.until("nothing owns the Applications", func() bool {
		return root().Status.Sync.Status == "Synced" && !slices.ContainsFunc(l.all(),
			func(a loadApp) bool {
				return len(a.Metadata.Owners) > 0 ||
					a.Metadata.Name != "root" && a.Metadata.Annotations[trackingID] != ""
			})
	})
	after := l.syncs()
	if !maps.Equal(before, after) {
		l.Errorf("the release from owners caused syncs: %v, then %v", before, after)
	}
	l.lap("released from the ApplicationSet and the parent")
}

// syncs returns the UID, the start of the last sync and the length of the history of each.
func (l *load) syncs() map[string]string {
	l.Helper()
	out := map[string]string{}
	for _, a := range l.all() {
		if a.Metadata.Name == "root" {
			continue // it is not imported
		}
		out[a.Metadata.Name] = fmt.Sprintf("%s %s %d", a.Metadata.UID,
			a.Status.OperationState.StartedAt, len(a.Status.History))
	}
	return out
}

// workloads returns the UIDs, versions and restarts of the workload objects.
func (l *load) workloads() map[string]string {
	l.Helper()
	out, client := map[string]string{}, l.cluster.Client()
	configMaps, err := client.CoreV1().ConfigMaps(l.spaceA).List(l.Context(),
		metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	for _, o := range configMaps.Items {
		out["ConfigMap "+o.Name] = string(o.UID) + " " + o.ResourceVersion
	}
	deployments, err := client.AppsV1().Deployments(l.spaceA).List(l.Context(),
		metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	for _, o := range deployments.Items {
		out["Deployment "+o.Name] = fmt.Sprintf("%s %d %s", o.UID, o.Generation,
			o.ResourceVersion)
	}
	pods, err := client.CoreV1().Pods(l.spaceA).List(l.Context(), metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	for _, o := range pods.Items {
		restarts := int32(0)
		for _, s := range o.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
		out["Pod "+o.Name] = fmt.Sprintf("%s %d %s", o.UID, restarts, o.ResourceVersion)
	}
	return out
}

// writes returns the requests that wrote to the namespace of the workloads, anyone's.
func (l *load) writes() []string {
	l.Helper()
	all, err := stack.ReadAudit(shared.audit)
	if err != nil {
		l.Fatal(err)
	}
	var out []string
	for _, e := range all {
		if e.Writes() && e.ObjectRef.Namespace == l.spaceA && e.Stage == "ResponseComplete" {
			out = append(out, e.User.Username+" "+e.Verb+" "+e.ObjectRef.Resource+" "+
				e.ObjectRef.Name)
		}
	}
	return out
}

// untouched checks that nothing of the workload changed since an earlier moment, and no
// Application was synced.
func (l *load) untouched(what string, workloads, syncs map[string]string, writes int) {
	l.Helper()
	if got := l.workloads(); !maps.Equal(got, workloads) {
		l.Errorf("%s changed workloads: %v, then %v", what, workloads, got)
	}
	if got := l.syncs(); !maps.Equal(got, syncs) {
		l.Errorf("%s caused syncs: %v, then %v", what, syncs, got)
	}
	if all := l.writes(); len(all) != writes {
		l.Errorf("%s: %d writes to the namespace of the workloads: %v", what, len(all)-writes,
			all[writes:min(len(all), writes+5)])
	}
}

// importAll imports the live Argo CD and plans the config repo.
func (l *load) importAll() {
	l.Helper()
	config, err := original.Kubeconfig(l.cluster.Kubeconfig, "")
	if err != nil {
		l.Fatal(err)
	}
	objects, unread, err := original.Read(l.Context(), config, l.spec.ArgoCD.Namespace,
		nil)
	if err != nil || len(unread) > 0 {
		l.Fatalf("%v, unread %q", err, unread)
	}
	var in adoption.Input
	for _, o := range objects {
		in.Originals = append(in.Originals, adoption.FromObject("", o)...)
	}
	outcome, err := adoption.Import(in, adoption.Options{Engine: string(testEngine), Region: "eu",
		DefaultTenant: "platform", Adopt: true}, adoption.Tools{Render: renderedFrom,
		Normalize: func(o map[string]any, charts func(string) bool) (adoption.Normal, error) {
			n, err := original.Normalize(o, charts)
			return adoption.Normal{Spec: n.Spec, Unknown: n.Unknown}, err
		}})
	if err != nil {
		l.Fatal(err)
	}
	exact := 0
	for _, r := range outcome.Report.Objects {
		switch {
		case r.Kind == adoption.KindApplicationSet:
			if exact += (l.n + 1) / 3; r.Status != adoption.Exact {
				l.Errorf("%+v", r)
			}
			continue
		case !strings.HasPrefix(r.Name, "app-"):
			continue
		}
		// The parent of an app of apps labelled its children, and no declaration has the label.
		kept := slices.DeleteFunc(r.Differences, func(d adoption.Difference) bool {
			return d.Path == `metadata.labels["app.kubernetes.io/instance"]`
		})
		if exact++; r.Status == adoption.Refused || len(kept) > 0 {
			l.Errorf("%+v", r)
		}
	}
	// the set names the Applications of the ApplicationSet, and the others have a file each
	set, files := "", 0
	for _, f := range outcome.Files {
		switch {
		case strings.HasSuffix(f.Path, "/sets/many.yaml"):
			set = string(f.Bytes)
		case strings.Contains(f.Path, "/deployments/app-"):
			files++
		}
	}
	if !strings.Contains(set, "application: ${item.name}\n") ||
		!strings.Contains(set, "orCreate: true\n") || files != l.n-(l.n+1)/3 {
		l.Errorf("%d files beside this set:\n%s", files, set)
	}
	p, err := planned(outcome.Files)
	if err != nil {
		l.Fatal(err)
	}
	for _, problem := range p.Problems {
		if problem.Severity == fleet.SeverityError {
			l.Errorf("%s", problem)
		}
	}
	for _, c := range p.Rows {
		switch {
		case c.Row.Deployment == "root": // the parent stays with its people
		case c.Row.Key.Kind == fleet.ObjectApplication:
			l.rows = append(l.rows, c.Row)
		default:
			l.foundation = append(l.foundation, c.Row)
		}
	}
	if exact != l.n || len(l.rows) != l.n {
		l.Fatalf("%d of %d are imported, %d are declared", exact, l.n, len(l.rows))
	}
	l.lap("imported: %d with the same spec, in %d files", exact, len(outcome.Files))
}

func planned(files []configschema.File) (*plan.Plan, error) {
	return plan.Offline(configschema.Inputs(files), "", policy.New().Judge, Renderer{})
}

func renderedFrom(files []configschema.File) ([]adoption.Rendered, []fleet.Problem, error) {
	p, err := planned(files)
	if err != nil {
		return nil, nil, err
	}
	var all []adoption.Rendered
	for _, c := range p.Rows {
		if c.Row.Key.Kind != fleet.ObjectApplication {
			continue
		}
		object, err := decodeTree(c.Row.Manifest.Body)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, adoption.Rendered{Tenant: c.Row.Tenant, Object: object,
			Deployment: c.Row.Deployment, Environment: c.Row.Environment})
	}
	return all, p.Problems, nil
}

// each calls do for every row, several at once.
func (l *load) each(rows []mirror.Row, do func(mirror.Row)) {
	var all sync.WaitGroup
	next := make(chan mirror.Row)
	for range 4 {
		all.Go(func() {
			for row := range next {
				do(row)
			}
		})
	}
	for _, row := range rows {
		next <- row
	}
	close(next)
	all.Wait()
}

// adoptAll adopts batches while Argo CD writes status.
func (l *load) adoptAll() {
	l.Helper()
	credential := fleet.NewSecret(map[string][]byte{"token": []byte(l.token)})
	for _, row := range l.foundation {
		l.apply(row, credential)
	}
	workloads, syncs, writes := l.workloads(), l.syncs(), len(l.writes())
	ctx, cancel := context.WithCancel(l.Context())
	var noise sync.WaitGroup
	noise.Go(func() { l.disturb(ctx) })
	started, batches := time.Now(), 0
	for batch := range slices.Chunk(l.rows, min(loadBatch, max(1, l.n/3))) {
		batches++
		l.each(batch, func(row mirror.Row) {
			for {
				out, err := l.e.Apply(l.Context(), row, fleet.Secret{}, l.lease)
				if err != nil {
					l.Errorf("%v", err)
					return
				}
				if out.State == mirror.ApplyApplied {
					return
				}
				pacing.Sleep(l.Context(), 50*time.Millisecond)
			}
		})
	}
	seconds := time.Since(started).Seconds()
	cancel()
	noise.Wait()
	// A worker applies a row again when it has drifted: here by the finalizer, which goes last.
	l.until("all are compared in their new project, and no row needs a write", func() bool {
		return l.unchanged() && !slices.ContainsFunc(l.all(), func(a loadApp) bool {
			return a.Metadata.Name != "root" && (a.busy() || len(a.Metadata.Finalizers) > 0 ||
				!strings.Contains(a.Status.Sync.ComparedTo.Destination.Server,
					"?managedEnvironment="))
		})
	})
	l.untouched("the adoption", workloads, syncs, writes)
	l.lap("adopted in %d batches; the writes took %.1f s", batches, seconds)
}

// unchanged applies every row, and reports whether none needed a write.
func (l *load) unchanged() bool {
	var changed atomic.Int32
	l.each(l.rows, func(row mirror.Row) {
		out, err := l.e.Apply(l.Context(), row, fleet.Secret{}, l.lease)
		if err != nil {
			l.Errorf("%v", err)
		}
		if out.Changed || out.State != mirror.ApplyApplied {
			changed.Add(1)
		}
	})
	return changed.Load() == 0
}

// disturb makes Argo CD compare one Application after the other until ctx ends.
func (l *load) disturb(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		_, err := l.applications().Patch(ctx, loadName(i%l.n), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`),
			metav1.PatchOptions{FieldManager: "webhook"})
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			l.Errorf("refresh: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// moveOn changes one resource and removes another of each: Argo CD prunes only what it tracks.
func (l *load) moveOn() {
	l.Helper()
	change := stack.Change{Message: "move on", Write: map[string]string{}}
	for i := range l.n {
		files := workloadOf(i, "two")
		extra := loadName(i) + "/extra.yaml"
		change.Remove = append(change.Remove, extra)
		delete(files, extra)
		maps.Copy(change.Write, files)
	}
	rev, err := l.repo.Apply(l.Context(), change)
	if err != nil {
		l.Fatal(err)
	}
	l.refreshAll()
	l.until("all are synced at the next commit", func() bool {
		return !slices.ContainsFunc(l.all(), func(a loadApp) bool {
			return a.busy() || a.Status.Sync.Revision != rev
		})
	})
	l.compared("all are compared after their syncs")
	untracked, changed := 0, 0
	for i := range l.n {
		if value, _ := l.value(l.spaceA, loadName(i)); value == "two" {
			changed++
		}
		if _, uid := l.value(l.spaceA, loadName(i)+"-extra"); uid != "" {
			untracked++
		}
	}
	if changed != l.n || untracked > 0 {
		l.Errorf("%d of %d changed, %d resources left Git and were not pruned", changed, l.n,
			untracked)
	}
	if !l.unchanged() {
		l.Error("Argo CD's own work is taken for a drift")
	}
	l.lap("a change synced: %d changed, %d untracked", changed, untracked)
}

// releaseAll gives the Applications back.
func (l *load) releaseAll() {
	l.Helper()
	workloads, syncs, writes := l.workloads(), l.syncs(), len(l.writes())
	started := time.Now()
	l.each(l.rows, func(row mirror.Row) {
		for {
			done, err := l.e.Delete(l.Context(), row, l.lease)
			if err != nil {
				l.Errorf("%v", err)
			}
			if done || err != nil {
				return
			}
		}
	})
	seconds := time.Since(started).Seconds()
	l.until("all are compared where they were", func() bool {
		return !slices.ContainsFunc(l.all(), func(a loadApp) bool {
			return a.busy() || a.Spec.Project != "legacy" ||
				a.Status.Sync.ComparedTo.Destination.Server != l.cluster.Server
		})
	})
	for _, a := range l.all() {
		for key := range a.Metadata.Annotations {
			if strings.HasPrefix(key, "argosy.dev/") {
				l.Errorf("%s keeps %s", a.Metadata.Name, key)
			}
		}
		if !slices.Contains(a.Metadata.Finalizers, cascadeFinalizer) {
			l.Errorf("%s has not got its finalizer back", a.Metadata.Name)
		}
	}
	l.untouched("the release", workloads, syncs, writes)
	l.lap("released; the writes took %.1f s", seconds)
}
