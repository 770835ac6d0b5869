package webhook

import "argosy.dev/argosy/fleet/forge"

// Due is due, for tests over a forge.
func (r *Reviewer) Due() []forge.Recheck { return r.due() }
