package stack

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Accounts in an instance's namespace.
const (
	controllerAccount = "argocd-application-controller"
	driverAccount     = "argosy"
)

var (
	readOnly  = []string{"get", "list", "watch"}
	readWrite = append([]string{"create", "update", "patch", "delete"}, readOnly...)
)

// controllerRules are those of Argo CD's own namespace install.
var controllerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: readOnly},
	{APIGroups: []string{"argoproj.io"}, Resources: []string{"applications", "appprojects"},
		Verbs: readWrite},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "list"}},
	{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: readOnly},
}

// setControllerRules are the further ones of the ApplicationSet controller.
var setControllerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"argoproj.io"}, Resources: []string{"applicationsets",
		"applicationsets/status", "applicationsets/finalizers"}, Verbs: readWrite},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"patch"}},
}

var driverRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"argoproj.io"}, Resources: []string{"applications", "appprojects"},
		Verbs: readWrite},
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: readWrite},
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: append([]string{"create"},
		readOnly...)},
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{
		"argosy-emergency-stop"}, Verbs: []string{"patch"}},
	{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "deployments"},
		Verbs: []string{"list"}},
	// to show the resources of Applications: docs/resources.md
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"}},
}

// furtherRules are those of charts/argosy in a namespace with Applications that tenants adopt.
var furtherRules = []rbacv1.PolicyRule{{APIGroups: []string{"argoproj.io"},
	Resources: []string{"applications"}, Verbs: append([]string{"patch", "delete"},
		readOnly...)}}

// install puts everything into the cluster that the processes want to find, and
// writes the two kubeconfigs.
func (a *ArgoCD) install(ctx context.Context) (err error) {
	c := a.options.Cluster
	if a.Version, err = argoRelease(a.options.Version); err != nil {
		return err
	}
	kinds := []string{"application", "appproject"}
	if a.options.ApplicationSets {
		kinds = append(kinds, "applicationset")
	}
	if err := c.installArgoCRDs(ctx, a.options.Version, kinds...); err != nil {
		return err
	}
	kubeconfig := c.KubeconfigFor
	if a.options.Via != nil {
		kubeconfig = a.options.Via.KubeconfigFor
	}
	rules := controllerRules
	if a.options.ApplicationSetController {
		rules = slices.Concat(rules, setControllerRules)
	}
	if err := a.access(ctx, controllerAccount, a.controllerKubeconfig(), rules,
		kubeconfig); err != nil {
		return err
	}
	a.Kubeconfig = filepath.Join(a.Dir, "argosy.kubeconfig")
	if err := a.access(ctx, driverAccount, a.Kubeconfig, driverRules, c.KubeconfigFor); err != nil {
		return err
	}
	for _, namespace := range a.options.ApplicationNamespaces {
		if err := c.allow(ctx, namespace, a.Namespace, driverAccount, furtherRules); err != nil {
			return err
		}
	}
	if a.options.ClusterAdmin {
		if err := c.Apply(ctx, a.clusterAdmin()); err != nil {
			return err
		}
	}
	if err := c.Apply(ctx, a.secret(), lockedProject(a.Namespace)); err != nil {
		return err
	}
	if a.options.Notifications != nil {
		if err := c.Apply(ctx, &corev1.Secret{
			ObjectMeta: a.meta("argocd-notifications-secret")}); err != nil {
			return err
		}
	}
	for name, data := range a.configMaps() {
		if err := c.Apply(ctx, &corev1.ConfigMap{ObjectMeta: a.meta(name),
			Data: data}); err != nil {
			return err
		}
	}
	return nil
}

// access makes an account with rights in the instance's namespace only, and a
// kubeconfig file for it.
func (a *ArgoCD) access(ctx context.Context, account, file string, rules []rbacv1.PolicyRule,
	kubeconfig func(token, namespace string) ([]byte, error),
) error {
	c := a.options.Cluster
	token, err := c.account(ctx, a.Namespace, account)
	if err != nil {
		return err
	}
	if err := c.allow(ctx, a.Namespace, a.Namespace, account, rules); err != nil {
		return err
	}
	text, err := kubeconfig(token, a.Namespace)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func (a *ArgoCD) clusterAdmin() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.Namespace + "-application-controller"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace,
			Name: controllerAccount}},
	}
}

// meta carries the label by which Argo CD finds its settings.
func (a *ArgoCD) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: a.Namespace, Labels: map[string]string{
		"app.kubernetes.io/part-of": "argocd", "app.kubernetes.io/name": name,
	}}
}

func (a *ArgoCD) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: a.meta("argocd-secret"), Data: map[string][]byte{
		"server.secretkey": []byte(rand.Text())}}
}

// configMaps are all that the components look for; those that are empty must
// exist nevertheless.
func (a *ArgoCD) configMaps() map[string]map[string]string {
	settings := map[string]string{
		"application.resourceTrackingMethod": "annotation",
		"installationID":                     a.InstallationID,
		"timeout.reconciliation":             a.options.Refresh.Truncate(time.Second).String(),
	}
	params := map[string]string{}
	if further := a.options.ApplicationNamespaces; len(further) > 0 {
		params["application.namespaces"] = strings.Join(further, ",")
	}
	if !a.options.Open {
		settings["jsonnet.enable"], settings["helm.valuesFileSchemes"] = "false", ""
		params["reposerver.enable.git.submodule"] = "false"
	}
	maps.Copy(settings, a.options.Settings)
	certificates := map[string]string{}
	for host, ca := range a.options.TrustedCAs {
		certificates[host] = string(ca)
	}
	all := map[string]map[string]string{
		"argocd-cm":                 settings,
		"argocd-tls-certs-cm":       certificates,
		"argocd-rbac-cm":            nil,
		"argocd-ssh-known-hosts-cm": nil,
		"argocd-gpg-keys-cm":        nil,
		"argocd-cmd-params-cm":      params,
	}
	if a.options.Notifications != nil {
		all["argocd-notifications-cm"] = a.options.Notifications
	}
	return all
}

// lockedProject is the project that Applications without one fall into. Argo
// CD's own admits everything.
func lockedProject(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "AppProject",
		"metadata":   map[string]any{"name": "default", "namespace": namespace},
		"spec":       map[string]any{"sourceRepos": []any{}, "destinations": []any{}},
	}}
}
