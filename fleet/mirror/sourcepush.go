package mirror

import "argosy.dev/argosy/fleet"

// SourcePush is a ref that moved in a repository of Applications, as a Git host or registry has
// reported it (ADR 0098). It carries no facts: who forges one can only have Applications compared
// with what their repositories have.
type SourcePush struct {
	ID           int64    // of the store
	Repositories []string // keys of one repository, in the spellings that the delivery has
	Ref          string   // in full, such as refs/heads/main
	Default      bool     // it is the default branch, which HEAD names
	Paths        []string // changed files; nil: not known, any
	// the tenant with whose secret the delivery was signed, whose Applications alone are concerned;
	// "": the platform's
	Tenant fleet.TenantName
}

// WatchedObject is a desired Application as the index of sources reads it.
type WatchedObject struct {
	Key    fleet.ObjectKey
	Tenant fleet.TenantName
	Seq    int64
	Gone   bool // it watches nothing any more
	Body   []byte
}

// SourceWatch is a place of a repository that an Application deploys from.
type SourceWatch struct {
	Key        fleet.ObjectKey
	Tenant     fleet.TenantName
	Repository string
	Ref        string
	Path       string // "": the whole repository
}
