package gitrepo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	gitconfig "github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// localRepo reads a repository that it does not own. go-git's storage is not safe for concurrent
// use, hence the lock.
type localRepo struct {
	mu      sync.Mutex
	storage *filesystem.Storage
	shallow map[Hash]bool
}

// OpenLocal reads an existing repository: a bare one, the top of a work tree, or a linked work
// tree. It writes, fetches and checks out nothing, and ignores uncommitted files. A zero field of
// the budget means its default; only those of walks and reads matter here.
func OpenLocal(path string, budget Budget) (*Mirror, error) {
	budget, err := budget.withDefaults()
	if err != nil {
		return nil, err
	}
	refuse := func(err error) (*Mirror, error) {
		return nil, &Error{Kind: ErrNotFound, Subject: path, Detail: err.Error()}
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return refuse(err)
	}
	gitDir, err := findGitDir(path)
	if err != nil {
		return refuse(err)
	}
	files, err := repositoryFiles(gitDir)
	if err != nil {
		return refuse(err)
	}
	if err := checkFormatOf(files); err != nil {
		return refuse(err)
	}
	storage := filesystem.NewStorageWithOptions(files, cache.NewObjectLRU(32*cache.MiByte),
		filesystem.Options{KeepDescriptors: true, AlternatesFS: osfs.New("/")})
	local := &localRepo{storage: storage, shallow: map[Hash]bool{}}
	boundary, err := storage.Shallow()
	if err != nil {
		return refuse(err)
	}
	for _, id := range boundary {
		local.shallow[publicHash(id)] = true
	}
	return &Mirror{source: location{scheme: "file", path: path, display: path}, budget: budget,
		objects: local, local: local}, nil
}

// findGitDir returns the directory with HEAD: path itself, its .git, or the target of a .git file.
func findGitDir(path string) (string, error) {
	dot := filepath.Join(path, ".git")
	info, err := os.Stat(dot)
	switch {
	case err == nil && info.IsDir():
		return dot, nil
	case err == nil:
		text, err := os.ReadFile(dot)
		if err != nil {
			return "", err
		}
		dir, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
		if !ok {
			return "", errors.New("its .git file does not name the repository")
		}
		return absoluteFrom(path, dir), nil
	}
	if _, err := os.Stat(filepath.Join(path, "HEAD")); err != nil {
		return "",
			errors.New("not a Git repository; give the top of a work tree or a bare repository")
	}
	return path, nil
}

func absoluteFrom(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// repositoryFiles joins a linked work tree's own directory with the one it shares with the main
// repository.
func repositoryFiles(gitDir string) (billy.Filesystem, error) {
	own := osfs.New(gitDir)
	text, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		return own, nil
	}
	if err != nil {
		return nil, err
	}
	common := osfs.New(absoluteFrom(gitDir, strings.TrimSpace(string(text))))
	return dotgit.NewRepositoryFilesystem(own, common), nil
}

// checkFormatOf rejects the storage formats that go-git does not support, because go-git would read
// them as an empty repository.
func checkFormatOf(files billy.Filesystem) error {
	f, err := files.Open("config")
	if err != nil {
		return errors.New("not a Git repository: it has no config")
	}
	defer f.Close()
	c := gitconfig.New()
	if err := gitconfig.NewDecoder(f).Decode(c); err != nil {
		return errors.New("its config cannot be read")
	}
	extensions := c.Section("extensions")
	if format := extensions.Option("objectformat"); format != "" && !strings.EqualFold(format,
		"sha1") {
		return errors.New("object format " + format + " is not supported; only sha1 is")
	}
	if storage := extensions.Option("refstorage"); storage != "" && !strings.EqualFold(storage,
		"files") {
		return errors.New("ref storage " + storage +
			" is not supported; only files is: git refs migrate --ref-format=files")
	}
	return nil
}

func (l *localRepo) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error) {
	kind, data, err := l.readAny(id, limit)
	if err != nil {
		return nil, err
	}
	if kind != want {
		return nil, malformed(id.String(), "is a %s where a %s must be", kind, want)
	}
	return data, nil
}

func (l *localRepo) readAny(id plumbing.Hash, limit int64) (plumbing.ObjectType, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, err := l.storage.EncodedObjectSize(id)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return l.readAlternate(id, limit)
	}
	if err != nil {
		return 0, nil, corrupt("object "+id.String(), "%v; see git fsck", err)
	}
	if size > limit {
		return 0, nil, tooLarge{size}
	}
	return l.decode(id)
}

// readAlternate reads from the repositories that this one borrows objects from, which go-git's size
// lookup ignores. It loads an object before its size is known.
func (l *localRepo) readAlternate(id plumbing.Hash, limit int64) (plumbing.ObjectType, []byte,
	error) {
	kind, data, err := l.decode(id)
	if err == nil && int64(len(data)) > limit {
		return 0, nil, tooLarge{int64(len(data))}
	}
	return kind, data, err
}

func (l *localRepo) decode(id plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	o, err := l.storage.EncodedObject(plumbing.AnyObject, id)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return 0, nil, missing("object", id)
	}
	if err != nil {
		return 0, nil, corrupt("object "+id.String(), "%v; see git fsck", err)
	}
	r, err := o.Reader()
	if err != nil {
		return 0, nil, corrupt("object "+id.String(), "%v; see git fsck", err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || !sameHash(id, o.Type(), data) {
		return 0, nil,
			corrupt("object "+id.String(), "its content does not match its id; see git fsck")
	}
	return o.Type(), data, nil
}
