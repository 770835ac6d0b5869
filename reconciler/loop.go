package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/lease"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/recovery"
)

// Store is the mirror as the loop sees it.
type Store interface {
	// Load reads all that a start needs.
	Load(ctx context.Context) (mirror.Snapshot, error)
	// Record takes one revision in one transaction, once.
	Record(ctx context.Context, lease mirror.Lease, record mirror.Record) (seq int64, err error)
	// Recent are the Applications that were deleted within the window, and the store's present
	// time.
	Recent(ctx context.Context, window time.Duration) (mirror.Recent, error)
	// RecentCreations counts, by tenant, the Applications that were created within it.
	RecentCreations(ctx context.Context, window time.Duration) (map[fleet.TenantName]int, error)
	// Approvals are the latest of each revision.
	Approvals(ctx context.Context) ([]mirror.Approval, error)
	// Vanished are those of the given rows that the store no longer has: their objects are proven
	// gone.
	Vanished(ctx context.Context, keys []fleet.ObjectKey) ([]fleet.ObjectKey, error)
	// SetSource records how the config repo stands.
	SetSource(ctx context.Context, source view.Source) error
	// Mirror is where the mirror stands.
	Mirror(ctx context.Context) (mirror.State, error)
	// Confirm records that what the mirror holds, as at says, follows from the head of the config
	// repo; false when it stands elsewhere.
	Confirm(ctx context.Context, lease mirror.Lease, at mirror.State) (bool, error)
	// Notify says "look" to all replicas: rows have changed. by is told with it: see Loop.Heard.
	Notify(ctx context.Context, by string) error
}

// Loop turns commits into rows, while it holds the lease "reconciler".
type Loop struct {
	Source   Source
	Decoder  Decoder
	Renderer plan.Renderer
	Store    Store
	Leases   lease.Store
	Stops    recovery.StopRestorer
	Engines  recovery.EngineReader // for a start without a mirror
	Judge    catalog.Judge         // of the config repo's policies; nil: they judge nothing
	Holder   string
	URL      string // of the config repo, without credentials; for people
	Branch   string
	Poll     time.Duration
	Standby  time.Duration // between fetches while another replica leads; default 5 min
	Metrics  *Metrics
	Log      *slog.Logger

	Agents recovery.AgentReports // for a start without a mirror; nil: agents report nothing

	// Of pull requests; each may be nil.
	Pulls Pulls // what Preview and Parse read
	// who saw what was merged; nil: nobody is asked, and whoever may push has reviewed it
	Reviews Reviews

	wake     pacing.Signal
	pushes   *throttle
	terms    *terms
	released pacing.Signal // the lease may be free
	previews *previews
	state    *plan.AppliedState
	base     mirror.State // that the world is of
	proven   bool         // the last plan's head follows what is applied, or is it
	told     standing     // what was last recorded of the source
	recovery *recovery.Recovery
	seen     fleet.Revision // head of the branch when it was fetched last
	judged   fleet.Revision // head that the last plan was made from
	approved approvals      // that it was made with
	// head and hash of the plan that waits as a whole, as it was recorded
	waiting string
	awaits  bool                     // something waits for an approval
	folders folders                  // of the config repo that cannot be read
	leaving map[fleet.ObjectKey]bool // absent rows whose objects are not proven gone
	asker   *asker                   // of who reviewed what; nil: nobody is asked
	// that the applied revision was planned with while Git was away
	between approvals
}

// NewLoop makes a loop that can be woken before it runs.
func NewLoop(l Loop) *Loop {
	l.wake, l.released = pacing.NewSignal(), pacing.NewSignal()
	l.previews = &previews{computing: make(chan struct{}, 1)}
	l.recovery = recovery.New(recovery.Config{Engines: l.Engines, Agents: l.Agents, Stops: l.Stops,
		Wake: l.wake.Set, Log: l.Log})
	if l.Reviews != nil {
		l.asker = newAsker(l.Reviews, l.Poll, l.Log, l.Wake)
	}
	l.terms = newTerms()
	l.pushes = &throttle{burst: pushBurst, period: pushPeriod, pass: func() {
		l.AskReviews()
		l.Wake()
	}}
	return &l
}

// Wake says that the branch, an approval or the store may have changed.
func (l *Loop) Wake() { l.wake.Set() }

// loopLease elects the replica that turns commits into rows.
const loopLease = "reconciler"

