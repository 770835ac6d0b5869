package original_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/adoption"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/test/stack"
)

// A person imports a live Argo CD of two tenants and runs the commands of the report one by one:
// each works, and then Argosy may request the tokens that it needs and no others. An account that
// may not list one kind gets the rest, and the report names the kind.
func TestTheCommandsOfAnImportWorkInTheirOrder(t *testing.T) {
	t.Parallel()
	kubectl, err := stack.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	cluster, err := stack.StartCluster(ctx, stack.ClusterOptions{Name: "commands"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	if err := cluster.InstallArgoCRDs(ctx, stack.ArgoVersions[0]); err != nil {
		t.Fatal(err)
	}
	fill(t, cluster)
	config, err := original.Kubeconfig(cluster.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	objects, unread, err := original.Read(ctx, config, "", nil)
	if err != nil || len(unread) > 0 {
		t.Fatalf("%v, unread %q", err, unread)
	}
	outcome := importedFor(t, objects, "ops")
	for _, o := range outcome.Report.Objects {
		if o.Status == adoption.Refused {
			t.Errorf("%s %s: %s", o.Kind, o.Name, o.Reason)
		}
	}
	for _, command := range append(outcome.Report.Commands, clusterScoped(t)) {
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig,
			"PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	client := cluster.Client()
	secret, err := client.CoreV1().Secrets("argosy-tenant-shop").Get(ctx, "git",
		metav1.GetOptions{})
	if err != nil || string(secret.Data["password"]) != "example-password" {
		t.Errorf("the credential is not copied: %v %v", secret, err)
	}
	for _, ns := range []string{"web", "kube-system"} {
		bindings, err := client.RbacV1().RoleBindings(ns).List(ctx, metav1.ListOptions{})
		for _, role := range []string{"admin", "argosy-reads"} {
			if err != nil || !slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
				return strings.HasPrefix(b.Name, "argosy-") && b.RoleRef.Name == role
			}) {
				t.Errorf("no account has role %s in %s: %v", role, ns, err)
			}
		}
	}
	lists(t, cluster.REST())
	requests(t, cluster.REST())
	halfRead(t, cluster)
}

// fill creates the objects of an Argo CD of two tenants, and the service account of a control
// plane.
func fill(t *testing.T, cluster *stack.Cluster) {
	t.Helper()
	for _, ns := range []string{"argocd-import", "argosy"} {
		if err := cluster.CreateNamespace(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	app := func(name, project, namespace string) string {
		return strings.NewReplacer("project: shop", "project: "+project, "namespace: NAME}",
			"namespace: "+namespace+"}", "NAME", name).Replace(child)
	}
	for _, text := range []string{app("web", "shop", "web"), app("blog", "blog", "blog"),
		app("dns", "shop", "kube-system")} {
		if err := cluster.Apply(t.Context(), object(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Apply(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "repo-git", Namespace: "argocd-import",
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "repository"}},
		StringData: map[string]string{"type": "git", "url": "https://git.example.com/acme/web",
			"username": "reader", "password": "example-password"},
	}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "argosy",
		Namespace: "argosy"}}); err != nil {
		t.Fatal(err)
	}
}

// clusterScoped returns the commands of docs/clusters.md that let the account of environment main
// of tenant shop list the cluster-scoped kinds.
func clusterScoped(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile("../../../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin = "```sh\nkubectl create clusterrole argosy-reads-cluster "
	_, rest, found := strings.Cut(string(guide), begin)
	text, _, ended := strings.Cut(rest, "\n```")
	if !found || !ended {
		t.Fatal("docs/clusters.md has no such command")
	}
	return strings.NewReplacer("acme", "shop", "prod", "main").Replace(
		strings.TrimPrefix(begin, "```sh\n") + text)
}

// lists checks that an account may list and watch every kind that Argo CD reads: all in its
// namespaces and the cluster-scoped ones. It may list nothing else, and delete nothing there.
func lists(t *testing.T, config *rest.Config) {
	t.Helper()
	config.Impersonate.UserName = "system:serviceaccount:argosy-tenant-shop:main"
	client := kubernetes.NewForConfigOrDie(config)
	for _, c := range []struct {
		namespace, verb, group, resource string
		may                              bool
	}{
		{"web", "list", "*", "*", true}, {"web", "watch", "*", "*", true},
		{"web", "get", "*", "*", false}, {"web", "delete", "example.com", "widgets", false},
		{"web", "delete", "apps", "deployments", true},
		{"blog", "list", "", "secrets", false}, {"", "list", "", "secrets", false},
		{"", "list", "", "nodes", true},
		{"", "watch", "rbac.authorization.k8s.io", "clusterroles", true},
		{"", "list", "apiextensions.k8s.io", "customresourcedefinitions", true},
		{"", "delete", "", "nodes", false},
	} {
		ask := func() bool {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: c.namespace, Verb: c.verb, Group: c.group,
							Resource: c.resource}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return review.Status.Allowed
		}
		may := ask()
		for end := time.Now().Add(2 * time.Minute); c.may && !may &&
			time.Now().Before(end); may = ask() {
			<-time.After(time.Second)
		}
		if may != c.may {
			t.Errorf("%s %s.%s in %q: %t", c.verb, c.resource, c.group, c.namespace, may)
		}
	}
}

// requests has the control plane request a token of an environment, and of an account that is not
// Argosy's to use.
func requests(t *testing.T, config *rest.Config) {
	t.Helper()
	config.Impersonate.UserName = "system:serviceaccount:argosy:argosy"
	client := kubernetes.NewForConfigOrDie(config)
	for account, want := range map[string]bool{"argosy-tenant-shop/main": true,
		"argosy-tenant-blog/main": true, "argosy-tenant-ops/main": true,
		"kube-system/default": false} {
		namespace, name, _ := strings.Cut(account, "/")
		request := func() error {
			_, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
				&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		}
		err := request()
		// the authorizer learns of a new Role a moment later
		for end := time.Now().Add(2 * time.Minute); want && apierrors.IsForbidden(err) &&
			time.Now().Before(end); err = request() {
			<-time.After(time.Second)
		}
		if (err == nil) != want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("a token of %s: %v", account, err)
		}
	}
}

// halfRead reads with an account that may list all kinds but one.
func halfRead(t *testing.T, cluster *stack.Cluster) {
	t.Helper()
	kinds := []string{"applications", "applicationsets", "appprojects", "secrets"}
	for _, denied := range kinds {
		user := "without-" + denied
		granted := slices.DeleteFunc(slices.Clone(kinds), func(k string) bool {
			return k == denied
		})
		meta := metav1.ObjectMeta{Name: user}
		if err := cluster.Apply(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"", "argoproj.io"},
				Resources: granted, Verbs: []string{"list"}}}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user,
					APIGroup: rbacv1.GroupName}}}); err != nil {
			t.Fatal(err)
		}
		config := cluster.REST()
		config.Impersonate.UserName = user
		if objects, unread, err := readGranted(t.Context(), config); err != nil ||
			len(unread) != 1 || !strings.Contains(unread[0], denied) || len(objects) == 0 {
			t.Errorf("without %s: %d objects, unread %q, %v", denied, len(objects), unread, err)
		}
	}
}

// readGranted reads again until a new grant has reached the API server's authorizer.
func readGranted(ctx context.Context, config *rest.Config) (objects []map[string]any,
	unread []string, err error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		objects, unread, err = original.Read(ctx, config, "", nil)
		if err == nil && len(unread) == 1 || time.Now().After(end) {
			return objects, unread, err
		}
	}
}

func importedFor(t *testing.T, objects []map[string]any, platform string) *adoption.Outcome {
	t.Helper()
	var in adoption.Input
	for _, o := range objects {
		in.Originals = append(in.Originals, adoption.FromObject("", o)...)
	}
	o := options
	o.PlatformTenant = platform
	outcome, err := adoption.Import(in, o, tools)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}
