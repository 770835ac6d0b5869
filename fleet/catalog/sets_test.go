package catalog

import (
	"fmt"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
)

func inProd(id, revision string) Input {
	return deploymentWith(id, func(d *fleet.Declaration) {
		d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod"}
		d.Deployment.Source.TargetRevision = revision
	})
}

func TestASetsDeploymentsTakeEffectLikeWrittenOnes(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	s := good(t, c, setOf("acme/first", inProd("acme/api", "v1"), inProd("acme/web", "v1")))
	if got := keys(s.Changes()); got != "+GitOpsDeploymentSet acme/first; "+
		"+GitOpsDeployment acme/api; +GitOpsDeployment acme/web" {
		t.Error(got)
	}
	if used := c.Used("acme"); used.Deployments != 3 || used.Applications != 4 {
		t.Errorf("used %+v", used)
	}
	s = good(t, c, setOf("acme/first", inProd("acme/api", "v1"), inProd("acme/web", "v2")))
	if got := keys(s.Changes()); got != "~GitOpsDeploymentSet acme/first; "+
		"~GitOpsDeployment acme/web" {
		t.Error(got)
	}
	s = good(t, c, setOf("acme/first", inProd("acme/api", "v1")))
	if got := keys(s.Changes()); got != "~GitOpsDeploymentSet acme/first; "+
		"-GitOpsDeployment acme/web" {
		t.Error(got)
	}
	s = good(t, c, gone(setOf("acme/first")))
	if got := keys(s.Changes()); got != "-GitOpsDeploymentSet acme/first; "+
		"-GitOpsDeployment acme/api" {
		t.Error(got)
	}
}

func TestABadItemKeepsItsLastGoodState(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	good(t, c, setOf("acme/first", inProd("acme/api", "v1"), inProd("acme/web", "v1")))
	s := c.Prepare([]Input{setOf("acme/first", broken(inProd("acme/api", "v2")),
		inProd("acme/web", "v2"))})
	commit(t, c, s)
	if got := keys(s.Changes()); got != "~GitOpsDeploymentSet acme/first; "+
		"~GitOpsDeployment acme/web" {
		t.Error(got)
	}
	if q, held := c.Quarantine(inProd("acme/api", "").Key); !held || !q.HasLastGood {
		t.Errorf("%+v, %v", q, held)
	}
	// a set that does not decode changes nothing, and so does one that still names the item
	s = c.Prepare([]Input{broken(setOf("acme/first"))})
	commit(t, c, s)
	if got := keys(s.Changes()); got != "" {
		t.Error(got)
	}
}

// The name that a file and a set declare, or two sets, stays as it is until one lets it go.
func TestANameThatIsDeclaredTwiceStaysAsItIs(t *testing.T) {
	file := inProd("acme/api", "v1")
	first := setOf("acme/first", inProd("acme/api", "v2"), inProd("acme/web", "v2"))
	second := setOf("acme/second", inProd("acme/api", "v3"))
	for what, two := range map[string][2]Input{
		"a file, then a set": {file, first}, "a set, then a file": {first, file},
		"a set, then a later one": {first, second}, "a set, then an earlier one": {second, first},
	} {
		t.Run(what, func(t *testing.T) {
			c := New()
			good(t, c, acme()...)
			good(t, c, two[0])
			before := c.Declaration(file.Key)
			s := c.Prepare([]Input{two[1]})
			commit(t, c, s)
			q, held := c.Quarantine(file.Key)
			if c.Declaration(file.Key) != before || !held || !hasCode(q.Problems, codeDuplicate) {
				t.Errorf("%s: %v", keys(s.Changes()), s.Problems())
			}
			if c = c.restored(); c.Declaration(file.Key).Path != two[0].Path {
				t.Error("a restored catalog has the other one")
			}
			back := c.Prepare([]Input{gone(two[1])})
			if _, held := back.Quarantine(file.Key); held ||
				back.Declaration(file.Key).Path != two[0].Path {
				t.Errorf("after the second left: %s, %v", keys(back.Changes()), back.Problems())
			}
			next := c.Prepare([]Input{gone(two[0])})
			commit(t, c, next)
			if _, held := c.Quarantine(file.Key); held ||
				c.Declaration(file.Key).Path != two[1].Path {
				t.Errorf("after the first left: %s, %v", keys(next.Changes()), next.Problems())
			}
		})
	}
}

func TestASyncRunKeepsTheDeploymentOfARemovedItem(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	good(t, c, setOf("acme/first", inProd("acme/api", "v1"), inProd("acme/web", "v1")))
	good(t, c, syncRun("acme/now", "web", "v1"))
	s := c.Prepare([]Input{setOf("acme/first", inProd("acme/api", "v1"))})
	commit(t, c, s)
	if got := codes(s.Problems()); got != "GitOpsDeployment acme/web still-referenced" {
		t.Errorf("%s, %s", keys(s.Changes()), got)
	}
}

func TestASetCostsNothingToOtherCommits(t *testing.T) {
	c := New()
	var items []Input
	for i := range 500 {
		items = append(items, inProd(fmt.Sprintf("acme/n%d", i), "v1"))
	}
	good(t, c, append(withoutTenant(acme()), setOf("acme/first", items...), tenant("acme",
		func(d *fleet.Declaration) {
			d.Tenant.Quota = fleet.Quota{Environments: 10, Deployments: 1000, Applications: 1000}
		}))...)
	if n := len(c.Prepare([]Input{inProd("acme/shop", "v2")}).Checked()); n != 1 {
		t.Errorf("a commit of another file judges %d declarations", n)
	}
	items[7] = inProd("acme/n7", "v2")
	if n := len(c.Prepare([]Input{setOf("acme/first", items...)}).Checked()); n != 2 {
		t.Errorf("a commit of one item judges %d declarations", n)
	}
}

