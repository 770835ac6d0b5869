package argocd

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

const clusterRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
`

// TestPlacesOnRealArgoCD: what the platform grants to an environment works on Argo CD, and nothing
// beside it.
func TestPlacesOnRealArgoCD(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			proxy := inClusterProxy(t, apiServer(t).Server)
			newest := version != "2.14"
			w := newArgoLabWith(t, "places-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{Version: version, ClusterAdmin: true,
					ApplicationSets: newest, ApplicationSetController: newest,
					ControllerEnv: []string{"HTTPS_PROXY=" + proxy}})
			if newest {
				w.movesIn()
			}
			w.grantsReservedNamespaces()
			w.grantsWholeClusters()
			w.createsOnlyTheNamespaceOfADestination()
			w.deploysToItsOwnCluster()
			w.deploysWithARequestedToken()
		})
	}
}

// inClusterProxy is an HTTP proxy through which kubernetes.default.svc is the API server, as it is
// in a Pod of the cluster.
func inClusterProxy(t *testing.T, server string) string {
	t.Helper()
	target := strings.TrimPrefix(server, "https://")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "kubernetes.default.svc:443" {
			http.Error(w, "another host", http.StatusForbidden)
			return
		}
		far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = far.Close()
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// deploysToItsOwnCluster: an environment on the cluster of the engine is served with the tenant's
// own credential. Argo CD's own service account is cluster-admin, and is not used.
func (w *argoLab) deploysToItsOwnCluster() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "soylent", Name: "near"}
	allowed, denied := w.spaceA+"-near", w.spaceA+"-far"
	token, err := w.cluster.TenantToken(w.Context(), "soylent-"+w.spaceA, allowed)
	if err != nil {
		w.Fatal(err)
	}
	if err := w.cluster.CreateNamespace(w.Context(), denied); err != nil {
		w.Fatal(err)
	}
	// A Secret of a service account holds both.
	credential := fleet.NewSecret(map[string][]byte{"token": []byte(token),
		"ca.crt": w.cluster.CA})
	key := fleet.ServerKey(fleet.InClusterServer, env)
	w.commit(map[string]string{"near/cm.yaml": configMap("near", "one")})
	project, cluster := projectObject(env.Tenant), clusterObject(env, fleet.InClusterServer)
	project.Project.SourceRepos, project.Project.ClusterResources = []string{w.repo.URL}, nil
	project.Project.Destinations = []fleet.Destination{
		{Server: key, Namespace: allowed, OnEngine: testEngine},
		{Server: key, Namespace: denied, OnEngine: testEngine}}
	cluster.Cluster.OnEngine = testEngine
	cluster.Cluster.Namespaces = []string{allowed}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(w.row(cluster, ""), credential)
	of := func(deployment fleet.DeploymentName, namespace string, sync fleet.Sync) mirror.Row {
		app := w.app(fleet.ApplicationID{Tenant: env.Tenant, Deployment: deployment,
			Environment: env.Name}, "near", namespace, fleet.DeletionDelete,
			func(a *fleet.Application) {
				a.Destination.Server, a.Destination.OnEngine = key, testEngine
				a.Sync = sync
			})
		w.apply(app, fleet.Secret{})
		return app
	}
	app := of("near", allowed, fleet.Sync{Automated: true, Prune: true})
	w.observed("deployed to the engine's own cluster", app.Key, synced)
	if got, _ := w.value(allowed, "near"); got != "one" {
		w.Errorf("the namespace has %q", got)
	}
	// The cluster Secret lists the namespace, and the service account has no right there.
	cluster.Cluster.Namespaces = []string{allowed, denied}
	w.apply(w.row(cluster, ""), credential)
	far := of("far", denied, fleet.Sync{Automated: true})
	w.denied(far.Key, "forbidden")
	if got, _ := w.value(denied, "near"); got != "" {
		w.Error("Argo CD deployed with more than the tenant's service account")
	}
	w.Logf("denied: %.300s", w.condition(far.Key))
}

// deploysWithARequestedToken: an environment on the cluster of the engine needs no credential. Argo
// CD deploys as the environment's service account, before and after its token is renewed.
func (w *argoLab) deploysWithARequestedToken() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "stark", Name: fleet.EnvironmentName(w.spaceA)}
	allowed, denied := w.spaceA+"-token", w.spaceA+"-other"
	account := createAccount(w, w.cluster, env)
	for _, ns := range []string{allowed, denied} {
		if err := w.cluster.CreateNamespace(w.Context(), ns); err != nil {
			w.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Name: account.Name, Namespace: allowed}
	if err := w.cluster.Apply(w.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
			Namespace: account.Namespace, Name: account.Name}}}); err != nil {
		w.Fatal(err)
	}
	w.commit(map[string]string{"token/cm.yaml": configMap("token", "one")})
	key := fleet.ServerKey(fleet.InClusterServer, env)
	project, cluster := projectObject(env.Tenant), tokenCluster(env)
	project.Project.SourceRepos, project.Project.ClusterResources = []string{w.repo.URL}, nil
	project.Project.Destinations = []fleet.Destination{
		{Server: key, Namespace: allowed, OnEngine: testEngine},
		{Server: key, Namespace: denied, OnEngine: testEngine}}
	cluster.Cluster.Namespaces = []string{allowed}
	w.apply(w.row(project, ""), fleet.Secret{})
	row := w.row(cluster, "")
	if _, err := w.e.Apply(w.Context(), row, fleet.Secret{}, w.lease); !errors.Is(err,
		engine.ErrCredential) {
		w.Errorf("a token without the right to request it: %v", err)
	}
	allowTokens(w, w.cluster, account.Namespace, w.spec.ArgoCD.Namespace, "argosy")
	w.until("a token is requested", func() bool { // the authorizer reads the binding by a watch
		_, err := w.e.Apply(w.Context(), row, fleet.Secret{}, w.lease)
		return err == nil
	})
	of := func(deployment fleet.DeploymentName, namespace string) mirror.Row {
		app := w.app(fleet.ApplicationID{Tenant: env.Tenant, Deployment: deployment,
			Environment: env.Name}, "token", namespace, fleet.DeletionDelete,
			func(a *fleet.Application) {
				a.Destination.Server, a.Destination.OnEngine = key, testEngine
			})
		w.apply(app, fleet.Secret{})
		return app
	}
	app := of("token", allowed)
	w.observed("deployed with a requested token", app.Key, synced)

	before := w.e.options.Now
	w.e.options.Now = func() time.Time { return time.Now().Add(17 * time.Hour) }
	if out := w.apply(w.row(cluster, ""), fleet.Secret{}); !out.Changed {
		w.Errorf("the token is not renewed: %+v", out)
	}
	w.e.options.Now = before
	maps := w.cluster.Client().CoreV1().ConfigMaps(allowed)
	if err := maps.Delete(w.Context(), "token", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until("healed with the renewed token", func() bool {
		got, _ := w.value(allowed, "token")
		return got == "one"
	})
	// A namespace without rights stays out of the Secret, so that Argo CD reads the others.
	cluster.Cluster.Namespaces = []string{allowed, denied}
	out, err := w.e.Apply(w.Context(), w.row(cluster, ""), fleet.Secret{}, w.lease)
	if err != nil || out.State != mirror.ApplyFailed ||
		!strings.Contains(out.Message, "kubectl -n "+denied) {
		w.Errorf("a namespace without rights: %+v, %v", out, err)
	}
	far := of("other", denied)
	w.denied(far.Key, "is not managed")
	w.Logf("denied: %.300s", w.condition(far.Key))
	w.until("an Application that was never synced is removed", func() bool {
		done, err := w.e.Delete(w.Context(), far, w.lease)
		return done && err == nil
	})
	w.settles(app.Key.Name)
}

// admin is a credential for everything on the cluster: only Argo CD's own checks limit it.
func (w *argoLab) admin() fleet.Secret {
	w.Helper()
	kubeconfig, err := os.ReadFile(w.cluster.Kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	return fleet.NewSecret(map[string][]byte{"kubeconfig": kubeconfig})
}

// prepare applies the project and the cluster of an environment.
func (w *argoLab) prepare(env fleet.EnvironmentID, namespaces []string,
	project func(*fleet.Project),
	cluster func(*fleet.Cluster)) []mirror.Row {
	w.Helper()
	p, c := projectObject(env.Tenant), clusterObject(env, w.cluster.Server)
	p.Project.SourceRepos, p.Project.Destinations, p.Project.ClusterResources =
		[]string{w.repo.URL}, nil, nil
	for _, ns := range namespaces {
		p.Project.Destinations = append(p.Project.Destinations, fleet.Destination{
			Server: c.Cluster.Server, Namespace: ns, Granted: fleet.ReservedNamespace(ns)})
	}
	c.Cluster.Namespaces, c.Cluster.Granted = namespaces, namespaces
	project(p.Project)
	cluster(c.Cluster)
	rows := []mirror.Row{w.row(p, ""), w.row(c, "")}
	for _, row := range rows {
		w.apply(row, w.admin())
	}
	return rows
}

// denied waits until Argo CD refuses an Application or its sync with one of the texts.
func (w *argoLab) denied(key fleet.ObjectKey, texts ...string) {
	w.Helper()
	w.until(key.Name+" is denied", func() bool {
		app, err := w.applications().Get(w.Context(), key.Name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		status, _ := app.Object["status"].(map[string]any)
		operation, _ := status["operationState"].(map[string]any)
		all := strings.ToLower(w.condition(key) + encoded(operation))
		for _, text := range texts {
			if strings.Contains(all, strings.ToLower(text)) {
				return true
			}
		}
		return false
	})
}

func encoded(v any) string {
	b, err := canonical(map[string]any{"v": v})
	if err != nil {
		return ""
	}
	return string(b)
}

// grantsReservedNamespaces: an Application deploys to kube-system if the environment is granted it.
func (w *argoLab) grantsReservedNamespaces() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "initech", Name: "reserved"}
	name := "reserved-" + w.spaceA
	w.commit(map[string]string{"reserved/cm.yaml": configMap(name, "one")})
	rows := w.prepare(env, []string{"kube-system"}, func(*fleet.Project) {},
		func(*fleet.Cluster) {})
	app := w.app(fleet.ApplicationID{Tenant: env.Tenant, Deployment: "system",
		Environment: env.Name}, "reserved", "kube-system", fleet.DeletionDelete,
		func(a *fleet.Application) { a.Destination.Granted = true })
	w.apply(app, fleet.Secret{})
	w.observed("deployed to kube-system", app.Key, synced)
	if got, _ := w.value("kube-system", name); got != "one" {
		w.Errorf("kube-system has %q", got)
	}
	w.remove(app)
	for i := len(rows) - 1; i >= 0; i-- {
		w.remove(rows[i])
	}
}

// grantsWholeClusters: with all namespaces and all kinds one Application deploys to a namespace
// that nothing lists and a cluster-scoped kind. Argo CD's own kinds stay denied.
func (w *argoLab) grantsWholeClusters() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "umbrella", Name: "whole"}
	name := "whole-" + w.spaceA
	elsewhere := strings.Replace(configMap(name, "one"), "metadata: {", "metadata: {namespace: "+
		"kube-public, ", 1)
	w.commit(map[string]string{"whole/role.yaml": strings.ReplaceAll(clusterRole, "NAME", name),
		"whole/cm.yaml": elsewhere,
		"evil/app.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\n" +
			"metadata: {name: evil}\nspec: {}\n"})
	w.prepare(env, nil, func(p *fleet.Project) {
		p.Destinations = []fleet.Destination{{Server: fleet.ServerKey(w.cluster.Server, env),
			All: true}}
		p.AllClusterResources = true
	}, func(c *fleet.Cluster) { c.AllNamespaces, c.ClusterResources = true, true })
	of := func(deployment fleet.DeploymentName, path string) mirror.Row {
		app := w.app(fleet.ApplicationID{Tenant: env.Tenant, Deployment: deployment,
			Environment: env.Name}, path, "default", fleet.DeletionDelete,
			func(a *fleet.Application) { a.Destination.Granted = true })
		w.apply(app, fleet.Secret{})
		return app
	}
	app, evil := of("whole", "whole"), of("evil", "evil")
	w.observed("deployed to the whole cluster", app.Key, synced)
	if got, _ := w.value("kube-public", name); got != "one" {
		w.Errorf("kube-public has %q", got)
	}
	if _, err := w.cluster.Client().RbacV1().ClusterRoles().Get(w.Context(), name,
		metav1.GetOptions{}); err != nil {
		w.Error(err)
	}
	w.denied(evil.Key, "is not permitted in project")
	w.remove(app)
	if _, err := w.cluster.Client().RbacV1().ClusterRoles().Get(w.Context(), name,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.Errorf("the ClusterRole remains: %v", err)
	}
}

// createsOnlyTheNamespaceOfADestination: a project may allow the kind Namespace for CreateNamespace
// alone. As long as the cluster Secret is without cluster-scoped resources, no manifest of a
// repository makes or changes a Namespace, as a hook or under a false namespace either.
func (w *argoLab) createsOnlyTheNamespaceOfADestination() {
	w.Helper()
	env := fleet.EnvironmentID{Tenant: "hooli", Name: "spaces"}
	fresh, evil := w.spaceA+"-made", w.spaceA+"-evil"
	manifest := func(meta string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + evil + meta + "}\n"
	}
	hook := func(phase string) string {
		return manifest(", annotations: {argocd.argoproj.io/hook: " + phase + "}")
	}
	cm := configMap("made", "one")
	w.commit(map[string]string{"made/cm.yaml": cm,
		"plain/cm.yaml": cm, "plain/ns.yaml": manifest(""),
		"false/cm.yaml": cm, "false/ns.yaml": manifest(", namespace: " + fresh),
		"presync/cm.yaml": cm, "presync/ns.yaml": hook("PreSync"),
		"failed/cm.yaml": cm, "failed/ns.yaml": hook("SyncFail"),
	})
	w.prepare(env, []string{fresh}, func(p *fleet.Project) {
		p.ClusterResources = []fleet.GroupKind{fleet.KindNamespace}
	}, func(*fleet.Cluster) {})
	of := func(path string) mirror.Row {
		app := w.app(fleet.ApplicationID{Tenant: env.Tenant,
			Deployment: fleet.DeploymentName(path), Environment: env.Name}, path, fresh,
			fleet.DeletionDelete, func(a *fleet.Application) { a.Sync.CreateNamespace = true })
		w.apply(app, fleet.Secret{})
		return app
	}
	app := of("made")
	w.observed("deployed to a namespace that Argo CD made", app.Key, synced)
	if got, _ := w.value(fresh, "made"); got != "one" {
		w.Errorf("the made namespace has %q", got)
	}
	for _, path := range []string{"plain", "false", "presync", "failed"} {
		bad := of(path)
		w.denied(bad.Key, "can not be managed when in namespaced mode")
	}
	if _, err := w.cluster.Client().CoreV1().Namespaces().Get(w.Context(), evil,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.Errorf("a repository made a Namespace: %v", err)
	}
	w.remove(app)
}
