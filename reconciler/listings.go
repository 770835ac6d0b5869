package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Lister reads the repositories that sets list.
type Lister interface {
	// List returns the commit of a revision and what it has for each request, in their order. If
	// the commit is Known, it returns no listings and reads nothing else. An error means that
	// nothing is known about the repository; that of one listing, that the commit has too much for
	// its request. ErrTooMuch: for fewer requests there may be a listing.
	List(ctx context.Context, read ListingRead) (fleet.Revision, []ListingResult, error)
}

// ListingRead is one read of a repository. All requests have its tenant, URL and revision.
type ListingRead struct {
	Tenant         fleet.TenantName
	RepoURL        string
	TargetRevision string
	Credential     *fleet.CredentialSource // the tenant's own, in effect; nil: none
	Requests       []fleet.ListingRequest
	Known          fleet.Revision
}

// ListingResult is the listing of one request, or why there is none.
type ListingResult struct {
	Listing fleet.Listing
	Err     error
}

const (
	// listingEvery is between two reads of a repository without a delivery, a quarter more or less.
	listingEvery = 3 * time.Minute
	// After a failed read, the next comes after listingRetry, which doubles up to listingLast.
	listingRetry = 15 * time.Second
	listingLast  = 15 * time.Minute
	// listingPause is the least time between two reads of one repository.
	listingPause = time.Second
	// listingAgain is the pause before the read after a delivery is repeated, if it found nothing:
	// a Git host may deliver a push before all of its servers have it.
	listingAgain = 5 * time.Second
	// listingTime bounds one read, without its wait for other reads.
	listingTime = 2 * time.Minute
	// proposalTime bounds one read for a pull request, proposalPatience all of them with their
	// waits, and proposalAge the use of what they found for the commit that merges it.
	proposalTime     = 15 * time.Second
	proposalPatience = time.Minute
	proposalAge      = 10 * time.Minute
	// Proposals have at most proposalBytes of listings and mostProposals requests: anybody who may
	// open a pull request has them kept.
	mostProposals = 1000
	proposalBytes = 32 << 20

	// mostListed is how many repositories and revisions the sets of one tenant may list, and
	// mostRequests in how many ways one of these.
	mostListed, mostRequests = 200, 50
)

// errTooManyListed is the reason of a request beyond mostListed, errTooManyRequests of one beyond
// mostRequests.
var (
	errTooManyListed = fmt.Errorf("the sets of the tenant list more than %d repositories and "+
		"revisions; let sets share one", mostListed)
	errTooManyRequests = fmt.Errorf("the sets of the tenant list more than %d different paths of "+
		"this revision of the repository; let sets have the same paths", mostRequests)
)

// ErrTooMuch means that a commit has too much for the requests of one read.
var ErrTooMuch = errors.New("the commit has too much")

// place is a revision of a repository that sets of one tenant list.
type place struct {
	tenant            fleet.TenantName
	repoURL, revision string
}

func placeOf(r fleet.ListingRequest) place { return place{r.Tenant, r.RepoURL, r.TargetRevision} }

// followed is a place while a set lists it. One goroutine reads it.
type followed struct {
	place
	kick pacing.Signal
	stop context.CancelFunc

	// guarded by follower.mu
	requests map[fleet.ListingRequest]kept
	tip      fleet.Revision // that all requests were read at
	failure  string         // of the last reads; "": none
	attempts int
	pushed   bool // a delivery named it since the last read
}

// kept is the last good listing of a request, and why the last read gave none.
type kept struct {
	listing *fleet.Listing // nil: none was read
	err     error
}

