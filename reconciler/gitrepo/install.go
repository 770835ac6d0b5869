package gitrepo

import (
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
)

// install adds an incoming pack to the mirror. It joins the new pack with existing packs that are
// not at least twice as large as everything newer, so that there are fewer than log2(bytes) packs
// and each byte is copied at most that often, for any number of fetches.
func (s *store) install(in *incoming) error {
	s.mu.RLock()
	for _, p := range s.packs {
		if p.index.PackfileChecksum == in.sum {
			s.mu.RUnlock()
			in.discard() // the server sent objects that are already here
			return nil
		}
	}
	if in.gaps {
		if err := s.write(gapsFile, nil); err != nil {
			s.mu.RUnlock()
			in.discard()
			return storageError(s.dir, err)
		}
	}
	keep, total := len(s.packs), in.size
	for keep > 0 && s.packs[keep-1].size < 2*total {
		keep--
		total += s.packs[keep].size
	}
	absorbed := s.packs[keep:]
	s.mu.RUnlock() // only the fetch installs, so the list does not change meanwhile

	file, entries, sum := in.file, in.entries(packHeader), in.sum
	if len(absorbed) > 0 {
		var err error
		if file, entries, sum, err = s.join(absorbed, in); err != nil {
			return storageError(s.dir, err)
		}
	}
	p, err := s.place(file, buildIndex(entries, sum))
	if err != nil {
		os.Remove(file.Name())
		return storageError(s.dir, err)
	}
	s.swap(p, absorbed)
	return nil
}

// entries lists the incoming objects with their offsets if the pack's body starts at offset body.
func (in *incoming) entries(body int64) []indexed {
	entries := make([]indexed, 0, len(in.objects))
	for _, o := range in.objects {
		if !o.id.IsZero() {
			entries = append(entries, indexed{o.id, o.crc, o.offset + body - packHeader})
		}
	}
	return entries
}

// join writes one pack with the bodies of several, one after the other. The bodies stay unchanged:
// a delta names its base by their distance, or by id.
func (s *store) join(packs []*pack, in *incoming) (scratch, []indexed, plumbing.Hash, error) {
	file, err := s.create(s.incomingDir())
	if err != nil {
		return nil, nil, plumbing.ZeroHash, err
	}
	hash := sha1.New()
	out := io.MultiWriter(file, hash)
	var entries []indexed
	var body int64 = packHeader
	for _, p := range packs {
		entries = appendEntries(entries, p.index, body-packHeader)
		body += p.size - packHeader - packTrailer
	}
	entries = append(entries, in.entries(body)...)
	_, err = out.Write(binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"),
		uint32(len(entries))))
	for _, p := range packs {
		if err == nil {
			_, err = io.Copy(out, io.NewSectionReader(p.file, packHeader,
				p.size-packHeader-packTrailer))
		}
	}
	if err == nil {
		_, err = io.Copy(out, io.NewSectionReader(in.file, packHeader,
			in.size-packHeader-packTrailer))
	}
	sum := plumbing.Hash(hash.Sum(nil))
	if err == nil {
		_, err = file.Write(sum[:])
	}
	in.discard()
	if err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, nil, plumbing.ZeroHash, err
	}
	return file, entries, sum, nil
}

// place syncs a finished pack and its index and renames them, the index last: a pack without an
// index is ignored.
func (s *store) place(file scratch, index *idxfile.MemoryIndex) (*pack, error) {
	if err := closeSynced(file, nil); err != nil {
		return nil, err
	}
	path := filepath.Join(s.packDir(), "pack-"+plumbing.Hash(index.PackfileChecksum).String())
	temp, err := writeIndex(s.incomingDir(), index)
	if err == nil {
		err = os.Rename(file.Name(), path+".pack")
	}
	if err == nil {
		err = os.Rename(temp, path+".idx")
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(temp))
	}
	f, err := os.Open(path + ".pack")
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &pack{path: path, file: f, index: index, size: info.Size()}, nil
}

// swap replaces the absorbed packs by p. Readers hold the lock while they read, so none is
// interrupted.
func (s *store) swap(p *pack, absorbed []*pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // closed meanwhile; the next Open finds the files
		p.close()
		return
	}
	s.packs = append(s.packs[:len(s.packs)-len(absorbed):len(s.packs)-len(absorbed)], p)
	for _, old := range absorbed {
		old.close()
		if old.path != p.path {
			old.remove()
		}
	}
	s.sort()
}
