package prepare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	automated = "automated: {prune: true, selfHeal: true}"
	hook      = ", annotations: {argocd.argoproj.io/hook: PreSync, " +
		"argocd.argoproj.io/hook-delete-policy: BeforeHookCreation}"
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: registry.example.com/none:1}]}
`
	clusterRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: []
`
)

// A running Argo CD of each version and way of tracking is prepared and taken back. The first run
// is interrupted.
func TestARunningArgoCDIsPreparedWithoutASync(t *testing.T) {
	for _, c := range []struct{ name, version, method string }{
		{"l2", "2.14", byLabel}, {"l3", "3.5", byLabel}, {"a3", "3.5", byAnnotation},
	} {
		t.Run(c.version+" by "+c.method, func(t *testing.T) {
			l := newLab(t, c.version, c.name, map[string]string{methodKey: c.method,
				installationKey: ""})
			l.people(c.name)
			l.prepares(c.name, c.method)
		})
	}
}

// people creates Applications of every shape that matters, and waits until they are synced.
func (l *lab) people(p string) {
	l.Helper()
	l.remote()
	l.apply(fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: people, namespace: %s}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`, l.argo.Namespace))
	named := func(text, name string) string { return strings.ReplaceAll(text, "NAME", name) }
	child := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s-child, namespace: %s}
spec:
  project: people
  source: {repoURL: %q, path: child, targetRevision: main}
  destination: {server: %q, namespace: %s}
  syncPolicy: {%s}
`, p, l.argo.Namespace, l.repo.URL, homeDestination, l.space, automated)
	l.commit(map[string]string{
		"auto/one.yaml": configMap(
			p+"-auto-one",
			"",
		),
		"auto/two.yaml":        configMap(p+"-auto-two", ""),
		"auto/deployment.yaml": named(deployment, p+"-auto"),
		"auto/hook.yaml":       configMap(p+"-hook", hook),
		"cluster/role.yaml":    named(clusterRole, p+"-role"),
		"chart/one.yaml":       configMap(p+"-chart", ", labels: {app.kubernetes.io/instance: x}"),
		"manual/one.yaml":      configMap(p+"-manual-one", ""),
		"manual/two.yaml":      configMap(p+"-manual-two", ""),
		"ssa/one.yaml":         configMap(p+"-ssa", ""),
		"remote/one.yaml":      configMap(p+"-remote", ""),
		"child/one.yaml":       configMap(p+"-child", ""),
		"root/child.yaml":      child,
	})
	for _, a := range []string{"auto", "cluster", "chart"} {
		l.app(p+"-"+a, a, homeDestination, l.space, "people", automated)
	}
	l.app(p+"-ssa", "ssa", homeDestination, l.space, "people", automated,
		"syncOptions: [ServerSideApply=true]")
	l.app(p+"-remote", "remote", l.cluster.Server, l.space, "people", automated)
	l.app(p+"-root", "root", homeDestination, l.argo.Namespace, "people", automated)
	l.app(p+"-manual", "manual", homeDestination, l.space, "people")
	l.app(p+"-broken", "missing", homeDestination, l.space, "people")
	l.until("a comparison", func() bool { return l.status(p+"-manual") == "OutOfSync" })
	l.sync(p + "-manual")
	l.until("every Application is synced", func() bool {
		names := l.names()
		return len(names) == 9 && !slices.ContainsFunc(names, func(name string) bool {
			phase, _, _ := unstructured.NestedString(l.get(name).Object, "status",
				"operationState", "phase")
			return name != p+"-broken" && (l.status(name) != "Synced" || phase != "Succeeded")
		})
	})
	_, err := l.repo.Remove(l.Context(), "remove", "manual/two.yaml")
	l.must(err)
	l.until("a resource needs pruning", func() bool {
		l.refresh(p + "-manual")
		return l.status(p+"-manual") == "OutOfSync"
	})
	l.settles(p)
}

// settles waits until Argo CD has nothing left to do. A comparison soon after a sync may not see
// yet what the sync made: Argo CD then heals it with a second one.
func (l *lab) settles(p string) {
	l.Helper()
	head, err := l.repo.Head(l.Context(), "main")
	l.must(err)
	names := slices.DeleteFunc(l.names(), func(name string) bool { return name == p+"-broken" })
	l.until("all are at the last commit, and Argo CD has nothing to do", func() bool {
		l.refresh(names...)
		return !slices.ContainsFunc(names, func(name string) bool {
			u, want := l.get(name), "Synced"
			if name == p+"-manual" {
				want = "OutOfSync"
			}
			state, _, _ := unstructured.NestedString(u.Object, "status", "sync", "status")
			revision, _, _ := unstructured.NestedString(u.Object, "status", "sync", "revision")
			phase, _, _ := unstructured.NestedString(u.Object, "status", "operationState", "phase")
			return state != want || revision != head || phase != "Succeeded" ||
				u.Object["operation"] != nil
		})
	})
}

func (l *lab) options(p string) (Options, *strings.Builder) {
	out := &strings.Builder{}
	return Options{Engine: "eu-1", Namespace: l.argo.Namespace, InstallationID: "eu-1",
		Version: l.argo.Version, Config: l.cluster.REST(), LeaveOut: []string{p + "-broken"},
		Print: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }}, out
}

