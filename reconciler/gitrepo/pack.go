package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

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

// baseCache keeps recently used delta bases. A first walk reads tens of thousands of small files
// that share bases; without the cache each read would rebuild its whole chain. It has two
// generations: the older one is dropped as a whole when the younger is full.
type baseCache struct {
	mu         sync.Mutex
	young, old map[baseKey]baseValue
	bytes      int
}

const (
	baseCacheBytes   = 16 << 20 // of one generation
	baseCacheMaxItem = 1 << 20
)

type baseKey struct {
	p      *pack
	offset int64
}

type baseValue struct {
	kind plumbing.ObjectType
	data []byte
}

func (c *baseCache) get(p *pack, offset int64) (plumbing.ObjectType, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := baseKey{p, offset}
	v, ok := c.young[key]
	if !ok {
		if v, ok = c.old[key]; ok {
			c.keep(key, v)
		}
	}
	return v.kind, v.data, ok
}

func (c *baseCache) put(p *pack, offset int64, kind plumbing.ObjectType, data []byte) {
	if len(data) > baseCacheMaxItem {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(baseKey{p, offset}, baseValue{kind, data})
}

func (c *baseCache) keep(key baseKey, v baseValue) {
	if c.young == nil || c.bytes+len(v.data) > baseCacheBytes {
		c.old, c.young, c.bytes = c.young, map[baseKey]baseValue{}, 0
	}
	c.young[key] = v
	c.bytes += len(v.data)
}

func (c *baseCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.bytes = nil, nil, 0
}

// indexed is one line of a pack's index.
type indexed struct {
	id     plumbing.Hash
	crc    uint32
	offset int64
}

// buildIndex builds the index of a pack. It lists an object that the pack contains twice twice, as
// Git does; go-git's own writer drops the second, after which Git reports a mismatch of pack and
// index.
func buildIndex(entries []indexed, sum plumbing.Hash) *idxfile.MemoryIndex {
	slices.SortFunc(entries, func(a, b indexed) int { return bytes.Compare(a.id[:], b.id[:]) })
	x := idxfile.NewMemoryIndex()
	x.Version, x.PackfileChecksum = idxfile.VersionSupported, sum
	for i := range x.FanoutMapping {
		x.FanoutMapping[i] = -1
	}
	for _, e := range entries {
		first := e.id[0]
		if x.FanoutMapping[first] < 0 {
			x.FanoutMapping[first] = len(x.Names)
			x.Names, x.CRC32, x.Offset32 = append(x.Names, nil), append(x.CRC32, nil),
				append(x.Offset32, nil)
		}
		x.Fanout[first]++
		b := len(x.Names) - 1
		offset := uint32(e.offset)
		if e.offset >= 1<<31 {
			offset = 1<<31 | uint32(len(x.Offset64)/8)
			x.Offset64 = binary.BigEndian.AppendUint64(x.Offset64, uint64(e.offset))
		}
		x.Names[b] = append(x.Names[b], e.id[:]...)
		x.CRC32[b] = binary.BigEndian.AppendUint32(x.CRC32[b], e.crc)
		x.Offset32[b] = binary.BigEndian.AppendUint32(x.Offset32[b], offset)
	}
	for i := 1; i < len(x.Fanout); i++ {
		x.Fanout[i] += x.Fanout[i-1]
	}
	return x
}

// appendEntries appends an index's entries, with every offset moved by shift.
func appendEntries(entries []indexed, x *idxfile.MemoryIndex, shift int64) []indexed {
	for bucket, names := range x.Names {
		for i := range len(names) / len(plumbing.ZeroHash) {
			var e indexed
			copy(e.id[:], names[i*len(e.id):])
			e.crc = binary.BigEndian.Uint32(x.CRC32[bucket][4*i:])
			e.offset = offsetAt(x, bucket, i) + shift
			entries = append(entries, e)
		}
	}
	return entries
}

func offsetAt(x *idxfile.MemoryIndex, bucket, i int) int64 {
	offset := binary.BigEndian.Uint32(x.Offset32[bucket][4*i:])
	if offset&(1<<31) == 0 {
		return int64(offset)
	}
	at := 8 * int(offset&^(1<<31))
	if at+8 > len(x.Offset64) {
		return -1 // an invalid offset: reading it detects the damage
	}
	return int64(binary.BigEndian.Uint64(x.Offset64[at:]))
}

// writeIndex writes an index and syncs it.
func writeIndex(dir string, x *idxfile.MemoryIndex) (string, error) {
	f, err := os.CreateTemp(dir, "idx-")
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	if _, err = idxfile.NewEncoder(&buf).Encode(x); err == nil {
		_, err = f.Write(buf.Bytes())
	}
	return f.Name(), closeSynced(f, err)
}

func readIndex(path string) (*idxfile.MemoryIndex, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x := idxfile.NewMemoryIndex()
	return x, idxfile.NewDecoder(f).Decode(x)
}

// find returns the offset of an object. The index's own lookup caches every query in a map, which
// would grow without bound.
func find(x *idxfile.MemoryIndex, id plumbing.Hash) (int64, bool) {
	bucket := x.FanoutMapping[id[0]]
	if bucket < 0 || bucket >= len(x.Names) {
		return 0, false
	}
	names := x.Names[bucket]
	low, high := 0, len(names)/len(id)
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := bytes.Compare(names[mid*len(id):(mid+1)*len(id)], id[:]); {
		case c == 0:
			return offsetAt(x, bucket, mid), true
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	return 0, false
}
