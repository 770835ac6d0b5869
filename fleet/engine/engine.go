// Package engine defines what the control plane needs from an engine, whatever its implementation:
// an Argo CD instance reached by push (package argocd), one behind an agent, or the fake in package
// enginetest, which injects faults.
//
// Rules of this package:
//   - It imports only the standard library and package fleet.
//   - Every implementation passes the conformance suite in enginetest, including the fake.
//   - No write is based on a guess: an object that is not provably ours is left alone, an
//     incomplete read proves no absence, and every write carries the epoch of the lease under
//     which it is made.
package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Renderer renders the manifest of a desired object. It is pure: equal objects give equal bytes. Of
// the engine it uses only the ArgoCD section of the spec, which does not change while the engine
// serves, dedicatedTo, and the namespaces that it gives to the tenant.
type Renderer interface {
	Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error)

	// Retarget returns the manifest of an Application of a tenant as another engine gets it. It
	// changes nothing but the engine's name. An error means that the engine must not get it.
	Retarget(engine fleet.EngineSpec, to fleet.EngineName, tenant fleet.TenantName,
		m fleet.Manifest) (fleet.Manifest, error)
}

// Engine maintains desired objects on one engine and reports their state. Its methods are safe for
// concurrent use.
type Engine interface {
	Reader
	Writer
	StopStore

	// Preflight checks whether the engine may be written to. An error means that a check could not
	// run. A blocking finding makes every write fail with ErrUnfit until a later Preflight finds it
	// fixed, and a blind one every deletion of an Application with its workload with ErrBlind.
	Preflight(ctx context.Context) (Report, error)
}

// Reader follows the state of an engine.
type Reader interface {
	// Watch follows the engine until ctx ends and calls the sink. It recovers from failures by
	// itself and returns only ctx's error.
	Watch(ctx context.Context, sink Sink) error

	// Synced reports whether Live and Inventory are based on a complete read. Until then nothing is
	// known, and no object counts as deleted.
	Synced() bool

	// Health returns nil while the engine is followed, and otherwise why it is not.
	Health() error

	// Live returns the known state of one object, ours or a foreign one of that name.
	Live(key fleet.ObjectKey) (Live, bool)

	// Waves reports whether one of our Applications of the environment has a wave other than 0.
	Waves(id fleet.EnvironmentID) bool

	// Environment lists our Applications of one environment, in no order. It costs these alone.
	Environment(id fleet.EnvironmentID) []Live

	// Inventory lists all our objects, ordered by kind and name. It is meaningful only when Synced.
	Inventory() []Live
}

// Writer changes objects of an engine under a lease.
type Writer interface {
	// Apply makes one object match its row with one request, or with none if it matches already.
	Apply(ctx context.Context, row mirror.Row, secret fleet.Secret, lease mirror.Lease) (Outcome,
		error)

	// Delete takes one step towards the object's deletion and reports whether its absence is
	// proven. Repeat it until then.
	Delete(ctx context.Context, row mirror.Row, lease mirror.Lease) (done bool, err error)

	// Park makes the engine ignore one Application until it is unparked: the engine neither
	// compares, syncs nor deletes it. A parked Application has not drifted, and later applies to it
	// persist.
	Park(ctx context.Context, request ParkRequest, lease mirror.Lease) error

	// Sync requests one sync of one Application. It is idempotent per request ID.
	Sync(ctx context.Context, request SyncRequest, lease mirror.Lease) (Outcome, error)
}

// Mover carries out the steps of an Application that moves between engines (ADR 0045). Each step
// can be repeated. A step that must wait, or that finds the Application unfit, returns ErrMove with
// the reason, and has then changed nothing that the next attempt does not expect.
type Mover interface {
	// CheckDeparture reads the Application on the engine that it leaves. It is fit if it is Synced
	// with its present source, without an operation, a deletion or a resource to prune. A departure
	// without a UID means that the engine provably does not have it now. It may have had it before.
	CheckDeparture(ctx context.Context, row mirror.Row) (mirror.Departure, error)

	// Compare creates the Application on the new engine, at the commits of the departure and
	// without automation, and returns nil once the engine has compared it: it would change nothing
	// except the marks of the engine, and has the same resources. It takes over the object of an
	// earlier attempt, made for another object of the old engine, unless that object adopts or is
	// automated.
	Compare(ctx context.Context, row mirror.Row, d mirror.Departure, lease mirror.Lease) error

	// Freeze makes the old engine ignore the Application, and removes all that would delete its
	// workload. It returns nil once an uncached read proves both. ErrMoveStale means that the
	// engine has synced the Application since the departure was recorded: Apply undoes the attempt,
	// and the move goes back to CheckDeparture. ErrMoveGone means that the engine provably does not
	// have it any more; Apply would create it a second time.
	Freeze(ctx context.Context, row mirror.Row, d mirror.Departure, lease mirror.Lease) error

	// Adopt makes the new engine mark exactly the resources of the departure as its own, without
	// hooks and pruning. It returns nil once an uncached read proves it. ErrMoveDiffers means that
	// the workload is not what Compare has compared any more, or that the engine cannot mark it:
	// the Application goes back to the old engine, and Apply refuses it on the new one again.
	Adopt(ctx context.Context, row mirror.Row, d mirror.Departure, lease mirror.Lease) error

	// Return makes the old engine, after Freeze, mark those resources as its own that it would not
	// change. A resource with a difference keeps its marks until its next sync. It does nothing if
	// the engine serves the Application again: a replica has applied the row and died before it
	// recorded that.
	Return(ctx context.Context, row mirror.Row, d mirror.Departure, lease mirror.Lease) error

	// CheckDeparted returns nil if an uncached read proves that no Application of the row's name on
	// the old engine can change the workload: none exists, or the engine ignores it, and it has
	// neither automation nor a finalizer. ErrMove names the Application that a person has created
	// again after its deletion: with the new engine's it would be a second owner.
	CheckDeparted(ctx context.Context, row mirror.Row) error
}

