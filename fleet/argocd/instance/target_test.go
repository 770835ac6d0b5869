package instance_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

const controller = "argocd-application-controller"

var (
	crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	projects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "appprojects"}
)

// lab is a namespace of a real cluster whose controllers run the workloads of an Argo CD.
type lab struct {
	*testing.T
	cluster   *stack.Cluster
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
	open      bool // the gate
	epoch     int64
	size      *fleet.InstanceSize
	target    *instance.Target
}

func newLab(t *testing.T, namespace string) *lab {
	t.Helper()
	l := &lab{T: t, cluster: cluster(t), namespace: namespace, open: true, epoch: 5}
	l.client = l.cluster.Client()
	var err error
	l.dynamic, err = dynamic.NewForConfig(l.cluster.REST())
	check(t, err)
	l.target, err = instance.Open(l.cluster.REST(), namespace, namespace, l.gate)
	check(t, err)
	return l
}

var errClosed = errors.New("the gate is closed")

func (l *lab) gate() error {
	if !l.open {
		return errClosed
	}
	return nil
}

func (l *lab) step(minor string) (instance.Result, error) {
	l.Helper()
	m, digest := published(l.T, minor)
	return l.target.Apply(l.Context(), instance.Order{Manifests: m, Digest: digest, Size: l.size,
		Epoch: l.epoch})
}

// settle takes steps until the Pods are ready. It returns the changed objects.
func (l *lab) settle(minor string) (changed []string) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	if left := stack.Until(ctx, func() string {
		r, err := l.step(minor)
		check(l.T, err)
		changed = append(changed, r.Changed...)
		return r.Waits
	}); left != "" {
		l.Fatal(left)
	}
	return changed
}

// pods returns the UIDs of all Pods, sorted.
func (l *lab) pods() (all []types.UID) {
	l.Helper()
	list, err := l.client.CoreV1().Pods(l.namespace).List(l.Context(), metav1.ListOptions{})
	check(l.T, err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			all = append(all, p.UID)
		}
	}
	slices.Sort(all)
	return all
}

func (l *lab) image() string {
	l.Helper()
	s, err := l.client.AppsV1().StatefulSets(l.namespace).Get(l.Context(), controller,
		metav1.GetOptions{})
	check(l.T, err)
	return s.Spec.Template.Spec.Containers[0].Image
}

func (l *lab) crdVersion() string {
	l.Helper()
	o, err := l.dynamic.Resource(crds).Get(l.Context(), "applications.argoproj.io",
		metav1.GetOptions{})
	check(l.T, err)
	return o.GetAnnotations()["argosy.dev/argocd-version"]
}

func TestAnInstanceIsInstalledUpgradedAndReturned(t *testing.T) {
	l := newLab(t, "upgraded")
	if changed := l.settle("2.14"); !slices.Contains(changed, "StatefulSet "+controller) ||
		!slices.Contains(changed, "AppProject default") {
		t.Errorf("changed %v", changed)
	}
	if v, digest, err := l.target.Version(t.Context()); v != "2.14.21" || digest == "" ||
		err != nil {
		t.Errorf("version %s, %s, %v", v, digest, err)
	}
	key := l.key()
	before := l.pods()
	if len(before) != 3 {
		t.Fatalf("%d Pods", len(before))
	}
	if changed := l.settle("2.14"); len(changed) > 0 || !slices.Equal(before, l.pods()) {
		t.Errorf("a second time, it changed %v", changed)
	}
	l.settle("3.5")
	if !strings.HasSuffix(l.image(), ":v3.5.7") || l.crdVersion() != "3.5.7" {
		t.Errorf("image %s, CustomResourceDefinitions of %s", l.image(), l.crdVersion())
	}
	l.settle("2.14")
	if !strings.HasSuffix(l.image(), ":v2.14.21") || l.crdVersion() != "3.5.7" {
		t.Errorf("returned: image %s, CustomResourceDefinitions of %s", l.image(), l.crdVersion())
	}
	if l.key() != key {
		t.Error("the key of argocd-secret has changed")
	}
}

func (l *lab) key() string {
	l.Helper()
	s, err := l.client.CoreV1().Secrets(l.namespace).Get(l.Context(), "argocd-secret",
		metav1.GetOptions{})
	check(l.T, err)
	if len(s.Data["server.secretkey"]) < 40 {
		l.Error("argocd-secret has no key")
	}
	return string(s.Data["server.secretkey"])
}

