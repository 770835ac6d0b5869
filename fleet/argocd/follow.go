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
	"argosy.dev/argosy/fleet/pacing"
)

// follower mirrors one resource of the API server: a complete list, then a watch from the list's
// version. After any failure the state is unknown, and no object counts as deleted.
type follower[T any] struct {
	e       *Engine
	r       *resource
	read    func(*liveObject) T // converts an object for the handler
	handler handler[T]
	last    change // the newest change
}

// change is one change of one object. If the server has it, the server's state is not older.
type change struct{ name, uid, version string }

// handler receives the objects of a follower. Names are object names; versions are the API
// server's.
type handler[T any] interface {
	// starts a list; version is the newest one seen before
	beginList(r *resource, version string)
	replaceAll(r *resource, all map[string]T, version string)
	put(r *resource, item T)
	remove(r *resource, name, version string)
}

// follow returns the follower of one resource of the engine's objects.
func (e *Engine) follow(r *resource) *follower[*entry] {
	return &follower[*entry]{e: e, r: r, read: func(o *liveObject) *entry {
		return e.entryOf(r, o)
	}, handler: e.cache}
}

const (
	pageRetries = 4
	pageSize    = 150 // objects; even with etcd's 1.5 MiB each, a page stays below maxResponse
	// the server ends a watch after one to two times this; a new watch resumes there
	watchSeconds  = 300
	maxRetryPause = 30 * time.Second
	bookmarkEvent = "BOOKMARK"
	replayTime    = 5 * time.Second // for the server to repeat the requested change
)

// errStale reports that a watch cannot resume.
var errStale = errors.New("the API server no longer has that version")

