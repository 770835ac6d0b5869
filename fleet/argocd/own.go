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
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// The cluster's own Applications are those that users of the cluster have created. They are only
// read, except for requested operations.

// ownApplications is followed apart from ours, because the handlers keep other fields.
var ownApplications = &resource{kinds: applications.kinds, apiVersion: applications.apiVersion,
	kind: applications.kind, prefix: applications.prefix, plural: applications.plural}

// WatchOwn follows the foreign Applications of the engine's namespace until ctx ends. After each
// complete list it calls report with all of them and whole set; between lists with the changed
// ones, each at most once per window, and the deleted ones with Gone set. It calls report from one
// goroutine and waits for it. It recovers from failures by itself and returns only ctx's error.
func (e *Engine) WatchOwn(ctx context.Context, report func(own []mirror.OwnApplication,
	whole bool)) error {
	kept := &ownCache{known: map[string]ownEntry{}, changed: map[string]mirror.OwnApplication{},
		dirty: pacing.NewSignal()}
	var all sync.WaitGroup
	all.Go(func() {
		(&follower[ownEntry]{e: e, r: ownApplications, read: ownReader{e}.read, handler: kept}).run(
			ctx)
	})
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-kept.dirty:
			report(kept.take())
			pacing.Sleep(ctx, e.options.Window)
		}
	}
	all.Wait()
	return context.Cause(ctx)
}

// ownEntry holds the state of an Application that may be the cluster's own.
type ownEntry struct {
	mirror.OwnApplication
	ours bool
}

// ownReader converts the cluster's own Applications.
type ownReader struct{ *Engine }

func (e ownReader) read(o *liveObject) ownEntry {
	live := newEntry(e.name, e.places, applications, o)
	var spec ownSpec
	// an Application with a malformed spec is shown with its name and status alone
	_ = json.Unmarshal(o.Spec, &spec)
	source := spec.first()
	return ownEntry{ours: live.Ours, OwnApplication: mirror.OwnApplication{
		Namespace: e.namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
		Project: clip(spec.Project, 253),
		RepoURL: withoutCredential(source.RepoURL), Path: clip(firstOf(source.Path, source.Chart),
			maxText), TargetRevision: clip(source.TargetRevision, 256),
		Sync: live.observation.Sync, Health: live.observation.Health,
		SyncedRevision: live.observation.SyncedRevision,
		OperationPhase: live.observation.OperationPhase,
		OperationID:    live.observation.OperationID,
		Message: firstOf(live.observation.OperationError,
			live.observation.Message), Resources: live.observation.Resources,
	}}
}

type ownSource struct{ RepoURL, Path, Chart, TargetRevision string }

// ownSpec has the shown fields of a spec.
type ownSpec struct {
	Project string
	Source  ownSource
	Sources []ownSource
}

// first returns the source to show.
func (s ownSpec) first() ownSource {
	if len(s.Sources) > 0 {
		return s.Sources[0]
	}
	return s.Source
}

// withoutCredential returns a repository's URL without user, password and query. Of a non-URL
// (git@host:path) it returns only the text after the first "@".
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

// ownCache holds the own Applications and the unreported changes.
type ownCache struct {
	mu      sync.Mutex
	known   map[string]ownEntry
	changed map[string]mirror.OwnApplication
	whole   bool // a complete report is due
	dirty   pacing.Signal
}

func (c *ownCache) beginList(*resource, string) {}

func (c *ownCache) replaceAll(_ *resource, all map[string]ownEntry, _ string) {
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
		c.drop(e.Name) // it is ours now
		return
	}
	c.known[e.Name] = e
	if !known || before.OwnApplication != e.OwnApplication {
		c.changed[e.Name] = e.OwnApplication
		c.dirty.Set()
	}
}

func (c *ownCache) remove(_ *resource, e ownEntry, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(e.Name)
}

func (c *ownCache) drop(name string) {
	before, known := c.known[name]
	if !known {
		return
	}
	delete(c.known, name)
	deleted := before.OwnApplication
	deleted.Gone = true
	c.changed[name] = deleted
	c.dirty.Set()
}

// take returns and clears the unreported changes, sorted by name.
func (c *ownCache) take() ([]mirror.OwnApplication, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.whole
	if whole {
		for name, e := range c.known {
			c.changed[name] = e.OwnApplication
		}
	}
	all := slices.SortedFunc(maps.Values(c.changed), func(a, b mirror.OwnApplication) int {
		return strings.Compare(a.Name, b.Name)
	})
	clear(c.changed)
	c.whole = false
	return all, whole
}

// SyncOwn requests one sync of an own Application. If another writer has changed the Application
// since the read, it tries again. The outcome is that of Sync. It changes no label, annotation or
// field of the spec, and rejects our own Applications, which Sync handles.
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
	return engine.Outcome{State: mirror.ApplyPending,
		Message:    "the Application changes too quickly; it is retried",
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
	live := newEntry(e.name, e.places, applications, o)
	switch {
	case live.Ours:
		return engine.Outcome{}, fmt.Errorf("%w: it is declared in the config repo",
			engine.ErrForeign)
	case live.request == q.ID:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	case live.Deleting:
		return engine.Outcome{}, fmt.Errorf("%w: it is being deleted", engine.ErrRefused)
	case live.Operating:
		return engine.Outcome{State: mirror.ApplyPending,
			Message:    "another operation is running; the sync is requested when that has ended",
			RetryAfter: busyWait}, nil
	}
	sync := map[string]any{"prune": q.Prune}
	if q.Revision != "" {
		sync["revision"] = q.Revision
	}
	if len(live.syncOptions) > 0 {
		sync["syncOptions"] = live.syncOptions // an operation does not inherit them from the policy
	}
	_, err = e.merge(ctx, mirror.Row{Key: q.Key, Tenant: q.Tenant}, map[string]any{
		"operation": operationOf(q.ID, sync), "status": map[string]any{"operationState": nil}},
		live)
	if err != nil {
		return engine.Outcome{}, err
	}
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// operationOf returns an operation in our name.
func operationOf(id string, sync map[string]any) map[string]any {
	return map[string]any{
		"initiatedBy": map[string]any{"username": operationUser},
		"info":        []any{map[string]any{"name": operationInfo, "value": id}},
		"sync":        sync,
	}
}
