package stack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Firewall is a network of its own with nothing in it but loopback. A process behind it reaches the
// outside through an Outlet only, and nothing outside reaches it: no interface leads there.
//
// A nil Firewall is no firewall: everything shares this machine's loopback.
type Firewall struct {
	work chan func() // run by the one thread that is inside
}

// errPrivilege reports that this process may not create a network namespace.
var errPrivilege = errors.New("a network namespace needs root")

// NewFirewall creates the network. It needs Linux and root; without them it returns nil and the
// reason, and processes that belong behind it run beside everything else.
func NewFirewall() (*Firewall, error) {
	f := &Firewall{work: make(chan func())}
	entered := make(chan error)
	go func() {
		err := enterNetwork()
		entered <- err
		if err != nil {
			return
		}
		// The thread is never given back: with the goroutine it ends too, and with
		// it, by their parent-death signal, the processes that it started.
		for do := range f.work {
			do()
		}
	}()
	if err := <-entered; err != nil {
		return nil, err
	}
	return f, nil
}

// Close ends the network and every process behind it.
func (f *Firewall) Close() {
	if f != nil {
		close(f.work)
	}
}

// inside runs do on the thread that is behind the firewall.
func (f *Firewall) inside(do func()) {
	if f == nil {
		do()
		return
	}
	done := make(chan struct{})
	f.work <- func() { defer close(done); do() }
	<-done
}

// Dial connects to a loopback address behind the firewall, as a process there would.
func (f *Firewall) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	f.inside(func() {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network,
			address)
	})
	return conn, err
}

// Listen listens on a loopback address behind the firewall.
func (f *Firewall) Listen(address string) (l net.Listener, err error) {
	f.inside(func() { l, err = net.Listen("tcp", address) })
	return l, err
}

// Outlet is a way out: an address behind the firewall whose connections are
// carried to one address outside, or to several in turn, as a plain load
// balancer does. It can be made to fail.
type Outlet struct {
	Address string // behind the firewall

	listener net.Listener
	open     sync.WaitGroup

	mu      sync.Mutex
	targets []string
	next    int
	moves   int // how often it was switched
	conns   map[net.Conn]bool
	latency time.Duration // each way
	blocked bool
	frozen  chan struct{} // closed when nothing is held back; nil: never was
	lost    map[net.Conn]bool
	closed  chan struct{}
	cut     int64         // bytes that still come in before connections end; <0: any number
	tap     *bytes.Buffer // nil: no copy
}

// Outlet opens a way out from address ("127.0.0.1:0" for any port) to the
// targets. With a TLS configuration it ends TLS, as a proxy in front of a service
// does.
func (f *Firewall) Outlet(address string, config *tls.Config, targets ...string) (*Outlet, error) {
	l, err := f.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("outlet %s: %w", address, err)
	}
	o := &Outlet{Address: l.Addr().String(), listener: l, targets: targets,
		conns: map[net.Conn]bool{}, cut: -1,
		lost: map[net.Conn]bool{}, closed: make(chan struct{})}
	if config != nil {
		o.listener = tls.NewListener(l, config)
	}
	o.open.Go(o.serve)
	return o, nil
}

// Add is one more address that new connections are carried to, in turn; one that
// does not answer is passed over.
func (o *Outlet) Add(target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets = append(slices.Clone(o.targets), target)
}

// Switch leads new connections to these targets alone and ends the open ones, as an address does
// that moves to another server.
func (o *Outlet) Switch(targets ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets, o.next = targets, 0
	o.moves++
	o.endAll()
}

// Close ends it and every connection through it.
func (o *Outlet) Close() {
	_ = o.listener.Close()
	close(o.closed)
	o.Thaw()
	o.Block(true)
	o.open.Wait()
}

// Latency delays what goes through, each way.
func (o *Outlet) Latency(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latency = d
}

// Block refuses connections and ends the open ones; false accepts connections again.
func (o *Outlet) Block(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blocked = on
	if on {
		o.endAll()
	}
}

// Cut ends a connection once so many more bytes have come in, through all of
// them together. It happens once.
func (o *Outlet) Cut(bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = bytes
}

// Tap copies all traffic from now on, in both directions, as the proxy that ends TLS here reads it;
// nil ends that. Writes to w are serialized, and none follows after the next Tap has returned.
func (o *Outlet) Tap(w *bytes.Buffer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tap = w
}

// Freeze holds everything back while connections stay open, as a network does
// whose other end has gone without a word.
func (o *Outlet) Freeze() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frozen == nil {
		o.frozen = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (o *Outlet) Thaw() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frozen != nil {
		close(o.frozen)
		o.frozen = nil
	}
}

// Strand drops everything that the open connections would still carry, their end included, as a
// network does that has forgotten them: neither side learns of it. New connections work.
func (o *Outlet) Strand() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for conn := range o.conns {
		o.lost[conn] = true
	}
}

func (o *Outlet) isLost(conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost[conn]
}

// Connections returns the number of open connections.
func (o *Outlet) Connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns) / 2
}

func (o *Outlet) endAll() {
	for conn := range o.conns {
		_ = conn.Close()
	}
}

func (o *Outlet) serve() {
	for {
		in, err := o.listener.Accept()
		if err != nil {
			return
		}
		o.open.Go(func() { o.carry(in) })
	}
}

func (o *Outlet) carry(in net.Conn) {
	defer in.Close()
	out, move := o.dial()
	if out == nil {
		return
	}
	defer out.Close()
	if !o.keep(move, in, out) {
		return
	}
	defer o.forget(in, out)
	var both sync.WaitGroup
	both.Go(func() { o.pipe(out, in, false) })
	both.Go(func() { o.pipe(in, out, true) })
	both.Wait()
}

// dial connects to the first of the targets that answers, nil when none does, and returns how often
// the outlet had been switched by then.
func (o *Outlet) dial() (net.Conn, int) {
	o.mu.Lock()
	targets, first, move := o.targets, o.next, o.moves
	o.next++
	o.mu.Unlock()
	for i := range targets {
		if conn, err := net.DialTimeout("tcp", targets[(first+i)%len(targets)],
			5*time.Second); err == nil {
			return conn, move
		}
	}
	return nil, move
}

// keep is false when the connections must end: the outlet is blocked, or was switched since they
// were made.
func (o *Outlet) keep(move int, conns ...net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.blocked || o.moves != move {
		return false
	}
	for _, conn := range conns {
		o.conns[conn] = true
	}
	return true
}

func (o *Outlet) forget(conns ...net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, conn := range conns {
		delete(o.conns, conn)
	}
}

// pipe carries bytes one way until either end closes; the other way ends with it.
func (o *Outlet) pipe(to, from net.Conn, incoming bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if o.isLost(from) {
			if err != nil {
				<-o.closed
				return
			}
			continue
		}
		if n > 0 {
			o.copy(buffer[:n])
			allowed, last := o.pass(n, incoming)
			if _, err := to.Write(buffer[:allowed]); err != nil || last {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (o *Outlet) copy(read []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tap != nil {
		o.tap.Write(read)
	}
}

// pass waits as the network does and returns how many of n bytes go through, and whether they are
// the last.
func (o *Outlet) pass(n int, incoming bool) (int, bool) {
	o.mu.Lock()
	latency, frozen := o.latency, o.frozen
	o.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	if frozen != nil {
		<-frozen
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !incoming || o.cut < 0 {
		return n, false
	}
	if int64(n) < o.cut {
		o.cut -= int64(n)
		return n, false
	}
	n, o.cut = int(o.cut), -1
	return n, true
}