func withoutTenant(in []Input) []Input {
	return slices.DeleteFunc(in, func(i Input) bool { return i.Key.Kind == fleet.KindTenant })
}

// discovering is a set of folders that is expanded with a listing; without paths it is not.
func discovering(id string, listed []string, items ...Input) Input {
	in := setOf(id, items...)
	return declare(*in.Declaration, func(d *fleet.Declaration) {
		d.Blob = ""
		d.Set.Directories = &fleet.Discovery{RepoURL: "https://git.example.com/acme/services",
			TargetRevision: "main", Paths: []string{"services/*"}}
		if len(listed) == 0 {
			d.Set.Unexpanded = []fleet.Problem{
				{Key: d.Key, Path: pathOf(d.Key), Code: "not-expanded",
					Severity: fleet.SeverityError, Field: "spec.directories", Message: "not read"}}
			return
		}
		l := fleet.Listing{Request: d.Set.Requests(d.Key.Tenant)[0], Commit: "c1"}
		for _, path := range listed {
			l.Entries = append(l.Entries, fleet.Listed{Path: path})
		}
		d.Set.Listings = []fleet.Listing{l}
	})
}

func TestASetWhoseListingIsAbsentKeepsWhatIsInEffect(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	c2 := c.Prepare([]Input{discovering("acme/first", nil), deployment("acme/other", "prod")})
	if got := keys(c2.Changes()); got != "+GitOpsDeployment acme/other" {
		t.Error("a new set:", got)
	}
	commit(t, c, c2)
	requests := c.ListingRequests()
	if len(requests) != 1 {
		t.Fatal(requests)
	}
	r := requests[0]
	if files := c.SetsAsking(r); len(files) != 1 || files[0].Key != fleet.SetKey("acme", "first") ||
		files[0].Path != "tenants/acme/sets/first.yaml" || files[0].Blob == "" ||
		files[0].Listing != nil {
		t.Errorf("%+v", files)
	}
	if _, known := c.Listing(r); known {
		t.Error("a listing is known that nothing has read")
	}

	listed := []string{"services/api", "services/web"}
	s := good(t, c, discovering("acme/first", listed, inProd("acme/api", "v1"),
		inProd("acme/web", "v1")))
	if got := keys(s.Changes()); got != "+GitOpsDeploymentSet acme/first; "+
		"+GitOpsDeployment acme/api; +GitOpsDeployment acme/web" {
		t.Error(got)
	}
	s = c.Prepare([]Input{discovering("acme/first", nil)})
	if got := keys(s.Changes()); got != "" {
		t.Error("a listing that is gone changes", got)
	}
	commit(t, c, s)
	if q, held := c.Quarantine(fleet.SetKey("acme", "first")); !held || !q.HasLastGood ||
		q.Declaration == nil || q.Problems[0].Code != "not-expanded" {
		t.Errorf("%+v", q)
	}

	// a restart knows the set, its deployments and its listing
	var effective []fleet.Declaration
	for _, d := range c.Effective() {
		effective = append(effective, *d)
	}
	c = Restore(effective, c.Quarantines())
	l, known := c.Listing(r)
	if !known || len(l.Entries) != 2 || len(c.ListingRequests()) != 1 {
		t.Errorf("%+v", l)
	}
	if files := c.SetsAsking(r); len(files) != 1 || files[0].Listing != nil {
		t.Errorf("the listing of the set in effect is no news: %+v", files)
	}
	s = good(t, c, discovering("acme/first", listed[:1], inProd("acme/api", "v1")))
	if got := keys(s.Changes()); got != "~GitOpsDeploymentSet acme/first; "+
		"-GitOpsDeployment acme/web" {
		t.Error(got)
	}
	if f := c.SetsAsking(r); f[0].Listing == nil || len(f[0].Listing.Entries) != 1 {
		t.Errorf("%+v", f)
	}
	good(t, c, gone(discovering("acme/first", nil)))
	if len(c.ListingRequests()) != 0 || len(c.SetsAsking(r)) != 0 {
		t.Error("a removed set asks for a listing")
	}
}

func TestARepositoryThatIsNotGrantedIsNotAskedFor(t *testing.T) {
	elsewhere := func(repoURL string) Input {
		in := discovering("acme/first", nil)
		in.Declaration.Set.Directories.RepoURL = repoURL
		return in
	}
	for repoURL, code := range map[string]string{
		"https://git.example.com/globex/services": codeRepository,
		"https://elsewhere.example/acme/services": codeGitHost} {
		c := New()
		good(t, c, acme()...)
		commit(t, c, c.Prepare([]Input{elsewhere(repoURL)}))
		q, held := c.Quarantine(fleet.SetKey("acme", "first"))
		if !held || q.Problems[0].Code != code && q.Problems[len(q.Problems)-1].Code != code ||
			q.Problems[0].Field != "spec.directories.repoURL" {
			t.Errorf("%s: %+v", repoURL, q.Problems)
		}
		if asked := c.ListingRequests(); len(asked) != 0 {
			t.Errorf("%v is asked for", asked)
		}
	}
	c := New()
	good(t, c, acme()...)
	good(t, c, discovering("acme/first", []string{"services/api"}, inProd("acme/api", "v1")))
	commit(t, c, c.Prepare([]Input{tenant("acme", func(d *fleet.Declaration) {
		d.Tenant.Repositories = []string{"https://git.example.com/acme/other"}
	})}))
	if asked := c.ListingRequests(); len(asked) != 0 {
		t.Errorf("%v is asked for after its grant ended", asked)
	}
	if c.Deployment(fleet.DeploymentID{Tenant: "acme", Name: "api"}) == nil {
		t.Error("the end of a grant deletes a deployment")
	}
}
