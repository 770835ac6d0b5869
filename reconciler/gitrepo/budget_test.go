package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// wantBudget checks that err says which budget was spent.
func wantBudget(t *testing.T, err error, budget string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrOverBudget) || e.Budget != budget {
		t.Fatalf("got %v, want the %s budget", err, budget)
	}
}

// allocated is how many bytes f allocates, garbage included: an upper bound of what it can hold.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestBytesBudgetStopsALargeBlob(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "fine")
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Bytes: 1 << 20}))
	fetch(t, m)
	noise := make([]byte, 8<<20) // 200 MiB in the catalogue; what counts is that it is more than the budget and does not compress
	state := uint64(1)
	for i := range noise {
		state = state*6364136223846793005 + 1442695040888963407
		noise[i] = byte(state >> 56)
	}
	o.write("docs/video", string(noise))
	o.set("fleet/fleet.yaml", "new")
	var err error
	used := allocated(func() { _, err = m.Fetch(t.Context()) })
	wantBudget(t, err, "bytes")
	if used > 16<<20 {
		t.Errorf("allocated %d bytes", used)
	}
	if h, _ := m.Head(); h.Commit != first {
		t.Errorf("head moved to %s", h.Commit)
	}
}

func TestObjectsBudget(t *testing.T) {
	o := newOrigin(t)
	for i := range 50 {
		o.write(fmt.Sprintf("fleet/tenants/t%d.yaml", i), fmt.Sprint(i))
	}
	o.commit("many")
	m := open(t, t.TempDir(), newGitServer(t, o).url(), WithBudget(Budget{Objects: 40}))
	_, err := m.Fetch(t.Context())
	wantBudget(t, err, "objects")
}

func TestFilesBudgetStopsAMillionFiles(t *testing.T) {
	// Six trees that name each other ten times over stand for a million files in less than a kilobyte.
	var p fakePack
	_, blob := p.object(plumbing.BlobObject, []byte("x"))
	mode, id := "100644", blob
	for range 6 {
		var lines []string
		for i := range 10 {
			lines = append(lines, fmt.Sprintf("%s n%d", mode, i))
		}
		_, id = p.object(plumbing.TreeObject, treeOf(id, lines...))
		mode = "40000"
	}
	_, root := p.object(plumbing.TreeObject, treeOf(id, "40000 tenants"))
	s := newFakeServer(t, p.commitOn(root), p.bytes())
	m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Files: 50_000}))
	_, err := m.Fetch(t.Context())
	wantBudget(t, err, "files")

	t.Run("directories alone count too", func(t *testing.T) {
		var p fakePack
		_, id := p.object(plumbing.TreeObject, nil)
		for range 8 {
			_, id = p.object(plumbing.TreeObject, treeOf(id, "40000 a", "40000 b", "40000 c", "40000 d", "40000 e", "40000 f"))
		}
		_, root := p.object(plumbing.TreeObject, treeOf(id, "40000 fleet"))
		s := newFakeServer(t, p.commitOn(root), p.bytes())
		_, err := open(t, t.TempDir(), s.url(), WithBudget(Budget{Files: 50_000})).Fetch(t.Context())
		wantBudget(t, err, "files")
	})
}

func TestHundredThousandRefs(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	var refs strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&refs, "%s refs/pull/%06d/head\n", first, i)
	}
	if err := os.WriteFile(filepath.Join(o.dir, "packed-refs"), []byte("# pack-refs with: sorted \n"+refs.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newGitServer(t, o)
	t.Run("version 2 never sees them", func(t *testing.T) {
		m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Bytes: 64 << 10}))
		if h := fetch(t, m); h.Commit != first {
			t.Fatal(h)
		}
	})
	t.Run("version 0 holds none", func(t *testing.T) {
		s.version0.Store(true)
		m := open(t, t.TempDir(), s.url())
		var h Head
		used := allocated(func() { h = fetch(t, m) })
		if h.Commit != first || used > 64<<20 {
			t.Fatalf("%v, %d bytes allocated", h, used)
		}
	})
	t.Run("version 0 is cut at the budget", func(t *testing.T) {
		m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Bytes: 1 << 20}))
		_, err := m.Fetch(t.Context())
		wantBudget(t, err, "bytes")
	})
}

