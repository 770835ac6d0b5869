package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/effective"
)

// restoreListings follows the repositories of all sets of a loaded state. The sets contain their
// last listings.
func (l *Loop) restoreListings(ctx context.Context) error {
	recorded, err := l.Store.Listings(ctx)
	if err != nil {
		return fmt.Errorf("load the status of listed repositories: %w", err)
	}
	view, held := &l.stored.state.Catalog().View, l.heldSets()
	sets := map[fleet.Key][]fleet.ListingRequest{}
	add := func(k fleet.Key) {
		if k.Kind == fleet.KindGitOpsDeploymentSet && sets[k] == nil {
			sets[k] = requestsOf(view, k, held[k])
		}
	}
	for _, d := range view.Effective() {
		add(d.Key)
	}
	for _, q := range view.Quarantines() {
		add(q.Key)
	}
	for k := range held {
		add(k)
	}
	l.listed.restore(view, sets, recorded)
	return nil
}

// heldSets returns the held files of each set. It costs what is held.
func (l *Loop) heldSets() map[fleet.Key][]catalog.Input {
	held := map[fleet.Key][]catalog.Input{}
	for _, in := range l.stored.state.HeldSets() {
		held[in.Key] = append(held[in.Key], in)
	}
	return held
}

// requestsOf returns what a set requests: in effect, at the head, and in its held files.
func requestsOf(view *catalog.View, k fleet.Key, held []catalog.Input) []fleet.ListingRequest {
	var all []fleet.ListingRequest
	add := func(d *fleet.Declaration) {
		if d != nil && d.Set != nil {
			all = append(all, d.Set.Requests(k.Tenant)...)
		}
	}
	add(view.Declaration(k))
	if q, ok := view.Quarantine(k); ok {
		add(q.Declaration)
	}
	for _, in := range held {
		add(in.Declaration)
	}
	slices.SortFunc(all, fleet.CompareRequests)
	return slices.Compact(all)
}

// followSets follows what the sets request that a recorded plan has changed.
func (l *Loop) followSets(p *plan.Plan, r *plan.Request) {
	if p.RevisionHold != nil {
		return
	}
	view, held := &l.stored.state.Catalog().View, sync.OnceValue(l.heldSets)
	seen := map[fleet.Key]bool{}
	add := func(k fleet.Key) {
		if k.Kind == fleet.KindGitOpsDeploymentSet && !seen[k] {
			seen[k] = true
			l.listed.update(k, requestsOf(view, k, held()[k]))
		}
	}
	for _, in := range r.Files {
		add(in.Key)
	}
	for _, c := range p.Declarations {
		add(c.Key)
		if c.Key.Kind == fleet.KindRepositoryCredential || c.Key.Kind == fleet.KindTenant {
			l.listed.retry(tenantOf(c.Key))
		}
	}
	for _, q := range p.Quarantined {
		add(q.Key)
	}
	for _, k := range p.Cleared {
		add(k)
	}
}

func tenantOf(k fleet.Key) fleet.TenantName {
	if k.Kind == fleet.KindTenant {
		return fleet.TenantName(k.Name)
	}
	return k.Tenant
}

// takeListings plans the applied revision again with new listings, as a commit of the sets that
// request them would be: the guards, quotas and policies judge it. Its deletions need no review,
// since pushes to a listed repository pass no review here; see docs/security.md.
func (l *Loop) takeListings(ctx context.Context, lease mirror.Lease) error {
	if l.stored.state == nil || l.stored.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	news := l.listed.unplanned()
	if len(news) == 0 {
		return nil
	}
	inputs, complete := l.relisted(ctx, news)
	err := l.planListings(ctx, lease, inputs...)
	if errors.Is(err, errUnplanned) {
		err = l.planEach(ctx, lease, inputs)
	}
	if err == nil && complete {
		l.listed.planned(news)
	}
	return err
}

// planEach plans one set after the other. A set that cannot be planned with its new listing is
// quarantined with the reason: it keeps its last good state until another listing or an edit of it
// arrives.
func (l *Loop) planEach(ctx context.Context, lease mirror.Lease, inputs []catalog.Input) error {
	for _, in := range inputs {
		err := l.planListings(ctx, lease, in)
		if errors.Is(err, errUnplanned) {
			l.Log.Error("failed to plan a set with its new listing; it keeps its last good state",
				"set", in.Key.String(), "error", err)
			err = l.planListings(ctx, lease, unplannable(in))
		}
		if err != nil && !errors.Is(err, errUnplanned) {
			return err
		}
	}
	return nil
}

// unplannable returns a set's file that the catalog quarantines: nothing is expanded.
func unplannable(in catalog.Input) catalog.Input {
	if in.Declaration == nil || in.Declaration.Set == nil {
		return in
	}
	d, set := *in.Declaration, *in.Declaration.Set
	set.Listings, set.Generated = nil, nil
	set.Unexpanded = []fleet.Problem{{
		Key: in.Key, Path: in.Path, Severity: fleet.SeverityError, Code: effective.CodeUnrendered,
		Message: "it cannot be planned with its new listing; this is a defect of Argosy, and the " +
			"log of the control plane has the reason",
		Fix: "nothing is deleted; report it to the operators of Argosy, and undo the last change of " +
			"the listed repository",
	}}
	d.Set, in.Declaration = &set, &d
	return in
}

func (l *Loop) planListings(ctx context.Context, lease mirror.Lease,
	inputs ...catalog.Input) error {
	if len(inputs) == 0 {
		return nil
	}
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame,
		Listed: inputs}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	_, err := l.planAndRecord(ctx, lease, Head{Revision: r.Revision}, r)
	return err
}

