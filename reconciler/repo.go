package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan"
)

// repo reads the config repo.
type repo struct {
	Source
	Decoder
	folders folders // unreadable ones
	listed  *follower
}

// read adds the files that differ from the applied revision to a request. Without a difference a
// plan is still made, and costs next to nothing.
func (r *repo) read(ctx context.Context, state *plan.AppliedState, request *plan.Request) error {
	base := state.Revision()
	if base == request.Revision {
		if !r.folders.recheck() {
			return nil
		}
		var err error
		request.Files, err = r.decode(ctx, &state.Catalog().View, base, request.Revision)
		return err
	}
	relation := mirror.RelationDescendant
	if base != "" {
		var err error
		if relation, err = r.Relation(ctx, base, request.Revision); err != nil {
			return err
		}
	}
	if relation == mirror.RelationUnknown {
		base = "" // the applied commit is missing: read everything
	}
	request.Relation = relation
	var err error
	request.Files, err = r.decode(ctx, &state.Catalog().View, base, request.Revision)
	return err
}

// decode reads the files that differ between two commits.
func (r *repo) decode(ctx context.Context, view *catalog.View, base,
	head fleet.Revision) ([]catalog.Input, error) {
	unreadable := r.folders
	if base == "" {
		unreadable = nil // everything is read
	}
	inputs, err := collect(r.Decoder, r.listed, view, base == "", func(
		visit func(File) error) error {
		return r.Changed(ctx, base, head, unreadable, visit)
	})
	if err != nil {
		return nil, fmt.Errorf("read revision %s: %w", head.Short(), err)
	}
	return inputs, nil
}

// sealed reads the SOPS-encrypted files that a plan puts into effect: workers read them from the
// store.
func (r *repo) sealed(ctx context.Context, p *plan.Plan) ([]mirror.SealedBlob, error) {
	var blobs []mirror.SealedBlob
	for _, c := range p.Declarations {
		if c.After == nil || c.After.Sealed == nil {
			continue
		}
		b, err := r.Bytes(ctx, c.After.Blob)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.After.Path, err)
		}
		blobs = append(blobs, mirror.SealedBlob{Tenant: c.Key.Tenant, Blob: c.After.Blob, Bytes: b})
	}
	return blobs, nil
}

// locate adds lines to problems of cross-references. It reads the files of these problems again.
func (r *repo) locate(ctx context.Context, p *plan.Plan) {
	blobs := map[string]string{} // by path
	add := func(k fleet.Key, path, blob string) {
		// a generated declaration has the path of its set or pool, and no blob of Git
		if !fleet.IsGenerated(k, path) {
			blobs[path] = blob
		}
	}
	for _, q := range p.Quarantined {
		add(q.Key, q.Path, q.Blob)
	}
	for _, c := range p.Declarations {
		if c.After != nil {
			add(c.Key, c.After.Path, c.After.Blob)
		}
	}
	fill := func(problems []fleet.Problem) {
		for i := range problems {
			pr := &problems[i]
			if _, known := blobs[pr.Path]; !known {
				blobs[pr.Path] = p.FileBlob(pr.Key, pr.Path)
			}
			if pr.Line > 0 || pr.Field == "" || blobs[pr.Path] == "" {
				continue
			}
			if b, err := r.Bytes(ctx, blobs[pr.Path]); err == nil {
				pr.Line, pr.Column = r.Locate(b, pr.Field)
			}
		}
	}
	fill(p.Problems)
	for i := range p.Quarantined {
		fill(p.Quarantined[i].Problems)
	}
}

// fetchPatience is how long a fetch may take before other work goes on beside it.
const fetchPatience = 2 * time.Second

// fetch brings the branch's head into the local copy. While Git is slow or away, approvals,
// completed deletions and reviews of the applied revision still take effect.
func (l *Loop) fetch(ctx context.Context, lease mirror.Lease) (Head, error) {
	type fetched struct {
		head Head
		err  error
	}
	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan fetched, 1)
	go func() {
		head, err := l.Source.Fetch(fetching)
		done <- fetched{head, err}
	}()
	patience := time.NewTicker(fetchPatience)
	defer patience.Stop()
	for {
		select {
		case f := <-done:
			if f.err != nil && ctx.Err() == nil {
				l.report(ctx, view.Source{}, f.err)
				f.err = errors.Join(f.err, l.reconcileApplied(ctx, lease))
			}
			return f.head, f.err
		case <-patience.C:
			err := l.reconcileApplied(ctx, lease)
			if errors.Is(err, mirror.ErrFenced) || errors.Is(err, mirror.ErrStale) {
				cancel()
				<-done
				return Head{}, err
			}
			if err != nil {
				l.Log.Warn("failed to plan the applied revision while Git is away", "error", err)
			}
		}
	}
}

// reconcileApplied plans the applied revision with what came without a commit.
func (l *Loop) reconcileApplied(ctx context.Context, lease mirror.Lease) error {
	if l.stored.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame}
	l.lacking(r)
	if err := l.stored.readPending(ctx, l.Store, r); err != nil {
		return err
	}
	if now := approvalsOf(r); now != l.branch.approvals && now != l.branch.meanwhile ||
		len(r.Deleted) > 0 || r.Upgraded || r.Thaws {
		if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
			return err
		}
		if _, err := l.planAndRecord(ctx, lease, Head{Revision: r.Revision}, r); err != nil {
			return err
		}
		l.branch.meanwhile = now
	}
	if err := l.takeReviews(ctx, lease); err != nil {
		return err
	}
	if err := l.takeListings(ctx, lease); err != nil {
		return err
	}
	return errors.Join(l.takeMoves(ctx, lease), l.takeRollbacks(ctx, lease))
}

// sourceStatus is a recorded status of the config repo.
type sourceStatus struct {
	head fleet.Revision
	err  string
	at   time.Time
}

// errorBytes bounds an error of the source that the store keeps.
const errorBytes = 1024

// sourceEvery is how often an unchanged status of the source is recorded.
const sourceEvery = 10 * time.Second

// report records the status of the config repo. The store keeps the begin of an outage, because it
// outlives this replica.
//
// After a write that failed, the applied state is loaded again first: without it, the applied
// revision is not known.
func (l *Loop) report(ctx context.Context, s view.Source, err error) {
	if l.stored.state == nil {
		return
	}
	now := sourceStatus{head: s.Head, at: time.Now()}
	if err != nil {
		now.err = printable.Truncate(err.Error(), errorBytes)
	} else {
		s.FetchedAt = &now.at
	}
	if now.head == l.reported.head && now.err == l.reported.err &&
		now.at.Sub(l.reported.at) < sourceEvery {
		return
	}
	s.URL, s.Branch, s.Applied, s.Error = l.URL, l.Branch, l.stored.state.Revision(), now.err
	if serr := l.Store.SetSource(ctx, s); serr != nil {
		if ctx.Err() == nil {
			l.Log.Warn("failed to record the status of the source", "error", serr)
		}
		return
	}
	l.reported = now
}
