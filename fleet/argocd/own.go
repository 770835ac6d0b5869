package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// A cluster's own Applications are those that its own people made. They are read as they are, and
// the one thing that is ever written to them is an operation that somebody asked for.

// ownApplications is followed apart from ours: what is kept of them is what people read.
var ownApplications = &resource{kinds: applications.kinds, apiVersion: applications.apiVersion,
	kind: applications.kind, prefix: applications.prefix, plural: applications.plural}

// WatchOwn follows the Applications of the engine's namespace that are not ours until ctx ends.
// told hears of all of them, with whole set, once they are read completely and whenever they are
// read anew; between that of what changed, each at most once per window, and those that have gone
// with Gone set. It is called from one goroutine, and the watch waits for it. It heals by itself;
// the error is ctx's.
func (e *Engine) WatchOwn(ctx context.Context, told func(own []fleet.OwnApplication,
	whole bool)) error {
	kept := &ownCache{known: map[string]ownEntry{}, changed: map[string]fleet.OwnApplication{},
		dirty: pacing.NewSignal()}
	var all sync.WaitGroup
	all.Go(func() {
		(&follower[ownEntry]{e: e, r: ownApplications, read: e.ownEntryOf, into: kept}).run(ctx)
	})
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-kept.dirty:
			told(kept.take())
			pacing.Sleep(ctx, e.options.Window)
		}
	}
	all.Wait()
	return context.Cause(ctx)
}

// ownEntry is what is kept of an Application that may be the cluster's own.
type ownEntry struct {
	fleet.OwnApplication
	ours bool
}

func (e *Engine) ownEntryOf(o *liveObject) ownEntry {
	live := e.entryOf(applications, o)
	var spec ownSpec
	_ = json.Unmarshal(o.Spec, &spec) // a malformed one is shown by its name and status alone
	source := spec.first()
	return ownEntry{ours: live.Ours, OwnApplication: fleet.OwnApplication{
		Namespace: e.namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
		Project: clip(spec.Project, 253),
		RepoURL: withoutCredential(source.RepoURL), Path: clip(firstOf(source.Path, source.Chart),
			maxText), TargetRevision: clip(source.TargetRevision, 256),
		Sync: live.seen.Sync, Health: live.seen.Health, SyncedRevision: live.seen.SyncedRevision,
		OperationPhase: live.seen.OperationPhase,
		OperationID:    live.seen.OperationID, Message: firstOf(live.seen.OperationError,
			live.seen.Message), Resources: live.seen.Resources,
	}}
}

type ownSource struct{ RepoURL, Path, Chart, TargetRevision string }

// ownSpec is the part of a spec that is shown.
type ownSpec struct {
	Project string
	Source  ownSource
	Sources []ownSource
}

// first is the source that stands for all of them.
func (s ownSpec) first() ownSource {
	if len(s.Sources) > 0 {
		return s.Sources[0]
	}
	return s.Source
}

// withoutCredential is a repository's URL as it may be shown: without user, password and query. Of
// what is no URL (git@host:path) only what stands behind the first "@" is shown.
func withoutCredential(repo string) string {
	if u, err := url.Parse(repo); err == nil && u.Scheme != "" {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return clip(u.String(), maxText)
	}
	if _, after, ok := strings.Cut(repo, "@"); ok {
		repo = after
	}
	return clip(repo, maxText)
}

// ownCache is what the watch has shown of own Applications, and what of it was not told yet.
type ownCache struct {
	mu      sync.Mutex
	known   map[string]ownEntry
	changed map[string]fleet.OwnApplication
	whole   bool // everything is to be told
	dirty   pacing.Signal
}

func (c *ownCache) listing(*resource, string) {}

func (c *ownCache) relisted(_ *resource, all map[string]ownEntry, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(all, func(_ string, e ownEntry) bool { return e.ours })
	c.known, c.whole = all, true
	clear(c.changed)
	c.dirty.Set()
}