// follower keeps the listings of the sets in effect and at the head while this replica leads.
type follower struct {
	lister Lister
	status func(context.Context, []mirror.ListingStatus) error
	every  time.Duration
	log    *slog.Logger
	wake   func()

	reads *readQueue

	mu       sync.Mutex
	ctx      context.Context // of the term; nil: this replica does not lead
	view     *catalog.View
	reading  *sync.WaitGroup
	sets     map[fleet.Key][]fleet.ListingRequest
	places   map[place]*followed
	byRepo   map[string]map[place]bool
	ofTenant map[fleet.TenantName]map[place]bool
	asked    map[fleet.ListingRequest]int // sets that request it
	// asked requests that have no room, by tenant and place
	waiting   map[fleet.TenantName]map[place]map[fleet.ListingRequest]bool
	changes   int
	news      map[fleet.ListingRequest]int // not planned; the count of changes at the last one
	proposals map[fleet.ListingRequest]proposal
	proposed  int                            // bytes of proposals since they were cleared
	recorded  map[place]mirror.ListingStatus // in the store
}

// proposal is what was read for a pull request.
type proposal struct {
	ListingResult
	at time.Time
}

func newFollower(c Config, wake func()) *follower {
	f := &follower{lister: c.Lister, status: c.Store.SetListings, every: c.ListingPoll, log: c.Log,
		wake: wake, reads: newReadQueue()}
	if f.every <= 0 {
		f.every = listingEvery
	}
	f.reset()
	return f
}

func (f *follower) reset() {
	f.sets, f.places = map[fleet.Key][]fleet.ListingRequest{}, map[place]*followed{}
	f.byRepo, f.ofTenant = map[string]map[place]bool{}, map[fleet.TenantName]map[place]bool{}
	f.asked = map[fleet.ListingRequest]int{}
	f.waiting = map[fleet.TenantName]map[place]map[fleet.ListingRequest]bool{}
	f.news = map[fleet.ListingRequest]int{}
	f.proposals, f.proposed = map[fleet.ListingRequest]proposal{}, 0
	f.recorded = map[place]mirror.ListingStatus{}
}

// begin starts to read in a term that ends with ctx. end waits until all reads have ended.
func (f *follower) begin(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	f.ctx, f.reading = ctx, new(sync.WaitGroup)
	f.mu.Unlock()
	return func() {
		cancel()
		f.mu.Lock()
		reading := f.reading
		f.ctx, f.view = nil, nil
		f.reset()
		f.mu.Unlock()
		reading.Wait()
	}
}

// restore follows the sets of a loaded state, and forgets all others. It is the one step that costs
// every set.
func (f *follower) restore(view *catalog.View, sets map[fleet.Key][]fleet.ListingRequest,
	recorded []mirror.ListingStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view, f.recorded = view, map[place]mirror.ListingStatus{}
	for _, s := range recorded {
		f.recorded[place{s.Tenant, s.RepoURL, s.TargetRevision}] = s
	}
	for k := range f.sets {
		if _, still := sets[k]; !still {
			f.follow(k, nil)
		}
	}
	// a set without a listing takes the room of none that has one
	var without []fleet.Key
	for _, k := range slices.SortedFunc(maps.Keys(sets), applied.CompareDeclarations) {
		if slices.ContainsFunc(sets[k], func(r fleet.ListingRequest) bool {
			_, inUse := view.Listing(r)
			return !inUse
		}) {
			without = append(without, k)
		} else {
			f.follow(k, sets[k])
		}
	}
	for _, k := range without {
		f.follow(k, sets[k])
	}
	for p := range f.recorded {
		if f.places[p] == nil && f.ctx != nil {
			f.forget(p)
		}
	}
}

// update follows what one set requests now: none when it is gone.
func (f *follower) update(k fleet.Key, requests []fleet.ListingRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(k, requests)
}

func (f *follower) follow(k fleet.Key, requests []fleet.ListingRequest) {
	before := f.sets[k]
	if slices.Equal(before, requests) {
		return
	}
	f.sets[k] = requests
	if len(requests) == 0 {
		delete(f.sets, k)
	}
	for _, r := range requests {
		if f.asked[r]++; !slices.Contains(before, r) {
			f.add(r)
		}
	}
	for _, r := range before {
		if f.asked[r]--; f.asked[r] == 0 {
			delete(f.asked, r)
			f.drop(r)
		}
	}
}

