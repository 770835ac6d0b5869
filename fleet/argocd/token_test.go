package argocd

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// tokenCluster is the cluster of an environment on the engine's own cluster, without a credential.
func tokenCluster(env fleet.EnvironmentID) fleet.Object {
	o := clusterObject(env, fleet.InClusterServer)
	account := fleet.AccountOf(env)
	o.Cluster.OnEngine, o.Cluster.ServiceAccount = testEngine, &account
	o.Cluster.Credential = fleet.CredentialSource{Tenant: env.Tenant, Folder: "environments"}
	return o
}

// createAccount creates the service account of an environment, as the platform does.
func createAccount(t testing.TB, c *stack.Cluster, env fleet.EnvironmentID) fleet.ServiceAccount {
	t.Helper()
	account := fleet.AccountOf(env)
	if err := c.CreateNamespace(t.Context(), account.Namespace); err != nil {
		t.Fatal(err)
	}
	_, err := c.Client().CoreV1().ServiceAccounts(account.Namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.Name}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return account
}

// allowTokens lets a service account request the tokens of all service accounts of a namespace.
func allowTokens(t testing.TB, c *stack.Cluster, namespace, requesterNamespace, requester string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "argosy-tokens", Namespace: namespace}
	if err := c.Apply(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
		Verbs: []string{"create"}}}}, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
			Namespace: requesterNamespace, Name: requester}}}); err != nil {
		t.Fatal(err)
	}
}

// startFixture makes the fixture's engine ready for writes.
func startFixture(t *testing.T, f *enginetest.Fixture) *Engine {
	t.Helper()
	e := f.Engine.(*Engine)
	if report, err := e.Preflight(t.Context()); err != nil {
		t.Fatal(report, err)
	}
	ctx, ended := t.Context(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Watch(ctx, engine.Sink{})
	}()
	t.Cleanup(func() { <-ended })
	waitUntil(t, e.Synced)
	return e
}

// tokenIn returns the token of a cluster Secret as Argo CD reads it.
func tokenIn(t *testing.T, f *enginetest.Fixture, key fleet.ObjectKey) string {
	t.Helper()
	raw, err := dataValue(map[string]any{"config": f.External.Field(key, "data.config")}, "config")
	if err != nil {
		t.Fatal(err)
	}
	var config v1alpha1.ClusterConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.CAData) == 0 {
		t.Error("the config has no CA")
	}
	return config.BearerToken
}

func TestATokenIsRequestedKeptAndRenewed(t *testing.T) {
	c := apiServer(t)
	f := openFixture(t)
	e, env := startFixture(t, f), fleet.EnvironmentID{Tenant: acme, Name: "tokens"}
	row, lease := rowOf(t, tokenCluster(env), 1), mirror.Lease{Epoch: 1}
	apply := func(e *Engine) (engine.Outcome, error) {
		t.Helper()
		return e.Apply(t.Context(), row, fleet.Secret{}, lease)
	}
	if _, err := apply(e); !errors.Is(err, engine.ErrCredential) ||
		!strings.Contains(err.Error(), "argosy-tenant-acme/tokens") || f.External.Exists(row.Key) {
		t.Fatalf("without the service account: %v", err)
	}
	account := createAccount(t, c, env)
	out, err := apply(e)
	if err != nil || !out.Changed || out.Renew < 14*time.Hour || out.Renew > 17*time.Hour {
		t.Fatalf("the first token: %+v, %v", out, err)
	}
	first := tokenIn(t, f, row.Key)
	review, err := c.Client().AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: first}},
		metav1.CreateOptions{})
	if want := "system:serviceaccount:argosy-tenant-acme:tokens"; err != nil ||
		review.Status.User.Username != want {
		t.Fatalf("the token is of %q, %v", review.Status.User.Username, err)
	}

	// A start without memory keeps the token.
	again := f.Reopen(t)
	e = startFixture(t, again)
	writes := again.External.Writes()
	if out, err = apply(e); err != nil || out.Changed || out.Renew == 0 ||
		again.External.Writes() != writes {
		t.Fatalf("after a start: %+v, %v", out, err)
	}

	// It is renewed when two thirds of its life are over.
	later := func(d time.Duration) { e.options.Now = func() time.Time { return time.Now().Add(d) } }
	later(17 * time.Hour)
	if out, err = apply(e); err != nil || !out.Changed || out.Renew > 6*time.Hour {
		t.Fatalf("the renewal: %+v, %v", out, err)
	}
	second := tokenIn(t, f, row.Key)
	if second == first {
		t.Fatal("the token is the same")
	}

	// A failure keeps the last token and reports it near its end.
	accounts := c.Client().CoreV1().ServiceAccounts(account.Namespace)
	if err := accounts.Delete(t.Context(), account.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	later(22 * time.Hour)
	if out, err = apply(e); err != nil || !out.Kept || out.Renew != renewRetry {
		t.Errorf("a failed renewal: %+v, %v", out, err)
	}
	later(23*time.Hour + 30*time.Minute)
	if _, err = apply(e); !errors.Is(err, engine.ErrCredential) {
		t.Errorf("a failed renewal near the end: %v", err)
	}
	if got := tokenIn(t, f, row.Key); got != second {
		t.Error("the last token is lost")
	}

	// A foreign change is overwritten by a fresh token.
	createAccount(t, c, env)
	f.External.Merge(row.Key, `{"data":{"config":"e30="}}`)
	waitUntil(t, func() bool { live, _ := e.Live(row.Key); return live.Drifted })
	later(0)
	if out, err = apply(e); err != nil || !out.Changed {
		t.Fatalf("after a foreign change: %+v, %v", out, err)
	}
	if got := tokenIn(t, f, row.Key); got == second || got == "" {
		t.Error("the foreign change stays, or the old token does")
	}
}

