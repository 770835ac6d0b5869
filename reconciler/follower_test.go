package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
)

func newTestFollower(l Lister) *follower {
	f := &follower{every: listingEvery, log: slog.New(slog.DiscardHandler), wake: func() {},
		reads: newReadQueue(), lister: l,
		status: func(context.Context, []mirror.ListingStatus) error { return nil }}
	f.reset()
	return f
}

// A tenant has room for a number of repositories; the next one waits until a set lets one go.
func TestATenantListsABoundedNumberOfRepositories(t *testing.T) {
	t.Parallel()
	f := newTestFollower(nil)
	defer f.begin(t.Context())()
	request := func(tenant string, n int) fleet.ListingRequest {
		return fleet.ListingRequest{Tenant: fleet.TenantName(tenant), TargetRevision: "main",
			RepoURL: fmt.Sprintf("https://git.example.com/%s/%d", tenant, n), Paths: "*"}
	}
	sets := map[fleet.Key][]fleet.ListingRequest{}
	key := func(tenant string, n int) fleet.Key {
		return fleet.SetKey(fleet.TenantName(tenant), fmt.Sprintf("set-%04d", n))
	}
	for n := range mostListed + 1 {
		sets[key("acme", n)] = []fleet.ListingRequest{request("acme", n)}
	}
	// two sets of one repository take one place
	sets[key("globex", 0)] = []fleet.ListingRequest{request("globex", 0)}
	sets[key("globex", 1)] = sets[key("globex", 0)]
	f.restore(&catalog.New().View, sets, nil)

	last := request("acme", mostListed)
	if _, err := f.listings(last); !errors.Is(err, errTooManyListed) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := f.listings(request("globex", 0)); errors.Is(err, errTooManyListed) {
		t.Errorf("another tenant: %v", err)
	}
	waits := func(want ...fleet.ListingRequest) {
		t.Helper()
		var got []fleet.ListingRequest
		for _, of := range f.waiting["acme"] {
			got = slices.AppendSeq(got, maps.Keys(of))
		}
		slices.SortFunc(got, fleet.CompareRequests)
		if !slices.Equal(got, want) || len(f.waiting["globex"]) > 0 {
			t.Errorf("%v wait for room, want %v; of another tenant %v", got, want,
				f.waiting["globex"])
		}
	}
	waits(last)
	more := last
	more.Paths = "more/*"
	f.update(key("acme", mostListed+1), []fleet.ListingRequest{more})
	waits(last, more)
	f.update(key("acme", 0), nil)
	if _, err := f.listings(last); errors.Is(err, errTooManyListed) {
		t.Errorf("with room: %v", err)
	}
	waits() // both are of one repository
	f.update(key("acme", 0), []fleet.ListingRequest{request("acme", 0)})
	waits(request("acme", 0))
	f.update(key("acme", 0), nil) // it goes while it waits
	waits()
	f.update(key("acme", mostListed+1), nil)
	f.update(key("globex", 0), nil)
	if len(f.places) != mostListed+1 {
		t.Errorf("%d places: the other set still lists the repository", len(f.places))
	}
	f.update(key("globex", 1), nil)
	if len(f.places) != mostListed || len(f.byRepo) != mostListed || len(f.asked) != mostListed {
		t.Errorf("%d places of %d repositories, %d requests", len(f.places), len(f.byRepo),
			len(f.asked))
	}
}

func TestATenantListsARepositoryInABoundedNumberOfWays(t *testing.T) {
	t.Parallel()
	f := newTestFollower(nil)
	defer f.begin(t.Context())()
	request := func(n int) fleet.ListingRequest {
		return acmeRequest("services", fmt.Sprintf("%03d/*", n))
	}
	key := func(n int) fleet.Key { return fleet.SetKey("acme", fmt.Sprintf("set-%03d", n)) }
	sets := map[fleet.Key][]fleet.ListingRequest{}
	for n := range mostRequests + 1 {
		sets[key(n)] = []fleet.ListingRequest{request(n)}
	}
	f.restore(&catalog.New().View, sets, nil)
	last := request(mostRequests)
	f.keepProposal(last, proposal{at: time.Now()})
	if _, err := f.listings(last); !errors.Is(err, errTooManyRequests) {
		t.Errorf("one too many: %v", err)
	}
	if n := len(f.waiting["acme"][placeOf(last)]); n != 1 {
		t.Errorf("%d requests wait for room", n)
	}
	f.update(key(mostRequests+1), []fleet.ListingRequest{request(1)}) // another set asks as well
	if n := len(f.waiting["acme"][placeOf(last)]); n != 1 {
		t.Errorf("%d requests wait, though one of them is read", n)
	}
	f.update(key(0), nil)
	if _, err := f.listings(last); err != nil {
		t.Errorf("with room, and a proposal: %v", err)
	}
	if len(f.waiting) > 0 {
		t.Errorf("with room, %v wait", f.waiting)
	}
	if at := f.places[placeOf(last)]; len(f.places) != 1 || len(at.requests) != mostRequests {
		t.Errorf("%d places, %d requests", len(f.places), len(at.requests))
	}
	many := make([]fleet.ListingRequest, mostRequests+1)
	if _, _, err := f.read(t.Context(), time.Hour, placeOf(last), many,
		""); !errors.Is(err, errTooManyRequests) {
		t.Errorf("of a pull request: %v", err)
	}
}

