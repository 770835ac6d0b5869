package webhook

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/forge"
)

// Run looks for what no delivery told of: it sweeps when it starts and at each interval, and
// follows what was merged until its result stands. It ends with ctx, and runs where Look does.
func (r *Reviewer) Run(ctx context.Context) {
	r.resume(ctx)
	// the replica that led before may have ended between a revision and the looks that it asks for
	r.miss(true)
	sweeps, steps := time.NewTicker(r.Sweep), time.NewTicker(followEvery)
	defer sweeps.Stop()
	defer steps.Stop()
	r.ask(ctx, sweep())
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweeps.C:
			r.ask(ctx, sweep())
		case <-steps.C:
			r.ask(ctx, r.due())
		}
	}
}

func (r *Reviewer) ask(ctx context.Context, looks []forge.Recheck) {
	if len(looks) == 0 {
		return
	}
	if err := r.Records.Ask(ctx, looks); err != nil && ctx.Err() == nil {
		r.Log.Warn("pull requests are not looked at now; it is tried again", "error", err)
	}
}

// sweep asks for a look at each open pull request that the forge has changed since, at each that is
// no longer open, and at what is applied; and has lost deliveries delivered again.
func (r *Reviewer) sweep(ctx context.Context) error {
	r.Planner.Wake()
	if err := r.redeliver(ctx); err != nil {
		r.Log.Warn(
			"lost deliveries are not asked for; what they told of is looked for all the same",
			"error", err)
	}
	open, err := r.Forge.OpenPulls(ctx, r.Branch)
	if err != nil {
		return err
	}
	records, err := r.Records.UnsettledPulls(ctx)
	if err != nil {
		return err
	}
	missed := r.miss(false)
	if err = r.Records.Ask(ctx, stale(open, records, missed)); err != nil && missed {
		r.miss(true)
	}
	return err
}

// stale is the looks at what the forge has changed since it was looked at; with missed, at
// everything that is open.
func stale(open []forge.Pull, records []forge.PullRecord, missed bool) []forge.Recheck {
	known, listed := map[int]forge.PullRecord{}, map[int]bool{}
	for _, record := range records {
		known[record.Number] = record
	}
	var looks []forge.Recheck
	look := func(number int) {
		looks = append(looks, forge.Recheck{Kind: forge.RecheckPull, Number: number})
	}
	for _, p := range open {
		listed[p.Number] = true
		is, ok := known[p.Number]
		if missed || !ok || is.Head != p.Head || is.State != p.State || is.Title != p.Title ||
			p.UpdatedAt.After(is.UpdatedAt) || is.Marked == "" {
			look(p.Number)
		}
	}
	for _, record := range records {
		if !listed[record.Number] {
			look(record.Number)
		}
	}
	return looks
}

// redeliver has the forge deliver again what it could not. Each is asked for once per sweep as long
// as no try has succeeded.
func (r *Reviewer) redeliver(ctx context.Context) error {
	now := r.Now()
	r.mu.Lock()
	since := r.swept
	r.mu.Unlock()
	if since.IsZero() {
		since = now.Add(-farBack)
	}
	missed, err := r.Forge.Missed(ctx, since)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range missed {
		if err := r.Forge.Redeliver(ctx, m.ID); err != nil {
			return err
		}
		r.Log.Info("a lost delivery is asked for again", "delivery", m.GUID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = now.Add(-2 * r.Sweep) // what was just asked for again may fail again
	return nil
}

// farBack is how far a replica that begins looks back for lost deliveries: GitHub keeps them for
// three days, and what is older than the longest outage of a night shows in the sweep anyway.
const farBack = 12 * time.Hour
