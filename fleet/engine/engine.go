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
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Renderer renders the manifest of a desired object. It is pure: equal objects give equal bytes. Of
// the engine it uses only the ArgoCD section of the spec, which does not change while the engine
// serves, dedicatedTo, and the namespaces that it gives to the tenant.
type Renderer interface {
	Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error)
}

// Engine maintains desired objects on one engine and reports their state. Its methods are safe for
// concurrent use.
type Engine interface {
	Reader
	Writer
	StopStore

	// Preflight checks whether the engine may be written to. An error means that a check could not
	// run. A blocking finding makes every write fail with ErrUnfit until a later Preflight finds it
	// fixed.
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

// Outcome is the result of Apply or Sync.
type Outcome struct {
	// ApplyApplied or ApplyConflict for Apply; ApplyApplied or ApplyPending for Sync
	State      mirror.ApplyState
	Changed    bool          // something was written
	Message    string        // of a conflict or a wait; never contains a secret
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
	ErrDestination = errors.New("the destination is not known to the engine")
)
