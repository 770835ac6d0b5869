package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var restartAsked = time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)

// workloadServer is an API server with one Deployment. answers are the codes of the next patches.
type workloadServer struct {
	mu      sync.Mutex
	object  string
	answers []int
	patches []string
}

func (w *workloadServer) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/apis/apps/v1/namespaces/shop/deployments/web" {
		http.Error(out, `{"kind":"Status","code":404}`, http.StatusNotFound)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(out, w.object)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.patches = append(w.patches, string(body))
	code := http.StatusOK
	if len(w.answers) > 0 {
		code, w.answers = w.answers[0], w.answers[1:]
	}
	out.WriteHeader(code)
	_, _ = fmt.Fprintf(out, `{"kind":"Status","code":%d,"message":"denied by a policy"}`, code)
}

func deploymentJSON(uid, spec, restarted string) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":"7"},"spec":{%s"template":`+
		`{"metadata":{"annotations":{%q:%q}}}}}`, uid, spec, annotationRestarted, restarted)
}

func TestAWorkloadIsRestartedOnceForEachRequest(t *testing.T) {
	t.Parallel()
	const none = ""
	earlier := restartAsked.Add(-time.Hour).Format(time.RFC3339)
	later := restartAsked.Add(time.Second).Format(time.RFC3339)
	same := restartAsked.Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		object  string
		answers []int
		stopped bool
		patches int
		err     error
		text    string
	}{
		"never restarted":  {object: deploymentJSON("u", none, none), patches: 1},
		"restarted before": {object: deploymentJSON("u", none, earlier), patches: 1},
		"by this request":  {object: deploymentJSON("u", none, same)},
		"by a later one":   {object: deploymentJSON("u", none, later)},
		"somebody else writes": {object: deploymentJSON("u", none, none), answers: []int{409},
			patches: 2},
		"another object": {object: deploymentJSON("other", none, none),
			err: mirror.ErrNotInTree, text: "was replaced by another object"},
		"paused": {object: deploymentJSON("u", `"paused":true,`, none),
			err: mirror.ErrInspectRefused, text: "it is paused"},
		"OnDelete": {object: deploymentJSON("u", `"updateStrategy":{"type":"OnDelete"},`, none),
			patches: 1, text: "OnDelete"},
		"no right": {object: deploymentJSON("u", none, none), answers: []int{403}, patches: 1,
			err: mirror.ErrInspectRefused, text: "grant patch on deployments in namespace shop"},
		"a policy": {object: deploymentJSON("u", none, none), answers: []int{422}, patches: 1,
			err: mirror.ErrInspectRefused, text: "denied by a policy"},
		"the cluster fails": {object: deploymentJSON("u", none, none), answers: []int{500},
			patches: 1, err: mirror.ErrInspectUnreachable},
		"an emergency stop": {object: deploymentJSON("u", none, none), stopped: true,
			err: engine.ErrStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &workloadServer{object: c.object, answers: c.answers}
			note, err := restartOn(t, s, func() error {
				if c.stopped {
					return engine.ErrStopped
				}
				return nil
			})
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("%v, not %v", err, c.err)
			}
			if text := note + fmt.Sprint(err); !strings.Contains(text, c.text) {
				t.Errorf("%q has no %q", text, c.text)
			}
			if len(s.patches) != c.patches {
				t.Errorf("%d patches, not %d: %v", len(s.patches), c.patches, s.patches)
			}
			for _, p := range s.patches {
				checkRestartPatch(t, p)
			}
		})
	}
}

func restartOn(t *testing.T, s *workloadServer, unlessStopped func() error) (string, error) {
	t.Helper()
	web := httptest.NewServer(s)
	defer web.Close()
	base, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{client: &client{http: web.Client(), base: base, flow: newFlow(2, 2),
		timeout: clusterTime, most: maxClusterBody}}
	return c.restart(t.Context(), fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"},
		mirror.ResourceRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web",
			UID: "u"}, restartAsked, unlessStopped)
}

// checkRestartPatch: the object is exactly the one that was read, and nothing but the annotation
// changes.
func checkRestartPatch(t *testing.T, patch string) {
	t.Helper()
	var got, want any
	expected := fmt.Sprintf(`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"template":`+
		`{"metadata":{"annotations":{%q:"2026-01-02T03:04:05.000678Z"}}}}}`, annotationRestarted)
	if err := errors.Join(json.Unmarshal([]byte(patch), &got), json.Unmarshal([]byte(expected),
		&want)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the patch is %s, not %s", patch, expected)
	}
}

func TestARestartTakesExactlyTheNamedWorkloads(t *testing.T) {
	t.Parallel()
	workload := func(kind, namespace, name string) mirror.RestartedWorkload {
		return mirror.RestartedWorkload{ResourceRef: mirror.ResourceRef{Group: "apps", Kind: kind,
			Namespace: namespace, Name: name, UID: namespace + name}}
	}
	all := []mirror.RestartedWorkload{workload("Deployment", "shop", "web"),
		workload("Deployment", "cart", "web"), workload("StatefulSet", "shop", "db")}
	named := func(kind, namespace, name, uid string) []mirror.ActionResource {
		return []mirror.ActionResource{{Group: "apps", Kind: kind, Namespace: namespace, Name: name,
			UID: uid}}
	}
	for want, names := range map[string][]mirror.ActionResource{
		"3":                             nil,
		"1":                             named("StatefulSet", "", "db", ""),
		"1 ":                            named("Deployment", "cart", "web", "cartweb"),
		"is in 2 namespaces: name one":  named("Deployment", "", "web", ""),
		"was replaced by another":       named("Deployment", "cart", "web", "older"),
		"is no Deployment, StatefulSet": named("DaemonSet", "shop", "web", ""),
	} {
		chosen, err := chooseWorkloads(all, names)
		got := fmt.Sprint(len(chosen))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, strings.TrimSpace(want)) {
			t.Errorf("%v: %s, not %s", names, got, want)
		}
	}
	if _, err := chooseWorkloads(nil, nil); !errors.Is(err, mirror.ErrInspectRefused) {
		t.Errorf("without workloads: %v", err)
	}
	if _, err := chooseWorkloads(make([]mirror.RestartedWorkload, mirror.MaxActionResources+1),
		nil); !errors.Is(err, mirror.ErrInspectRefused) {
		t.Errorf("with too many: %v", err)
	}
}
