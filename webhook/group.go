package webhook

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/webhook/review"
)

// groupRef matches the ref of a commit in GitHub's merge queue:
// gh-readonly-queue/<branch>/pr-<n>-<sha>.
var groupRef = regexp.MustCompile(`/pr-([1-9][0-9]{0,8})-[0-9a-f]{7,40}$`)

// group reviews a commit of the merge queue: the branch with everything before it in the queue. Its
// pull requests needed approvals to enter the queue, and each of its files must be one that they
// show. The commit is planned again; what exceeds the guards needs an approval on one of the pull
// requests.
func (r *Reviewer) group(ctx context.Context, job forge.Recheck) error {
	pulls, err := r.inQueue(ctx, job.Ref)
	if err != nil {
		return err
	}
	if len(pulls) == 0 {
		r.Log.Warn("ignoring a commit of the merge queue that belongs to no known pull request",
			"ref", job.Ref, "head", job.Head)
		return nil
	}
	record := forge.PullRecord{
		Pull: forge.Pull{Base: r.Branch, Head: job.Head, State: forge.PullOpen}}
	f := review.Facts{
		Now: r.Now(), Record: record, Queue: pulls, Permissions: map[int64]forge.Permission{}}
	for _, p := range pulls {
		if p.Cleared == nil {
			continue
		}
		if f.Permissions[p.Cleared.By.ID], err = r.Forge.Permission(ctx, p.Cleared.By); err != nil {
			return err
		}
	}
	preview, err := r.preview(ctx, &f, job.Ref)
	if err != nil {
		return err
	}
	if f.Unapproved, err = r.unapproved(ctx, preview); err != nil {
		return err
	}
	if err := r.surroundings(ctx, &f, preview); err != nil {
		return err
	}
	f.Link = link(r.Public, pulls[0].Number)
	if err := r.Forge.ReportChecks(ctx, job.Head, review.Decide(f).Checks); err != nil {
		return fmt.Errorf("commit %s of the merge queue: its checks: %w", job.Head.Short(), err)
	}
	if preview.applying {
		return mirror.ErrNotReady
	}
	return nil
}

// unapproved lists the files of a commit of the merge queue that no approved pull request shows
// with the same content. They include files that git merged from two pull requests: that content
// has no review.
func (r *Reviewer) unapproved(ctx context.Context, p Preview) ([]string, error) {
	if len(p.Shown) == 0 || p.applying || p.Behind {
		// Shown includes commits of the branch that are not applied; the job runs again
		return nil, nil
	}
	records, err := r.Records.UnfinishedPulls(ctx)
	if err != nil {
		return nil, err
	}
	left := maps.Clone(p.Shown)
	for _, listed := range records {
		if listed.Consented == "" && listed.ShownAt == "" || listed.Held != nil ||
			listed.State == forge.PullClosed {
			continue
		}
		record, known, err := r.Records.PullRecord(ctx, listed.Number)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(left, func(path, blob string) bool {
			shown, ok := record.Agreed(listed.Head)[path]
			return known && ok && shown == blob
		})
	}
	return slices.Sorted(maps.Keys(left)), nil
}

// inQueue returns the pull request that the ref names, followed by those with approved deletions:
// they may come before it in the queue.
func (r *Reviewer) inQueue(ctx context.Context, ref string) ([]forge.PullRecord, error) {
	m := groupRef.FindStringSubmatch(ref)
	if m == nil {
		return nil, nil
	}
	number, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, err
	}
	first, known, err := r.Records.PullRecord(ctx, number)
	if err != nil || !known || first.Consented != first.Head {
		return nil, err // no owner approved it into the queue
	}
	all, err := r.Records.UnfinishedPulls(ctx)
	if err != nil {
		return nil, err
	}
	pulls := []forge.PullRecord{first}
	for _, p := range all {
		if p.Number != number && p.State == forge.PullOpen && p.Cleared != nil &&
			p.Cleared.Head == p.Head && p.Held == nil {
			pulls = append(pulls, p)
		}
	}
	return pulls, nil
}
