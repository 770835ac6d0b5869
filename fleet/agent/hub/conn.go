package hub

import (
	"context"
	"net"
	"net/http"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// Timeouts of silent connections. A stream is written to every 15 seconds, so that an agent with a
// broken network is detected within a minute.
const (
	probeAfter  = 15 * time.Second
	probeEvery  = 10 * time.Second
	probes      = 3
	userTimeout = 40 * time.Second
)

// Detect makes a server close connections with silent peers, before it serves. An agent whose
// process is stopped does not answer the pings of HTTP/2, although its kernel acknowledges the
// bytes of the stream: its connection ends within 30 seconds. Over HTTP/1.1, as behind some
// proxies, only a broken network is detected.
func Detect(server *http.Server) {
	server.ConnContext = connContext
	server.HTTP2 = &http.HTTP2Config{SendPingTimeout: agent.Heartbeat, PingTimeout: agent.Heartbeat}
}

// connContext is for http.Server. It makes the kernel close a connection with a silent peer,
// whether unacknowledged bytes are in flight (TCP_USER_TIMEOUT, RFC 5482) or not (keep-alive).
// Without it the kernel retries for a quarter of an hour.
func connContext(ctx context.Context, conn net.Conn) context.Context {
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
