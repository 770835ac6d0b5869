//go:build !linux

package hub

import (
	"net"
	"time"
)

// setUserTimeout is implemented for Linux. Elsewhere keep-alive alone detects a silent peer.
func setUnanswered(*net.TCPConn, time.Duration) {}
