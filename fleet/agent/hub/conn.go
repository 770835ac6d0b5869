package hub

import (
	"context"
	"net"
	"time"
)

// Timeouts of silent connections. A stream is written to every 15 seconds, so that an agent with a
// broken network is detected within a minute.
const (
	probeAfter  = 15 * time.Second
	probeEvery  = 10 * time.Second
	probes      = 3
	userTimeout = 40 * time.Second
)

// ConnContext is for http.Server. It makes the kernel close a connection with a silent peer,
// whether unacknowledged bytes are in flight (TCP_USER_TIMEOUT, RFC 5482) or not (keep-alive).
// Without it the kernel retries for a quarter of an hour.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn() // below TLS
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// the reader detects a closed connection
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter,
			Interval: probeEvery, Count: probes})
		setUserTimeout(tcp, userTimeout)
	}
	return ctx
}
