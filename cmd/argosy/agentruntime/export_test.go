package agentruntime

// For tests.
var (
	Upgrade = (*Agent).upgrade
	Ready   = (*Agent).isReady
)

// Announce makes an agent announce an earlier version of the protocol.
func Announce(a *Agent, protocol int) { a.client.Announce(protocol) }
