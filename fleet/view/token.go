package view

import (
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
)

// Role is what a token may do within its scope.
type Role string

// Roles. A writer may also read.
const (
	RoleRead  Role = "read"
	RoleWrite Role = "write"
)

// Token is a bearer token as people may see it. Its plaintext is shown once, when it is made, and
// kept nowhere: the store holds a hash.
type Token struct {
	ID        string           `json:"id"`               // key id, the public part of the plaintext
	Name      string           `json:"name"`             // a name that people recognise, e.g. ci
	Tenant    fleet.TenantName `json:"tenant,omitempty"` // empty: the platform
	Role      Role             `json:"role"`
	CreatedBy string           `json:"createdBy"`
	CreatedAt time.Time        `json:"createdAt"`
	ExpiresAt *time.Time       `json:"expiresAt,omitempty"` // nil: never
	RevokedAt *time.Time       `json:"revokedAt,omitempty"`
}

// Scope is what the token's holder may see.
func (t Token) Scope() Scope { return Scope{Tenant: t.Tenant} }

// Subject names the token in records: "token:<name>" of the platform, "token:<tenant>/<name>" of a
// tenant. Names hold no slash, so that no tenant's token passes for one of the platform.
func (t Token) Subject() string {
	if t.Tenant == "" {
		return "token:" + t.Name
	}
	return fmt.Sprintf("token:%s/%s", t.Tenant, t.Name)
}