// Released says that a lease of that name was given up. It never blocks.
func (l *Loop) Released(lease string) {
	if lease == loopLease {
		l.released.Set()
	}
}

// Heard says that somebody has told of a change in the store: another replica's loop, a worker that
// has proven objects gone, a person's approval. Its own notices are ignored, and so are those of
// emergency stops and of what waits for an agent, which any tenant can cause: a needless pass costs
// a fetch.
func (l *Loop) Heard(notice string) {
	if by, ok := mirror.Pushed(notice); ok {
		if by != l.Holder {
			l.Pushed()
		}
		return
	}
	switch by, _, ok := mirror.Recorded(notice); {
	case ok && by == l.Holder, notice == l.Holder, notice == mirror.NoticeStops,
		notice == mirror.NoticeAgents:
	default:
		l.Wake()
	}
}

// Run works until ctx ends. It starts from what is stored whenever it gets the lease, so that what
// another replica did counts.
func (l *Loop) Run(ctx context.Context) {
	var leading atomic.Bool
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { l.standBy(ctx, &leading) })
	for attempts := 1; ctx.Err() == nil; attempts++ {
		began := time.Now()
		election := lease.Candidate{Store: l.Leases, Name: loopLease, Holder: l.Holder,
			Poll: l.Poll, Released: l.released}
		err := election.Hold(ctx, func(ctx context.Context, held *lease.Held) error {
			began = time.Now()
			leading.Store(true)
			defer leading.Store(false)
			l.state, l.told = nil, standing{}
			return l.passes(ctx, held)
		})
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute { // work that lasted so long was no failed attempt
			attempts = 1
		}
		l.Log.Warn("the loop starts anew", "error", err)
		pacing.Sleep(ctx, pacing.Backoff(min(attempts, 5)))
	}
}

// standbyEvery is between fetches of a replica that does not lead, a quarter more or less. The
// first is within a tenth of it.
const standbyEvery = 5 * time.Minute

// standBy keeps this replica's copy of the config repo near the branch's head while another replica
// leads, so that taking over does not begin with a clone.
func (l *Loop) standBy(ctx context.Context, leading *atomic.Bool) {
	every := cmp.Or(l.Standby, standbyEvery)
	for pause := rand.N(every / 10); pacing.Sleep(ctx, pause); pause = every*3/4 + rand.N(every/2) {
		if leading.Load() {
			continue
		}
		if _, err := l.Source.Fetch(ctx); err != nil && ctx.Err() == nil {
			l.Log.Info("failed to fetch the config repo while another replica leads; trying again",
				"error", err)
		}
	}
}

func (l *Loop) passes(ctx context.Context, held *lease.Held) error {
	defer l.terms.end()
	defer l.previews.at.Store(nil)
	defer l.recovery.Stop()
	if l.asker != nil {
		ctx, end := context.WithCancel(ctx)
		var asking sync.WaitGroup
		asking.Go(func() { l.asker.run(ctx) })
		defer asking.Wait()
		defer end()
	}
	for {
		started := time.Now()
		result, err := l.pass(ctx, held.Lease())
		l.Metrics.reconciled(result, time.Since(started))
		switch {
		case errors.Is(err, mirror.ErrFenced):
			return err
		case errors.Is(err, mirror.ErrStale):
			l.state = nil // the next pass loads what stands
		case err != nil && ctx.Err() == nil:
			l.Log.Warn("nothing is changed; the last good state stands", "error", err)
		}
		l.publish()
		if l.state != nil {
			l.terms.begin(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
		case <-time.After(l.Poll):
		}
	}
}

// pass is one look at everything, and then at what earlier commits wait for.
func (l *Loop) pass(ctx context.Context, lease mirror.Lease) (string, error) {
	result, err := l.look(ctx, lease)
	if err == nil {
		err = l.confirm(ctx, lease)
	}
	if err == nil {
		err = l.takeReviews(ctx, lease)
	}
	return result, err
}

// fetchPatience is how long a fetch may take before other work goes on beside it.
const fetchPatience = 2 * time.Second

// fetch brings the branch's head in. While Git is slow or away, approvals, proofs of removal and
// reviews of what is applied are still acted on.
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
				l.source(ctx, view.Source{}, f.err)
				f.err = errors.Join(f.err, l.meanwhile(ctx, lease))
			}
			return f.head, f.err
		case <-patience.C:
			err := l.meanwhile(ctx, lease)
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

