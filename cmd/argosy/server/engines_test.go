package server

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"argosy.dev/argosy/fleet"
)

// slowServer is an API server that lists so many empty pages of Applications, each after a pause;
// with none it never answers a list.
func slowServer(t *testing.T, pages int, pause time.Duration) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, page := "", 0
		_, _ = fmt.Sscanf(r.URL.Query().Get("continue"), "page-%d", &page)
		last := true
		switch {
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
			return
		case strings.HasSuffix(r.URL.Path, "/applications"):
			if pages == 0 {
				<-r.Context().Done()
				return
			}
			<-time.After(pause)
			kind, last = "ApplicationList", page+1 >= pages
		case strings.HasSuffix(r.URL.Path, "/appprojects"):
			kind = "AppProjectList"
		case strings.HasSuffix(r.URL.Path, "/secrets"):
			kind = "SecretList"
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(
				[]byte(
					`{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","details":{"name":"argosy-emergency-stop","kind":"configmaps"}}`))
			return
		}
		meta := map[string]any{"resourceVersion": "7"}
		if !last {
			meta["continue"] = fmt.Sprintf("page-%d", page+1)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": "v1",
			"metadata": meta, "items": []any{}})
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// kubeconfigs holds the kubeconfig of one API server.
type kubeconfigs struct{ server *httptest.Server }

func (k kubeconfigs) Get(context.Context, fleet.CredentialSource) (fleet.Secret, error) {
	c := clientcmdapi.NewConfig()
	c.CurrentContext = "c"
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.server.Certificate().Raw})
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: k.server.URL, CertificateAuthorityData: ca}
	c.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "t"}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	b, err := clientcmd.Write(*c)
	return fleet.NewSecret(map[string][]byte{"kubeconfig": b}), err
}

func findOn(t *testing.T, s *httptest.Server, silence time.Duration) error {
	t.Helper()
	e := engines{secrets: kubeconfigs{s}, inFlight: 4, silence: silence}
	_, _, err := e.Find(t.Context(), "eu-1", fleet.EngineSpec{
		ArgoCD:     fleet.ArgoCDInstance{Namespace: "argocd", InstallationID: "eu-1"},
		Connection: fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: "eu-1"}},
	})
	return err
}

// However long a list takes, it is read to its end while pages arrive.
func TestEngineIsFoundHoweverLongItsListTakesWhilePagesArrive(t *testing.T) {
	t.Parallel()
	const silence = 3 * time.Second
	began := time.Now()
	if err := findOn(t, slowServer(t, 9, silence/6), silence); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) < silence {
		t.Error("the list did not take longer than the silence that is borne")
	}
}

func TestEngineThatSendsNoFurtherPageIsNotFound(t *testing.T) {
	t.Parallel()
	err := findOn(t, slowServer(t, 0, 0), 200*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(),
		"engine eu-1: nothing of it was read for 200ms") {
		t.Errorf("%v", err)
	}
}
