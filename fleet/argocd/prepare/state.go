package prepare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keys of argocd-cm that decide which resources Argo CD tracks.
const (
	settingsName    = "argocd-cm"
	methodKey       = "application.resourceTrackingMethod"
	installationKey = "installationID"
	labelKey        = "application.instanceLabelKey"
)

// Methods of resource tracking. With both, Argo CD reads the annotation and writes the label too.
const (
	byLabel      = "label"
	byAnnotation = "annotation"
	byBoth       = "annotation+label"
)

// Annotations of Argo CD.
const (
	trackingID     = "argocd.argoproj.io/tracking-id"
	installationID = "argocd.argoproj.io/installation-id"
	skipReconcile  = "argocd.argoproj.io/skip-reconcile"
	refresh        = "argocd.argoproj.io/refresh"
	lastApplied    = "kubectl.kubernetes.io/last-applied-configuration"
)

// Annotations of the procedure, which hold the state that an undo restores.
const (
	beforePrepare    = "argosy.dev/before-prepare"
	pausedAutomation = "argosy.dev/paused-automation"
)

const defaultProject = "default"

var (
	applications = argo("applications")
	projects     = argo("appprojects")
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func argo(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: plural}
}

// state is the live Argo CD as one read found it.
type state struct {
	settings     *unstructured.Unstructured
	method       string // in force
	installation string
	label        string // key of the tracking label
	project      *unstructured.Unstructured
	apps         []*application
	unread       []string // why a part could not be read, with the next step
	clusters     map[string]bool
}

// application is a live Application that this Argo CD serves.
type application struct {
	object     *unstructured.Unstructured
	instance   string // the name by which its resources name it
	project    string
	server     string // or the name of the cluster
	target     string // namespace of its destination
	set        string // the ApplicationSet that owns it
	automation map[string]any
	paused     bool // by this procedure
	skipped    bool // others have set skip-reconcile
	leftOut    bool
	resources  []*resource
}

// resource is one entry of an Application's status with its live object.
type resource struct {
	key        key
	version    string
	status     string
	namespaced bool
	plural     schema.GroupVersionResource
	cluster    *cluster
	live       *metav1.PartialObjectMetadata // nil: absent
}

type key struct{ group, kind, namespace, name string }

func (k key) String() string {
	name := k.name
	if k.namespace != "" {
		name = k.namespace + "/" + k.name
	}
	return k.kind + " " + name
}

func (a *application) name() string {
	return a.object.GetNamespace() + "/" + a.object.GetName()
}

func (a *application) status(path ...string) string {
	text, _, _ := unstructured.NestedString(a.object.Object, append([]string{"status"}, path...)...)
	return text
}

// revision is the commit, or commits, that Argo CD compared last.
func (a *application) revision() string {
	all, _, _ := unstructured.NestedStringSlice(a.object.Object, "status", "sync", "revisions")
	return cmp.Or(a.status("sync", "revision"), strings.Join(all, ","))
}

func (a *application) syncing() bool {
	_, requested := a.object.Object["operation"]
	return requested || a.status("operationState", "phase") == "Running"
}

// automated reports whether Argo CD syncs the Application by itself.
func (a *application) automated() bool {
	return a.automation != nil && a.automation["enabled"] != false
}

// tracking is the value of the tracking annotation that Argo CD writes to the resource.
func (a *application) tracking(r *resource) string {
	return fmt.Sprintf("%s:%s/%s:%s/%s", a.instance, r.key.group, r.key.kind,
		cmp.Or(r.key.namespace, a.target), r.key.name)
}

