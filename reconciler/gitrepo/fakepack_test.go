package gitrepo

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// fakePack writes packs that git would not write.
type fakePack struct {
	body  bytes.Buffer
	count uint32
}

func deflate(data []byte) []byte {
	var b bytes.Buffer
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

var deflaters = sync.Pool{New: func() any { return zlib.NewWriter(nil) }}

// head appends the kind and size of an entry and returns its offset.
func (p *fakePack) head(kind plumbing.ObjectType, size uint64) int64 {
	offset := int64(packHeader + p.body.Len())
	p.count++
	c := byte(kind)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	p.body.WriteByte(c)
	return offset
}

func (p *fakePack) object(kind plumbing.ObjectType, data []byte) (int64, plumbing.Hash) {
	offset := p.head(kind, uint64(len(data)))
	p.body.Write(deflate(data))
	return offset, plumbing.ComputeHash(kind, data)
}

func (p *fakePack) ofsDelta(base int64, delta []byte) int64 {
	offset := p.head(plumbing.OFSDeltaObject, uint64(len(delta)))
	back := offset - base
	width := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		width = append([]byte{0x80 | byte(back&0x7f)}, width...)
	}
	p.body.Write(width)
	p.body.Write(deflate(delta))
	return offset
}

func (p *fakePack) refDelta(base plumbing.Hash, delta []byte) int64 {
	offset := p.head(plumbing.REFDeltaObject, uint64(len(delta)))
	p.body.Write(base[:])
	p.body.Write(deflate(delta))
	return offset
}

// delta builds target bytes from a base of a given size by copying its beginning repeatedly, then
// adds a suffix.
func delta(base, copied int, suffix string) []byte {
	d := binary.AppendUvarint(nil, uint64(base))
	d = binary.AppendUvarint(d, uint64(copied+len(suffix)))
	for copied > 0 {
		n := min(copied, base, 0xffff)
		d = append(d, 0x80|0x10|0x20, byte(n), byte(n>>8))
		copied -= n
	}
	if suffix != "" {
		d = append(append(d, byte(len(suffix))), suffix...)
	}
	return d
}

func (p *fakePack) bytes() []byte { return p.announcing(p.count) }

// announcing closes the pack with the given count.
func (p *fakePack) announcing(count uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count)
	b = append(b, p.body.Bytes()...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// commitOn adds a commit of a tree and returns its id.
func (p *fakePack) commitOn(tree plumbing.Hash) plumbing.Hash {
	_, id := p.object(plumbing.CommitObject,
		fmt.Appendf(nil, "tree %s\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n", tree))
	return id
}

// withEmptyTree adds the empty tree.
func withEmptyTree(p *fakePack) *fakePack {
	p.object(plumbing.TreeObject, nil)
	return p
}

// treeOf returns a tree object with lines "mode name", all with one id.
func treeOf(id plumbing.Hash, lines ...string) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l + "\x00")
		b.Write(id[:])
	}
	return b.Bytes()
}

// serve makes a commit of a given tree, below a folder or as the root, the tip of the branch. The
// pack also has a blob "x" and an empty tree.
func (f *fakeServer) serve(tree []byte, under string) Hash {
	var p fakePack
	p.object(plumbing.BlobObject, []byte("x"))
	p.object(plumbing.TreeObject, nil)
	_, id := p.object(plumbing.TreeObject, tree)
	if under != "" {
		_, id = p.object(plumbing.TreeObject, treeOf(id, "40000 "+under))
	}
	f.tip = p.commitOn(id)
	pack := packets(p.bytes())
	f.pack = func(w io.Writer) { w.Write(pack) }
	return publicHash(f.tip)
}

var (
	blobX     = plumbing.ComputeHash(plumbing.BlobObject, []byte("x"))
	emptyTree = plumbing.ComputeHash(plumbing.TreeObject, nil)
)

// fakeServer speaks version 2 and serves configured packs.
type fakeServer struct {
	*httptest.Server
	tip  plumbing.Hash
	pack func(w io.Writer) // writes packets
	size int               // of the last pack of commitFiles
}

// commitFiles makes a commit of files below fleet/ the tip. Its pack has the trees and the new
// files.
func (f *fakeServer) commitFiles(contents []string, parent plumbing.Hash,
	new ...string) plumbing.Hash {
	var p fakePack
	var tree []byte
	for i, text := range contents {
		tree = append(tree, treeOf(plumbing.ComputeHash(plumbing.BlobObject, []byte(text)),
			fmt.Sprintf("100644 f%04d", i))...)
	}
	for _, text := range new {
		p.object(plumbing.BlobObject, []byte(text))
	}
	_, id := p.object(plumbing.TreeObject, tree)
	_, root := p.object(plumbing.TreeObject, treeOf(id, "40000 fleet"))
	line := ""
	if !parent.IsZero() {
		line = "parent " + parent.String() + "\n"
	}
	_, f.tip = p.object(plumbing.CommitObject,
		fmt.Appendf(nil, "tree %s\n%sauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n",
			root, line))
	pack := packets(p.bytes())
	f.size, f.pack = len(pack), func(w io.Writer) { w.Write(pack) }
	return f.tip
}

func newFakeServer(t testing.TB, tip plumbing.Hash, pack []byte) *fakeServer {
	t.Helper()
	f := &fakeServer{tip: tip}
	f.pack = func(w io.Writer) { w.Write(packets(pack)) }
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func packets(pack []byte) []byte {
	out := appendPacket(nil, "packfile")
	for len(pack) > 0 {
		n := min(len(pack), 65000)
		out = append(fmt.Appendf(out, "%04x\x01", n+5), pack[:n]...)
		pack = pack[n:]
	}
	return append(out, flushPacket...)
}

func (f *fakeServer) url() string { return f.URL + "/config.git" }

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		w.Write(append(appendPacket(appendPacket(nil, "version 2"), "ls-refs"), flushPacket...))
		return
	}
	request, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	if bytes.Contains(request, []byte("ls-refs")) {
		_, asked, _ := strings.Cut(string(request), "ref-prefix ")
		ref, _, _ := strings.Cut(asked, "\n")
		w.Write(append(appendPacket(nil, "%s %s", f.tip, ref), flushPacket...))
		return
	}
	f.pack(w)
}
