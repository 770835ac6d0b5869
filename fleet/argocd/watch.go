package argocd

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
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

// handler receives the objects of a follower. Versions are the API server's.
type handler[T any] interface {
	// starts a list; version is the newest one seen before
	beginList(r *resource, version string)
	replaceAll(r *resource, all map[string]T, version string) // by places.object
	put(r *resource, item T)
	remove(r *resource, item T, version string)
}

// follow returns the follower of one resource of the engine's objects.
func (e *Engine) follow(r *resource) *follower[*entry] {
	return &follower[*entry]{e: e, r: r, read: func(o *liveObject) *entry {
		return newEntry(e.name, e.places, r, o)
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
			f.e.health.clear(f.r)
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
		f.e.health.set(f.r, fmt.Errorf("follow %s in namespace %s: %w", f.r.plural,
			cmp.Or(f.r.namespace, f.e.namespace), err))
		failures++
		pacing.Sleep(ctx, retryPause(f.e.options.Retry, failures, err))
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
		method: http.MethodGet, path: f.e.places.collection(f.r), query: query,
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
func retryPause(base time.Duration, failures int, err error) time.Duration {
	pause := min(base<<min(failures-1, 10), maxRetryPause)
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
			path: f.e.places.collection(f.r), query: query}, out)
		if err == nil {
			f.e.pages.Add(1)
			return nil
		}
		if code := codeOf(err); ctx.Err() != nil || failures == pageRetries ||
			query.Get("continue") == "" || code >= 400 && code < 500 {
			return err
		}
		pacing.Sleep(ctx, retryPause(f.e.options.Retry, failures, err))
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
			all[f.e.places.object(&o.Metadata)] = f.read(o)
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
		path: f.e.places.collection(f.r), query: query})
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
			f.handler.remove(f.r, f.read(o), version)
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

// reconciledStep is the minimum change of an Application's reconciliation time that is reported on
// its own.
const reconciledStep = 10 * time.Minute

// cache holds the watched objects by resource and name, and the changes that the sink has not
// received yet. The response to each own request goes into the cache, so that the next decision
// does not wait for the watch. An older event never overwrites a newer state, and an older response
// never brings a deleted object back.
type cache struct {
	mu           sync.RWMutex
	objects      map[*resource]map[string]*entry
	environments map[fleet.EnvironmentID]*environment
	wanted       []*resource        // the followed resources in Argo CD's own namespace
	further      []*resource        // the Applications of each further namespace
	listed       map[*resource]bool // read completely at least once
	writing      map[fleet.ObjectKey]stamp
	reached      map[*resource]string   // the version that the watch or list has shown last
	atListStart  map[*resource]snapshot // the objects at the start of a list
	adopted      map[string]string      // keys' names of adopted Applications, by object name
	// how the server's state went back in time, until the sink has it
	wentBack string

	// pending for the sink; the latest state of each object
	observed map[fleet.ObjectKey]mirror.Observation
	contacts map[fleet.ObjectKey]engine.Contact // pending for the sink
	wakes    map[fleet.ObjectKey]struct{}
	dirty    pacing.Signal // has one token while something is pending
}

// snapshot holds the objects of a resource at one moment.
type snapshot struct {
	version string
	objects map[string]*entry
}

// stamp identifies a write on an object: its epoch and its content.
type stamp struct {
	epoch   int64
	applied string
}

func (e *entry) stamp() stamp { return stamp{e.Epoch, e.applied} }

func newCache(wanted []*resource, in places) *cache {
	c := &cache{wanted: wanted, objects: map[*resource]map[string]*entry{},
		environments: map[fleet.EnvironmentID]*environment{},
		listed:       map[*resource]bool{}, dirty: pacing.NewSignal(),
		writing: map[fleet.ObjectKey]stamp{}, reached: map[*resource]string{},
		atListStart: map[*resource]snapshot{}, adopted: map[string]string{},
		observed: map[fleet.ObjectKey]mirror.Observation{},
		contacts: map[fleet.ObjectKey]engine.Contact{},
		wakes:    map[fleet.ObjectKey]struct{}{}}
	for _, r := range resources {
		c.objects[r] = map[string]*entry{}
	}
	for _, namespace := range slices.Sorted(maps.Keys(in.further)) {
		c.further = append(c.further, applications.in(namespace))
	}
	return c
}

