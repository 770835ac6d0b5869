package gitrepo

import (
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// resolve gives every delta of the pack its id, by building the object it stands for. A base is inflated once and held only while
// deltas on it remain; of several deltas the one that carries the largest family comes last and takes its base's place, so that at most
// log2(objects) objects are held at once, whatever shape the chains have.
func (in *incoming) resolve() error {
	err := in.resolveAll()
	var known *Error
	switch {
	case err == nil:
		return nil
	case in.ctx.Err() != nil:
		err = in.ctx.Err()
	case !errors.As(err, &known): // it could be read when it came in
		err = storageError(in.file.Name(), err)
	}
	in.discard()
	return err
}

func (in *incoming) resolveAll() error {
	if err := in.resolveFamilies(); err != nil {
		return err
	}
	// A delta may name its base by the id of an object that is itself a delta: such bases are known only now.
	for len(in.byRef) > 0 {
		known := map[plumbing.Hash]int32{}
		for i := range in.objects {
			if o := &in.objects[i]; !o.kind.IsDelta() {
				known[o.id] = int32(i)
			}
		}
		progress := false
		for position, ref := range in.byRef {
			base, ok := known[ref]
			if !ok {
				continue
			}
			o := &in.objects[position]
			if o.base, o.depth = base, in.objects[base].depth+1; o.depth > maxDeltaDepth {
				return in.tooDeep()
			}
			delete(in.byRef, position)
			progress = true
		}
		if !progress {
			return unavailable("the pack has a delta whose base it does not hold")
		}
		if err := in.resolveFamilies(); err != nil {
			return err
		}
	}
	return nil
}

func (in *incoming) tooDeep() error {
	return overBudget("", "delta depth", maxDeltaDepth, "Git makes no such pack; the source is broken or hostile")
}

// family links each base to the deltas on it, as positions in the pack; -1 ends a list.
type family struct {
	in      *incoming
	eldest  []int32 // first delta on a base
	sibling []int32 // next delta on the same base
	weight  []int32 // deltas below, itself included
	held    int64   // bytes of bases that wait for more deltas
}

// resolveFamilies resolves every delta whose chain of bases ends in an object that is known.
func (in *incoming) resolveFamilies() error {
	n := len(in.objects)
	f := &family{in: in, eldest: fill(n, -1), sibling: fill(n, -1), weight: fill(n, 0)}
	waiting := false
	for i := n - 1; i >= 0; i-- {
		if o := &in.objects[i]; o.kind.IsDelta() && o.base >= 0 {
			f.sibling[i], f.eldest[o.base] = f.eldest[o.base], int32(i)
			waiting = true
		}
	}
	if !waiting {
		return nil
	}
	for i := range in.objects {
		if in.objects[i].kind.IsDelta() || f.eldest[i] < 0 {
			continue
		}
		f.weigh(int32(i))
		kind, data, err := in.build(int32(i))
		if err != nil {
			return err
		}
		if err := f.descend(int32(i), kind, data); err != nil {
			return err
		}
	}
	return nil
}

func fill(n int, value int32) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = value
	}
	return s
}

// weigh counts a family. Chains are at most maxDeltaDepth deep, so the recursion is.
func (f *family) weigh(i int32) int32 {
	f.weight[i] = 1
	for d := f.eldest[i]; d >= 0; d = f.sibling[d] {
		f.weight[i] += f.weigh(d)
	}
	return f.weight[i]
}

// descend resolves all deltas below base, whose content is data.
func (f *family) descend(base int32, kind plumbing.ObjectType, data []byte) error {
	for {
		heaviest := f.eldest[base]
		for d := f.eldest[base]; d >= 0; d = f.sibling[d] {
			if f.weight[d] > f.weight[heaviest] {
				heaviest = d
			}
		}
		if heaviest < 0 {
			return nil
		}
		if err := f.hold(int64(len(data))); err != nil {
			return err
		}
		for d := f.eldest[base]; d >= 0; d = f.sibling[d] {
			if d == heaviest {
				continue
			}
			target, err := f.apply(d, kind, data)
			if err != nil {
				return err
			}
			if err := f.descend(d, kind, target); err != nil {
				return err
			}
		}
		f.held -= int64(len(data))
		target, err := f.apply(heaviest, kind, data)
		if err != nil {
			return err
		}
		base, data = heaviest, target
	}
}

func (f *family) hold(n int64) error {
	if f.held += n; f.held > deltaMemory {
		return overBudget("", "memory", deltaMemory, "the pack's deltas take more to resolve; the source is broken or hostile")
	}
	return nil
}

// apply builds the object that delta d makes of base, and notes its id and kind.
func (f *family) apply(d int32, kind plumbing.ObjectType, base []byte) ([]byte, error) {
	if err := f.in.ctx.Err(); err != nil {
		return nil, err
	}
	o := &f.in.objects[d]
	e, err := readEntry(f.in.file, o.offset)
	if err != nil {
		return nil, err
	}
	delta, err := e.inflate(o.size)
	if err != nil {
		return nil, err
	}
	target, err := packfile.PatchDelta(base, delta)
	if err != nil {
		return nil, unavailable("the pack has a delta that does not fit its base")
	}
	o.kind, o.id = kind, plumbing.ComputeHash(kind, target)
	return target, nil
}

// build reads an object that is known, through its chain of deltas if it has one.
func (in *incoming) build(i int32) (plumbing.ObjectType, []byte, error) {
	var chain []int32
	for in.objects[i].base >= 0 {
		chain = append(chain, i)
		i = in.objects[i].base
	}
	e, err := readEntry(in.file, in.objects[i].offset)
	if err != nil {
		return 0, nil, err
	}
	data, err := e.inflate(in.objects[i].size)
	if err != nil {
		return 0, nil, err
	}
	kind := in.objects[i].kind
	f := &family{in: in}
	for k := len(chain) - 1; k >= 0; k-- {
		if data, err = f.apply(chain[k], kind, data); err != nil {
			return 0, nil, err
		}
	}
	return kind, data, nil
}
