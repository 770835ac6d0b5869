package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Apply implements engine.Engine.
func (f *Fake) Apply(_ context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	if err := f.fail("apply", row.Key); err != nil {
		return engine.Outcome{}, err
	}
	if err := f.ready(); err != nil {
		return engine.Outcome{}, err
	}
	fingerprint, err := credential(row, secret)
	if err != nil {
		return engine.Outcome{}, err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	o := f.server.objects[row.Key]
	if o == nil {
		return f.put(row, &stored{uid: "uid-" + strconv.FormatInt(f.server.version+1, 10)},
			fingerprint, lease)
	}
	live := o.live(row.Key, f.name)
	switch {
	case !live.Ours || live.Tenant != row.Tenant:
		return engine.Outcome{}, engine.ErrForeign
	case live.Epoch > lease.Epoch:
		return engine.Outcome{}, engine.ErrFenced
	case live.Deleting:
		return engine.Outcome{State: mirror.ApplyPending, Message: "it is being deleted",
			RetryAfter: f.Pause}, nil
	case live.Drifted:
		return f.restore(row, o, fingerprint, lease)
	case o.applied == row.Manifest.Hash && o.secret == fingerprint:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	}
	return f.put(row, o, fingerprint, lease)
}

// credential returns the fingerprint of the row's secret. It accepts any of the contract's keys.
func credential(row mirror.Row, secret fleet.Secret) (string, error) {
	if row.Key.Kind != fleet.ObjectCluster && row.Key.Kind != fleet.ObjectRepository {
		return "", nil
	}
	for _, name := range []string{"token", "cert", "kubeconfig", "password", "sshPrivateKey",
		"githubAppPrivateKey"} {
		if secret.Has(name) {
			return secret.Fingerprint(row.Key.Name), nil
		}
	}
	return "", fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, engine.ErrCredential)
}

func (f *Fake) restore(row mirror.Row, o *stored, fingerprint string,
	lease mirror.Lease) (engine.Outcome, error) {
	f.mu.Lock()
	last, quarrelling := f.conflicts[row.Key]
	since := time.Since(last)
	quarrelling = quarrelling && since < 2*f.Pause
	if !quarrelling || since >= f.Pause {
		f.conflicts[row.Key] = time.Now()
	}
	f.mu.Unlock()
	conflict := engine.Outcome{State: mirror.ApplyConflict,
		Message:    o.otherManager + " keeps changing it",
		RetryAfter: max(f.Pause-since, time.Millisecond)}
	if quarrelling && since < f.Pause {
		return conflict, nil
	}
	out, err := f.put(row, o, fingerprint, lease)
	if quarrelling && err == nil {
		conflict.Changed = true
		return conflict, nil
	}
	return out, err
}

