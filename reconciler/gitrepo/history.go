package gitrepo

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"

	"argosy.dev/argosy/fleet/mirror"
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
		if len(c.Parents) == 0 || m.local.endsAt(id) {
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

// Relation compares head, which must be in the mirror, with the applied commit, which need not be:
// after a rewritten history and a new clone it is missing. It reads as much history as lies between
// the two.
func (m *Mirror) Relation(ctx context.Context, applied, head Hash) (mirror.Relation, error) {
	from, err := parseHash(applied)
	if err != nil {
		return "", err
	}
	to, err := parseHash(head)
	if err != nil {
		return "", err
	}
	w := &historyWalk{m: m, reached: map[plumbing.Hash]*visited{}, closed: fromHead | fromApplied}
	if err := w.reach(to, fromHead); err != nil {
		return "", err
	}
	if from == to {
		return mirror.RelationSame, nil
	}
	if err := w.reach(from, fromApplied); errors.Is(err, ErrNotFound) {
		return mirror.RelationUnknown, nil
	} else if err != nil {
		return "", err
	}
	for w.open > 0 {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if err := w.step(); err != nil {
			return "", err
		}
		switch both := fromHead | fromApplied; {
		case w.reached[from].sides == both:
			return mirror.RelationDescendant, nil
		case w.reached[to].sides == both:
			return mirror.RelationOlder, nil
		}
	}
	return mirror.RelationRewritten, nil
}

type sides uint8

const (
	fromHead sides = 1 << iota
	fromApplied
	belowCommon // an ancestor of a commit that both ends reach; for MergeBases
)

// visited is a commit that the walk has reached, and from which of the two ends.
type visited struct {
	commit Commit
	sides  sides
	queued bool
}

// historyWalk follows the parents of both ends at once, newest commit first, until every queued
// commit is closed or none is left: for Relation a commit reached from both ends is closed, for
// MergeBases one below those. Dates only shorten the walk: a path between the ends consists of
// commits that only one end reaches, and those are never skipped.
type historyWalk struct {
	m       *Mirror
	reached map[plumbing.Hash]*visited
	queue   commitQueue
	closed  sides
	open    int        // queued commits that are not closed
	common  []*visited // reached from both ends, if the walk continues below them
}

// reach marks a commit as reached from s and queues it if that is new.
func (w *historyWalk) reach(id plumbing.Hash, s sides) error {
	v := w.reached[id]
	if v == nil {
		c, err := w.m.commitAt(id)
		if err != nil {
			return err
		}
		v = &visited{commit: c}
		w.reached[id] = v
	}
	if v.sides|s == v.sides {
		return nil
	}
	wasOpen := v.queued && v.sides != w.closed
	v.sides |= s
	if !v.queued {
		v.queued = true
		heap.Push(&w.queue, v)
	}
	isOpen := v.sides != w.closed
	w.count(wasOpen, isOpen)
	return nil
}

func (w *historyWalk) count(was, is bool) {
	if was {
		w.open--
	}
	if is {
		w.open++
	}
}

func (w *historyWalk) step() error {
	v := heap.Pop(&w.queue).(*visited)
	v.queued = false
	w.count(v.sides != w.closed, false)
	pass := v.sides
	if pass == fromHead|fromApplied && w.closed != pass {
		w.common = append(w.common, v)
		pass = w.closed
	}
	if w.m.local.endsAt(v.commit.ID) {
		return nil
	}
	for _, parent := range v.commit.Parents {
		id, err := parseHash(parent)
		if err != nil {
			return err
		}
		if err := w.reach(id, pass); err != nil {
			return err
		}
	}
	return nil
}

// commitQueue returns the newest commit first.
type commitQueue []*visited

func (q commitQueue) Len() int { return len(q) }
func (q commitQueue) Less(i, j int) bool {
	return q[i].commit.Committer.When.After(q[j].commit.Committer.When)
}
func (q commitQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements container/heap.
func (q *commitQueue) Push(x any) { *q = append(*q, x.(*visited)) }

// Pop implements container/heap.
func (q *commitQueue) Pop() any {
	last := len(*q) - 1
	v := (*q)[last]
	*q = (*q)[:last]
	return v
}

const (
	// maxApart is how many commits one walk of MergeBases reads at most: far more than lie between
	// a pull request and its branch, and few enough that two unrelated histories do not keep a
	// processor busy.
	maxApart = 100_000
	// maxCandidates is how many common ancestors MergeBases compares with each other at most.
	// Ordinary histories have one.
	maxCandidates = 16
)

// MergeBases returns the best common ancestors of a and b, like `git merge-base --all`: common
// commits without another common commit among their descendants. They are sorted by id, and there
// is at least one. It reads as much history as lies between a and b.
//
// Errors: ErrUnrelated, ErrNotFound, ErrMalformed, ErrOverBudget (commits, common ancestors),
// ErrCorrupt.
func (m *Mirror) MergeBases(ctx context.Context, a, b Hash) ([]Hash, error) {
	from, err := parseHash(a)
	if err != nil {
		return nil, err
	}
	to, err := parseHash(b)
	if err != nil {
		return nil, err
	}
	subject := "commits " + a.Short() + " and " + b.Short()
	w, err := walkTogether(ctx, m, subject, fromHead|fromApplied|belowCommon, []plumbing.Hash{from},
		[]plumbing.Hash{to})
	if err != nil {
		return nil, err
	}
	// A later step may have found that a candidate is an ancestor of another one.
	candidates := slices.DeleteFunc(w.common, func(v *visited) bool {
		return v.sides&belowCommon != 0
	})
	switch {
	case len(candidates) == 0:
		return nil, &Error{Kind: ErrUnrelated, Subject: subject,
			Detail: "they have no commit in common; start the branch from its merge target"}
	case len(candidates) > maxCandidates:
		return nil, overBudget(subject, "common ancestors", maxCandidates, "rebase the newer one")
	}
	ids := make([]plumbing.Hash, len(candidates))
	for i, v := range candidates {
		ids[i] = plumbing.NewHash(string(v.commit.ID))
	}
	return best(ctx, m, subject, ids)
}

// best drops each candidate that is an ancestor of another one. The walk that found them follows
// dates, and clocks run backwards.
func best(ctx context.Context, m *Mirror, subject string, candidates []plumbing.Hash) ([]Hash,
	error) {
	var out []Hash
	for i, id := range candidates {
		others := slices.Delete(slices.Clone(candidates), i, i+1)
		redundant := false
		if len(others) > 0 {
			w, err := walkTogether(ctx, m, subject, fromHead|fromApplied, []plumbing.Hash{id},
				others)
			if err != nil {
				return nil, err
			}
			redundant = w.reached[id].sides == fromHead|fromApplied
		}
		if !redundant {
			out = append(out, publicHash(id))
		}
	}
	slices.Sort(out)
	return out, nil
}

// walkTogether walks the histories of both ends until every queued commit is closed.
func walkTogether(ctx context.Context, m *Mirror, subject string, closed sides, applied,
	head []plumbing.Hash) (*historyWalk, error) {
	w := &historyWalk{m: m, reached: map[plumbing.Hash]*visited{}, closed: closed}
	for _, id := range head {
		if err := w.reach(id, fromHead); err != nil {
			return nil, err
		}
	}
	for _, id := range applied {
		if err := w.reach(id, fromApplied); err != nil {
			return nil, err
		}
	}
	for w.open > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(w.reached) > maxApart {
			return nil, overBudget(subject, "commits", maxApart,
				"their histories are too far apart; rebase the newer one")
		}
		if err := w.step(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// onlyBase returns the only merge base of two commits. It rejects several: git merges such commits
// against a virtual base that no reviewer has seen, so a comparison with any one of them misses
// changes of the merge.
func (m *Mirror) onlyBase(ctx context.Context, into, head Hash) (Hash, error) {
	bases, err := m.MergeBases(ctx, into, head)
	if err != nil {
		return "", err
	}
	if len(bases) == 1 {
		return bases[0], nil
	}
	names := make([]string, len(bases))
	for i, b := range bases {
		names[i] = b.Short()
	}
	return "", &Error{Kind: ErrManyBases, Subject: "commit " + head.Short(), Detail: fmt.Sprintf(
		"rebase onto %s and push again; this head and %s have %d merge bases (%s), so no "+
			"comparison shows what the merge would change",
		shortBranch(m.branch), shortBranch(m.branch), len(bases), strings.Join(names, ", "))}
}

// shortBranch returns the display name of the mirror's branch.
func shortBranch(branch string) string {
	if branch == "" {
		return "the branch"
	}
	return strings.TrimPrefix(branch, "refs/heads/")
}
