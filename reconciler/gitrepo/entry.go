package gitrepo

import (
	"bufio"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// entry is the header of one object in a pack file (gitformat-pack). Its content is read by
// position, so that many readers share one file.
type entry struct {
	file io.ReaderAt
	kind plumbing.ObjectType
	size int64         // inflated; of a delta, the delta's own
	base int64         // offset of the base, for OFSDeltaObject
	ref  plumbing.Hash // id of the base, for REFDeltaObject
	body int64         // offset of the deflated content
}

var errEntry = errors.New("not an entry of a pack")

// readEntry reads the header of the entry at offset.
func readEntry(file io.ReaderAt, offset int64) (entry, error) {
	var buf [32]byte // 10 for kind and size, then 20 for a hash or 10 for an offset
	n, err := file.ReadAt(buf[:], offset)
	if n == 0 || (err != nil && err != io.EOF) {
		return entry{}, errors.Join(errEntry, err)
	}
	head := buf[:n]
	e := entry{file: file, kind: plumbing.ObjectType(head[0] >> 4 & 7), size: int64(head[0] & 15)}
	at := 1
	for shift := 4; head[at-1]&0x80 != 0; shift += 7 {
		if at == len(head) || shift > 56 {
			return entry{}, errEntry
		}
		e.size |= int64(head[at]&0x7f) << shift
		at++
	}
	switch e.kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		back, width := backReference(head[at:])
		if width == 0 || back <= 0 || back >= offset {
			return entry{}, errEntry
		}
		e.base, at = offset-back, at+width
	case plumbing.REFDeltaObject:
		if at += copy(e.ref[:], head[at:]); at > len(head) {
			return entry{}, errEntry
		}
	default:
		return entry{}, errEntry
	}
	e.body = offset + int64(at)
	return e, nil
}

// backReference returns the distance to the base of a delta: seven bits a byte, each further byte
// adding one before it shifts.
func backReference(b []byte) (value int64, width int) {
	for i, c := range b {
		if i > 8 {
			return 0, 0
		}
		if i > 0 {
			value++
		}
		value = value<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			return value, i + 1
		}
	}
	return 0, 0
}

// inflaters are expensive to allocate and safe to reuse.
var inflaters = sync.Pool{New: func() any { return new(inflater) }}

type inflater struct {
	z    io.ReadCloser
	src  *bufio.Reader
	rest [1]byte
}

// inflate reads exactly size bytes of content; more or fewer are an error. The caller has checked
// the size against a limit.
func (e entry) inflate(size int64) ([]byte, error) {
	if e.size != size {
		return nil, errEntry
	}
	f := inflaters.Get().(*inflater)
	defer inflaters.Put(f)
	if err := f.reset(io.NewSectionReader(e.file, e.body, 1<<62)); err != nil {
		return nil, errors.Join(errEntry, err)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f.z, data); err != nil {
		return nil, errors.Join(errEntry, err)
	}
	// Read to the end of the stream, where its checksum is compared.
	if n, err := f.z.Read(f.rest[:]); n != 0 || err != io.EOF {
		return nil, errors.Join(errEntry, err)
	}
	return data, nil
}

func (f *inflater) reset(r io.Reader) (err error) {
	if f.src == nil {
		f.src = bufio.NewReaderSize(r, 8<<10)
	} else {
		f.src.Reset(r)
	}
	if f.z == nil {
		f.z, err = zlib.NewReader(f.src)
		return err
	}
	return f.z.(zlib.Resetter).Reset(f.src, nil)
}

// deltaHeader parses the beginning of a delta: the sizes of its base and of its result, as
// variable-length numbers.
type deltaHeader struct {
	buf [2 * binary.MaxVarintLen64]byte
	n   int
}

func (d *deltaHeader) Write(p []byte) (int, error) {
	d.n += copy(d.buf[d.n:], p)
	return len(p), nil
}

// target returns the size of the delta's result; -1 if the delta omits it.
func (d *deltaHeader) target() int64 {
	_, n := binary.Uvarint(d.buf[:d.n])
	if n <= 0 {
		return -1
	}
	size, m := binary.Uvarint(d.buf[n:d.n])
	if m <= 0 || size > 1<<62 {
		return -1
	}
	return int64(size)
}

// deltaTarget returns the same for a delta in memory.
func deltaTarget(delta []byte) int64 {
	var d deltaHeader
	d.n = copy(d.buf[:], delta)
	return d.target()
}

// sameHash reports whether data matches id. It detects damage only, and so may use the faster
// implementation: receive checks ids against forged collisions.
func sameHash(id plumbing.Hash, kind plumbing.ObjectType, data []byte) bool {
	h := sha1.New()
	h.Write(strconv.AppendInt(append(kind.Bytes(), ' '), int64(len(data)), 10))
	h.Write([]byte{0})
	h.Write(data)
	return plumbing.Hash(h.Sum(nil)) == id
}
