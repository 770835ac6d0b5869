package gitrepo

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Resolve returns the commit of a revision: HEAD, a full ref name, a branch, a tag, a remote branch
// (origin/main), a full id or one shortened to at least four digits; each with any number of ^ or
// ~N suffixes, along first parents.
//
// Forty hexadecimal digits are always an id, even if a branch has that name. A short name with two
// different commits, such as a branch and a tag of one name, is ErrAmbiguous: use the full ref
// name. Other errors: ErrNotFound, ErrMalformed, ErrCorrupt. A mirror knows its branch, by its full
// or short name or HEAD, and ids; only a local repository knows more.
func (m *Mirror) Resolve(ctx context.Context, rev string) (Hash, error) {
	name, back, err := splitAncestor(rev)
	if err != nil {
		return "", err
	}
	id, err := m.resolveName(name)
	if err != nil {
		return "", err
	}
	for ; ; back-- {
		c, err := m.Commit(ctx, publicHash(id))
		if err != nil {
			return "", err
		}
		if back == 0 {
			return c.ID, nil
		}
		if len(c.Parents) == 0 || m.local.endsAt(c.ID) {
			return "",
				noRevision(rev,
					"history ends before it; in a shallow clone fetch more of it (fetch-depth: 0)")
		}
		if id, err = parseHash(c.Parents[0]); err != nil {
			return "", err
		}
	}
}

func noRevision(rev, why string) error {
	return &Error{Kind: ErrNotFound, Subject: fmt.Sprintf("revision %q", printable(rev)),
		Detail: why}
}

// splitAncestor separates main~2^ into main and 3.
func splitAncestor(rev string) (string, int, error) {
	end := strings.IndexAny(rev, "^~")
	if end < 0 {
		return rev, 0, nil
	}
	name, rest, back := rev[:end], rev[end:], 0
	for rest != "" {
		digits := 1
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		n := 1
		if digits > 1 {
			var err error
			if n, err = strconv.Atoi(rest[1:digits]); err != nil || n > 1_000_000 ||
				(rest[0] == '^' && n != 1) {
				return "", 0, noRevision(rev, "only ^ and ~N are understood after a name")
			}
		}
		if rest[0] != '^' && rest[0] != '~' {
			return "", 0, noRevision(rev, "only ^ and ~N are understood after a name")
		}
		back, rest = back+n, rest[digits:]
	}
	return name, back, nil
}

// resolveName returns the commit of a name without ^ or ~.
func (m *Mirror) resolveName(name string) (plumbing.Hash, error) {
	if isFullHash(strings.ToLower(name)) {
		return m.peel(plumbing.NewHash(name))
	}
	found := map[string]plumbing.Hash{} // by possible meaning
	for _, ref := range refsFor(name) {
		id, ok, err := m.ref(ref)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if ok {
			if found[ref], err = m.peel(id); err != nil {
				return plumbing.ZeroHash, err
			}
		}
	}
	if len(name) >= 4 && len(name) < 40 && isLowerHex(name) {
		for _, id := range m.commitsWith(name) {
			found[id.String()] = id
		}
	}
	var meanings []string
	var commit plumbing.Hash
	same := true
	for meaning, id := range found {
		same = same && (commit.IsZero() || commit == id)
		meanings, commit = append(meanings, meaning), id
	}
	switch {
	case len(meanings) == 0:
		return plumbing.ZeroHash,
			noRevision(name,
				"no branch, tag or commit of that name here; in a CI checkout fetch it first "+
					"(fetch-depth: 0)")
	case !same:
		return plumbing.ZeroHash, ambiguous(name, meanings)
	}
	return commit, nil
}

// refsFor lists the full names that a short name can mean.
func refsFor(name string) []string {
	switch {
	case name == "HEAD":
		return []string{"HEAD"}
	case !validRefPath(name):
		return nil
	case strings.HasPrefix(name, "refs/"):
		return []string{name}
	}
	return []string{"refs/heads/" + name, "refs/tags/" + name, "refs/remotes/" + name}
}

