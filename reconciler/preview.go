package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
)

// Pulls are the pull requests and merge groups of the config repo.
type Pulls interface {
	// Merge fetches the commit of ref into the local copy, and calls visit for every file below
	// fleet/ and tenants/ that merging it into base changes there. Conflicts are not visited.
	// Errors: mirror.ErrMoved if ref, a full name, does not point at head; mirror.ErrUnmergeable.
	Merge(ctx context.Context, ref string, base, head fleet.Revision, visit func(File) error) (
		Merged, error)
}

// Merged is the result of a merge apart from the files that it changes.
type Merged struct {
	Base      fleet.Revision    // the merge base
	Shown     map[string]string // as Preview.Shown
	Conflicts []string          // paths that both sides have changed since their merge base
}

// PreviewRequest names a commit to preview.
type PreviewRequest struct {
	Ref  string         // full name, such as refs/pull/7/head
	Head fleet.Revision // the commit that Ref points at
	// Lists reports whether an owner of the tenant lets the head list the tenant's private
	// repositories: their folders and fields show in the plan. nil: no tenant's
	Lists func(fleet.TenantName) bool
}

// Preview is the effect of a merge of a commit into the applied revision.
type Preview struct {
	Base   fleet.Revision // applied
	Head   fleet.Revision
	Parted fleet.Revision // where Head parted from Base
	Behind bool           // the branch's own head is held, so that Base is an earlier commit
	// below fleet/ and tenants/ that the head changes, including Conflicts; sorted
	Files []string
	// Shown is every file below fleet/ and tenants/ in which the head differs from the merge base,
	// also if Base has the same content by now: path to blob, "" if the head removes it. A merge
	// may write each of these files once the branch moves on.
	Shown map[string]string
	// that both sides have changed since their merge base, also where git can merge the lines;
	// sorted. Plan lacks them
	Conflicts []string
	// Beside are the directories of rings that the head changes, outside of fleet/ and tenants/
	Beside   []string
	Problems []fleet.Problem // with their lines
	Plan     *plan.Plan      // with Request.Explain; nil of a Parse
	// in effect: owners, grants and guards; it follows the branch
	Catalog *catalog.View
}

// Previewer plans and decodes pull requests against what the loop has published.
type Previewer struct {
	pulls   Pulls
	repo    *repo
	planner planner
	unready UnreadyReader         // may be nil
	rings   RingProblem           // may be nil
	at      atomic.Pointer[basis] // nil: this replica does not lead
	// computing is full while a plan is computed: a commit waits for readers of the applied state,
	// so at most for one.
	computing chan struct{}
}

func newPreviewer(pulls Pulls, r *repo, p planner, u UnreadyReader, rings RingProblem) *Previewer {
	return &Previewer{pulls: pulls, repo: r, planner: p, unready: u, rings: rings,
		computing: make(chan struct{}, 1)}
}

// basis is the applied state that previews are planned against.
type basis struct {
	state    *plan.AppliedState
	revision fleet.Revision // applied
	plan     string         // hash of the last recorded plan
	ready    bool           // every change of the branch is applied or held
	behind   bool           // the branch's head is held
	request  plan.Request   // what a recovery has not found yet
	lease    mirror.Lease   // of the leader that published it
}

// withdraw ends previews until the next publish.
func (v *Previewer) withdraw() { v.at.Store(nil) }

// Preview plans the effect of a merge of the head into the applied revision: file by file, with the
// guards, placements and defaults in effect. It changes nothing, and several goroutines may call it
// while the loop works.
//
// Errors: mirror.ErrNotLeader, mirror.ErrNotReady, mirror.ErrMoved, mirror.ErrUnmergeable; those of
// the local copy and of the store.
func (v *Previewer) Preview(ctx context.Context, r PreviewRequest) (Preview, error) {
	at := v.at.Load()
	switch {
	case at == nil:
		return Preview{}, mirror.ErrNotLeader
	case !at.ready:
		return Preview{}, mirror.ErrNotReady
	}
	out, inputs, err := v.merged(ctx, at, r)
	if err != nil {
		return Preview{}, err
	}
	if inputs, err = v.repo.proposed(ctx, inputs, r.Lists); err != nil {
		return Preview{}, fmt.Errorf("read %s: %w", r.Ref, err)
	}
	request := at.request
	request.Revision, request.Relation = r.Head, mirror.RelationDescendant
	request.Files, request.Explain = inputs, true
	if v.unready != nil && slices.ContainsFunc(out.Files, ofEngine) {
		if request.Unready, err = v.unready.Unready(ctx); err != nil {
			return Preview{}, err
		}
	}
	if out.Plan, err = v.planned(ctx, at, &request); err != nil {
		return Preview{}, fmt.Errorf("plan %s: %w", r.Ref, err)
	}
	v.repo.locate(ctx, out.Plan)
	out.Problems = out.Plan.Problems
	return out, v.checkRings(ctx, &out, inputs)
}

