package main

import (
	"net"
	"sync"
	"sync/atomic"
)

// meter carries connections to the hub and counts what comes back.
type meter struct {
	address  string
	listener net.Listener
	target   atomic.Pointer[string]
	bytes    atomic.Int64
	all      sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
}

func newMeter() (*meter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &meter{address: l.Addr().String(), listener: l}
	m.all.Go(m.serve)
	return m, nil
}

// to sets the address of the hub.
func (m *meter) to(address string) { m.target.Store(&address) }

// in is how many bytes have come from the hub.
func (m *meter) in() int64 { return m.bytes.Load() }

func (m *meter) close() {
	_ = m.listener.Close() // the process is about to end
	m.mu.Lock()
	for _, conn := range m.open {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.all.Wait()
}

func (m *meter) serve() {
	for {
		in, err := m.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", *m.target.Load())
		if err != nil {
			_ = in.Close()
			continue
		}
		m.mu.Lock()
		m.open = append(m.open, in, out)
		m.mu.Unlock()
		m.all.Go(func() { carry(out, in, nil) })
		m.all.Go(func() { carry(in, out, &m.bytes) })
	}
}

func carry(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if count != nil {
			count.Add(int64(n))
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}