func (c *ownCache) put(_ *resource, e ownEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.known[e.Name]
	if e.ours {
		c.drop(e.Name) // it was taken over
		return
	}
	c.known[e.Name] = e
	if !known || before.OwnApplication != e.OwnApplication {
		c.changed[e.Name] = e.OwnApplication
		c.dirty.Set()
	}
}

func (c *ownCache) remove(_ *resource, name, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
}

func (c *ownCache) drop(name string) {
	before, known := c.known[name]
	if !known {
		return
	}
	delete(c.known, name)
	gone := before.OwnApplication
	gone.Gone = true
	c.changed[name] = gone
	c.dirty.Set()
}

// take hands over what was not told yet, by name.
func (c *ownCache) take() ([]fleet.OwnApplication, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.whole
	if whole {
		for name, e := range c.known {
			c.changed[name] = e.OwnApplication
		}
	}
	all := slices.SortedFunc(maps.Values(c.changed), func(a, b fleet.OwnApplication) int {
		return strings.Compare(a.Name, b.Name)
	})
	clear(c.changed)
	c.whole = false
	return all, whole
}

// SyncOwn asks Argo CD for one sync of an own Application, as it stands: whoever has changed it
// since it was read is asked again. The outcome is as Sync's. No label, annotation or field of its
// spec is touched, and one that is ours is refused: it is synced by Sync.
func (e *Engine) SyncOwn(ctx context.Context, q engine.SyncRequest) (engine.Outcome, error) {
	if q.ID == "" || q.Key.Kind != fleet.ObjectApplication {
		return engine.Outcome{}, fmt.Errorf("sync of %s: it needs an Application and an id",
			q.Key.Name)
	}
	if q.Revision != "" {
		if err := exact("revision", q.Revision, 256); err != nil {
			return engine.Outcome{}, fmt.Errorf("sync of %s: %w", q.Key.Name, err)
		}
	}
	for range attempts {
		out, err := e.syncOwnStep(ctx, q)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(q.Key, err)
		}
	}
	return engine.Outcome{State: fleet.ApplyPending,
		Message:    "the Application is changing too quickly; it is tried again",
		RetryAfter: busyWait}, nil
}

func (e *Engine) syncOwnStep(ctx context.Context, q engine.SyncRequest) (engine.Outcome, error) {
	o, err := e.read(ctx, q.Key)
	if err != nil {
		return engine.Outcome{}, err
	}
	if o == nil {
		return engine.Outcome{}, fmt.Errorf("%w: there is no such Application", engine.ErrRefused)
	}
	live := e.entryOf(applications, o)
	switch {
	case live.Ours:
		return engine.Outcome{}, fmt.Errorf("%w: it is declared in the config repo",
			engine.ErrForeign)
	case live.request == q.ID:
		return engine.Outcome{State: fleet.ApplyApplied}, nil
	case live.Deleting:
		return engine.Outcome{}, fmt.Errorf("%w: it is being deleted", engine.ErrRefused)
	case live.Operating:
		return engine.Outcome{State: fleet.ApplyPending,
			Message: "another operation runs on the Application; it is asked for when that has ended", RetryAfter: busyWait}, nil
	}
	sync := map[string]any{"prune": q.Prune}
	if q.Revision != "" {
		sync["revision"] = q.Revision
	}
	if len(live.syncOptions) > 0 {
		sync["syncOptions"] = live.syncOptions // an operation does not inherit them from the policy
	}
	_, err = e.merge(ctx, fleet.Row{Key: q.Key, Tenant: q.Tenant}, map[string]any{
		"operation": operationOf(q.ID, sync), "status": map[string]any{"operationState": nil}},
		live)
	if err != nil {
		return engine.Outcome{}, err
	}
	return engine.Outcome{State: fleet.ApplyApplied, Changed: true}, nil
}

// operationOf is an operation in our name.
func operationOf(id string, sync map[string]any) map[string]any {
	return map[string]any{
		"initiatedBy": map[string]any{"username": operationUser},
		"info":        []any{map[string]any{"name": operationInfo, "value": id}},
		"sync":        sync,
	}
}
