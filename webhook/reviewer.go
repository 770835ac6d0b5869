package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Preview is what a head would change if it were merged into the applied base.
type Preview struct {
	Base  fleet.Revision // applied
	Files []string       // below fleet/ and tenants/ that the merge changes
	// Shown maps every file below fleet/ and tenants/ that the head has otherwise than the commit
	// where it parted from the branch to its blob, "" if the head removes it; also files that the
	// branch has in the same way by now.
	Shown     map[string]string
	Problems  []fleet.Problem
	Conflicts []string       // files that changed on both sides
	Beside    []string       // directories of rings that the head changes
	Behind    bool           // the branch's head is held, and not applied
	Report    *report.Report // nil of a Parse
	Hash      string
	Effects   []mirror.Effect

	applying bool // the loop is applying the branch's head: recheck
	outdated bool // and the stored plan of this head is of another base
}

// Planner plans pull requests against what is applied.
type Planner interface {
	// Wake notifies the loop that the branch may have moved.
	Wake()
	// Preview plans what the head at ref changes, and lists private repositories of the tenants
	// that lists reports. mirror.ErrNotLeader, mirror.ErrNotReady and mirror.ErrMoved mean "not
	// now".
	Preview(ctx context.Context, ref string, head fleet.Revision,
		lists func(fleet.TenantName) bool) (Preview, error)
	// Parse reads and checks each file that the head changes on its own: for forks without
	// permission to be planned.
	Parse(ctx context.Context, ref string, head fleet.Revision) (Preview, error)
	// Platform returns Fleet.spec of the applied base, Tenant the grant of one tenant and Engine
	// the spec of one engine.
	Platform() (fleet.FleetSpec, error)
	Tenant(name fleet.TenantName) (spec fleet.TenantSpec, declared bool, err error)
	Engine(name fleet.EngineName) (spec fleet.EngineSpec, declared bool, err error)
	// Applied returns the applied revision, and whether its history contains the commit.
	Applied(ctx context.Context, commit fleet.Revision) (applied fleet.Revision, includes bool,
		err error)
	// Parent returns the first parent of a commit of the branch, "" of its first commit.
	Parent(ctx context.Context, commit fleet.Revision) (fleet.Revision, error)
}

// Host is the Git host as the Reviewer needs it, under Argosy's own account. Every list is complete
// or an error; an error without a name here means that nothing is known. A *forge.Busy has the time
// of the next try. Each method first verifies the ID of the repository: a repository that took over
// its name is never believed.
type Host interface {
	Reader
	Accounts
	Writer
	Deliveries
	// Permission returns what the person may do in the repository. The ID decides, never the login.
	Permission(ctx context.Context, p forge.Person) (forge.Permission, error)
}

// Reader reads pull requests.
type Reader interface {
	// Pull reads one pull request; forge.ErrNoSuchPull if the repository surely has none of that
	// number.
	Pull(ctx context.Context, number int) (forge.Pull, error)
	// OpenPulls lists the open pull requests against the branch base.
	OpenPulls(ctx context.Context, base string) ([]forge.Pull, error)
	// Conversation lists the comments and the reviews of a pull request, oldest first.
	Conversation(ctx context.Context, number int) ([]forge.Comment, []forge.Review, error)
}

// Writer reports on pull requests.
type Writer interface {
	// SetComment sets the text of Argosy's one comment on a pull request to body, which begins with
	// marker, an HTML comment on one line. It edits the comment with the given ID. If that is 0,
	// deleted or not ours, it finds ours by author and marker, or else posts a new one. It returns
	// the comment's ID.
	SetComment(ctx context.Context, number int, comment int64, marker, body string) (int64, error)
	// ReportChecks reports the checks of a commit.
	ReportChecks(ctx context.Context, head fleet.Revision, checks []forge.Check) error
}

// Proposals opens pull requests of Argosy's own, under its own account.
type Proposals interface {
	// Propose makes the branch of the proposal have its text, and opens the pull request, or gives
	// the open one its title and body. Repeated, it changes nothing.
	Propose(ctx context.Context, p forge.Proposal) (forge.Proposed, error)
	// Withdraw closes the pull request if it is open, and deletes its branch.
	Withdraw(ctx context.Context, number int, branch string) error
}

