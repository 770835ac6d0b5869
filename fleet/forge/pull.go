package forge

import (
	"cmp"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Outcome is the state of one object that a pull request was to change: its row in the mirror and
// the latest report of its engine.
type Outcome struct {
	Key fleet.ObjectKey `json:"key"`
	// the row exists; false: the object is proven deleted, or never existed
	Present bool `json:"present"`
	// the row is marked for deletion, and its object is not proven deleted yet
	Unwanted bool `json:"absent,omitempty"`
	Held     bool `json:"held,omitempty"` // its deletion waits for an approval

	// of the config repo: the commit that last changed the row
	Revision fleet.Revision `json:"revision,omitempty"`
	Hash     string         `json:"hash,omitempty"` // of the desired manifest

	Apply        mirror.ApplyState `json:"apply,omitempty"`
	ApplyMessage string            `json:"applyMessage,omitempty"` // of a failure

	Sync    mirror.SyncState   `json:"sync,omitempty"` // of an Application, like the next four
	Health  mirror.HealthState `json:"health,omitempty"`
	Message string             `json:"message,omitempty"` // of conditions or health
	// of the application's repository
	SyncedRevision string `json:"syncedRevision,omitempty"`
	// Sync and Health are older than the object on the engine
	Stale bool `json:"stale,omitempty"`
	// when the engine or the cluster was last seen, while it is silent: Sync and Health are Unknown
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
	Rollout    Rolling    // of its deployment, while it has not ended
}

// Rolling is what the rollout of a deployment does with one of its Applications.
type Rolling struct {
	Hash    string              // of the manifest that the Application gets
	State   mirror.RolloutState // of the rollout; empty: there is none
	Message string              // reason of State, and next step
	Wave    int                 // of the Application: place in Waves
	Waves   []mirror.RolloutWave
}

// Collision is another open pull request that changes some of the same files.
type Collision struct {
	Number  int      `json:"number"`
	Touches []string `json:"touches"` // common files, sorted
}

// RecheckKind is the kind of a review job that a delivery, a timer or a sweep requests.
type RecheckKind string

// Kinds of review jobs.
const (
	RecheckBranch RecheckKind = "branch" // the config repo's branch, whose head is applied
	RecheckPull   RecheckKind = "pull"
	// the pull requests with this head: report their checks again if the Git host shows other
	// results
	RecheckHead  RecheckKind = "head"
	RecheckGroup RecheckKind = "group" // a commit of the merge queue
	// every open pull request; after an installation has changed, and periodically
	RecheckAll RecheckKind = "sweep"
)

// Recheck triggers a review job. It carries no state of its subject.
type Recheck struct {
	Kind   RecheckKind    `json:"kind"`
	Number int            `json:"number,omitempty"` // of a pull request
	Head   fleet.Revision `json:"head,omitempty"`   // commit of a merge group, or head
	Ref    string         `json:"ref,omitempty"`    // of a merge group: the full name of its ref
}

// Key is equal for jobs about the same subject: one of several is enough.
func (l Recheck) Key() string {
	switch l.Kind {
	case RecheckPull:
		return "pull/" + strconv.Itoa(l.Number)
	case RecheckHead, RecheckGroup:
		return string(l.Kind) + "/" + string(l.Head)
	default:
		return string(l.Kind)
	}
}

// Clearance is a command about one head of a pull request, with its author.
type Clearance struct {
	By   Person         `json:"by"`
	Head fleet.Revision `json:"head"`
	At   time.Time      `json:"at"`
	// of approve-deletions: the Applications listed at that time; it releases no other
	Deletions []fleet.ObjectKey `json:"deletions,omitempty"`
}

// Sighting is the first review of a head. Comments and reviews before it were about another head,
// or their author had guessed the commit.
type Sighting struct {
	Head    fleet.Revision `json:"head"`
	At      time.Time      `json:"at"`
	Comment int64          `json:"comment,omitempty"` // id of the newest comment at that time
	// time of its newest review at that time, by the Git host's clock
	Review time.Time `json:"review,omitzero"`
}

// Before reports whether a review of the head existed at its first sighting. It is unknown for
// heads that an earlier version saw first.
func (s *Sighting) Before(r Review) bool {
	return s != nil && s.Head == r.Head && !r.At.After(s.Review)
}

// PullRecord is the stored state of a pull request.
type PullRecord struct {
	Pull
	Seen *Sighting `json:"seen,omitempty"` // of Head
	// id of the newest comment that was searched for commands
	Commented   int64  `json:"commented,omitempty"`
	Sticky      int64  `json:"sticky,omitempty"` // id of our own comment
	CommentHash string `json:"said,omitempty"`   // hash of that comment
	// hash of the last reported checks, with their commit
	Marked string     `json:"marked,omitempty"`
	Held   *Clearance `json:"held,omitempty"` // by /argosy lock
	// by /argosy ok-to-test: this head of a fork may be planned
	Tested *Clearance `json:"tested,omitempty"`
	// by /argosy approve-deletions: beyond the guards
	Cleared  *Clearance  `json:"cleared,omitempty"`
	Consents []Clearance `json:"consents,omitempty"` // by /argosy approve, of owners
	// head that an owner of everything it changes has approved
	Consented fleet.Revision `json:"consented,omitempty"`
	// Shown are the files below fleet/ and tenants/ that differ between the head ShownAt and its
	// merge base, even where the branch now has the same content: path to blob, "" if the head
	// removes the file. It contains only files whose own owners have approved that head. Nothing
	// else that its merge writes was approved.
	Shown   map[string]string `json:"shown,omitempty"`
	ShownAt fleet.Revision    `json:"shownAt,omitempty"`
	// answers to the latest commands, shown in the comment; at most 5
	Replies []string `json:"replies,omitempty"`
	Verdict string   `json:"verdict,omitempty"` // one line
	// tenants that its plan changes; "" is the platform
	Tenants []fleet.TenantName `json:"tenants,omitempty"`
	// its last plan was computed while commits of the branch waited for an approval
	Behind bool `json:"behind,omitempty"`
	// other open pull requests that change the same files, as last reported on it
	Meets []int `json:"meets,omitempty"`
	// when it was merged, while its result is still reported
	FollowedAt *time.Time `json:"followedAt,omitempty"`
	Finished   bool       `json:"settled,omitempty"` // no work is left for it
}

// ReviewedPlan is the plan that was shown to the reviewers of a pull request.
type ReviewedPlan struct {
	Number  int             `json:"number"`
	Base    fleet.Revision  `json:"base"` // applied revision that it is based on
	Head    fleet.Revision  `json:"head"`
	Hash    string          `json:"hash"`
	Report  []byte          `json:"-"` // the plan as JSON
	Effects []mirror.Effect `json:"effects"`
	// paths of changed declarations; two open pull requests with a common path collide
	Touches []string  `json:"touches"`
	At      time.Time `json:"at"`
}

// Agreed returns the files of the head that their owners have approved, as Shown; nil if none was.
func (r PullRecord) Agreed(head fleet.Revision) map[string]string {
	// the previous version set Consented alone
	if at := cmp.Or(r.ShownAt, r.Consented); at == "" || at != head {
		return nil
	}
	return r.Shown
}
