package argocd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/test/stack"
)

// restartLab is a namespace of a real API server whose controllers run the workloads of an Argo CD.
type restartLab struct {
	*testing.T
	cluster   *stack.Cluster
	namespace string
	e         *Engine
	stopped   bool
}

func newRestartLab(t *testing.T) *restartLab {
	t.Helper()
	l := &restartLab{T: t, cluster: apiServer(t)}
	l.namespace = space(t, l.cluster)
	l.e = l.connect(l.cluster.REST())
	return l
}

func (l *restartLab) connect(config *rest.Config) *Engine {
	l.Helper()
	spec := engineSpec()
	spec.ArgoCD.Namespace = l.namespace
	e, err := Connect(testEngine, spec, config, Options{
		Restarts: []fleet.Component{fleet.ApplicationController},
		Stopped:  func(fleet.TenantName) bool { return l.stopped }})
	if err != nil {
		l.Fatal(err)
	}
	return e
}

// withRights connects with the rights that the chart grants, without one of them.
func (l *restartLab) withRights(missing string) *Engine {
	l.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"statefulsets",
		"deployments"}, Verbs: []string{"list"}}}
	for right, rule := range map[string]rbacv1.PolicyRule{
		"patch statefulsets": {APIGroups: []string{"apps"}, Resources: []string{"statefulsets"},
			ResourceNames: []string{"argocd-application-controller"}, Verbs: []string{"patch"}},
		"list pods": {APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"list"}},
		"delete pods": {APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"delete"}},
	} {
		if right != missing {
			rules = append(rules, rule)
		}
	}
	return l.connect(accountWith(l.T, l.cluster, l.namespace,
		"restarts-without-"+strings.ReplaceAll(cmp.Or(missing, "nothing"), " ", "-"), rules...))
}

// labels of Argo CD's manifests. Its Pods have the name alone.
func workloadLabels(c fleet.Component) (all, pods map[string]string) {
	pods = map[string]string{"app.kubernetes.io/name": "argocd-" + c.Label()}
	all = maps.Clone(pods)
	all["app.kubernetes.io/part-of"], all["app.kubernetes.io/component"] = "argocd", c.Label()
	return all, pods
}

func podTemplate(labels map[string]string, gated bool) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}
	if gated { // it never becomes ready
		t.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}}
	}
	return t
}

// controllers creates the application-controllers.
func (l *restartLab) controllers(replicas int32, gated bool) {
	l.Helper()
	all, pods := workloadLabels(fleet.ApplicationController)
	_, err := l.cluster.Client().AppsV1().StatefulSets(l.namespace).Create(l.Context(),
		&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "argocd-application-controller", Labels: all},
			Spec: appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: "argocd",
				Selector: &metav1.LabelSelector{MatchLabels: pods},
				Template: podTemplate(pods, gated)}}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
}