// Deliveries finds webhook deliveries that never arrived. Both methods return errors.ErrUnsupported
// where the Git host keeps no list of them.
type Deliveries interface {
	// Missed lists the deliveries tried since then without success, oldest first.
	Missed(ctx context.Context, since time.Time) ([]forge.MissedDelivery, error)
	// Redeliver requests one more delivery. Its GUID stays the same.
	Redeliver(ctx context.Context, id int64) error
}

// Records is the store of pull requests, of their review jobs and of what revisions changed.
type Records interface {
	Pins
	Ask(ctx context.Context, jobs []forge.Recheck) error
	PullRecord(ctx context.Context, number int) (forge.PullRecord, bool, error)
	SavePull(ctx context.Context, r forge.PullRecord) error
	UnfinishedPulls(ctx context.Context) ([]forge.PullRecord, error)
	SaveReviewed(ctx context.Context, p forge.ReviewedPlan) error
	Reviewed(ctx context.Context, number int, head fleet.Revision) (forge.ReviewedPlan, bool, error)
	Colliding(ctx context.Context, number int, touches []string) ([]forge.Collision, error)
	// ChangedSince returns the tenants ("" is the platform) that revisions recorded after the given
	// number changed, and the newest number. After a negative number it returns the newest number
	// alone.
	ChangedSince(ctx context.Context, after int64) (tenants []fleet.TenantName, newest int64,
		err error)
	// RecordedEffects returns what recording head changed, and the revision applied before; false
	// if unknown.
	RecordedEffects(ctx context.Context, head fleet.Revision) (base fleet.Revision,
		effects []mirror.Effect, known bool, err error)
}

// Status reads the state of Applications, engines and agents.
type Status interface {
	Outcomes(ctx context.Context, keys []fleet.ObjectKey) ([]forge.Outcome, error)
	Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error)
	Rendered(ctx context.Context, digests []string) ([]mirror.Rendered, error)
	Holds(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]mirror.Hold, string, error)
	Engines(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Engine, string, error)
	Agents(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Agent, string, error)
}

// Config configures a Reviewer.
type Config struct {
	Forge   Host
	Host    string // the URL of the Git host's API: names of owners are pinned per host
	Planner Planner
	Records Records
	Status  Status
	Branch  string        // that pull requests are merged into
	Public  string        // URL of the page, without a trailing slash; empty: no links
	Sweep   time.Duration // between resyncs
	Log     *slog.Logger
	Now     func() time.Time // nil: the system's clock
}

// Reviewer runs review jobs: it plans pull requests and reports the outcome to the Git host. It
// works on the replica that applies the branch.
type Reviewer struct {
	Config
	people people
	woken  pacing.Signal // a revision was recorded
	// number of the newest recorded revision whose pull requests are rechecked; owned by Run
	cursor int64

	mu        sync.Mutex
	following map[int]time.Time    // merged pull requests: when to recheck their result
	swept     time.Time            // deliveries before it were requested again
	missed    bool                 // the next resync rechecks every open pull request
	waiting   map[string]time.Time // postponed jobs by key: since when
	active    map[int]bool         // pull requests under review
}

// NewReviewer returns a Reviewer that has reviewed nothing.
func NewReviewer(c Config) *Reviewer {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Reviewer{
		Config: c, people: newPeople(c.Forge, c.Host, c.Records, c.Log, c.Now),
		woken: pacing.NewSignal(), cursor: -1,
		following: map[int]time.Time{}, waiting: map[string]time.Time{}, active: map[int]bool{},
	}
}

const (
	// A result is rechecked after a quarter of its age within these bounds, and no longer after
	// maxFollow.
	minFollow  = 2 * time.Second
	slowFollow = time.Minute
	maxFollow  = 24 * time.Hour

	// recordedDelay lets one read of the store serve a burst of revisions, and the loop publish the
	// state that previews start from.
	recordedDelay = 200 * time.Millisecond
)

// Run requests the jobs that no delivery requests, until ctx ends: a resync when it starts and in
// each interval, rechecks of the pull requests that a recorded revision concerns, and rechecks of
// merged pull requests until their result is final. It runs where Recheck does.
func (r *Reviewer) Run(ctx context.Context) {
	r.resume(ctx)
	r.recorded(ctx)
	resyncs, steps := time.NewTicker(r.Sweep), time.NewTicker(minFollow)
	defer resyncs.Stop()
	defer steps.Stop()
	r.request(ctx, resync())
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
			if !pacing.Sleep(ctx, recordedDelay) {
				return
			}
			r.recorded(ctx)
		case <-resyncs.C:
			r.recorded(ctx) // makes up for a lost notification
			r.request(ctx, resync())
		case <-steps.C:
			r.request(ctx, r.due())
		}
	}
}