// meanwhile plans the applied revision with what came without a commit.
func (l *Loop) meanwhile(ctx context.Context, lease mirror.Lease) error {
	if l.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	r := &plan.Request{Revision: l.state.Revision(), Relation: plan.RelationSame}
	l.unrecovered(r)
	if err := l.waits(ctx, r); err != nil {
		return err
	}
	if now := approvalsOf(r); now != l.approved && now != l.between || len(r.Deleted) > 0 {
		if err := l.lately(ctx, r); err != nil {
			return err
		}
		if _, err := l.step(ctx, lease, Head{Revision: r.Revision}, r); err != nil {
			return err
		}
		l.between = now
	}
	return l.takeReviews(ctx, lease)
}

// look is one look at the branch: fetch, decode, plan, record. Whatever fails, nothing has changed.
// One that finds nothing new reads no more than the head and what waits, and writes nothing.
func (l *Loop) look(ctx context.Context, lease mirror.Lease) (string, error) {
	if err := l.current(ctx); err != nil {
		return "failed", err
	}
	head, err := l.fetch(ctx, lease)
	if err != nil {
		return "failed", err
	}
	if l.seen = head.Revision; l.seen != l.judged {
		l.publish()
	}
	request := &plan.Request{Revision: head.Revision, Relation: plan.RelationSame, AtHead: true}
	if err := l.waits(ctx, request); err != nil {
		return "failed", err
	}
	if l.quiet(request) {
		l.source(ctx, view.Source{Head: head.Revision}, nil)
		return l.still(), nil
	}
	if err := l.files(ctx, request); err != nil {
		l.source(ctx, view.Source{Head: head.Revision}, err)
		return "failed", err
	}
	return l.plan(ctx, lease, head, request)
}

// current loads the mirror, and loads it anew when it is not what the loop knows: it was restored,
// has failed over or was rebuilt.
func (l *Loop) current(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	now, err := l.Store.Mirror(ctx)
	if err != nil {
		return err
	}
	if now.Life != l.base.Life || now.Applied != l.base.Applied || now.Plan != l.base.Plan {
		l.Log.Warn("the mirror is not what was recorded last; it is loaded anew", "applied",
			now.Applied.Short(), "expected", l.base.Applied.Short())
		l.state, l.told = nil, standing{}
		l.recovery.Stop()
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	l.base.Wanted, l.base.Confirmed = now.Wanted, now.Confirmed
	return nil
}

// load restores the AppliedState from the store, once.
func (l *Loop) load(ctx context.Context) error {
	if l.state != nil {
		return nil
	}
	at, err := l.Store.Mirror(ctx)
	if err != nil {
		return err
	}
	snapshot, err := l.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the mirror: %w", err)
	}
	l.base, l.proven = at, false // what was recorded in between shows in the next pass
	l.recovery.Complete(&snapshot)
	if l.state, err = plan.RestoreAppliedState(snapshot); err != nil {
		return fmt.Errorf("%w; run `argosy rebuild`", err)
	}
	l.state.Judging(l.Judge)
	l.recovery.Require(snapshot.Applied == "" || l.state.Blocked())
	if l.asker != nil {
		l.asker.forget()
	}
	l.followReviews()
	defer l.publish()
	l.awaits, l.waiting, l.judged, l.leaving = l.state.Awaits(), "", "", map[fleet.ObjectKey]bool{}
	l.folders = unreadable(&l.state.Catalog().View)
	for _, key := range l.state.Terminating() {
		l.leaving[key] = true
	}
	return nil
}

// recover continues a recovery of what the mirror cannot know. It costs nothing otherwise.
func (l *Loop) recover(ctx context.Context, r *plan.Request) error {
	if !l.recovery.Required() {
		r.Reported = l.recovery.Orphaned() // until it was recorded
		return nil
	}
	reload, err := l.recovery.Continue(ctx, recovery.Engines(&l.state.Catalog().View, r.Files),
		r.Now)
	if err != nil {
		return err
	}
	l.unrecovered(r)
	if !reload {
		return nil
	}
	l.state = nil
	return l.load(ctx)
}

// unrecovered adds to a request what a recovery still lacks.
func (l *Loop) unrecovered(r *plan.Request) {
	r.Unread, r.SilentAgents = l.recovery.Unread(), l.recovery.SilentAgents()
	r.Reported = l.recovery.Orphaned()
}