// pods returns the UID of each Pod of a component by its name.
func (l *restartLab) pods(c fleet.Component) map[string]string {
	l.Helper()
	list, err := l.cluster.Client().CoreV1().Pods(l.namespace).List(l.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=argocd-" + c.Label()})
	if err != nil {
		l.Fatal(err)
	}
	uids := map[string]string{}
	for _, p := range list.Items {
		uids[p.Name] = string(p.UID)
	}
	return uids
}

// ready waits until n Pods of a component are there, with their UIDs; of gated ones no more.
func (l *restartLab) ready(c fleet.Component, n int) map[string]string {
	l.Helper()
	waitUntil(l.T, func() bool { return len(l.pods(c)) == n })
	return l.pods(c)
}

// restart repeats Restart until nothing is left, and returns all that was left on the way.
func (l *restartLab) restart(c fleet.Component, at time.Time) (lefts []string) {
	l.Helper()
	waitUntil(l.T, func() bool {
		left, err := l.e.Restart(l.Context(), c, at)
		if err != nil {
			l.Fatal(err)
		}
		if left != "" && !slices.Contains(lefts, left) {
			lefts = append(lefts, left)
		}
		return left == ""
	})
	return lefts
}

// fit does what the preflight and the watch of a fit engine do.
func (l *restartLab) fit() {
	l.e.fit.Store(true)
	l.e.cache.mu.Lock()
	defer l.e.cache.mu.Unlock()
	for _, r := range l.e.cache.wanted {
		l.e.cache.listed[r] = true
	}
}

func disjoint(before, after map[string]string) error {
	for name, uid := range after {
		for _, earlier := range before {
			if uid == earlier {
				return fmt.Errorf("Pod %s is an earlier one: %v, %v", name, before, after)
			}
		}
	}
	if len(before) != len(after) {
		return fmt.Errorf("before %v, after %v", before, after)
	}
	return nil
}

func TestARestartReplacesEveryPodOnce(t *testing.T) {
	for name, gated := range map[string]bool{"ready": false, "never ready": true} {
		t.Run(name, func(t *testing.T) {
			l := newRestartLab(t)
			n := 2
			if gated {
				n = 1 // a StatefulSet creates no Pod after one that is not ready
			}
			l.controllers(int32(n), gated)
			before := l.ready(fleet.ApplicationController, n)
			at := time.Now()
			if _, err := l.e.Restart(t.Context(), fleet.ApplicationController,
				at); !errors.Is(err, engine.ErrUnfit) {
				t.Fatalf("before the preflight: %v", err)
			}
			l.fit()
			l.stopped = true
			if _, err := l.e.Restart(t.Context(), fleet.ApplicationController,
				at); !errors.Is(err, engine.ErrStopped) {
				t.Fatalf("during a stop: %v", err)
			}
			l.stopped = false
			if err := l.e.CheckRestart(t.Context(), fleet.ApplicationController); err != nil {
				t.Fatal(err)
			}
			lefts := l.restart(fleet.ApplicationController, at)
			t.Logf("%q", lefts)
			deleted := strings.Contains(strings.Join(lefts, "\n"), "is deleted")
			if deleted != gated {
				t.Errorf("a Pod is deleted: %v", lefts)
			}
			after := l.ready(fleet.ApplicationController, n)
			if err := disjoint(before, after); err != nil {
				t.Fatal(err)
			}
			if lefts := l.restart(fleet.ApplicationController, at); len(lefts) != 0 ||
				!maps.Equal(after, l.pods(fleet.ApplicationController)) {
				t.Errorf("one request restarts twice: %v", lefts)
			}
			l.restart(fleet.ApplicationController, at.Add(time.Hour))
			if err := disjoint(after, l.ready(fleet.ApplicationController, n)); err != nil {
				t.Errorf("a later request: %v", err)
			}
		})
	}
}

func TestARestartReplacesTheRepoServer(t *testing.T) {
	l := newRestartLab(t)
	l.fit()
	all, pods := workloadLabels(fleet.RepoServer)
	if err := l.e.CheckRestart(t.Context(), fleet.RepoServer); !errors.Is(err,
		engine.ErrRefused) || !strings.Contains(err.Error(), "has 0 workloads") {
		t.Errorf("without a workload: %v", err)
	}
	_, err := l.cluster.Client().AppsV1().Deployments(l.namespace).Create(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-repo-server", Labels: all},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pods},
				Template: podTemplate(pods, false)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := l.ready(fleet.RepoServer, 1)
	l.restart(fleet.RepoServer, time.Now())
	waitUntil(t, func() bool { return disjoint(before, l.pods(fleet.RepoServer)) == nil })
}

// The chart's Role names the two workloads. Preflight names a right that is missing.
func TestARestartNeedsItsRights(t *testing.T) {
	l := newRestartLab(t)
	l.controllers(1, false)
	l.ready(fleet.ApplicationController, 1)
	for _, missing := range []string{"", "patch statefulsets", "list pods", "delete pods"} {
		restricted := *l
		restricted.e = l.withRights(missing)
		restricted.fit()
		found, err := preflight{restricted.e}.restartFindings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = restricted.e.CheckRestart(t.Context(), fleet.ApplicationController)
		if missing == "" {
			if err != nil || len(found) != 0 {
				t.Errorf("with all rights: %v, %+v", err, found)
			}
			restricted.restart(fleet.ApplicationController, time.Now())
			continue
		}
		if !errors.Is(err, engine.ErrRefused) || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
		if len(found) != 1 || found[0].Blocks || !strings.Contains(found[0].Message, missing) {
			t.Errorf("without %s: %+v", missing, found)
		}
	}
}
