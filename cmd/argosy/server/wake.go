package server

// Wake makes the loop look at the config repo now, as a poll would.
func (v *Server) Wake() { v.loop.Wake() }
