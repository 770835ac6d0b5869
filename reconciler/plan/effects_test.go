package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
	"github.com/google/go-cmp/cmp"
)

func TestEffectsNameEveryObjectAndHeldDeletionsAsDeletions(t *testing.T) {
	p := busy(t)
	effects, held := p.Effects(), 0
	if len(effects) != len(p.Rows) {
		t.Fatalf("%d effects of %d rows", len(effects), len(p.Rows))
	}
	for i, e := range effects {
		c := p.Rows[i]
		if e.Key != c.Row.Key || e.Tenant != c.Row.Tenant || e.Environment != c.Row.Environment ||
			e.Deployment != c.Row.Deployment {
			t.Errorf("%+v of %+v", e, c.Row)
		}
		if e.Deletes != (c.Action == report.Hold) || e.Deletes == (e.Hash != "") ||
			e.Hash != c.Row.Manifest.Hash {
			t.Errorf("%+v of a row with action %s", e, c.Action)
		}
		if e.Deletes {
			held++
		}
	}
	if held != 25 {
		t.Errorf("%d deletions", held)
	}
}

func TestEffectsOfARevisionThatWaitsAreItsDeletions(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(3))
	after := h.files.drop("acme", 0, 2).with("tenants/globex/deployments/new.yaml",
		deploymentFile("new", "globex/new", "environments: [prod]", ""))
	p := h.compute(after, func(r *Request) { r.Relation = mirror.RelationOlder })
	var got []string
	for _, e := range p.Effects() {
		got = append(
			got, fmt.Sprintf("%s %s/%s@%s %v", e.Key.Kind, e.Tenant, e.Deployment, e.Environment,
				e.Deletes))
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"Application acme/d-00@prod true", "Application acme/d-01@prod true"},
		got); d != "" {
		t.Error(d)
	}
}

func TestTouchesAreThePathsOfTheChangedFiles(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(3))
	p := h.compute(h.files.without("tenants/acme/environments/prod.yaml").
		with("tenants/globex/deployments/d-00.yaml", "kind: [").
		with("tenants/globex/deployments/d-01.yaml",
			h.files["tenants/globex/deployments/d-01.yaml"]+"# a comment\n").
		with("tenants/globex/notes.txt", "here?"))
	want :=
		"tenants/acme/environments/prod.yaml tenants/globex/deployments/d-00.yaml " +
			"tenants/globex/deployments/d-01.yaml tenants/globex/notes.txt"
	if got := strings.Join(p.Touches(), " "); got != want {
		t.Errorf("%s", got)
	}
	if p := h.compute(h.files); len(p.Touches())+len(p.Effects()) != 0 {
		t.Errorf("%v %v", p.Touches(), p.Effects())
	}
}
