package webhook

import "argosy.dev/argosy/fleet"

// Due is due, for tests over a forge.
func (r *Reviewer) Due() []fleet.Recheck { return r.due() }
