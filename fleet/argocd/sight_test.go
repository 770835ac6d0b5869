package argocd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// An Argo CD that skips what it may not list gets no deletion with a workload, and everything else.
func TestNoWorkloadIsDeletedByAnArgoCDThatMayOverlookIt(t *testing.T) {
	c := apiServer(t)
	for _, value := range []string{"normal", "strict"} {
		t.Run(value, func(t *testing.T) {
			f := openFixture(t)
			sound := apart(map[string]any{"application.resourceTrackingMethod": "annotation",
				"installationID": "eu-1"})
			skipping := apart(sound)
			skipping[respectRBACKey] = value
			settings(t, c, f.Spec.ArgoCD.Namespace, skipping)
			e, lease := startFixture(t, f), mirror.Lease{Epoch: 1}
			report, err := e.Preflight(t.Context())
			if got := codes(report); err != nil || !slices.Equal(got, []string{
				"respect-rbac blinds"}) {
				t.Fatalf("findings are %v, %v", got, err)
			}
			orphan := applicationObject(fleet.ApplicationID{Tenant: acme, Deployment: "kept",
				Environment: prodEU.Name}, exampleServer)
			orphan.Application.DeletionPolicy = fleet.DeletionOrphan
			deleted, kept := rowOf(t, applicationObject(checkoutID, exampleServer), 1),
				rowOf(t, orphan, 2)
			for _, row := range []mirror.Row{rowOf(t, projectObject(acme), 3),
				rowOf(t, clusterObject(prodEU, exampleServer), 4), deleted, kept} {
				if out, err := e.Apply(t.Context(), row, values("token", canary),
					lease); err != nil || out.State != mirror.ApplyApplied {
					t.Fatalf("%s: %+v, %v", row.Key.Kind, out, err)
				}
			}
			refused := func(when string) {
				t.Helper()
				done, err := e.Delete(t.Context(), deleted, lease)
				if done || !errors.Is(err, engine.ErrBlind) || !strings.Contains(err.Error(),
					"kubectl -n "+f.Spec.ArgoCD.Namespace+" patch configmap argocd-cm") {
					t.Errorf("%s: %t, %v", when, done, err)
				}
				o, err := e.read(t.Context(), deleted.Key)
				if err != nil || o == nil || o.Metadata.DeletionTimestamp != nil {
					t.Fatalf("%s it is deleted: %+v, %v", when, o, err)
				}
			}
			refused("without the finalizer")
			if o, _ := e.read(t.Context(), deleted.Key); len(o.Metadata.Finalizers) > 0 {
				t.Errorf("it has finalizers %v", o.Metadata.Finalizers)
			}
			f.External.Merge(deleted.Key, `{"metadata":{"finalizers":["`+cascadeFinalizer+`"]}}`)
			refused("with a finalizer of others")
			waitUntil(t, func() bool {
				done, err := e.Delete(t.Context(), kept, lease)
				if err != nil {
					t.Fatal(err)
				}
				return done
			})

			settings(t, c, f.Spec.ArgoCD.Namespace, sound)
			if report, err := e.Preflight(t.Context()); err != nil || len(report.Findings) > 0 {
				t.Fatalf("fixed: %v, %v", codes(report), err)
			}
			if done, err := e.Delete(t.Context(), deleted, lease); done || err != nil {
				t.Fatalf("fixed: %t, %v", done, err)
			}
			o, err := e.read(t.Context(), deleted.Key)
			if err != nil || o == nil || o.Metadata.DeletionTimestamp == nil ||
				!slices.Contains(o.Metadata.Finalizers, cascadeFinalizer) {
				t.Errorf("fixed, it is not deleted with its workload: %+v, %v", o, err)
			}
		})
	}
}

// bindRole binds a ClusterRole to a service account in a namespace.
func bindRole(t testing.TB, c *stack.Cluster, namespace, role, accountNamespace, account string) {
	t.Helper()
	if err := c.Apply(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-" + role, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace,
			Name: account}}}); err != nil {
		t.Fatal(err)
	}
}

// argosyReads creates the ClusterRole of docs/clusters.md.
func argosyReads(t testing.TB, c *stack.Cluster) {
	t.Helper()
	if err := c.Apply(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "argosy-reads"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
			Verbs: []string{"list", "watch"}}}}); err != nil {
		t.Fatal(err)
	}
}

