package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// NotifyMessage is one message: the events of a channel that are due together.
type NotifyMessage struct {
	Tenant   fleet.TenantName // of the channel
	Channel  string
	ID       string // the same at each attempt
	Events   []Notification
	More     int // further events that are not in Events
	Attempts int // this one included
	At       time.Time
}

// NotifyOutcome is what became of an attempt to send a message.
type NotifyOutcome struct {
	State  NotificationState // Sent, Failed, or Pending: another attempt follows
	Answer string            // of the receiver, or why it failed
	Again  time.Duration     // of Pending: until the next attempt
}
