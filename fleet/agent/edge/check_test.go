package edge

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"argosy.dev/argosy/fleet/agent"
)

// checked runs the network checks against a server that behaves like a hub, except for the requests
// that handle serves.
func checked(t *testing.T, trusted bool, handle func(w http.ResponseWriter,
	r *http.Request) bool) map[string]Result {
	t.Helper()
	probe := agent.Probe()
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case handle != nil && handle(w, r):
			case r.URL.Path == agent.PathSnapshot:
				(&hubDouble{}).refuse(w, http.StatusUnauthorized, agent.Problem{
					Code: agent.CodeProof})
			case r.URL.Path == agent.PathProbe:
				probe.ServeHTTP(w, r)
			}
		}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	settings := Settings{Hub: server.URL}
	if trusted {
		settings.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: server.Certificate().Raw})
	}
	byName := map[string]Result{}
	reported := 0
	checks := &Checks{Settings: settings}
	for _, r := range checks.Run(t.Context(), func(Result) { reported++ }) {
		byName[r.Check] = r
		if r.Level != LevelOK && r.Next == "" {
			t.Errorf("%s has no next step: %+v", r.Check, r)
		}
	}
	if reported != len(byName) {
		t.Errorf("%d of %d results were reported", reported, len(byName))
	}
	return byName
}

func TestChecksPassOnAWorkingRoute(t *testing.T) {
	results := checked(t, true, nil)
	for _, name := range []string{"url", "proxy", "dns", "tcp", "tls", "http", "clock", "stream"} {
		if r := results[name]; r.Level != LevelOK {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestChecksNameTheProblem(t *testing.T) {
	buffered := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != agent.PathProbe {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": probe\n\n: probe\n\n")
		return true
	}
	late := func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Date", "Mon, 05 Jan 2026 10:00:00 GMT")
		return false
	}
	portal := func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.WriteString(w, "<html>sign in first</html>")
		return true
	}
	for name, c := range map[string]struct {
		trusted bool
		handle  func(http.ResponseWriter, *http.Request) bool
		check   string
		level   Level
		want    string
	}{
		"a certificate of an unknown authority": {false, nil, "tls", LevelFail, "--ca-file"},
		"a buffered stream":                     {true, buffered, "stream", LevelFail, "buffers"},
		"a clock that is off":                   {true, late, "clock", LevelWarn, "off the hub's"},
		"a page in the hub's place": {true, portal, "http", LevelFail,
			"but a hub requires a proof"},
	} {
		r := checked(t, c.trusted, c.handle)[c.check]
		if r.Level != c.level || !strings.Contains(r.Found, c.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	closed := &Checks{Settings: Settings{Hub: "https://127.0.0.1:1"}}
	if all := closed.Run(t.Context(), nil); !Failed(all) || all[len(all)-1].Check != "tcp" {
		t.Errorf("a closed port: %+v", all)
	}
	plainHTTP := &Checks{Settings: Settings{Hub: "http://127.0.0.1:1"}}
	if all := plainHTTP.Run(t.Context(), nil); len(all) != 1 || !Failed(all) {
		t.Errorf("plain http: %+v", all)
	}
}

// cluster returns an API server in memory that grants all rights except the denied ones.
func cluster(argo bool, denied ...string) *fake.Clientset {
	client := fake.NewSimpleClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-cm"}})
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "admissionregistration.k8s.io/v1"}}
	if argo {
		client.Resources = append(client.Resources, &metav1.APIResourceList{
			GroupVersion: "argoproj.io/v1alpha1", APIResources: []metav1.APIResource{
				{Name: "applications"}, {Name: "appprojects"}}})
	}
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a kubetesting.Action) (bool,
		runtime.Object, error) {
		review := a.(kubetesting.CreateAction).GetObject().(*authorization.SelfSubjectAccessReview)
		at := review.Spec.ResourceAttributes
		review.Status.Allowed = !slices.Contains(denied, at.Verb+" "+at.Resource)
		return true, review, nil
	})
	return client
}

func TestChecksVerifyTheCluster(t *testing.T) {
	run := func(client *fake.Clientset, in Install) map[string]Result {
		byName := map[string]Result{}
		(&ClusterCheck{Client: client, Install: in}).run(context.Background(), func(r Result) {
			byName[r.Check] = r
		})
		return byName
	}
	good := run(cluster(true), install())
	if good["argocd"].Level != LevelOK || good["rights"].Level != LevelOK ||
		good["secrets policy"].Level != LevelWarn {
		t.Errorf("%+v", good)
	}
	if r := run(cluster(true, "patch secrets"), install())["rights"]; r.Level != LevelFail ||
		!strings.Contains(r.Found, "patch secrets in argocd") || strings.Contains(r.Found,
		"get secrets") {
		t.Errorf("a right that is missing: %+v", r)
	}
	public := install()
	public.PublicOnly = true
	if all := run(cluster(true, "patch secrets"), public); all["rights"].Level != LevelOK ||
		all["secrets policy"].Level != LevelOK {
		t.Errorf("where none is needed: %+v", all)
	}
	if r := run(cluster(false), install())["argocd"]; r.Level != LevelFail {
		t.Errorf("without Argo CD: %+v", r)
	}
}

func TestTheCheckNamesArgoCDsVersion(t *testing.T) {
	labels := map[string]string{"app.kubernetes.io/part-of": "argocd",
		"app.kubernetes.io/component": "application-controller",
		"app.kubernetes.io/version":   "v3.5.7"}
	for image, want := range map[string]string{"argoproj/argocd:v2.14.21": ", v2.14.21",
		"argoproj/argocd@sha256:abc": ", v3.5.7"} {
		client := cluster(true)
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "argocd-application-controller",
				Namespace: "argocd", Labels: labels},
			Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}}}
		if err := client.Tracker().Add(set); err != nil {
			t.Fatal(err)
		}
		check := &ClusterCheck{Client: client, Install: install().withDefaults()}
		if r := check.checkArgoCD(t.Context()); !strings.HasSuffix(r.Found, want) {
			t.Errorf("%s: %+v", image, r)
		}
	}
}

func TestObjectStoresKeepTheirContract(t *testing.T) {
	for name, open := range map[string]func(c *fake.Clientset) ObjectStore{
		"Secret": func(c *fake.Clientset) ObjectStore {
			return SecretStore(c, "argosy-agent", Name)
		},
		"ConfigMap": func(c *fake.Clientset) ObjectStore {
			return ConfigMapStore(c, "argosy-agent", DeletionsName)
		},
	} {
		client := fake.NewSimpleClientset()
		cell := open(client)
		if values, version, err := cell.Load(t.Context()); err != nil || version != "" ||
			values != nil {
			t.Errorf("%s: nothing there: %v %q %v", name, values, version, err)
		}
		if _, err := cell.Save(t.Context(), map[string][]byte{"a": []byte("1"), "b.gz": {0xff, 0}},
			""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := cell.Save(t.Context(), nil, ""); err == nil || !strings.Contains(err.Error(),
			ErrConflict.Error()) {
			t.Errorf("%s: made twice: %v", name, err)
		}
		if _, err := cell.Save(t.Context(), nil, "other"); err == nil ||
			!strings.Contains(err.Error(), ErrConflict.Error()) {
			t.Errorf("%s: at another version: %v", name, err)
		}
		values, _, err := cell.Load(t.Context())
		if err != nil || string(values["a"]) != "1" || string(values["b.gz"]) != "\xff\x00" {
			t.Errorf("%s: %v, %v", name, values, err)
		}
	}
}
