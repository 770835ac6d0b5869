// Package wire defines the types of requests and answers between the API and its clients that are
// no domain types.
//
// Rules of this package: plain values, no behaviour beyond their text; no type holds a secret but
// CreatedToken and CreatedAgentToken, which are written once, and AgentTokenRequest, in which a
// person may supply one.
package wire

import (
	"net/http"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Base is the path prefix of the API.
const Base = "/api/v1"

// MaxPage is the maximum number of items of one page.
const MaxPage = 1000

// List is one page of a list.
type List[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Give it as 'after' to read on; absent on the last page"`
}

// Refusal is the body of every error (RFC 9457).
type Refusal struct {
	Type    string   `json:"type" doc:"A stable URI of what went wrong" example:"urn:argosy:not-found"`
	Title   string   `json:"title" example:"Not Found"`
	Status  int      `json:"status" example:"404"`
	Detail  string   `json:"detail" doc:"What went wrong, for people"`
	Subject string   `json:"subject,omitempty" doc:"What it is about" example:"environment acme/prod-eu"`
	Next    string   `json:"next,omitempty" doc:"What to do now"`
	Errors  []string `json:"errors,omitempty" doc:"Each thing that is wrong with the request"`
}

// Error returns the refusal as one line: subject, detail and next step.
func (r *Refusal) Error() string {
	text := r.Detail
	if r.Subject != "" {
		text = r.Subject + ": " + text
	}
	for _, e := range r.Errors {
		text += "; " + e
	}
	if r.Next != "" {
		text += "; " + r.Next
	}
	return text
}

// GetStatus returns the HTTP status.
func (r *Refusal) GetStatus() int { return r.Status }

// ContentType returns that of RFC 9457.
func (r *Refusal) ContentType(string) string { return "application/problem+json" }

// NotAllowed reports whether the caller lacks the right, rather than the request being invalid.
func (r *Refusal) NotAllowed() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// Identity is a token's identity.
type Identity struct {
	Subject   string           `json:"subject" example:"token:acme/ci"`
	Tenant    fleet.TenantName `json:"tenant,omitempty" doc:"Absent: the platform, or with unscoped none"`
	Role      view.Role        `json:"role,omitempty" enum:"read,write"`
	ExpiresAt *time.Time       `json:"expiresAt,omitempty"`
	Version   string           `json:"version" doc:"Of the control plane"`
	Session   string           `json:"session,omitempty" doc:"The ID of a person's session"`
	Groups    []string         `json:"groups,omitempty" doc:"Of a person, as the identity provider names them"`
	Roles     []access.Grant   `json:"roles,omitempty" doc:"Of a person, with the entry that gives each one"`
	Unscoped  string           `json:"unscoped,omitempty" doc:"Why requests of this person without a tenant are refused"`
}

// TenantHeader chooses the tenant of a person's request.
const TenantHeader = "Argosy-Tenant"

// SignInRequest begins the sign-in of a command line.
type SignInRequest struct {
	Provider string `json:"provider" minLength:"1" maxLength:"63" doc:"One of GET /sign-in"`
}

// SignInPoll asks whether the code is confirmed.
type SignInPoll struct {
	Provider string `json:"provider" minLength:"1" maxLength:"63"`
	Code     string `json:"code" minLength:"1" maxLength:"4096" doc:"The code of the answer, not the one that a person enters"`
}

// SignedIn is the result of a sign-in; without a session it is not confirmed yet.
type SignedIn struct {
	Session   *view.Session `json:"session,omitempty"`
	Plaintext string        `json:"plaintext,omitempty" doc:"The secret of the session: a bearer token"`
	SlowDown  bool          `json:"slowDown,omitempty" doc:"Poll less often"`
}

// Answer is the answer to "may this person do that?".
type Answer struct {
	Subject string `json:"subject" doc:"Who was asked about"`
	Verb    string `json:"verb"`
	Thing   string `json:"thing"`
	access.Decision
	Line int `json:"line,omitempty" doc:"Of the entry in the file that grants it"`
}

// ApproveRequest requests the release of one revision's holds.
type ApproveRequest struct {
	Revision fleet.Revision `json:"revision" pattern:"^[0-9a-f]{40}$" doc:"The full commit id"`
	Note     string         `json:"note,omitempty" maxLength:"1024" doc:"Why, for those who read it later"`
}

// Forgotten is the answer to the decision to forget a cluster.
type Forgotten struct {
	Unproven int `json:"unproven" doc:"How many objects are not proven to be gone"`
}

// Resolved is the answer to a decision about unproven objects.
type Resolved struct {
	Objects int `json:"objects" doc:"How many are off the list"`
}

// TestChannelRequest requests a test message.
type TestChannelRequest struct {
	Tenant  fleet.TenantName `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9-]*$" doc:"Of the channel; absent: the token's tenant, or the platform"`
	Channel string           `json:"channel" minLength:"1" maxLength:"63" pattern:"^[a-z0-9-]+$"`
}

// TestChannelResult names the notification of a test message.
type TestChannelResult struct {
	ID     string           `json:"id"`
	Tenant fleet.TenantName `json:"tenant,omitempty"`
}

// OrphanRequest requests the removal of an Application whose deletion is blocked, without its
// cluster.
type OrphanRequest struct {
	Tenant      fleet.TenantName      `json:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Deployment  fleet.DeploymentName  `json:"deployment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Environment fleet.EnvironmentName `json:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	UID         string                `json:"uid" minLength:"1" maxLength:"64" doc:"of exactly the Application that was looked at; another one of that name stays"`
	Note        string                `json:"note,omitempty" maxLength:"1024" doc:"Why, for those who read it later"`
}

// MoveRequest requests the move of an environment to another engine, or, with the engine that it is
// leaving, the undoing of its move.
type MoveRequest struct {
	Tenant      fleet.TenantName      `json:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Environment fleet.EnvironmentName `json:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Slice       fleet.Slice           `json:"slice,omitempty" maxLength:"6" pattern:"^[01]*$" doc:"Of a split environment: the slice that moves"`
	Split       bool                  `json:"split,omitempty" doc:"Split the environment, or the slice, in halves; the second half moves"`
	To          fleet.EngineName      `json:"to" maxLength:"63" pattern:"^[a-z0-9.-]+$"`
	Note        string                `json:"note,omitempty" maxLength:"1024" doc:"Why, for those who read it later"`
	DryRun      bool                  `json:"dryRun,omitempty" doc:"Record the reasons against the move, or what it would do, as the operation's message, and move nothing"`
}

// MoveRequested names the operation that shows the progress of a move.
type MoveRequested struct {
	Operation string `json:"operation"`
}

// JoinRequest requests that all slices of a split environment move to one engine, which joins them.
type JoinRequest struct {
	Tenant      fleet.TenantName      `json:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Environment fleet.EnvironmentName `json:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	To          fleet.EngineName      `json:"to" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Note        string                `json:"note,omitempty" maxLength:"1024" doc:"Why, for those who read it later"`
	DryRun      bool                  `json:"dryRun,omitempty" doc:"Record the reasons against the moves, and move nothing"`
}

// JoinRequested names the operation of each slice that moves.
type JoinRequested struct {
	Operations []string `json:"operations" nullable:"false"`
}

// Approved lists what an approval released.
type Approved struct {
	Approval mirror.Approval `json:"approval"`
	Holds    []mirror.Hold   `json:"holds" nullable:"false"`
}

// ApprovedDifferences counts what an approval has approved.
type ApprovedDifferences struct {
	Approved int `json:"approved"`
}

// StopRequest requests that Argosy write nothing to the engines within its scope.
type StopRequest struct {
	Scope  mirror.StopScope `json:"scope" enum:"fleet,tenant,engine"`
	Name   string           `json:"name,omitempty" maxLength:"63" doc:"Of the tenant or engine; none for the fleet"`
	Reason string           `json:"reason,omitempty" maxLength:"1024"`
}

// ResumeRequest requests the end of one stop.
type ResumeRequest struct {
	Scope mirror.StopScope `json:"scope" enum:"fleet,tenant,engine"`
	Name  string           `json:"name,omitempty" maxLength:"63"`
}

// Resumed names the ended stop, and the other stops that still cover its scope.
type Resumed struct {
	Ended bool          `json:"ended" doc:"False: there was no such stop"`
	Stops []mirror.Stop `json:"stops" nullable:"false" doc:"All that are still in force"`
}

// TokenRequest requests a bearer token.
type TokenRequest struct {
	Name   string           `json:"name" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
	Tenant fleet.TenantName `json:"tenant,omitempty" maxLength:"63" doc:"None: the whole platform"`
	Role   view.Role        `json:"role" enum:"read,write"`
	Owner  string           `json:"owner,omitempty" maxLength:"256" pattern:"^(github|group):[!-~]+$" example:"github:alice" doc:"Entry of the tenant's owners that the token decides for"`
	TTL    string           `json:"ttl,omitempty" maxLength:"32" example:"720h" doc:"How long it is valid; none: until it is revoked"`
}

// CreatedToken is a new token with its plaintext, which is shown only once.
type CreatedToken struct {
	Token     view.Token `json:"token"`
	Plaintext string     `json:"plaintext"`
}

// AgentTokenRequest requests a one-time token with which a cluster joins: of one environment, or of
// one engine.
type AgentTokenRequest struct {
	Tenant      fleet.TenantName      `json:"tenant,omitempty" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Environment fleet.EnvironmentName `json:"environment,omitempty" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Engine      fleet.EngineName      `json:"engine,omitempty" maxLength:"63" pattern:"^[a-z0-9-]+$" doc:"Instead of tenant and environment: an engine with connection.agent (platform)"`
	TTL         string                `json:"ttl,omitempty" maxLength:"32" example:"1h" doc:"How long it is valid, 1m to 720h (8784h with legacy); none: 1h"`
	Token       string                `json:"token,omitempty" maxLength:"128" pattern:"^[!-~]*$" doc:"One that you bring, for a cluster that is set up by hand: 32 to 128 random characters. None: one is made"`
	Legacy      bool                  `json:"legacy,omitempty" doc:"It may also read GET /api/v1/cluster/<token>/applications, where that is switched on"`
}

// CreatedAgentToken is a new registration token with its plaintext, which is shown only once.
type CreatedAgentToken struct {
	Token     registry.Token `json:"token"`
	Plaintext string         `json:"plaintext"`
	Hub       string         `json:"hub,omitempty" doc:"URL under which agents reach the control plane"`
}

// OwnSyncRequest requests a sync of an autonomous cluster's own Application.
type OwnSyncRequest struct {
	Revision string `json:"revision,omitempty" maxLength:"256" pattern:"^[!-~]*$" doc:"Of the Application's repository; none: what its targetRevision says"`
	Prune    bool   `json:"prune,omitempty"`
}

// Asked is a requested sync. Its operation shows the result.
type Asked struct {
	ID    string                `json:"id"`
	State mirror.OperationState `json:"state"`
}

// LogMessage is one message of a stream of logs: lines, or the end.
type LogMessage struct {
	Lines []view.LogLine `json:"lines,omitempty"`
	// End is the last message; a stream without it has broken off.
	End view.LogEnd `json:"end,omitempty" enum:"Complete,TooLong,TimedOut,Cut,Cancelled"`
	// Refused is why the stream has not begun.
	Refused *Refusal `json:"refused,omitempty"`
}
