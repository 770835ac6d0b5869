// Package mirror holds what the store keeps and what the loop, the workers and the agents exchange
// with it: rows, leases, acknowledgements, observations, revisions and decisions.
package mirror

import "errors"

// Errors of the store that callers distinguish with errors.Is.
var (
	// ErrFenced means that the lease of a write has expired or has passed to another holder. The
	// caller drops the work.
	ErrFenced = errors.New("the lease has run out or passed to another holder")
	// ErrStale means that the mirror has changed since a Record was computed. The caller loads it
	// again and plans again.
	ErrStale = errors.New("the mirror has moved on since it was read")
	// ErrNotLeader means that this replica does not hold the lease "reconciler", or has not loaded
	// the mirror yet.
	ErrNotLeader = errors.New("this replica does not apply the branch now")
	// ErrNotReady means that the branch's head is being applied, or cannot be applied.
	ErrNotReady = errors.New("the branch's head is not applied yet")
	// ErrMoved means that a ref points to another commit than the requested one: Git and the Git
	// host's API may differ for a moment.
	ErrMoved = errors.New("the ref has moved")
	// ErrUnmergeable means that a head can never be merged as it is. The error contains the reason.
	ErrUnmergeable = errors.New("it cannot be merged")
	// ErrAgentCannotAct means that an Application's engine is behind an agent that has not
	// connected yet, or whose protocol has no actions.
	ErrAgentCannotAct = errors.New("the agent of its engine has not connected yet, or is too old for actions")
	// ErrNeverHealthy means that no rollback leads to a revision: the Application was not Healthy
	// with it.
	ErrNeverHealthy = errors.New("it was not Healthy with this revision")
	// ErrNotRolledBack means that there is no rollback to end.
	ErrNotRolledBack = errors.New("no rollback of it is in force")
	// ErrTooManyActions means that MaxOpenActions of one environment are pending or running.
	ErrTooManyActions = errors.New("too many actions of this environment are waiting")
	// ErrTooManyPushes means that too many pushes of one sender are not handled yet.
	ErrTooManyPushes = errors.New("too many pushes are waiting")
	// ErrTooManySyncs means that the maximum number of syncs of one cluster's own Applications are
	// pending.
	ErrTooManySyncs = errors.New("too many syncs of this cluster's own applications are waiting")
)

// ErrNotFound means that the object does not exist or is outside of the caller's scope. The two
// cases are indistinguishable.
var ErrNotFound = errors.New("not found")

// ErrReplayed means that a sign-in has created its session already.
var ErrReplayed = errors.New("this sign-in was used already")

// ErrCursor means that Page.After is not a cursor of this list.
var ErrCursor = errors.New("the cursor is not one of this list")
