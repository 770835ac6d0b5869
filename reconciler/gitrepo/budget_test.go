package gitrepo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// wantBudget checks that err names the spent budget.
func wantBudget(t *testing.T, err error, budget string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrOverBudget) || e.Budget != budget {
		t.Fatalf("got %v, want the %s budget", err, budget)
	}
}

// allocated returns how many bytes f allocates, garbage included: an upper bound of its memory.
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
	// production limits are larger; the test needs more than the budget, and incompressible
	noise := make([]byte, 8<<20)
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
	// Six trees, each with ten references to the next, expand to a million files from less than a
	// kilobyte.
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
	unreadable(t, m, fetch(t, m).Commit,
		"tenants/n0/ tenants/n1/ tenants/n2/ tenants/n3/ tenants/n4/ tenants/n5/ tenants/n6/ "+
			"tenants/n7/ tenants/n8/ tenants/n9/")

	t.Run("directories alone count too", func(t *testing.T) {
		var p fakePack
		_, id := p.object(plumbing.TreeObject, nil)
		for range 8 {
			_, id = p.object(plumbing.TreeObject, treeOf(id, "40000 a", "40000 b", "40000 c",
				"40000 d", "40000 e", "40000 f"))
		}
		_, root := p.object(plumbing.TreeObject, treeOf(id, "40000 fleet"))
		s := newFakeServer(t, p.commitOn(root), p.bytes())
		m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Files: 50_000}))
		unreadable(t, m, fetch(t, m).Commit, "fleet/")
	})
}

// unreadable checks that a commit consists of unreadable folders, and compares them with want.
func unreadable(t *testing.T, m *Mirror, commit Hash, want string) {
	t.Helper()
	var got []string
	err := m.Walk(t.Context(), commit, func(e Entry) error {
		got = append(got, e.Path)
		if e.Kind != Unreadable || !strings.Contains(e.Why, "raise source.maxFiles") ||
			!strings.Contains(e.Why, "(commit "+commit.Short()+" by ") {
			t.Error(e)
		}
		return nil
	})
	if err != nil || strings.Join(got, " ") != want {
		t.Fatal(got, err)
	}
}

func TestHundredThousandRefs(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	var refs strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&refs, "%s refs/pull/%06d/head\n", first, i)
	}
	if err := os.WriteFile(filepath.Join(o.dir, "packed-refs"),
		[]byte("# pack-refs with: sorted \n"+refs.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newGitServer(t, o)
	t.Run("version 2 never sees them", func(t *testing.T) {
		m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Bytes: 64 << 10}))
		if h := fetch(t, m); h.Commit != first {
			t.Fatal(h)
		}
	})
	t.Run("version 0 keeps none in memory", func(t *testing.T) {
		s.version0.Store(true)
		m := open(t, t.TempDir(), s.url())
		var h Head
		used := allocated(func() { h = fetch(t, m) })
		if h.Commit != first || used > 64<<20 {
			t.Fatalf("%v, %d bytes allocated", h, used)
		}
	})
	t.Run("version 0 stops at the budget", func(t *testing.T) {
		m := open(t, t.TempDir(), s.url(), WithBudget(Budget{Bytes: 1 << 20}))
		_, err := m.Fetch(t.Context())
		wantBudget(t, err, "bytes")
	})
}

func TestObjectThatClaimsFourGigabytes(t *testing.T) {
	zeros := deflate(make([]byte, 64<<20))
	for name, size := range map[string]uint64{"lies about it": 100, "has not got them": 4 << 30,
		"has a length that no integer holds": 1<<63 + 5} {
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

func TestFileBytesBudget(t *testing.T) {
	o := newOrigin(t)
	o.write("tenants/acme/deployments/large.yaml", strings.Repeat("a: b\n", 1000))
	o.write("tenants/acme/deployments/small.yaml", "a: b\n")
	o.commit("both")
	m := open(t, t.TempDir(), newGitServer(t, o).url(), WithBudget(Budget{FileBytes: 1000}))
	h := fetch(t, m) // the other files stay readable beside one large file
	var got []string
	err := m.Walk(t.Context(), h.Commit, func(e Entry) error {
		_, err := m.Blob(t.Context(), e.Blob)
		if err != nil {
			wantBudget(t, err, "file bytes")
		}
		got = append(got, fmt.Sprint(e.Path, err == nil))
		return nil
	})
	if err != nil ||
		strings.Join(got,
			" ") != "tenants/acme/deployments/large.yamlfalse "+
			"tenants/acme/deployments/small.yamltrue" {
		t.Fatal(got, err)
	}
}

func TestBudgetRefusesNegativeLimits(t *testing.T) {
	if _, err := Open(t.Context(), t.TempDir(), Source{URL: "https://git.example.com/a"},
		WithBudget(Budget{Files: -1})); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}
