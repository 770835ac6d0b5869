// Package mirror holds what the store keeps and what the loop, the workers and the agents exchange
// with it: rows, leases, acknowledgements, observations, revisions and decisions.
package mirror

import "errors"

// Errors of the store that a caller tells apart with errors.Is.
var (
	// ErrFenced says that the lease under which something was to be written has run out or passed
	// on. The work is dropped.
	ErrFenced = errors.New("the lease has run out or passed to another holder")
	// ErrStale says that the state that a Record was computed from is no longer the one that
	// stands. Load anew and plan again.
	ErrStale = errors.New("the mirror has moved on since it was read")
	// ErrTooManySyncs says that as many syncs of one cluster's own Applications wait as may.
	ErrTooManySyncs = errors.New("too many syncs of this cluster's own applications are waiting")
)

// ErrNotFound says that what was asked for does not exist for the one who asks: not there, or not
// in its scope. The two are never told apart.
var ErrNotFound = errors.New("not found")

// ErrCursor says that a Page.After was not made by the list that it is given to.
var ErrCursor = errors.New("the cursor is not one of this list")
