package gitrepo

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
)

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
