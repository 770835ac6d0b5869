package gitrepo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

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
	w, err := m.walkTogether(ctx, subject, fromHead|fromApplied|belowCommon, []plumbing.Hash{from},
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
			Detail: "they have no commit in common; start the branch from the one that it is to " +
				"be merged into"}
	case len(candidates) > maxCandidates:
		return nil, overBudget(subject, "common ancestors", maxCandidates, "rebase the newer one")
	}
	ids := make([]plumbing.Hash, len(candidates))
	for i, v := range candidates {
		ids[i] = plumbing.NewHash(string(v.commit.ID))
	}
	return m.best(ctx, subject, ids)
}

// best drops each candidate that is an ancestor of another one. The walk that found them follows
// dates, and clocks run backwards.
func (m *Mirror) best(ctx context.Context, subject string, candidates []plumbing.Hash) ([]Hash,
	error) {
	var out []Hash
	for i, id := range candidates {
		others := slices.Delete(slices.Clone(candidates), i, i+1)
		redundant := false
		if len(others) > 0 {
			w, err := m.walkTogether(ctx, subject, fromHead|fromApplied, []plumbing.Hash{id},
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
func (m *Mirror) walkTogether(ctx context.Context, subject string, closed sides, applied,
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
		m.into(), m.into(), len(bases), strings.Join(names, ", "))}
}

// into returns the display name of the mirror's branch.
func (m *Mirror) into() string {
	if m.branch == "" {
		return "the branch"
	}
	return strings.TrimPrefix(m.branch, "refs/heads/")
}
