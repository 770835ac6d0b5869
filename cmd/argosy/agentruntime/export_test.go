package agentruntime

// For tests.
var (
	Upgrade = (*Agent).upgrade
	Ready   = (*Agent).isReady
)
