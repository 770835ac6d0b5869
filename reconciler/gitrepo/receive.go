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
