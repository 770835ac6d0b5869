//go:build !linux

package hub

import (
	"net"
	"time"
)

// setUnanswered is Linux's; elsewhere keep-alive alone notices.
func setUnanswered(*net.TCPConn, time.Duration) {}
