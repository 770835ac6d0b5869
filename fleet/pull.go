package fleet

import (
	"cmp"
	"errors"
	"strconv"
	"time"
)

// Person is an account of the forge. Only the ID decides: a login may be given up and taken by a
// stranger.
type Person struct {
	ID    int64  `json:"id"`
	Login string `json:"login"` // as it is shown
}

// Permission is what a person may do in the config repo on the forge.
type Permission string

// Permissions, each with those before it.
const (
	PermissionNone  Permission = "none"
	PermissionRead  Permission = "read"
	PermissionWrite Permission = "write"
	PermissionAdmin Permission = "admin"
)

// PullState is how a pull request stands on the forge.
type PullState string

// States of pull requests.
const (
	PullOpen   PullState = "open"
	PullMerged PullState = "merged"
	PullClosed PullState = "closed" // without a merge
)

// Pull is one pull request as the forge tells of it. Title and logins are a stranger's words.
type Pull struct {
	Number int       `json:"number"`
	Title  string    `json:"title"`
	Author Person    `json:"author"`
	State  PullState `json:"state"`
	Draft  bool      `json:"draft,omitempty"`
	// its head lives in another repository, or that repository is gone
	Fork bool `json:"fork,omitempty"`
	// branch that it is to be merged into, without refs/heads/
	Base string   `json:"base"`
	Head Revision `json:"head"`
	// of a merged one: the commit that the branch has for it
	MergeCommit Revision  `json:"mergeCommit,omitempty"`
	URL         string    `json:"url"` // for people
	UpdatedAt   time.Time `json:"updatedAt"`
}

// Comment is one comment of a pull request.
type Comment struct {
	ID     int64
	Author Person
	Own    bool // written by the account that Argosy itself speaks with
	Edited bool // its text is no longer the one that was posted
	Body   string
	At     time.Time // when it was posted
}

// ReviewState is what a review says.
type ReviewState string

// States of reviews. What only comments decides nothing.
const (
	ReviewApproved  ReviewState = "approved"
	ReviewChanges   ReviewState = "changes"
	ReviewDismissed ReviewState = "dismissed"
	ReviewCommented ReviewState = "commented"
)

// Review is one review of a pull request, bound to the commit that was its head then.
type Review struct {
	Author Person
	State  ReviewState
	Head   Revision
	At     time.Time
}

// CheckState is how a check stands.
type CheckState string

// States of checks. Neutral lets the pull request pass and says why nothing was judged.
const (
	CheckPending CheckState = "pending"
	CheckSuccess CheckState = "success"
	CheckFailure CheckState = "failure"
	CheckNeutral CheckState = "neutral"
)

// Names of the checks.
const (
	CheckValidate = "argosy/validate"
	CheckPlan     = "argosy/plan"
	CheckOwners   = "argosy/owners"
)

// Check is one check of one commit: a check run where the forge has them, a commit status
// elsewhere.
type Check struct {
	Name        string     `json:"name"`
	State       CheckState `json:"state"`
	Title       string     `json:"title"`             // one line, at most 140 characters
	Summary     string     `json:"summary,omitempty"` // Markdown, at most 60,000 characters
	URL         string     `json:"url,omitempty"`     // where all of it can be read
	Annotations []Problem  `json:"annotations,omitempty"`
}

// Errors of a forge that a caller tells apart with errors.Is. Any other error means that nothing is
// known.
var (
	// ErrNoSuchPull says that the forge surely has no such pull request.
	ErrNoSuchPull = errors.New("the forge has no such pull request")
	// ErrNoSuchOwner says that the forge surely has no such account or team.
	ErrNoSuchOwner = errors.New("the forge has no such account or team")
	// ErrNoSuchComment says that the comment is surely gone.
	ErrNoSuchComment = errors.New("the comment is gone")
)

// ForgeBusy is an error that says when the forge may be asked again: a rate limit, a secondary
// limit, an outage that names its end.
type ForgeBusy struct {
	Until time.Time
	Err   error
}

func (e *ForgeBusy) Error() string {
	return e.Err.Error() + "; it may be asked again at " + e.Until.UTC().Format(time.RFC3339)
}