// base returns the resource in Argo CD's own namespace. Its map of the cache has the objects of
// every namespace.
func (r *resource) base() *resource {
	if r.namespace != "" {
		return applications
	}
	return r
}

// lister returns the followed resource that shows an object; nil if none does.
func (c *cache) lister(r *resource, e *entry) *resource {
	namespace, _ := fleet.SplitObject(e.object)
	if namespace == "" {
		return r.base()
	}
	for _, f := range c.further {
		if f.namespace == namespace {
			return f
		}
	}
	return nil
}

// knows reports whether the Applications of a further namespace have been read completely.
func (c *cache) knows(namespace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.ContainsFunc(c.further, func(r *resource) bool {
		return r.namespace == namespace && c.listed[r]
	})
}

// get returns the entry of a key, or nil. Entries are immutable.
func (c *cache) get(key fleet.ObjectKey) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.objects[resourceOf(key.Kind)][key.Name]
	if e != nil && e.Key.Kind != key.Kind {
		foreign := *e // a Secret of the other type has this name
		foreign.Ours = false
		return &foreign
	}
	return e
}

func (c *cache) synced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.wanted {
		if !c.listed[r] {
			return false
		}
	}
	return true
}

// put stores an object that the watch has shown, unless the cache has a newer version.
func (c *cache) put(r *resource, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached[r] = e.ResourceVersion
	c.replace(r.base(), e)
}

// learn stores the object of the response to an own request, unless the cache has a newer version.
// A response may arrive after the event of a later deletion, and no event would remove the object
// again: what the watch has passed without showing it does not exist.
func (c *cache) learn(r *resource, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reached := c.reached[c.lister(r, e)]
	if c.objects[r][e.Key.Name] != nil || newer(e.ResourceVersion, reached) || reached == "" {
		c.replace(r, e)
	}
}

// claim returns an Application as a foreign one if another object has its key. People write to
// further namespaces, and a copy with our marks takes no object's place: an object in Argo CD's own
// namespace has the key before one elsewhere, and else the first one.
func (c *cache) claim(e *entry) *entry {
	holder := c.objects[applications][e.Key.Name]
	if holder == nil || !e.Ours || !holder.Ours || holder.object == e.object {
		return e
	}
	if e.further() {
		return e.foreign()
	}
	if holder.further() {
		c.leave(holder)
		delete(c.objects[applications], e.Key.Name)
		delete(c.adopted, holder.object)
		c.objects[applications][holder.object] = holder.foreign()
	}
	return e
}

func (c *cache) replace(r *resource, e *entry) {
	if r == applications {
		e = c.claim(e)
		c.rekey(e)
	}
	before := c.objects[r][e.Key.Name]
	if before != nil && newer(before.ResourceVersion, e.ResourceVersion) {
		return // even if it belonged to an earlier object of that name
	}
	c.objects[r][e.Key.Name] = e
	if r == applications {
		c.leave(before)
		c.join(e)
	}
	if !e.Ours {
		if before != nil && before.Ours {
			c.wake(before.Key) // another writer has removed our labels
		}
		return
	}
	if r == applications && (before == nil || !before.Ours || before.contact != e.contact) {
		c.contacts[e.Key] = e.contact
		c.dirty.Set()
	}
	// the next step of a move may wait for the end of a comparison
	if r == applications && (before == nil || before.UID != e.UID || before.refreshes &&
		!e.refreshes || differs(before.observation, e.observation)) {
		c.observed[e.Key] = e.observation
		c.dirty.Set()
	} else if before != nil {
		// the step counts from the last reported time
		e.observation.ReconciledAt = before.observation.ReconciledAt
	}
	if e.Drifted || e.Deleting || c.listed[c.lister(r, e)] && c.foreignWrite(before, e) {
		c.wake(e.Key)
	}
}

// environment holds our Applications of one environment by name, and the number of those with a
// wave.
type environment struct {
	applications map[string]*entry
	waves        int
}

