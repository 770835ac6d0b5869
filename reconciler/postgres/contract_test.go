package postgres_test

import (
	"argosy.dev/argosy/api"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/postgres"
)

// The store is what its callers ask for.
var (
	_ api.Reader              = (*postgres.Store)(nil)
	_ api.Decider             = (*postgres.Store)(nil)
	_ api.Tokens              = (*postgres.Store)(nil)
	_ reconciler.Store        = (*postgres.Store)(nil)
	_ reconciler.Rows         = (*postgres.Store)(nil)
	_ reconciler.Leases       = (*postgres.Store)(nil)
	_ reconciler.EngineLister = (*postgres.Store)(nil)
	_ reconciler.StopReader   = (*postgres.Store)(nil)
)
