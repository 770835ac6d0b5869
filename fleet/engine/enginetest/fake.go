package enginetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Server is the state of an engine in memory, shared by several control planes and other writers.
type Server struct {
	mu      sync.Mutex
	objects map[fleet.ObjectKey]*stored
	stops   map[string]mirror.Stop
	version int64
	writes  int

	restores  int
	resources []mirror.MovedResource // of the last Reconcile
	fakes     []*Fake
}

// stored is one object. body is the current manifest, with the changes of other writers.
type stored struct {
	body         map[string]any
	uid          string
	version      int64
	reconciled   int64  // the version that Reconcile made
	applied      string // hash of the row
	content      string // content of the last apply, with the credential's fingerprint
	secret       string // the credential's fingerprint
	otherManager string
	deleting     bool
}

// NewServer returns an empty engine.
func NewServer() *Server {
	return &Server{objects: map[fleet.ObjectKey]*stored{}, stops: map[string]mirror.Stop{}}
}

// Fake is one control plane's connection to a Server. It implements engine.Engine; Fail injects
// faults.
type Fake struct {
	// Fail is called before each call with its name in lower case ("apply", "delete", "sync",
	// "preflight", "watch", "readstops", ...) and the object, if any. Its error is returned. It may
	// block, like a slow engine.
	Fail func(call string, key fleet.ObjectKey) error
	// Stopped is called before each write.
	Stopped func(fleet.TenantName) bool
	// Pause is the pause of a field-manager conflict; a second drift within it is a conflict.
	Pause time.Duration
	// Report is the result of Preflight.
	Report engine.Report

	name   fleet.EngineName
	server *Server

	mu           sync.Mutex
	fit          bool
	synced       bool
	restores     int
	broken       error
	known        map[fleet.ObjectKey]engine.Live
	observations map[fleet.ObjectKey]mirror.Observation
	contacts     map[fleet.ObjectKey]engine.Contact
	ownWrites    map[fleet.ObjectKey]engine.Live // the last writes of this connection
	conflicts    map[fleet.ObjectKey]time.Time
	changed      chan struct{}
}

// Connect returns a new connection, as of a restarted control plane.
func (s *Server) Connect(name fleet.EngineName) *Fake {
	f := &Fake{name: name, server: s, Pause: time.Minute, Stopped: func(fleet.TenantName) bool {
		return false
	},
		known:        map[fleet.ObjectKey]engine.Live{},
		observations: map[fleet.ObjectKey]mirror.Observation{},
		contacts:     map[fleet.ObjectKey]engine.Contact{},
		ownWrites:    map[fleet.ObjectKey]engine.Live{}, conflicts: map[fleet.ObjectKey]time.Time{},
		changed: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakes = append(s.fakes, f)
	return f
}

func (f *Fake) fail(call string, key fleet.ObjectKey) error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(call, key)
}