// MoverOf returns an engine, or the engine that it wraps, as a Mover.
func MoverOf(e Engine) (Mover, bool) { return As[Mover](e) }

// Actor is an engine that carries out what a person asks of one Application (ADR 0088).
type Actor interface {
	// Act takes one step of an action and returns how far it is. It is repeated until the action
	// has ended, also by other replicas: it writes at most once per ID. Its reads are uncached.
	// ErrRefused ends the action as failed; other errors prove nothing about it.
	Act(ctx context.Context, request ActionRequest, lease mirror.Lease) (ActionProgress, error)
}

// ActionRequest is one action for an engine.
type ActionRequest struct {
	ID      string // its Observation.OperationID, if the action is an operation of Argo CD
	Kind    mirror.ActionKind
	Key     fleet.ObjectKey
	Tenant  fleet.TenantName
	Options mirror.ActionOptions
	// RequestedAt is when the person has asked, by the store's clock. A restart writes it.
	RequestedAt time.Time
	// Outcome is ActionProgress.Outcome once that and the results are stored.
	Outcome mirror.OperationState
}

// ActionProgress is how far an engine is with an action. Pending: it has not begun.
type ActionProgress struct {
	State   mirror.OperationState
	Message string
	Results []mirror.ResourceResult
	// Outcome of a running action is the state in which it ends. The caller stores it with the
	// results before the next step, which discards both on the engine.
	Outcome mirror.OperationState
}

// Evacuee is an engine whose environments may get another engine without its part (ADR 0058).
type Evacuee interface {
	// FreezeAway makes the engine ignore an Application that another engine has now, and removes
	// all that would sync it or delete its workload. It returns nil once an uncached read proves
	// both, or that the engine does not have it. It writes to an object that is provably ours only.
	FreezeAway(ctx context.Context, row mirror.Row, lease mirror.Lease) error
}

// StopStore stores the emergency stops on the engine itself, so that they outlive the database.
type StopStore interface {
	SetStop(ctx context.Context, stop mirror.Stop) error
	ClearStop(ctx context.Context, scope mirror.StopScope, name string) error
	ReadStops(ctx context.Context) ([]mirror.Stop, error)
}

// Sink receives the results of Watch. Watch calls its functions from one goroutine and waits for
// them.
type Sink struct {
	// Observe receives the latest state of each changed Application of ours, at most once per
	// Application and window.
	Observe func([]mirror.Observation)
	// Wake names objects to recheck: they were deleted, they differ from the last apply, or their
	// deletion has progressed.
	Wake func([]fleet.ObjectKey)
	// Contact receives how the engine reached the cluster of each Application of ours at its last
	// comparison.
	Contact func([]Contact)
	// WentBack reports that the engine's whole state went back in time, as after a restore from a
	// backup, and how that was detected. Live and Inventory return the older state already.
	WentBack func(how string)
}

// Live is the last known state of one object.
type Live struct {
	Key             fleet.ObjectKey
	UID             string
	ResourceVersion string
	Ours            bool // has our labels, and the name that follows from them
	Tenant          fleet.TenantName
	Environment     fleet.EnvironmentName
	Deployment      fleet.DeploymentName
	Engine          fleet.EngineName // the engine that it was written for
	Revision        fleet.Revision
	Epoch           int64
	Hash            string // of the last applied row
	Hold            fleet.SyncRunName
	Drifted         bool   // differs from the last apply
	Manager         string // the last other writer, if known
	Deleting        bool
	Operating       bool // an operation is requested or running
	Parked          bool // see Engine.Park
	// a move has begun: of the Application that leaves the engine, or of the one that arrives and
	// that another engine may still sync
	Leaving, Arriving bool
	// of a Cluster: see fleet.Placement.Evacuated
	Evacuated []fleet.EngineName
	// of a Cluster: the slices of a split environment there; nil: it is not split
	Slices []fleet.Slice

	// of Applications
	Wave   int // see fleet.WaveAnnotation
	Sync   mirror.SyncState
	Health mirror.HealthState
	// the engine has compared it with its present source and destination, and it is Synced and
	// Healthy. A write resets it until the engine has compared again.
	Compared bool
}