// add reads a request, or remembers it until there is room.
func (f *follower) add(r fleet.ListingRequest) {
	p := placeOf(r)
	at := f.places[p]
	full := f.ctx == nil || len(f.ofTenant[p.tenant]) >= mostListed
	if at != nil {
		if _, there := at.requests[r]; there {
			return
		}
		full = len(at.requests) >= mostRequests
	}
	if full {
		if f.waiting[p.tenant] == nil {
			f.waiting[p.tenant] = map[place]map[fleet.ListingRequest]bool{}
		}
		index(f.waiting[p.tenant], p, r)
		return
	}
	f.unwait(r)
	if at == nil {
		ctx, stop := context.WithCancel(f.ctx)
		at = &followed{place: p, kick: pacing.NewSignal(), stop: stop,
			requests: map[fleet.ListingRequest]kept{}, failure: f.recorded[p].Error}
		f.places[p] = at
		index(f.ofTenant, p.tenant, p)
		index(f.byRepo, repoKey(p.repoURL), p)
		f.reading.Go(func() { f.keep(ctx, at) })
	}
	at.requests[r], at.tip = kept{}, ""
	at.kick.Set()
}

func (f *follower) unwait(r fleet.ListingRequest) {
	unindex(f.waiting[r.Tenant], placeOf(r), r)
	if len(f.waiting[r.Tenant]) == 0 {
		delete(f.waiting, r.Tenant)
	}
}

// drop ends a request, and gives its room to those of the tenant that wait for it.
func (f *follower) drop(r fleet.ListingRequest) {
	f.unwait(r)
	at := f.places[placeOf(r)]
	if at == nil {
		return
	}
	delete(at.requests, r)
	delete(f.news, r)
	room := at.place
	if len(at.requests) == 0 {
		at.stop()
		delete(f.places, at.place)
		unindex(f.ofTenant, at.tenant, at.place)
		unindex(f.byRepo, repoKey(at.repoURL), at.place)
		f.forget(at.place)
		for p := range f.waiting[at.tenant] {
			if f.places[p] == nil {
				room = p
				break
			}
		}
	}
	for other := range f.waiting[at.tenant][room] {
		if now := f.places[room]; now != nil && len(now.requests) >= mostRequests {
			return
		}
		f.add(other)
	}
}

func index[K, V comparable](of map[K]map[V]bool, k K, v V) {
	if of[k] == nil {
		of[k] = map[V]bool{}
	}
	of[k][v] = true
}

func unindex[K, V comparable](of map[K]map[V]bool, k K, v V) {
	if delete(of[k], v); len(of[k]) == 0 {
		delete(of, k)
	}
}

// forget removes the status of a place that no set lists.
func (f *follower) forget(p place) {
	ctx := f.ctx
	f.reading.Go(func() {
		f.record(ctx, mirror.ListingStatus{Tenant: p.tenant, RepoURL: p.repoURL,
			TargetRevision: p.revision, Ended: true})
	})
}

// repoKey returns a URL that does not parse unchanged.
func repoKey(url string) string {
	if key, err := fleet.NormalizeRepoURL(url); err == nil {
		return key
	}
	return url
}

// listings are those that a file is decoded with: the last that was read, be it for a pull request,
// or the one that the set in effect contains.
func (f *follower) listings(r fleet.ListingRequest) (fleet.Listing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := fleet.ErrNoListing
	at := f.places[placeOf(r)]
	if at != nil {
		switch last, asked := at.requests[r]; {
		case !asked && len(at.requests) >= mostRequests:
			why = errTooManyRequests
		case last.listing != nil:
			return *last.listing, nil
		case last.err != nil:
			why = last.err
		case at.failure != "":
			why = errors.New(at.failure)
		}
	}
	if f.view != nil {
		if l, ok := f.view.Listing(r); ok {
			return l, nil
		}
	}
	if at == nil && len(f.ofTenant[r.Tenant]) >= mostListed {
		why = errTooManyListed
	}
	// one beyond a limit would take effect and never be read again
	if p, ok := f.proposals[r]; ok && time.Since(p.at) < proposalAge &&
		!errors.Is(why, errTooManyListed) && !errors.Is(why, errTooManyRequests) {
		return p.Listing, p.Err
	}
	return fleet.Listing{}, why
}

