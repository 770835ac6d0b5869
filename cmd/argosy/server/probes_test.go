package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/reconciler/postgres"
)

// The probes need no token: their answers name no host, user or tenant.
func TestReadinessGivesStrangersAClassOfReasons(t *testing.T) {
	t.Parallel()
	canary := errors.New("failed to connect to `user=argosy host=db.internal`: tenant acme")
	for want, c := range map[string]struct{ database, stops error }{
		"": {nil, nil},
		"the database is read-only": {fmt.Errorf("%w: %w", postgres.ErrReadOnly, canary),
			canary},
		"the database cannot be reached":                                       {canary, nil},
		"the emergency stops are not known: nothing is written until they are": {nil, canary},
	} {
		class, reason := notReady(c.database, c.stops)
		if class != want || (reason == nil) != (want == "") || strings.Contains(class, "acme") {
			t.Errorf("%q, %v; want %q", class, reason, want)
		}
	}
}
