package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

const (
	// mostCommits is how many commits of one step of the branch are asked for. A longer one was not
	// merged pull request by pull request.
	mostCommits = 200
	// pushSettles is how old a push has to be before it counts as a direct one: by then the Git
	// host says of a merge that it is a merge.
	pushSettles = 3 * time.Second
)

// Reviewed is what people saw of the commits, and agreed to, before these reached the branch:
// commits lists the branch's own of one span, the oldest first, after the commit base.
//
// A merged pull request counts with those files of the very head that was merged whose owners had
// approved that head, and with its plan if an owner of everything that it touches had. A push that
// is no merge counts as reviewed by the platform if an account of Config.DirectPush pushed it. An
// error says that not everything is known; what is returned with it holds all the same.
func (r *Reviewer) Reviewed(ctx context.Context, base fleet.Revision,
	commits []reviews.Commit) (reviews.Reviewed, error) {
	out := reviews.Reviewed{Deletions: map[fleet.ObjectKey]mirror.ReviewedDeletion{}}
	if len(commits) > mostCommits {
		return out,
			fmt.Errorf(
				"%d commits came at once, more than the %d that are looked through for reviews",
				len(commits), mostCommits)
	}
	s := &span{base: base, commits: slices.Clone(commits), at: map[fleet.Revision]int{},
		merges: map[int]bool{}, seen: out.Deletions}
	for i, c := range s.commits {
		s.at[c.ID] = i
	}
	err := r.pullsIn(ctx, s)
	if err == nil {
		err = r.pushesIn(ctx, s)
	}
	out.Paths, out.Trusted = reviews.Paths(s.commits)
	return out, err
}

// span is the commits that Reviewed is asked about.
type span struct {
	base    fleet.Revision
	commits []reviews.Commit
	at      map[fleet.Revision]int // index in commits
	merges  map[int]bool           // those of commits that a pull request was merged as
	seen    map[fleet.ObjectKey]mirror.ReviewedDeletion
}

// pullsIn finds the pull requests that were merged within the span.
func (r *Reviewer) pullsIn(ctx context.Context, s *span) error {
	asked := map[int]bool{}
	for i := len(s.commits) - 1; i >= 0; i-- {
		commit := s.commits[i].ID
		numbers, err := r.Forge.PullsOf(ctx, commit)
		if err != nil {
			return fmt.Errorf("the pull request of commit %s: %w", commit.Short(), err)
		}
		for _, number := range numbers {
			if asked[number] {
				continue
			}
			asked[number] = true
			if err := r.pullIn(ctx, s, number); err != nil {
				return fmt.Errorf("pull request %d: %w", number, err)
			}
		}
	}
	return nil
}

func (r *Reviewer) pullIn(ctx context.Context, s *span, number int) error {
	pull, err := r.Forge.Pull(ctx, number)
	if err != nil {
		return err
	}
	i, within := s.at[pull.MergeCommit]
	if pull.State != forge.PullMerged || pull.Base != r.Branch || !within {
		return nil // it merely contains the commit
	}
	s.merges[i] = true
	record, known, err := r.Records.PullRecord(ctx, number)
	if err != nil || !known {
		return err
	}
	if agreed := record.Agreed(pull.Head); agreed != nil {
		s.commits[i].Shown = append(s.commits[i].Shown, agreed)
	}
	// a deletion was seen by an owner of everything that the pull request touches, or by nobody
	if record.Consented != pull.Head {
		return nil
	}
	p, known, err := r.Records.Reviewed(ctx, number, pull.Head)
	if err != nil || !known {
		return err
	}
	for _, e := range p.Effects {
		if !e.Deletes || e.Key.Kind != fleet.ObjectApplication {
			continue
		}
		d := mirror.ReviewedDeletion{Key: e.Key, Pull: number}
		if c := record.Cleared; c != nil && c.Head == pull.Head && slices.Contains(c.Deletions,
			e.Key) {
			d.Approved, d.By = true, "github:"+c.By.Login+" ("+strconv.FormatInt(c.By.ID, 10)+")"
		}
		s.seen[e.Key] = d
	}
	return nil
}

// pushesIn marks the commits that accounts of DirectPush have pushed. Who clicks "merge" pushes
// too, and has reviewed nothing by that: a push with the merge commit of a pull request in it is no
// direct one.
func (r *Reviewer) pushesIn(ctx context.Context, s *span) error {
	if len(r.DirectPush) == 0 || len(s.commits) == 0 {
		return nil
	}
	pushes, err := r.Records.Pushes(ctx, slices.Collect(maps.Keys(s.at)))
	if err != nil || len(pushes) == 0 {
		return err
	}
	trusted, err := r.trusted(ctx)
	if err != nil {
		return fmt.Errorf("who may push directly: %w", err)
	}
	for _, p := range pushes {
		first, last, ok := s.pushed(p)
		if !ok || !trusted[p.By.ID] {
			continue
		}
		if age := r.Now().Sub(p.At); age < pushSettles {
			return fmt.Errorf("the push of %s is too young to tell it from a merge",
				p.After.Short())
		}
		for i := first; i <= last; i++ {
			s.commits[i].Trusted = true
		}
	}
	return nil
}

// pushed is the commits that a push has brought, as indexes; false when they are not all of the
// span, or one of them is a merge.
func (s *span) pushed(p forge.Push) (first, last int, ok bool) {
	last, ok = s.at[p.After]
	if !ok {
		return 0, 0, false
	}
	if before, within := s.at[p.Before]; within {
		first = before + 1
	} else if p.Before != s.base {
		return 0, 0, false
	}
	for i := first; i <= last; i++ {
		if s.merges[i] {
			return 0, 0, false
		}
	}
	return first, last, first <= last
}

// trusted is the ids of the accounts whose direct pushes count.
func (r *Reviewer) trusted(ctx context.Context) (map[int64]bool, error) {
	ids := map[int64]bool{}
	for _, entry := range r.DirectPush {
		name, pinned, isPinned := strings.Cut(entry, "#")
		if isPinned {
			id, err := strconv.ParseInt(pinned, 10, 64)
			if err != nil || id <= 0 {
				return nil, fmt.Errorf("%q: write the account's number after #", entry)
			}
			ids[id] = true
			continue
		}
		owners, err := r.people.owners(ctx, []string{name})
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			for _, p := range o.People {
				ids[p.ID] = true
			}
		}
	}
	return ids, nil
}