// newApplication reads the fields of an Application. Argo CD names one in another namespace than
// its own by both.
func newApplication(
	u *unstructured.Unstructured,
	namespace string,
	leaveOut []string,
) *application {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	a := &application{object: u, instance: u.GetName(),
		project: cmp.Or(text("spec", "project"), defaultProject),
		server: cmp.Or(text("spec", "destination", "server"),
			text("spec", "destination", "name")),
		target: text("spec", "destination", "namespace")}
	if u.GetNamespace() != namespace {
		a.instance = u.GetNamespace() + "_" + u.GetName()
	}
	for _, o := range u.GetOwnerReferences() {
		if o.Kind == "ApplicationSet" {
			a.set = o.Name
		}
	}
	policy, _, _ := unstructured.NestedMap(u.Object, "spec", "syncPolicy")
	a.automation, _ = policy["automated"].(map[string]any)
	annotations := u.GetAnnotations()
	_, a.paused = annotations[pausedAutomation]
	a.skipped = annotations[skipReconcile] == "true"
	a.leftOut = slices.Contains(leaveOut, u.GetName()) || slices.Contains(leaveOut, a.name())
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "resources")
	for _, one := range all {
		m, _ := one.(map[string]any)
		field := func(name string) string { s, _ := m[name].(string); return s }
		r := &resource{key: key{field("group"), field("kind"), field("namespace"), field("name")},
			version: field("version"), status: field("status")}
		if r.key.kind == "CustomResourceDefinition" && r.key.group == "apiextensions.k8s.io" {
			continue // Argo CD never tracks them
		}
		a.resources = append(a.resources, r)
	}
	return a
}

// read reads everything that the procedure decides from. An Application or cluster that cannot be
// read completely is in state.unread; err means that nothing can be decided.
func (p *preparer) read(ctx context.Context) (*state, error) {
	s := &state{clusters: map[string]bool{}}
	var err error
	own := p.home.dynamic
	if s.settings, err = own.Resource(configMaps).Namespace(p.Namespace).Get(ctx, settingsName,
		metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("ConfigMap %s in namespace %s: %w", settingsName, p.Namespace, err)
	}
	data, _, _ := unstructured.NestedStringMap(s.settings.Object, "data")
	s.installation = data[installationKey]
	s.label = cmp.Or(data[labelKey], "app.kubernetes.io/instance")
	if s.method, err = p.methodOf(data[methodKey]); err != nil {
		return nil, err
	}
	s.project, err = own.Resource(projects).Namespace(p.Namespace).Get(ctx, defaultProject,
		metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("AppProject default in namespace %s: %w", p.Namespace, err)
	}
	if apierrors.IsNotFound(err) {
		s.project = nil
	}
	if s.apps, err = p.readApplications(ctx); err != nil {
		return nil, err
	}
	if err := p.readClusters(ctx); err != nil {
		return nil, err
	}
	p.readResources(ctx, s)
	return s, ctx.Err()
}

// methodOf returns the tracking method in force. Argo CD 3 tracks by annotation unless it is set,
// Argo CD 2 by label.
func (p *preparer) methodOf(set string) (string, error) {
	switch {
	case set == byLabel, set == byAnnotation, set == byBoth:
		return set, nil
	case set != "":
		return "", fmt.Errorf(
			"%s in %s is %q; set label, annotation or annotation+label",
			methodKey,
			settingsName,
			set,
		)
	case strings.HasPrefix(strings.TrimPrefix(p.Version, "v"), "3."):
		return byAnnotation, nil
	case strings.HasPrefix(strings.TrimPrefix(p.Version, "v"), "2."):
		return byLabel, nil
	}
	return "", fmt.Errorf("the version of Argo CD is unknown, and so is how it tracks resources; "+
		"set %s in %s to what it is now: label is the default of 2.x, annotation of 3.x",
		methodKey, settingsName)
}

const pageSize = 500