func TestDriftIsCorrectedAndWhatOthersSetStays(t *testing.T) {
	l := newLab(t, "drifted")
	l.settle("3.5")
	ctx := t.Context()
	patch := func(resource, name, body string) {
		t.Helper()
		var err error
		switch resource {
		case "configmaps":
			_, err = l.client.CoreV1().ConfigMaps(l.namespace).Patch(ctx, name,
				types.MergePatchType, []byte(body), metav1.PatchOptions{})
		case "statefulsets":
			_, err = l.client.AppsV1().StatefulSets(l.namespace).Patch(ctx, name,
				types.MergePatchType, []byte(body), metav1.PatchOptions{})
		case "appprojects":
			_, err = l.dynamic.Resource(projects).Namespace(l.namespace).Patch(ctx, name,
				types.MergePatchType, []byte(body), metav1.PatchOptions{})
		}
		check(t, err)
	}
	patch("configmaps", "argocd-cm", `{"data":{"application.resourceTrackingMethod":"label",`+
		`"installationID":"other","ui.bannercontent":"ours"}}`)
	patch("appprojects", "default", `{"spec":{"sourceRepos":["*"]}}`)
	patch("statefulsets", controller, `{"spec":{"replicas":2}}`)
	check(t, l.client.AppsV1().Deployments(l.namespace).Delete(ctx, "argocd-repo-server",
		metav1.DeleteOptions{}))
	changed := l.settle("3.5")
	slices.Sort(changed)
	if want := []string{"AppProject default", "ConfigMap argocd-cm",
		"Deployment argocd-repo-server"}; !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	cm, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(ctx, "argocd-cm", metav1.GetOptions{})
	check(t, err)
	if cm.Data["application.resourceTrackingMethod"] != "annotation" ||
		cm.Data["installationID"] != "drifted" || cm.Data["ui.bannercontent"] != "ours" {
		t.Errorf("argocd-cm %v", cm.Data)
	}
	p, err := l.dynamic.Resource(projects).Namespace(l.namespace).Get(ctx, "default",
		metav1.GetOptions{})
	check(t, err)
	if repos, _, _ := unstructured.NestedSlice(p.Object, "spec", "sourceRepos"); len(repos) != 0 {
		t.Errorf("the project default permits %v", repos)
	}
	s, err := l.client.AppsV1().StatefulSets(l.namespace).Get(ctx, controller, metav1.GetOptions{})
	check(t, err)
	if *s.Spec.Replicas != 2 {
		t.Errorf("%d shards, a person has set 2", *s.Spec.Replicas)
	}
}

// handApplied installs the objects of a version as another field manager.
func (l *lab) handApplied(minor string) {
	l.Helper()
	m, _ := published(l.T, minor)
	s, err := m.Stages(instance.Settings{Namespace: l.namespace, InstallationID: l.namespace,
		Base: instance.Settings{}.Digest()})
	check(l.T, err)
	_, err = l.client.CoreV1().Namespaces().Create(l.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}, metav1.CreateOptions{})
	check(l.T, err)
	for _, o := range s.Objects {
		o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
		resource := strings.ToLower(o.GetKind()) + "s"
		if o.GetKind() == "NetworkPolicy" {
			resource = "networkpolicies"
		}
		group := o.GroupVersionKind()
		_, err := l.dynamic.Resource(schema.GroupVersionResource{Group: group.Group,
			Version: group.Version, Resource: resource}).Namespace(l.namespace).Create(l.Context(),
			o, metav1.CreateOptions{FieldManager: "helm"})
		check(l.T, err)
	}
}

