package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// maxDeltaDepth is Git's own ceiling for chains of deltas in a pack.
const maxDeltaDepth = 4095

// object is one entry of an incoming pack.
type object struct {
	offset int64
	size   int64 // inflated; of a delta, the delta's own
	id     plumbing.Hash
	crc    uint32
	base   int32 // position of a delta's base; -1 for none, or not known yet
	depth  uint16
	kind   plumbing.ObjectType // of a delta: OFSDeltaObject or REFDeltaObject until it is resolved
}

// incoming is a pack being received. Its file is not part of the mirror until the store installs
// it.
type incoming struct {
	ctx     context.Context
	budget  Budget
	file    scratch
	size    int64
	sum     plumbing.Hash
	objects []object
	byRef   map[int32]plumbing.Hash // base ids, by the delta's position
	gaps    bool                    // some objects are too large to build, and have no id
}

// scratch is the file of an incoming pack. Tests simulate a full disk behind it.
type scratch interface {
	io.Writer
	io.ReaderAt
	Sync() error
	Close() error
	Name() string
}

func createScratch(dir string) (scratch, error) {
	return os.CreateTemp(dir, "pack-")
}

// receive reads a pack to its end and checks it against the budgets while it arrives. Deltas have
// no id yet: resolve computes it. Objects are hashed as a stream, so that an object that inflates
// to gigabytes (CVE-2025-21614) takes no memory; its readers reject it.
func receive(ctx context.Context, r io.Reader, b Budget, create func() (scratch, error)) (*incoming,
	error) {
	file, err := create()
	if err != nil {
		return nil, storageError("incoming pack", err)
	}
	in := &incoming{ctx: ctx, budget: b, file: file, byRef: map[int32]plumbing.Hash{}}
	if err := in.scan(r); err != nil {
		in.discard()
		return nil, err
	}
	return in, nil
}

func (in *incoming) discard() {
	in.file.Close()
	os.Remove(in.file.Name())
}

// scan copies the stream to the file and lists its objects. It stops at the pack's own checksum.
func (in *incoming) scan(r io.Reader) error {
	copied := &copyWriter{w: in.file}
	tee := io.TeeReader(r, copied)
	s := packfile.NewScanner(tee)
	_, count, err := s.Header()
	if err != nil {
		return in.scanFailure(err)
	}
	if int64(count) > int64(in.budget.Objects) {
		return overBudget("", "objects", int64(in.budget.Objects),
			"the pack announces more; raise source.maxObjects if the repository is that large")
	}
	in.objects = make([]object, 0, min(count, 1<<16))
	for range count {
		if err := in.scanObject(s); err != nil {
			return in.scanFailure(err)
		}
	}
	if in.sum, err = s.Checksum(); err != nil {
		return in.scanFailure(err)
	}
	return in.scanEnd(tee, copied)
}

// scanEnd checks that nothing follows the pack: the file must end with the checksum.
func (in *incoming) scanEnd(rest io.Reader, copied *copyWriter) error {
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return in.scanFailure(err)
	}
	var last plumbing.Hash
	if _, err := in.file.ReadAt(last[:], copied.n-int64(len(last))); err != nil {
		return storageError(in.file.Name(), err)
	}
	if last != in.sum {
		return unavailable("the server sent more after the pack")
	}
	in.size = copied.n
	return nil
}

func (in *incoming) scanObject(s *packfile.Scanner) error {
	if err := in.ctx.Err(); err != nil {
		return err
	}
	h, err := s.NextObjectHeader()
	if err != nil {
		return err
	}
	if h.Length < 0 {
		return unavailable("the pack has an object of a size that no integer holds")
	}
	o := object{offset: h.Offset, size: h.Length, kind: h.Type, base: -1}
	var sink io.Writer
	var hasher plumbing.Hasher
	var delta deltaHeader
	switch h.Type {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		hasher = plumbing.NewHasher(h.Type, h.Length)
		sink = hasher
	case plumbing.OFSDeltaObject:
		base, ok := in.positionOf(h.OffsetReference)
		if !ok {
			return unavailable("the pack has a delta without a base")
		}
		o.base, sink = base, &delta
		if o.depth = in.objects[base].depth + 1; o.depth > maxDeltaDepth {
			return tooDeep()
		}
	case plumbing.REFDeltaObject:
		in.byRef[int32(len(in.objects))], sink = h.Reference, &delta
	default:
		return unavailable("the pack has an object of unknown type %d", h.Type)
	}
	n, crc, err := s.NextObject(sink)
	if err != nil {
		return err
	}
	if n != h.Length {
		return unavailable("the pack has an object shorter than it claims")
	}
	o.crc = crc
	if hasher.Hash != nil {
		o.id = hasher.Sum()
	}
	in.objects = append(in.objects, o)
	return nil
}

