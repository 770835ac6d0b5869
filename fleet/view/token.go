package view

import (
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// Role is the permission of a token within its scope.
type Role string

// Roles. A writer may also read.
const (
	RoleRead  Role = "read"
	RoleWrite Role = "write"
)

// Token is a bearer token without its plaintext, which is shown once, on creation. The store holds
// a hash.
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

// Subject names the token in records: "token:<name>" of the platform, "token:<tenant>/<name>" of a
// tenant. A name contains no slash, so a tenant's token cannot be mistaken for one of the platform.
func (t Token) Subject() string {
	if t.Tenant == "" {
		return "token:" + t.Name
	}
	return fmt.Sprintf("token:%s/%s", t.Tenant, t.Name)
}
