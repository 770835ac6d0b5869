package mirror

import "argosy.dev/argosy/fleet"

// ListingStatus is the status of a repository that sets of a tenant list. The listings themselves
// are in the sets' declarations.
type ListingStatus struct {
	Tenant         fleet.TenantName
	RepoURL        string
	TargetRevision string
	Commit         fleet.Revision // that was read last
	Error          string         // of the last read; empty: it succeeded
	Ended          bool           // no set lists it any more
}
