package webhook

import (
	"context"

	"argosy.dev/argosy/fleet/forge"
)

// Due is due, for tests over a Git host.
func (r *Reviewer) Due() []forge.Recheck { return r.due() }

// Recorded is recorded, for tests over a Git host.
func (r *Reviewer) Recorded(ctx context.Context) { r.recorded(ctx) }
