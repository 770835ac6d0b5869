package hub

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// pausedConn is the connection of a process that SIGSTOP stops: its kernel still takes the peer's
// bytes, and the process neither reads nor writes nor closes.
type pausedConn struct {
	net.Conn
	paused atomic.Bool
	end    chan struct{}
}

func (c *pausedConn) Read(p []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(p); err != nil || !c.paused.Load() {
			return n, err
		}
	}
}

func (c *pausedConn) Write(p []byte) (int, error) {
	if c.paused.Load() {
		<-c.end
	}
	return c.Conn.Write(p)
}

func (c *pausedConn) Close() error {
	if c.paused.Load() {
		<-c.end
	}
	return c.Conn.Close()
}

// one is a listener with a single connection.
type one struct {
	conn chan net.Conn
	end  chan struct{}
}

func (o one) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.end:
		return nil, net.ErrClosed
	}
}

func (o one) Close() error   { return nil }
func (o one) Addr() net.Addr { return &net.TCPAddr{} }

func TestAStoppedProcessIsDisconnectedWithinHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		end := make(chan struct{})
		client := &pausedConn{Conn: far, end: end}
		listener := one{conn: make(chan net.Conn, 1), end: end}
		listener.conn <- near

		ended := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			beat := time.NewTicker(agent.Heartbeat)
			defer beat.Stop()
			for {
				_, _ = io.WriteString(w, ": alive\n\n")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-beat.C:
				case <-r.Context().Done():
					close(ended)
					return
				}
			}
		}), Protocols: &http.Protocols{}}
		server.Protocols.SetUnencryptedHTTP2(true)
		Detect(server)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(listener)
		}()
		transport := &http.Transport{Protocols: server.Protocols, DialContext: func(
			context.Context, string, string) (net.Conn, error) {
			return client, nil
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, answer.Body)
		}()
		timer := time.NewTimer(10 * agent.Heartbeat)
		select {
		case <-ended:
			t.Fatal("the stream of a running process has ended")
		case <-timer.C:
		}

		client.paused.Store(true)
		began := time.Now()
		timer.Reset(10 * agent.Heartbeat)
		select {
		case <-ended:
			if took := time.Since(began); took > 2*agent.Heartbeat {
				t.Errorf("it took %s", took)
			}
		case <-timer.C:
			t.Error("it is connected after 150 s")
		}
		close(end)
		_ = near.Close()
		_ = server.Close()
		<-read
		<-served
		transport.CloseIdleConnections()
	})
}
