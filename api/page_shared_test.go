package api

import (
	"fmt"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func TestTheOverviewListsTheTenantsThatNeedAttention(t *testing.T) {
	var all []view.Tenant
	for i := range fewTenants + 10 {
		c := view.Counts{Applications: 5, Healthy: 5, Synced: 5}
		if i >= fewTenants {
			c.Healthy = 4
		}
		all = append(all, view.Tenant{Name: fleet.TenantName(fmt.Sprintf("t-%03d", i)), Counts: c})
	}
	few, others := neediest(all)
	if len(few) != fewTenants || others != 10 || few[0].Name != "t-000" ||
		few[fewTenants-1].Name != "t-049" || !slices.IsSortedFunc(few, func(a, b view.Tenant) int {
		return len(a.Name) - len(b.Name)
	}) {
		t.Errorf("%d of %d, from %s to %s", len(few), others, few[0].Name, few[len(few)-1].Name)
	}
	unwell := 0
	for _, tenant := range few {
		unwell += tenant.Counts.Applications - tenant.Counts.Healthy
	}
	if unwell != 10 || all[0].Name != "t-000" || len(all) != fewTenants+10 {
		t.Errorf("%d of 10 that need attention are listed", unwell)
	}
	if few, others := neediest(all[:3]); len(few) != 3 || others != 0 {
		t.Errorf("of three: %d and %d", len(few), others)
	}
}

func TestTheHashOfAPartIgnoresTheTextsOfItsTimes(t *testing.T) {
	hash := func(html string) string { return timelessHash([]byte(html)) }
	one := hash(`<p>a <time datetime="x" data-as="age">3m</time> b<time datetime="y">1h</time></p>`)
	for html, same := range map[string]bool{
		`<p>a <time datetime="x" data-as="age">4m</time> b<time datetime="y"></time></p>`:   true,
		`<p>a <time datetime="z" data-as="age">3m</time> b<time datetime="y">1h</time></p>`: false,
		`<p>c <time datetime="x" data-as="age">3m</time> b<time datetime="y">1h</time></p>`: false,
		`<p>a <time datetime="x" data-as="age">3m</time> b<time datetime="y">1h</time></q>`: false,
	} {
		if (hash(html) == one) != same {
			t.Errorf("%s: the same hash is %v, want %v", html, !same, same)
		}
	}
	for _, html := range []string{"", "<time", "<time>", "<time>x", "a"} {
		if hash(html) == "" {
			t.Errorf("%q has no hash", html)
		}
	}
}