func TestObjectThatInflatesToFourGigabytes(t *testing.T) {
	const four = 4 << 30
	zeros := deflate(make([]byte, 64<<20))
	cases := map[string]func(p *fakePack){
		"says so in its header": func(p *fakePack) {
			p.head(plumbing.BlobObject, four)
			p.body.Write(zeros)
		},
		"as a delta that says what it makes": func(p *fakePack) {
			base, _ := p.object(plumbing.BlobObject, make([]byte, 1<<16))
			p.ofsDelta(base, append(delta(1<<16, 0, "")[:3], 0x80, 0x80, 0x80, 0x80, 0x10))
		},
		"as the delta itself": func(p *fakePack) {
			base, _ := p.object(plumbing.BlobObject, []byte("x"))
			_ = base
			p.head(plumbing.OFSDeltaObject, four)
			p.body.WriteByte(20)
			p.body.Write(zeros)
		},
	}
	for name, add := range cases {
		t.Run(name, func(t *testing.T) {
			var p fakePack
			add(&p)
			s := newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)), p.bytes())
			m := open(t, t.TempDir(), s.url())
			var err error
			used := allocated(func() { _, err = m.Fetch(t.Context()) })
			wantBudget(t, err, "object bytes")
			if used > 8<<20 {
				t.Errorf("allocated %d bytes", used)
			}
		})
	}
	for name, size := range map[string]uint64{"lies about it": 100, "says a number that no integer holds": 1<<63 + 5} {
		t.Run(name, func(t *testing.T) {
			var p fakePack
			p.head(plumbing.BlobObject, size)
			p.body.Write(zeros)
			s := newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)), p.bytes())
			m := open(t, t.TempDir(), s.url())
			var err error
			used := allocated(func() { _, err = m.Fetch(t.Context()) })
			if !errors.Is(err, ErrUnavailable) || used > 8<<20 {
				t.Errorf("%v, %d bytes allocated", err, used)
			}
		})
	}
}

func TestDeltaChains(t *testing.T) {
	chain := func(n int) (*fakePack, plumbing.Hash) {
		var p fakePack
		text := strings.Repeat("x", 100)
		at, _ := p.object(plumbing.BlobObject, []byte(text))
		for i := range n {
			suffix := fmt.Sprint(i)
			at = p.ofsDelta(at, delta(len(text), 90, suffix))
			text = text[:90] + suffix
		}
		_, root := p.object(plumbing.TreeObject, treeOf(plumbing.ComputeHash(plumbing.BlobObject, []byte(text)), "100644 fleet"))
		return &p, p.commitOn(root)
	}
	t.Run("4095 deep is read", func(t *testing.T) {
		p, tip := chain(4095)
		m := open(t, t.TempDir(), newFakeServer(t, tip, p.bytes()).url())
		if got := files(t, m, fetch(t, m).Commit)["fleet"]; got != strings.Repeat("x", 90)+"4094" {
			t.Fatalf("%q", got)
		}
	})
	t.Run("4096 deep is refused", func(t *testing.T) {
		p, tip := chain(4096)
		_, err := open(t, t.TempDir(), newFakeServer(t, tip, p.bytes()).url()).Fetch(t.Context())
		wantBudget(t, err, "delta depth")
	})
	t.Run("4096 deep by name is refused", func(t *testing.T) {
		var p fakePack
		text := strings.Repeat("x", 100)
		_, id := p.object(plumbing.BlobObject, []byte(text))
		for i := range 4096 {
			suffix := fmt.Sprint(i)
			p.refDelta(id, delta(len(text), 90, suffix))
			text = text[:90] + suffix
			id = plumbing.ComputeHash(plumbing.BlobObject, []byte(text))
		}
		_, err := open(t, t.TempDir(), newFakeServer(t, p.commitOn(id), p.bytes()).url()).Fetch(t.Context())
		wantBudget(t, err, "delta depth")
	})
	t.Run("a crowd of large ones is held to a few", func(t *testing.T) {
		const size = 1 << 20
		var p fakePack
		at, _ := p.object(plumbing.BlobObject, make([]byte, size))
		level := []int64{at}
		for range 8 { // a tree of deltas, two on each: the shape that makes one hold the most
			var next []int64
			for _, base := range level {
				for k := range 2 {
					next = append(next, p.ofsDelta(base, delta(size, size-1, fmt.Sprint(k))))
				}
			}
			level = next
		}
		_, err := open(t, t.TempDir(), newFakeServer(t, p.commitOn(plumbing.ZeroHash), p.bytes()).url(),
			WithBudget(Budget{ObjectBytes: size})).Fetch(t.Context())
		wantBudget(t, err, "memory")
	})
}