// A thorough preflight names each account that may not list every kind, and the command that grants
// it.
func TestPreflightNamesAccountsThatMayNotListEveryKind(t *testing.T) {
	c := apiServer(t)
	f := openFixture(t)
	e, env := startFixture(t, f), fleet.EnvironmentID{Tenant: acme, Name: "seen"}
	e.options.Thorough = true
	account, lease := createAccount(t, c, env), mirror.Lease{Epoch: 1}
	cluster := tokenCluster(env)
	cluster.Cluster.Namespaces = []string{f.Spec.ArgoCD.Namespace + "-a",
		f.Spec.ArgoCD.Namespace + "-b"}
	if _, err := e.Apply(t.Context(), rowOf(t, cluster, 1), fleet.Secret{}, lease); err != nil {
		t.Fatal(err)
	}
	idle := tokenCluster(fleet.EnvironmentID{Tenant: acme, Name: "idle"})
	createAccount(t, c, idle.Cluster.ID)
	idle.Cluster.Namespaces, idle.Cluster.Unused = nil, true
	given := clusterObject(prodEU, exampleServer)
	for _, o := range []fleet.Object{idle, given} {
		if _, err := e.Apply(t.Context(), rowOf(t, o, 1), values("token", canary),
			lease); err != nil {
			t.Fatal(err)
		}
	}
	argosyReads(t, c)
	find := func() engine.Report {
		t.Helper()
		report, err := e.Preflight(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	missing := cluster.Cluster.Namespaces
	for _, namespace := range missing {
		if err := c.CreateNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		bindRole(t, c, namespace, "view", account.Namespace, account.Name)
	}
	for len(missing) > 0 {
		report := find()
		if !slices.Equal(codes(report), []string{"account"}) {
			t.Fatalf("findings are %+v", report.Findings)
		}
		found := report.Findings[0]
		for _, part := range []string{"argosy-tenant-acme/seen", "acme/seen",
			"in namespace " + strings.Join(missing, ", "), "kubectl -n " + missing[0] +
				" create rolebinding argosy-acme-seen-argosy-reads --clusterrole=argosy-reads " +
				"--serviceaccount=argosy-tenant-acme:seen"} {
			if !strings.Contains(found.Message+"; "+found.Fix, part) {
				t.Errorf("%q is not in %s; %s", part, found.Message, found.Fix)
			}
		}
		bindRole(t, c, missing[0], "argosy-reads", account.Namespace, account.Name)
		missing = missing[1:]
		waitUntil(t, func() bool { // the authorizer reads the binding by a watch
			now := find()
			return len(now.Findings) == 0 || len(missing) > 0 && strings.Contains(
				now.Findings[0].Message, "in namespace "+missing[0]+", and")
		})
	}
	if found := find().Findings; len(found) > 0 {
		t.Errorf("with all rights: %+v", found)
	}
	e.options.Thorough = false
	if err := c.Client().RbacV1().RoleBindings(cluster.Cluster.Namespaces[0]).Delete(t.Context(),
		account.Name+"-argosy-reads", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if found := find().Findings; len(found) > 0 {
		t.Errorf("a worker's preflight: %+v", found)
	}
}

// growing is an environment whose cluster Secret has a token of its service account.
type growing struct {
	testing.TB
	f       *enginetest.Fixture
	e       *Engine
	c       *stack.Cluster
	account fleet.ServiceAccount
	cluster fleet.Object
	prefix  string // of namespaces
}

func newGrowing(t *testing.T) *growing {
	c, f := apiServer(t), openFixture(t)
	env := fleet.EnvironmentID{Tenant: acme, Name: "grows"}
	g := &growing{TB: t, f: f, c: c, e: startFixture(t, f), account: createAccount(t, c, env),
		cluster: tokenCluster(env), prefix: f.Spec.ArgoCD.Namespace + "-"}
	argosyReads(t, c)
	return g
}

// apply writes the cluster Secret with these namespaces, of which the Secret has some then.
func (g *growing) apply(want string, namespaces ...string) engine.Outcome {
	g.Helper()
	g.cluster.Cluster.Namespaces, g.cluster.Cluster.AllNamespaces = nil, len(namespaces) == 0
	for _, n := range namespaces {
		g.cluster.Cluster.Namespaces = append(g.cluster.Cluster.Namespaces, g.prefix+n)
	}
	row := rowOf(g, g.cluster, 1)
	out, err := g.e.Apply(g.Context(), row, fleet.Secret{}, mirror.Lease{Epoch: 1})
	if err != nil {
		g.Fatalf("%v: %v", namespaces, err)
	}
	has := namespacesIn(map[string]any{"namespaces": g.f.External.Field(row.Key,
		"data.namespaces")})
	for i := range has {
		has[i] = strings.TrimPrefix(has[i], g.prefix)
	}
	if got := strings.Join(has, ","); got != want {
		g.Errorf("%v: the Secret has %s, want %s: %+v", namespaces, got, want, out)
	}
	if live := g.e.cache.get(row.Key); live == nil || live.Drifted || len(live.namespaces) !=
		len(has) {
		g.Errorf("known as %+v", live)
	}
	return out
}

// bind gives the account the rights of docs/clusters.md in a new namespace.
func (g *growing) bind(namespace string) {
	g.Helper()
	if err := g.c.CreateNamespace(g.Context(), g.prefix+namespace); err != nil {
		g.Fatal(err)
	}
	bindRole(g, g.c, g.prefix+namespace, "argosy-reads", g.account.Namespace, g.account.Name)
}

// A cluster Secret does not get a namespace before the account may list every kind there, and gets
// all else: other namespaces, and new tokens.
func TestAClusterSecretGetsNamespacesThatItsAccountMayList(t *testing.T) {
	g := newGrowing(t)
	held := func(out engine.Outcome, parts ...string) {
		t.Helper()
		if out.State != mirror.ApplyFailed || out.RetryAfter <= 0 || out.Renew <= 0 {
			t.Errorf("it is not held back: %+v", out)
		}
		for _, part := range parts {
			if !strings.Contains(out.Message, part) {
				t.Errorf("%q is not in %s", part, out.Message)
			}
		}
	}
	token := func() string { return tokenIn(t, g.f, rowOf(t, g.cluster, 1).Key) }
	if out := g.apply("a", "a"); out.State != mirror.ApplyApplied {
		t.Errorf("the first namespace: %+v", out)
	}
	first := token()
	bind := "kubectl -n " + g.prefix + "b create rolebinding"
	held(g.apply("a", "a", "b"), "in namespace "+g.prefix+"b,", bind)
	if token() != first {
		t.Error("each attempt requests a token")
	}
	held(g.apply("a", "b"), bind)
	held(g.apply("a"), "in all namespaces", "create clusterrolebinding")

	g.e.options.Now = func() time.Time { return time.Now().Add(17 * time.Hour) }
	held(g.apply("a", "a", "b"), bind)
	if token() == first {
		t.Error("while it is held back, its token is not renewed")
	}
	g.e.options.Now = time.Now

	g.bind("c")
	waitUntil(t, func() bool { // the authorizer reads the binding by a watch
		live := g.e.cache.get(rowOf(t, g.cluster, 1).Key)
		if len(live.namespaces) > 1 {
			return true
		}
		if _, err := g.e.Apply(t.Context(), rowOf(t, g.with("a", "b", "c"), 1), fleet.Secret{},
			mirror.Lease{Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		return false
	})
	held(g.apply("a,c", "a", "b", "c"), bind)
	if out := g.apply("a,c", "a", "c"); out.State != mirror.ApplyApplied {
		t.Errorf("without the one that is held back: %+v", out)
	}

	if err := g.c.Client().CoreV1().ServiceAccounts(g.account.Namespace).Delete(t.Context(),
		g.account.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { // the API server keeps a result for some seconds
		return strings.Contains(g.apply("a,c", "a", "b", "c").Message, "it is unknown whether")
	})
}

// with returns the cluster with these namespaces.
func (g *growing) with(namespaces ...string) fleet.Object {
	o, spec := g.cluster, *g.cluster.Cluster
	spec.Namespaces, spec.AllNamespaces = nil, false
	for _, n := range namespaces {
		spec.Namespaces = append(spec.Namespaces, g.prefix+n)
	}
	o.Cluster = &spec
	return o
}

// An Application is deleted with its workload where Argo CD reads all of it, or has none of it.
func TestADeletionWaitsUntilArgoCDReadsTheWorkload(t *testing.T) {
	g := newGrowing(t)
	lease := mirror.Lease{Epoch: 1}
	if _, err := g.e.Apply(t.Context(), rowOf(t, projectObject(acme), 3), fleet.Secret{},
		lease); err != nil {
		t.Fatal(err)
	}
	g.apply("a", "a")
	const history = `{"history":[{"id":0,"deployedAt":"2026-11-01T00:00:00Z"}]}`
	for _, c := range []struct {
		name, namespace, status string
		refused, orphaned       bool
	}{
		{name: "read", namespace: "a", status: history},
		{name: "new", namespace: "b", orphaned: true},
		{name: "uncompared", namespace: "b", orphaned: true,
			status: `{"sync":{"status":"Unknown"},"resources":[{"namespace":"NS-b"}]}`},
		{name: "compared", namespace: "b", refused: true, status: `{"sync":{"status":"Synced"}}`},
		{name: "syncing", namespace: "b", refused: true,
			status: `{"operationState":{"phase":"Running","operation":{},` +
				`"startedAt":"2026-11-01T00:00:00Z"}}`},
		{name: "synced", namespace: "b", refused: true, status: history},
		{name: "elsewhere", namespace: "a", refused: true,
			status: strings.Replace(history, `{`, `{"resources":[{"namespace":"NS-a"},`+
				`{"namespace":"NS-b"}],`, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := applicationObject(fleet.ApplicationID{Tenant: acme,
				Deployment: fleet.DeploymentName(c.name), Environment: g.cluster.Cluster.ID.Name},
				fleet.InClusterServer)
			o.Application.Destination.OnEngine = testEngine
			o.Application.Destination.Namespace = g.prefix + c.namespace
			row := rowOf(t, o, 2)
			if _, err := g.e.Apply(t.Context(), row, fleet.Secret{}, lease); err != nil {
				t.Fatal(err)
			}
			if c.status != "" {
				g.f.External.Merge(row.Key, `{"status":`+strings.ReplaceAll(c.status, "NS-",
					g.prefix)+`}`)
			}
			done, err := g.e.Delete(t.Context(), row, lease)
			if done || errors.Is(err, engine.ErrDestination) != c.refused ||
				c.refused != (err != nil) || c.refused && !strings.Contains(err.Error(),
				g.prefix+"b") {
				t.Fatalf("delete: %t, %v", done, err)
			}
			left, err := g.e.read(t.Context(), row.Key)
			switch {
			case err != nil:
				t.Fatal(err)
			case (left == nil) != c.orphaned:
				t.Errorf("left is %+v", left)
			case left == nil:
			case (left.Metadata.DeletionTimestamp == nil) != c.refused,
				slices.Contains(left.Metadata.Finalizers, cascadeFinalizer) == c.refused:
				t.Errorf("it is %+v", left.Metadata)
			}
		})
	}
}

// keepsWhatItMayNotList: an account loses its rights in one of its namespaces, and Argo CD reads
// the cluster again. A deletion there waits, with the reason, until the rights are back.
func (w *argoLab) keepsWhatItMayNotList() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "wayne", Name: "sight"}
	seen, hidden := w.spaceA+"-seen", w.spaceA+"-hidden"
	const accounts = "stack-tenants"
	name := "wayne-" + w.spaceA
	credential := func() fleet.Secret {
		token, err := w.cluster.TenantToken(w.Context(), name)
		if err != nil {
			w.Fatal(err)
		}
		return fleet.NewSecret(map[string][]byte{"token": []byte(token)})
	}
	first := credential()
	argosyReads(w, w.cluster)
	grant := func(namespace string) {
		for _, role := range []string{"admin", "argosy-reads"} {
			bindRole(w, w.cluster, namespace, role, accounts, name)
		}
	}
	for _, namespace := range []string{seen, hidden} {
		if err := w.cluster.CreateNamespace(w.Context(), namespace); err != nil {
			w.Fatal(err)
		}
		grant(namespace)
	}
	w.commit(map[string]string{"hidden/cm.yaml": configMap("hidden", "one")})
	rows := w.foundation(env, seen, hidden)
	for _, row := range rows {
		w.apply(row, first)
	}
	app := w.app(fleet.ApplicationID{Tenant: env.Tenant, Deployment: "hidden",
		Environment: env.Name}, "hidden", hidden, fleet.DeletionDelete, nil)
	w.apply(app, fleet.Secret{})
	w.observed("deployed with the rights of docs/clusters.md", app.Key, synced)

	bindings := w.cluster.Client().RbacV1().RoleBindings(hidden)
	if err := bindings.DeleteCollection(w.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until("the account has no right there", func() bool {
		config := w.cluster.REST()
		config.Impersonate.UserName = "system:serviceaccount:" + accounts + ":" + name
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(hidden).List(w.Context(),
			metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
	w.apply(rows[1], credential()) // Argo CD reads the cluster again
	if done, err := w.e.Delete(w.Context(), app, w.lease); done || err != nil {
		w.Fatalf("delete: %t, %v", done, err)
	}
	w.until("the reason is reported", func() bool {
		known := w.e.cache.get(app.Key)
		if known == nil {
			got, _ := w.value(hidden, "hidden")
			w.Fatalf("the Application is gone, and its workload has %q", got)
		}
		return strings.Contains(known.contact.Message, "cannot list resource") &&
			strings.Contains(known.contact.Message, `in the namespace "`+hidden+`"`) &&
			strings.Contains(known.contact.Message, "docs/clusters.md") && known.contact.Deleting
	})
	if done, err := w.e.Delete(w.Context(), app, w.lease); done || err != nil {
		w.Errorf("delete again: %t, %v", done, err)
	}
	if got, _ := w.value(hidden, "hidden"); got != "one" {
		w.Errorf("the workload has %q", got)
	}
	grant(hidden)
	w.remove(app)
	if got, _ := w.value(hidden, "hidden"); got != "" {
		w.Error("the Application is deleted and its workload remains")
	}
}
