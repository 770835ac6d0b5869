package gitrepo

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxApart is how many commits MergeBase reads at most: far more than lie between a pull request and its branch, and few enough that two
// histories that have nothing in common do not keep a processor busy.
const maxApart = 100_000

// MergeBase finds the commit at which the histories of a and b parted: the newest of the commits that both have and that no other such commit
// descends from. It reads as much history as lies between the two.
//
// Errors: ErrUnrelated, ErrNotFound, ErrMalformed, ErrOverBudget (commits), ErrCorrupt.
func (m *Mirror) MergeBase(ctx context.Context, a, b Hash) (Hash, error) {
	from, err := parseHash(a)
	if err != nil {
		return "", err
	}
	to, err := parseHash(b)
	if err != nil {
		return "", err
	}
	w := &historyWalk{m: m, seen: map[plumbing.Hash]*visited{}, closed: fromHead | fromApplied | belowCommon}
	if err := w.reach(to, fromHead); err != nil {
		return "", err
	}
	if err := w.reach(from, fromApplied); err != nil {
		return "", err
	}
	for w.open > 0 {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if len(w.seen) > maxApart {
			return "", overBudget("commits "+a.Short()+" and "+b.Short(), "commits", maxApart, "their histories are too far apart; rebase the newer one")
		}
		if err := w.step(); err != nil {
			return "", err
		}
	}
	return m.best(ctx, a, b, w.common)
}

// best takes the newest of the common commits. Where clocks run backwards some were come to before others that descend from them.
func (m *Mirror) best(ctx context.Context, a, b Hash, common []*visited) (Hash, error) {
	slices.SortFunc(common, func(x, y *visited) int {
		return cmp.Or(y.commit.Committer.When.Compare(x.commit.Committer.When), cmp.Compare(x.commit.ID, y.commit.ID))
	})
	for _, v := range common {
		redundant := false
		for _, other := range common {
			if v == other || redundant {
				continue
			}
			r, err := m.Relation(ctx, v.commit.ID, other.commit.ID)
			if err != nil {
				return "", err
			}
			redundant = r == Descendant
		}
		if !redundant {
			return v.commit.ID, nil
		}
	}
	return "", &Error{Kind: ErrUnrelated, Subject: "commits " + a.Short() + " and " + b.Short(), Detail: "they have no commit in common; start the branch from the one that it is to be merged into"}
}