func TestATokenIsOnlyOfTheOwnServiceAccount(t *testing.T) {
	other := fleet.ServiceAccount{Namespace: "argosy-tenant-globex", Name: "prod-eu"}
	o := tokenCluster(prodEU)
	o.Cluster.ServiceAccount = &other
	if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
		t.Error("another tenant's service account is rendered")
	}
	o = tokenCluster(prodEU)
	o.Cluster.OnEngine, o.Cluster.Server = "", fleet.ServerKey(exampleServer, prodEU)
	if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
		t.Error("a token of a cluster that Argosy does not reach is rendered")
	}
	row := rowOf(t, tokenCluster(prodEU), 1)
	row.Environment = "staging"
	if _, err := accountOf(row); err == nil {
		t.Error("a row has the service account of another environment")
	}
}

// A token for a Cluster of the platform is requested at its API server, with a credential that may
// do nothing else and that Argo CD never gets.
func TestATokenIsRequestedWithTheCredentialOfACluster(t *testing.T) {
	c := apiServer(t)
	f := openFixture(t)
	e, env := startFixture(t, f), fleet.EnvironmentID{Tenant: "initech", Name: "shared"}
	account := createAccount(t, c, env)
	requester, err := c.TenantToken(t.Context(), "requester")
	if err != nil {
		t.Fatal(err)
	}
	o := clusterObject(env, c.Server)
	o.Cluster.CAData, o.Cluster.ServiceAccount = base64.StdEncoding.EncodeToString(c.CA), &account
	o.Cluster.Credential = fleet.CredentialSource{Folder: "environments", Name: "prod-1"}
	row, secret := rowOf(t, o, 1), values("token", requester)
	for name, given := range map[string]fleet.Secret{"no credential": {},
		"no right to request tokens": secret, "another cluster's kubeconfig": values("kubeconfig",
			kubeconfigWith(goodServer, "token: "+canary))} {
		_, err := e.Apply(t.Context(), row, given, mirror.Lease{Epoch: 1})
		if !errors.Is(err, engine.ErrCredential) || strings.Contains(err.Error(), "stack-tenants") {
			t.Errorf("%s: %v", name, err)
		}
	}
	allowTokens(t, c, account.Namespace, "stack-tenants", "requester")
	var out engine.Outcome
	waitUntil(t, func() bool { // the authorizer reads the binding by a watch
		out, err = e.Apply(t.Context(), row, secret, mirror.Lease{Epoch: 1})
		return err == nil
	})
	token := tokenIn(t, f, row.Key)
	review, err := c.Client().AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if want := "system:serviceaccount:argosy-tenant-initech:shared"; err != nil ||
		review.Status.User.Username != want || !out.Changed || out.Renew == 0 {
		t.Errorf("the token is of %q, %+v, %v", review.Status.User.Username, out, err)
	}
}
