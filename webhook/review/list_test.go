package review

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

func TestOnlyAnOwnersApprovalOfTheHeadLetsItListPrivateRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		tenant fleet.TenantName
		change func(f *Facts)
		want   bool
	}{
		"no approval":            {"acme", func(*Facts) {}, false},
		"the author is an owner": {"acme", func(f *Facts) { f.Record.Author = bob }, false},
		"an owner approved": {"acme", func(f *Facts) {
			f.Reviews = []forge.Review{approval(bob, noon)}
		}, true},
		"an owner of another tenant approved": {"globex", func(f *Facts) {
			f.Reviews = []forge.Review{approval(bob, noon)}
		}, false},
		"an owner approved an earlier head": {"acme", func(f *Facts) {
			earlier := approval(bob, noon)
			earlier.Head = base
			f.Reviews = []forge.Review{earlier}
		}, false},
		"the queue has every owner's approval": {"acme", func(f *Facts) {
			p := f.Record
			p.Consented = p.Head
			f.Queue = []forge.PullRecord{p}
		}, true},
		"one of the queue was pushed since": {"acme", func(f *Facts) {
			p := f.Record
			p.Consented = p.Head
			f.Queue = []forge.PullRecord{p, f.Record}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := bump(t)
			owned := f.Owned
			f.Owned = nil
			c.change(&f)
			if got := f.MayList(c.tenant, owned); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
