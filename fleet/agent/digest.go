package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digester sums up a snapshot row by row, so that neither side has to hold it twice. What it covers
// is fixed: a field that a later protocol adds is no part of it, so that versions agree.
type Digester struct {
	h    hash.Hash
	rows int64
	part []byte
}

// NewDigester begins a snapshot.
func NewDigester() *Digester {
	return &Digester{h: sha256.New(), part: []byte("argosy snapshot 1\n")}
}

// Add takes the next row: what and whose it is, what is to become of it, and the hash of its
// manifest.
func (d *Digester) Add(r *Row) {
	for _, s := range []string{string(r.Kind), r.Name, string(r.Tenant), string(r.Environment),
		string(r.Deployment),
		string(r.Operation), string(r.Deletion), string(r.Revision), r.Hash} {
		d.part = appendPart(d.part, s)
	}
	d.part = binary.BigEndian.AppendUint64(d.part, uint64(r.Seq))
	d.h.Write(d.part)
	d.part = d.part[:0]
	d.rows++
}

// Sum is the digest of the snapshot with that epoch and cursor: SHA-256, hexadecimal. It ends the
// Digester.
func (d *Digester) Sum(epoch, cursor int64) string {
	for _, n := range []int64{d.rows, epoch, cursor} {
		d.part = binary.BigEndian.AppendUint64(d.part, uint64(n))
	}
	d.h.Write(d.part)
	return hex.EncodeToString(d.h.Sum(nil))
}

// Digest is that of a whole snapshot.
func Digest(s *Snapshot) string {
	d := NewDigester()
	for i := range s.Rows {
		d.Add(&s.Rows[i])
	}
	return d.Sum(s.Epoch, s.Cursor)
}

// appendPart adds a text with its length before it, so that no two lists of texts have the same
// bytes.
func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}
