package gitrepo

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Modes that Git writes into trees.
const (
	modeDirectory  = 0o040000
	modeFile       = 0o100644
	modeExecutable = 0o100755
	modeSymlink    = 0o120000
	modeSubmodule  = 0o160000
	modeTypeMask   = 0o170000
)

// treeEntry is one line of a tree object. The name is a slice of the tree's own bytes.
type treeEntry struct {
	name []byte
	mode uint32
	id   plumbing.Hash
}

// isDirectory checks the mode's type alone, as Git does.
func (e *treeEntry) isDirectory() bool { return e.mode&modeTypeMask == modeDirectory }

// treeReader lists a tree and rejects a tree that Git would not have written: such a tree makes two
// programs read different content (GHSA-w5pp-99ch-qj29, CVE-2026-45022).
type treeReader struct {
	rest  []byte
	last  treeEntry
	files [][]byte // names of files that a later directory could still have
}

func readTree(data []byte) *treeReader { return &treeReader{rest: data} }

// next returns the next entry; false at the end.
func (t *treeReader) next() (treeEntry, bool, error) {
	if len(t.rest) == 0 {
		return treeEntry{}, false, nil
	}
	e, rest, err := cutEntry(t.rest)
	if err == nil {
		err = checkName(e.name)
	}
	if err != nil {
		return treeEntry{}, false, err
	}
	if err := t.inOrder(&e); err != nil {
		return treeEntry{}, false, err
	}
	t.rest, t.last = rest, e
	return e, true, nil
}

func cutEntry(b []byte) (treeEntry, []byte, error) {
	var e treeEntry
	space := bytes.IndexByte(b[:min(len(b), 8)], ' ')
	if space < 1 {
		return e, nil, errors.New("an entry has no mode")
	}
	for _, c := range b[:space] {
		if c < '0' || c > '7' {
			return e, nil, errors.New("an entry's mode is not an octal number")
		}
		e.mode = e.mode<<3 | uint32(c-'0')
	}
	b = b[space+1:]
	end := bytes.IndexByte(b, 0)
	if end < 0 || len(b) < end+1+len(e.id) {
		return e, nil, errors.New("the last entry is cut off")
	}
	e.name = b[:end]
	copy(e.id[:], b[end+1:])
	return e, b[end+1+len(e.id):], nil
}

func checkName(name []byte) error {
	switch {
	case len(name) == 0:
		return errors.New("an entry has an empty name")
	case bytes.IndexByte(name, '/') >= 0:
		return errors.New("an entry's name contains a slash")
	case name[0] != '.' && name[0] != 'g' && name[0] != 'G' && name[0] < 0x80:
		return nil
	case string(name) == "." || string(name) == "..":
		return errors.New("an entry is named " + string(name))
	case meansDotGit(string(name)):
		return errors.New("an entry's name means .git on some file system")
	}
	return nil
}

// meansDotGit reports whether some file system treats the name as .git: in any case, with trailing
// dots, spaces or a stream name (NTFS), in its short form git~1, or with characters that HFS+
// ignores. Argosy never checks anything out; a commit with such a name is an attack on clients that
// do.
func meansDotGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f,
			r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// inOrder checks that e sorts after the previous entry, and that no file has the name of a
// directory. Git sorts a directory as if its name ended in a slash, so that other names may come
// between a file and a directory of one name; all of them start with that name.
func (t *treeReader) inOrder(e *treeEntry) error {
	if t.last.name != nil && compareEntries(&t.last, e) >= 0 {
		if bytes.Equal(t.last.name, e.name) {
			return errors.New("two entries have the same name")
		}
		return errors.New("the entries are not in order")
	}
	for len(t.files) > 0 && !bytes.HasPrefix(e.name, t.files[len(t.files)-1]) {
		t.files = t.files[:len(t.files)-1]
	}
	if !e.isDirectory() {
		t.files = append(t.files, e.name)
		return nil
	}
	for i := len(t.files) - 1; i >= 0; i-- {
		if bytes.Equal(t.files[i], e.name) {
			return errors.New("two entries have the same name")
		}
	}
	return nil
}

// compareEntries orders like Git.
func compareEntries(a, b *treeEntry) int {
	n := min(len(a.name), len(b.name))
	if c := bytes.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return int(charAfter(a, n)) - int(charAfter(b, n))
}

func charAfter(e *treeEntry, n int) byte {
	switch {
	case n < len(e.name):
		return e.name[n]
	case e.isDirectory():
		return '/'
	}
	return 0
}
