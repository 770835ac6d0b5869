package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
)

// store is the mirror's directory: a bare repository that git itself can read, with a record of its
// source. Files are synced first and then renamed into it, so that a process killed at any
// instruction leaves the old state or the new one. Checksums detect the damage of a machine crash
// or a failing disk, and the mirror is cloned again.
type store struct {
	dir       string
	baseLimit int64
	bases     baseCache
	create    func(dir string) (scratch, error)

	mu     sync.RWMutex
	packs  []*pack // largest first
	closed bool
	// number of resets, so that a reader detects that an object is missing after a reset
	resets atomic.Int64
}

// record identifies the source of a directory. A directory without one is never emptied.
type record struct {
	URL string `json:"url"`
	ID  string `json:"id,omitempty"`
}

const (
	recordFile = "argosy-mirror.json"
	// some received objects could not be built: a missing object is no damage
	gapsFile = "argosy-mirror.gaps"
	lockFile = "argosy-mirror.lock"
)

func (s *store) packDir() string     { return filepath.Join(s.dir, "objects", "pack") }
func (s *store) incomingDir() string { return filepath.Join(s.dir, "incoming") }

// openStore opens the mirror in dir, or starts a new one if dir is empty, mirrors another source or
// is damaged.
func openStore(ctx context.Context, dir string, want record, baseLimit int64) (*store, error) {
	s := &store{dir: dir, baseLimit: baseLimit, create: createScratch}
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := mustBeEmpty(dir); err != nil {
			return nil, err
		}
		return s, s.reset(want)
	}
	if err != nil {
		return nil, storageError(dir, err)
	}
	var have record
	if json.Unmarshal(text, &have) != nil || have != want {
		return s, s.reset(want)
	}
	if err := s.layout(); err != nil {
		return nil, storageError(dir, err)
	}
	if err := s.load(ctx); errors.Is(err, ErrCorrupt) {
		return s, s.reset(want)
	} else if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func mustBeEmpty(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return storageError(dir, err)
	}
	for _, n := range names {
		if n.Name() != lockFile {
			return &Error{Kind: ErrRefused, Subject: dir,
				Detail: fmt.Sprintf("the directory holds %q and is not a mirror; give an empty one",
					n.Name())}
		}
	}
	return nil
}

// reset empties the mirror and records its source. It writes the record after it has removed refs
// and objects, and the record is never missing in between.
func (s *store) reset(want record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets.Add(1)
	err := s.release()
	for _, name := range []string{"refs", "objects", "incoming", gapsFile} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	if err == nil {
		err = s.layout()
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(want)
	}
	if err == nil {
		err = s.write(recordFile, text)
	}
	if err == nil {
		err = s.write("config", []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"))
	}
	if err != nil {
		return storageError(s.dir, err)
	}
	return nil
}

func (s *store) layout() error {
	if err := os.RemoveAll(s.incomingDir()); err != nil { // leftovers of a killed process
		return err
	}
	for _, d := range []string{s.incomingDir(), s.packDir(),
		filepath.Join(s.dir, "refs", "heads")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// load opens every pack with an index and deletes those without, the leftovers of an incomplete
// installation.
func (s *store) load(ctx context.Context) error {
	files, err := os.ReadDir(s.packDir())
	if err != nil {
		return storageError(s.packDir(), err)
	}
	for _, f := range files {
		base, isPack := strings.CutSuffix(f.Name(), ".pack")
		if !isPack {
			continue
		}
		path := filepath.Join(s.packDir(), base)
		if _, err := os.Stat(path + ".idx"); errors.Is(err, fs.ErrNotExist) {
			os.Remove(path + ".pack")
			continue
		}
		p, err := openPack(ctx, path)
		if err != nil {
			return err
		}
		s.packs = append(s.packs, p)
	}
	s.sort()
	return nil
}

func (s *store) sort() {
	slices.SortStableFunc(s.packs, func(a, b *pack) int {
		return int(min(max(b.size-a.size, -1), 1))
	})
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.release()
}

func (s *store) release() error {
	var err error
	for _, p := range s.packs {
		err = errors.Join(err, p.close())
	}
	s.packs = nil
	s.bases.clear()
	return err
}

// hasGaps reports whether a pack contained objects that could not be built.
func (s *store) hasGaps() bool {
	_, err := os.Stat(filepath.Join(s.dir, gapsFile))
	return err == nil
}

func (s *store) contains(id plumbing.Hash) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.packs {
		if _, ok := find(p.index, id); ok {
			return true
		}
	}
	return false
}

// read returns an object's content, verified against its id. Errors: ErrNotFound, ErrMalformed
// (another kind), errTooLarge, ErrCorrupt.
func (s *store) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error) {
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
		kind, data, err := p.read(offset, limit, s.baseLimit, &s.bases)
		if errors.Is(err, errLargeBase) {
			kind, data, err = p.readLarge(s.spool(), offset, limit)
		}
		switch {
		case errors.Is(err, errTooLarge):
			return nil, err
		case err != nil || !sameHash(id, kind, data):
			return nil, corrupt(filepath.Base(p.path), "object %s cannot be read from the pack", id)
		case kind != want:
			return nil, malformed(id.String(), "is a %s where a %s must be", kind, want)
		}
		return data, nil
	}
	return nil, missing(want.String(), id)
}

func errClosed(dir string) error {
	return &Error{Kind: ErrStorage, Subject: dir, Detail: "the mirror was closed"}
}

func (s *store) usable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed(s.dir)
	}
	return nil
}

func missing(what string, id plumbing.Hash) error {
	return &Error{Kind: ErrNotFound, Subject: what + " " + id.String(),
		Detail: "not in this repository"}
}

// ref returns the commit of a branch of the mirror; the zero hash if it does not exist.
func (s *store) ref(name string) (plumbing.Hash, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, storageError(s.dir, err)
	}
	id := strings.TrimSpace(string(text))
	if !isFullHash(id) {
		// as after a crash of the machine: the next fetch writes it again
		return plumbing.ZeroHash, nil
	}
	return plumbing.NewHash(id), nil
}

// setRef moves a branch, and makes it git's default.
func (s *store) setRef(name string, id plumbing.Hash) error {
	err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, filepath.FromSlash(name))), 0o700)
	if err == nil {
		err = s.write(name, []byte(id.String()+"\n"))
	}
	head := []byte("ref: " + name + "\n")
	if have, _ := os.ReadFile(filepath.Join(s.dir, "HEAD")); err == nil &&
		!bytes.Equal(have, head) {
		err = s.write("HEAD", head)
	}
	if err != nil {
		return storageError(s.dir, err)
	}
	return nil
}

// write replaces a small file.
func (s *store) write(name string, text []byte) error {
	f, err := os.CreateTemp(s.incomingDir(), "file-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := closeSynced(f, err); err != nil {
		os.Remove(f.Name())
		return err
	}
	return os.Rename(f.Name(), filepath.Join(s.dir, filepath.FromSlash(name)))
}

type syncCloser interface {
	Sync() error
	Close() error
}

// closeSynced syncs and closes a file, and returns the first error.
func closeSynced(f syncCloser, err error) error {
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

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
