package webhook

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"argosy.dev/argosy/fleet"
)

// mostCommits is how many commits of one step of the branch are asked for. A longer one was not merged pull request by pull request.
const mostCommits = 200

// Reviewed is the deletions that were seen and agreed to in the pull requests merged between two revisions of the branch: commits lists the
// branch's own commits of that span, the newest first. A plan counts if it is of the very head that was merged, and if an owner of everything
// that it touches had approved that head. An error says that nothing is known.
func (r *Reviewer) Reviewed(ctx context.Context, commits []fleet.Revision) (map[fleet.ObjectKey]fleet.ReviewedDeletion, error) {
	if len(commits) > mostCommits {
		return nil, fmt.Errorf("%d commits came at once, more than the %d that are looked through for reviews", len(commits), mostCommits)
	}
	out := map[fleet.ObjectKey]fleet.ReviewedDeletion{}
	seen := map[int]bool{}
	for _, commit := range commits {
		numbers, err := r.Forge.PullsOf(ctx, commit)
		if err != nil {
			return nil, fmt.Errorf("the pull request of commit %s: %w", commit.Short(), err)
		}
		for _, number := range numbers {
			if seen[number] {
				continue
			}
			seen[number] = true
			if err := r.shown(ctx, number, commits, out); err != nil {
				return nil, fmt.Errorf("pull request %d: %w", number, err)
			}
		}
	}
	return out, nil
}

func (r *Reviewer) shown(ctx context.Context, number int, commits []fleet.Revision, out map[fleet.ObjectKey]fleet.ReviewedDeletion) error {
	pull, err := r.Forge.Pull(ctx, number)
	if err != nil {
		return err
	}
	if pull.State != fleet.PullMerged || pull.Base != r.Branch || !slices.Contains(commits, pull.MergeCommit) {
		return nil // it merely contains the commit
	}
	record, known, err := r.Records.PullRecord(ctx, number)
	if err != nil || !known || record.Consented != pull.Head {
		return err
	}
	p, known, err := r.Records.Reviewed(ctx, number, pull.Head)
	if err != nil || !known {
		return err
	}
	for _, e := range p.Effects {
		if !e.Deletes || e.Key.Kind != fleet.ObjectApplication {
			continue
		}
		d := fleet.ReviewedDeletion{Key: e.Key, Pull: number}
		if c := record.Cleared; c != nil && c.Head == pull.Head && slices.Contains(c.Deletions, e.Key) {
			d.Approved, d.By = true, "github:"+c.By.Login+" ("+strconv.FormatInt(c.By.ID, 10)+")"
		}
		out[e.Key] = d
	}
	return nil
}