// Unwrap gives the forge's own words.
func (e *ForgeBusy) Unwrap() error { return e.Err }

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
	Kind   RecheckKind `json:"kind"`
	Number int         `json:"number,omitempty"` // of a pull request
	Head   Revision    `json:"head,omitempty"`   // of a merge group or of a head: which commit
	Ref    string      `json:"ref,omitempty"`    // of a merge group: the full name of its ref
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

// Delivery is one webhook delivery. The forge keeps its ID when it delivers again.
type Delivery struct {
	ID    string
	Event string
	Push  *Push // that it tells of; nil: none
}

// Clearance is somebody's word about one head of a pull request, given by a command.
type Clearance struct {
	By   Person    `json:"by"`
	Head Revision  `json:"head"`
	At   time.Time `json:"at"`
	// of approve-deletions: the Applications that were listed then; it lets no other go
	Deletions []ObjectKey `json:"deletions,omitempty"`
}

// MissedDelivery is a delivery that the forge has tried and that never arrived.
type MissedDelivery struct {
	ID   int64  // of the last try: what is asked for again
	GUID string // Delivery.ID of all of its tries
}

// Sighting is the first look at a head: what had been said by then was said about another head, or
// about one that its writer had guessed.
type Sighting struct {
	Head    Revision  `json:"head"`
	At      time.Time `json:"at"`
	Comment int64     `json:"comment,omitempty"` // id of the newest comment by then
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
	Held   *Clearance `json:"held,omitempty"` // by /argosy hold
	// by /argosy ok-to-test: this head of a fork may be planned
	Tested *Clearance `json:"tested,omitempty"`
	// by /argosy approve-deletions: beyond the guards
	Cleared  *Clearance  `json:"cleared,omitempty"`
	Consents []Clearance `json:"consents,omitempty"` // by /argosy approve, of owners
	// head that an owner of everything that it touches has approved
	Consented Revision `json:"consented,omitempty"`
	// Shown is the files below fleet/ and tenants/ that the head ShownAt has otherwise than the
	// commit where it parted from the branch, also where the branch has the same by now: path to
	// blob, "" if it removes the file. Of those only the files whose own owners have approved that
	// head. Nothing else that its merge writes was agreed to.
	Shown   map[string]string `json:"shown,omitempty"`
	ShownAt Revision          `json:"shownAt,omitempty"`
	// answers to the last commands, shown in the comment; at most 5
	Replies []string `json:"replies,omitempty"`
	Verdict string   `json:"verdict,omitempty"` // one line
	// that its plan touches; "" is the platform
	Tenants []TenantName `json:"tenants,omitempty"`
	// its last plan was made while the branch had commits that waited for an approval
	Behind bool `json:"behind,omitempty"`
	// other open pull requests that change the same files, as they were last told of it
	Meets []int `json:"meets,omitempty"`
	// since when its result is followed after the merge
	FollowedAt *time.Time `json:"followedAt,omitempty"`
	Settled    bool       `json:"settled,omitempty"` // nothing is left to be done for it
}

// Effect is what a reviewed plan does to one object.
type Effect struct {
	Key         ObjectKey       `json:"key"`
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment,omitempty"`
	Deployment  DeploymentName  `json:"deployment,omitempty"`
	Deletes     bool            `json:"deletes,omitempty"`
	Hash        string          `json:"hash,omitempty"` // of the manifest that it is to have
}

// ReviewedPlan is the plan that the reviewers of a pull request saw.
type ReviewedPlan struct {
	Number  int      `json:"number"`
	Base    Revision `json:"base"` // applied revision that it was computed from
	Head    Revision `json:"head"`
	Hash    string   `json:"hash"`
	Report  []byte   `json:"-"` // the plan as JSON
	Effects []Effect `json:"effects"`
	// paths of declarations that it changes; two open pull requests with one in common collide
	Touches []string  `json:"touches"`
	At      time.Time `json:"at"`
}

// ReviewedDeletion is a deletion that the reviewers of a merged pull request saw.
type ReviewedDeletion struct {
	Key      ObjectKey
	Approved bool   // somebody who may has approved it beyond the guards
	By       string // who
	Pull     int
}

// Agreed is the files of the head that their owners have agreed to, as Shown; nil when none was.
func (r PullRecord) Agreed(head Revision) map[string]string {
	// the version before this one knew of Consented alone
	if at := cmp.Or(r.ShownAt, r.Consented); at == "" || at != head {
		return nil
	}
	return r.Shown
}