// propose reads what the sets of a pull request list and nothing in effect does, with the grants
// and credentials in effect. It costs these reads; a failed one is the reason of its request. A
// repository that is not read in time delays none that is.
func (f *follower) propose(ctx context.Context, requests []fleet.ListingRequest) {
	ctx, cancel := context.WithTimeoutCause(ctx, proposalPatience,
		fmt.Errorf("the pull request's repositories were not read within %s", proposalPatience))
	defer cancel()
	missing := map[place][]fleet.ListingRequest{}
	for _, r := range requests {
		if _, err := f.listings(r); err != nil {
			missing[placeOf(r)] = append(missing[placeOf(r)], r)
		}
	}
	var all sync.WaitGroup
	for p, rs := range missing {
		all.Go(func() {
			_, results, err := f.read(ctx, proposalTime, p, rs, "")
			f.mu.Lock()
			defer f.mu.Unlock()
			for i, r := range rs {
				found := proposal{at: time.Now()}
				if found.Err = err; err == nil {
					found.ListingResult = results[i]
				}
				f.keepProposal(r, found)
			}
		})
	}
	all.Wait()
}

// keepProposal forgets all others if there are too many.
func (f *follower) keepProposal(r fleet.ListingRequest, found proposal) {
	size := found.Listing.Size()
	if len(f.proposals) >= mostProposals || f.proposed+size > proposalBytes {
		clear(f.proposals)
		f.proposed = 0
	}
	f.proposals[r] = found
	f.proposed += size
}

// read reads a place with what the tenant has in effect. If the commit has too much for all
// requests together, it reads for one after the other, each in its turn: only those that want too
// much fail.
func (f *follower) read(ctx context.Context, most time.Duration, p place,
	requests []fleet.ListingRequest, known fleet.Revision) (fleet.Revision, []ListingResult,
	error) {
	if len(requests) > mostRequests {
		return "", nil, errTooManyRequests // of a pull request
	}
	tip, results, err := f.readOnce(ctx, most, p, requests, known)
	if len(requests) == 1 || !errors.Is(err, ErrTooMuch) {
		return tip, results, err
	}
	tip, results = "", make([]ListingResult, len(requests))
	for i, r := range requests {
		at, found, err := f.readOnce(ctx, most, p, []fleet.ListingRequest{r}, "")
		switch {
		case errors.Is(err, ErrTooMuch):
			results[i].Err = err
		case err != nil:
			return "", nil, err
		case tip != "" && at != tip:
			return "", nil, errors.New("the repository changed while it was read")
		default:
			tip, results[i] = at, found[0]
		}
	}
	if tip == "" {
		return "", nil, results[0].Err
	}
	return tip, results, nil
}

// readOnce is one read, which takes its turn and no longer than most.
func (f *follower) readOnce(ctx context.Context, most time.Duration, p place,
	requests []fleet.ListingRequest, known fleet.Revision) (fleet.Revision, []ListingResult,
	error) {
	f.mu.Lock()
	view := f.view
	f.mu.Unlock()
	if view == nil || f.lister == nil {
		return "", nil, fleet.ErrNoListing
	}
	leave, err := f.reads.enter(ctx, p)
	if err != nil {
		return "", nil, err
	}
	defer leave()
	// after the wait: the grant and the credential are those of now
	if err := granted(view, p); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most,
		fmt.Errorf("the repository was not read within %s", most))
	defer cancel()
	tip, results, err := f.lister.List(ctx, ListingRead{Tenant: p.tenant, RepoURL: p.repoURL,
		TargetRevision: p.revision, Credential: credential(view, p), Requests: requests,
		Known: known})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return tip, results, err
}

