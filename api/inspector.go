package api

import "argosy.dev/argosy/fleet/engine"

// Inspector reads the resources of Applications on their engines, by push or through an agent: see
// engine.Inspector. The API calls it only for an Application that the caller's scope contains. It
// has its own connections and limits, so that no read delays a write or a decision.
type Inspector = engine.Inspector
