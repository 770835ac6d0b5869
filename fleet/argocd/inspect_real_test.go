package argocd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v2/common"
	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// secretText is the value of a Secret that no read may show, in any of its forms.
const secretText = "hunter2-is-the-password"

const inspectedManifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations:
        log.lab.argosy.dev/app: "first line\nsecond line\n"
    spec: {containers: [{name: app, image: example.com/web:1}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: broken}
spec:
  replicas: 1
  selector: {matchLabels: {app: broken}}
  template:
    metadata:
      labels: {app: broken}
      annotations: {previous-log.lab.argosy.dev/app: "it ends\n"}
    spec: {containers: [{name: app, image: example.com/broken:1, command: ["false"]}]}
---
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: ` + secretText + `}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {value: one}
`

// inspectLab is an argoLab with an Application of Pods, a Secret and a ConfigMap, and a Redis that
// a port forward reaches.
type inspectLab struct {
	*argoLab
	app mirror.InspectedApplication
	row mirror.Row
}

func newInspectLab(t *testing.T, version string) *inspectLab {
	t.Helper()
	l := &inspectLab{argoLab: newArgoLab(t, version)}
	token, err := l.cluster.TenantToken(t.Context(), "acme-"+l.spaceA, l.spaceA)
	if err != nil {
		t.Fatal(err)
	}
	env := fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}
	credential := fleet.NewSecret(map[string][]byte{"token": []byte(token)})
	l.commit(map[string]string{"web/all.yaml": inspectedManifests})
	for _, row := range l.foundation(env, l.spaceA) {
		l.apply(row, credential)
	}
	id := fleet.ApplicationID{Tenant: acme, Deployment: "web", Environment: "prod-eu"}
	l.row = l.argoLab.app(id, "web", l.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Sync.SelfHeal = false
	})
	l.apply(l.row, fleet.Secret{})
	var uid string
	l.observed("synced", l.row.Key, func(o mirror.Observation) bool {
		uid = o.UID
		return o.Sync == mirror.SyncSynced
	})
	l.app = mirror.InspectedApplication{ID: id, Engine: l.name, Name: l.row.Key.Name,
		Object: l.row.Key.Name, UID: uid}
	_, address, password := l.argo.Internal()
	l.redisPod(address, password)
	return l
}

// redisPod makes a port forward to the Pod of Redis lead to an address.
func (l *inspectLab) redisPod(address, password string) {
	l.Helper()
	ctx, client, in := l.Context(), l.cluster.Client().CoreV1(), l.argo.Namespace
	_, err := client.Secrets(in).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: redisSecret}, StringData: map[string]string{"auth": password}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		l.Fatal(err)
	}
	const name = "argocd-redis-0"
	mark := "lab.argosy.dev/forward-" + strconv.Itoa(redisPort)
	_, err = client.Pods(in).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"app.kubernetes.io/name": "argocd-redis"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "redis", Image: "example.com/redis"}}}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		l.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, mark, address)
	if _, err := client.Pods(in).Patch(ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
	l.until("Redis is ready", func() bool {
		p, err := client.Pods(in).Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})
}

// tree waits for a tree.
func (l *inspectLab) tree(what string, ok func(mirror.Tree) bool) (t mirror.Tree) {
	l.Helper()
	l.until(what, func() bool {
		var err error
		if t, err = l.e.Tree(l.Context(), l.app); err != nil &&
			!errors.Is(err, mirror.ErrNoTree) {
			var failed *mirror.InspectError
			errors.As(err, &failed)
			l.Fatalf("%v (%v)", err, failed.Cause)
		}
		return err == nil && ok(t)
	})
	return t
}

func nodeNamed(t mirror.Tree, kind, prefix string) (mirror.TreeNode, bool) {
	for _, n := range t.Nodes {
		if n.Kind == kind && strings.HasPrefix(n.Name, prefix) {
			return n, true
		}
	}
	return mirror.TreeNode{}, false
}

func TestResourcesAndActionsOfARealArgoCD(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			l := newInspectLab(t, version)
			l.showsTheTree()
			l.showsADiffAndNoSecret()
			l.showsLogs()
			l.showsEvents()
			l.readsNothingElse()
			l.showsSyncs()
			l.actsOnIt()
			l.readsALargeTree()
			l.endsWithAHangingRedis()
		})
	}
}

func (l *inspectLab) showsTheTree() {
	l.Helper()
	t := l.tree("a Pod restarts", func(t mirror.Tree) bool {
		p, ok := nodeNamed(t, "Pod", "broken-")
		return ok && p.Restarts == 1
	})
	began := time.Now()
	if _, err := l.e.Tree(l.Context(), l.app); err != nil {
		l.Error(err)
	}
	l.Logf("Argo CD %s: a tree of %d nodes in %s", l.argo.Version, len(t.Nodes), time.Since(began))
	pod, _ := nodeNamed(t, "Pod", "broken-")
	if pod.Reason != "CrashLoopBackOff" || pod.Ready != "0/1" || pod.Health != "Degraded" ||
		!slices.Equal(pod.Images, []string{"example.com/broken:1"}) || pod.Managed ||
		pod.CreatedAt == nil {
		l.Errorf("the Pod is %+v", pod)
	}
	set := t.Nodes[pod.Parent]
	deployment := t.Nodes[set.Parent]
	if set.Kind != "ReplicaSet" || deployment.ResourceRef.String() != "Deployment/broken" ||
		!deployment.Managed || deployment.Sync != mirror.SyncSynced || deployment.Depth != 0 {
		l.Errorf("the Pod is below %+v, below %+v", set, deployment)
	}
}

// showsADiffAndNoSecret: after an edit by hand of a ConfigMap and of a Secret, the diff names both,
// and no read shows the value.
func (l *inspectLab) showsADiffAndNoSecret() {
	l.Helper()
	ctx, client := l.Context(), l.cluster.Client().CoreV1()
	_, err := client.ConfigMaps(l.spaceA).Patch(ctx, "settings", types.MergePatchType,
		[]byte(`{"data":{"value":"by hand"}}`), metav1.PatchOptions{})
	if err == nil {
		_, err = client.Secrets(l.spaceA).Patch(ctx, "db", types.MergePatchType, []byte(
			`{"stringData":{"password":"other-`+secretText+`"},"metadata":{"annotations":`+
				`{"copy.example.com/value":"`+secretText+`"}}}`), metav1.PatchOptions{})
	}
	if err != nil {
		l.Fatal(err)
	}
	var d mirror.ApplicationDiff
	l.until("the edits are differences", func() bool {
		d, err = l.e.Diff(ctx, l.app)
		return err == nil && len(d.Resources) == 2
	})
	began := time.Now()
	if d, err = l.e.Diff(ctx, l.app); err != nil {
		l.Fatal(err)
	}
	l.Logf("Argo CD %s: a diff in %s", l.argo.Version, time.Since(began))
	if r := d.Resources[0]; r.Name != "settings" ||
		!strings.Contains(r.Diff, "-  value: by hand\n") ||
		!strings.Contains(r.Diff, "+  value: one\n") || r.Change != mirror.ResourceUpdated {
		l.Errorf("the ConfigMap's difference is %+v", r)
	}
	if r := d.Resources[1]; r.Name != "db" || !r.Masked ||
		!strings.Contains(r.Diff, "password: +") {
		l.Errorf("the Secret's difference is %+v", r)
	}
	shown := []any{d}
	for _, ref := range []mirror.ResourceRef{{Kind: "Secret", Name: "db"},
		{Kind: "ConfigMap", Name: "settings"}, {Kind: "Deployment", Name: "web"}} {
		detail, err := l.e.Resource(ctx, l.app, ref)
		if err != nil || detail.Live == "" || detail.Desired == "" {
			l.Errorf("%s: %v %+v", ref, err, detail)
		}
		shown = append(shown, detail)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		l.Fatal(err)
	}
	for _, value := range []string{secretText, "aHVudGVyMi1pcy10aGUtcGFzc3dvcmQ",
		"b3RoZXItaHVudGVyMi1pcy10aGUtcGFzc3dvcmQ"} {
		if strings.Contains(string(text), value) {
			l.Errorf("a value of the Secret is shown: %s", text)
		}
	}
}

// log reads a log to its end, or until done returns true.
func (l *inspectLab) log(r mirror.LogRequest, done func(lines []string) bool) ([]string,
	mirror.LogEnd, error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var lines []string
	end, err := l.e.Logs(ctx, l.app, r, func(some []mirror.LogLine) error {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range some {
			lines = append(lines, line.Text)
		}
		if done != nil && done(lines) {
			return errors.New("enough")
		}
		return nil
	})
	return lines, end, err
}

func (l *inspectLab) annotatePod(name, key, value string) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{key: value}}})
	if err == nil {
		_, err = l.cluster.Client().CoreV1().Pods(l.spaceA).Patch(l.Context(), name,
			types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *inspectLab) showsLogs() {
	l.Helper()
	t := l.tree("the Pods are there", func(mirror.Tree) bool { return true })
	web, _ := nodeNamed(t, "Pod", "web-")
	broken, _ := nodeNamed(t, "Pod", "broken-")
	lines, end, err := l.log(mirror.LogRequest{Pod: web.ResourceRef}, nil)
	if err != nil || end != mirror.LogComplete || !slices.Equal(lines, []string{"first line",
		"second line"}) {
		l.Errorf("the log is %q, %s, %v", lines, end, err)
	}
	if lines, _, err = l.log(mirror.LogRequest{Pod: web.ResourceRef, Tail: 1}, nil); err != nil ||
		!slices.Equal(lines, []string{"second line"}) {
		l.Errorf("the last line is %q, %v", lines, err)
	}
	if lines, _, err = l.log(mirror.LogRequest{Pod: broken.ResourceRef, Previous: true},
		nil); err != nil || !slices.Equal(lines, []string{"it ends"}) {
		l.Errorf("the log before the restart is %q, %v", lines, err)
	}
	if _, _, err = l.log(mirror.LogRequest{Pod: web.ResourceRef, Container: "none"},
		nil); !errors.Is(err, mirror.ErrInspectRefused) || !strings.Contains(err.Error(), `"app"`) {
		l.Errorf("a missing container: %v", err)
	}
	lines, end, err = l.log(mirror.LogRequest{Pod: web.ResourceRef, Follow: true},
		func(lines []string) bool {
			if len(lines) == 2 {
				l.annotatePod(web.Name, "log.lab.argosy.dev/app",
					"first line\nsecond line\nthird line\n")
			}
			return len(lines) == 3
		})
	if err != nil || end != mirror.LogCancelled || len(lines) != 3 || lines[2] != "third line" {
		l.Errorf("the followed log is %q, %s, %v", lines, end, err)
	}
	for _, bytes := range []string{strconv.Itoa(1 << 30), "endless"} {
		l.annotatePod(web.Name, "log-bytes.lab.argosy.dev/app", bytes)
		lines, end, err = l.log(mirror.LogRequest{Pod: web.ResourceRef, Follow: true}, nil)
		size := 0
		for _, line := range lines {
			size += len(line)
		}
		if err != nil || end != mirror.LogTooLong || size > mirror.MaxLogBytes {
			l.Errorf("a log of %s bytes ends %s after %d, %v", bytes, end, size, err)
		}
	}
}

func (l *inspectLab) showsEvents() {
	l.Helper()
	t := l.tree("the Pods are there", func(mirror.Tree) bool { return true })
	web, _ := nodeNamed(t, "Pod", "web-")
	events := l.cluster.Client().CoreV1().Events(l.spaceA)
	for name, uid := range map[string]string{"ours": web.UID, "foreign": "another-uid"} {
		if _, err := events.Create(l.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Name: name}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: l.spaceA,
			Name: web.Name, UID: types.UID(uid)}, Reason: "Lab", Message: "\x1b[31m" + name,
			Type: "Warning", Count: 3, LastTimestamp: metav1.Now()},
			metav1.CreateOptions{}); err != nil {
			l.Fatal(err)
		}
	}
	for _, ref := range []*mirror.ResourceRef{nil, &web.ResourceRef} {
		all, err := l.e.ResourceEvents(l.Context(), l.app, ref)
		text := fmt.Sprintf("%+v", all)
		if err != nil || !strings.Contains(text, "ours") || strings.Contains(text, "foreign") {
			l.Errorf("the events are %v, %s", err, text)
		}
	}
}

// readsNothingElse: an object of the same namespace that the Application does not have, one of
// another UID, and an Application of another identity are refused, and no request is made for them.
func (l *inspectLab) readsNothingElse() {
	l.Helper()
	ctx := l.Context()
	if _, err := l.cluster.Client().CoreV1().ConfigMaps(l.spaceA).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	for _, ref := range []mirror.ResourceRef{{Kind: "ConfigMap", Namespace: l.spaceA,
		Name: "foreign"}, {Kind: "Deployment", Group: "apps", Name: "web", UID: "another"}} {
		_, err := l.e.Resource(ctx, l.app, ref)
		_, eventsErr := l.e.ResourceEvents(ctx, l.app, &ref)
		if !errors.Is(err, mirror.ErrNotInTree) || !errors.Is(eventsErr, mirror.ErrNotInTree) {
			l.Errorf("%s: %v, %v", ref, err, eventsErr)
		}
	}
	_, _, err := l.log(mirror.LogRequest{Pod: mirror.ResourceRef{Name: "foreign"}}, nil)
	if !errors.Is(err, mirror.ErrNotInTree) {
		l.Errorf("the log of a foreign Pod: %v", err)
	}
	for name, change := range map[string]func(*mirror.InspectedApplication){
		"another tenant": func(a *mirror.InspectedApplication) { a.ID.Tenant = "globex" },
		"another UID":    func(a *mirror.InspectedApplication) { a.UID = "another" },
		"another name":   func(a *mirror.InspectedApplication) { a.Object = "argosy-probe" },
		"a namespace":    func(a *mirror.InspectedApplication) { a.Object = "kube-system/web" },
	} {
		other := l.app
		change(&other)
		if _, err := l.e.Tree(ctx, other); !errors.Is(err, mirror.ErrNoTree) {
			l.Errorf("%s: %v", name, err)
		}
	}
}

func (l *inspectLab) showsSyncs() {
	l.Helper()
	all, err := l.e.Syncs(l.Context(), l.app)
	if err != nil || len(all) == 0 || all[0].Phase != "Succeeded" || !all[0].Automated ||
		len(all[0].Revisions) != 1 || len(all[0].Results) != 4 || all[0].StartedAt == nil {
		l.Errorf("the syncs are %v, %+v", err, all)
	}
}

// readsALargeTree: a tree of 2,000 resources in shards, as the application-controller writes it,
// is read in less than a second.
func (l *inspectLab) readsALargeTree() {
	l.Helper()
	const nodes, shard = 2000, 600
	_, address, password := l.argo.Internal()
	client := redis.NewClient(&redis.Options{Addr: address, Password: password})
	defer func() { _ = client.Close() }()
	var tree v1alpha1.ApplicationTree
	for i := range nodes {
		n := v1alpha1.ResourceNode{ResourceRef: v1alpha1.ResourceRef{Version: "v1", Kind: "Pod",
			Namespace: l.spaceA, Name: fmt.Sprintf("pod-%04d", i), UID: fmt.Sprint("uid-", i)},
			Images: []string{"example.com/web:1"}, Health: &v1alpha1.HealthStatus{
				Status: "Healthy"}, Info: []v1alpha1.InfoItem{{Name: "Containers", Value: "1/1"}}}
		if i > 0 {
			n.ParentRefs = []v1alpha1.ResourceRef{tree.Nodes[(i-1)/10].ResourceRef}
		}
		tree.Nodes = append(tree.Nodes, n)
	}
	var took time.Duration
	l.until("the large tree is read", func() bool { // the controller may write its own in between
		for i, part := range tree.GetShards(shard) {
			key := "app|resources-tree|" + l.app.Name
			if i > 0 {
				key += "|" + strconv.Itoa(i)
			}
			var text bytes.Buffer
			z := gzip.NewWriter(&text)
			if err := errors.Join(json.NewEncoder(z).Encode(part), z.Close(), client.Set(
				l.Context(), key+"|"+common.CacheVersion+".gz", text.Bytes(),
				time.Hour).Err()); err != nil {
				l.Fatal(err)
			}
		}
		began := time.Now()
		t, err := l.e.Tree(l.Context(), l.app)
		took = time.Since(began)
		return err == nil && len(t.Nodes) == nodes
	})
	if l.Logf("Argo CD %s: a tree of %d nodes in %s", l.argo.Version, nodes, took); took >
		time.Second {
		l.Errorf("a tree of %d nodes takes %s", nodes, took)
	}
}

// endsWithAHangingRedis: a Redis that accepts connections and answers nothing costs a bounded time,
// and the next read is answered when it works again.
func (l *inspectLab) endsWithAHangingRedis() {
	l.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }() // it answers nothing
		}
	}()
	_, address, password := l.argo.Internal()
	l.redisPod(listener.Addr().String(), password)
	l.e.CloseInspection()
	began := time.Now()
	_, err = l.e.Tree(l.Context(), l.app)
	if took := time.Since(began); !errors.Is(err, mirror.ErrInspectUnreachable) ||
		took > mirror.InspectTime+5*time.Second || strings.Contains(err.Error(), "127.0.0.1") {
		l.Errorf("after %s: %v", took, err)
	}
	l.redisPod(address, password)
	if _, err := l.e.Tree(l.Context(), l.app); err != nil {
		l.Errorf("after Redis works again: %v", err)
	}
}

var _ engine.Inspector = (*Engine)(nil)