func (m *Mirror) ref(name string) (plumbing.Hash, bool, error) {
	if m.store != nil {
		head, ok := m.Head()
		if !ok || (name != m.branch && name != "HEAD") {
			return plumbing.ZeroHash, false, nil
		}
		id, err := parseHash(head.Commit)
		return id, true, err
	}
	return m.local.ref(plumbing.ReferenceName(name))
}

// ref follows symbolic refs, up to a limit.
func (l *localRepo) ref(name plumbing.ReferenceName) (plumbing.Hash, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 5 {
		r, err := l.storage.Reference(name)
		if errors.Is(err, plumbing.ErrReferenceNotFound) {
			return plumbing.ZeroHash, false, nil
		}
		if err != nil {
			return plumbing.ZeroHash, false, noRevision(name.String(), err.Error())
		}
		if r.Type() == plumbing.HashReference {
			return r.Hash(), true, nil
		}
		name = r.Target()
	}
	return plumbing.ZeroHash, false,
		noRevision(name.String(), "too many refs that name another ref")
}

// peel returns the commit of an id, which may name an annotated tag.
func (m *Mirror) peel(id plumbing.Hash) (plumbing.Hash, error) {
	if m.local == nil {
		return id, nil
	}
	for range 5 {
		kind, data, err := m.local.readAny(id, maxCommitBytes)
		if errors.Is(err, ErrNotFound) {
			return plumbing.ZeroHash,
				noRevision(id.String(),
					"not in this repository; in a CI checkout fetch it first (fetch-depth: 0)")
		}
		if err != nil {
			return plumbing.ZeroHash, m.readFailure(0, "object "+id.String(), err)
		}
		if kind != plumbing.TagObject {
			return id, nil
		}
		line, _, _ := strings.Cut(string(data), "\n")
		target, ok := strings.CutPrefix(line, "object ")
		if !ok || !isFullHash(target) {
			return plumbing.ZeroHash, malformed("tag "+id.String(), "names no object")
		}
		id = plumbing.NewHash(target)
	}
	return plumbing.ZeroHash, malformed("tag "+id.String(), "tags of tags of tags")
}

// commitsWith lists the commits whose id starts with the digits.
func (m *Mirror) commitsWith(digits string) []plumbing.Hash {
	var ids []plumbing.Hash
	if m.store != nil {
		ids = m.store.withPrefix(digits)
	} else {
		ids = m.local.withPrefix(digits)
	}
	var commits []plumbing.Hash
	for _, id := range ids {
		if _, err := m.objects.read(id, plumbing.CommitObject, maxCommitBytes); err == nil {
			commits = append(commits, id)
		}
	}
	return commits
}

func (s *store) withPrefix(digits string) []plumbing.Hash {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := map[plumbing.Hash]bool{}
	for _, p := range s.packs {
		for _, e := range appendEntries(nil, p.index, 0) {
			if strings.HasPrefix(e.id.String(), digits) {
				found[e.id] = true
			}
		}
	}
	return keys(found)
}

func (l *localRepo) withPrefix(digits string) []plumbing.Hash {
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix, _ := hex.DecodeString(digits[:len(digits)&^1])
	ids, err := l.storage.HashesWithPrefix(prefix)
	if err != nil {
		return nil
	}
	found := map[plumbing.Hash]bool{}
	for _, id := range ids {
		if strings.HasPrefix(id.String(), digits) {
			found[id] = true
		}
	}
	return keys(found)
}

func keys(set map[plumbing.Hash]bool) []plumbing.Hash {
	return slices.SortedFunc(maps.Keys(set), func(a, b plumbing.Hash) int {
		return bytes.Compare(a[:], b[:])
	})
}

func ambiguous(name string, meanings []string) error {
	slices.Sort(meanings)
	return &Error{Kind: ErrAmbiguous, Subject: fmt.Sprintf("revision %q", printable(name)),
		Detail: "means " + strings.Join(meanings, " and ") + "; give the one you mean in full"}
}
