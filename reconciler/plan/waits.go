package plan

// Blocked reports whether the applied plan placed nothing because an engine was not read (Request.Unread).
func (w *World) Blocked() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.blocked
}

// Awaits reports whether anything waits for an approval: approvals are worth reading.
func (w *World) Awaits() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.waiting != nil || len(w.held.base) > 0
}
