// Package forge holds what the Git host reports of the config repo, and what is kept of its pull
// requests.
package forge

import (
	"errors"
	"regexp"
	"time"

	"argosy.dev/argosy/fleet"
)

// Account is what the Git host has under a name such as "alice" or "acme/leads".
type Account struct {
	ID     int64    // of the account, or of the team
	People []Person // the account itself, or the team's members
}

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
	Base string         `json:"base"`
	Head fleet.Revision `json:"head"`
	// of a merged one: the commit that the branch has for it
	MergeCommit fleet.Revision `json:"mergeCommit,omitempty"`
	URL         string         `json:"url"` // for people
	UpdatedAt   time.Time      `json:"updatedAt"`
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
	Head   fleet.Revision
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
	Name        string          `json:"name"`
	State       CheckState      `json:"state"`
	Title       string          `json:"title"`             // one line, at most 140 characters
	Summary     string          `json:"summary,omitempty"` // Markdown, at most 60,000 characters
	URL         string          `json:"url,omitempty"`     // where all of it can be read
	Annotations []fleet.Problem `json:"annotations,omitempty"`
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

// Busy is an error that says when the forge may be asked again: a rate limit, a secondary
// limit, an outage that names its end.
type Busy struct {
	Until time.Time
	Err   error
}

func (e *Busy) Error() string {
	return e.Err.Error() + "; it may be asked again at " + e.Until.UTC().Format(time.RFC3339)
}

// Unwrap gives the forge's own words.
func (e *Busy) Unwrap() error { return e.Err }

// Delivery is one webhook delivery. The forge keeps its ID when it delivers again.
type Delivery struct {
	ID     string
	Event  string
	Push   *Push  // that it describes; nil: none
	Notice string // for every replica, sent in the transaction that stores the delivery; empty: none
}

// The limits of what a delivery's headers may name.
var (
	deliveryID    = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)
	deliveryEvent = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// Validate checks ID and Event.
func (d Delivery) Validate() error {
	if !deliveryID.MatchString(d.ID) || !deliveryEvent.MatchString(d.Event) {
		return errors.New("delivery: its id has 1 to 128 letters, digits and dashes, its event 1 to 64 " +
			"small letters, digits and underscores")
	}
	return nil
}

// MissedDelivery is a delivery that the forge has tried and that never arrived.
type MissedDelivery struct {
	ID   int64  // of the last try: what is asked for again
	GUID string // Delivery.ID of all of its tries
}

// Push is one push to the config repo's branch, as a signed delivery of the Git host told of it.
type Push struct {
	Before fleet.Revision
	After  fleet.Revision
	By     Person
	At     time.Time // when it was delivered
}
