package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet/engine"
)

// follower keeps what is known of one resource equal to the API server: a complete list, then a watch from where the list ended. Whatever
// goes wrong means that it no longer knows, never that something is gone.
type follower[T any] struct {
	e    *Engine
	r    *resource
	read func(*liveObject) T // what is kept of an object
	into keeper[T]
}

// keeper takes what a follower sees. Names are those of objects; version is the API server's.
type keeper[T any] interface {
	relisted(r *resource, all map[string]T, version string)
	put(r *resource, item T)
	remove(r *resource, name, version string)
}

// follow follows one resource of the engine's objects.
func (e *Engine) follow(r *resource) *follower[*entry] {
	return &follower[*entry]{e: e, r: r, read: func(o *liveObject) *entry { return e.entryOf(r, o) }, into: e.cache}
}

const (
	pageSize      = 150 // objects; at etcd's 1.5 MiB each they stay below maxAnswer
	watchSeconds  = 300 // the server ends a watch after that, and up to as much again; a new one goes on from there
	slowestRetry  = 30 * time.Second
	bookmarkEvent = "BOOKMARK"
)

// errStale says that a watch cannot go on from where it was.
var errStale = errors.New("the API server no longer has that version")

// run follows until ctx ends. A watch that breaks goes on from where it was; only when the server no longer has that, or nothing has been
// heard for too long, is everything read anew.
func (f *follower[T]) run(ctx context.Context) {
	version, failures := "", 0
	for ctx.Err() == nil {
		var err error
		if version == "" {
			version, err = f.list(ctx)
		}
		for err == nil {
			failures = 0
			f.e.healthy(f.r)
			version, err = f.watch(ctx, version)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errStale) {
			version = ""
			pauseFor(ctx, rand.N(f.e.options.Retry))
			continue
		}
		f.e.unhealthy(f.r, fmt.Errorf("follow %s in namespace %s: %w", f.r.plural, f.e.namespace, err))
		failures++
		pauseFor(ctx, f.e.retryPause(failures, err))
	}
}

// retryPause doubles with each failure, is jittered, and is at least what the server asked for.
func (e *Engine) retryPause(failures int, err error) time.Duration {
	pause := min(e.options.Retry<<min(failures-1, 10), slowestRetry)
	pause = pause/2 + rand.N(pause/2+1)
	var s *statusError
	if errors.As(err, &s) {
		pause = max(pause, s.RetryAfter)
	}
	return pause
}

// pauseFor waits for d or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// list reads every page, asks for the newest state and not for a cache's, and only then tells the cache. A page that expires or fails
// makes the whole list void.
func (f *follower[T]) list(ctx context.Context) (version string, err error) {
	all := map[string]T{}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if f.r.selector != "" {
		query.Set("labelSelector", f.r.selector)
	}
	for {
		var page struct {
			Kind     string
			Metadata struct{ ResourceVersion, Continue string }
			Items    []json.RawMessage
		}
		err := f.e.client.do(ctx, request{method: http.MethodGet, path: f.r.collection(f.e.namespace), query: query}, &page)
		if err != nil {
			return "", err
		}
		if page.Kind != f.r.kind+"List" || page.Metadata.ResourceVersion == "" {
			return "", fmt.Errorf("%w: the answer is no list of %s", engine.ErrUnreachable, f.r.plural)
		}
		for _, item := range page.Items {
			o, err := decodeLive(item)
			if err != nil {
				return "", err
			}
			all[o.Metadata.Name] = f.read(o)
		}
		if page.Metadata.Continue == "" {
			f.into.relisted(f.r, all, page.Metadata.ResourceVersion)
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// watch follows from version until the server ends it, and returns where to go on. A watch without a word, bookmarks included, for the
// engine's Silence is not trusted any more: errStale.
func (f *follower[T]) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(watchSeconds + rand.N(watchSeconds))}}
	if f.r.selector != "" {
		query.Set("labelSelector", f.r.selector)
	}
	var hushed atomic.Bool
	silent := time.AfterFunc(f.e.options.Silence, func() { hushed.Store(true); cancel() })
	defer silent.Stop()
	opened := time.Now()
	resp, err := f.e.client.send(ctx, request{method: http.MethodGet, path: f.r.collection(f.e.namespace), query: query})
	if hushed.Load() {
		return version, errStale
	}
	if err != nil {
		return version, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode == http.StatusGone {
			return version, errStale
		}
		return version, refusal(resp)
	}
	version, err = f.events(resp.Body, version, func() { silent.Reset(f.e.options.Silence) })
	if hushed.Load() {
		return version, errStale
	}
	if errors.Is(err, io.EOF) && time.Since(opened) > time.Second {
		return version, nil // the server ended it, as it does every few minutes
	}
	return version, err
}

type watchEvent struct {
	Type   string
	Object json.RawMessage
}

// events reads until the stream ends. heard is called for every event.
func (f *follower[T]) events(stream io.Reader, version string, heard func()) (string, error) {
	dec := json.NewDecoder(stream)
	for {
		var ev watchEvent
		if err := dec.Decode(&ev); err != nil {
			if errors.Is(err, io.EOF) {
				return version, io.EOF
			}
			return version, fmt.Errorf("%w: watch: %w", engine.ErrUnreachable, err)
		}
		heard()
		if ev.Type == "ERROR" {
			return version, watchError(ev.Object)
		}
		o, err := decodeLive(ev.Object)
		if err != nil {
			return version, fmt.Errorf("watch: %w", err)
		}
		version = o.Metadata.ResourceVersion
		switch ev.Type {
		case "ADDED", "MODIFIED":
			f.into.put(f.r, f.read(o))
		case "DELETED":
			f.into.remove(f.r, o.Metadata.Name, version)
		case bookmarkEvent:
		}
	}
}

func watchError(raw []byte) error {
	var s struct {
		Code            int
		Reason, Message string
	}
	_ = json.Unmarshal(raw, &s)
	if s.Code == http.StatusGone {
		return errStale
	}
	return &statusError{Code: s.Code, Reason: s.Reason, Message: s.Message}
}