// join and leave maintain the Applications of each environment.
func (c *cache) join(e *entry) {
	if !e.Ours {
		return
	}
	of := c.environments[e.In()]
	if of == nil {
		of = &environment{applications: map[string]*entry{}}
		c.environments[e.In()] = of
	}
	of.applications[e.Key.Name] = e
	if e.Wave != 0 {
		of.waves++
	}
}

func (c *cache) leave(e *entry) {
	if e == nil || !e.Ours {
		return
	}
	of := c.environments[e.In()]
	if e.Wave != 0 {
		of.waves--
	}
	if delete(of.applications, e.Key.Name); len(of.applications) == 0 {
		delete(c.environments, e.In())
	}
}

func (c *cache) waves(id fleet.EnvironmentID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	of := c.environments[id]
	return of != nil && of.waves > 0
}

// inEnvironment returns our Applications of one environment.
func (c *cache) inEnvironment(id fleet.EnvironmentID) []engine.Live {
	c.mu.RLock()
	defer c.mu.RUnlock()
	of := c.environments[id]
	if of == nil {
		return nil
	}
	all := make([]engine.Live, 0, len(of.applications))
	for _, e := range of.applications {
		all = append(all, e.Live)
	}
	return all
}

// rekey drops the entry of an Application that an adoption or a release has given another key.
func (c *cache) rekey(e *entry) {
	key, adopted := c.adopted[e.object]
	e.remember(c.objects[applications][e.Key.Name])
	if adopted && key != e.Key.Name {
		e.remember(c.objects[applications][key])
		c.drop(applications, key, e.ResourceVersion)
	}
	if e.object == e.Key.Name {
		return
	}
	c.adopted[e.object] = e.Key.Name
	if known := c.objects[applications][e.object]; known != nil && known.UID == e.UID {
		c.drop(applications, e.object, e.ResourceVersion)
	}
}

// remember keeps the state before the adoption if the object lost its annotations, and only these.
func (e *entry) remember(last *entry) {
	if last != nil && last.UID == e.UID && e.before == "" && e.id == last.id {
		e.before = last.before
	}
}

// foreignWrite reports whether an object shows another writer's write. A request of a lost lease
// may arrive long afterwards and leave a consistent object. The first list of a resource does not
// count: every row is compared with it anyway.
func (c *cache) foreignWrite(before, e *entry) bool {
	if before != nil && before.Ours && before.UID == e.UID && before.stamp() == e.stamp() {
		return false
	}
	own, writing := c.writing[e.Key]
	return !writing || own != e.stamp()
}

// expect marks a write as ours until the returned function is called, so that its watch event wakes
// no worker.
func (c *cache) expect(key fleet.ObjectKey, s stamp) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing[key] = s
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.writing, key)
	}
}

// remove drops an object that a watch has shown as deleted at version rv.
func (c *cache) remove(r *resource, e *entry, rv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached[r] = rv
	for _, name := range []string{c.adopted[e.object], e.Key.Name, e.object} {
		if known := c.objects[r.base()][name]; known != nil && known.object == e.object {
			c.drop(r.base(), name, rv)
		}
	}
}

// absent drops an object of which a read has proven the absence, unless something of its name has
// arrived since the entry was read from the cache. Its watch event may arrive much later, and until
// then a row of its name would be taken for applied.
func (c *cache) absent(r *resource, before *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil && c.objects[r][before.Key.Name] == before {
		c.drop(r, before.Key.Name, before.ResourceVersion)
	}
}

func (c *cache) drop(r *resource, name, rv string) {
	before := c.objects[r][name]
	if before == nil || newer(before.ResourceVersion, rv) {
		return
	}
	delete(c.objects[r], name)
	if r == applications {
		c.leave(before)
		if c.adopted[before.object] == name {
			delete(c.adopted, before.object)
		}
	}
	if !before.Ours {
		return
	}
	if r == applications {
		c.observed[before.Key] = mirror.Observation{Key: before.Key, UID: before.UID,
			ResourceVersion: rv, Deleted: true, Sync: mirror.SyncUnknown,
			Health: mirror.HealthUnknown}
		c.contacts[before.Key] = engine.Contact{
			Key: before.Key, Tenant: before.Tenant, Environment: before.Environment, Gone: true,
		}
	}
	c.wake(before.Key)
}

