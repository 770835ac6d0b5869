package gitrepo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// spool builds objects that are too large for memory in temporary files. Any tenant can push such
// an object, and the rest of the repository must stay readable: a commit with a huge message is
// still a step of history, and Git may store another tenant's file as a delta of a huge one.
type spool struct {
	ctx      context.Context
	dir      string
	memory   int64 // an object up to this size is built in memory
	disk     int64 // total bytes of temporary files
	diskUsed int64
}

// spoolBytes bounds the temporary files of one fetch or read. Git itself makes no deltas of files
// above 512 MiB (core.bigFileThreshold).
const spoolBytes = 2 << 30

// content holds the bytes of one object: in memory, or in an unlinked temporary file.
type content struct {
	data  []byte
	file  *os.File
	size  int64
	spool *spool
}

func (c *content) ReadAt(p []byte, at int64) (int, error) {
	if c.file != nil {
		return c.file.ReadAt(p, at)
	}
	return bytes.NewReader(c.data).ReadAt(p, at)
}

func (c *content) reader() io.Reader { return io.NewSectionReader(c, 0, c.size) }

// release frees the bytes.
func (c *content) release() {
	if c.file != nil {
		c.file.Close()
		c.spool.diskUsed -= c.size
	}
	c.file, c.data = nil, nil
}

// make writes an object of a known size. It returns errTooLarge if the disk budget is exhausted.
func (s *spool) make(size int64, fill func(io.Writer) error) (*content, error) {
	c := &content{size: size, spool: s}
	if size <= s.memory {
		b := bytes.NewBuffer(make([]byte, 0, size))
		if err := fill(b); err != nil {
			return nil, err
		}
		c.data = b.Bytes()
		return c, c.complete(int64(b.Len()))
	}
	if s.diskUsed+size > s.disk {
		return nil, tooLarge{size}
	}
	f, err := os.CreateTemp(s.dir, "large-")
	if err != nil {
		return nil, storageError(s.dir, err)
	}
	os.Remove(f.Name()) // unlinked, but still open
	c.file = f
	s.diskUsed += size
	w := &countWriter{w: bufio.NewWriterSize(f, 256<<10), left: size}
	if err = fill(w); err == nil {
		err = w.w.Flush()
	}
	if err == nil {
		err = c.complete(size - w.left)
	}
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func (c *content) complete(written int64) error {
	if written != c.size {
		return errEntry
	}
	return nil
}

// countWriter rejects more bytes than expected.
type countWriter struct {
	w    *bufio.Writer
	left int64
}

func (w *countWriter) Write(p []byte) (int, error) {
	if w.left -= int64(len(p)); w.left < 0 {
		return 0, errEntry
	}
	return w.w.Write(p)
}

// inflate returns the content of an entry that is no delta.
func (s *spool) inflate(e entry) (*content, error) {
	return s.make(e.size, func(w io.Writer) error {
		return e.stream(func(r io.Reader) error {
			_, err := io.Copy(w, contextReader{s.ctx, r})
			return err
		})
	})
}

// patch applies the delta of an entry to its base.
func (s *spool) patch(base *content, e entry) (*content, error) {
	if base.file == nil && e.size <= s.memory {
		delta, err := e.inflate(e.size)
		if err != nil {
			return nil, err
		}
		if target := deltaTarget(delta); target >= 0 && target <= s.memory {
			data, err := packfile.PatchDelta(base.data, delta)
			if err != nil {
				return nil, errEntry
			}
			return &content{data: data, size: int64(len(data)), spool: s}, nil
		}
	}
	var c *content
	err := e.stream(func(r io.Reader) error {
		delta := bufio.NewReader(contextReader{s.ctx, r})
		from, err := binary.ReadUvarint(delta)
		if err != nil || from != uint64(base.size) {
			return errEntry
		}
		to, err := binary.ReadUvarint(delta)
		if err != nil || to > 1<<62 {
			return errEntry
		}
		c, err = s.make(int64(to), func(w io.Writer) error {
			return applyDelta(w, base, delta, int64(to))
		})
		return err
	})
	if err != nil && c != nil {
		c.release()
		return nil, err
	}
	return c, err
}

// applyDelta executes the instructions of a delta: copies from the base, and literal bytes.
func applyDelta(w io.Writer, base *content, delta *bufio.Reader, left int64) error {
	for {
		op, err := delta.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		from, n := io.Reader(delta), int64(op)
		switch {
		case op == 0:
			return errEntry
		case op&0x80 != 0:
			var at int64
			if at, n, err = copyRange(op, delta); err != nil {
				return err
			}
			if at+n > base.size {
				return errEntry
			}
			from = io.NewSectionReader(base, at, n)
		}
		if left -= n; left < 0 {
			return errEntry
		}
		if _, err := io.CopyN(w, from, n); err != nil {
			return err
		}
	}
}

// copyRange reads the start and the length of a copy: one bit of op for each byte present.
func copyRange(op byte, delta *bufio.Reader) (at, n int64, err error) {
	for i := range 7 {
		if op&(1<<i) == 0 {
			continue
		}
		b, err := delta.ReadByte()
		if err != nil {
			return 0, 0, errEntry
		}
		if i < 4 {
			at |= int64(b) << (8 * i)
		} else {
			n |= int64(b) << (8 * (i - 4))
		}
	}
	if n == 0 {
		n = 0x10000
	}
	return at, n, nil
}

// contextReader aborts a long copy when the context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// stream calls use with the inflated content of an entry; use must read to the end.
func (e entry) stream(use func(io.Reader) error) error {
	f := inflaters.Get().(*inflater)
	defer inflaters.Put(f)
	if err := f.reset(io.NewSectionReader(e.file, e.body, 1<<62)); err != nil {
		return errors.Join(errEntry, err)
	}
	if err := use(io.LimitReader(f.z, e.size)); err != nil {
		return err
	}
	// the checksum is compared at the end
	if n, err := f.z.Read(f.rest[:]); n != 0 || err != io.EOF {
		return errors.Join(errEntry, err)
	}
	return nil
}

// whole returns the object at offset, of any size, with bases of any size. The caller releases it.
func (p *pack) whole(s *spool, offset int64) (plumbing.ObjectType, *content, error) {
	var chain []entry
	for {
		e, err := readEntry(p.file, offset)
		if err != nil {
			return 0, nil, err
		}
		if !e.kind.IsDelta() {
			c, err := s.inflate(e)
			for i := len(chain) - 1; err == nil && i >= 0; i-- {
				base := c
				c, err = s.patch(base, chain[i])
				base.release()
			}
			return e.kind, c, err
		}
		if chain = append(chain, e); len(chain) > maxDeltaDepth {
			return 0, nil, errEntry
		}
		if offset, err = p.baseOf(e); err != nil {
			return 0, nil, err
		}
	}
}

// readLarge is read for an object with a large base.
func (p *pack) readLarge(s *spool, offset, limit int64) (plumbing.ObjectType, []byte, error) {
	kind, c, err := p.whole(s, offset)
	if err != nil {
		return 0, nil, err
	}
	defer c.release()
	if c.size > limit {
		return 0, nil, tooLarge{c.size}
	}
	data, err := io.ReadAll(c.reader())
	return kind, data, err
}

func (s *store) spool() *spool {
	return &spool{ctx: context.Background(), dir: s.incomingDir(), memory: s.baseLimit,
		disk: spoolBytes}
}

// prefix reads the first bytes of an object that is too large for memory. It still verifies the
// whole object against its id.
func (s *store) prefix(id plumbing.Hash, want plumbing.ObjectType, n int64) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed(s.dir)
	}
	for _, p := range s.packs {
		offset, ok := find(p.index, id)
		if !ok {
			continue
		}
		kind, first, sum, err := p.prefix(s.spool(), offset, n)
		switch {
		case errors.Is(err, errTooLarge):
			return nil, err
		case err != nil || sum != id:
			return nil, corrupt(p.path, "object %s cannot be read from the pack", id)
		case kind != want:
			return nil, malformed(id.String(), "is a %s where a %s must be", kind, want)
		}
		return first, nil
	}
	return nil, missing(want.String(), id)
}

