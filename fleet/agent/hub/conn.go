package hub

import (
	"context"
	"net"
	"time"
)

// Times after which a connection counts as dead that nothing comes back on. A stream is written to
// every 15 seconds, so that an agent whose network has gone without a word is noticed within a
// minute.
const (
	probeAfter = 15 * time.Second
	probeEvery = 10 * time.Second
	probes     = 3
	unanswered = 40 * time.Second
)

// ConnContext is for http.Server: it has the kernel end a connection whose other side has gone
// without a word, whether bytes are on their way (TCP_USER_TIMEOUT, RFC 5482) or not (keep-alive).
// Without it the kernel tries for a quarter of an hour.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn() // below TLS
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// a closed one is noticed by who reads it
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter,
			Interval: probeEvery, Count: probes})
		setUnanswered(tcp, unanswered)
	}
	return ctx
}
