package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// redisPod gives an Argo CD whose processes are no Pods a Pod of Redis, to which the API server
// forwards, with its password.
func redisPod(t *testing.T, p *example.Place) {
	t.Helper()
	check(t, p.ArgoCD.ForwardRedis(t.Context()))
	deployments := p.Cluster.Client().AppsV1().Deployments(p.ArgoCD.Namespace)
	t.Cleanup(func() {
		if err := deployments.Delete(context.WithoutCancel(t.Context()), stack.RedisName,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// People see the resources of an Application behind a firewall as far as the admin of its cluster
// allows: first nothing, then all of it, and never another object.
func TestPeopleSeeTheResourcesOfAnApplicationBehindAFirewall(t *testing.T) {
	f := edges.use(t)
	const namespace = "acme-reads"
	s := f.declareSite(t, "reads", "{argocdNamespace: argocd}", map[string]string{
		"reads": f.deployment("reads", "reads", namespace, "")}, namespace)
	defer s.leave(t)
	redisPod(t, &example.Place{Engine: string(s.engine), Cluster: s.edge.Cluster,
		ArgoCD: s.edge.ArgoCD})
	s.join(t)
	app := fleet.ApplicationID{Tenant: "acme", Environment: "reads", Deployment: "reads"}
	eventually(t, "it is Healthy there", f.healthy(t, "acme/reads@reads"))
	as, err := client.New(f.plane.URL, f.plane.Token, "e2e")
	check(t, err)

	refused := len(f.agentRequests(t))
	if _, err := as.Tree(t.Context(), app); err == nil || !strings.Contains(err.Error(),
		"argocd.reads of the chart argosy-agent") {
		t.Errorf("before the admin allows it: %v", err)
	}
	for _, e := range f.agentRequests(t)[refused:] {
		if e.Refused() || strings.Contains(e.RequestURI, "portforward") {
			t.Errorf("the agent has tried it: %s %s", e.Verb, e.RequestURI)
		}
	}

	s.allowReads(t, "--reads", "--read-namespaces", namespace)
	var tree view.Tree
	eventually(t, "the tree comes through the firewall", func() string {
		tree, err = as.Tree(t.Context(), app)
		if err != nil || len(tree.Nodes) == 0 {
			return fmt.Sprint(len(tree.Nodes), " nodes: ", err)
		}
		return ""
	})
	pod := nodeOf(t, tree, "Pod")
	if replicas := tree.Nodes[pod.Parent]; replicas.Kind != "ReplicaSet" ||
		tree.Nodes[replicas.Parent].Kind != "Deployment" || pod.Depth != 2 {
		t.Errorf("the Pod is below %+v", replicas)
	}
	diff, err := as.ApplicationDiff(t.Context(), app)
	if err != nil || len(diff.Resources) != 0 || diff.Same == 0 {
		t.Errorf("diff %+v, %v", diff, err)
	}
	live, err := as.Resource(t.Context(), app, pod.ResourceRef)
	if err != nil || !strings.Contains(live.Live, "name: "+pod.Name) || len(live.Containers) == 0 {
		t.Errorf("the Pod: %+v, %v", live, err)
	}
	if _, err := as.ResourceEvents(t.Context(), app, &pod.ResourceRef); err != nil {
		t.Errorf("events: %v", err)
	}
	syncs, err := as.Syncs(t.Context(), app)
	if err != nil || len(syncs) == 0 || syncs[0].Phase != "Succeeded" {
		t.Errorf("syncs %+v, %v", syncs, err)
	}
	for _, foreign := range []view.ResourceRef{
		{Kind: "Secret", Namespace: "argocd", Name: "argocd-secret"},
		{Kind: "Pod", Namespace: "argocd", Name: "argocd-redis"},
		{Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: "another"},
	} {
		if d, err := as.Resource(t.Context(), app, foreign); err == nil || !strings.Contains(
			err.Error(), "not a resource of the Application") {
			t.Errorf("%s: %+v, %v", foreign, d, err)
		}
	}
	s.followsLog(t, as, app, pod.ResourceRef, live.Containers[0].Name)
	s.measures(t, as, app)
	for _, e := range f.agentRequests(t)[refused:] {
		if e.Refused() {
			t.Errorf("the agent was refused: %s %s (%d)", e.Verb, e.RequestURI,
				e.ResponseStatus.Code)
		}
	}
	s.restarts(t, "acme/reads@reads", namespace)
	s.leave(t)
}

// restarts expects that a workload behind the firewall is restarted as soon as the admin of its
// cluster allows that.
func (s *site) restarts(t *testing.T, app, namespace string) {
	t.Helper()
	out, problem, code := s.argosy(t, "restart", app, "--yes", "--wait")
	if text := out + problem; code == 0 || !strings.Contains(text,
		"argocd.restarts of the chart argosy-agent") {
		t.Errorf("before the admin allows it: %d\n%s", code, text)
	}
	s.allowReads(t, "--reads", "--read-namespaces", namespace, "--restarts")
	before := time.Now().Add(-time.Second)
	if out := s.must(t, "restart", app, "--yes", "--wait"); !strings.Contains(out, "Restarted") {
		t.Errorf("the restart:\n%s", out)
	}
	deployments, err := s.edge.Cluster.Client().AppsV1().Deployments(namespace).List(t.Context(),
		metav1.ListOptions{})
	check(t, err)
	for _, d := range deployments.Items {
		text := d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]
		if at, err := time.Parse(time.RFC3339, text); err != nil || at.Before(before) {
			t.Errorf("Deployment %s was restarted at %q", d.Name, text)
		}
	}
	if len(deployments.Items) == 0 {
		t.Error("there is no Deployment")
	}
}

// allowReads installs the agent again with these flags, as the admin of its cluster does.
func (s *site) allowReads(t *testing.T, flags ...string) {
	t.Helper()
	s.agent.Stop()
	_, err := s.edge.Join(binary, s.token(t), flags...)
	check(t, err)
	s.start(t)
	eventually(t, "the agent is connected again", s.shows(t, upToDate))
}

func nodeOf(t *testing.T, tree view.Tree, kind string) view.TreeNode {
	t.Helper()
	for _, n := range tree.Nodes {
		if n.Kind == kind {
			return n
		}
	}
	t.Fatalf("no %s in %+v", kind, tree.Nodes)
	return view.TreeNode{}
}

// followsLog expects lines while they are written, and that the agent stops reading within seconds
// after the reader has left.
func (s *site) followsLog(t *testing.T, as *client.Client, app fleet.ApplicationID,
	pod view.ResourceRef, container string) {
	t.Helper()
	pods := s.edge.Cluster.Client().CoreV1().Pods(pod.Namespace)
	write := func(text string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"log.lab.argosy.dev/%s":%q}}}`, container,
			text)
		_, err := pods.Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		check(t, err)
	}
	write("first\n")
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		_, err := as.Logs(ctx, app, view.LogRequest{Pod: pod, Follow: true},
			func(next []view.LogLine) error {
				for _, l := range next {
					lines <- l.Text
				}
				return nil
			})
		ended <- err
	}()
	for i, want := range []string{"first", "second"} {
		if i == 1 {
			write("first\nsecond\n")
		}
		began := time.Now()
		select {
		case got := <-lines:
			if !strings.Contains(got, want) {
				t.Errorf("line %d: %q", i, got)
			}
			t.Logf("line %d came after %s", i, time.Since(began).Round(time.Millisecond))
		case err := <-ended:
			t.Fatalf("the log ended: %v", err)
		case <-time.After(patience):
			t.Fatalf("no line %d", i)
		}
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	began := time.Now()
	eventually(t, "no read is left", func() string {
		var left int
		s.query(t, &left, `SELECT count(*) FROM argosy.inspections`)
		if left > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
	t.Logf("the read had ended after %s", time.Since(began).Round(time.Millisecond))
}

// measures reports how long the reads take over a slow network, beside those of a push engine.
func (s *site) measures(t *testing.T, as *client.Client, app fleet.ApplicationID) {
	t.Helper()
	defer s.edge.Hub.Latency(0)
	for _, latency := range []time.Duration{0, 100 * time.Millisecond} {
		s.edge.Hub.Latency(latency)
		for what, read := range map[string]func() error{
			"tree": func() error { _, err := as.Tree(t.Context(), app); return err },
			"diff": func() error { _, err := as.ApplicationDiff(t.Context(), app); return err },
		} {
			var took []time.Duration
			for range 10 {
				began := time.Now()
				check(t, read())
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("%s with %s each way: median %s, slowest %s", what, latency,
				took[5].Round(time.Millisecond), took[9].Round(time.Millisecond))
		}
	}
}