// beginList starts a list. version is the newest one that the server has shown.
func (c *cache) beginList(r *resource, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atListStart[r] = snapshot{version, c.listedBy(r)}
}

// listedBy returns the objects by name that a resource's list shows.
func (c *cache) listedBy(r *resource) map[string]*entry {
	all := map[string]*entry{}
	for name, e := range c.objects[r.base()] {
		if namespace, _ := fleet.SplitObject(e.object); namespace == r.namespace {
			all[name] = e
		}
	}
	return all
}

// replaceAll stores a complete list. Unlisted objects were deleted, unless they were written after
// the list was read.
func (c *cache) replaceAll(r *resource, all map[string]*entry, rv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewind(r, all, rv)
	for name, e := range c.listedBy(r) {
		if all[e.object] == nil {
			c.drop(r.base(), name, rv)
		}
	}
	for _, e := range all {
		c.replace(r.base(), e)
	}
	c.listed[r], c.reached[r] = true, rv
}

// rewind drops objects that a later complete list contradicts. An object's newest state is never
// older than one seen before, unless the server's whole state went back in time: then the versions
// are not comparable.
func (c *cache) rewind(r *resource, all map[string]*entry, rv string) {
	before := c.atListStart[r]
	delete(c.atListStart, r)
	older := 0
	for _, e := range all {
		b := before.objects[e.Key.Name]
		if b != nil && b.UID == e.UID && newer(b.ResourceVersion, e.ResourceVersion) {
			older++
		}
	}
	if older == 0 && !newer(before.version, rv) {
		return
	}
	c.wentBack = fmt.Sprintf(
		"%s: %d of %d objects are older than before, and version %s follows %s",
		r.plural, older, len(all), rv, cmp.Or(before.version, "an unknown one"))
	c.dirty.Set()
	for name, b := range before.objects {
		if e := all[b.object]; c.objects[r.base()][name] == b &&
			(e == nil || newer(b.ResourceVersion, e.ResourceVersion)) {
			c.drop(r.base(), name, b.ResourceVersion)
		}
	}
}

func (c *cache) wake(key fleet.ObjectKey) {
	c.wakes[key] = struct{}{}
	c.dirty.Set()
}

// pending holds the changes for the sink.
type pending struct {
	observed []mirror.Observation
	contacts []engine.Contact
	wakes    []fleet.ObjectKey
	wentBack string
}

// take returns and clears the pending changes.
func (c *cache) take() pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := pending{
		observed: slices.Collect(maps.Values(c.observed)),
		contacts: slices.Collect(maps.Values(c.contacts)),
		wakes:    slices.Collect(maps.Keys(c.wakes)), wentBack: c.wentBack,
	}
	c.wentBack = ""
	clear(c.observed)
	clear(c.contacts)
	clear(c.wakes)
	return p
}

// inventory returns all our objects.
func (c *cache) inventory() []engine.Live {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []engine.Live
	for _, r := range resources {
		for _, e := range c.objects[r] {
			if e.Ours {
				live := e.Live
				if e.further() {
					live.Epoch = 0 // see fenced
				}
				all = append(all, live)
			}
		}
	}
	slices.SortFunc(all, func(a, b engine.Live) int {
		return cmp.Or(cmp.Compare(a.Key.Kind.Rank(), b.Key.Kind.Rank()),
			cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

// users returns the objects of the Applications, ours or not, that satisfy uses, sorted.
func (c *cache) users(uses func(*entry) bool) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var objects []string
	for _, e := range c.objects[applications] {
		if uses(e) {
			objects = append(objects, e.object)
		}
	}
	slices.Sort(objects)
	return objects
}

// newer compares resourceVersions as numbers, as every API server issues them. A version that is
// not a number is never newer.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// appliedHash returns the hash annotation of an object: the row's hash and, for a Secret, the
// beginning of the content's hash, because a row has no secret content.
func appliedHash(r *resource, row string, content [32]byte) string {
	sum := hex.EncodeToString(content[:])
	if r == secrets {
		return strings.Join([]string{row, sum[:32]}, ".")
	}
	return sum
}
