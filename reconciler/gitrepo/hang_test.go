package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// tarpit answers each connection with one byte and then nothing, or with one byte per tick.
type tarpit struct {
	net.Listener
	open atomic.Int64
}

func newTarpit(t *testing.T, greeting string, drip time.Duration) *tarpit {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tarpit{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.open.Add(1)
			go p.serve(c, greeting, drip)
		}
	}()
	return p
}

func (p *tarpit) serve(c net.Conn, greeting string, drip time.Duration) {
	defer p.open.Add(-1)
	defer c.Close()
	// an ssh server sends first, others after a request
	if !strings.HasPrefix(greeting, "SSH") {
		c.Read(make([]byte, 1))
	}
	io.WriteString(c, greeting)
	gone := make(chan struct{})
	go func() { io.Copy(io.Discard, c); close(gone) }() // ends when the client closes its end
	if drip == 0 {
		<-gone
		return
	}
	tick := time.NewTicker(drip)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
		}
	}
}

func TestAFetchThatMakesProgressOutlastsItsTime(t *testing.T) {
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	var p fakePack
	p.object(plumbing.BlobObject, noise)
	_, root := p.object(plumbing.TreeObject,
		treeOf(plumbing.ComputeHash(plumbing.BlobObject, noise), "100644 video"))
	s.tip = p.commitOn(root)
	pack := packets(p.bytes())
	s.pack = func(w io.Writer) {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for part := range slices.Chunk(pack, len(pack)/12) {
			<-tick.C
			w.Write(part)
			w.(http.Flusher).Flush()
		}
	}
	began := time.Now()
	m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Time: 300 * time.Millisecond}))
	if h := fetch(t, m); h.Commit != publicHash(s.tip) || time.Since(began) < 500*time.Millisecond {
		t.Fatal(h, time.Since(began))
	}
}

func TestServerThatHangs(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n"
	key, knownHosts := sshKeyPair(t), ""
	cases := []struct {
		name, scheme, greeting string
		drip                   time.Duration
		budget                 Budget
	}{
		{"sends nothing", "http", "", 0, Budget{Idle: 100 * time.Millisecond}},
		{"sends one byte, then hangs", "http", "H", 0, Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the headers", "http", head, 0, Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the body", "http", head + "Content-Length: 1000\r\n\r\n001", 0,
			Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the TLS handshake", "https", "\x16", 0, Budget{Idle: 100 * time.Millisecond}},
		{"drips headers", "http", head + "X: ", 5 * time.Millisecond,
			Budget{Time: 200 * time.Millisecond}},
		{"drips a body", "http", head + "Content-Length: 100000\r\n\r\nfff0", 5 * time.Millisecond,
			Budget{Time: 200 * time.Millisecond}},
		{"ssh sends nothing", "ssh", "", 0, Budget{Idle: 100 * time.Millisecond}},
		{"ssh hangs in the handshake", "ssh", "SSH-2.0-x\r\n", 0,
			Budget{Idle: 100 * time.Millisecond}},
		{"ssh drips its greeting", "ssh", "SSH-2.0-", 5 * time.Millisecond,
			Budget{Time: 200 * time.Millisecond}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newTarpit(t, c.greeting, c.drip)
			url := c.scheme + "://" + p.Addr().String() + "/config.git"
			knownHosts = knownHostsLine(p.Addr().String(), key)
			before := runtime.NumGoroutine()
			m, err := Open(t.Context(), t.TempDir(),
				Source{URL: url, Auth: authFor(t, c.scheme, key, knownHosts)},
				AllowPlainHTTP(), WithBudget(c.budget))
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			fails(t, m, ErrTimedOut)
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			m.Close()
			until(t, "the server sees the connection closed", func() bool {
				return p.open.Load() == 0
			})
			until(t, "no goroutine is left", func() bool {
				return runtime.NumGoroutine() <= before
			})
		})
	}
}

func TestServerThatHangsInThePack(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	for name, after := range map[string]int{"before it": 0, "after one byte": 1, "inside": 60} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if !bytes.Contains(body, []byte("command=fetch")) {
					next.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				w.Write(rec.Body.Bytes()[:after])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				close(gone)
			})
			fails(t,
				open(t, t.TempDir(), s.url(), WithBudget(Budget{Idle: time.Second})),
				ErrTimedOut)
			select {
			case <-gone:
			case <-time.After(time.Minute):
				t.Fatal("the connection stays open")
			}
		})
	}
}

func TestCallerEndsAFetch(t *testing.T) {
	p := newTarpit(t, "", 0)
	m := open(t, t.TempDir(), "http://"+p.Addr().String()+"/config.git")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := m.Fetch(ctx); done <- err }()
	until(t, "the fetch is connected", func() bool { return p.open.Load() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
