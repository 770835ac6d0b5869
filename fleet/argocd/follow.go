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

// follower keeps what is known of one resource equal to the API server: a complete list, then a
// watch from where the list ended. Whatever goes wrong means that it no longer knows, never that
// something is gone.
type follower[T any] struct {
	e    *Engine
	r    *resource
	read func(*liveObject) T // what is kept of an object
	into keeper[T]
	last mark // the newest change that was seen
}

// mark is one change of one object. As long as the server has it, its state is not from before it.
type mark struct{ name, uid, version string }

// keeper takes what a follower sees. Names are those of objects; version is the API server's.
type keeper[T any] interface {
	// begins a list; version is the newest that was seen before
	listing(r *resource, version string)
	relisted(r *resource, all map[string]T, version string)
	put(r *resource, item T)
	remove(r *resource, name, version string)
}

// follow follows one resource of the engine's objects.
func (e *Engine) follow(r *resource) *follower[*entry] {
	return &follower[*entry]{e: e, r: r, read: func(o *liveObject) *entry {
		return e.entryOf(r, o)
	}, into: e.cache}
}

const (
	pageRetries = 4
	pageSize    = 150 // objects; at etcd's 1.5 MiB each they stay below maxAnswer
	// the server ends a watch after that, and up to as much again; a new one goes on from there
	watchSeconds  = 300
	slowestRetry  = 30 * time.Second
	bookmarkEvent = "BOOKMARK"
	replayTime    = 5 * time.Second // within which the server repeats a change that it is asked for
)

// errStale says that a watch cannot go on from where it was.
var errStale = errors.New("the API server no longer has that version")

// run follows until ctx ends. A watch that breaks goes on from where it was, once the server has
// shown that it still has what was seen last; when it does not, or nothing has been heard for too
// long, everything is read anew.
func (f *follower[T]) run(ctx context.Context) {
	version, newest, failures := "", "", 0
	for ctx.Err() == nil {
		var err error
		var from string
		var replay bool
		if version == "" {
			f.into.listing(f.r, newest)
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

// resume proves that the server's state is not from before version, and returns where to go on. A
// server that was restored from a backup accepts a watch from a version that it has yet to reach,
// and is silent until then. replay: the first event has to be the last change that was seen.
// errStale when nothing proves it.
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
		return version, false, fmt.Errorf("%w: the answer is no list of %s", engine.ErrUnreachable,
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
		// it has changed since: whether after what was seen, nothing shows
		return version, false, errStale
	}
	return strconv.FormatUint(n-1, 10), true, nil
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

// page asks for the next page of a list. One that cannot be had is asked for again a few times, for
// the server goes on from the page before for some minutes; what it refuses is not.
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

// list reads every page, asks for the newest state and not for a cache's, and only then tells the
// cache. A page that expires or cannot be had makes the whole list void.
func (f *follower[T]) list(ctx context.Context) (version string, err error) {
	all := map[string]T{}
	var last mark
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
			return "", fmt.Errorf("%w: the answer is no list of %s", engine.ErrUnreachable,
				f.r.plural)
		}
		for _, item := range page.Items {
			o, err := decodeLive(item)
			if err != nil {
				return "", err
			}
			all[o.Metadata.Name] = f.read(o)
			if last.name == "" || newer(o.Metadata.ResourceVersion, last.version) {
				last = markOf(o)
			}
		}
		if page.Metadata.Continue == "" {
			f.last = last
			f.into.relisted(f.r, all, page.Metadata.ResourceVersion)
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// watch follows from version until the server ends it, and returns where to go on. A watch without
// a word, bookmarks included, for the engine's Silence is not trusted any more: errStale. With
// replay the first event has to repeat the last change.
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
	silent := time.AfterFunc(f.e.options.Silence, func() { hushed.Store(true); cancel() })
	defer silent.Stop()
	var expect *mark
	if replay {
		expect = &f.last
		silent.Reset(min(replayTime, f.e.options.Silence))
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
		func() { silent.Reset(f.e.options.Silence) })
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

// events reads until the stream ends. heard is called for every event. expect is what the first one
// has to be, if anything.
func (f *follower[T]) events(stream io.Reader, version string, expect *mark, heard func()) (string,
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
		heard()
		if ev.Type == "ERROR" {
			return version, watchError(ev.Object)
		}
		o, err := decodeLive(ev.Object)
		if err != nil {
			return version, fmt.Errorf("watch: %w", err)
		}
		seen := markOf(o)
		if newer(version, seen.version) || expect != nil && seen != *expect {
			return version, errStale // the server has gone back
		}
		expect, version = nil, seen.version
		if ev.Type != bookmarkEvent {
			f.last = seen
		}
		switch ev.Type {
		case "ADDED", "MODIFIED":
			f.into.put(f.r, f.read(o))
		case "DELETED":
			f.into.remove(f.r, o.Metadata.Name, version)
		case bookmarkEvent:
		}
	}
}

func markOf(o *liveObject) mark {
	return mark{o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion}
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
