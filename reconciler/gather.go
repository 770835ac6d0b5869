package reconciler

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet/catalog"
)

// gatherer decodes files on all processors while more files are read, and sorts the results by
// path.
type gatherer struct {
	decoder Decoder
	listed  *follower // nil: no repository is listed
	files   chan File
	all     sync.WaitGroup

	mu     sync.Mutex
	inputs []catalog.Input
}

func newGatherer(d Decoder, listed *follower) *gatherer {
	g := &gatherer{decoder: d, listed: listed, files: make(chan File, 64)}
	for range runtime.GOMAXPROCS(0) {
		g.all.Go(g.decode)
	}
	return g
}

func (g *gatherer) take(f File) error {
	g.files <- f
	return nil
}

func (g *gatherer) decode() {
	for f := range g.files {
		if g.listed != nil {
			f.Listings = g.listed.listings
		}
		if in, ours := g.decoder.Decode(f); ours {
			if g.listed != nil {
				in = g.listed.warn(in)
			}
			g.mu.Lock()
			g.inputs = append(g.inputs, in)
			g.mu.Unlock()
		}
	}
}

// wait ends the gathering; take must not be called afterwards.
func (g *gatherer) wait() []catalog.Input {
	close(g.files)
	g.all.Wait()
	slices.SortFunc(g.inputs, func(a, b catalog.Input) int { return cmp.Compare(a.Path, b.Path) })
	return g.inputs
}
