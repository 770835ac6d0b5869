// Package forge holds what the Git host reports of the config repo, and what is kept of its pull
// requests.
package forge

import (
	"errors"
	"regexp"
	"time"

	"argosy.dev/argosy/fleet"
)

// Account is the account or team behind a name such as "alice" or "acme/leads" on the Git host.
type Account struct {
	ID     int64    // of the account, or of the team
	People []Person // the account itself, or the team's members
}

// Person is an account of the Git host. Only the ID decides: a login may be released and taken by
// another account.
type Person struct {
	ID    int64  `json:"id"`
	Login string `json:"login"` // for display
}

// Permission is the permission of a person in the config repo on the Git host.
type Permission string

// Permissions, each including the ones before it.
const (
	PermissionNone  Permission = "none"
	PermissionRead  Permission = "read"
	PermissionWrite Permission = "write"
	PermissionAdmin Permission = "admin"
)

// PullState is the state of a pull request on the Git host.
type PullState string

// States of pull requests.
const (
	PullOpen   PullState = "open"
	PullMerged PullState = "merged"
	PullClosed PullState = "closed" // without a merge
)

// Pull is one pull request as the Git host reports it. Title and logins are untrusted text.
type Pull struct {
	Number int       `json:"number"`
	Title  string    `json:"title"`
	Author Person    `json:"author"`
	State  PullState `json:"state"`
	Draft  bool      `json:"draft,omitempty"`
	// its head is in another repository, or that repository is deleted
	Fork bool `json:"fork,omitempty"`
	// target branch, without refs/heads/
	Base string         `json:"base"`
	Head fleet.Revision `json:"head"`
	// of a merged one: its commit on the branch
	MergeCommit fleet.Revision `json:"mergeCommit,omitempty"`
	URL         string         `json:"url"` // for people
	UpdatedAt   time.Time      `json:"updatedAt"`
}

// Comment is one comment of a pull request.
type Comment struct {
	ID     int64
	Author Person
	Own    bool // written by Argosy's own account
	Edited bool // its text was changed after it was posted
	Body   string
	At     time.Time // when it was posted
}

// ReviewState is the verdict of a review.
type ReviewState string

// States of reviews. A review that only comments decides nothing.
const (
	ReviewApproved  ReviewState = "approved"
	ReviewChanges   ReviewState = "changes"
	ReviewDismissed ReviewState = "dismissed"
	ReviewCommented ReviewState = "commented"
)

// Review is one review of a pull request, bound to the head at that time.
type Review struct {
	Author Person
	State  ReviewState
	Head   fleet.Revision
	At     time.Time
}

// CheckState is the state of a check.
type CheckState string

// States of checks. A neutral check does not block the pull request; its summary explains why
// nothing was evaluated.
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

// Check is one check of one commit: a check run if the Git host has them, otherwise a commit
// status.
type Check struct {
	Name        string          `json:"name"`
	State       CheckState      `json:"state"`
	Title       string          `json:"title"`             // one line, at most 140 characters
	Summary     string          `json:"summary,omitempty"` // Markdown, at most 60,000 characters
	URL         string          `json:"url,omitempty"`     // of the full report
	Annotations []fleet.Problem `json:"annotations,omitempty"`
}

// Errors of a Git host that callers distinguish with errors.Is. After any other error, the state is
// unknown.
var (
	// ErrNoSuchPull means that the Git host has no such pull request.
	ErrNoSuchPull = errors.New("the forge has no such pull request")
	// ErrNoSuchOwner means that the Git host has no such account or team.
	ErrNoSuchOwner = errors.New("the forge has no such account or team")
	// ErrNoSuchComment means that the comment is deleted.
	ErrNoSuchComment = errors.New("the comment is deleted")
)

// Busy is an error with the time of the next allowed request: a rate limit, a secondary limit, or
// an outage with a known end.
type Busy struct {
	Until time.Time
	Err   error
}

func (e *Busy) Error() string {
	return e.Err.Error() + "; it may be asked again at " + e.Until.UTC().Format(time.RFC3339)
}

// Unwrap returns the Git host's error.
func (e *Busy) Unwrap() error { return e.Err }

// Delivery is one webhook delivery. A redelivery has the same ID.
type Delivery struct {
	ID    string
	Event string
	Push  *Push // push that it reports; nil: none
	// for every replica, sent in the transaction that stores the delivery; empty: none
	Notice string
}

// The limits of what a delivery's headers may name.
var (
	deliveryID    = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)
	deliveryEvent = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// Validate checks ID and Event.
func (d Delivery) Validate() error {
	if !deliveryID.MatchString(d.ID) || !deliveryEvent.MatchString(d.Event) {
		return errors.New(
			"delivery: its id has 1 to 128 letters, digits and dashes, its event 1 to 64 " +
				"small letters, digits and underscores")
	}
	return nil
}

// MissedDelivery is a delivery that the Git host has tried and that never arrived.
type MissedDelivery struct {
	ID   int64  // of the last attempt, for the redelivery
	GUID string // Delivery.ID of all of its attempts
}

// Push is one push to the config repo's branch, from a signed delivery of the Git host.
type Push struct {
	Before fleet.Revision
	After  fleet.Revision
	By     Person
	At     time.Time // of the delivery
}
