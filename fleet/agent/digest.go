package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digester hashes a snapshot row by row, so that neither side holds a second copy. The hashed
// fields are fixed: a field that a later protocol adds is not hashed, so that versions agree.
type Digester struct {
	h    hash.Hash
	rows int64
	part []byte
}

// NewDigester starts the digest of a snapshot.
func NewDigester() *Digester {
	return &Digester{h: sha256.New(), part: []byte("argosy snapshot 1\n")}
}

// Add hashes the next row: its identity, its operation and the hash of its manifest.
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

// Sum returns the SHA-256 of a snapshot with this epoch and cursor, in hexadecimal. The Digester
// cannot be used afterwards.
func (d *Digester) Sum(epoch, cursor int64) string {
	for _, n := range []int64{d.rows, epoch, cursor} {
		d.part = binary.BigEndian.AppendUint64(d.part, uint64(n))
	}
	d.h.Write(d.part)
	return hex.EncodeToString(d.h.Sum(nil))
}

// Digest returns the digest of a complete snapshot.
func Digest(s *Snapshot) string {
	d := NewDigester()
	for i := range s.Rows {
		d.Add(&s.Rows[i])
	}
	return d.Sum(s.Epoch, s.Cursor)
}

// appendPart appends a length-prefixed string, so that no two lists of strings have the same bytes.
func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}