// changedLocked wakes every watcher.
func (s *Server) changedLocked() {
	for _, f := range s.fakes {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

func (s *Server) write(o *stored) {
	s.writes++
	s.touch(o)
}

func (s *Server) touch(o *stored) {
	s.version++
	o.version = s.version
	s.changedLocked()
}

// Preflight returns Report.
func (f *Fake) Preflight(context.Context) (engine.Report, error) {
	if err := f.fail("preflight", fleet.ObjectKey{}); err != nil {
		return engine.Report{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fit = !slices.ContainsFunc(f.Report.Findings, func(x engine.Finding) bool { return x.Blocks })
	return f.Report, nil
}

// Watch follows the server. While Fail("watch") returns an error, Watch reads nothing and Health
// returns the error.
func (f *Fake) Watch(ctx context.Context, sink engine.Sink) error {
	tick := time.NewTicker(20 * time.Millisecond) // the end of a fault does not change the server
	defer tick.Stop()
	changed := true
	for {
		err := f.fail("watch", fleet.ObjectKey{})
		f.mu.Lock()
		f.broken = err
		f.mu.Unlock()
		if err == nil && changed {
			changed = false
			seen, wakes, contacts, back := f.poll()
			if back && sink.WentBack != nil {
				sink.WentBack("the server's version is lower than before")
			}
			if len(seen) > 0 && sink.Observe != nil {
				sink.Observe(seen)
			}
			if len(contacts) > 0 && sink.Contact != nil {
				sink.Contact(contacts)
			}
			if len(wakes) > 0 && sink.Wake != nil {
				sink.Wake(wakes)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.changed:
			changed = true
		case <-tick.C:
		}
	}
}

// poll compares the known state with the server's. back reports a restore of the server.
func (f *Fake) poll() (seen []mirror.Observation, wakes []fleet.ObjectKey,
	contacts []engine.Contact,
	back bool) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[fleet.ObjectKey]engine.Live{}
	back = f.server.restores > f.restores
	f.restores = f.server.restores
	for key, o := range f.server.objects {
		before, ok := f.known[key]
		changed := !ok || before.ResourceVersion != strconv.FormatInt(o.version, 10)
		if !changed && !back {
			now[key] = before
			continue
		}
		live := o.live(key, f.name)
		now[key] = live
		if !live.Ours {
			continue
		}
		if changed && (live.Drifted || live.Deleting) || f.synced && f.foreignWrite(key, live) {
			wakes = append(wakes, key)
		}
		if key.Kind == fleet.ObjectApplication {
			if o := o.observation(key); f.observations[key] != o {
				seen, f.observations[key] = append(seen, o), o
			}
			if c := o.contact(live); f.contacts[key] != c {
				contacts, f.contacts[key] = append(contacts, c), c
			}
		}
	}
	for key, before := range f.known {
		if _, still := now[key]; !still && before.Ours {
			wakes = append(wakes, key)
			if key.Kind == fleet.ObjectApplication {
				seen = append(seen, mirror.Observation{Key: key, UID: before.UID, Deleted: true,
					Sync: mirror.SyncUnknown, Health: mirror.HealthUnknown})
				contacts = append(contacts, engine.Contact{Key: key, Tenant: before.Tenant,
					Environment: before.Environment, Gone: true})
				delete(f.observations, key)
				delete(f.contacts, key)
			}
		}
	}
	f.known, f.synced = now, true
	return seen, wakes, contacts, back
}

// foreignWrite reports whether an object shows a write of another control plane.
func (f *Fake) foreignWrite(key fleet.ObjectKey, live engine.Live) bool {
	same := func(l engine.Live) bool {
		return l.Ours && l.UID == live.UID && l.Epoch == live.Epoch && l.Hash == live.Hash
	}
	return !same(f.known[key]) && !same(f.ownWrites[key])
}

// Synced reports whether the server was read.
func (f *Fake) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

// Health returns the last error of Fail("watch").
func (f *Fake) Health() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// Live returns the state of the last poll.
func (f *Fake) Live(key fleet.ObjectKey) (engine.Live, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.known[key]
	return l, ok
}

// Waves reports whether an Application of the environment has a wave other than 0.
func (f *Fake) Waves(id fleet.EnvironmentID) bool {
	return slices.ContainsFunc(f.Environment(id), func(l engine.Live) bool { return l.Wave != 0 })
}

// Environment lists our Applications of one environment at the last poll.
func (f *Fake) Environment(id fleet.EnvironmentID) []engine.Live {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []engine.Live
	for key, l := range f.known {
		if l.Ours && key.Kind == fleet.ObjectApplication && l.Tenant == id.Tenant &&
			l.Environment == id.Name {
			all = append(all, l)
		}
	}
	return all
}

// Inventory lists our objects of the last poll.
func (f *Fake) Inventory() []engine.Live {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []engine.Live
	for _, l := range f.known {
		if l.Ours {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b engine.Live) int {
		return cmp.Or(cmp.Compare(a.Key.Kind.Rank(), b.Key.Kind.Rank()),
			cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

func (f *Fake) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.fit:
		return engine.ErrUnfit
	case !f.synced:
		return engine.ErrUnknown
	}
	return nil
}

// SetStop stores a stop on the server.
func (f *Fake) SetStop(_ context.Context, stop mirror.Stop) error {
	if err := f.fail("setstop", fleet.ObjectKey{}); err != nil {
		return err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	f.server.stops[string(stop.Scope)+"."+stop.Name] = stop
	return nil
}

// ClearStop removes a stop.
func (f *Fake) ClearStop(_ context.Context, scope mirror.StopScope, name string) error {
	if err := f.fail("clearstop", fleet.ObjectKey{}); err != nil {
		return err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	delete(f.server.stops, string(scope)+"."+name)
	return nil
}

// ReadStops lists the stops.
func (f *Fake) ReadStops(context.Context) ([]mirror.Stop, error) {
	if err := f.fail("readstops", fleet.ObjectKey{}); err != nil {
		return nil, err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	var all []mirror.Stop
	for _, k := range slices.Sorted(maps.Keys(f.server.stops)) {
		all = append(all, f.server.stops[k])
	}
	return all, nil
}

func (o *stored) text(path ...string) string {
	var at any = o.body
	for _, p := range path {
		m, _ := at.(map[string]any)
		at = m[p]
	}
	s, _ := at.(string)
	return s
}

func (o *stored) label(name string) string { return o.text("metadata", "labels", name) }

func (o *stored) annotation(name string) string { return o.text("metadata", "annotations", name) }

func (o *stored) live(key fleet.ObjectKey, name fleet.EngineName) engine.Live {
	epoch, _ := strconv.ParseInt(o.annotation("argosy.dev/epoch"), 10, 64)
	l := engine.Live{
		Key: key, UID: o.uid, ResourceVersion: strconv.FormatInt(o.version, 10),
		Ours:        o.label("app.kubernetes.io/managed-by") == "argosy",
		Tenant:      fleet.TenantName(o.label("argosy.dev/tenant")),
		Environment: fleet.EnvironmentName(o.label("argosy.dev/environment")),
		Deployment:  fleet.DeploymentName(o.label("argosy.dev/deployment")),
		Engine:      fleet.EngineName(o.annotation("argosy.dev/engine")),
		Revision:    fleet.Revision(o.annotation("argosy.dev/revision")), Epoch: epoch,
		Hash: o.applied,
		Hold: fleet.SyncRunName(o.annotation("argosy.dev/hold")), Manager: o.otherManager,
		Deleting: o.deleting,
	}
	l.Parked = o.annotation("argosy.dev/parked") != ""
	if text := o.annotation("argosy.dev/evacuated-from"); text != "" {
		for from := range strings.SplitSeq(text, ",") {
			l.Evacuated = append(l.Evacuated, fleet.EngineName(from))
		}
	}
	l.Slices = fleet.SlicesIn(o.annotation("argosy.dev/slices"))
	if key.Kind == fleet.ObjectApplication {
		seen := o.observation(key)
		l.Wave, l.Sync, l.Health = fleet.ParseWave(o.annotation(fleet.WaveAnnotation)), seen.Sync,
			seen.Health
		l.Compared = seen.Sync == mirror.SyncSynced && seen.Health == mirror.HealthHealthy &&
			o.json("spec", "source") == o.json("status", "sync", "comparedTo", "source")
	}
	l.Operating = o.body["operation"] != nil || o.text("status", "operationState",
		"phase") == "Running"
	moved, _, _ := strings.Cut(o.annotation(moveAnnotation), "/")
	l.Leaving, l.Arriving = moved != "" && moved == o.uid, moved != "" && moved != o.uid
	l.Drifted = l.Ours && !l.Deleting && moved == "" && (o.contentNow() != o.content ||
		strings.Contains(o.json("metadata", "finalizers"), "resources-finalizer"))
	return l
}

func (o *stored) json(path ...string) string {
	var at any = o.body
	for _, p := range path {
		m, _ := at.(map[string]any)
		at = m[p]
	}
	b, err := json.Marshal(at)
	if err != nil || string(b) == "null" {
		return ""
	}
	return string(b)
}

// contentNow returns the owned content: spec or data, labels, and the annotations of a manifest.
func (o *stored) contentNow() string {
	return fmt.Sprint(o.json("spec"), o.json("data"), o.json("metadata", "labels"),
		o.annotation("argosy.dev/engine"), o.annotation("argosy.dev/hold"), o.secret)
}

func (o *stored) observation(key fleet.ObjectKey) mirror.Observation {
	resources, _ := o.body["status"].(map[string]any)["resources"].([]any)
	out := mirror.Observation{Key: key, UID: o.uid, Sync: mirror.SyncUnknown,
		Health: mirror.HealthUnknown, Resources: len(resources),
		SyncedRevision: o.text("status", "sync", "revision"), OperationPhase: o.text("status",
			"operationState", "phase")}
	if o.compared() {
		out.Compared = o.applied
	}
	if s := mirror.SyncState(o.text("status", "sync", "status")); s == mirror.SyncSynced ||
		s == mirror.SyncOutOfSync {
		out.Sync = s
	}
	switch h := mirror.HealthState(o.text("status", "health", "status")); h {
	case mirror.HealthHealthy, mirror.HealthProgressing, mirror.HealthDegraded,
		mirror.HealthSuspended,
		mirror.HealthMissing:
		out.Health = h
	}
	if out.OperationPhase == "Failed" {
		out.OperationError = o.text("status", "operationState", "message")
	}
	out.OperationID = o.request("status", "operationState", "operation")
	out.OperationRevision = cmp.Or(o.text("status", "operationState", "syncResult", "revision"),
		o.text("status", "operationState", "operation", "sync", "revision"))
	return out
}

// contact returns the result of Server.Compare.
func (o *stored) contact(live engine.Live) engine.Contact {
	c := engine.Contact{Key: live.Key, UID: o.uid, Tenant: live.Tenant,
		Environment: live.Environment,
		Reason:      mirror.UnreachableReason(o.text("status", "reason")),
		Message:     o.text("status", "reason"), Deleting: o.deleting}
	c.Compared, _ = time.Parse(time.RFC3339Nano, o.text("status", "reconciledAt"))
	c.Parked, _ = time.Parse(time.RFC3339, o.annotation("argosy.dev/parked"))
	return c
}

// request returns the SyncRun of an operation.
func (o *stored) request(path ...string) string {
	var at any = o.body
	for _, p := range path {
		m, _ := at.(map[string]any)
		at = m[p]
	}
	op, _ := at.(map[string]any)
	info, _ := op["info"].([]any)
	for _, i := range info {
		if m, _ := i.(map[string]any); m["name"] == "argosy.dev/sync" {
			id, _ := m["value"].(string)
			return id
		}
	}
	return ""
}

var uids atomic.Int64

// newUID returns a UID that no object of any server has.
func newUID() string { return "uid-" + strconv.FormatInt(uids.Add(1), 10) }

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
		return f.put(row, &stored{uid: newUID()}, fingerprint, lease)
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
	case live.Arriving && !strings.HasSuffix(o.annotation(moveAnnotation), "/adopt"):
		return engine.Outcome{}, engine.ErrMove
	case o.annotation(moveAnnotation) != "":
		return f.put(row, o, fingerprint, lease)
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
func (f *Fake) put(row mirror.Row, o *stored, fingerprint string,
	lease mirror.Lease) (engine.Outcome,
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
	case !live.Ours && row.Deletion == fleet.DeletionRelease:
		return true, nil
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
	if row.Key.Kind == fleet.ObjectApplication && row.Deletion == fleet.DeletionRelease {
		delete(o.body["metadata"].(map[string]any), "labels")
		f.server.write(o)
		return false, nil
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

// Act implements engine.Actor. Merging a status ends an operation, and removing the annotation a
// refresh, as with Argo CD.
func (f *Fake) Act(_ context.Context, q engine.ActionRequest, lease mirror.Lease) (
	engine.ActionProgress, error) {
	progress := func(state mirror.OperationState) (engine.ActionProgress, error) {
		return engine.ActionProgress{State: state}, nil
	}
	err := f.fail("act", q.Key)
	if err == nil {
		err = f.ready()
	}
	if err != nil {
		return engine.ActionProgress{}, err
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	o := f.server.objects[q.Key]
	if o == nil {
		return progress(mirror.OperationPending)
	}
	live := o.live(q.Key, f.name)
	switch {
	case !live.Ours || live.Tenant != q.Tenant:
		return engine.ActionProgress{}, engine.ErrForeign
	case live.Epoch > lease.Epoch:
		return engine.ActionProgress{}, engine.ErrFenced
	case o.annotation(actionAnnotation+string(q.Kind)) == q.ID:
		return f.actEnd(o, q)
	case live.Deleting:
		return engine.ActionProgress{}, engine.ErrRefused
	case live.Parked || o.annotation(moveAnnotation) != "":
		return progress(mirror.OperationPending)
	case f.Stopped(q.Tenant):
		return engine.ActionProgress{}, engine.ErrStopped
	}
	return f.actBegin(o, q, live, lease)
}

const (
	actionAnnotation  = "argosy.dev/action-"
	refreshAnnotation = "argocd.argoproj.io/refresh"
)

func (f *Fake) actBegin(o *stored, q engine.ActionRequest, live engine.Live, lease mirror.Lease) (
	engine.ActionProgress, error) {
	annotations := o.body["metadata"].(map[string]any)["annotations"].(map[string]any)
	status := o.body["status"].(map[string]any)
	state, _ := status["operationState"].(map[string]any)
	switch q.Kind {
	case mirror.ActionRefresh:
		annotations[refreshAnnotation] = "normal"
		if q.Options.Hard {
			annotations[refreshAnnotation] = "hard"
		}
	case mirror.ActionTerminate:
		if !live.Operating {
			return engine.ActionProgress{}, engine.ErrRefused
		}
		if state == nil || state["phase"] != "Running" {
			return engine.ActionProgress{State: mirror.OperationPending}, nil
		}
		state["phase"] = "Terminating"
	case mirror.ActionRestart: // it has no workloads: the mark alone
	case mirror.ActionSync:
		if live.Operating {
			return engine.ActionProgress{State: mirror.OperationPending}, nil
		}
		sync := map[string]any{"prune": q.Options.Prune, "dryRun": q.Options.DryRun}
		if q.Options.Revision != "" {
			sync["revision"] = q.Options.Revision
		}
		o.body["operation"] = map[string]any{"initiatedBy": map[string]any{"username": "argosy"},
			"sync": sync, "info": []any{map[string]any{"name": "argosy.dev/sync", "value": q.ID}}}
		delete(status, "operationState")
	default:
		return engine.ActionProgress{}, engine.ErrRefused
	}
	annotations[actionAnnotation+string(q.Kind)] = q.ID
	annotations["argosy.dev/epoch"] = strconv.FormatInt(lease.Epoch, 10)
	f.server.write(o)
	return engine.ActionProgress{State: mirror.OperationRunning}, nil
}

func (f *Fake) actEnd(o *stored, q engine.ActionRequest) (engine.ActionProgress, error) {
	phase := o.text("status", "operationState", "phase")
	out := engine.ActionProgress{State: mirror.OperationSucceeded}
	switch {
	case q.Kind == mirror.ActionRefresh && o.annotation(refreshAnnotation) != "",
		q.Kind == mirror.ActionTerminate && phase == "Terminating":
		out.State = mirror.OperationRunning
	case q.Kind != mirror.ActionSync:
	case o.body["operation"] != nil || phase == "Running":
		out.State = mirror.OperationRunning
	case o.request("status", "operationState", "operation") != q.ID:
		return engine.ActionProgress{}, engine.ErrRefused
	default:
		if phase != "Succeeded" {
			out.State = mirror.OperationFailed
		}
		out.Message = o.text("status", "operationState", "message")
		var all []mirror.ResourceResult
		_ = json.Unmarshal([]byte(o.json("status", "operationState", "syncResult", "resources")),
			&all)
		out.Results = append([]mirror.ResourceResult{}, all...)
	}
	return out, nil
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

// Copy returns a function by which "meddler" creates the object again, as it is now.
func (s *Server) Copy(key fleet.ObjectKey) (create func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := copied(map[fleet.ObjectKey]*stored{key: s.objects[key]})[key]
	kept.otherManager = "meddler"
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept.uid = newUID()
		s.objects[key] = kept
		s.touch(kept)
	}
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

// PlainRenderer makes manifests that only the fake understands: this package imports no engine's
// types.
type PlainRenderer struct{}

// Render returns the manifest of an object.
func (PlainRenderer) Render(_ fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	labels := map[string]string{"app.kubernetes.io/managed-by": "argosy"}
	annotations := map[string]string{"argosy.dev/engine": string(o.Key.Engine)}
	body := map[string]any{"kind": o.Key.Kind, "metadata": map[string]any{
		"name": o.Key.Name, "labels": labels, "annotations": annotations}}
	switch {
	case o.Project != nil:
		labels["argosy.dev/tenant"] = string(o.Project.Tenant)
		body["spec"] = map[string]any{"sourceRepos": o.Project.SourceRepos}
	case o.Cluster != nil:
		labels["argosy.dev/tenant"], labels["argosy.dev/environment"] = string(o.Cluster.ID.Tenant),
			string(o.Cluster.ID.Name)
		body["data"] = map[string]any{"server": o.Cluster.Server}
	case o.Repository != nil:
		labels["argosy.dev/tenant"] = string(o.Repository.ID.Tenant)
		body["data"] = map[string]any{"url": o.Repository.URL}
	case o.Application != nil:
		id := o.Application.ID
		labels["argosy.dev/tenant"] = string(id.Tenant)
		labels["argosy.dev/environment"] = string(id.Environment)
		labels["argosy.dev/deployment"] = string(id.Deployment)
		if wave := o.Application.Wave; wave != 0 {
			annotations[fleet.WaveAnnotation] = strconv.Itoa(wave)
		}
		spec := map[string]any{
			"source": map[string]any{"targetRevision": o.Application.Sources[0].TargetRevision}}
		if o.Application.Sync.Automated {
			spec["syncPolicy"] = map[string]any{"automated": map[string]any{}}
		}
		if o.Application.Hold != "" {
			annotations["argosy.dev/hold"] = string(o.Application.Hold)
		}
		body["spec"] = spec
	}
	return plain(body)
}

// Retarget returns the manifest for another engine.
func (PlainRenderer) Retarget(_ fleet.EngineSpec, to fleet.EngineName, _ fleet.TenantName,
	m fleet.Manifest) (fleet.Manifest, error) {
	var body map[string]any
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return fleet.Manifest{}, err
	}
	body["metadata"].(map[string]any)["annotations"].(map[string]any)["argosy.dev/engine"] = to
	return plain(body)
}

func plain(body map[string]any) (fleet.Manifest, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return fleet.Manifest{}, err
	}
	sum := sha256.Sum256(b)
	return fleet.Manifest{Body: b, Hash: hex.EncodeToString(sum[:])}, nil
}

// NewFixture returns the fake engine eu-1 of the server as a fixture of the conformance suite.
func NewFixture(s *Server) *Fixture {
	f := s.Connect("eu-1")
	f.Pause = 300 * time.Millisecond
	var stopped atomic.Bool
	f.Stopped = func(fleet.TenantName) bool { return stopped.Load() }
	return &Fixture{Name: "eu-1", Engine: f, Render: PlainRenderer{}, External: s,
		Stop:   stopped.Store,
		Reopen: func(*testing.T) *Fixture { return NewFixture(s) }}
}