// In returns the environment of the Application.
func (l Live) In() fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: l.Tenant, Name: l.Environment}
}

// Finished reports whether the engine has finished what the last apply asked for.
func (l Live) Finished() bool { return l.Compared && !l.Operating && !l.Deleting }

// Contact is how an engine reached the cluster of an Application at its last comparison.
type Contact struct {
	Key         fleet.ObjectKey
	UID         string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Compared    time.Time                // by the engine's clock; zero: never
	Reason      mirror.UnreachableReason // why the cluster could not be read; empty: it was read
	Message     string                   // the engine's message
	RepoServer  string                   // its message when its repo-server did not answer
	// since when its cluster is unreachable; zero: not parked
	Parked   time.Time
	Deleting bool
	Gone     bool
}

// In returns the environment of the Application.
func (c Contact) In() fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: c.Tenant, Name: c.Environment}
}

// ParkRequest parks one Application or, with a zero Since, unparks it.
type ParkRequest struct {
	Key    fleet.ObjectKey
	UID    string
	Tenant fleet.TenantName
	Since  time.Time // when its cluster became unreachable
}

// ProbeName is the name of the Application by which Prober probes an engine.
const ProbeName = "argosy-probe"

// Prober is an engine that can be probed for working, as opposed to being reachable. The probe has
// no repository, no workload and no tenant.
type Prober interface {
	// RequestProbe asks the engine to refresh its probe, which it creates first.
	RequestProbe(ctx context.Context) error
	// Probed returns what has not handled the requested refresh yet; "" if everything has.
	// ErrNoProbe means that the probe provably does not exist any more, which proves nothing about
	// the engine.
	Probed(ctx context.Context) (left string, err error)
	// RemoveProbe deletes the probe. A missing one is no error.
	RemoveProbe(ctx context.Context) error
}

// Restarter is an engine whose components can be restarted (ADR 0063).
type Restarter interface {
	// CheckRestart returns ErrRefused if Restart cannot work before a person has changed
	// something: the component or a right is missing. It writes nothing.
	CheckRestart(ctx context.Context, c fleet.Component) error
	// Restart replaces every Pod of a component, once for each time of a request. It returns the
	// reason why it has to be repeated, or "" once an uncached read proves that no earlier Pod is
	// there.
	Restart(ctx context.Context, c fleet.Component, requested time.Time) (waits string, err error)
}

// Installer is an engine whose Argo CD Argosy installs and upgrades (ADR 0071).
type Installer interface {
	// Install brings the instance closer to a version and corrects what differs from it. It returns
	// the reason why it has to be repeated, or "" once the Pods of the version are ready.
	// ErrRefused: a person has to fix something first.
	Install(ctx context.Context, m mirror.RingManifests, epoch int64) (waits string, err error)
	// Release gives the instance back: it deletes Argosy's inventory, and nothing else changes.
	Release(ctx context.Context, epoch int64) error
	// Uninstall removes what Install has written into the namespace, but no Secret and not the
	// namespace. It returns the reason why it has to be repeated, or "" once nothing is left.
	Uninstall(ctx context.Context, epoch int64) (waits string, err error)
	// InstalledEpoch returns the epoch of the last writer of the instance; 0 without one.
	InstalledEpoch(ctx context.Context) (int64, error)
}

// Shadower is an engine that can render its Applications with the next version of its Argo CD
// beside the present one (ADR 0072).
type Shadower interface {
	// StartShadow brings the next version's repo-server beside the present one. It returns the
	// reason why it has to be repeated, or "" once it is ready. It changes nothing else.
	StartShadow(ctx context.Context, m mirror.RingManifests, epoch int64) (waits string, err error)
	// OpenShadow connects to both repo-servers.
	OpenShadow(ctx context.Context) (Comparison, error)
	// EndShadow removes the shadow. It returns the reason why it has to be repeated, or "" once it
	// is gone.
	EndShadow(ctx context.Context) (waits string, err error)
}

// Comparison renders with both versions. Its methods are safe for concurrent use.
type Comparison interface {
	// Basis identifies the settings that all Applications share.
	Basis() string
	// Compare renders one Application with both versions. An error proves nothing about the
	// Application: a repo-server or the API server has not answered.
	Compare(ctx context.Context, task mirror.ShadowTask) (mirror.ShadowResult, Times, error)
	Close() error
}

