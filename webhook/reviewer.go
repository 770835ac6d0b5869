package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Errors of a Planner. After the first three nothing is known yet: it is looked at again.
var (
	// ErrNotLeading says that another replica applies the branch, or none yet.
	ErrNotLeading = errors.New("this replica does not apply the branch now")
	// ErrUnsettled says that the branch's head is being applied.
	ErrUnsettled = errors.New("the branch's head is being applied")
	// ErrMoved says that the ref is not at the commit that was asked for: Git and the API of a
	// forge may differ for a moment.
	ErrMoved = errors.New("the head has moved on")
	// ErrUnmergeable says that the head can never be merged as it is; the error tells why.
	ErrUnmergeable = errors.New("it cannot be merged")
)

// Preview is what a head would change, held against the applied base.
type Preview struct {
	Base  fleet.Revision // applied
	Files []string       // below fleet/ and tenants/ that the merge changes
	// Shown is the files that the head has otherwise than the commit where it parted from the
	// branch, also where the branch has the same by now: path to blob, "" if the head removes it.
	Shown     map[string]string
	Problems  []fleet.Problem
	Conflicts []string       // files that changed on both sides
	Behind    bool           // the branch's head is not applied, and waits
	Report    *report.Report // nil of a Parse
	Hash      string
	Effects   []mirror.Effect

	unsettled bool // the branch's head is being applied: it is looked at again
	outdated  bool // and the plan that was made of this head was made against another base
}

// Planner is the reconciler: it holds what is applied.
type Planner interface {
	// Wake says that the branch may have moved.
	Wake()
	// Preview plans what the head at ref changes. ErrNotLeading, ErrUnsettled and ErrMoved say "not
	// now".
	Preview(ctx context.Context, ref string, head fleet.Revision) (Preview, error)
	// Parse reads and checks the files that the head changes, each on its own: for forks that
	// nobody has looked at.
	Parse(ctx context.Context, ref string, head fleet.Revision) (Preview, error)
	// Platform is Fleet.spec of the applied base, and Tenant one tenant's grant.
	Platform() (fleet.FleetSpec, error)
	Tenant(name fleet.TenantName) (spec fleet.TenantSpec, declared bool, err error)
	// Engine is an engine's spec in the applied base.
	Engine(name fleet.EngineName) (spec fleet.EngineSpec, declared bool, err error)
	// Applied is the revision that is applied, and includes whether it has the commit.
	Applied(ctx context.Context, commit fleet.Revision) (applied fleet.Revision, includes bool,
		err error)
}

// Records is what the store keeps of pull requests, and what it knows of what they touch.
type Records interface {
	Ask(ctx context.Context, looks []forge.Recheck) error
	PullRecord(ctx context.Context, number int) (forge.PullRecord, bool, error)
	SavePull(ctx context.Context, r forge.PullRecord) error
	UnsettledPulls(ctx context.Context) ([]forge.PullRecord, error)
	SaveReviewed(ctx context.Context, p forge.ReviewedPlan) error
	Reviewed(ctx context.Context, number int, head fleet.Revision) (forge.ReviewedPlan, bool, error)
	// PinOwner takes that the Git host has the account or team id under the name now, and returns
	// whom the name is pinned to.
	PinOwner(ctx context.Context, host, name string, id int64) (view.Owner, error)
	// Pushes are the pushes to the branch that ended at one of these commits, as signed deliveries
	// told.
	Pushes(ctx context.Context, ends []fleet.Revision) ([]forge.Push, error)
	Colliding(ctx context.Context, number int, touches []string) ([]forge.Collision, error)
	Outcomes(ctx context.Context, keys []fleet.ObjectKey) ([]forge.Outcome, error)
	Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error)
	Holds(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) ([]mirror.Hold,
		string, error)
	Engines(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Engine, string, error)
	Agents(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Agent, string, error)
}

// Config is what a Reviewer is made of.
type Config struct {
	Forge   Forge
	Host    string // whose names owners are: the URL of the forge's API
	Planner Planner
	Records Records
	Branch  string // that pull requests are to be merged into
	// URL of the page, without a slash at its end; empty: there is none to link to
	Public  string
	Sweep   time.Duration // how often everything open is looked for
	HookURL string        // where deliveries arrive, for asking for lost ones; empty: unknown
	// DirectPush lists accounts and teams ("github:alice", "github:acme/platform") whose direct
	// pushes to the branch count as reviewed by the platform.
	DirectPush []string
	Log        *slog.Logger
	Now        func() time.Time // nil: the system's clock
}

// Reviewer looks at pull requests and reports what they come to. It works on the replica that
// applies the branch.
type Reviewer struct {
	Config
	people people

	mu sync.Mutex
	// merged pull requests whose result is followed: when they are looked at next
	following map[int]time.Time
	swept     time.Time // deliveries before it were asked for again
	// revisions may have been recorded without a look at the pull requests that they concern
	missed  bool
	steps   []Step               // the latest
	waiting map[string]time.Time // looks that are put off, by key: since when
	looking map[int]bool         // pull requests that are being looked at
}

