package argocd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/transport/spdy"

	"argosy.dev/argosy/fleet/engine"
)

// portForward is the protocol of `kubectl port-forward`.
const portForward = "portforward.k8s.io"

// maxForwarding bounds the dials that hang: an API server may accept a request and never answer it.
const maxForwarding = 8

// forward opens a connection to a port of a Pod through the API server. It listens on no port of
// this machine.
func (e *Engine) forward(ctx context.Context, pod string, port int) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(e.config)
	if err != nil {
		return nil, fmt.Errorf("port forward: %w", err)
	}
	base, err := url.Parse(e.config.Host)
	if err != nil {
		return nil, fmt.Errorf("port forward: %w", err)
	}
	base = base.JoinPath("api/v1/namespaces", e.namespace, "pods", pod, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, base)
	type dialed struct {
		conn net.Conn
		err  error
	}
	select {
	case e.forwarding <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: port forward to Pod %s: %d earlier ones have not been answered",
			engine.ErrUnreachable, pod, maxForwarding)
	}
	done := make(chan dialed, 1)
	go func() { // the dialer has no context
		defer func() { <-e.forwarding }()
		conn, err := openForward(dialer, port)
		done <- dialed{conn, err}
	}()
	select {
	case d := <-done:
		if d.err != nil {
			return nil, fmt.Errorf("%w: port forward to Pod %s: %w", engine.ErrUnreachable, pod,
				d.err)
		}
		return d.conn, nil
	case <-ctx.Done():
		go func() {
			if d := <-done; d.conn != nil {
				_ = d.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func openForward(dialer httpstream.Dialer, port int) (net.Conn, error) {
	conn, _, err := dialer.Dial(portForward)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := conn.CreateStream(headers)
	if err == nil {
		_ = failures.Close() // we write nothing
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = conn.CreateStream(headers); err == nil {
			f := &forwarded{Stream: data, conn: conn, port: port}
			go f.follow(failures)
			return f, nil
		}
	}
	return nil, errors.Join(err, conn.Close())
}

// forwarded is a forwarded connection.
type forwarded struct {
	httpstream.Stream
	conn httpstream.Connection
	port int

	mu      sync.Mutex
	failed  error
	readBy  time.Time
	writeBy time.Time
}

// follow ends the connection when the kubelet reports an error.
func (f *forwarded) follow(failures io.Reader) {
	text, _ := io.ReadAll(io.LimitReader(failures, 1024))
	if len(text) == 0 {
		return
	}
	f.fail(errors.New(string(text)))
}

// fail ends the connection, and Read and Write return the first reason.
func (f *forwarded) fail(why error) {
	f.mu.Lock()
	if f.failed == nil {
		f.failed = why
	}
	f.mu.Unlock()
	_ = f.conn.Close()
}

// Read reads from the Pod.
func (f *forwarded) Read(p []byte) (int, error) { return f.within(&f.readBy, f.Stream.Read, p) }

// Write writes to the Pod.
func (f *forwarded) Write(p []byte) (int, error) { return f.within(&f.writeBy, f.Stream.Write, p) }

// within ends the connection when a call takes longer than its deadline: a stream has none.
func (f *forwarded) within(deadline *time.Time, call func([]byte) (int, error), p []byte) (int,
	error) {
	f.mu.Lock()
	by := *deadline
	f.mu.Unlock()
	if !by.IsZero() {
		late := time.AfterFunc(time.Until(by), func() { f.fail(os.ErrDeadlineExceeded) })
		defer late.Stop()
	}
	n, err := call(p)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.failed != nil {
			err = f.failed
		}
	}
	return n, err
}

// Close ends the forward too.
func (f *forwarded) Close() error { return f.conn.Close() }

// LocalAddr and RemoteAddr have no meaning.
func (f *forwarded) LocalAddr() net.Addr  { return &net.TCPAddr{Port: f.port} }
func (f *forwarded) RemoteAddr() net.Addr { return &net.TCPAddr{Port: f.port} }

// SetDeadline bounds the reads and writes that begin after it.
func (f *forwarded) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

// SetReadDeadline bounds the reads that begin after it.
func (f *forwarded) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readBy = t
	return nil
}

// SetWriteDeadline bounds the writes that begin after it.
func (f *forwarded) SetWriteDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeBy = t
	return nil
}
