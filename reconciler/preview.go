package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan"
)

// Errors of a Preview or Parse that a caller tells apart with errors.Is. After the first three
// nothing is known yet: ask again.
var (
	// ErrNotLeading says that another replica applies the branch, or that this one has not loaded
	// what is applied.
	ErrNotLeading = errors.New("this replica does not apply the branch now")
	// ErrUnsettled says that the branch's head is being applied, or cannot be.
	ErrUnsettled = errors.New("the branch's head is not applied yet")
	// ErrMoved says that the ref stands at another commit than the one that was asked for.
	ErrMoved = errors.New("the ref has moved on")
	// ErrUnmergeable says that the commit can never be merged as it is; the error tells why.
	ErrUnmergeable = errors.New("it cannot be merged")
)

// Pulls is the pull requests and merge groups of the config repo.
type Pulls interface {
	// Merge brings the commit that ref stands at into the mirror, and calls visit for every file
	// below fleet/ and tenants/ that merging it into base changes there. Conflicts are not visited.
	// Errors: ErrMoved when ref, a full name, does not stand at head; ErrUnmergeable.
	Merge(ctx context.Context, ref string, base, head fleet.Revision, visit func(File) error) (
		Merged, error)
}

// Merged is what a merge comes to beside the files that it changes.
type Merged struct {
	Shown     map[string]string // as Preview.Shown
	Conflicts []string          // paths that both sides have changed since they parted
}

// PreviewRequest names what is to be looked at.
type PreviewRequest struct {
	Ref  string         // full name, such as refs/pull/7/head
	Head fleet.Revision // that Ref stands at
}

// Preview is what a head would change if it were merged into what is applied.
type Preview struct {
	Base   fleet.Revision // applied
	Head   fleet.Revision
	Behind bool     // the branch's own head waits for an approval, and Base is not it
	Files  []string // below fleet/ and tenants/ that the head changes, Conflicts included; sorted
	// Shown is every file below fleet/ and tenants/ that the head has otherwise than the commit
	// where it parted from Base, also where Base has the same by now: path to blob, "" if the head
	// removes it. A merge may write each of them once the branch goes on.
	Shown map[string]string
	// that both sides have changed since they parted, also where git can merge the lines; sorted.
	// They are not in Plan
	Conflicts []string
	Problems  []fleet.Problem // with their lines
	Plan      *plan.Plan      // with Request.Explain; nil of a Parse
	// what is in effect: owners, grants and guards come from there. It goes on with the branch
	Catalog *catalog.View
}

// basis is what previews are made from, as the loop publishes it.
type basis struct {
	state    *plan.AppliedState
	revision fleet.Revision // applied
	settled  bool           // nothing of the branch is to be applied but what waits for an approval
	behind   bool
	unread   []fleet.EngineName                         // as plan.Request.Unread
	unheard  []fleet.EngineName                         // as plan.Request.SilentAgents
	stands   map[fleet.EnvironmentID][]fleet.EngineName // as plan.Request.Reported
}

// previews is what the loop and those who preview share.
type previews struct {
	at atomic.Pointer[basis]
	// full while a plan is made: a commit waits for those that read the AppliedState, so at most
	// for one
	computing chan struct{}
}

// publish says what stands now. The loop's own fields are not read by others.
func (l *Loop) publish() {
	if l.state == nil {
		l.previews.at.Store(nil)
		return
	}
	revision := l.state.Revision()
	l.previews.at.Store(&basis{state: l.state, revision: revision, behind: l.seen != revision,
		unread: l.recovery.Unread(), unheard: l.recovery.SilentAgents(),
		stands:  l.recovery.Orphaned(),
		settled: !l.recovery.Pending() && revision != "" && l.judged != "" && l.judged == l.seen})
}

// Preview plans what the head would change if it were merged into what is applied: file by file,
// with the guards, placements and defaults that are in effect. It changes nothing, and may be
// called by several goroutines while the loop works.
//
// Errors: ErrNotLeading, ErrUnsettled, ErrMoved, ErrUnmergeable; those of the mirror and of the
// store.
func (l *Loop) Preview(ctx context.Context, r PreviewRequest) (Preview, error) {
	at := l.previews.at.Load()
	switch {
	case at == nil:
		return Preview{}, ErrNotLeading
	case !at.settled:
		return Preview{}, ErrUnsettled
	}
	out, inputs, err := l.merged(ctx, at, r)
	if err != nil {
		return Preview{}, err
	}
	request := &plan.Request{Revision: r.Head, Relation: plan.RelationDescendant, Files: inputs,
		Explain: true}
	if out.Plan, err = l.planned(ctx, at, request); err != nil {
		return Preview{}, fmt.Errorf("plan %s: %w", r.Ref, err)
	}
	l.locate(ctx, out.Plan)
	out.Problems = out.Plan.Problems
	return out, nil
}

