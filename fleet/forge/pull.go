package forge

import (
	"cmp"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Outcome is how one object stands that a pull request was to change: its row in the mirror, and
// what its engine last said of it.
type Outcome struct {
	Key fleet.ObjectKey `json:"key"`
	// the row is there; false: the object is proven gone, or never came
	Present bool `json:"present"`
	// the row is marked for removal, and its object is not proven gone yet
	Unwanted bool `json:"absent,omitempty"`
	Held     bool `json:"held,omitempty"` // its removal waits for an approval

	// of the config repo: the commit that last changed the row
	Revision fleet.Revision `json:"revision,omitempty"`
	Hash     string         `json:"hash,omitempty"` // of the manifest that it is to have

	Apply        mirror.ApplyState `json:"apply,omitempty"`
	ApplyMessage string            `json:"applyMessage,omitempty"` // of a failure

	Sync    mirror.SyncState   `json:"sync,omitempty"` // of an Application, as the next four
	Health  mirror.HealthState `json:"health,omitempty"`
	Message string             `json:"message,omitempty"` // of conditions or health
	// of the application's repository
	SyncedRevision string `json:"syncedRevision,omitempty"`
	// Sync and Health were said before the engine took the object as it is now
	Stale bool `json:"stale,omitempty"`
}

// Collision is another open pull request that changes files which this one changes too.
type Collision struct {
	Number  int      `json:"number"`
	Touches []string `json:"touches"` // the files in common, sorted
}

// RecheckKind says what a delivery, a timer or a sweep asks to look at.
type RecheckKind string

// Kinds of looks.
const (
	RecheckBranch RecheckKind = "branch" // of the config repo, whose head is applied
	RecheckPull   RecheckKind = "pull"
	// the pull requests with this head: report their checks again if they do not stand as they were
	// reported
	RecheckHead  RecheckKind = "head"
	RecheckGroup RecheckKind = "group" // a commit of the merge queue
	// every open pull request; after an installation has changed, and now and then
	RecheckAll RecheckKind = "sweep"
)

// Look says "look at this", and nothing of what there is to see.
type Recheck struct {
	Kind   RecheckKind    `json:"kind"`
	Number int            `json:"number,omitempty"` // of a pull request
	Head   fleet.Revision `json:"head,omitempty"`   // of a merge group or of a head: which commit
	Ref    string         `json:"ref,omitempty"`    // of a merge group: the full name of its ref
}

// Key is the same for looks at the same thing: of many, one is enough.
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

// Clearance is somebody's word about one head of a pull request, given by a command.
type Clearance struct {
	By   Person         `json:"by"`
	Head fleet.Revision `json:"head"`
	At   time.Time      `json:"at"`
	// of approve-deletions: the Applications that were listed then; it lets no other go
	Deletions []fleet.ObjectKey `json:"deletions,omitempty"`
}

// Sighting is the first look at a head: what had been said by then was said about another head, or
// about one that its writer had guessed.
type Sighting struct {
	Head    fleet.Revision `json:"head"`
	At      time.Time      `json:"at"`
	Comment int64          `json:"comment,omitempty"` // id of the newest comment by then
	// when the newest review of it by then was given, by the forge's clock
	Review time.Time `json:"review,omitzero"`
}

// Before says whether a review of the head was there at its first sighting. Of heads that an
// earlier version saw first that is not known.
func (s *Sighting) Before(r Review) bool {
	return s != nil && s.Head == r.Head && !r.At.After(s.Review)
}

// PullRecord is what Argosy keeps of a pull request.
type PullRecord struct {
	Pull
	Seen *Sighting `json:"seen,omitempty"` // of Head
	// id of the newest comment that was looked at for commands
	Commented int64  `json:"commented,omitempty"`
	Sticky    int64  `json:"sticky,omitempty"` // id of our own comment
	Said      string `json:"said,omitempty"`   // hash of what it says
	// hash of the checks as they were last reported, with their commit
	Marked string     `json:"marked,omitempty"`
	Held   *Clearance `json:"held,omitempty"` // by /argosy lock
	// by /argosy ok-to-test: this head of a fork may be planned
	Tested *Clearance `json:"tested,omitempty"`
	// by /argosy approve-deletions: beyond the guards
	Cleared  *Clearance  `json:"cleared,omitempty"`
	Consents []Clearance `json:"consents,omitempty"` // by /argosy approve, of owners
	// head that an owner of everything that it touches has approved
	Consented fleet.Revision `json:"consented,omitempty"`
	// Shown is the files below fleet/ and tenants/ that the head ShownAt has otherwise than the
	// commit where it parted from the branch, also where the branch has the same by now: path to
	// blob, "" if it removes the file. Of those only the files whose own owners have approved that
	// head. Nothing else that its merge writes was agreed to.
	Shown   map[string]string `json:"shown,omitempty"`
	ShownAt fleet.Revision    `json:"shownAt,omitempty"`
	// answers to the last commands, shown in the comment; at most 5
	Replies []string `json:"replies,omitempty"`
	Verdict string   `json:"verdict,omitempty"` // one line
	// that its plan touches; "" is the platform
	Tenants []fleet.TenantName `json:"tenants,omitempty"`
	// its last plan was made while the branch had commits that waited for an approval
	Behind bool `json:"behind,omitempty"`
	// other open pull requests that change the same files, as they were last told of it
	Meets []int `json:"meets,omitempty"`
	// since when its result is followed after the merge
	FollowedAt *time.Time `json:"followedAt,omitempty"`
	Settled    bool       `json:"settled,omitempty"` // nothing is left to be done for it
}

// ReviewedPlan is the plan that the reviewers of a pull request saw.
type ReviewedPlan struct {
	Number  int             `json:"number"`
	Base    fleet.Revision  `json:"base"` // applied revision that it was computed from
	Head    fleet.Revision  `json:"head"`
	Hash    string          `json:"hash"`
	Report  []byte          `json:"-"` // the plan as JSON
	Effects []mirror.Effect `json:"effects"`
	// paths of declarations that it changes; two open pull requests with one in common collide
	Touches []string  `json:"touches"`
	At      time.Time `json:"at"`
}

// Agreed is the files of the head that their owners have agreed to, as Shown; nil when none was.
func (r PullRecord) Agreed(head fleet.Revision) map[string]string {
	// the version before this one knew of Consented alone
	if at := cmp.Or(r.ShownAt, r.Consented); at == "" || at != head {
		return nil
	}
	return r.Shown
}
