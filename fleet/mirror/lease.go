package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// Lease is the temporary right to write to one engine (or to record revisions). Every write carries
// its Epoch: the database refuses a lower one, and the object records it.
type Lease struct {
	Name    string // "engine/<name>" or "reconciler"
	Holder  string
	Epoch   int64
	Expires time.Time
	Report  int64 // sequence number of the agent report that a write belongs to; 0: none
	// incarnation of the database that granted it, which may be restored or fail over; empty:
	// unknown
	Life string
}

// ReplicaBeat is a replica's heartbeat for its workers.
type ReplicaBeat struct {
	Replica   string   // as Lease.Holder
	Preparing int      // number of its sessions that have started and do not write yet
	Leases    []string // leases whose holders the replica requests
}

// Replicas are the replicas with running workers and the holders of leases.
type Replicas struct {
	Preparing map[string]int    // by replica with running workers
	Holders   map[string]string // by lease; held leases only
}

// State is the state of the mirror.
type State struct {
	Life      string // see Lease
	Applied   fleet.Revision
	Plan      string // hash of the latest recorded plan
	Seq       int64  // sequence number of the newest row
	Wanted    int64  // latest confirmation that a worker requested
	Confirmed int64  // latest confirmation by the loop
}