// positionOf finds the object at an offset of the pack; they arrive in that order.
func (in *incoming) positionOf(offset int64) (int32, bool) {
	i, ok := slices.BinarySearchFunc(in.objects, offset, func(o object, at int64) int {
		return cmp.Compare(o.offset, at)
	})
	return int32(i), ok
}

// scanFailure classifies the scanner's error: the connection, the disk, a budget, or the pack
// itself.
func (in *incoming) scanFailure(err error) error {
	var known *Error
	switch {
	case in.ctx.Err() != nil:
		return in.ctx.Err()
	case errors.As(err, &known):
		return known
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return unavailable("the pack is cut off")
	default:
		return unavailable("the pack cannot be read: %v", err)
	}
}

// copyWriter counts, and marks a failed write as an error of the mirror.
type copyWriter struct {
	w scratch
	n int64
}

func (c *copyWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if err != nil {
		return n, storageError(filepath.Base(c.w.Name()), err)
	}
	return n, nil
}

// resolve computes the id of every delta of the pack, by building its object. It keeps a base only
// while unresolved deltas on it remain; of several deltas it resolves the one with the largest
// family last, in place of its base, so that the chains of Git's own packs need log2(objects)
// objects at most, and a hostile pack that needs more hits a limit.
func (in *incoming) resolve() error {
	err := in.resolveFamilies()
	var known *Error
	switch {
	case err == nil:
		return nil
	case in.ctx.Err() != nil:
		err = in.ctx.Err()
	case !errors.As(err, &known): // the object was readable when it arrived
		err = storageError(in.file.Name(), err)
	}
	in.discard()
	return err
}

// family links each base to the deltas on it, as positions in the pack; -1 ends a list.
type family struct {
	in       *incoming
	eldest   []int32                   // first delta on a base
	sibling  []int32                   // next delta on the same base
	weight   []int32                   // deltas below, itself included, as far as known
	byBaseID map[plumbing.Hash][]int32 // deltas whose base has a not yet known id
	inMemory int64                     // bytes in memory of bases with unresolved deltas
	spool    spool                     // builds objects too large for memory
}