// granted reports why the tenant must not have a repository read.
func granted(view *catalog.View, p place) error {
	u, err := fleet.ParseRepoURL(p.repoURL)
	if err != nil {
		return err
	}
	t := view.Tenant(p.tenant)
	if t == nil || !fleet.RepositoryGranted(t.Tenant.Repositories, p.repoURL) {
		return fmt.Errorf("tenant %s is not granted %s", p.tenant, u)
	}
	if !fleet.GitHostAllowed(view.Fleet().GitHosts, u) {
		return fmt.Errorf("gitHosts of fleet/fleet.yaml does not list %s", u.Host)
	}
	return nil
}

func credential(view *catalog.View, p place) *fleet.CredentialSource {
	d := view.CredentialFor(p.tenant, p.repoURL)
	if d == nil {
		return nil
	}
	s := fleet.CredentialSource{Tenant: p.tenant,
		Folder: fleet.ObjectRepository.CredentialFolder(), Name: d.Credential.CredentialsRef.Name}
	if sealed := view.Sealed(p.tenant, s.Folder, s.Name); sealed != nil {
		s.Sealed = sealed.Blob
	}
	return &s
}

// keep reads one place until ctx ends: at once, when it is kicked, and at intervals.
func (f *follower) keep(ctx context.Context, at *followed) {
	for ctx.Err() == nil {
		at.kick.Clear()
		pause := f.once(ctx, at)
		if !pacing.Sleep(ctx, min(listingPause, f.every)) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-at.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// once reads one place, and returns the pause before the next read.
func (f *follower) once(ctx context.Context, at *followed) time.Duration {
	f.mu.Lock()
	requests := slices.SortedFunc(maps.Keys(at.requests), fleet.CompareRequests)
	known, pushed := at.tip, at.pushed
	at.pushed = false
	f.mu.Unlock()
	tip, results, err := f.read(ctx, listingTime, at.place, requests, known)
	if ctx.Err() != nil {
		return 0
	}
	status, news, pause := f.take(at, requests, tip, results, err)
	f.record(ctx, status)
	if news {
		f.wake()
	}
	if pushed && err == nil && results == nil {
		pause = min(pause, listingAgain)
	}
	return pause
}

// take keeps the result of a read. news is whether a set must be planned again: a listing has
// changed, or the reads began or ceased to fail.
func (f *follower) take(at *followed, requests []fleet.ListingRequest, tip fleet.Revision,
	results []ListingResult, err error) (status mirror.ListingStatus, news bool,
	pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view == nil {
		return f.recorded[at.place], false, 0 // the term has ended
	}
	for i, r := range results {
		news = f.keepResult(at, requests[i], r) || news
	}
	failure := at.failureAfter(err)
	if (failure == "") != (at.failure == "") {
		for r := range at.requests {
			f.changed(r)
			news = true
		}
		at.failure = failure
		f.logFailure(at)
	}
	status = mirror.ListingStatus{Tenant: at.tenant, RepoURL: at.repoURL,
		TargetRevision: at.revision, Commit: f.recorded[at.place].Commit, Error: at.failure}
	if err != nil {
		at.attempts++
		return status, news, min(listingRetry<<min(at.attempts-1, 10), max(listingLast, f.every))
	}
	at.attempts, status.Commit = 0, tip
	if results != nil && at.covers(requests) {
		at.tip = tip
	}
	return status, news, f.every*3/4 + rand.N(f.every/2)
}

// keepResult keeps the listing of one request, and reports whether it is another one than that of
// the sets. A listing that is too large leaves the last one.
func (f *follower) keepResult(at *followed, r fleet.ListingRequest, found ListingResult) bool {
	last, asked := at.requests[r]
	if !asked {
		return false
	}
	before := last
	if last.err = found.Err; found.Err == nil {
		last.listing = &found.Listing
	}
	at.requests[r] = last
	if !f.isNews(r, before, found) {
		return false
	}
	f.changed(r)
	return true
}

func (f *follower) isNews(r fleet.ListingRequest, before kept, found ListingResult) bool {
	if found.Err != nil {
		// with a listing, it is reported as the failure of its place
		_, inUse := f.view.Listing(r)
		return before.listing == nil && !inUse &&
			(before.err == nil || found.Err.Error() != before.err.Error())
	}
	if before.listing != nil && !before.listing.Same(found.Listing) {
		return true
	}
	sets := f.view.SetsAsking(r)
	return len(sets) == 0 && before.listing == nil || // of a held file
		slices.ContainsFunc(sets, func(s catalog.SetFile) bool {
			return s.Listing == nil || !s.Listing.Same(found.Listing)
		})
}

func (f *follower) changed(r fleet.ListingRequest) {
	f.changes++
	f.news[r] = f.changes
}

// failureAfter returns why reads fail, given the error of the last one.
func (at *followed) failureAfter(err error) string {
	for _, r := range slices.SortedFunc(maps.Keys(at.requests), fleet.CompareRequests) {
		if err == nil {
			err = at.requests[r].err
		}
	}
	if err == nil {
		return ""
	}
	return printable.Truncate(err.Error(), errorBytes)
}

// covers reports whether a read had all requests.
func (at *followed) covers(requests []fleet.ListingRequest) bool {
	for r := range at.requests {
		if !slices.Contains(requests, r) {
			return false
		}
	}
	return true
}

func (f *follower) logFailure(at *followed) {
	if at.failure == "" {
		f.log.Info("read a listed repository again", "tenant", at.tenant, "repository", at.repoURL,
			"revision", at.revision)
		return
	}
	f.log.Warn("failed to read a listed repository; the deployments of its last listing stay",
		"tenant", at.tenant, "repository", at.repoURL, "revision", at.revision, "error", at.failure)
}

// record stores the status of a place, if it is another one.
func (f *follower) record(ctx context.Context, s mirror.ListingStatus) {
	p := place{s.Tenant, s.RepoURL, s.TargetRevision}
	f.mu.Lock()
	was, known := f.recorded[p]
	f.mu.Unlock()
	if known && was == s {
		return
	}
	if err := f.status(ctx, []mirror.ListingStatus{s}); err != nil {
		if ctx.Err() == nil {
			f.log.Warn("failed to record the status of a listed repository", "error", err)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Ended {
		delete(f.recorded, p)
	} else {
		f.recorded[p] = s
	}
}

// moved reads the places of a repository at once whose revision may be ref. It costs these places.
func (f *follower) moved(url, ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.byRepo[repoKey(url)] {
		if p.revision == "HEAD" || ref == p.revision || ref == "refs/heads/"+p.revision ||
			ref == "refs/tags/"+p.revision {
			f.places[p].pushed = true
			f.places[p].kick.Set()
		}
	}
}

// Moved reads at once what sets list of a repository, because a ref of it may have moved: a
// push, by any URL of the repository. It never blocks, and costs these sets.
func (l *Loop) Moved(ref string, urls []string) {
	for _, url := range urls {
		l.listed.moved(url, ref)
	}
}

// Rotated reads the failing repositories of a tenant at once, because one of its secrets has
// changed.
func (l *Loop) Rotated(t fleet.TenantName) { l.listed.retry(t) }

// retry reads the failing places of a tenant at once: one of its credentials has changed.
func (f *follower) retry(t fleet.TenantName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.ofTenant[t] {
		if at := f.places[p]; at.failure != "" {
			at.kick.Set()
		}
	}
}
