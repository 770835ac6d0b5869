package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// Lease is the right to act on one engine (or to record revisions), for a while. Every write
// carries its Epoch; the database refuses a lower one and the object shows it.
type Lease struct {
	Name    string // "engine/<name>" or "reconciler"
	Holder  string
	Epoch   int64
	Expires time.Time
	Report  int64 // of an agent, that a write under the lease is a part of; 0: of none
	// incarnation of the database that gave it, which may be restored or fail over; empty: not
	// known
	Life string
}

// ReplicaBeat is what a replica says of its workers.
type ReplicaBeat struct {
	Replica   string   // as Lease.Holder
	Preparing int      // its sessions that have begun and do not write yet
	Leases    []string // whose holders it asks for
}

// Replicas is which replicas work, and who holds what.
type Replicas struct {
	Preparing map[string]int    // by replica whose workers run
	Holders   map[string]string // by lease; without those that nobody holds
}

// State is where the mirror stands.
type State struct {
	Life      string // see Lease
	Applied   fleet.Revision
	Plan      string // hash of the plan that was recorded last
	Seq       int64  // the newest row's number
	Wanted    int64  // the latest confirmation that a worker asked for
	Confirmed int64  // the latest that the loop gave
}
