package webhook

import (
	"context"
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet/forge"
)

// collisions is the other open pull requests that change the same files. Those that it is new to,
// and those that it no longer meets, are looked at too: each is to tell of the other. The plan is
// stored before, so that of two that are looked at at once one finds the other.
func (r *Reviewer) collisions(ctx context.Context, record *forge.PullRecord,
	files []string) ([]forge.Collision, error) {
	found, err := r.Records.Colliding(ctx, record.Number, files)
	if err != nil {
		return nil, err
	}
	meets := make([]int, 0, len(found))
	for _, c := range found {
		meets = append(meets, c.Number)
	}
	return found, r.meet(ctx, record, meets)
}

// meet remembers which others it meets from now on, once a look at all that this is news to has
// been asked for.
func (r *Reviewer) meet(ctx context.Context, record *forge.PullRecord, meets []int) error {
	var looks []forge.Recheck
	for _, n := range slices.Concat(meets, record.Meets) {
		if !slices.Contains(meets, n) || !slices.Contains(record.Meets, n) {
			looks = append(looks, forge.Recheck{Kind: forge.RecheckPull, Number: n})
		}
	}
	if len(looks) == 0 {
		return nil
	}
	if err := r.Records.Ask(ctx, looks); err != nil {
		return fmt.Errorf("pull request %d: those that it collides with: %w", record.Number, err)
	}
	record.Meets = meets
	return r.Records.SavePull(ctx, *record)
}

// part ends that, for a pull request that is no longer open: its record has to say so before others
// are looked at.
func (r *Reviewer) part(ctx context.Context, record *forge.PullRecord) error {
	if len(record.Meets) == 0 {
		return nil
	}
	if err := r.Records.SavePull(ctx, *record); err != nil {
		return err
	}
	return r.meet(ctx, record, nil)
}