// ofEngine reports whether a path is that of an Engine, whose drain may begin.
func ofEngine(path string) bool { return strings.HasPrefix(path, "fleet/engines/") }

// planned computes a plan as the loop would, without reviews, which do not exist yet.
func (v *Previewer) planned(ctx context.Context, at *basis, r *plan.Request) (*plan.Plan, error) {
	select {
	case v.computing <- struct{}{}:
		defer func() { <-v.computing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := v.planner.readHistory(ctx, at.state, r); err != nil {
		return nil, err
	}
	p, err := v.planner.computeGuarded(ctx, at.state, r)
	if err == nil && (p.Base != at.revision || p.NeedsEngines) {
		// The loop was faster, so that the files were compared with another revision; or a recovery
		// does not know a placement yet.
		return nil, mirror.ErrNotReady
	}
	return p, err
}

// Parse decodes each file that the head changes by itself, without a plan and without other
// declarations. It serves proposals of strangers: a set is not expanded, since its problems would
// show what a private repository has. Problems are those of these files alone. Errors are those of
// Preview, but never mirror.ErrNotReady.
func (v *Previewer) Parse(ctx context.Context, r PreviewRequest) (Preview, error) {
	at := v.at.Load()
	if at == nil || at.revision == "" {
		return Preview{}, mirror.ErrNotLeader
	}
	out, inputs, err := v.merged(ctx, at, r)
	if err != nil {
		return Preview{}, err
	}
	for _, in := range inputs {
		out.Problems = append(out.Problems, in.Problems...)
		if d := in.Declaration; d != nil && d.Set != nil {
			for _, g := range d.Set.Generated {
				out.Problems = append(out.Problems, g.Problems...)
			}
		}
	}
	return out, nil
}

// merged fetches the head and decodes what it changes, sets without listings.
func (v *Previewer) merged(ctx context.Context, at *basis, r PreviewRequest) (Preview,
	[]catalog.Input, error) {
	out := Preview{Base: at.revision, Head: r.Head, Behind: at.behind,
		Catalog: &at.state.Catalog().View}
	var merged Merged
	counted := &counting{Decoder: v.repo.Decoder}
	inputs, err := collect(counted, nil, out.Catalog, false, func(
		visit func(File) error) (err error) {
		merged, err = v.pulls.Merge(ctx, r.Ref, at.revision, r.Head, func(f File) error {
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
	out.Parted, out.Shown, out.Conflicts = merged.Base, merged.Shown, merged.Conflicts
	out.Files = append(out.Files, out.Conflicts...)
	slices.Sort(out.Files)
	return out, inputs, nil
}

// mostProblems bounds the problems of one pull request. People read some tens of them, and each
// takes memory.
const mostProblems = 1000

// counting is a Decoder that counts decoded files and their problems.
type counting struct {
	Decoder
	files, problems atomic.Int64
}

// Decode implements Decoder.
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
		mirror.ErrUnmergeable, c.problems.Load(), c.files.Load(), mostProblems)
}

// Base is the applied revision and the catalog in effect; mirror.ErrNotLeader if this replica has
// not loaded them. The view follows the branch.
func (v *Previewer) Base() (fleet.Revision, *catalog.View, error) {
	at := v.at.Load()
	if at == nil {
		return "", nil, mirror.ErrNotLeader
	}
	return at.state.Revision(), &at.state.Catalog().View, nil
}

// Includes reports whether the history of the applied revision has the commit, and returns that
// revision.
func (v *Previewer) Includes(ctx context.Context, commit fleet.Revision) (applied fleet.Revision,
	includes bool, err error) {
	applied, _, err = v.Base()
	if err != nil || applied == "" {
		return applied, false, err
	}
	relation, err := v.repo.Relation(ctx, commit, applied)
	return applied, relation.Continues(), err
}
