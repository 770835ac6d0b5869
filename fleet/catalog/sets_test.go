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