// confirm tells the workers that wait for it that what is recorded follows from the head that was
// just fetched.
func (l *Loop) confirm(ctx context.Context, lease mirror.Lease) error {
	if !l.proven || l.base.Wanted <= l.base.Confirmed {
		return nil
	}
	confirmed, err := l.Store.Confirm(ctx, lease, l.base)
	if err != nil {
		return err
	}
	if !confirmed {
		l.state = nil
		return nil
	}
	l.base.Confirmed = l.base.Wanted
	if err := l.Store.Notify(ctx, l.Holder); err != nil {
		l.Log.Debug("no notification; workers poll", "error", err)
	}
	return nil
}

// plan is what a pass does when there is something new.
func (l *Loop) plan(ctx context.Context, lease mirror.Lease, head Head,
	request *plan.Request) (string, error) {
	if err := l.lately(ctx, request); err != nil {
		return "failed", err
	}
	if err := l.recover(ctx, request); err != nil {
		return "failed", err
	}
	l.review(ctx, request)
	p, err := l.step(ctx, lease, head, request)
	var why error
	if errors.Is(err, errUnplanned) {
		why = err // people look there for the reason why a commit does nothing
	}
	l.source(ctx, view.Source{Head: head.Revision}, why)
	if err == nil && p.Waiting != nil && l.state.Revision() != "" {
		// What was approved or proven gone before does not wait with the head.
		standing := *request
		standing.Revision, standing.Relation, standing.AtHead, standing.Files, standing.Created =
			l.state.Revision(), plan.RelationSame, false, nil, nil
		standing.Review, standing.Paths = nil, nil
		_, err = l.step(ctx, lease, Head{Revision: standing.Revision}, &standing)
	}
	if err == nil {
		if p.Waiting == nil {
			l.folders.learn(request.Files)
		}
		l.proven = p.Waiting == nil || request.Relation == string(RelationOlder)
		if !l.state.Blocked() {
			l.recovery.Finish()
		}
		l.judged, l.approved = head.Revision, approvalsOf(request)
	}
	return outcome(p, err), err
}

var errUnplanned = errors.New("cannot be planned")

