package helm

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/test/stack"
)

func TestTheFleetRunsUnderExactlyWhatTheChartsMade(t *testing.T) {
	w := open(t)
	w.push()
	p := plane{w, w.prepare()}
	w.engines()
	w.trial()
	w.install(w.hub, "argosy", "argosy", hubSpace)
	w.migrations()
	hub := w.serve()
	w.join(p)
	eventually(t, "the config repo is read", p.sound)
	eventually(t, "from the commit to Healthy, by the hub and through the agent",
		p.healthy(onEngine, onEdge))
	w.register(p)
	p.versions()
	w.doctor()

	hub = w.upgraded(p, hub)
	hub = w.away(p, hub)
	w.stops(p)
	must(w.config.Remove(t.Context(), "nothing is deployed any more", declared, pressed,
		credential))(t)
	eventually(t, "nothing runs any more", w.left("Application", "Deployment"))
	must(w.config.Remove(t.Context(), "the tenant leaves", prod, factory, plant, tenant))(t)
	eventually(t, "nothing is left", w.left("Application", "Deployment", "AppProject", "Secret"))
	hub.Stop()
	w.rights()
}

// engines installs both patterns: the complete one, and on the other cluster an
// application-controller that uses the first one's repo-server and Redis.
func (w *setup) engines() {
	w.t.Helper()
	w.install(w.hub, "eu-1", "argosy-engine", argoSpace)
	w.complete(w.hub, argoSpace, w.repoServer, w.redis)

	password := must(w.hub.cluster.Client().CoreV1().Secrets(argoSpace).Get(w.t.Context(),
		"argocd-redis", metav1.GetOptions{}))(w.t)
	w.secret(w.edge, edgeArgo, "argocd-redis", map[string]string{
		"auth": string(password.Data["auth"])})
	w.install(w.edge, "edge", "argosy-engine", edgeArgo)
	w.pod(w.edge, edgeArgo, "app.kubernetes.io/name=argocd-application-controller",
		map[string]string{w.redis.address: w.redis.address,
			w.repoServer.address: w.repoServer.address}).start()
}

// complete runs the Pods of a complete Argo CD, behind the doors.
func (w *setup) complete(at place, namespace string, repoServer, redis *door) {
	w.t.Helper()
	reach := map[string]string{"127.0.0.1:6379": redis.address}
	w.pod(at, namespace, "app.kubernetes.io/name=argocd-redis", map[string]string{}).behind(
		redis).start()
	w.pod(at, namespace, "app.kubernetes.io/name=argocd-repo-server",
		with(reach, w.gitAddress(), w.gitAddress())).behind(repoServer).start()
	w.pod(at, namespace, "app.kubernetes.io/name=argocd-application-controller",
		with(reach, "127.0.0.1:8081", repoServer.address)).start()
}

// with is a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	more := maps.Clone(m)
	more[key] = value
	return more
}

// hubPod is one of the control plane's.
func (w *setup) hubPod(label string) *pod {
	w.t.Helper()
	return w.pod(w.hub, hubSpace, label, map[string]string{w.gitAddress(): w.gitAddress(),
		w.databaseAddress(): w.databaseAddress()})
}

const controlPlane = "app.kubernetes.io/component=control-plane"

// trial starts on an empty database with `startup`: a replica that makes the schema itself. It does
// not reach the config repo.
func (w *setup) trial() {
	w.t.Helper()
	w.secret(w.hub, hubSpace, "argosy-database", map[string]string{"url": w.fresh})
	w.install(w.hub, "argosy", "argosy", hubSpace, "database.migrations=startup")
	w.pod(w.hub, hubSpace, controlPlane, map[string]string{
		w.databaseAddress(): w.databaseAddress()}).start().Stop()
	w.secret(w.hub, hubSpace, "argosy-database", map[string]string{"url": w.database})
}

// migrations goes from `external` to `job` and back: a replica that may not migrate names the one
// that must, and the Job migrates.
func (w *setup) migrations() {
	w.t.Helper()
	if log, err := w.hubPod(controlPlane).run(); err == nil ||
		!strings.Contains(log, "run `argosy migrate`") {
		w.t.Fatalf("it starts without a schema: %v\n%s", err, log)
	}
	w.install(w.hub, "argosy", "argosy", hubSpace, "database.migrations=job")
	w.hook(w.hub, "argosy", hubSpace, "argosy-migrate")
	if log, err := w.hubPod("job-name=argosy-migrate").run(); err != nil ||
		!strings.Contains(log, "the schema is at version") {
		w.t.Fatalf("the Job: %v\n%s", err, log)
	}
	w.install(w.hub, "argosy", "argosy", hubSpace)
}

// serve runs the control plane until it is ready.
func (w *setup) serve() *stack.Process {
	w.t.Helper()
	return w.hubPod(controlPlane).behind(w.front).start()
}

