package gitrepo

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxCommitBytes is far above any commit that a person or a Git host writes, signatures and merged
// tags included.
const maxCommitBytes = 4 << 20

// Commit is the metadata of a commit for people. Names, addresses and subject come from the author:
// printable, truncated, not verified.
type Commit struct {
	ID        Hash
	Tree      Hash
	Parents   []Hash
	Author    Signature
	Committer Signature
	Subject   string // first line of the message
}

// Signature is an unverified name and time.
type Signature struct {
	Name  string
	Email string
	When  time.Time
}

// Commit reads one commit. Errors: ErrNotFound, ErrMalformed, ErrCorrupt, ErrStorage.
func (m *Mirror) Commit(ctx context.Context, id Hash) (Commit, error) {
	if err := ctx.Err(); err != nil {
		return Commit{}, err
	}
	hash, err := parseHash(id)
	if err != nil {
		return Commit{}, err
	}
	return m.commitAt(hash)
}

// Log lists commits from id along first parents, newest first, at most limit of them.
func (m *Mirror) Log(ctx context.Context, id Hash, limit int) ([]Commit, error) {
	var log []Commit
	for len(log) < limit {
		c, err := m.Commit(ctx, id)
		if err != nil {
			return nil, err
		}
		log = append(log, c)
		if len(c.Parents) == 0 || m.endsAt(id) {
			break
		}
		id = c.Parents[0]
	}
	return log, nil
}

func (m *Mirror) commitAt(id plumbing.Hash) (Commit, error) {
	since := m.resets()
	data, err := m.objects.read(id, plumbing.CommitObject, maxCommitBytes)
	if large, ok := m.objects.(prefixes); ok && errors.Is(err, errTooLarge) {
		// a long message: the header suffices
		data, err = large.prefix(id, plumbing.CommitObject, maxCommitBytes)
	}
	if err != nil {
		return Commit{}, m.readFailure(since, "commit "+id.String(), err)
	}
	c, err := parseCommit(string(data))
	if err != nil {
		return Commit{}, malformed("commit "+id.String(), "%v", err)
	}
	c.ID = publicHash(id)
	return c, nil
}

type commitError string

func (e commitError) Error() string { return string(e) }

// parseCommit reads the header, whose first lines have a fixed order, and the first line of the
// message.
func parseCommit(text string) (Commit, error) {
	var c Commit
	header, message, _ := strings.Cut(text, "\n\n")
	line, rest, _ := strings.Cut(header, "\n")
	tree, ok := strings.CutPrefix(line, "tree ")
	if !ok || !isFullHash(tree) {
		return c, commitError("has no tree")
	}
	c.Tree = Hash(tree)
	for {
		line, rest, _ = strings.Cut(rest, "\n")
		parent, ok := strings.CutPrefix(line, "parent ")
		if !ok {
			break
		}
		if !isFullHash(parent) {
			return c, commitError("has a parent that is no object id")
		}
		c.Parents = append(c.Parents, Hash(parent))
	}
	author, ok := strings.CutPrefix(line, "author ")
	if !ok {
		return c, commitError("has no author")
	}
	line, _, _ = strings.Cut(rest, "\n")
	committer, ok := strings.CutPrefix(line, "committer ")
	if !ok {
		return c, commitError("has no committer")
	}
	c.Author, c.Committer = parseSignature(author), parseSignature(committer)
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	c.Subject = printable(subject)
	return c, nil
}

// parseSignature accepts malformed signatures too: old history has some, and nothing depends on
// them.
func parseSignature(s string) Signature {
	var sig Signature
	name, rest, _ := strings.Cut(s, "<")
	email, rest, _ := strings.Cut(rest, ">")
	if !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, "?")
	}
	sig.Name, sig.Email = printable(name), printable(email)
	seconds, zone, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if at, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		sig.When = time.Unix(at, 0).In(parseZone(zone))
	}
	return sig
}

// parseZone reads ±hhmm.
func parseZone(s string) *time.Location {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 5 || n < -1400 || n > 1400 {
		return time.UTC
	}
	if n == 0 {
		return time.UTC
	}
	return time.FixedZone("", (n/100*60+n%100)*60)
}