// workloads returns the UID and spec of every resource, and the history of every Application. The
// generation of a Deployment counts its annotations too.
func (l *lab) workloads(p string) map[string]string {
	l.Helper()
	all := map[string]string{}
	for _, r := range []schema.GroupVersionResource{configMaps,
		{Group: "apps", Version: "v1", Resource: "deployments"}} {
		list, err := l.cluster.Dynamic().Resource(r).Namespace(l.space).List(l.Context(),
			metav1.ListOptions{})
		l.must(err)
		for _, u := range list.Items {
			all[u.GetKind()+" "+u.GetName()] = fmt.Sprint(
				u.GetUID(),
				u.Object["spec"],
				u.Object["data"],
			)
		}
	}
	for _, name := range l.names() {
		all["Application "+name] = string(l.get(name).GetUID()) + " " + l.history(name)
	}
	return all
}

func (l *lab) settings() map[string]string {
	cm, err := l.cluster.Client().CoreV1().ConfigMaps(l.argo.Namespace).Get(l.Context(),
		settingsName, metav1.GetOptions{})
	l.must(err)
	return cm.Data
}

func (l *lab) same(what string, before, after map[string]string) {
	l.Helper()
	if !maps.Equal(before, after) {
		for k := range before {
			if before[k] != after[k] {
				l.Errorf("%s has changed %s from %q to %q", what, k, before[k], after[k])
			}
		}
		l.Errorf("%s: %d objects before, %d after", what, len(before), len(after))
	}
}

// untrackedNow returns the resources of Applications that the settings in force do not track.
func (l *lab) untrackedNow(o Options, want int) (names []string) {
	l.Helper()
	home, err := connect(homeName, o.Config)
	l.must(err)
	s, err := (&preparer{Options: o, home: home}).read(l.Context())
	l.must(err)
	n := 0
	for _, a := range s.apps {
		for _, r := range a.resources {
			if n++; r.live == nil || !a.leftOut && !r.tracked(a, s) {
				names = append(names, a.name()+" "+r.key.String())
			}
		}
	}
	if n != want {
		l.Errorf("%d resources, not %d", n, want)
	}
	return names
}

func (l *lab) prepares(p, method string) {
	l.Helper()
	o, out := l.options(p)
	o.LeaveOut = nil
	var blocked *BlockedError
	if err := Run(l.Context(), o); !errors.As(err, &blocked) || len(blocked.Reasons) != 1 ||
		!strings.Contains(err.Error(), p+"-broken has no comparison") {
		l.Fatalf("an unreadable Application: %v\n%s", err, out)
	}
	before, settings := l.workloads(p), l.settings()
	o, out = l.options(p)
	o.DryRun = true
	if err := Run(l.Context(), o); !errors.Is(err, ErrSteps) {
		l.Fatalf("dry run: %v\n%s", err, out)
	}
	l.same("the dry run", before, l.workloads(p))
	l.same("the dry run", settings, l.settings())
	l.Logf("dry run:\n%s", out)

	o, out = l.options(p)
	interrupted, cancel := context.WithCancel(l.Context())
	prints := o.Print
	o.Print = func(format string, args ...any) {
		prints(format, args...)
		if strings.HasPrefix(format, "Done") {
			cancel()
		}
	}
	if err := Run(interrupted, o); !errors.Is(err, context.Canceled) {
		l.Fatalf("interrupted: %v\n%s", err, out)
	}
	o, out = l.options(p)
	if err := Run(l.Context(), o); err != nil {
		l.Fatalf("%v\n%s", err, out)
	}
	l.Logf("second run:\n%s", out)
	l.same("the preparation", before, l.workloads(p))
	if names := l.untrackedNow(o, 12); len(names) > 0 {
		l.Errorf("untracked: %q", names)
	}
	want := byBoth
	if method == byAnnotation {
		want = byAnnotation
	}
	if s := l.settings(); s[methodKey] != want || s[installationKey] != "eu-1" {
		l.Errorf("settings %v", s)
	}
	for _, name := range l.names() {
		_, paused := l.get(name).GetAnnotations()[pausedAutomation]
		_, on, _ := unstructured.NestedMap(l.get(name).Object, "spec", "syncPolicy", "automated")
		if manual := name == p+"-manual" || name == p+"-broken"; paused || on == manual {
			l.Errorf("%s: paused %t, automated %t", name, paused, on)
		}
	}
	// Argo CD prunes by the new tracking, in its own time.
	_, err := l.repo.Remove(l.Context(), "remove", "auto/two.yaml")
	l.must(err)
	l.until("what left Git is pruned", func() bool {
		l.refresh(p + "-auto")
		return l.cm(p+"-auto-two") == nil
	})
	l.settles(p)
	l.takesBack(p, settings)
}

func (l *lab) takesBack(p string, settings map[string]string) {
	l.Helper()
	before := l.workloads(p)
	o, out := l.options(p)
	o.Undo = true
	if err := Run(l.Context(), o); err != nil {
		l.Fatalf("%v\n%s", err, out)
	}
	l.Logf("undo:\n%s", out)
	l.same("the undo", before, l.workloads(p))
	if s := l.settings(); s[methodKey] != settings[methodKey] || s[installationKey] != "" {
		l.Errorf("settings after the undo: %v", s)
	}
	if names := l.untrackedNow(o, 11); len(names) > 0 {
		l.Errorf("untracked after the undo: %q", names)
	}
	if id := l.cm(p + "-auto-one").Annotations[installationID]; id != "" {
		l.Errorf("installation-id %q stayed", id)
	}
}
