package stack_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

// echo answers each line with itself, outside.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	return l.Addr().String()
}

func firewall(t *testing.T) *stack.Firewall {
	t.Helper()
	f, err := stack.NewFirewall()
	if err != nil {
		if os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Logf("no network of its own: %v", err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestNothingPassesAFirewallButThroughAnOutlet(t *testing.T) {
	f := firewall(t)
	if f == nil {
		return
	}
	outside := echo(t)
	if conn, err := f.Dial(t.Context(), "tcp", outside); err == nil {
		conn.Close()
		t.Error("what listens outside is reached from inside")
	}
	l, err := f.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if conn, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		conn.Close()
		t.Error("what listens inside is reached from outside")
	}
}

func TestAProcessRunsBehindTheFirewall(t *testing.T) {
	f := firewall(t)
	if f == nil {
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	p, err := stack.StartProcess(stack.Command{Name: "ip", Path: "/bin/sh", Args: []string{
		"-c", "cat /proc/net/dev"}, Log: log, Behind: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for s := bufio.NewScanner(file); s.Scan(); lines++ {
	}
	if lines != 3 { // two of headings, and lo
		t.Errorf("the process sees %d interfaces, not loopback alone", lines-2)
	}
}

func TestAnOutletFailsAsANetworkDoes(t *testing.T) {
	f := firewall(t)
	o, err := f.Outlet("127.0.0.1:0", nil, "127.0.0.1:1", echo(t)) // the first never answers
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	dial := func() net.Conn {
		conn, err := f.Dial(t.Context(), "tcp", o.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	send := func(conn net.Conn, text string, within time.Duration) error {
		fmt.Fprintln(conn, text)
		_ = conn.SetReadDeadline(time.Now().Add(within))
		got := make([]byte, len(text)+1)
		_, err := io.ReadFull(conn, got)
		return err
	}
	const long = time.Minute

	var read bytes.Buffer
	conn := dial()
	o.Tap(&read)
	if err := send(conn, "hello", long); err != nil {
		t.Fatalf("an open way: %v", err)
	}
	o.Tap(nil)
	if read.String() != "hello\nhello\n" {
		t.Errorf("who reads along reads %q", read.String())
	}
	o.Freeze()
	if err := send(conn, "frozen", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen way answers %v", err)
	}
	o.Thaw()
	o.Block(true)
	if err := send(conn, "blocked", long); err == nil {
		t.Error("a connection outlives the block")
	}
	if err := send(dial(), "blocked", long); err == nil {
		t.Error("a connection is made through the block")
	}
	o.Block(false)
	o.Cut(3)
	cut := dial()
	if err := send(cut, "cut in the middle", long); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a connection that is cut after 3 bytes gives %v", err)
	}
	began := time.Now()
	o.Latency(30 * time.Millisecond)
	if err := send(dial(), "late", long); err != nil || time.Since(began) < 60*time.Millisecond {
		t.Errorf("with 30 ms each way it took %v (%v)", time.Since(began), err)
	}
}
