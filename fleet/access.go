package fleet

// AccessName is the name of the one Access, and of its file without ".yaml".
const AccessName = "access"

// AccessKey is the key of the one Access.
func AccessKey() Key { return Key{Kind: KindAccess, Name: AccessName} }

// AccessSpec gives people roles of the platform (fleet/access.yaml, at most one). Each entry is
// written as an owner: see ParseOwner. Package fleet/access defines what a role may do.
type AccessSpec struct {
	Admins    []string `json:"admins,omitempty"`    // everything
	Operators []string `json:"operators,omitempty"` // everything but tokens and sessions of others
	Viewers   []string `json:"viewers,omitempty"`   // read everything
}
