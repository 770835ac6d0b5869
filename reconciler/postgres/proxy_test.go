package postgres_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// proxy is a TCP proxy between a store and its server that cuts a connection at a chosen moment.
type proxy struct {
	url string
	// cutNothing, cutRequest or cutAnswer; applies once, to the next request of any connection
	cut  atomic.Int32
	skip atomic.Int32 // requests before that one
	// bytes of a request before its connection falls silent; 0: unlimited
	remaining atomic.Int64
	Taken     chan struct{}
	ended     chan struct{}
}

const (
	cutNothing int32 = iota
	cutRequest       // the server never gets the next request
	cutAnswer        // the server has executed the next request, and its answer is lost
)

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	check(t, err)
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	dir, err := os.MkdirTemp("", "argosy-proxy-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	u.RawQuery = url.Values{"host": {dir}}.Encode()
	p := &proxy{url: u.String(), Taken: make(chan struct{}, 100), ended: make(chan struct{})}
	t.Cleanup(func() { close(p.ended) })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				client.Close()
				continue
			}
			go p.carry(client, server)
		}
	}()
	return p
}

var readyForQuery = []byte{'Z', 0, 0, 0, 5}

// carry forwards requests and answers in turn.
func (p *proxy) carry(client, server net.Conn) {
	var losing atomic.Bool
	hangUp := func() { client.Close(); server.Close() }
	go func() {
		defer hangUp()
		buf, silent := make([]byte, 1<<20), false
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			switch {
			case p.cut.Load() != cutNothing && p.skip.Load() > 0:
				p.skip.Add(-1)
			case p.cut.CompareAndSwap(cutRequest, cutNothing):
				p.Taken <- struct{}{}
				return
			case p.cut.CompareAndSwap(cutAnswer, cutNothing):
				losing.Store(true)
				p.Taken <- struct{}{}
			}
			if remaining := p.remaining.Load(); remaining > 0 && int64(n) >= remaining {
				p.remaining.Store(0)
				n = int(remaining)
				silent = true
			} else if remaining > 0 {
				p.remaining.Add(-int64(n))
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
			if silent {
				p.Taken <- struct{}{}
				_, _ = io.Copy(io.Discard, client) // its end is not reported either
				<-p.ended
				return
			}
		}
	}()
	defer hangUp()
	buf, tail := make([]byte, 1<<20), []byte{}
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if losing.Load() {
			tail = append(tail, buf[:n]...)
			if len(tail) >= 6 && bytes.Equal(tail[len(tail)-6:len(tail)-1], readyForQuery) {
				return
			}
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
