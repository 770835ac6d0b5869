package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// known fails the test for an error that a caller could not classify.
func known(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v", err, err)
	}
}

// FuzzPack feeds bytes as a pack. Every accepted object must read back with content that matches
// its id.
func FuzzPack(f *testing.F) {
	var p fakePack
	at, id := p.object(plumbing.BlobObject, []byte(strings.Repeat("base ", 20)))
	at = p.ofsDelta(at, delta(100, 60, "ofs"))
	p.ofsDelta(at, delta(63, 10, "more"))
	p.refDelta(id, delta(100, 90, "ref"))
	p.commitOn(plumbing.ZeroHash)
	f.Add(p.bytes())
	var small fakePack
	small.object(plumbing.TreeObject, nil)
	f.Add(small.bytes())
	f.Add([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"))
	budget := Budget{Objects: 1000, ObjectBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > packHeader { // give most inputs a correct checksum
			var q fakePack
			q.body.Write(data[packHeader:max(packHeader, len(data)-packTrailer)])
			data = q.announcing(uint32(data[packHeader-1]))
		}
		dir := t.TempDir()
		in, err := receive(t.Context(), bytes.NewReader(data), budget, func() (scratch, error) {
			return createScratch(dir)
		})
		if err == nil {
			err = in.resolve()
		}
		if err != nil {
			known(t, err)
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Fatal("files are left behind")
			}
			return
		}
		defer in.discard()
		file, err := os.Open(in.file.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		q := &pack{file: file, size: in.size, index: buildIndex(in.entries(packHeader), in.sum)}
		for _, o := range in.objects {
			offset, _ := find(q.index, o.id)
			kind, text, err := q.read(offset, budget.ObjectBytes, budget.ObjectBytes,
				new(baseCache))
			if err != nil || kind != o.kind || !sameHash(o.id, kind, text) {
				t.Fatalf("%s %s: %v", o.kind, o.id, err)
			}
		}
	})
}

// fixedServer is a server with a fixed answer.
type fixedServer struct {
	answer io.Reader
	keep   bool
}

func (s *fixedServer) open(context.Context) (io.Reader, error)        { return s.answer, nil }
func (s *fixedServer) ask(context.Context, []byte) (io.Reader, error) { return s.answer, nil }
func (s *fixedServer) stateless() bool                                { return !s.keep }
func (s *fixedServer) Close() error                                   { return nil }

// FuzzAnswer feeds bytes as a server's complete answer, in both versions of the protocol.
func FuzzAnswer(f *testing.F) {
	id := strings.Repeat("ab", 20)
	advert := appendPacket(nil, "version 2")
	advert = append(appendPacket(advert, "ls-refs"), flushPacket...)
	advert = append(appendPacket(advert, "%s refs/heads/main", id), flushPacket...)
	f.Add(append(advert, packets([]byte("PACK"))...), true)
	zero := appendPacket(nil, "# service=git-upload-pack")
	zero = append(zero, flushPacket...)
	zero = appendPacket(zero, "%s refs/heads/main\x00side-band-64k ofs-delta", id)
	zero = append(appendPacket(zero, "%s refs/tags/v1", id), flushPacket...)
	f.Add(append(appendPacket(zero, "NAK"), packets([]byte("PACK"))...), true)
	f.Add([]byte("001eERR access denied or so"), false)
	f.Fuzz(func(t *testing.T, data []byte, keep bool) {
		c := &conversation{channel: &fixedServer{bytes.NewReader(data), keep}}
		tips, err := c.tips(t.Context(), []string{"refs/heads/main", "HEAD"}, false)
		if err != nil {
			known(t, err)
			return
		}
		tip, ok := tips["refs/heads/main"]
		if !ok {
			return
		}
		r, err := c.pack(t.Context(), packRequest{wants: []plumbing.Hash{tip},
			haves: []plumbing.Hash{tip}, shallow: keep, noBlobs: !keep})
		if err != nil {
			known(t, err)
			return
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			known(t, err)
		}
	})
}