// relisted decodes the files of the sets again that request these listings, at the head and held.
// It is incomplete if a file cannot be read.
func (l *Loop) relisted(ctx context.Context,
	news map[fleet.ListingRequest]int) (inputs []catalog.Input, complete bool) {
	complete = true
	type file struct{ path, blob string }
	seen := map[file]bool{}
	decode := func(k fleet.Key, path, blob string) {
		if seen[file{path, blob}] {
			return
		}
		seen[file{path, blob}] = true
		in, err := l.repo.relist(ctx, catalog.Input{Key: k, Path: path, Blob: blob})
		if err != nil {
			// the mirror of the config repo was lost and is not cloned yet
			l.Log.Warn("failed to read a set's file; its new listing has no effect yet", "set",
				k.String(), "error", err)
			complete = false
			return
		}
		inputs = append(inputs, in)
	}
	for _, r := range slices.SortedFunc(maps.Keys(news), fleet.CompareRequests) {
		for _, f := range l.stored.state.Catalog().SetsAsking(r) {
			decode(f.Key, f.Path, f.Blob)
		}
	}
	for _, in := range l.stored.state.HeldSets() {
		if in.Declaration != nil && slices.ContainsFunc(
			in.Declaration.Set.Requests(in.Key.Tenant), func(r fleet.ListingRequest) bool {
				return news[r] > 0
			}) {
			decode(in.Key, in.Path, in.Blob)
		}
	}
	return inputs, complete
}

// relist decodes a set's file again, with the listings that are known now.
func (r *repo) relist(ctx context.Context, in catalog.Input) (catalog.Input, error) {
	out, err := r.decodeAgain(ctx, in, r.listed.listings)
	if err != nil {
		return catalog.Input{}, err
	}
	return r.listed.warn(out), nil
}

func (r *repo) decodeAgain(ctx context.Context, in catalog.Input,
	listings func(fleet.ListingRequest) (fleet.Listing, error)) (catalog.Input, error) {
	b, err := r.Bytes(ctx, in.Blob)
	if err != nil {
		return catalog.Input{}, fmt.Errorf("read %s: %w", in.Path, err)
	}
	out, ours := r.Decode(File{Path: in.Path, Blob: in.Blob, Bytes: b, Listings: listings})
	if !ours {
		return catalog.Input{}, fmt.Errorf("%s is no declaration", in.Path)
	}
	return out, nil
}

// proposed decodes the sets of a pull request again, with the listings of tenants that lists
// reports. It reads what nothing in effect lists. The author of a set chooses which folders and
// fields its plan shows, so that the owners of the repository's tenant decide who may.
func (r *repo) proposed(ctx context.Context, inputs []catalog.Input,
	lists func(fleet.TenantName) bool) ([]catalog.Input, error) {
	var requests []fleet.ListingRequest
	inputs = slices.Clone(inputs)
	var listed []int
	for i, in := range inputs {
		if in.Declaration == nil || in.Declaration.Set == nil ||
			len(in.Declaration.Set.Unexpanded) == 0 {
			continue
		}
		if lists == nil || !lists(in.Key.Tenant) {
			var err error
			if inputs[i], err = r.decodeAgain(ctx, in, unasked); err != nil {
				return nil, err
			}
			continue
		}
		listed = append(listed, i)
		requests = append(requests, in.Declaration.Set.Requests(in.Key.Tenant)...)
	}
	r.listed.propose(ctx, requests)
	for _, i := range listed {
		var err error
		if inputs[i], err = r.relist(ctx, inputs[i]); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// unasked are the listings of a pull request that no owner of the tenant has approved.
func unasked(r fleet.ListingRequest) (fleet.Listing, error) {
	return fleet.Listing{}, fmt.Errorf("the plan of a pull request lists it when an owner of "+
		"tenant %s has approved the newest commit", r.Tenant)
}

// unplanned returns the requests whose sets must be planned again, each with the count of its
// changes.
func (f *follower) unplanned() map[fleet.ListingRequest]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.news)
}

// planned is called when sets were planned with their listings. A change since then stays news.
func (f *follower) planned(news map[fleet.ListingRequest]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, n := range news {
		if f.news[r] == n {
			delete(f.news, r)
		}
	}
}

// codeListingFailed is a warning about a set in effect whose repository cannot be read.
const codeListingFailed = "listing-failed"

// warn adds to a set that a repository of it cannot be read now. The set has its last listing.
func (f *follower) warn(in catalog.Input) catalog.Input {
	if in.Declaration == nil || in.Declaration.Set == nil {
		return in
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, listing := range in.Declaration.Set.Listings {
		r := listing.Request
		at := f.places[placeOf(r)]
		if at == nil || at.failure == "" {
			continue
		}
		field := "spec.directories"
		if r.Files {
			field = "spec.files"
		}
		in.Problems = append(slices.Clip(in.Problems), fleet.Problem{
			Key: in.Key, Path: in.Path, Field: field, Severity: fleet.SeverityWarning,
			Code:    codeListingFailed,
			Message: fmt.Sprintf("%s cannot be read: %s", r, at.failure),
			Fix: fmt.Sprintf("nothing is deleted: the deployments of commit %s stay; restore the "+
				"repository, its revision or the RepositoryCredential, and Argosy reads it within "+
				"%s", listing.Commit.Short(), listingLast),
		})
	}
	return in
}
