package enginetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
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

	restores int
	fakes    []*Fake
}

// stored is one object. body is the current manifest, with the changes of other writers.
type stored struct {
	body         map[string]any
	uid          string
	version      int64
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
	for {
		err := f.fail("watch", fleet.ObjectKey{})
		f.mu.Lock()
		f.broken = err
		f.mu.Unlock()
		if err == nil {
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
		case <-tick.C:
		}
	}
}

// poll compares the known state with the server's. back reports a restore of the server.
func (f *Fake) poll() (seen []mirror.Observation, wakes []fleet.ObjectKey, contacts []engine.Contact,
	back bool) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[fleet.ObjectKey]engine.Live{}
	back = f.server.restores > f.restores
	f.restores = f.server.restores
	for key, o := range f.server.objects {
		live := o.live(key, f.name)
		now[key] = live
		if !live.Ours {
			continue
		}
		before, ok := f.known[key]
		changed := !ok || before.ResourceVersion != live.ResourceVersion
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
	l.Operating = o.body["operation"] != nil || o.text("status", "operationState",
		"phase") == "Running"
	l.Drifted = l.Ours && !l.Deleting && (o.contentNow() != o.content ||
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
	if s := mirror.SyncState(o.text("status", "sync", "status")); s == mirror.SyncSynced ||
		s == mirror.SyncOutOfSync {
		out.Sync = s
	}
	switch h := mirror.HealthState(o.text("status", "health", "status")); h {
	case mirror.HealthHealthy, mirror.HealthProgressing, mirror.HealthDegraded, mirror.HealthSuspended,
		mirror.HealthMissing:
		out.Health = h
	}
	if out.OperationPhase == "Failed" {
		out.OperationError = o.text("status", "operationState", "message")
	}
	out.OperationID = o.request("status", "operationState", "operation")
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