// join installs the agent, with a token that somebody has made, and runs it.
func (w *setup) join(p plane) {
	w.t.Helper()
	w.install(w.edge, "argosy-agent", "argosy-agent", edgeSpace)
	token := rand.Text() + rand.Text()
	file := w.file("token", token)
	eventually(w.t, "a token is made", func() string {
		// until the config repo is read, the environment is unknown
		out, err := p.argosy("agent", "token", "create", "acme/factory", "--from-file", file)
		return map[bool]string{true: out}[err != nil]
	})
	w.secret(w.edge, edgeSpace, "argosy-agent", map[string]string{"registrationToken": token})
	w.pod(w.edge, edgeSpace, "app.kubernetes.io/name=argosy-agent", map[string]string{
		w.front.address: w.front.address}).start()
}

// doctor runs what `helm test` runs.
func (w *setup) doctor() {
	w.t.Helper()
	w.hook(w.hub, "argosy", hubSpace, "argosy-doctor")
	if log, err := w.hubPod("app.kubernetes.io/component=doctor").run(); err != nil ||
		strings.Contains(log, "BAD") {
		w.t.Errorf("the doctor: %v\n%s", err, log)
	}
}

// away uninstalls the control plane and installs it again: nothing that it has made is touched,
// then or later.
func (w *setup) away(p plane, hub *stack.Process) *stack.Process {
	w.t.Helper()
	was := w.state(p)
	hub.Stop() // first, for its Pods and its rights go together
	w.front.lead(nil)
	w.helm(w.hub, "uninstall", "argosy", "--namespace", hubSpace, "--wait")
	if _, err := w.hub.cluster.Client().CoreV1().ServiceAccounts(hubSpace).Get(w.t.Context(),
		"argosy", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("after uninstalling its account is there: %v", err)
	}
	w.same("uninstalled", was.versions, w.versions())
	w.install(w.hub, "argosy", "argosy", hubSpace, "database.migrations=startup")
	hub = w.serve()
	w.untouched("installed again", p, was)
	return hub
}

// state is the objects, the writes so far, and the replica that writes to the engine.
type state struct {
	versions map[string]string
	wrote    map[string][]string // by the namespace of an instance
	holder   string
	at       time.Time
}

func (w *setup) state(p plane) state {
	w.t.Helper()
	versions := w.restingVersions()
	return state{versions, w.written(), p.holder(), time.Now()}
}

// untouched waits until another replica writes to the engine and both agents follow it, and then
// long enough for it to write: it must not have written, and every object is the same.
func (w *setup) untouched(when string, p plane, was state) {
	w.t.Helper()
	eventually(w.t, when+", another replica has the engine", func() string {
		now := p.holder()
		return map[bool]string{true: "held by " + now}[now == "" || now == was.holder]
	})
	eventually(w.t, when+", the agents are connected and up to date", p.followed(was.at))
	eventually(w.t, when+", it finds all", p.healthy(onEngine, onEdge, onPlant))
	w.same(when, was.versions, w.restingVersions())
	for namespace, now := range w.written() {
		if before := len(was.wrote[namespace]); len(now) != before {
			w.t.Errorf("%s, it writes in %s: %v", when, namespace, now[min(before, len(now)):])
		}
	}
}

// written are the writes of the control plane and the agents to what the Argo CDs act on.
func (w *setup) written() map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	for _, at := range w.instances() {
		all[at.namespace] = at.writes(w.t, at.writer+":", at.namespace)
	}
	return all
}

// stops stops everything and goes on.
func (w *setup) stops(p plane) {
	w.t.Helper()
	p.must("stop", "--yes", "--reason", "a test")
	for _, at := range w.instances() {
		eventually(w.t, "the stop is kept in "+at.namespace, func() string {
			m, err := at.cluster.Client().CoreV1().ConfigMaps(at.namespace).Get(w.t.Context(),
				"argosy-emergency-stop", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return map[bool]string{true: fmt.Sprint(m.Data)}[len(m.Data) == 0]
		})
	}
	p.must("resume")
}

// rights holds the accounts of the charts against the audit logs.
func (w *setup) rights() {
	w.t.Helper()
	w.hub.nothingRefused(w.t, hubSpace)
	w.hub.nothingRefused(w.t, argoSpace)
	w.edge.nothingRefused(w.t, edgeSpace)
	w.edge.nothingRefused(w.t, edgeArgo)
	w.edge.nothingRefused(w.t, plantArgo)
	w.edge.nothingRefused(w.t, plantSpace)
	w.hub.noneIdle(w.t, hubSpace, "argosy", map[string]string{
		"get secrets in argosy": kubeconfigs, "list secrets in argosy": kubeconfigs,
		"watch secrets in argosy": kubeconfigs,
	})
	for _, at := range w.instances()[1:] {
		idle := map[string]string{
			"get customresourcedefinitions.apiextensions.k8s.io/applications.argoproj.io": untagged}
		at.noneIdle(w.t, at.writer, "argosy-agent", idle)
	}
}

// Why rights are granted that this test makes no use of.
const (
	kubeconfigs = "engines with a kubeconfigRef have theirs there, and the one of this test is in the hub's own cluster"
	untagged    = "where neither the image nor a label has the version, the definition does"
)