func (in *incoming) resolveFamilies() error {
	n := len(in.objects)
	f := &family{in: in, eldest: fill(n, -1), sibling: fill(n, -1), weight: fill(n, 0),
		byBaseID: map[plumbing.Hash][]int32{}}
	f.spool = spool{ctx: in.ctx, dir: filepath.Dir(in.file.Name()), memory: in.budget.ObjectBytes,
		disk: spoolBytes}
	var roots []int32
	deltas := 0
	for i := n - 1; i >= 0; i-- {
		switch o := &in.objects[i]; {
		case !o.kind.IsDelta():
			roots = append(roots, int32(i))
			continue
		case o.base >= 0:
			f.sibling[i], f.eldest[o.base] = f.eldest[o.base], int32(i)
		default:
			ref := in.byRef[int32(i)]
			f.byBaseID[ref] = append(f.byBaseID[ref], int32(i))
		}
		deltas++
	}
	if deltas == 0 {
		return nil
	}
	for _, root := range roots {
		if err := f.resolveFrom(root); err != nil {
			return err
		}
	}
	if len(f.byBaseID) > 0 && !in.gaps {
		return unavailable("the pack has a delta whose base it does not hold")
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

func (f *family) resolveFrom(root int32) error {
	o := &f.in.objects[root]
	f.adopt(root)
	if f.eldest[root] < 0 {
		return nil
	}
	f.countFamily(root)
	e, err := readEntry(f.in.file, o.offset)
	if err != nil {
		return err
	}
	data, err := f.spool.inflate(e)
	if errors.Is(err, errTooLarge) {
		f.in.gaps = true
		return nil
	}
	if err != nil {
		return err
	}
	return f.resolveBelow(root, o.kind, data)
}

// adopt links a base to the deltas that wait for its id.
func (f *family) adopt(base int32) {
	id := f.in.objects[base].id
	for _, d := range f.byBaseID[id] {
		f.in.objects[d].base = base
		f.sibling[d], f.eldest[base] = f.eldest[base], d
		f.countFamily(d)
	}
	delete(f.byBaseID, id)
}

// countFamily counts a family. receive limits chains to maxDeltaDepth, which bounds the recursion.
func (f *family) countFamily(i int32) int32 {
	f.weight[i] = 1
	for d := f.eldest[i]; d >= 0; d = f.sibling[d] {
		f.weight[i] += f.countFamily(d)
	}
	return f.weight[i]
}

// resolveBelow resolves all deltas below base, and releases data, the base's content.
func (f *family) resolveBelow(base int32, kind plumbing.ObjectType, data *content) (err error) {
	defer func() { data.release() }()
	for f.eldest[base] >= 0 {
		heaviest := f.eldest[base]
		for d := heaviest; d >= 0; d = f.sibling[d] {
			if f.weight[d] > f.weight[heaviest] {
				heaviest = d
			}
		}
		if f.sibling[f.eldest[base]] >= 0 {
			if err := f.resolveOthers(base, heaviest, kind, &data); err != nil {
				return err
			}
		}
		target, err := f.apply(base, heaviest, kind, data)
		if err != nil || target == nil {
			return err
		}
		data.release()
		base, data = heaviest, target
	}
	return nil
}

// resolveOthers resolves all deltas on base except the heaviest, while the base is in memory.
func (f *family) resolveOthers(base, heaviest int32, kind plumbing.ObjectType,
	data **content) error {
	if err := f.spill(data); err != nil {
		return err
	}
	held := int64(len((*data).data))
	f.inMemory += held
	defer func() { f.inMemory -= held }()
	for d := f.eldest[base]; d >= 0; d = f.sibling[d] {
		if d == heaviest {
			continue
		}
		target, err := f.apply(base, d, kind, *data)
		if err != nil {
			return err
		}
		if target == nil {
			continue
		}
		if err := f.resolveBelow(d, kind, target); err != nil {
			return err
		}
	}
	return nil
}

// spill moves a base out of memory if bases with unresolved deltas use too much of it.
func (f *family) spill(data **content) error {
	if f.inMemory+int64(len((*data).data)) <= deltaMemory*f.in.budget.ObjectBytes {
		return nil
	}
	onDisk := f.spool
	onDisk.memory = -1
	moved, err := onDisk.make((*data).size, func(w io.Writer) error {
		_, err := io.Copy(w, (*data).reader())
		return err
	})
	if errors.Is(err, errTooLarge) {
		return overBudget("", "disk", spoolBytes,
			"the pack's deltas take more to resolve; the source is broken or hostile")
	}
	if err != nil {
		return err
	}
	f.spool.diskUsed, moved.spool = onDisk.diskUsed, &f.spool
	(*data).release()
	*data = moved
	return nil
}

// apply builds the object of delta d on its base, and records its id, kind and depth. It returns
// nil for an object that is too large to build: the object and all deltas on it have no id, and the
// pack has gaps.
func (f *family) apply(base, d int32, kind plumbing.ObjectType, data *content) (*content, error) {
	if err := f.in.ctx.Err(); err != nil {
		return nil, err
	}
	o := &f.in.objects[d]
	if o.depth = f.in.objects[base].depth + 1; o.depth > maxDeltaDepth {
		return nil, tooDeep()
	}
	e, err := readEntry(f.in.file, o.offset)
	if err != nil {
		return nil, err
	}
	target, err := f.spool.patch(data, e)
	switch {
	case errors.Is(err, errTooLarge):
		f.in.gaps = true
		return nil, nil
	case errors.Is(err, errEntry):
		return nil, unavailable("the pack has a delta that does not fit its base")
	case err != nil:
		return nil, err
	}
	o.kind = kind
	if target.file == nil {
		o.id = plumbing.ComputeHash(kind, target.data)
	} else {
		hash := plumbing.NewHasher(kind, target.size)
		if _, err := io.Copy(hash, contextReader{f.in.ctx, target.reader()}); err != nil {
			target.release()
			return nil, err
		}
		o.id = hash.Sum()
	}
	f.adopt(d)
	return target, nil
}

func tooDeep() error {
	return overBudget("", "delta depth", maxDeltaDepth,
		"Git makes no such pack; the source is broken or hostile")
}
