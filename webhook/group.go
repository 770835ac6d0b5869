package webhook

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/review"
)

// queued reads the number from the name that GitHub gives the ref of a commit in its merge queue:
// gh-readonly-queue/<branch>/pr-<n>-<sha>.
var queued = regexp.MustCompile(`/pr-([1-9][0-9]{0,8})-[0-9a-f]{7,40}$`)

// group judges a commit of the merge queue: what the branch would be with everything that stands
// before it in the queue. Approvals were asked for before its pull requests came into the queue,
// and each file has to be one that they show; the plan is made anew, and what is then beyond the
// guards needs an approval of one of them.
func (r *Reviewer) group(ctx context.Context, l forge.Recheck) error {
	pulls, err := r.inQueue(ctx, l.Ref)
	if err != nil {
		return err
	}
	if len(pulls) == 0 {
		r.Log.Warn(
			"a commit of the merge queue belongs to no pull request that is known; it is not judged", "ref", l.Ref, "head", l.Head)
		return nil
	}
	record := forge.PullRecord{
		Pull: forge.Pull{Base: r.Branch, Head: l.Head, State: forge.PullOpen}}
	f := review.Facts{Now: r.Now(), Record: record, Queue: pulls,
		Permissions: map[int64]forge.Permission{}}
	for _, p := range pulls {
		if p.Cleared == nil {
			continue
		}
		if f.Permissions[p.Cleared.By.ID], err = r.Forge.Permission(ctx, p.Cleared.By); err != nil {
			return err
		}
	}
	preview, err := r.preview(ctx, &f, l.Ref)
	if err != nil {
		return err
	}
	if f.Unapproved, err = r.unapproved(ctx, preview); err != nil {
		return err
	}
	if err := r.surroundings(ctx, &f, preview); err != nil {
		return err
	}
	f.Link = r.link(pulls[0].Number)
	if err := r.Forge.Mark(ctx, l.Head, review.Decide(f).Checks); err != nil {
		return fmt.Errorf("commit %s of the merge queue: its checks: %w", l.Head.Short(), err)
	}
	if preview.unsettled {
		return ErrUnsettled
	}
	return nil
}

// unapproved lists the files of a commit of the merge queue that no approved pull request shows
// with the same content. Those that git itself merged from two pull requests are among them: nobody
// has seen the outcome.
func (r *Reviewer) unapproved(ctx context.Context, p Preview) ([]string, error) {
	if len(p.Shown) == 0 || p.unsettled || p.Behind {
		return nil, nil // what is not applied yet would be among them; the commit is judged again
	}
	records, err := r.Records.UnsettledPulls(ctx)
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

// inQueue is the pull request that the ref is named for, and those whose deletions somebody has
// approved: they may stand before it.
func (r *Reviewer) inQueue(ctx context.Context, ref string) ([]forge.PullRecord, error) {
	m := queued.FindStringSubmatch(ref)
	if m == nil {
		return nil, nil
	}
	number, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, err
	}
	first, known, err := r.Records.PullRecord(ctx, number)
	if err != nil || !known || first.Consented != first.Head {
		return nil, err // nobody let it into the queue whose word counts
	}
	all, err := r.Records.UnsettledPulls(ctx)
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
