package gitrepo

import (
	"container/heap"
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
)

// Relation is how a head relates to the applied commit.
type Relation string

// Relations of a head to the applied commit. Only Same and Descendant may be applied without an
// approval.
const (
	Same       Relation = "same"       // no new commit
	Descendant Relation = "descendant" // the ordinary case: commits were added
	Older      Relation = "older"      // the branch was reset to an ancestor of the applied commit
	Rewritten  Relation = "rewritten"  // neither reaches the other: history was replaced
	// the applied commit is not in this mirror
	Unknown Relation = "unknown"
)

// Relation compares head, which must be in the mirror, with the applied commit, which need not be:
// after a rewritten history and a new clone it is missing. It reads as much history as lies between
// the two.
func (m *Mirror) Relation(ctx context.Context, applied, head Hash) (Relation, error) {
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
		return Same, nil
	}
	if err := w.reach(from, fromApplied); errors.Is(err, ErrNotFound) {
		return Unknown, nil
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
			return Descendant, nil
		case w.reached[to].sides == both:
			return Older, nil
		}
	}
	return Rewritten, nil
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
	if w.m.endsAt(v.commit.ID) {
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
