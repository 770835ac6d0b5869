package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// Incident is a state that notifications are about, from its beginning until its end is sent.
type Incident struct {
	Trigger fleet.Trigger
	Tenant  fleet.TenantName // "": of the platform
	// deployment@environment, an environment, an engine, a deployment, or why a change is held
	Subject string
	Since   time.Time
	// OverSince is when the state ended; nil: it lasts, or it is not known.
	OverSince *time.Time
	// Sent are the channels that got a message: "tenant/<channel>", or "fleet/<channel>" of the
	// platform.
	Sent []string
}

// NotifyFacts is what decides about notifications, read in one transaction.
type NotifyFacts struct {
	Now time.Time // by the clock of the store, as all times here
	// those whose health is Degraded or whose sync failed, and those with an incident
	Applications []NotifyApplication
	Silent       []SilentEngine
	Unreachable  []UnreachableEnvironment
	Rollouts     []Rollout // that have not ended
	Holds        []Hold
	Open         []Incident
}

// NotifyApplication is the state of an Application.
type NotifyApplication struct {
	ID         fleet.ApplicationID
	Engine     fleet.EngineName
	Sync       SyncState
	Health     HealthState
	Phase      string // of the last sync
	Message    string
	ObservedAt time.Time      // when the state last changed
	Revision   fleet.Revision // of the config repo
	Synced     string         // commit of the source
	// Unknown is whether its engine is silent or its environment unreachable: its state is an old
	// one.
	Unknown bool
}

// SilentEngine is an engine that is not followed.
type SilentEngine struct {
	Engine       fleet.EngineName
	Since        time.Time
	Message      string
	Applications map[fleet.TenantName]int // on it
}

// UnreachableEnvironment is an environment whose cluster its engine cannot read.
type UnreachableEnvironment struct {
	ID           fleet.EnvironmentID
	Engine       fleet.EngineName
	Since        time.Time
	Message      string
	Applications int
}

// NotificationState is how far a notification has come.
type NotificationState string

// States of a notification. The last three end it.
const (
	NotificationPending NotificationState = "Pending" // waits for its time or its channel
	NotificationSending NotificationState = "Sending" // part of a message that is on its way
	NotificationSent    NotificationState = "Sent"
	NotificationFailed  NotificationState = "Failed"  // given up
	NotificationDropped NotificationState = "Dropped" // its channel is no longer declared
)

// Ended reports whether nothing happens any more.
func (s NotificationState) Ended() bool {
	return s != NotificationPending && s != NotificationSending
}

// Notification is one event for one channel.
type Notification struct {
	ID           string           `json:"id"`
	Tenant       fleet.TenantName `json:"tenant,omitempty"` // of the channel; "": the platform's
	Channel      string           `json:"channel"`
	Subscription string           `json:"subscription,omitempty"`
	Trigger      fleet.Trigger    `json:"trigger" enum:"Degraded,HealthyAgain,SyncFailed,RolloutHalted,Held,EngineSilent,EnvironmentUnreachable,Test"`
	Over         bool             `json:"over,omitempty"` // the state has ended

	// what it is about
	About       fleet.TenantName      `json:"about,omitempty"` // a tenant
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Engine      fleet.EngineName      `json:"engine,omitempty"`
	// Applications behind a silent engine or in an unreachable environment
	Applications int            `json:"applications,omitempty"`
	Message      string         `json:"message,omitempty"` // as Argo CD has it; untrusted
	Since        time.Time      `json:"since"`             // of the state
	Commit       string         `json:"commit,omitempty"`  // of the source
	Revision     fleet.Revision `json:"revision,omitempty"`
	At           time.Time      `json:"at"`  // when it was decided
	Due          time.Time      `json:"due"` // not sent before

	State     NotificationState `json:"state" enum:"Pending,Sending,Sent,Failed,Dropped"`
	Attempts  int               `json:"attempts"`
	Answer    string            `json:"answer,omitempty"` // of the receiver, or why it failed
	MessageID string            `json:"messageID,omitempty"`
	EndedAt   *time.Time        `json:"endedAt,omitempty"`
}

// NotifyStep is what the leader records of a decision, in one transaction.
type NotifyStep struct {
	Put  []Incident
	Drop []Incident
	Send []Notification
}

// Empty reports whether the step changes nothing.
func (s NotifyStep) Empty() bool { return len(s.Put)+len(s.Drop)+len(s.Send) == 0 }