// put writes the row to the object and keeps fields outside a manifest (status, operation, foreign
// annotations).
func (f *Fake) put(row mirror.Row, o *stored, fingerprint string, lease mirror.Lease) (engine.Outcome,
	error) {
	if f.Stopped(row.Tenant) {
		return engine.Outcome{}, engine.ErrStopped
	}
	var body map[string]any
	if err := json.Unmarshal(row.Manifest.Body, &body); err != nil {
		return engine.Outcome{}, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	body["status"] = map[string]any{}
	for _, k := range []string{"status", "operation"} {
		if v := o.body[k]; v != nil {
			body[k] = v
		}
	}
	meta := body["metadata"].(map[string]any)
	meta["uid"] = o.uid
	annotations, _ := meta["annotations"].(map[string]any)
	annotations["argosy.dev/epoch"] = strconv.FormatInt(lease.Epoch, 10)
	annotations["argosy.dev/revision"] = string(row.Revision)
	for _, kept := range []string{"argosy.dev/sync", "argosy.dev/parked"} {
		if value := o.annotation(kept); value != "" {
			annotations[kept] = value
		}
	}
	o.body, o.applied, o.secret = body, row.Manifest.Hash, fingerprint
	o.content = o.contentNow()
	f.server.objects[row.Key] = o
	f.recordWrite(row.Key, o)
	f.server.write(o)
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// recordWrite remembers the last write of this connection, so that the watch does not wake for it.
func (f *Fake) recordWrite(key fleet.ObjectKey, o *stored) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ownWrites[key] = o.live(key, f.name)
}

// Delete implements engine.Engine. Server.Remove completes a cascade.
func (f *Fake) Delete(_ context.Context, row mirror.Row, lease mirror.Lease) (bool, error) {
	if err := f.fail("delete", row.Key); err != nil {
		return false, err
	}
	if err := f.ready(); err != nil {
		return false, err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	o := f.server.objects[row.Key]
	if o == nil || row.UID != "" && o.uid != row.UID {
		return true, nil
	}
	live := o.live(row.Key, f.name)
	switch {
	case !live.Ours || live.Tenant != row.Tenant:
		return false, engine.ErrForeign
	case live.Epoch > lease.Epoch:
		return false, engine.ErrFenced
	case f.server.inUse(row):
		return false, engine.ErrInUse
	case o.deleting && row.Deletion != fleet.DeletionOrphan:
		return false, nil
	case f.Stopped(row.Tenant):
		return false, engine.ErrStopped
	}
	if row.Key.Kind != fleet.ObjectApplication || row.Deletion == fleet.DeletionOrphan {
		delete(f.server.objects, row.Key)
		f.server.write(o)
		return false, nil
	}
	cluster := fleet.ObjectKey{Engine: row.Key.Engine, Kind: fleet.ObjectCluster,
		Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})}
	if !row.Key.Engine.OfEnvironment() && f.server.objects[cluster] == nil {
		return false, engine.ErrDestination
	}
	meta := o.body["metadata"].(map[string]any)
	meta["finalizers"], meta["deletionTimestamp"] = []any{"resources-finalizer.argocd.argoproj.io"},
		"now"
	o.deleting = true
	f.server.write(o)
	return false, nil
}

// inUse reports whether an Application needs the Cluster or AppProject.
func (s *Server) inUse(row mirror.Row) bool {
	if row.Key.Kind != fleet.ObjectProject && row.Key.Kind != fleet.ObjectCluster {
		return false
	}
	for key, o := range s.objects {
		if key.Kind == fleet.ObjectApplication && o.label("argosy.dev/tenant") == string(
			row.Tenant) &&
			(row.Key.Kind == fleet.ObjectProject || o.label("argosy.dev/environment") == string(
				row.Environment)) {
			return true
		}
	}
	return false
}

