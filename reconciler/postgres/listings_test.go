package postgres_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestTheStatusOfListedRepositories(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	repo := func(tenant, name, commit, why string) mirror.ListingStatus {
		return mirror.ListingStatus{Tenant: fleet.TenantName(tenant),
			RepoURL:        "https://git.example.com/" + tenant + "/" + name,
			TargetRevision: "main", Commit: fleet.Revision(commit), Error: why}
	}
	set := func(all ...mirror.ListingStatus) {
		t.Helper()
		check(t, s.Plans.SetListings(t.Context(), all))
	}
	is := func(want ...mirror.ListingStatus) {
		t.Helper()
		got, err := s.Plans.Listings(t.Context())
		check(t, err)
		if len(got) != len(want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%+v, want %+v", got[i], want[i])
			}
		}
	}
	a, b := repo("acme", "services", "c1", ""), repo("globex", "services", "", "answered 404")
	set(a, b)
	is(a, b)
	expect(t, url, `SELECT count(since) FROM listings`, 1)
	exec(t, url, `UPDATE listings SET since = '2026-01-01' WHERE since IS NOT NULL`)
	b.Error = "answered 500"
	set(b)
	expect(t, url, `SELECT count(*) FROM listings WHERE since = '2026-01-01'`, 1)
	b.Commit, b.Error = "c2", ""
	set(b, a)
	is(a, b)
	expect(t, url, `SELECT count(since) FROM listings`, 0)
	a.Ended = true
	set(a)
	is(b)
}
