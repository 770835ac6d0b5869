package webhook

import (
	"context"
	"fmt"
	"log/slog"
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
	// maxCommits is the most commits of one span of the branch that are looked up on the Git host.
	// A longer span was not merged pull request by pull request.
	maxCommits = 200
	// minPushAge is how old a push must be to count as a direct push: by then the Git host reports
	// a merge as a merge.
	minPushAge = 3 * time.Second
)

// MergedPulls is the Git host as Reviews needs it.
type MergedPulls interface {
	// PullsOf lists the numbers of the merged pull requests that the commit belongs to, ascending.
	PullsOf(ctx context.Context, commit fleet.Revision) ([]int, error)
	Pull(ctx context.Context, number int) (forge.Pull, error)
	Accounts
}

// Approvals is the store as Reviews needs it.
type Approvals interface {
	Pins
	PullRecord(ctx context.Context, number int) (forge.PullRecord, bool, error)
	Reviewed(ctx context.Context, number int, head fleet.Revision) (forge.ReviewedPlan, bool, error)
	// Pushes returns the pushes to the branch that ended at one of these commits, as signed
	// deliveries described them.
	Pushes(ctx context.Context, ends []fleet.Revision) ([]forge.Push, error)
}

// ReviewsConfig configures Reviews.
type ReviewsConfig struct {
	Host    string // the URL of the Git host's API: names of owners are pinned per host
	Pulls   MergedPulls
	Records Approvals
	Branch  string
	// DirectPush lists accounts and teams ("github:alice", "github:acme/platform") whose direct
	// pushes to the branch count as reviewed by the platform.
	DirectPush []string
	Log        *slog.Logger
	Now        func() time.Time // nil: the system's clock
}

// Reviews finds out what people reviewed before it reached the branch.
type Reviews struct {
	ReviewsConfig
	people people
}

// NewReviews returns Reviews with an empty cache.
func NewReviews(c ReviewsConfig) *Reviews {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Reviews{ReviewsConfig: c, people: newPeople(c.Pulls, c.Host, c.Records, c.Log, c.Now)}
}

// Reviewed returns what the owners reviewed and approved of the commits before these reached the
// branch: commits lists the branch's own commits of one span, oldest first, after the commit base.
//
// A merged pull request counts with those files of the very head that was merged whose owners had
// approved that head, and with its plan if an owner of everything that it touches had. A push that
// is no merge counts as reviewed by the platform if an account of DirectPush pushed it. With an
// error the result is incomplete, and what it holds is true all the same.
func (r *Reviews) Reviewed(ctx context.Context, base fleet.Revision,
	commits []reviews.Commit) (reviews.Reviewed, error) {
	out := reviews.Reviewed{Deletions: map[fleet.ObjectKey]mirror.ReviewedDeletion{}}
	if len(commits) > maxCommits {
		return out,
			fmt.Errorf(
				"%d commits came at once, more than the %d whose reviews are looked up",
				len(commits), maxCommits)
	}
	s := &span{
		base: base, commits: slices.Clone(commits), at: map[fleet.Revision]int{},
		merges: map[int]bool{}, deletions: out.Deletions,
	}
	for i, c := range s.commits {
		s.at[c.ID] = i
	}
	err := r.addPulls(ctx, s)
	if err == nil {
		err = r.addPushes(ctx, s)
	}
	out.Paths, out.Trusted = reviews.Paths(s.commits)
	return out, err
}

// span is the commits that Reviewed is asked about.
type span struct {
	base      fleet.Revision
	commits   []reviews.Commit
	at        map[fleet.Revision]int // index in commits
	merges    map[int]bool           // indexes of commits that a pull request was merged as
	deletions map[fleet.ObjectKey]mirror.ReviewedDeletion
}

// addPulls adds what the pull requests that were merged within the span showed.
func (r *Reviews) addPulls(ctx context.Context, s *span) error {
	asked := map[int]bool{}
	for i := len(s.commits) - 1; i >= 0; i-- {
		commit := s.commits[i].ID
		numbers, err := r.Pulls.PullsOf(ctx, commit)
		if err != nil {
			return fmt.Errorf("the pull request of commit %s: %w", commit.Short(), err)
		}
		for _, number := range numbers {
			if asked[number] {
				continue
			}
			asked[number] = true
			if err := r.addPull(ctx, s, number); err != nil {
				return fmt.Errorf("pull request %d: %w", number, err)
			}
		}
	}
	return nil
}

func (r *Reviews) addPull(ctx context.Context, s *span, number int) error {
	pull, err := r.Pulls.Pull(ctx, number)
	if err != nil {
		return err
	}
	i, within := s.at[pull.MergeCommit]
	if pull.State != forge.PullMerged || pull.Base != r.Branch || !within {
		return nil // it contains the commit, and was not merged as a commit of the span
	}
	s.merges[i] = true
	record, known, err := r.Records.PullRecord(ctx, number)
	if err != nil || !known {
		return err
	}
	if agreed := record.Agreed(pull.Head); agreed != nil {
		s.commits[i].Shown = append(s.commits[i].Shown, agreed)
	}
	if record.Consented != pull.Head {
		// a deletion counts only if an owner of everything that the pull request touches approved
		// it
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
		if c := record.Cleared; c != nil && c.Head == pull.Head &&
			slices.Contains(c.Deletions, e.Key) {
			d.Approved, d.By = true, "github:"+c.By.Login+" ("+strconv.FormatInt(c.By.ID, 10)+")"
		}
		s.deletions[e.Key] = d
	}
	return nil
}

// addPushes marks the commits that accounts of DirectPush pushed. A click on "merge" pushes too,
// and reviews nothing: a push that contains the merge commit of a pull request is not direct.
func (r *Reviews) addPushes(ctx context.Context, s *span) error {
	if len(r.DirectPush) == 0 || len(s.commits) == 0 {
		return nil
	}
	pushes, err := r.Records.Pushes(ctx, slices.Collect(maps.Keys(s.at)))
	if err != nil || len(pushes) == 0 {
		return err
	}
	trusted, err := r.trusted(ctx)
	if err != nil {
		return fmt.Errorf("accounts that may push directly: %w", err)
	}
	for _, p := range pushes {
		first, last, ok := s.pushed(p)
		if !ok || !trusted[p.By.ID] {
			continue
		}
		if age := r.Now().Sub(p.At); age < minPushAge {
			return fmt.Errorf("the push of %s is too recent to distinguish it from a merge",
				p.After.Short())
		}
		for i := first; i <= last; i++ {
			s.commits[i].Trusted = true
		}
	}
	return nil
}

// pushed returns the indexes of the commits that a push brought; false if some of them are outside
// of the span, or one is a merge.
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

// trusted returns the IDs of the accounts whose direct pushes count.
func (r *Reviews) trusted(ctx context.Context) (map[int64]bool, error) {
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
