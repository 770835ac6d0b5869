package gitrepo

import (
	"context"
	"crypto/sha1"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

const (
	packHeader  = 12
	packTrailer = 20
)

// errTooLarge matches every tooLarge.
var errTooLarge = errors.New("object larger than the limit")

// tooLarge is the error for an object that is too large to read; size is -1 if unknown.
type tooLarge struct{ size int64 }

func (e tooLarge) Error() string        { return errTooLarge.Error() }
func (e tooLarge) Is(target error) bool { return target == errTooLarge }

// errLargeBase: the object has a base that is too large for memory; see large.go.
var errLargeBase = errors.New("object builds on one larger than the limit")

// pack is one pack of the mirror, open for reading by any number of goroutines.
type pack struct {
	path  string // without .pack or .idx
	file  *os.File
	index *idxfile.MemoryIndex
	size  int64
}

// openPack opens a pack and proves that both its files are complete and unmodified.
func openPack(ctx context.Context, path string) (*pack, error) {
	index, err := readIndex(path + ".idx")
	if err != nil {
		return nil, corrupt(filepath.Base(path)+".idx", "%v", err)
	}
	file, err := os.Open(path + ".pack")
	if err != nil {
		return nil, corrupt(filepath.Base(path)+".pack", "%v", err)
	}
	p := &pack{path: path, file: file, index: index}
	if err := p.verify(ctx); err != nil {
		file.Close()
		return nil, err
	}
	return p, nil
}

// verify compares the pack's bytes with the checksum at its end and in its index.
func (p *pack) verify(ctx context.Context) error {
	info, err := p.file.Stat()
	if err != nil {
		return storageError(p.path, err)
	}
	p.size = info.Size()
	if p.size < packHeader+packTrailer {
		return corrupt(filepath.Base(p.path), "the pack is too short")
	}
	h := sha1.New()
	body := io.NewSectionReader(p.file, 0, p.size-packTrailer)
	if _, err := io.Copy(h, readerFunc(func(b []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return body.Read(b)
	})); err != nil {
		return storageError(p.path, err)
	}
	var sum [packTrailer]byte
	if _, err := p.file.ReadAt(sum[:], p.size-packTrailer); err != nil {
		return storageError(p.path, err)
	}
	if [packTrailer]byte(h.Sum(nil)) != sum || p.index.PackfileChecksum != sum {
		return corrupt(filepath.Base(p.path), "the pack does not match its checksum")
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// link is one delta of a chain: applying data to the next link's object, or to the chain's base,
// gives the object at offset.
type link struct {
	offset int64
	data   []byte
}

// read builds the object at offset. limit bounds the object itself, baseLimit its bases. A too
// large object gives errTooLarge before it is inflated.
func (p *pack) read(offset, limit, baseLimit int64, bases *baseCache) (plumbing.ObjectType, []byte,
	error) {
	var chain []link
	for {
		if kind, data, ok := bases.get(p, offset); ok {
			return p.build(kind, data, chain, limit, bases)
		}
		e, err := readEntry(p.file, offset)
		if err != nil {
			return 0, nil, err
		}
		switch {
		case len(chain) == 0 && !e.kind.IsDelta() && e.size > limit:
			return 0, nil, tooLarge{e.size}
		case e.size > baseLimit:
			return 0, nil, errLargeBase
		}
		content, err := e.inflate(e.size)
		if err != nil {
			return 0, nil, err
		}
		if !e.kind.IsDelta() {
			if len(chain) > 0 {
				bases.put(p, offset, e.kind, content)
			}
			return p.build(e.kind, content, chain, limit, bases)
		}
		switch target := deltaTarget(content); {
		case target < 0:
			return 0, nil, errEntry
		case len(chain) == 0 && target > limit:
			return 0, nil, tooLarge{target}
		case target > baseLimit:
			return 0, nil, errLargeBase
		}
		if chain = append(chain, link{offset, content}); len(chain) > maxDeltaDepth {
			return 0, nil, errEntry
		}
		if offset, err = p.baseOf(e); err != nil {
			return 0, nil, err
		}
	}
}

func (p *pack) baseOf(e entry) (int64, error) {
	if e.kind == plumbing.OFSDeltaObject {
		return e.base, nil
	}
	offset, ok := find(p.index, e.ref)
	if !ok {
		return 0, errEntry
	}
	return offset, nil
}

// build applies a chain of deltas, the last first, to its base.
func (p *pack) build(kind plumbing.ObjectType, data []byte, chain []link, limit int64,
	bases *baseCache) (plumbing.ObjectType, []byte, error) {
	var err error
	for i := len(chain) - 1; i >= 0; i-- {
		if data, err = packfile.PatchDelta(data, chain[i].data); err != nil {
			return 0, nil, errEntry
		}
		if i > 0 {
			bases.put(p, chain[i].offset, kind, data)
		}
	}
	if int64(len(data)) > limit {
		return 0, nil, tooLarge{int64(len(data))}
	}
	return kind, data, nil
}

func (p *pack) close() error { return p.file.Close() }

// remove deletes the files. The index goes first: a pack without one is ignored.
func (p *pack) remove() {
	os.Remove(p.path + ".idx")
	os.Remove(p.path + ".pack")
}
