package argocd

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Renderer = Renderer{}
)

// Live is what is known of one object: what the watch or our own last write has shown.
func (e *Engine) Live(key fleet.ObjectKey) (engine.Live, bool) {
	if known := e.cache.get(key); known != nil {
		return known.Live, true
	}
	return engine.Live{}, false
}

// Inventory lists every object that is ours, ordered by kind and name. Only meaningful when Synced.
func (e *Engine) Inventory() []engine.Live { return e.cache.inventory() }