// Times are how long the two versions took to render one Application.
type Times struct{ Present, Next time.Duration }

// Fencer is an engine whose controllers can be scaled to zero, so that it is proven to write
// nothing while its API server answers (ADR 0068). Its steps are uncached and can be repeated.
type Fencer interface {
	// CheckFence returns the workloads that a fence scales, with the replicas that they have
	// without one. ErrRefused if a fence cannot work before a person has changed something: a
	// workload or a right is missing. It writes nothing.
	CheckFence(ctx context.Context) ([]mirror.FencedWorkload, error)
	// ScaleToZero scales each of them to zero, once for each id of a request, and remembers its
	// replicas on it. It returns why it has to be repeated; "" once each was scaled.
	ScaleToZero(ctx context.Context, request string) (waits string, err error)
	// ProveFence returns why a controller may be running, and whether somebody has scaled it back;
	// "" proves that none is: no workload has replicas, and no Pod is there, terminating or not.
	ProveFence(ctx context.Context) (left string, back bool, err error)
	// LiftFence gives each workload its replicas back: those that it remembers, else those of
	// before. It returns why it has to be repeated; "" once each has them.
	LiftFence(ctx context.Context, before []mirror.FencedWorkload) (waits string, err error)
}

// MetricsReader is an engine whose API server leads to the metrics of the engine's components.
type MetricsReader interface {
	// ReadMetrics returns the response of a Service or a Pod, which the caller bounds and closes.
	ReadMetrics(ctx context.Context, from fleet.MetricsEndpoint) (io.ReadCloser, error)
}

// As returns the engine as a T, also if wrappers with a method Unwrap hide it.
func As[T any](e Engine) (t T, ok bool) {
	for e != nil {
		if t, ok = e.(T); ok {
			return t, true
		}
		wrapper, wraps := e.(interface{ Unwrap() Engine })
		if !wraps {
			break
		}
		e = wrapper.Unwrap()
	}
	return t, false
}

// Outcome is the result of Apply or Sync.
type Outcome struct {
	// ApplyApplied or ApplyConflict for Apply, or ApplyFailed for an object that is there and
	// differs from its row; ApplyApplied or ApplyPending for Sync
	State      mirror.ApplyState
	Changed    bool          // something was written
	Message    string        // of a failure, a conflict or a wait; never contains a secret
	RetryAfter time.Duration // when to retry, if pending
	// Renew is when to apply an applied object again, because its token expires; 0: never. Kept
	// reports that the token could not be renewed, and that the one before still works.
	Renew time.Duration
	Kept  bool
}

// SyncRequest requests the sync of one Application at a revision of its source.
type SyncRequest struct {
	Key      fleet.ObjectKey
	Tenant   fleet.TenantName
	ID       string // of the request; returned as Observation.OperationID
	Revision string
	Prune    bool
}

// Finding is a problem of an engine, for the person who runs it.
type Finding struct {
	Code    string // stable, e.g. installation-id
	Message string
	Fix     string
	Blocks  bool // blocks all writes until it is fixed
	// Blind blocks deletions of Applications with their workload until it is fixed: they fail with
	// ErrBlind.
	Blind bool
}

// Report is the result of Preflight.
type Report struct {
	// of Argo CD, e.g. "v2.14.21"; "2.x" or "3.x" if only that is known; "" unknown
	Version  string
	Findings []Finding
}

// Errors for errors.Is.
var (
	ErrFenced      = errors.New("a later lease has written to this object")
	ErrForeign     = errors.New("an object of this name exists that is not ours")
	ErrAdoption    = errors.New("the adoption is blocked")
	ErrStopped     = errors.New("an emergency stop is in force")
	ErrUnfit       = errors.New("the engine is not fit to be written to")
	ErrUnknown     = errors.New("the engine has not been read completely")
	ErrInUse       = errors.New("the object is still in use")
	ErrTooLarge    = errors.New("the object is too large")
	ErrCredential  = errors.New("the credential cannot be used")
	ErrUnreachable = errors.New("the engine cannot be reached")
	ErrRefused     = errors.New("the engine refused the object")
	ErrMove        = errors.New("the move waits")
	ErrMoveStale   = errors.New("the Application has changed since its move began")
	ErrMoveDiffers = errors.New("the new engine cannot adopt the Application now")
	ErrMoveGone    = errors.New("the engine that the Application leaves does not have it any more")
	ErrNoProbe     = errors.New("the probe was deleted")
	ErrDestination = errors.New("the destination is not known to the engine")
	ErrBlind       = errors.New("the engine may take a running workload for a deleted one")
)
