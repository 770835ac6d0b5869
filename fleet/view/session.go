package view

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
)

// SessionKind is where a person signed in.
type SessionKind string

// Kinds of sessions.
const (
	SessionPage SessionKind = "page"
	SessionCLI  SessionKind = "cli"
)

// SessionPrefix begins the plaintext of every session, and of no token.
const SessionPrefix = "argosy_session_"

// Session is a person's sign-in without its secret, of which the store holds a hash. It belongs to
// the issuer's key of the person, never to a name or an e-mail address.
type Session struct {
	ID         string      `json:"id"`
	Actor      string      `json:"actor"` // the person, as records name them
	Issuer     string      `json:"issuer"`
	Name       string      `json:"name"` // username at the issuer
	Kind       SessionKind `json:"kind"`
	CreatedAt  time.Time   `json:"createdAt"`
	LastUsedAt time.Time   `json:"lastUsedAt"` // late by up to a minute
	IdleUntil  time.Time   `json:"idleUntil"`  // ends then unless it is used
	ExpiresAt  time.Time   `json:"expiresAt"`  // ends then
	RevokedAt  *time.Time  `json:"revokedAt,omitempty"`
	RevokedBy  string      `json:"revokedBy,omitempty"`

	Person access.Person `json:"-"`
	// Roles are those that the files in effect grant now
	Roles access.Roles `json:"-"`
	// RefreshAt is when the issuer is asked again for groups; nil: never
	RefreshAt *time.Time `json:"-"`
}

// In returns the session as the token of a caller whose scope is one tenant, or the platform. The
// caller has no right beyond the session's roles there.
func (s Session) In(t fleet.TenantName) Token {
	token := Token{ID: s.ID, Name: s.Name, Tenant: t, Role: RoleRead, CreatedBy: s.Actor,
		CreatedAt: s.CreatedAt, ExpiresAt: &s.ExpiresAt, SignedIn: &s}
	grant := s.Roles.Platform
	if t != "" {
		grant = s.Roles.Within(t).Tenants[t]
	}
	if grant.Role != access.Viewer && grant.Role != "" {
		token.Role = RoleWrite
	}
	if own := s.Roles.Tenants[t]; own.Role == access.Owner {
		token.Owner = own.Subject
	}
	return token
}