// Sync implements engine.Engine. Merging a status ends an operation, as with Argo CD.
func (f *Fake) Sync(_ context.Context, q engine.SyncRequest, lease mirror.Lease) (engine.Outcome,
	error) {
	if err := f.fail("sync", q.Key); err != nil {
		return engine.Outcome{}, err
	}
	if err := f.ready(); err != nil {
		return engine.Outcome{}, err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	wait := engine.Outcome{State: mirror.ApplyPending, RetryAfter: 10 * time.Millisecond}
	o := f.server.objects[q.Key]
	if o == nil {
		return wait, nil
	}
	live := o.live(q.Key, f.name)
	switch {
	case !live.Ours || live.Tenant != q.Tenant:
		return engine.Outcome{}, engine.ErrForeign
	case live.Epoch > lease.Epoch:
		return engine.Outcome{}, engine.ErrFenced
	case o.annotation("argosy.dev/sync") == q.ID || o.request("status", "operationState",
		"operation") == q.ID:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	case live.Operating || live.Deleting || live.Parked:
		return wait, nil
	case f.Stopped(q.Tenant):
		return engine.Outcome{}, engine.ErrStopped
	}
	o.body["operation"] = map[string]any{"initiatedBy": map[string]any{"username": "argosy"},
		"sync": map[string]any{"revision": q.Revision, "prune": q.Prune},
		"info": []any{map[string]any{"name": "argosy.dev/sync", "value": q.ID}}}
	status := o.body["status"].(map[string]any)
	delete(status, "operationState")
	o.body["metadata"].(map[string]any)["annotations"].(map[string]any)["argosy.dev/sync"] = q.ID
	f.server.write(o)
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// Park implements engine.Engine. Server.Compare skips parked Applications.
func (f *Fake) Park(_ context.Context, q engine.ParkRequest, lease mirror.Lease) error {
	if err := f.fail("park", q.Key); err != nil {
		return err
	}
	if err := f.ready(); err != nil {
		return err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	o := f.server.objects[q.Key]
	if o == nil || o.uid != q.UID {
		return nil
	}
	live := o.live(q.Key, f.name)
	switch {
	case !live.Ours || live.Tenant != q.Tenant:
		return engine.ErrForeign
	case live.Epoch > lease.Epoch:
		return engine.ErrFenced
	case live.Parked == !q.Since.IsZero():
		return nil
	case f.Stopped(q.Tenant):
		return engine.ErrStopped
	}
	annotations := o.body["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations["argosy.dev/epoch"] = strconv.FormatInt(lease.Epoch, 10)
	if delete(annotations, "argosy.dev/parked"); !q.Since.IsZero() {
		annotations["argosy.dev/parked"] = q.Since.UTC().Format(time.RFC3339)
	}
	f.recordWrite(q.Key, o)
	f.server.write(o)
	return nil
}

// Compare makes the engine compare every Application with its cluster, except parked ones. reason
// returns why a cluster could not be read.
func (s *Server) Compare(at time.Time, reason func(fleet.EnvironmentID) mirror.UnreachableReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		live := o.live(key, key.Engine)
		if key.Kind != fleet.ObjectApplication || live.Parked {
			continue
		}
		status := o.body["status"].(map[string]any)
		status["reconciledAt"] = at.UTC().Format(time.RFC3339Nano)
		status["reason"] = string(
			reason(fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment}))
		s.touch(o)
	}
}

// The rest implements ExternalWriter.

// Exists reports whether the object exists.
func (s *Server) Exists(key fleet.ObjectKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key] != nil
}

// Field returns the text or JSON of a field, or "".
func (s *Server) Field(key fleet.ObjectKey, path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[key]
	if o == nil {
		return ""
	}
	path, last, named := strings.Cut(path, "|")
	parts := strings.Split(path, ".")
	if named {
		parts = append(parts, last)
	}
	if text := o.text(parts...); text != "" {
		return text
	}
	return o.json(parts...)
}

// Merge sends a merge patch as the manager "meddler".
func (s *Server) Merge(key fleet.ObjectKey, patch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p map[string]any
	if err := json.Unmarshal([]byte(patch), &p); err != nil {
		panic(err) // a mistake in a test
	}
	o := s.objects[key]
	if p["spec"] != nil || p["data"] != nil {
		o.otherManager = "meddler"
	}
	merge(o.body, p)
	s.touch(o)
}

func merge(into, patch map[string]any) {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		have, both := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && both:
			merge(have, below)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, below)
			into[k] = fresh
		default:
			into[k] = v
		}
	}
}

// Remove deletes an object, like a completed cascade.
func (s *Server) Remove(key fleet.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	s.version++
	s.changedLocked()
}

// CreateForeign creates an object without our labels.
func (s *Server) CreateForeign(key fleet.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := "stranger-" + key.Name
	o := &stored{
		uid: uid, body: map[string]any{"metadata": map[string]any{"name": key.Name, "uid": uid},
			"status": map[string]any{}}}
	s.objects[key] = o
	s.touch(o)
}

// Backup returns a function that restores the server's current state.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, kept := s.version, copied(s.objects)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.version, s.objects = version, copied(kept)
		s.restores++
		s.changedLocked()
	}
}

func copied(objects map[fleet.ObjectKey]*stored) map[fleet.ObjectKey]*stored {
	out := map[fleet.ObjectKey]*stored{}
	for key, o := range objects {
		clone := *o
		clone.body = map[string]any{}
		merge(clone.body, o.body)
		out[key] = &clone
	}
	return out
}

// Writes counts the writes of control planes.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}