// planned makes a plan as the loop would, but for the reviewers, who are only about to see it.
func (l *Loop) planned(ctx context.Context, at *basis, r *plan.Request) (*plan.Plan, error) {
	select {
	case l.previews.computing <- struct{}{}:
		defer func() { <-l.previews.computing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	lately, err := l.Store.Recent(ctx, window(at.state))
	if err != nil {
		return nil, err
	}
	r.Now, r.Recent, r.Unread, r.SilentAgents, r.Reported = lately.Now, lately.Deleted, at.unread,
		at.unheard, at.stands
	p, err := l.weigh(ctx, at.state, r)
	if err == nil && (p.Base != at.revision || p.NeedsEngines) {
		// The loop was faster, so that the files were compared with another revision; or where it
		// would place something is not known yet.
		return nil, ErrUnsettled
	}
	return p, err
}

// Parse decodes the files that the head changes, each for itself: nothing is planned, and no other
// declaration is looked at. It is for what strangers propose. Problems are those of these files
// alone. Errors are those of Preview, but for ErrUnsettled.
func (l *Loop) Parse(ctx context.Context, r PreviewRequest) (Preview, error) {
	at := l.previews.at.Load()
	if at == nil || at.revision == "" {
		return Preview{}, ErrNotLeading
	}
	out, inputs, err := l.merged(ctx, at, r)
	if err != nil {
		return Preview{}, err
	}
	for _, in := range inputs {
		out.Problems = append(out.Problems, in.Problems...)
	}
	return out, nil
}

// merged fetches the head and decodes what it changes.
func (l *Loop) merged(ctx context.Context, at *basis, r PreviewRequest) (Preview, []catalog.Input,
	error) {
	out := Preview{Base: at.revision, Head: r.Head, Behind: at.behind,
		Catalog: &at.state.Catalog().View}
	var merged Merged
	counted := &counting{Decoder: l.Decoder}
	inputs, err := collect(counted, out.Catalog, false, func(visit func(File) error) (err error) {
		merged, err = l.Pulls.Merge(ctx, r.Ref, at.revision, r.Head, func(f File) error {
			if err := counted.tooMany(); err != nil {
				return err
			}
			out.Files = append(out.Files, f.Path)
			return visit(f)
		})
		return err
	})
	if err == nil {
		err = counted.tooMany()
	}
	if err != nil {
		return Preview{}, nil, fmt.Errorf("read %s: %w", r.Ref, err)
	}
	out.Shown, out.Conflicts = merged.Shown, merged.Conflicts
	out.Files = append(out.Files, out.Conflicts...)
	slices.Sort(out.Files)
	return out, inputs, nil
}

// mostProblems is how many problems one pull request may have. People read some tens of them, and
// each takes memory.
const mostProblems = 1000

// counting is a Decoder that counts the files it decoded and their problems.
type counting struct {
	Decoder
	files, problems atomic.Int64
}

// Decode decodes and counts.
func (c *counting) Decode(f File) (catalog.Input, bool) {
	in, ours := c.Decoder.Decode(f)
	c.files.Add(1)
	c.problems.Add(int64(len(in.Problems)))
	return in, ours
}

func (c *counting) tooMany() error {
	if c.problems.Load() <= mostProblems {
		return nil
	}
	return fmt.Errorf(
		"%w: %d problems in the first %d files, and one pull request may have %d; fix them with "+
			"argosy validate, or split it",
		ErrUnmergeable, c.problems.Load(), c.files.Load(), mostProblems)
}

// Base is the revision that is applied and what is in effect; ErrNotLeading when this replica does
// not know. The view goes on with the branch.
func (l *Loop) Base() (fleet.Revision, *catalog.View, error) {
	at := l.previews.at.Load()
	if at == nil {
		return "", nil, ErrNotLeading
	}
	return at.state.Revision(), &at.state.Catalog().View, nil
}

// Includes reports whether the applied revision has the commit in its history, and which one that
// is.
func (l *Loop) Includes(ctx context.Context, commit fleet.Revision) (applied fleet.Revision,
	includes bool, err error) {
	applied, _, err = l.Base()
	if err != nil || applied == "" {
		return applied, false, err
	}
	relation, err := l.Source.Relation(ctx, commit, applied)
	return applied, relation == RelationSame || relation == RelationDescendant, err
}