func TestTimeBudgetEndsWorkOnHostileDeltas(t *testing.T) {
	const size = 8 << 20
	var p fakePack
	at, _ := p.object(plumbing.BlobObject, make([]byte, size))
	for range 3000 { // each a few hundred bytes that take 8 MiB of copying and hashing
		at = p.ofsDelta(at, delta(size, size-1, "x"))
	}
	m := open(t, t.TempDir(), newFakeServer(t, p.commitOn(plumbing.ZeroHash), p.bytes()).url(), WithBudget(Budget{Time: 500 * time.Millisecond}))
	start := time.Now()
	_, err := m.Fetch(t.Context())
	if !errors.Is(err, ErrTimedOut) || time.Since(start) > 10*time.Second {
		t.Fatalf("%v after %s", err, time.Since(start))
	}
}

func TestFileBytesBudget(t *testing.T) {
	o := newOrigin(t)
	o.write("tenants/acme/deployments/large.yaml", strings.Repeat("a: b\n", 1000))
	o.write("tenants/acme/deployments/small.yaml", "a: b\n")
	o.commit("both")
	m := open(t, t.TempDir(), newGitServer(t, o).url(), WithBudget(Budget{FileBytes: 1000}))
	h := fetch(t, m) // one large file does not keep the others from being read
	var got []string
	err := m.Walk(t.Context(), h.Commit, func(e Entry) error {
		_, err := m.Blob(t.Context(), e.Blob)
		if err != nil {
			wantBudget(t, err, "file bytes")
		}
		got = append(got, fmt.Sprint(e.Path, err == nil))
		return nil
	})
	if err != nil || strings.Join(got, " ") != "tenants/acme/deployments/large.yamlfalse tenants/acme/deployments/small.yamltrue" {
		t.Fatal(got, err)
	}
}

func TestBudgetRefusesNegativeLimits(t *testing.T) {
	if _, err := Open(t.Context(), t.TempDir(), Source{URL: "https://git.example.com/a"}, WithBudget(Budget{Files: -1})); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}

func TestPackThatIsNotOne(t *testing.T) {
	good := func() *fakePack {
		p := new(fakePack)
		p.object(plumbing.BlobObject, []byte("x"))
		return p
	}
	cases := map[string][]byte{
		"empty":                      {},
		"another signature":          []byte("KCAP\x00\x00\x00\x02\x00\x00\x00\x00"),
		"version 3 of four billion":  []byte("PACK\x00\x00\x00\x03\xff\xff\xff\xff"),
		"announces more than it has": good().announcing(2),
		"announces less than it has": func() []byte {
			p := good()
			p.object(plumbing.BlobObject, []byte("y"))
			return p.announcing(1)
		}(),
		"wrong checksum": append(good().bytes()[:len(good().bytes())-1], 'x'),
		"more after it":  append(good().bytes(), "more"...),
		"delta without base": func() []byte {
			p := good()
			p.refDelta(plumbing.NewHash(strings.Repeat("ab", 20)), delta(1, 1, ""))
			return p.bytes()
		}(),
		"delta on itself": func() []byte {
			p := good()
			p.head(plumbing.OFSDeltaObject, 4)
			p.body.WriteByte(0)
			p.body.Write(deflate(delta(1, 1, "")))
			return p.bytes()
		}(),
		"delta longer than its base": func() []byte {
			p := good()
			p.ofsDelta(packHeader, []byte{1, 9, 0x90, 9})
			return p.bytes()
		}(),
		"unknown type": func() []byte {
			p := good()
			p.head(5, 1)
			p.body.Write(deflate([]byte("x")))
			return p.bytes()
		}(),
		"not deflated": func() []byte {
			p := good()
			p.head(plumbing.BlobObject, 5)
			p.body.WriteString("plain")
			return p.bytes()
		}(),
		"shorter than it claims": func() []byte {
			p := good()
			p.head(plumbing.BlobObject, 5)
			p.body.Write(deflate([]byte("x")))
			return p.bytes()
		}(),
	}
	for name, pack := range cases {
		t.Run(name, func(t *testing.T) {
			m := open(t, t.TempDir(), newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)), pack).url())
			_, err := m.Fetch(t.Context())
			if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			if len(m.store.packs) != 0 || leftovers(t, m) != 0 {
				t.Fatal("something of it was kept")
			}
		})
	}
	t.Run("server's last words on channel 3", func(t *testing.T) {
		s := newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)), nil)
		s.pack = func(w io.Writer) {
			w.Write(appendPacket(nil, "packfile"))
			fmt.Fprintf(w, "%04x\x03%s", 5+24, "disk on fire\x1b[31m\nplease")
		}
		_, err := open(t, t.TempDir(), s.url()).Fetch(t.Context())
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "disk on fire[31m please") {
			t.Fatalf("%q", err)
		}
	})
}
