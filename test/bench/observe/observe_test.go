package observe

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"argosy.dev/argosy/test/bench/corpus"
)

func TestRequestsAreDistinguished(t *testing.T) {
	text := `# HELP apiserver_request_total Counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="argoproj.io",resource="applications",scope="resource",subresource="",verb="APPLY",version="v1alpha1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="All",group="argoproj.io",resource="applications",scope="resource",subresource="",verb="APPLY",version="v1alpha1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="argoproj.io",resource="applications",scope="resource",subresource="",verb="GET",version="v1alpha1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="argoproj.io",resource="appprojects",scope="resource",subresource="",verb="GET",version="v1alpha1"} 4
apiserver_request_total{code="0",component="apiserver",dry_run="",group="argoproj.io",resource="applications",scope="namespace",subresource="",verb="WATCH",version="v1alpha1"} 5
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="secrets",scope="resource",subresource="",verb="APPLY",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="secrets",scope="namespace",subresource="",verb="LIST",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="",verb="PATCH",version="v1"} 6
apiserver_request_total{code="200",component="apiserver",dry_run="",group="argoproj.io",resource="applications",scope="resource",subresource="",verb="PATCH",version="v1alpha1"} 8
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	got, err := CountRequests(t.Context(), &Server{Base: server.URL, Client: server.Client()})
	if want := (Requests{Apply: 8, DryRun: 2, Read: 3, Checks: 4, Other: 8}); err != nil ||
		got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}

func TestCheckFindsEveryDifference(t *testing.T) {
	c := corpus.Corpus{Engines: []corpus.Engine{{Name: "a", Namespace: "argocd-a"}}}
	wanted := []corpus.Wanted{c.Wanted(0, "v1"), c.Wanted(1, "v1"), c.Wanted(2, "v1")}
	for name, spoil := range map[string]func(items []map[string]any) []map[string]any{
		"missing": func(items []map[string]any) []map[string]any { return items[1:] },
		"doubled": func(items []map[string]any) []map[string]any {
			return append(items, items[0])
		},
		"unwanted": func(items []map[string]any) []map[string]any {
			return append(items, live(c.Wanted(3, "v1")))
		},
		"an older release": func(items []map[string]any) []map[string]any {
			return append(items[1:], live(c.Wanted(0, "v0")))
		},
		"": func(items []map[string]any) []map[string]any { return items },
	} {
		t.Run(name, func(t *testing.T) {
			var items []map[string]any
			for _, w := range wanted {
				items = append(items, live(w))
			}
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{},
				"items": spoil(items)})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(body)
				}))
			defer server.Close()
			err = Check(t.Context(), wanted,
				Place{&Server{Base: server.URL, Client: server.Client()}, "argocd-a"})
			void := err != nil && strings.HasPrefix(err.Error(), "void: ")
			if void != (name != "") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// live is an Application as a LIST shows it.
func live(w corpus.Wanted) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": w.Deployment, "labels": map[string]any{
			"argosy.dev/tenant": w.Tenant, "argosy.dev/environment": w.Environment,
			"argosy.dev/deployment": w.Deployment}},
		"spec": map[string]any{
			"source": map[string]any{"repoURL": w.RepoURL, "path": w.Path,
				"targetRevision": w.Revision, "kustomize": map[string]any{"images": w.Images}},
			"destination": map[string]any{"namespace": w.Target},
			"syncPolicy": map[string]any{
				"automated": map[string]any{"prune": true, "selfHeal": true}},
		},
	}
}

func TestSplitKeepsBookkeepingApart(t *testing.T) {
	data, books, by := Split(map[string]int64{"desired": 3, "leases": 5, "status": 1},
		map[string]int64{"desired": 4, "leases": 9, "status": 1, "declarations": 2})
	if data != 3 || books != 4 || len(by) != 3 {
		t.Errorf("data %d, bookkeeping %d, tables %v; want 3, 4 and three tables", data, books, by)
	}
}

func TestProcess(t *testing.T) {
	n := 0
	for used := int64(0); used < int64(5*clockTick); {
		n++
		cpu, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if used = int64(cpu); n > 1_000_000 {
			t.Fatal("no CPU time is seen")
		}
	}
	r, err := Memory(os.Getpid())
	if err != nil || r.Now < 1024 || r.Peak < r.Now || r.Program < 100 || r.Program > r.Now {
		t.Errorf("memory %+v KiB, %v", r, err)
	}
}
