package argocd

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Renderer = Renderer{}
)

// Live returns the last known state of one object: from the watch or from our own last write.
func (e *Engine) Live(key fleet.ObjectKey) (engine.Live, bool) {
	if known := e.cache.get(key); known != nil {
		return known.Live, true
	}
	return engine.Live{}, false
}

// Inventory lists all our objects, ordered by kind and name. It is meaningful only when Synced.
func (e *Engine) Inventory() []engine.Live { return e.cache.inventory() }
