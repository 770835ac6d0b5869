package instance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

func (l *lab) statefulSet() *appsv1.StatefulSet {
	l.Helper()
	s, err := l.client.AppsV1().StatefulSets(l.namespace).Get(l.Context(), controller,
		metav1.GetOptions{})
	check(l.T, err)
	return s
}

// shards returns the number of application-controllers of a Pod's environment.
func shards(env []string) string {
	for _, e := range env {
		if n, ok := strings.CutPrefix(e, "ARGOCD_CONTROLLER_REPLICAS="); ok {
			return n
		}
	}
	return ""
}

// Pods with different numbers of shards would serve one cluster at once: the former ones have ended
// before the first new one is created.
func TestTheApplicationControllersEndBeforeTheirNumberChanges(t *testing.T) {
	l := newLab(t, "argocd-shards")
	overlaps := l.watchShards()
	size := func(shards int, memory fleet.Memory) *fleet.InstanceSize {
		return &fleet.InstanceSize{Shards: shards, ApplicationController: fleet.Resources{
			CPU: "10m", Memory: memory}, RepoServer: fleet.Resources{Memory: "128Mi"}}
	}
	for _, s := range []*fleet.InstanceSize{size(2, "64Mi"), size(2, "128Mi"), size(3, "128Mi"),
		size(1, "64Mi"), size(2, "64Mi"), nil} {
		l.size = s
		l.settle("3.5")
		want, memory := 1, fleet.Memory("")
		if s != nil {
			want, memory = s.Shards, s.ApplicationController.Memory
		}
		live := l.statefulSet()
		pod := live.Spec.Template.Spec.Containers[0]
		if n := int(live.Status.ReadyReplicas); n != want {
			t.Errorf("size %v: %d Pods", s, n)
		}
		if got := pod.Resources.Limits.Memory().String(); memory != "" && got != string(memory) ||
			memory == "" && len(pod.Resources.Limits) > 0 {
			t.Errorf("size %v: limit %s", s, got)
		}
		if _, limited := pod.Resources.Limits["cpu"]; limited {
			t.Error("the CPU is limited")
		}
		if described, err := l.target.Size(t.Context()); err != nil ||
			s != nil && described != s.String() || s == nil && described != "" {
			t.Errorf("size %v: the inventory has %q, %v", s, described, err)
		}
		if changed := l.settle("3.5"); len(changed) > 0 {
			t.Errorf("size %v: another step changes %s", s, changed)
		}
	}
	for _, o := range overlaps() {
		t.Error(o)
	}
	// others may set the number again
	_, err := l.client.AppsV1().StatefulSets(l.namespace).Patch(t.Context(), controller,
		types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	check(t, err)
	l.settle("3.5")
	if n := *l.statefulSet().Spec.Replicas; n != 0 {
		t.Errorf("it has %d replicas", n)
	}
}

// watchShards reads the Pods all the time. The returned function ends that, and returns when
// there were two with different numbers of shards.
func (l *lab) watchShards() func() []string {
	var found []string
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			pods, err := l.client.CoreV1().Pods(l.namespace).List(l.Context(), metav1.ListOptions{
				LabelSelector: "app.kubernetes.io/name=" + controller})
			if err == nil {
				by := map[string]string{}
				for _, p := range pods.Items {
					var env []string
					for _, e := range p.Spec.Containers[0].Env {
						env = append(env, e.Name+"="+e.Value)
					}
					by[shards(env)] = p.Name
				}
				if len(by) > 1 {
					found = append(found, fmt.Sprint(by))
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() []string { close(stop); <-ended; return found }
}

// A fence owns the replicas, also if it begins while the number of shards changes.
func TestAFenceIsNotScaledBack(t *testing.T) {
	l := newLab(t, "argocd-shards-fenced")
	l.size = &fleet.InstanceSize{Shards: 2}
	l.settle("3.5")
	_, err := l.client.AppsV1().StatefulSets(l.namespace).Patch(t.Context(), controller,
		types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+instance.AnnotationFence+
			`":"7"}},"spec":{"replicas":0}}`), metav1.PatchOptions{})
	check(t, err)
	if left := stack.Until(t.Context(), func() string {
		r, err := l.step("3.5")
		check(t, err)
		if !strings.Contains(r.Waits, "fence") {
			return r.Waits
		}
		return ""
	}); left != "" {
		t.Fatal(left)
	}
	if n := *l.statefulSet().Spec.Replicas; n != 0 {
		t.Errorf("it has %d replicas", n)
	}
}
