package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
)

// A tenant has room for a number of repositories; the next one waits until a set lets one go.
func TestATenantListsABoundedNumberOfRepositories(t *testing.T) {
	f := &follower{every: listingEvery, log: slog.New(slog.DiscardHandler), wake: func() {},
		reads:  newSemaphores(),
		status: func(context.Context, []mirror.ListingStatus) error { return nil }}
	f.reset()
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
	f.update(key("acme", 0), nil)
	if _, err := f.listings(last); errors.Is(err, errTooManyListed) {
		t.Errorf("with room: %v", err)
	}
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

func TestProposalsTakeABoundedMemory(t *testing.T) {
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