// run follows the resource until ctx ends. After an interruption it resumes the watch if the server
// proves that it still has the last change. Otherwise, or after a silent watch, it lists everything
// again.
func (f *follower[T]) run(ctx context.Context) {
	version, newest, failures := "", "", 0
	for ctx.Err() == nil {
		var err error
		var from string
		var replay bool
		if version == "" {
			f.handler.beginList(f.r, newest)
			version, err = f.list(ctx)
			from = version
		} else {
			from, replay, err = f.resume(ctx, version)
		}
		for err == nil {
			failures = 0
			f.e.healthy(f.r)
			var reached string
			reached, err = f.watch(ctx, from, replay)
			if newer(reached, version) {
				version = reached
			}
			if newest = version; err == nil {
				from, replay, err = f.resume(ctx, version)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errStale) {
			version = ""
			pacing.Sleep(ctx, rand.N(f.e.options.Retry))
			continue
		}
		f.e.unhealthy(f.r, fmt.Errorf("follow %s in namespace %s: %w", f.r.plural, f.e.namespace,
			err))
		failures++
		pacing.Sleep(ctx, f.e.retryPause(failures, err))
	}
}

// resume verifies that the server's state is not older than version, and returns where to resume. A
// server that was restored from a backup accepts a watch from a version that it has not reached
// yet, and stays silent until then. With replay, the first event must be the last change. It
// returns errStale without a proof.
func (f *follower[T]) resume(ctx context.Context, version string) (from string, replay bool,
	err error) {
	var page struct {
		Metadata struct{ ResourceVersion string }
		Items    []struct{ Metadata liveMetadata }
	}
	query := url.Values{"limit": {"1"}}
	if f.last.name != "" {
		query = url.Values{"fieldSelector": {"metadata.name=" + f.last.name}}
	}
	if f.r.selector != "" {
		query.Set("labelSelector", f.r.selector)
	}
	err = f.e.client.do(ctx, request{
		method: http.MethodGet, path: f.r.collection(f.e.namespace), query: query,
		accept: metadataListOnly,
	}, &page)
	if err != nil {
		return version, false, err
	}
	if page.Metadata.ResourceVersion == "" {
		return version, false,
			fmt.Errorf("%w: the response is not a list of %s", engine.ErrUnreachable,
				f.r.plural)
	}
	if newer(version, page.Metadata.ResourceVersion) {
		return version, false, errStale
	}
	if f.last.name == "" {
		return version, false, nil
	}
	for _, item := range page.Items {
		m := item.Metadata
		if m.Name == f.last.name && m.UID == f.last.uid && m.ResourceVersion == f.last.version {
			return version, false, nil
		}
	}
	n, numeric := strconv.ParseUint(f.last.version, 10, 64)
	if f.last.version != version || numeric != nil || n < 2 {
		// it has changed, and nothing proves that the change is newer
		return version, false, errStale
	}
	return strconv.FormatUint(n-1, 10), true, nil
}

// retryPause doubles with each failure, with jitter, and is at least the pause that the server has
// requested.
func (e *Engine) retryPause(failures int, err error) time.Duration {
	pause := min(e.options.Retry<<min(failures-1, 10), maxRetryPause)
	pause = pause/2 + rand.N(pause/2+1)
	var s *statusError
	if errors.As(err, &s) {
		pause = max(pause, s.RetryAfter)
	}
	return pause
}

// page requests the next page of a list. It retries a failed page a few times, because the server
// accepts the page's token for some minutes. It does not retry a rejected one.
func (f *follower[T]) page(ctx context.Context, query url.Values, out any) error {
	for failures := 1; ; failures++ {
		err := f.e.client.do(ctx, request{method: http.MethodGet,
			path: f.r.collection(f.e.namespace), query: query}, out)
		if err == nil {
			f.e.pages.Add(1)
			return nil
		}
		if code := codeOf(err); ctx.Err() != nil || failures == pageRetries ||
			query.Get("continue") == "" || code >= 400 && code < 500 {
			return err
		}
		pacing.Sleep(ctx, f.e.retryPause(failures, err))
	}
}

// list reads every page of the newest state, bypassing the API server's cache, and only then calls
// the handler. An expired or failed page voids the whole list.
func (f *follower[T]) list(ctx context.Context) (version string, err error) {
	all := map[string]T{}
	var last change
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
		if err := f.page(ctx, query, &page); err != nil {
			return "", err
		}
		if page.Kind != f.r.kind+"List" || page.Metadata.ResourceVersion == "" {
			return "", fmt.Errorf("%w: the response is not a list of %s", engine.ErrUnreachable,
				f.r.plural)
		}
		for _, item := range page.Items {
			o, err := decodeLive(item)
			if err != nil {
				return "", err
			}
			all[o.Metadata.Name] = f.read(o)
			if last.name == "" || newer(o.Metadata.ResourceVersion, last.version) {
				last = changeOf(o)
			}
		}
		if page.Metadata.Continue == "" {
			f.last = last
			f.handler.replaceAll(f.r, all, page.Metadata.ResourceVersion)
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// watch follows from version until the server ends the watch, and returns where to resume. A watch
// without an event or bookmark for the engine's IdleTimeout returns errStale. With replay, the
// first event must repeat the last change.
func (f *follower[T]) watch(ctx context.Context, version string, replay bool) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {
		"true"},
		"timeoutSeconds": {strconv.Itoa(watchSeconds + rand.N(watchSeconds))}}
	if f.r.selector != "" {
		query.Set("labelSelector", f.r.selector)
	}
	var hushed atomic.Bool
	silent := time.AfterFunc(f.e.options.IdleTimeout, func() { hushed.Store(true); cancel() })
	defer silent.Stop()
	var expect *change
	if replay {
		expect = &f.last
		silent.Reset(min(replayTime, f.e.options.IdleTimeout))
	}
	opened := time.Now()
	resp, err := f.e.client.send(ctx, request{method: http.MethodGet,
		path: f.r.collection(f.e.namespace), query: query})
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
	version, err = f.events(resp.Body, version, expect,
		func() { silent.Reset(f.e.options.IdleTimeout) })
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

// events decodes events until the stream ends. onEvent is called for each. expect is the required
// first change, if not nil.
func (f *follower[T]) events(stream io.Reader, version string, expect *change,
	onEvent func()) (string,
	error) {
	dec := json.NewDecoder(stream)
	for {
		var ev watchEvent
		if err := dec.Decode(&ev); err != nil {
			if errors.Is(err, io.EOF) {
				return version, io.EOF
			}
			return version, fmt.Errorf("%w: watch: %w", engine.ErrUnreachable, err)
		}
		onEvent()
		if ev.Type == "ERROR" {
			return version, watchError(ev.Object)
		}
		o, err := decodeLive(ev.Object)
		if err != nil {
			return version, fmt.Errorf("watch: %w", err)
		}
		seen := changeOf(o)
		if newer(version, seen.version) || expect != nil && seen != *expect {
			return version, errStale // the server went back in time
		}
		expect, version = nil, seen.version
		if ev.Type != bookmarkEvent {
			f.last = seen
		}
		switch ev.Type {
		case "ADDED", "MODIFIED":
			f.handler.put(f.r, f.read(o))
		case "DELETED":
			f.handler.remove(f.r, o.Metadata.Name, version)
		case bookmarkEvent:
		}
	}
}

func changeOf(o *liveObject) change {
	return change{o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion}
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
