package hub

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
)

// spool holds a snapshot's rows, compressed, from the read until a slow agent has received them. So
// no database connection waits for an agent, and a replica does not hold the rows twice. Manifests
// are similar and shrink to a tenth.
type spool struct {
	packed bytes.Buffer
	in     *flate.Writer
	size   int64
	most   int64
}

func newSpool(most int64) *spool {
	s := &spool{most: most}
	s.in, _ = flate.NewWriter(&s.packed, flate.BestSpeed) // the level is valid
	return s
}

var errSnapshotTooLarge = errors.New("the snapshot is larger than an agent takes")

// add appends one row.
func (s *spool) add(row []byte) error {
	if s.size += int64(len(row)) + 1; s.size > s.most {
		return errSnapshotTooLarge
	}
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(row)))
	if _, err := s.in.Write(length[:]); err != nil {
		return err
	}
	_, err := s.in.Write(row)
	return err
}

// each calls f for the rows in order. The bytes are valid until the next call.
func (s *spool) each(f func(row []byte) error) error {
	if err := s.in.Close(); err != nil {
		return err
	}
	out := bufio.NewReader(flate.NewReader(&s.packed))
	var row []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(out, length[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(length[:]))
		if cap(row) < n {
			row = make([]byte, n)
		}
		row = row[:n]
		if _, err := io.ReadFull(out, row); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
}
