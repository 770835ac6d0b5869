package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
)

// apiServer serves Secrets in a synctest bubble, which a socket would leave.
type apiServer struct {
	mu       sync.Mutex
	hung     bool
	inFlight int
	most     int            // most concurrent requests for one Secret
	watches  map[string]int // open, by namespace
	streams  map[string]chan string
}

func newAPIServer() *apiServer {
	return &apiServer{watches: map[string]int{}, streams: map[string]chan string{}}
}

func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	// api/v1/namespaces/NS/secrets[/NAME]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	namespace := parts[3]
	switch {
	case r.URL.Query().Get("watch") != "":
		return a.watch(r, namespace), nil
	case len(parts) == 5:
		return answer(metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
				Kind: "PartialObjectMetadataList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		}), nil
	}
	return a.get(r, namespace, parts[5])
}

func (a *apiServer) get(r *http.Request, namespace, name string) (*http.Response, error) {
	a.mu.Lock()
	hung := a.hung
	a.inFlight++
	a.most = max(a.most, a.inFlight)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.inFlight--
		a.mu.Unlock()
	}()
	if hung {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(10 * time.Millisecond) // by the bubble's clock
	return answer(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"token": []byte("t")},
	}), nil
}

func (a *apiServer) watch(r *http.Request, namespace string) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches[namespace]++
	stream := make(chan string)
	a.streams[namespace] = stream
	in, out := io.Pipe()
	body := &watchBody{PipeReader: in, closed: make(chan struct{})}
	go func() {
		defer func() {
			a.mu.Lock()
			a.watches[namespace]--
			a.mu.Unlock()
			_ = out.Close()
		}()
		for {
			select {
			case <-body.closed:
				return
			case <-r.Context().Done():
				return
			case line := <-stream:
				fmt.Fprintln(out, line)
			}
		}
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{
		"Content-Type": {"application/json"}}, Body: body}
}

// watchBody ends the watch when the client closes it, like a connection.
type watchBody struct {
	*io.PipeReader
	once   sync.Once
	closed chan struct{}
}

func (b *watchBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.PipeReader.Close()
}

func (a *apiServer) open(namespace string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watches[namespace]
}

// change sends an event of one Secret to the watchers of a namespace.
func (a *apiServer) change(namespace, kind, name, version string) {
	a.mu.Lock()
	stream := a.streams[namespace]
	a.mu.Unlock()
	stream <- fmt.Sprintf(`{"type":%q,"object":{"apiVersion":"meta.k8s.io/v1",`+
		`"kind":"PartialObjectMetadata","metadata":{"namespace":%q,"name":%q,"resourceVersion":%q}}}`,
		kind, namespace, name, version)
}

func answer(v any) *http.Response {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(b))),
	}
}

func kubernetesResolver(t *testing.T, a *apiServer) *Resolver {
	t.Helper()
	var r Resolver
	if err := r.AddKubernetes(&rest.Config{Host: "http://api.example", Transport: a},
		"argosy"); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestCredentialsAreReadAsFastAsTheAPIServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		r := kubernetesResolver(t, a)
		started := time.Now()
		var all sync.WaitGroup
		for i := range 2000 {
			all.Go(func() {
				ref := fleet.CredentialSource{Tenant: "acme", Name: fmt.Sprintf("c%d", i)}
				if _, err := r.Get(t.Context(), ref); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(started); took > time.Second {
			t.Errorf("2,000 credentials of an API server that answers in 10 ms took %s", took)
		}
		if a.most > mostReads {
			t.Errorf("%d requests at a time, more than %d", a.most, mostReads)
		}
	})
}

func TestAnAPIServerThatHangsBlocksAReadForTenSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer()
		a.hung = true
		r := kubernetesResolver(t, a)
		started := time.Now()
		_, err := r.Get(t.Context(), fleet.CredentialSource{Tenant: "acme", Name: "git"})
		if took := time.Since(started); took != readTimeout {
			t.Errorf("the read ended after %s", took)
		}
		if err == nil || errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(),
				"Secret git in namespace argosy-tenant-acme: the API server did not answer "+
					"within 10s") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestANamespaceIsWatchedFromItsFirstReadAndNoLongerThanItIsRead(t *testing.T) {
	a := newAPIServer()
	r := kubernetesResolver(t, a)
	n := r.places[0].(*namespaces)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rotated := make(chan string, 10)
	n.begin(ctx, func(tenant fleet.TenantName, name string) {
		rotated <- string(tenant) + "/" + name
	})
	watches := func(namespace string, want int) {
		t.Helper()
		deadline := time.Now().Add(2 * time.Minute)
		for a.open(namespace) != want {
			if time.Now().After(deadline) {
				t.Fatalf("%d watches of %s are open, want %d", a.open(namespace), namespace, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	read := func(tenant fleet.TenantName) {
		t.Helper()
		if _, err := r.Get(ctx, fleet.CredentialSource{Tenant: tenant, Name: "git"}); err != nil {
			t.Fatal(err)
		}
		watches("argosy-tenant-"+string(tenant), 1)
	}
	read("acme")
	read("globex")
	a.change("argosy-tenant-acme", "ADDED", "git", "2")
	a.change("argosy-tenant-acme", "MODIFIED", "git", "3")
	for range 2 {
		if got := <-rotated; got != "acme/git" {
			t.Fatalf("%s is reported", got)
		}
	}
	n.mu.Lock()
	for _, w := range n.watched {
		w.read = w.read.Add(-idleAfter)
	}
	n.mu.Unlock()
	read("acme")
	n.endIdle()
	watches("argosy-tenant-globex", 0)
	watches("argosy-tenant-acme", 1)
	read("globex")
}
