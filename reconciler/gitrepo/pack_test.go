package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

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
		_, root := p.object(plumbing.TreeObject,
			treeOf(plumbing.ComputeHash(plumbing.BlobObject, []byte(text)), "100644 fleet"))
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
		_, err := open(t, t.TempDir(), newFakeServer(t, p.commitOn(id), p.bytes()).url()).Fetch(
			t.Context())
		wantBudget(t, err, "delta depth")
	})
	t.Run("few of many large bases stay in memory", func(t *testing.T) {
		const size = 1 << 20
		var p fakePack
		at, _ := p.object(plumbing.BlobObject, make([]byte, size))
		level := []int64{at}
		for range 8 { // a binary tree of deltas: the shape that needs the most memory
			var next []int64
			for _, base := range level {
				for k := range 2 {
					next = append(next, p.ofsDelta(base, delta(size, size-1, fmt.Sprint(k))))
				}
			}
			level = next
		}
		tip := p.commitOn(emptyTree)
		m := open(t, t.TempDir(), newFakeServer(t, tip, withEmptyTree(&p).bytes()).url(),
			WithBudget(Budget{ObjectBytes: size}))
		if got := fetch(t, m).Commit; string(got) != tip.String() {
			t.Fatalf("%v, want %v", got, tip)
		}
	})
}

// Bases with unresolved deltas move to disk as soon as they exceed a few objects of the largest
// size. The test counts bytes, because the memory of a process depends on its garbage collector.
func TestBasesWithUnresolvedDeltasKeepFewObjectsInMemory(t *testing.T) {
	const size = 1 << 10
	f := &family{in: &incoming{budget: Budget{ObjectBytes: size}}}
	f.spool = spool{ctx: t.Context(), dir: t.TempDir(), memory: size, disk: spoolBytes}
	want := strings.Repeat("x", size)
	for waiting, onDisk := range map[int64]bool{0: false, deltaMemory - 1: false,
		deltaMemory: true} {
		f.inMemory = waiting * size
		base := &content{data: []byte(want), size: size, spool: &f.spool}
		if err := f.spill(&base); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(base.reader())
		if err != nil || string(got) != want || (base.file != nil) != onDisk ||
			(base.data == nil) != onDisk {
			t.Errorf("%d wait: on disk %v, want %v (%v)", waiting, base.file != nil, onDisk, err)
		}
		base.release()
		if f.spool.diskUsed != 0 {
			t.Errorf("%d wait: %d bytes on disk after the release", waiting, f.spool.diskUsed)
		}
	}
}

func TestTimeBudgetEndsWorkOnHostileDeltas(t *testing.T) {
	const size = 8 << 20
	var p fakePack
	at, _ := p.object(plumbing.BlobObject, make([]byte, size))
	for range 3000 { // each a few hundred bytes that take 8 MiB of copying and hashing
		at = p.ofsDelta(at, delta(size, size-1, "x"))
	}
	m := open(t, t.TempDir(), newFakeServer(t, p.commitOn(plumbing.ZeroHash), p.bytes()).url(),
		WithBudget(Budget{Time: 500 * time.Millisecond}))
	start := time.Now()
	_, err := m.Fetch(t.Context())
	if !errors.Is(err, ErrTimedOut) || time.Since(start) > 20*time.Second {
		t.Fatalf("%v after %s", err, time.Since(start))
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
			m := open(t, t.TempDir(), newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)),
				pack).url())
			_, err := m.Fetch(t.Context())
			if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			if len(m.store.packs) != 0 || leftovers(t, m) != 0 {
				t.Fatal("leftovers of it remain")
			}
		})
	}
	t.Run("server's error on channel 3", func(t *testing.T) {
		s := newFakeServer(t, plumbing.NewHash(strings.Repeat("1", 40)), nil)
		s.pack = func(w io.Writer) {
			w.Write(appendPacket(nil, "packfile"))
			fmt.Fprintf(w, "%04x\x03%s", 5+24, "disk on fire\x1b[31m\nplease")
		}
		_, err := open(t, t.TempDir(), s.url()).Fetch(t.Context())
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(),
			"disk on fire[31m please") {
			t.Fatalf("%q", err)
		}
	})
}
