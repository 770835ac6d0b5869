package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// TestTwoTenantsDeployToAClusterOfThePlatform is about a Cluster that names an API server once.
// Each environment on it has a service account of its own, and Argo CD gets only its token.
func TestTwoTenantsDeployToAClusterOfThePlatform(t *testing.T) {
	f := platform.use(t)
	c := f.Place("eu-1").Cluster
	const path = "fleet/clusters/shared.yaml"
	requester, err := c.TenantToken(t.Context(), "token-requester")
	check(t, err)
	check(t, f.WriteSecret("_fleet", "shared", "token", requester))
	around := map[string]string{path: fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Cluster
metadata: {name: shared}
spec:
  server: %s
  caData: %s
  credentialsRef: {name: shared}
`, c.Server, base64.StdEncoding.EncodeToString(c.CA))}
	tenants := []string{"stark", "umbrella"}
	deployments, ids := map[string]string{}, []string{}
	for _, tenant := range tenants {
		around["fleet/tenants/"+tenant+".yaml"] = fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata: {name: %[1]s}
spec:
  owners: ["github:example/%[1]s"]
  quota: {environments: 5, deployments: 5, applications: 5}
  repositories: [%[2]q]
  clusters: ["cluster:shared"]
  namespaces: [%[1]s-shop]
  placement: {regions: [eu]}
`, tenant, f.Git.URL+"/acme/storefront")
		around["tenants/"+tenant+"/environments/shared.yaml"] = fmt.Sprintf(
			`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: shared, labels: {tier: staging}}
spec:
  cluster: {ref: shared}
  namespaces: [%s-shop]
  region: eu
`, tenant)
		deployments["tenants/"+tenant+"/deployments/shop.yaml"] = f.deployment("shop", "shared",
			tenant+"-shop", "")
		ids = append(ids, tenant+"/shop@shared")
		serviceAccount(t, c, tenant, "shared", tenant+"-shop", "stack-tenants", "token-requester")
	}
	f.commit(t, "a cluster for two tenants", around)
	f.commit(t, "what they deploy", deployments)
	f.allHealthy(t, ids...)
	tokens := map[string]string{}
	for _, tenant := range tenants {
		f.isTokenOf(t, tenant, "shared")
		tokens[tenant] = f.clusterToken(t, tenant)
		if strings.Contains(string(f.secretOn(t, "eu-1", "cluster", tenant)["config"]), requester) {
			t.Error("Argo CD has the credential with which tokens are requested")
		}
	}

	// A token ends with its service account; without its cluster Secret, Argosy requests another.
	engine := f.Place("eu-1").ArgoCD.Namespace
	accounts := c.Client().CoreV1().ServiceAccounts("argosy-tenant-stark")
	check(t, accounts.Delete(t.Context(), "shared", metav1.DeleteOptions{}))
	serviceAccount(t, c, "stark", "shared", "stark-shop", "stack-tenants", "token-requester")
	check(t, c.Client().CoreV1().Secrets(engine).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "argosy.dev/tenant=stark," +
			"argocd.argoproj.io/secret-type=cluster"}))
	eventually(t, "the cluster Secret has another token", func() string {
		if now := f.clusterToken(t, "stark"); now == "" || now == tokens["stark"] {
			return "not yet"
		}
		return ""
	})
	f.isTokenOf(t, "stark", "shared")
	if f.clusterToken(t, "umbrella") != tokens["umbrella"] {
		t.Error("the other tenant has another token, too")
	}
	was, _ := f.workload(t, "eu-1", "stark-shop", "storefront")
	check(t, c.Client().AppsV1().Deployments("stark-shop").Delete(t.Context(), "storefront",
		metav1.DeleteOptions{}))
	eventually(t, "Argo CD heals with the new token", func() string {
		if now, ok := f.workload(t, "eu-1", "stark-shop", "storefront"); !ok || now == was {
			return "the Deployment is not there"
		}
		return ""
	})

	f.remove(t, "nothing is deployed", slices.Sorted(maps.Keys(deployments))...)
	f.allHealthy(t)
	f.remove(t, "no tenant is left", slices.Sorted(maps.Keys(around))...)
	eventually(t, "nothing of them is left on the engine", func() string {
		left, err := c.Client().CoreV1().Secrets(engine).List(t.Context(), metav1.ListOptions{
			LabelSelector: "argosy.dev/tenant in (stark,umbrella)"})
		check(t, err)
		if n := len(left.Items); n > 0 {
			return fmt.Sprintf("%d Secrets", n)
		}
		return ""
	})
	eventually(t, "no problem left", func() string {
		if p := list[fleet.Problem](t, f, "problems"); len(p) > 0 {
			return p[0].String()
		}
		for _, e := range list[view.Environment](t, f, "environments") {
			if e.Tenant == "stark" || e.Tenant == "umbrella" {
				return fmt.Sprintf("environment %s", e.Name)
			}
		}
		return ""
	})
}

// serviceAccount creates the account of an environment with the commands of docs/clusters.md: it is
// admin in a namespace and lists every kind there, and another account may request its tokens.
func serviceAccount(t *testing.T, c *stack.Cluster, tenant, name, namespace, requesterNamespace,
	requester string) {
	t.Helper()
	home := "argosy-tenant-" + tenant
	check(t, c.CreateNamespace(t.Context(), home))
	check(t, c.CreateNamespace(t.Context(), namespace))
	meta := metav1.ObjectMeta{Name: "argosy-tokens", Namespace: home}
	check(t, c.Apply(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home}},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""},
			Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
				Namespace: requesterNamespace, Name: requester}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "argosy-reads"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
				Verbs: []string{"list", "watch"}}}}))
	for _, role := range []string{"admin", "argosy-reads"} {
		check(t, c.Apply(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "argosy-" + role, Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home,
				Name: name}}}))
	}
}

// clusterToken is the token in the one cluster Secret of a tenant on eu-1, "" without a Secret.
func (f *system) clusterToken(t *testing.T, tenant string) string {
	t.Helper()
	p := f.Place("eu-1")
	found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "argocd.argoproj.io/secret-type=cluster," +
			"argosy.dev/tenant=" + tenant})
	check(t, err)
	if len(found.Items) != 1 {
		return ""
	}
	return bearerToken(found.Items[0].Data)
}

func bearerToken(data map[string][]byte) string {
	_, rest, _ := strings.Cut(string(data["config"]), `"bearerToken":"`)
	token, _, _ := strings.Cut(rest, `"`)
	return token
}

// isTokenOf checks that the token of a tenant's cluster is that of an environment's account.
func (f *system) isTokenOf(t *testing.T, tenant, environment string) {
	t.Helper()
	isAccount(t, f.Place("eu-1").Cluster, f.clusterToken(t, tenant), tenant, environment)
}

func isAccount(t *testing.T, c *stack.Cluster, token, tenant, environment string) {
	t.Helper()
	review, err := c.Client().AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	check(t, err)
	if want := "system:serviceaccount:argosy-tenant-" + tenant + ":" + environment; review.Status.
		User.Username != want {
		t.Errorf("the token is of %q, not of %s", review.Status.User.Username, want)
	}
}