// Wake notifies the Reviewer that a revision was recorded. It never blocks.
func (r *Reviewer) Wake() { r.woken.Set() }

func (r *Reviewer) request(ctx context.Context, jobs []forge.Recheck) {
	if len(jobs) == 0 {
		return
	}
	if err := r.Records.Ask(ctx, jobs); err != nil && ctx.Err() == nil {
		r.Log.Warn("failed to store review jobs; trying again", "error", err)
	}
}

// resume follows the results that the previous leader followed.
func (r *Reviewer) resume(ctx context.Context) {
	records, err := r.Records.UnfinishedPulls(ctx)
	if err != nil {
		r.Log.Warn("failed to read merged pull requests; the next resync follows their results",
			"error", err)
		return
	}
	for _, record := range records {
		if record.State == forge.PullMerged {
			r.follow(record, r.Now(), 0)
		}
	}
}

// recorded requests rechecks of the pull requests that revisions recorded since the last call
// concern. The first call requests none: the first resync rechecks every open pull request, since
// the previous leader may have died between a revision and its rechecks.
func (r *Reviewer) recorded(ctx context.Context) {
	if r.cursor < 0 {
		r.miss(true)
	}
	tenants, newest, err := r.Records.ChangedSince(ctx, r.cursor)
	if err == nil && len(tenants) > 0 {
		var records []forge.PullRecord
		if records, err = r.Records.UnfinishedPulls(ctx); err == nil {
			err = r.Records.Ask(ctx, concerned(records, tenants))
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			r.Log.Warn(
				"failed to request rechecks of the pull requests that a revision concerns; the "+
					"next resync does", "error", err)
		}
		return
	}
	r.cursor = newest
}

// concerned returns rechecks of the records whose plan or result a change for these tenants may
// affect.
func concerned(records []forge.PullRecord, tenants []fleet.TenantName) []forge.Recheck {
	changed := map[fleet.TenantName]bool{}
	for _, t := range tenants {
		changed[t] = true
	}
	var jobs []forge.Recheck
	for _, record := range records {
		hit := record.State == forge.PullMerged || changed[""]
		for _, t := range record.Tenants {
			hit = hit || changed[t] || t == ""
		}
		if hit {
			jobs = append(jobs, forge.Recheck{Kind: forge.RecheckPull, Number: record.Number})
		}
	}
	return jobs
}

// miss sets whether the next resync rechecks every open pull request, and returns what was set
// before.
func (r *Reviewer) miss(missed bool) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.missed = r.missed, missed
	return before
}

// follow sets when the result of a merged pull request is rechecked.
func (r *Reviewer) follow(record forge.PullRecord, now time.Time, age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record.Finished {
		delete(r.following, record.Number)
		return
	}
	r.following[record.Number] = now.Add(min(max(age/4, minFollow), slowFollow))
}

// due returns the rechecks of results whose time has come.
func (r *Reviewer) due() []forge.Recheck {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var jobs []forge.Recheck
	for _, number := range slices.Sorted(maps.Keys(r.following)) {
		if !now.Before(r.following[number]) {
			jobs = append(jobs, forge.Recheck{Kind: forge.RecheckPull, Number: number})
			r.following[number] = now.Add(slowFollow) // the recheck sets its own time
		}
	}
	return jobs
}

// Recheck runs one review job. An error is tried again; a *forge.Busy has the time, is no failure,
// and may be returned any number of times.
func (r *Reviewer) Recheck(ctx context.Context, job forge.Recheck) error {
	return r.postpone(job, r.recheck(ctx, job))
}

func (r *Reviewer) recheck(ctx context.Context, job forge.Recheck) error {
	switch job.Kind {
	case forge.RecheckBranch: // stored by a replica of the previous version
		r.Planner.Wake()
		return nil
	case forge.RecheckPull:
		return r.pull(ctx, job.Number, false)
	case forge.RecheckHead:
		return r.head(ctx, job.Head)
	case forge.RecheckGroup:
		return r.group(ctx, job)
	case forge.RecheckAll:
		return r.resync(ctx)
	}
	r.Log.Warn("ignoring a review job that a newer version requested", "job", job.Key())
	return nil
}