func TestAnInstanceAppliedByHandIsTakenOverAndGivenBack(t *testing.T) {
	l := newLab(t, "adopted")
	l.handApplied("3.5")
	ctx := t.Context()
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if left := stack.Until(wait, func() string {
		if len(l.pods()) != 3 {
			return "no Pods"
		}
		return ""
	}); left != "" {
		t.Fatal(left)
	}
	// a server that Argosy does not run stays a person's
	_, err := l.client.AppsV1().Deployments(l.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-server", Labels: map[string]string{
			"app.kubernetes.io/part-of": "argocd"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
				Image: "quay.io/argoproj/argocd:v3.5.7"}}}}}}, metav1.CreateOptions{})
	check(t, err)
	before := l.pods()
	l.settle("3.5")
	if !slices.Equal(before, l.pods()) {
		t.Errorf("Pods %v, before %v", l.pods(), before)
	}
	check(t, l.target.Release(ctx, l.epoch))
	check(t, l.target.Release(ctx, l.epoch)) // again
	if v, _, err := l.target.Version(ctx); v != "" || err != nil {
		t.Errorf("inventory of %s, %v", v, err)
	}
	if !slices.Equal(before, l.pods()) || !strings.HasSuffix(l.image(), ":v3.5.7") {
		t.Errorf("given back: Pods %v, image %s", l.pods(), l.image())
	}
	if _, err := l.client.AppsV1().Deployments(l.namespace).Get(ctx, "argocd-server",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestOtherSettingsOfATakenOverInstanceReplaceItsPods(t *testing.T) {
	l := newLab(t, "different")
	l.handApplied("3.5")
	_, err := l.client.CoreV1().ConfigMaps(l.namespace).Patch(t.Context(), "argocd-cmd-params-cm",
		types.MergePatchType, []byte(`{"data":{"controller.status.processors":"7"}}`),
		metav1.PatchOptions{})
	check(t, err)
	l.settle("3.5")
	s, err := l.client.AppsV1().StatefulSets(l.namespace).Get(t.Context(), controller,
		metav1.GetOptions{})
	check(t, err)
	if s.Spec.Template.Annotations["argosy.dev/settings"] != (instance.Settings{}).Digest() {
		t.Errorf("the controller goes on with other parameters: %v", s.Spec.Template.Annotations)
	}
}

func TestAnUpgradeDeletesOnlyWhatItHasAppliedAndTheVersionLacks(t *testing.T) {
	l := newLab(t, "pruned")
	l.settle("3.5")
	ctx := t.Context()
	inventory, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(ctx, instance.Inventory,
		metav1.GetOptions{})
	check(t, err)
	made := func(name string, labels map[string]string) {
		t.Helper()
		_, err := l.client.CoreV1().ServiceAccounts(l.namespace).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		check(t, err)
		inventory.Data["objects"] = strings.Replace(inventory.Data["objects"], "[",
			`[{"apiVersion":"v1","kind":"ServiceAccount","name":"`+name+`"},`, 1)
	}
	made("dropped", map[string]string{"argosy.dev/instance": l.namespace})
	made("foreign", nil)
	inventory.Data["objects"] = strings.Replace(inventory.Data["objects"], "[",
		`[{"apiVersion":"v1","kind":"Secret","name":"argocd-secret"},`, 1)
	_, err = l.client.CoreV1().ConfigMaps(l.namespace).Update(ctx, inventory,
		metav1.UpdateOptions{})
	check(t, err)
	if changed := l.settle("3.5"); !slices.Equal(changed, []string{"ServiceAccount dropped"}) {
		t.Errorf("changed %v", changed)
	}
	l.key()
	if _, err := l.client.CoreV1().ServiceAccounts(l.namespace).Get(ctx, "foreign",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAFormerWriterAndAClosedGateWriteNothing(t *testing.T) {
	l := newLab(t, "fenced")
	l.open = false
	_, err := l.step("3.5")
	if !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
	if _, err := l.client.CoreV1().Namespaces().Get(t.Context(), l.namespace,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace exists: %v", err)
	}
	l.open, l.epoch = true, 7
	l.settle("3.5")
	l.epoch = 6
	if _, err := l.step("2.14"); !errors.Is(err, instance.ErrSuperseded) ||
		!strings.HasSuffix(l.image(), ":v3.5.7") {
		t.Errorf("error %v, image %s", err, l.image())
	}
	if err := l.target.Release(t.Context(), 6); !errors.Is(err, instance.ErrSuperseded) {
		t.Errorf("error %v", err)
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	l := newLab(t, "rightless")
	_, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}, metav1.CreateOptions{})
	check(t, err)
	role := metav1.ObjectMeta{Name: "some", Namespace: l.namespace}
	_, err = l.client.RbacV1().Roles(l.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: role,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "create", "update", "patch"}}}}, metav1.CreateOptions{})
	check(t, err)
	config := l.cluster.REST()
	config.Impersonate.UserName = "someone"
	_, err = l.client.RbacV1().RoleBindings(l.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
			Name: "some"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "someone"}}},
		metav1.CreateOptions{})
	check(t, err)
	l.target, err = instance.Open(config, l.namespace, l.namespace, l.gate)
	check(t, err)
	_, err = l.step("3.5")
	if !errors.Is(err, instance.ErrRefused) {
		t.Errorf("error %v", err)
	}
	wantError(t, err, "customresourcedefinitions")
}

// The rights of docs/rings.md suffice for an installation, an upgrade and a release.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	l := newLab(t, "documented")
	text, err := os.ReadFile("../../../docs/rings.md")
	check(t, err)
	_, text, _ = bytes.Cut(text, []byte("## Rights"))
	_, text, _ = bytes.Cut(text, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	ctx := t.Context()
	meta := metav1.ObjectMeta{Name: l.namespace}
	_, err = l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta},
		metav1.CreateOptions{})
	check(t, err)
	user := []rbacv1.Subject{{Kind: "User", Name: l.namespace}}
	var granted []stack.Right
	for i, part := range bytes.Split(text, []byte("---\n")) {
		role := &rbacv1.ClusterRole{}
		check(t, yaml.Unmarshal(part, role))
		_, err := l.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		check(t, err)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		if i == 0 {
			_, err = l.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: ref, Subjects: user}, metav1.CreateOptions{})
		} else {
			_, err = l.client.RbacV1().RoleBindings(l.namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, RoleRef: ref, Subjects: user}, metav1.CreateOptions{})
		}
		check(t, err)
		granted = append(granted, stack.Rights("", role.Rules)...)
	}
	config := l.cluster.REST()
	config.Impersonate.UserName = l.namespace
	l.target, err = instance.Open(config, l.namespace, l.namespace, l.gate)
	check(t, err)
	l.settle("2.14")
	l.settle("3.5")
	check(t, l.target.Release(ctx, l.epoch))
	if len(granted) < 20 {
		t.Errorf("the page grants %v", granted)
	}
}
