// Package engine says what the control plane needs of an engine, whatever it is made of: an Argo CD
// instance reached by push is the first, one behind an agent the second, and enginetest has one in
// memory with faults to order.
//
// Rules of this package:
//   - standard library and package fleet only;
//   - every implementation passes the one suite in enginetest, the fake included;
//   - a write is refused rather than guessed: what is not proven to be ours is left alone, what was not read completely is not absent,
//     and every write carries the epoch of the lease under which it is made.
package engine

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// Renderer makes the manifest of a desired object. It is pure: the same object gives the same
// bytes.
type Renderer interface {
	Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error)
}

// Engine keeps desired objects on one engine and says how they stand. All methods may be called at
// the same time.
type Engine interface {
	// Preflight looks whether the engine is fit to be written to. An error means that it could not
	// be looked at; a finding that blocks makes every write fail with ErrUnfit until a later
	// Preflight finds it mended.
	Preflight(ctx context.Context) (Report, error)

	// Watch follows the engine until ctx ends and tells the sink. It heals by itself; it returns
	// only ctx's error.
	Watch(ctx context.Context, sink Sink) error

	// Synced reports whether Live and Inventory rest on a complete read. Before that nothing is
	// known, least of all that something is gone.
	Synced() bool

	// Health is nil while the engine is followed, else why it is not.
	Health() error

	// Live is what is known of one object, ours or a stranger of that name.
	Live(key fleet.ObjectKey) (Live, bool)

	// Inventory lists every object that is ours, ordered by kind and name. Only meaningful when
	// Synced.
	Inventory() []Live

	// Apply brings one object to its row with one request, or with none when the engine already has
	// it.
	Apply(ctx context.Context, row fleet.Row, secret fleet.Secret, lease fleet.Lease) (Outcome,
		error)

	// Delete goes one step towards the object's absence and reports whether that is reached and
	// proven. Call it again until it is.
	Delete(ctx context.Context, row fleet.Row, lease fleet.Lease) (done bool, err error)

	// Park has the engine leave one Application alone, neither comparing, syncing nor deleting it,
	// until it is unparked. A parked Application is no drift, and what is applied to it later is
	// kept.
	Park(ctx context.Context, request ParkRequest, lease fleet.Lease) error

	// Sync asks for one sync of one Application; asking again for the same request changes nothing.
	Sync(ctx context.Context, request SyncRequest, lease fleet.Lease) (Outcome, error)

	// SetStop, ClearStop and ReadStops keep the emergency stops on the engine itself, so that they
	// outlive the database.
	SetStop(ctx context.Context, stop fleet.Stop) error
	ClearStop(ctx context.Context, scope fleet.StopScope, name string) error
	ReadStops(ctx context.Context) ([]fleet.Stop, error)
}

// Sink hears what Watch sees. Its functions are called from one goroutine, and Watch waits for
// them.
type Sink struct {
	// Observe takes the latest state of each Application of ours that changed, at most once per
	// Application and window.
	Observe func([]fleet.Observation)
	// Wake names objects that need a look: they vanished, they differ from what was last applied,
	// or a deletion went on.
	Wake func([]fleet.ObjectKey)
	// Contact takes how the engine reached the cluster of each Application of ours that it has
	// compared.
	Contact func([]Contact)
	// WentBack says that the engine's whole state is from before what it had shown, as after a
	// restore from a backup, and how that showed. What Live and Inventory say is that older state
	// already.
	WentBack func(how string)
}

// Live is what an engine last said of one object.
type Live struct {
	Key             fleet.ObjectKey
	UID             string
	ResourceVersion string
	Ours            bool // carries our labels, and its name is the one that they give
	Tenant          fleet.TenantName
	Environment     fleet.EnvironmentName
	Deployment      fleet.DeploymentName
	Engine          fleet.EngineName // that it was written for
	Revision        fleet.Revision
	Epoch           int64
	Hash            string // of the row that was last applied
	Hold            fleet.SyncRunName
	Drifted         bool   // no longer what was last applied
	Manager         string // who else last wrote to it, when known
	Deleting        bool
	Operating       bool // an operation is asked for or runs
	Parked          bool // see Engine.Park
}

// Contact is how an engine reached the cluster of an Application when it last compared the two.
type Contact struct {
	Key         fleet.ObjectKey
	UID         string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Compared    time.Time               // by the engine's clock; zero: never
	Reason      fleet.UnreachableReason // why the cluster could not be read; empty: it was
	Message     string                  // the engine's own
	// since when its cluster is unreachable; zero: it is not parked
	Parked   time.Time
	Deleting bool
	Gone     bool
}

// In is the environment of the Application.
func (c Contact) In() fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: c.Tenant, Name: c.Environment}
}

// ParkRequest asks for one Application to be parked, or with a zero Since to be unparked.
type ParkRequest struct {
	Key    fleet.ObjectKey
	UID    string
	Tenant fleet.TenantName
	Since  time.Time // when its cluster became unreachable
}

// Outcome is what Apply or Sync came to.
type Outcome struct {
	// ApplyApplied or ApplyConflict for Apply; ApplyApplied or ApplyPending for Sync
	State      fleet.ApplyState
	Changed    bool          // something was written
	Message    string        // of a conflict or a wait; never with a secret
	RetryAfter time.Duration // when to look again, if it waits
}

// SyncRequest asks for one Application to be synced at a revision of its source.
type SyncRequest struct {
	Key      fleet.ObjectKey
	Tenant   fleet.TenantName
	ID       string // of the request; comes back as Observation.OperationID
	Revision string
	Prune    bool
}

// Finding is one thing that is wrong with an engine, told to the person who runs it.
type Finding struct {
	Code    string // stable, e.g. installation-id
	Message string
	Fix     string
	Blocks  bool // no write is made until it is mended
}

// Report is what Preflight found.
type Report struct {
	// of Argo CD, e.g. "v2.14.21"; "2.x" or "3.x" when only that much shows; "" unknown
	Version  string
	Findings []Finding
}

// Errors that a caller tells apart with errors.Is.
var (
	ErrFenced      = errors.New("a later lease has written to this object")
	ErrForeign     = errors.New("an object of this name exists that is not ours")
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