// readApplications lists the Applications that this instance serves: those of its own namespace,
// and those of others that its controller has signed.
func (p *preparer) readApplications(ctx context.Context) (all []*application, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := p.home.dynamic.Resource(applications).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("failed to list Applications in all namespaces, which "+
				"takes an administrator's kubeconfig: %w", err)
		}
		for i := range page.Items {
			u := &page.Items[i]
			controller, _, _ := unstructured.NestedString(u.Object, "status",
				"controllerNamespace")
			if u.GetNamespace() == p.Namespace || controller == p.Namespace {
				all = append(all, newApplication(u, p.Namespace, p.LeaveOut))
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// readResources reads the metadata of the live objects of all Applications.
func (p *preparer) readResources(ctx context.Context, s *state) {
	type job struct {
		app *application
		r   *resource
	}
	var jobs []job
	for _, a := range s.apps {
		if a.leftOut || len(a.resources) == 0 {
			continue
		}
		c, err := p.clusterOf(a.server)
		if err != nil {
			s.unread = append(s.unread, fmt.Sprintf("Application %s: %s", a.name(), err))
			continue
		}
		s.clusters[c.name] = true
		for _, r := range a.resources {
			r.cluster = c
			jobs = append(jobs, job{a, r})
		}
	}
	errs := each(ctx, len(jobs), func(i int) error { return jobs[i].r.read(ctx) })
	broken := map[string]int{}
	for i, err := range errs {
		if err == nil {
			continue
		}
		a := jobs[i].app
		if broken[a.name()]++; broken[a.name()] == 1 {
			s.unread = append(s.unread, fmt.Sprintf("Application %s: %s on cluster %s: %s",
				a.name(), jobs[i].r.key, jobs[i].r.cluster.name, err))
		}
	}
}

func (r *resource) read(ctx context.Context) error {
	var err error
	if r.plural, r.namespaced, err = r.cluster.find(
		r.key.group,
		r.version,
		r.key.kind,
	); err != nil {
		if errors.Is(err, errNoKind) {
			return nil // neither the kind nor the object exists
		}
		return err
	}
	r.live, err = r.objects().Get(ctx, r.key.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.live, err = nil, nil
	}
	return err
}

// tracked reports whether Argo CD counts the live object to the Application under these settings.
func (r *resource) tracked(a *application, s *state) bool {
	if s.method == byLabel {
		return r.live.Labels[s.label] == a.instance
	}
	return r.named(a) && r.live.Annotations[installationID] == s.installation
}

// named reports whether the object has the tracking annotation of the Application.
func (r *resource) named(a *application) bool {
	name, _, found := strings.Cut(r.live.Annotations[trackingID], ":")
	return found && name == a.instance
}

// belongs reports whether the object is the Application's, tracked now or before a change of the
// settings.
func (r *resource) belongs(a *application, s *state) bool {
	return r.tracked(a, s) || s.method != byLabel && (r.named(a) ||
		r.live.Annotations[trackingID] == "" && r.live.Labels[s.label] == a.instance)
}

// lacks returns the annotations that the live object needs to be tracked under the wanted settings.
func (r *resource) lacks(a *application, s *state, want string) map[string]any {
	if r.live == nil || !r.belongs(a, s) {
		return nil
	}
	out := map[string]any{}
	if !r.named(a) {
		out[trackingID] = a.tracking(r)
	}
	if r.live.Annotations[installationID] != want {
		out[installationID] = want
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// foreign returns why the annotations of the live object are another's.
func (r *resource) foreign(a *application, s *state, want string) string {
	if r.live == nil || !r.belongs(a, s) {
		return ""
	}
	id := r.live.Annotations[installationID]
	if id != "" && id != want && id != s.installation {
		return fmt.Sprintf("%s has installation-id %q: another Argo CD tracks it; remove it from "+
			"one of them", r.key, id)
	}
	if other := r.live.Annotations[trackingID]; other != "" && !r.named(a) {
		return fmt.Sprintf("%s has tracking-id %q; if no Application of this name deploys it, "+
			"remove the annotation", r.key, other)
	}
	return ""
}

// recorded is what an undo restores of an object.
func recorded(u *unstructured.Unstructured, out any) (bool, error) {
	if u == nil {
		return false, nil
	}
	text, ok := u.GetAnnotations()[beforePrepare]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return false, fmt.Errorf("annotation %s of %s %s cannot be read: %w", beforePrepare,
			u.GetKind(), u.GetName(), err)
	}
	return true, nil
}

// openProject reports whether AppProject default admits Applications.
func (s *state) openProject() bool {
	if s.project == nil {
		return true // Argo CD creates one that admits everything
	}
	repos, _, _ := unstructured.NestedSlice(s.project.Object, "spec", "sourceRepos")
	destinations, _, _ := unstructured.NestedSlice(s.project.Object, "spec", "destinations")
	return len(repos) > 0 && len(destinations) > 0
}

func secretOf(u *unstructured.Unstructured) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &secret)
	return &secret, err
}
