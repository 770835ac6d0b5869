package gitrepo

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet/mirror"
)

func TestFetch(t *testing.T) {
	for _, version := range []string{"version 2", "version 0"} {
		t.Run(version, func(t *testing.T) {
			o := newOrigin(t)
			s := newGitServer(t, o)
			s.version0.Store(version == "version 0")
			m := open(t, t.TempDir(), s.url())

			o.write("README.md", "outside")
			first := o.set("tenants/acme/deployments/checkout.yaml", "one")
			h := fetch(t, m)
			if h.Commit != first || !h.Moved || h.FirstParent != "" ||
				h.Time.Unix() != int64(o.clock) {
				t.Fatalf("first fetch: %+v", h)
			}
			if got := files(t, m, h.Commit); !maps.Equal(got, map[string]string{
				"tenants/acme/deployments/checkout.yaml": "one"}) {
				t.Fatalf("files: %v", got)
			}

			o.write("fleet/fleet.yaml", "fleet")
			second := o.set("tenants/acme/deployments/checkout.yaml", "two")
			h = fetch(t, m)
			if h.Commit != second || !h.Moved || h.FirstParent != first {
				t.Fatalf("second fetch: %+v", h)
			}
			changes, err := m.Diff(t.Context(), first, second)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, c := range changes {
				paths = append(paths, c.Path+" "+string(c.Old.Kind)+">"+string(c.New.Kind))
			}
			if d := cmp.Diff([]string{"fleet/fleet.yaml >file",
				"tenants/acme/deployments/checkout.yaml file>file"}, paths); d != "" {
				t.Fatal(d)
			}
			if h = fetch(t, m); h.Moved || h.Commit != second {
				t.Fatalf("third fetch: %+v", h)
			}
			if r, err := m.Relation(t.Context(), first, second); r != mirror.RelationDescendant ||
				err != nil {
				t.Fatal(r, err)
			}
		})
	}
}

func TestFetchTransfersNewObjectsOnly(t *testing.T) {
	o := newOrigin(t)
	random := rand.New(rand.NewPCG(1, 2))
	// incompressible: the first pack stays well above twice the second
	for i := range 300 {
		o.write(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", i),
			fmt.Sprintf("%x%x", random.Uint64(), random.Uint64()))
	}
	o.commit("many")
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	fetch(t, m)
	before := len(m.store.packs)
	o.set("tenants/acme/deployments/new.yaml", "new")
	fetch(t, m)
	if before != 1 || len(m.store.packs) != 2 {
		t.Fatalf("%d packs, then %d", before, len(m.store.packs))
	}
	small := m.store.packs[1]
	if n := len(appendEntries(nil, small.index, 0)); n > 6 {
		t.Fatalf("the second pack holds %d objects; a commit, its trees and a file were new", n)
	}
}

func TestOneConnectionForAllFetches(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	for _, version0 := range []bool{false, true} {
		s := newGitServer(t, o)
		s.version0.Store(version0)
		m := open(t, t.TempDir(), s.url())
		for i := range 3 {
			fetch(t, m)
			fetch(t, m)
			o.set("fleet/fleet.yaml", fmt.Sprint(i))
		}
		if n := s.connections.Load(); n != 1 {
			t.Errorf("version 0 %v: %d connections", version0, n)
		}
	}
}

func TestRequestsPerFetch(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	count := func() int64 { s.requests.Store(0); fetch(t, m); return s.requests.Load() }
	got := []int64{count(), count()}
	o.set("fleet/fleet.yaml", "2")
	got = append(got, count())
	if want := []int64{3, 1, 2}; !slices.Equal(got, want) {
		t.Fatalf("requests of a clone, a poll and a fetch: %v, want %v", got, want)
	}
}
