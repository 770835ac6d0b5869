package postgres

import (
	"strings"
	"syscall"
)

const tcpUserTimeout = 18 // TCP_USER_TIMEOUT, which package syscall does not have

// userTimeout ends a connection whose data is unacknowledged for lostPeer.
func userTimeout(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	if control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
			int(lostPeer.Milliseconds()))
	}); control != nil {
		return control
	}
	return err
}
