package view

import (
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
)

// Role is the permission of a token within its scope.
type Role string

// Roles. A writer may also read.
const (
	RoleRead  Role = "read"
	RoleWrite Role = "write"
)

// Token is a bearer token without its plaintext, which is shown once, on creation. The store holds
// a hash. A caller with a session has a Token too: see Session.In.
type Token struct {
	ID     string           `json:"id"`               // key id, the public part of the plaintext
	Name   string           `json:"name"`             // for people, e.g. ci
	Tenant fleet.TenantName `json:"tenant,omitempty"` // empty: the platform
	Role   Role             `json:"role"`
	// Owner is the entry of Tenant.owners whose decisions the token makes; empty: none
	Owner     string     `json:"owner,omitempty"`
	CreatedBy string     `json:"createdBy"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // nil: never
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	// LastUsedAt is late by up to a minute; nil: never, or before Argosy kept it
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`

	// SignedIn is the session of a person; nil for the token of a machine
	SignedIn *Session `json:"-"`
}

// Roles are the roles of the token's holder within its scope.
func (t Token) Roles() access.Roles {
	switch {
	case t.SignedIn == nil:
		return access.OfToken(t.Tenant, t.Role == RoleWrite, t.Owner != "")
	case t.Tenant != "":
		return t.SignedIn.Roles.Within(t.Tenant)
	}
	return t.SignedIn.Roles
}

// May reports whether the token's holder may do the verb to a thing of the kind: of the tenant in
// scope, or in the scope of the platform one of tenant.
func (t Token) May(v access.Verb, k access.Kind, tenant fleet.TenantName) access.Decision {
	thing := access.Thing{Kind: k}
	if k.OfTenant() {
		if thing.Tenant = tenant; t.Tenant != "" {
			thing.Tenant = t.Tenant
		}
	}
	return t.Roles().Decide(v, thing)
}

// Scope is the scope of the token's holder.
func (t Token) Scope() Scope { return Scope{Tenant: t.Tenant} }

// Owns reports whether the token decides for one of the owners of its tenant.
func (t Token) Owns(owners []string) bool {
	return t.Owner != "" && slices.Contains(owners, t.Owner)
}

// Person names the token in the record of a decision, with the owner that it decides for.
func (t Token) Person() string {
	if t.Owner == "" {
		return t.Subject()
	}
	return t.Owner + " (" + t.Subject() + ")"
}

// StopperOf begins the names of people who stop writes within the scope of a tenant.
func StopperOf(t fleet.TenantName) string { return "tenant:" + string(t) + " (" }

// Stopper names the holder in the record of an emergency stop. The name of a person within the
// scope of a tenant includes the tenant, as the subject of a token does: the tenant's people may
// end the stop, but none that the platform set.
func (t Token) Stopper() string {
	if t.SignedIn == nil || t.Tenant == "" {
		return t.Subject()
	}
	return StopperOf(t.Tenant) + t.Subject() + ")"
}

// Subject names the holder in records: a person as access.Person.Actor does, a machine by its
// token, "token:<name>" of the platform, "token:<tenant>/<name>" of a tenant. A name contains no
// slash, so a tenant's token cannot be mistaken for one of the platform.
func (t Token) Subject() string {
	if t.SignedIn != nil {
		return t.SignedIn.Person.Actor()
	}
	if t.Tenant == "" {
		return "token:" + t.Name
	}
	return fmt.Sprintf("token:%s/%s", t.Tenant, t.Name)
}