func (p *pack) prefix(s *spool, offset, n int64) (plumbing.ObjectType, []byte, plumbing.Hash,
	error) {
	e, err := readEntry(p.file, offset)
	if err != nil {
		return 0, nil, plumbing.ZeroHash, err
	}
	if !e.kind.IsDelta() {
		out := prefixWriter{limit: n, hash: plumbing.NewHasher(e.kind, e.size)}
		err := e.stream(func(r io.Reader) error {
			_, err := io.Copy(&out, contextReader{s.ctx, r})
			return err
		})
		return e.kind, out.first, out.hash.Sum(), err
	}
	kind, c, err := p.whole(s, offset)
	if err != nil {
		return 0, nil, plumbing.ZeroHash, err
	}
	defer c.release()
	out := prefixWriter{limit: n, hash: plumbing.NewHasher(kind, c.size)}
	_, err = io.Copy(&out, c.reader())
	return kind, out.first, out.hash.Sum(), err
}

// prefixWriter hashes everything and keeps the beginning.
type prefixWriter struct {
	first []byte
	limit int64
	hash  plumbing.Hasher
}

func (w *prefixWriter) Write(p []byte) (int, error) {
	if room := w.limit - int64(len(w.first)); room > 0 {
		w.first = append(w.first, p[:min(room, int64(len(p)))]...)
	}
	return w.hash.Write(p)
}
