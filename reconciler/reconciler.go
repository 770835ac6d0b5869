// Package reconciler is the loop that turns commits into rows, and the workers that turn rows into
// objects on engines.
//
//	Loop     one per fleet (a lease elects it): fetch, decode, plan, record
//	Worker   one per engine (a lease each): rows after the cursor -> engine; what the engine shows -> store
//	Manager  keeps a Worker running for each engine that the store knows
//
// Rules:
//   - events only say "look": a webhook, a timer, a NOTIFY wake a loop, and the loop reads the truth anew;
//   - absence is proven: any error, partial read or older state keeps what stands;
//   - nothing here imports an adapter: the interfaces below are what the loop and the workers need, and cmd wires them;
//   - no call to an engine or to Git happens inside a database transaction.
package reconciler

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Head is a commit of the config repo's branch.
type Head struct {
	Revision fleet.Revision
	Author   string // name and address as the commit says; never used to decide
	Subject  string
	At       time.Time
}

// Relation is how a head stands to the revision that is applied.
type Relation string

// Relations. Everything but Same and Descendant waits for an approval.
const (
	RelationSame       Relation = "same"
	RelationDescendant Relation = "descendant"
	RelationOlder      Relation = "older"
	RelationRewritten  Relation = "rewritten"
	RelationUnknown    Relation = "unknown" // the applied commit is no longer to be found
)

// File is one path of the config repo that differs from the base.
type File struct {
	Path      string
	Blob      string
	Bytes     []byte
	Irregular string // why it is no plain file: "symlink", "submodule"
	Size      int64  // of a file that is too large to be read; Bytes is empty then
	Removed   bool

	// Of fleet/, tenants/ or a tenant's folder, with a slash at the end of Path; Blob is the
	// folder's own id.
	Unreadable string // why nothing of it can be read: what was applied of it stays
	// it is readable again, and every file that it has is visited, so what is not visited is gone
	Whole bool
}

// Source is the config repo.
type Source interface {
	// Fetch brings the branch's head into the mirror.
	Fetch(ctx context.Context) (Head, error)
	// Relation says how head stands to applied.
	Relation(ctx context.Context, applied, head fleet.Revision) (Relation, error)
	// Changed calls visit for every file below fleet/ and tenants/ that differs; an empty base
	// means all of them (the cold start). unreadable are folders that could not be read so far,
	// with the id that each had then: they are read as a whole once they have another one. An empty
	// id is none.
	Changed(ctx context.Context, base, head fleet.Revision, unreadable map[string]string,
		visit func(File) error) error
	// Bytes reads one blob again, to find the line of a problem.
	Bytes(ctx context.Context, blob string) ([]byte, error)
}

// Decoder turns bytes into declarations. Pure.
type Decoder interface {
	// Decode reports false for a file that is none of ours.
	Decode(f File) (catalog.Input, bool)
	// Locate finds the line and column of a field; 0, 0 when it is not there.
	Locate(bytes []byte, field string) (line, column int)
}