// step plans one request and records what comes of it.
func (l *Loop) step(ctx context.Context, lease mirror.Lease, head Head,
	r *plan.Request) (*plan.Plan,
	error) {
	p, err := l.compute(ctx, r)
	if err != nil {
		return nil, err
	}
	if p.Empty() && r.Revision == l.state.Revision() {
		l.follow(p, r.Deleted)
		return p, nil
	}
	if err := l.record(ctx, lease, head, r, p); err != nil {
		return nil, fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	return p, nil
}

func (l *Loop) compute(ctx context.Context, r *plan.Request) (*plan.Plan, error) {
	return l.weigh(ctx, l.state, r)
}

// weigh plans, and once more with what deletions are judged by when there are any: how many
// Applications were created lately, which costs as much as they are.
func (l *Loop) weigh(ctx context.Context, w *plan.AppliedState, r *plan.Request) (*plan.Plan,
	error) {
	p, err := w.Compute(*r, l.Renderer)
	if err == nil && r.Created == nil && (p.Waiting != nil || p.Counts.Deleted+p.Counts.Held > 0) {
		if r.Created, err = l.Store.RecentCreations(ctx, window(w)); err != nil {
			return nil, err
		}
		p, err = w.Compute(*r, l.Renderer)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %s %w: %w", r.Revision.Short(), errUnplanned, err)
	}
	return p, nil
}

// lately reads what the guards look back on.
func (l *Loop) lately(ctx context.Context, r *plan.Request) error {
	lately, err := l.Store.Recent(ctx, window(l.state))
	r.Now, r.Recent = lately.Now, lately.Deleted
	return err
}

func window(w *plan.AppliedState) time.Duration {
	return time.Duration(w.Catalog().Fleet().Guards.Window)
}

// quiet reports whether the last plan was made from just this: the same head, no approval and no
// proof of removal since.
func (l *Loop) quiet(r *plan.Request) bool {
	return !l.recovery.Required() && r.Revision == l.judged && approvalsOf(r) == l.approved &&
		len(r.Deleted) == 0
}

// approvals tells two readings apart: one that is given anew is the latest.
type approvals struct {
	count  int
	latest time.Time
}

func approvalsOf(r *plan.Request) approvals {
	of := approvals{count: len(r.Approvals)}
	for _, a := range r.Approvals {
		if a.At.After(of.latest) {
			of.latest = a.At
		}
	}
	return of
}

// still is how a pass ends that finds nothing new.
func (l *Loop) still() string {
	if l.waiting != "" {
		return "held"
	}
	return "unchanged"
}

func outcome(p *plan.Plan, err error) string {
	switch {
	case err != nil:
		return "failed"
	case p.Waiting != nil || p.Counts.Held > 0 || len(p.Holds) > 0:
		return "held"
	case p.Empty():
		return "unchanged"
	default:
		return "recorded"
	}
}

// waits reads what comes without a commit, if anything waits for it: approvals and proofs of
// removal.
func (l *Loop) waits(ctx context.Context, r *plan.Request) (err error) {
	if l.awaits {
		if r.Approvals, err = l.Store.Approvals(ctx); err != nil {
			return err
		}
	}
	if len(l.leaving) > 0 {
		r.Deleted, err = l.Store.Vanished(ctx, slices.Collect(maps.Keys(l.leaving)))
	}
	return err
}

// files reads what differs from the applied revision. Without a difference a plan is still made,
// and costs next to nothing.
func (l *Loop) files(ctx context.Context, r *plan.Request) error {
	base := l.state.Revision()
	if base == r.Revision {
		if !l.folders.recheck() {
			return nil
		}
		var err error
		r.Files, err = l.decode(ctx, base, r.Revision)
		return err
	}
	relation, err := l.relation(ctx, base, r.Revision)
	if err != nil {
		return err
	}
	r.Relation = string(relation)
	r.Files, err = l.decode(ctx, l.diffBase(relation, base), r.Revision)
	return err
}

func (l *Loop) relation(ctx context.Context, base, head fleet.Revision) (Relation, error) {
	if base == "" {
		return RelationDescendant, nil
	}
	return l.Source.Relation(ctx, base, head)
}

// diffBase is the commit whose tree the head is compared with; "" when that is not to be had, and
// everything is read.
func (l *Loop) diffBase(relation Relation, base fleet.Revision) fleet.Revision {
	if relation == RelationUnknown {
		return ""
	}
	return base
}

// decode reads what differs between two commits.
func (l *Loop) decode(ctx context.Context, base, head fleet.Revision) ([]catalog.Input, error) {
	unreadable := l.folders
	if base == "" {
		unreadable = nil // everything is read
	}
	inputs, err := collect(l.Decoder, &l.state.Catalog().View, base == "",
		func(visit func(File) error) error {
			return l.Source.Changed(ctx, base, head, unreadable, visit)
		})
	if err != nil {
		return nil, fmt.Errorf("read revision %s: %w", head.Short(), err)
	}
	return inputs, nil
}

// record stores the plan, makes it the AppliedState, and says "look".
func (l *Loop) record(ctx context.Context, lease mirror.Lease, head Head, r *plan.Request,
	p *plan.Plan) error {
	// Plans of two heads that wait as a whole do the same, namely nothing; people approve one of
	// them.
	waits := string(p.Head) + " " + p.Hash
	if p.Waiting != nil && l.waiting == waits {
		return nil // recorded before; only an approval or another commit changes it
	}
	sealed, err := l.sealed(ctx, p)
	if err != nil {
		return err
	}
	l.locate(ctx, p)
	record := p.Record()
	if l.Pulls != nil && p.Waiting == nil {
		record.Impact = impact(p)
	}
	record.Author, record.Subject, record.CommittedAt, record.Sealed = head.Author, head.Subject,
		head.At, sealed
	if _, err := l.Store.Record(ctx, lease, record); err != nil {
		return err
	}
	switch {
	case p.Waiting != nil:
		l.waiting = waits
	// planning the applied revision anew does not end what another head waits for
	case p.Head != p.Base || r.AtHead:
		l.waiting = ""
	}
	l.state.Commit(p)
	if p.Waiting == nil {
		l.base.Applied, l.base.Plan = p.Head, record.PlanHash
	}
	l.awaits = l.state.Awaits()
	l.followReviews()
	if p.Waiting == nil {
		l.follow(p, r.Deleted)
	}
	l.Log.Info("revision recorded", "revision", p.Head.Short(), "created", p.Counts.Created,
		"changed", p.Counts.Changed, "deleted", p.Counts.Deleted,
		"held", p.Counts.Held, "rows", p.Counts.Rows, "problems", len(p.Problems))
	if err := l.Store.Notify(ctx, mirror.NoticeRecorded(l.Holder, concerned(&record))); err != nil {
		l.Log.Debug("no notification; workers poll", "error", err)
	}
	return nil
}

// impact returns what the reports on pull requests need to know of a plan. Its effects are compared with
// those that were reviewed, unless the branch did not move, or files of its head are held and come later.
func impact(p *plan.Plan) mirror.Impact {
	out := mirror.Impact{Tenants: p.Tenants()}
	held := func(h mirror.Hold) bool { return h.Revision == p.Head && len(h.Paths) > 0 }
	if p.Base != "" && p.Head != p.Base && !slices.ContainsFunc(p.Holds, held) {
		out.Effects = p.Effects()
	}
	return out
}

// concerned lists the engines that a record has something for; nil when engines themselves have
// changed.
func concerned(r *mirror.Record) []fleet.EngineName {
	for i := range r.Declarations {
		if r.Declarations[i].Key.Kind == fleet.KindEngine {
			return nil
		}
	}
	for _, k := range r.Removed {
		if k.Kind == fleet.KindEngine {
			return nil
		}
	}
	found := map[fleet.EngineName]bool{}
	for i := range r.Rows {
		found[r.Rows[i].Key.Engine] = true
	}
	for i := range r.Syncs {
		found[r.Syncs[i].Key.Engine] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// follow keeps the list of what is to be proven gone.
func (l *Loop) follow(p *plan.Plan, gone []fleet.ObjectKey) {
	for _, key := range gone {
		delete(l.leaving, key)
	}
	for _, c := range p.Rows {
		if c.Action == report.Delete {
			l.leaving[c.Row.Key] = true
		} else {
			delete(l.leaving, c.Row.Key)
		}
	}
}

// sealed reads the ciphertexts of the *.sops.yaml files that the plan brings into force: workers
// find them in the store.
func (l *Loop) sealed(ctx context.Context, p *plan.Plan) ([]mirror.SealedBlob, error) {
	var blobs []mirror.SealedBlob
	for _, c := range p.Declarations {
		if c.After == nil || c.After.Sealed == nil {
			continue
		}
		b, err := l.Source.Bytes(ctx, c.After.Blob)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.After.Path, err)
		}
		blobs = append(blobs, mirror.SealedBlob{Tenant: c.Key.Tenant, Blob: c.After.Blob, Bytes: b})
	}
	return blobs, nil
}

// locate finds the lines of problems that cross-references gave: the bytes are read again, for
// these files only.
func (l *Loop) locate(ctx context.Context, p *plan.Plan) {
	blobs := map[fleet.Key]string{}
	for _, q := range p.Quarantined {
		blobs[q.Key] = q.Blob
	}
	for _, c := range p.Declarations {
		if c.After != nil {
			blobs[c.Key] = c.After.Blob
		}
	}
	fill := func(problems []fleet.Problem) {
		for i := range problems {
			pr := &problems[i]
			if pr.Line > 0 || pr.Field == "" || blobs[pr.Key] == "" {
				continue
			}
			if b, err := l.Source.Bytes(ctx, blobs[pr.Key]); err == nil {
				pr.Line, pr.Column = l.Decoder.Locate(b, pr.Field)
			}
		}
	}
	fill(p.Problems)
	for i := range p.Quarantined {
		fill(p.Quarantined[i].Problems)
	}
}

// standing is what was last recorded of the source.
type standing struct {
	head fleet.Revision
	err  string
	at   time.Time
}

// errorBytes bounds an error of the source that the store keeps.
const errorBytes = 1024

// sourceEvery is how often it is recorded that the source is as it was.
const sourceEvery = 10 * time.Second

// source records how the config repo stands. Since when it is not reached is the store's to know:
// it outlives this replica.
func (l *Loop) source(ctx context.Context, s view.Source, err error) {
	now := standing{head: s.Head, at: time.Now()}
	if err != nil {
		now.err = printable.Truncate(err.Error(), errorBytes)
	} else {
		s.FetchedAt = &now.at
	}
	if now.head == l.told.head && now.err == l.told.err && now.at.Sub(l.told.at) < sourceEvery {
		return
	}
	s.URL, s.Branch, s.Applied, s.Error = l.URL, l.Branch, l.state.Revision(), now.err
	if serr := l.Store.SetSource(ctx, s); serr != nil {
		if ctx.Err() == nil {
			l.Log.Warn("the state of the source is not recorded", "error", serr)
		}
		return
	}
	l.told = now
}