// lister answers by a function.
type lister func(context.Context, ListingRead) (fleet.Revision, []ListingResult, error)

func (l lister) List(ctx context.Context, r ListingRead) (fleet.Revision, []ListingResult, error) {
	return l(ctx, r)
}

// leads gives the follower a view in which tenant acme may list repositories of git.example.com.
func (f *follower) leads(t *testing.T) {
	t.Helper()
	var files []catalog.Input
	for path, text := range map[string]string{
		"fleet/fleet.yaml": "kind: Fleet\nmetadata: {name: fleet}\nspec:\n" +
			"  gitHosts: [git.example.com]\n",
		"fleet/tenants/acme.yaml": "kind: Tenant\nmetadata: {name: acme}\nspec:\n" +
			"  owners: [\"group:acme\"]\n  quota: {environments: 1, deployments: 1, applications: 1}\n" +
			"  repositories: [\"https://git.example.com/acme/\"]\n",
	} {
		d := configschema.Decode(configschema.File{Path: path, Blob: path,
			Bytes: []byte("apiVersion: argosy.dev/v1alpha1\n" + text)})
		files = append(files, catalog.Input{Key: d.Key, Path: path, Blob: path,
			Declaration: d.Declaration, Problems: d.Problems})
	}
	c := catalog.New()
	c.Prepare(files).Commit()
	if c.Tenant("acme") == nil {
		t.Fatal(c.Quarantines())
	}
	f.restore(&c.View, nil, nil)
}

func acmeRequest(repo, paths string) fleet.ListingRequest {
	return fleet.ListingRequest{Tenant: "acme", TargetRevision: "main", Paths: paths,
		RepoURL: "https://git.example.com/acme/" + repo}
}

// Each read alone takes less than a read may, and all of them more.
func TestARequestForTooMuchFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFollower(lister(func(ctx context.Context, r ListingRead) (fleet.Revision,
			[]ListingResult, error) {
			select {
			case <-time.After(listingTime - time.Second):
			case <-ctx.Done():
				return "", nil, ctx.Err()
			}
			if len(r.Requests) > 1 || r.Requests[0].Paths == "many/*" {
				return "", nil, fmt.Errorf("%w: narrow the patterns", ErrTooMuch)
			}
			return "tip", []ListingResult{{Listing: fleet.Listing{Request: r.Requests[0]}}}, nil
		}))
		defer f.begin(t.Context())()
		f.leads(t)
		requests := []fleet.ListingRequest{acmeRequest("services", "a/*"),
			acmeRequest("services", "many/*"), acmeRequest("services", "b/*")}
		tip, results, err := f.read(t.Context(), listingTime, placeOf(requests[0]), requests, "")
		if err != nil || tip != "tip" || len(results) != 3 {
			t.Fatalf("%s %v %v", tip, results, err)
		}
		for i, r := range results {
			if i == 1 && !errors.Is(r.Err, ErrTooMuch) ||
				i != 1 && (r.Err != nil || r.Listing.Request != requests[i]) {
				t.Errorf("request %d: %+v", i, r)
			}
		}
		_, _, err = f.read(t.Context(), listingTime, placeOf(requests[1]), requests[1:2], "")
		if !errors.Is(err, ErrTooMuch) {
			t.Errorf("nothing but too much: %v", err)
		}
	})
}

func TestASlowRepositoryOfAPullRequestStarvesNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFollower(lister(func(ctx context.Context, r ListingRead) (fleet.Revision,
			[]ListingResult, error) {
			if r.RepoURL == acmeRequest("slow", "").RepoURL {
				<-ctx.Done()
				return "", nil, ctx.Err()
			}
			return "tip", []ListingResult{{Listing: fleet.Listing{Request: r.Requests[0]}}}, nil
		}))
		defer f.begin(t.Context())()
		f.leads(t)
		slow := acmeRequest("slow", "*")
		requests := []fleet.ListingRequest{slow}
		for i := range 10 {
			requests = append(requests, acmeRequest(fmt.Sprint("quick-", i), "*"))
		}
		f.propose(t.Context(), requests)
		for _, r := range requests {
			want := "<nil>"
			if r == slow {
				want = "the repository was not read within 15s"
			}
			if _, err := f.listings(r); fmt.Sprint(err) != want {
				t.Errorf("%s: %v", r.RepoURL, err)
			}
		}
	})
}

func TestProposalsTakeABoundedMemory(t *testing.T) {
	t.Parallel()
	f := &follower{}
	f.reset()
	large := fleet.Listing{Entries: []fleet.Listed{{Path: "a", Fields: map[string]string{}}}}
	for i := range 1000 {
		large.Entries[0].Fields[fmt.Sprint(i)] = string(make([]byte, 1000))
	}
	for i := range 200 {
		r := fleet.ListingRequest{Tenant: "acme", Paths: fmt.Sprint(i)}
		f.keepProposal(r, proposal{ListingResult: ListingResult{Listing: large}})
		if _, kept := f.proposals[r]; !kept || len(f.proposals) > proposalBytes>>20 {
			t.Fatalf("proposal %d: %v, %d are kept", i, kept, len(f.proposals))
		}
	}
}
