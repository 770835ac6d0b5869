package fleet

import "time"

// ForgeOwner is what the Git host has under a name such as "alice" or "acme/leads".
type ForgeOwner struct {
	ID     int64    // of the account, or of the team
	People []Person // the account itself, or the team's members
}

// OwnerView is a name that declarations or the settings give to owners, and the account or team
// that it is pinned to: the one that had the name when it was first looked up. Nobody else counts
// by the name.
type OwnerView struct {
	Host     string    `json:"host"` // whose name it is: the URL of the Git host's API
	Name     string    `json:"name"` // "alice", "acme/leads", in lower case
	ID       int64     `json:"id"`   // that counts
	PinnedAt time.Time `json:"pinnedAt"`
	// another account or team that has the name now, and does not count
	NowID     int64      `json:"nowID,omitempty"`
	ChangedAt *time.Time `json:"changedAt,omitempty"` // when that was first seen
}

// Changed reports whether another account or team has the name than the one that counts.
func (o OwnerView) Changed() bool { return o.NowID != 0 }

// OwnerRelease is the decision that whoever has a name now counts from now on.
type OwnerRelease struct {
	Name string `json:"name" minLength:"1" maxLength:"300" doc:"as it is listed: alice, or acme/leads"`
	ID   int64  `json:"id" minimum:"1" doc:"of exactly the account or team that was looked at; another one stays without a say"`
	By   string `json:"-"`
	Note string `json:"note,omitempty" maxLength:"1024"`
}
