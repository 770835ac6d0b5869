package notify

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Delivery is one message for one channel, with all that is needed to send it.
type Delivery struct {
	Channel fleet.Channel
	Secret  fleet.Secret // of the channel
	// Fleet is what the platform allows; nil: nothing
	Fleet *fleet.FleetNotifications
	SMTP  fleet.Secret // of the Fleet's SMTP server
	// Public is the address of the page, or ""
	Public string
	// MessageID is the same at each attempt: a receiver drops a message that it has already
	MessageID string
	Events    []mirror.Notification
	More      int // further events of the message that are not in Events
	At        time.Time
}

// CommitDelivery is the report of one commit, with all that is needed to write it.
type CommitDelivery struct {
	Settings fleet.CommitStatuses
	Secret   fleet.Secret // of the settings
	// Fleet is what the platform allows; nil: nothing
	Fleet *fleet.FleetNotifications
	// Public is the address of the page, or ""
	Public string
	Report mirror.CommitReport
}

// Refused is an error that another attempt alone does not end: the receiver or the platform refuses
// the message.
type Refused struct{ Why string }

func (e *Refused) Error() string { return e.Why }

// Busy is the answer of a receiver that wants a pause.
type Busy struct {
	Why   string
	After time.Duration
}

func (e *Busy) Error() string { return e.Why }