const (
	// A postponed job comes back after a quarter of the time that it has waited, within these
	// bounds: the loop mostly applies the branch within a second, and each try asks the Git host.
	minPostpone = time.Second
	maxPostpone = 30 * time.Second

	// maxGroupWait is how long a commit of the merge queue is awaited whose ref is at another
	// commit: the queue may have dropped it.
	maxGroupWait = 10 * time.Minute

	maxWaiting = 10_000 // jobs with a known start of their wait
)

// errActive means that another job reviews the pull request: two would report twice.
var errActive = errors.New("the pull request is being reviewed already")

// postpone turns an error that means "not now" into one with the time of the next try. Such a job
// has not failed, however long it waits.
func (r *Reviewer) postpone(job forge.Recheck, err error) error {
	now, key := r.Now(), job.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !notNow(err) {
		delete(r.waiting, key)
		return err
	}
	since, waits := r.waiting[key]
	if !waits {
		if len(r.waiting) >= maxWaiting {
			clear(r.waiting)
		}
		since, r.waiting[key] = now, now
	}
	if job.Kind == forge.RecheckGroup && errors.Is(err, mirror.ErrMoved) &&
		now.Sub(since) > maxGroupWait {
		delete(r.waiting, key)
		r.Log.Info("ignoring a commit that the merge queue dropped", "ref", job.Ref, "head",
			job.Head)
		return nil
	}
	pause := min(max(now.Sub(since)/4, minPostpone), maxPostpone)
	return &forge.Busy{Until: now.Add(pause), Err: err}
}

func notNow(err error) bool {
	for _, e := range []error{mirror.ErrNotLeader, mirror.ErrNotReady, mirror.ErrMoved, errActive} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// head reports the checks of the pull requests at this head again: somebody requested it, or
// another account set a status under Argosy's name.
func (r *Reviewer) head(ctx context.Context, head fleet.Revision) error {
	records, err := r.Records.UnfinishedPulls(ctx)
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

// resync wakes the loop, requests lost deliveries again, and rechecks each open pull request that
// changed on the Git host and each that is no longer open.
func (r *Reviewer) resync(ctx context.Context) error {
	r.Planner.Wake()
	if err := r.redeliver(ctx); err != nil {
		r.Log.Warn("failed to request lost deliveries again; the resync finds what they described",
			"error", err)
	}
	open, err := r.Forge.OpenPulls(ctx, r.Branch)
	if err != nil {
		return err
	}
	records, err := r.Records.UnfinishedPulls(ctx)
	if err != nil {
		return err
	}
	missed := r.miss(false)
	if err = r.Records.Ask(ctx, stale(open, records, missed)); err != nil && missed {
		r.miss(true)
	}
	return err
}

// stale returns rechecks of what changed on the Git host since it was reviewed; with all, of
// everything that is open.
func stale(open []forge.Pull, records []forge.PullRecord, all bool) []forge.Recheck {
	known, listed := map[int]forge.PullRecord{}, map[int]bool{}
	for _, record := range records {
		known[record.Number] = record
	}
	var jobs []forge.Recheck
	add := func(number int) {
		jobs = append(jobs, forge.Recheck{Kind: forge.RecheckPull, Number: number})
	}
	for _, p := range open {
		listed[p.Number] = true
		is, ok := known[p.Number]
		if all || !ok || is.Head != p.Head || is.State != p.State || is.Title != p.Title ||
			p.UpdatedAt.After(is.UpdatedAt) || is.Marked == "" {
			add(p.Number)
		}
	}
	for _, record := range records {
		if !listed[record.Number] {
			add(record.Number)
		}
	}
	return jobs
}

// firstRedelivery is the age up to which a new leader searches for lost deliveries: GitHub keeps
// them for three days, and a resync finds the changes of older ones.
const firstRedelivery = 12 * time.Hour

// redeliver requests each lost delivery once per resync until a try succeeds.
func (r *Reviewer) redeliver(ctx context.Context) error {
	now := r.Now()
	r.mu.Lock()
	since := r.swept
	r.mu.Unlock()
	if since.IsZero() {
		since = now.Add(-firstRedelivery)
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
			return fmt.Errorf("delivery %s: %w", m.GUID, err)
		}
		r.Log.Info("requested a lost delivery again", "delivery", m.GUID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = now.Add(-2 * r.Sweep) // the redeliveries may fail too
	return nil
}
