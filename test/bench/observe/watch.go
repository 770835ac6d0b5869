// Package observe measures from outside: a raw watch, a raw LIST, the API servers' own counters,
// /proc, and PostgreSQL's counters. Nothing in it asks the product.
package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Server is one API server by plain HTTP.
type Server struct {
	Base   string
	Client *http.Client
}

// NewServer has connections of its own.
func NewServer(config *rest.Config) (*Server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Server{Base: strings.TrimSuffix(config.Host, "/"), Client: client}, nil
}

// Collection is the path of Argo CD's or Kubernetes' collection in a namespace: applications,
// appprojects or secrets.
func Collection(namespace, plural string) string {
	if plural == "secrets" {
		return "/api/v1/namespaces/" + namespace + "/secrets"
	}
	return "/apis/argoproj.io/v1alpha1/namespaces/" + namespace + "/" + plural
}

// application is the decoded part of an Application.
type application struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Project string
		Source  struct {
			RepoURL, Path, TargetRevision string
			Kustomize                     struct{ Images []string }
		}
		Destination struct{ Server, Namespace string }
		SyncPolicy  struct {
			Automated *struct{ Prune, SelfHeal bool }
		}
	}
}

func (a *application) key() string {
	return a.Metadata.Labels["argosy.dev/tenant"] + "/" + a.Metadata.Labels["argosy.dev/deployment"]
}

// Watch follows the Applications of some namespaces.
type Watch struct {
	mu      sync.Mutex
	at      map[string]string // namespace/tenant/deployment to target revision
	changed chan struct{}
	lost    error
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// Place is a namespace of an API server.
type Place struct {
	Server    *Server
	Namespace string
}

// StartWatch follows until Stop.
func StartWatch(ctx context.Context, places ...Place) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{at: map[string]string{}, changed: make(chan struct{}), cancel: cancel}
	for _, p := range places {
		w.all.Go(func() {
			for ctx.Err() == nil {
				if err := w.follow(ctx, p); err != nil && ctx.Err() == nil {
					w.fail(fmt.Errorf("watch of %s: %w", p.Namespace, err))
					return
				}
			}
		})
	}
	return w
}

// Stop ends the watch and waits for that.
func (w *Watch) Stop() {
	w.cancel()
	w.all.Wait()
}

// follow reads one stream: the current objects, then the changes. It reopens a stream that the
// server ends.
func (w *Watch) follow(ctx context.Context, p Place) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		p.Server.Base+Collection(p.Namespace, "applications")+"?watch=1&timeoutSeconds=7200", nil)
	if err != nil {
		return err
	}
	resp, err := p.Server.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// the kind is new there: its storage is not ready
	if resp.StatusCode == http.StatusTooManyRequests {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	events := json.NewDecoder(resp.Body)
	for {
		var event struct {
			Type   string
			Object application
		}
		if err := events.Decode(&event); err != nil {
			return nil
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			w.set(p.Namespace+"/"+event.Object.key(), event.Object.Spec.Source.TargetRevision)
		case "DELETED":
			w.set(p.Namespace+"/"+event.Object.key(), "")
		default:
			return fmt.Errorf("event %s", event.Type)
		}
	}
}

func (w *Watch) set(key, revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision == "" {
		delete(w.at, key)
	} else {
		w.at[key] = revision
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = err
	close(w.changed)
	w.changed = make(chan struct{})
}

// Await waits until done returns true and returns the time.
func (w *Watch) Await(ctx context.Context, what string,
	done func(at map[string]string) bool) (time.Time, error) {
	for {
		w.mu.Lock()
		ok, lost, changed, n := done(w.at), w.lost, w.changed, len(w.at)
		w.mu.Unlock()
		now := time.Now()
		switch {
		case lost != nil:
			return now, lost
		case ok:
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, fmt.Errorf("%s: not seen in time; %d Applications are there", what, n)
		}
	}
}

// AwaitCount waits for so many Applications.
func (w *Watch) AwaitCount(ctx context.Context, n int) (time.Time, error) {
	return w.Await(ctx, fmt.Sprintf("%d Applications", n), func(at map[string]string) bool {
		return len(at) == n
	})
}

// AwaitRevision waits until a deployment's Application ("namespace/tenant/deployment") has a target
// revision.
func (w *Watch) AwaitRevision(ctx context.Context, key, revision string) (time.Time, error) {
	return w.Await(ctx, key+" at "+revision, func(at map[string]string) bool {
		return at[key] == revision
	})
}