// NewReviewer makes a Reviewer that has looked at nothing.
func NewReviewer(c Config) *Reviewer {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Reviewer{Config: c, people: people{forge: c.Forge, host: c.Host, pins: c.Records,
		log: c.Log, now: c.Now, known: map[string]lookedUp{}},
		following: map[int]time.Time{}, waiting: map[string]time.Time{}, looking: map[int]bool{}}
}

// Look does what was asked for. An error is tried again; a *forge.Busy says when, and is no
// failure: it may come as often as it takes.
func (r *Reviewer) Recheck(ctx context.Context, l forge.Recheck) error {
	return r.later(l, r.recheck(ctx, l))
}

// pushesApart is how long one look at the branch keeps the next one waiting, so that a burst of
// pushes is a few looks, the last of them after the last push.
const pushesApart = 600 * time.Millisecond

func (r *Reviewer) recheck(ctx context.Context, l forge.Recheck) error {
	switch l.Kind {
	case forge.RecheckBranch:
		r.Planner.Wake()
		pacing.Sleep(ctx, pushesApart)
		return nil
	case forge.RecheckPull:
		return r.pull(ctx, l.Number, false)
	case forge.RecheckHead:
		return r.head(ctx, l.Head)
	case forge.RecheckGroup:
		return r.group(ctx, l)
	case forge.RecheckAll:
		return r.sweep(ctx)
	}
	r.Log.Warn("something unknown was to be looked at; a newer version asked for it", "look",
		l.Key())
	return nil
}

// pull looks at one pull request; again reports its checks also when they are as they were.
func (r *Reviewer) pull(ctx context.Context, number int, again bool) error {
	if !r.enter(number) {
		return errTwice
	}
	defer r.leave(number)
	record, known, err := r.Records.PullRecord(ctx, number)
	if err != nil {
		return err
	}
	if known && record.State == forge.PullMerged && record.MergeCommit != "" &&
		record.Base == r.Branch {
		// for good: what is left to tell stands in the store, and the forge is asked to write alone
		return r.merged(ctx, record)
	}
	pull, err := r.Forge.Pull(ctx, number)
	switch {
	case errors.Is(err, forge.ErrNoSuchPull) && known:
		record.State, record.Settled = forge.PullClosed, true
		return r.Records.SavePull(ctx, record)
	case errors.Is(err, forge.ErrNoSuchPull):
		return nil
	case err != nil:
		return err
	}
	ours := pull.Base == r.Branch
	if !known && (!ours || pull.State != forge.PullOpen) {
		return nil // nobody was promised anything
	}
	if again || record.Head != pull.Head {
		record.Marked = ""
	}
	if record.Head != pull.Head {
		record.Seen = &forge.Sighting{Head: pull.Head}
	}
	record.Pull = pull
	switch {
	case pull.State == forge.PullMerged && ours:
		return r.merged(ctx, record)
	case pull.State == forge.PullOpen && ours:
		record.Settled, record.FollowedAt = false, nil
		return r.open(ctx, record)
	default:
		return r.closed(ctx, record)
	}
}

// head reports the checks of the pull requests at this head again: somebody asked for it, or a
// status under our name was set by another.
func (r *Reviewer) head(ctx context.Context, head fleet.Revision) error {
	records, err := r.Records.UnsettledPulls(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		if record.Head == head && record.State == forge.PullOpen {
			err = errors.Join(err, r.pull(ctx, record.Number, true))
		}
	}
	return err
}

// Recorded says that a revision was applied which changes what these tenants have ("" is the
// platform): their open pull requests are planned anew, and results are followed. step is nil when
// the branch went on by more than one commit.
func (r *Reviewer) Recorded(ctx context.Context, tenants []fleet.TenantName, step *Step) {
	if step != nil {
		r.remember(*step)
	}
	records, err := r.Records.UnsettledPulls(ctx)
	if err == nil {
		err = r.Records.Ask(ctx, touched(records, tenants))
	}
	if err != nil {
		r.miss(true)
		r.Log.Warn("open pull requests are planned anew at the next sweep", "error", err)
	}
}

// miss sets whether the next sweep looks at every open pull request, and says whether it was to.
func (r *Reviewer) miss(missed bool) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, r.missed = r.missed, missed
	return was
}

// touched is the looks at the records that a change for these tenants may make others of.
func touched(records []forge.PullRecord, tenants []fleet.TenantName) []forge.Recheck {
	changed := map[fleet.TenantName]bool{}
	for _, t := range tenants {
		changed[t] = true
	}
	var looks []forge.Recheck
	for _, record := range records {
		meets := record.State == forge.PullMerged || changed[""]
		for _, t := range record.Tenants {
			meets = meets || changed[t] || t == ""
		}
		if meets {
			looks = append(looks, forge.Recheck{Kind: forge.RecheckPull, Number: record.Number})
		}
	}
	return looks
}
