package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/effective"
)

// adopter is a deployment's file that adopts an Application in prod.
func adopter(name, tenant, application string) string {
	return deploymentFile(name, tenant+"/"+name, "environments: [prod]",
		"  deletionPolicy: Release\n  adopt: [{environment: prod, application: "+application+
			"}]\n")
}

// adopting is a fleet of one engine with two tenants that may adopt.
func adopting() tree {
	const allow = "  allow: {adopt: true}\n"
	return oneEngine().without("tenants/").
		with("fleet/tenants/acme.yaml", tenantFile("acme", allow)).
		with("fleet/tenants/globex.yaml", tenantFile("globex", allow)).
		with("tenants/acme/environments/prod.yaml", environmentFile("prod", "eu", "", "app")).
		with("tenants/globex/environments/prod.yaml", strings.Replace(environmentFile("prod",
			"eu", "", "app"), "https://prod", "https://prod2", 1))
}

const (
	firstFile  = "tenants/acme/deployments/first.yaml"
	secondFile = "tenants/acme/deployments/second.yaml"
	otherFile  = "tenants/globex/deployments/other.yaml"
)

// wantRejected: exactly these files are quarantined because of an adoption, each with its line's
// field and all the words.
func wantRejected(t *testing.T, p *Plan, words string, paths ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, q := range p.Quarantined {
		problem := q.Problems[0]
		got[q.Path] = true
		if problem.Code != effective.CodeAdopted || problem.Fix == "" ||
			problem.Field != "spec.adopt[0].application" ||
			!strings.Contains(problem.Message, words) {
			t.Errorf("%s: %+v, want %q", q.Path, problem, words)
		}
	}
	for _, path := range paths {
		if !got[path] {
			t.Errorf("%s is not rejected", path)
		}
	}
	if len(got) != len(paths) {
		t.Errorf("rejected: %v, want %v", got, paths)
	}
}

func TestAnApplicationHasOneDeclaration(t *testing.T) {
	h := newHouse(t)
	h.apply(adopting().with(firstFile, adopter("first", "acme", "shop")))

	p := h.apply(h.files.with(secondFile, adopter("second", "acme", "shop")))
	wantRejected(t, p, "Application shop on engine eu-1 is adopted by deployment first in "+
		"environment prod (tenants/acme/deployments/first.yaml: spec.adopt[0])", secondFile)
	wantActions(t, p)

	p = h.apply(h.files.with(otherFile, adopter("other", "globex", "shop")))
	wantRejected(t, p, "Application shop on engine eu-1 is adopted by another tenant", otherFile)
	if text := p.Quarantined[0].Problems[0].String(); strings.Contains(text, "acme") ||
		strings.Contains(text, "deployment first") {
		t.Errorf("a tenant reads of another one: %s", text)
	}

	// the owner may change
	p = h.apply(h.files.edit(firstFile, "targetRevision: v1", "targetRevision: v2"))
	wantRejected(t, p, "")
	wantActions(t, p, "update Application first@prod")
	h.restart()

	// when it lets the Application go, of two newcomers neither gets it
	h.apply(h.files.edit(firstFile, "application: shop", "application: cart"))
	if h.w.Catalog().Deployment(fleet.DeploymentID{Tenant: "acme", Name: "second"}) != nil {
		t.Error("one of two newcomers has the Application")
	}
	p = h.apply(h.files.without(otherFile))
	if len(p.Quarantined) > 0 || !strings.Contains(actions(p), "create Application second@prod") {
		t.Errorf("the last one does not get it: %v\n%s", p.Quarantined, actions(p))
	}
	checkState(t, h)
}

func TestOfTwoNewDeclarationsNeitherAdopts(t *testing.T) {
	h := newHouse(t)
	p := h.apply(adopting().with(firstFile, adopter("first", "acme", "shop")).
		with(secondFile, adopter("second", "acme", "shop")).
		with("tenants/acme/deployments/third.yaml", adopter("third", "acme", "cart")))
	wantRejected(t, p, "would be adopted by deployment", firstFile, secondFile)
	if !strings.Contains(actions(p), "create Application third@prod") {
		t.Error("another declaration of the commit does not proceed")
	}
}

func TestADeclarationPassesAnApplicationToAnother(t *testing.T) {
	h := newHouse(t)
	h.apply(adopting().with(firstFile, adopter("first", "acme", "shop")))
	p := h.apply(h.files.without(firstFile).with(secondFile, adopter("second", "acme", "shop")))
	wantRejected(t, p, "")
	if !strings.Contains(actions(p), "create Application second@prod") ||
		!strings.Contains(actions(p), "delete Application first@prod") {
		t.Error(actions(p))
	}
}

func TestEachArgoCDHasAnApplicationOfTheName(t *testing.T) {
	h := newHouse(t)
	p := h.apply(adopting().with("fleet/engines/us-1.yaml", engineFile("us-1", "us", "")).
		edit("tenants/globex/environments/prod.yaml", "region: eu", "region: us").
		with(firstFile, adopter("first", "acme", "shop")).
		with(otherFile, adopter("other", "globex", "shop")))
	wantRejected(t, p, "")
}

// A person finds the Application in Argo CD by the name that the plan has.
func TestAPlanNamesTheApplicationsThatItAdopts(t *testing.T) {
	h := newHouse(t)
	p := h.compute(adopting().with(firstFile, adopter("first", "acme", "shop")).
		with(secondFile, strings.Replace(adopter("second", "acme", "cart"), "application: cart",
			"application: cart, orCreate: true", 1)).
		with(otherFile, deploymentFile("other", "globex/other", "environments: [prod]", "")))
	got := map[string]string{}
	for _, tenant := range reported(t, p).Tenants {
		for _, e := range tenant.Engines {
			for _, c := range e.Changes {
				if c.Kind == fleet.ObjectApplication {
					got[c.Subject] = c.Note
				}
			}
		}
	}
	if want := (map[string]string{"first@prod": "it adopts Application shop",
		"second@prod": "it adopts or creates Application cart", "other@prod": ""}); !maps.Equal(
		got, want) {
		t.Errorf("the notes are %q, want %q", got, want)
	}
}

func TestWhatArgosyCreatedIsNotAdopted(t *testing.T) {
	h := newHouse(t)
	h.apply(adopting().with(firstFile, deploymentFile("first", "acme/first",
		"environments: [prod]", "")))
	name := func(d fleet.DeploymentName) string {
		return fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme", Deployment: d,
			Environment: "prod"})
	}
	p := h.apply(h.files.with(secondFile, adopter("second", "acme", name("first"))))
	wantRejected(t, p, "was created by deployment first in environment prod ("+firstFile+")",
		secondFile)
	p = h.apply(h.files.without(secondFile).with(otherFile, adopter("other", "globex",
		name("first"))))
	wantRejected(t, p, "was created by another tenant", otherFile)
	p = h.apply(h.files.without(otherFile).with(secondFile, adopter("second", "acme",
		name("second"))))
	wantRejected(t, p, "there is nothing to adopt", secondFile)
}

func TestAPauseOfAdoptionsChangesOnlyAppProjects(t *testing.T) {
	h := newHouse(t)
	h.apply(adopting().with(firstFile, adopter("first", "acme", "shop")).
		with(otherFile, adopter("other", "globex", "cart")))
	paused := func(tenant fleet.TenantName) fleet.PausedBy {
		return h.project(tenant, "eu-1").AdoptionPaused
	}
	const pause = "  pauseAdoption: true\n"
	all := h.files
	p := h.apply(all.with("fleet/tenants/acme.yaml", all["fleet/tenants/acme.yaml"]+pause))
	wantActions(t, p, "update AppProject acme")
	if paused("acme") != fleet.PausedByTenant || paused("globex") != "" {
		t.Errorf("paused by %q and %q", paused("acme"), paused("globex"))
	}
	p = h.apply(h.files.with("fleet/engines/eu-1.yaml", all["fleet/engines/eu-1.yaml"]+pause))
	wantActions(t, p, "update AppProject acme", "update AppProject globex")
	if paused("acme") != fleet.PausedByEngine || paused("globex") != fleet.PausedByEngine {
		t.Errorf("paused by %q and %q", paused("acme"), paused("globex"))
	}
	p = h.apply(all)
	wantActions(t, p, "update AppProject acme", "update AppProject globex")
	checkState(t, h)
}

// The names that a set's items give are checked like written ones.
func TestASetAdoptsEachApplicationOnce(t *testing.T) {
	h := newHouse(t)
	set := "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeploymentSet\nmetadata: {name: shop}\n" +
		"spec:\n  list: [{name: a, of: cart}, {name: b, of: web}, {name: c, of: web}]\n" +
		"  template:\n    metadata: {name: \"${item.name}\"}\n    spec:\n" +
		"      source: {repoURL: \"https://git.example.com/acme/app\", path: deploy, " +
		"targetRevision: v1}\n" +
		"      destination: {environments: [prod], namespace: app}\n" +
		"      adopt: [{environment: prod, application: \"shop-${item.of}\", orCreate: true}]\n"
	p := h.apply(adopting().with("tenants/acme/sets/shop.yaml", set))
	var rejected []string
	for _, q := range p.Quarantined {
		for _, problem := range q.Problems {
			rejected = append(rejected, q.Key.Name+" "+problem.Code+" "+problem.Field)
			if !strings.Contains(problem.Message, "Application shop-web on engine eu-1 would be") {
				t.Errorf("%s", problem)
			}
		}
	}
	slices.Sort(rejected)
	const field = " already-adopted spec.template.spec.adopt[0].application"
	if want := []string{"b" + field, "c" + field}; !slices.Equal(rejected, want) ||
		!strings.Contains(actions(p), "create Application a@prod") {
		t.Errorf("rejected %q, want %q\n%s", rejected, want, actions(p))
	}
}

// given makes an engine give namespace apps to a tenant.
func given(t tree, tenant string) tree {
	const name = "fleet/engines/eu-1.yaml"
	before, _, _ := strings.Cut(t[name], "  applicationNamespaces:")
	if tenant != "" {
		before += "  applicationNamespaces: [{namespace: apps, tenant: " + tenant + "}]\n"
	}
	return t.with(name, before)
}

func TestATenantAdoptsOnlyFromItsNamespaces(t *testing.T) {
	h := newHouse(t)
	first := adopter("first", "acme", "apps/shop")
	p := h.apply(adopting().with(firstFile, first))
	wantProblem := func(p *Plan, path, code, words string) {
		t.Helper()
		if len(p.Problems) != 1 || p.Problems[0].Path != path || p.Problems[0].Code != code ||
			!strings.Contains(p.Problems[0].Message, words) {
			t.Fatalf("want %s in %s: %+v\n%s", code, path, p.Problems, actions(p))
		}
	}
	wantProblem(p, firstFile, effective.CodeAdoptNamespace,
		`engine eu-1 does not give the Applications of namespace "apps" to tenant acme`)

	p = h.apply(given(h.files, "globex"))
	wantProblem(p, firstFile, effective.CodeAdoptNamespace, "to tenant acme")
	if got := h.project("acme", "eu-1").SourceNamespaces; len(got) > 0 {
		t.Errorf("acme's AppProject permits %v", got)
	}

	// the rejected deployment is judged again when the engine gives its tenant the namespace
	p = h.apply(given(h.files, "acme"))
	if len(p.Quarantined) > 0 ||
		!strings.Contains(actions(p), "create Application first@prod") {
		t.Fatalf("%v\n%s", p.Quarantined, actions(p))
	}
	if got := h.project("acme", "eu-1").SourceNamespaces; !slices.Equal(got, []string{"apps"}) {
		t.Errorf("acme's AppProject permits %v", got)
	}
	if got := h.project("globex", "eu-1").SourceNamespaces; len(got) > 0 {
		t.Errorf("globex's AppProject permits %v", got)
	}
	p = h.apply(h.files.with(secondFile, adopter("second", "acme", "apps/shop")))
	wantProblem(p, secondFile, effective.CodeAdopted, "Application apps/shop on engine eu-1 is adopted")
	p = h.apply(h.files.with(secondFile, adopter("second", "acme", "shop")))
	if len(p.Quarantined) > 0 {
		t.Errorf("an Application of the name in another namespace: %v", p.Quarantined)
	}
	h.apply(h.files.without(secondFile))
	h.work()

	// neither removal nor another tenant takes a namespace from under an adopted Application
	for _, tenant := range []string{"", "globex"} {
		p = h.apply(given(h.files, tenant))
		if !slices.ContainsFunc(p.Problems, func(problem fleet.Problem) bool {
			return problem.Code == "engine-in-use" &&
				problem.Field == "spec.applicationNamespaces" &&
				strings.Contains(problem.Message, `tenant acme has adopted Applications of namespace "apps"`)
		}) {
			t.Errorf("given to %q: %v", tenant, p.Problems)
		}
		if got := h.project("acme", "eu-1").SourceNamespaces; !slices.Equal(got,
			[]string{"apps"}) {
			t.Errorf("acme's AppProject permits %v", got)
		}
	}
	h.apply(h.files.without(firstFile))
	if got := h.project("acme", "eu-1").SourceNamespaces; !slices.Equal(got, []string{"apps"}) {
		t.Errorf("during the release acme's AppProject permits %v", got)
	}
	h.work()
	p = h.apply(given(h.files, ""))
	if len(p.Problems) > 0 || len(h.project("acme", "eu-1").SourceNamespaces) > 0 {
		t.Errorf("after the release the namespace stays: %v", p.Problems)
	}
}

// inAgent makes an agent's environment list namespaces with Applications.
func inAgent(t tree, namespaces string) tree {
	agent := "{}"
	if namespaces != "" {
		agent = "{applicationNamespaces: [" + namespaces + "]}"
	}
	return t.with(edgePath, edgeFile(agent))
}

func TestATenantAdoptsFromTheNamespacesOfItsAgent(t *testing.T) {
	h := newHouse(t)
	adopting := func(name, application string) string {
		return deploymentFile(name, "acme/"+name, "environments: [edge]", "  deletionPolicy: "+
			"Release\n  adopt: [{environment: edge, application: "+application+"}]\n")
	}
	files := plant().without("tenants/acme/credentials/").
		with("fleet/tenants/acme.yaml", tenantFile("acme", "  allow: {adopt: true}\n"))
	p := h.apply(files.with(firstFile, adopting("first", "apps/shop")))
	if len(p.Problems) != 1 || p.Problems[0].Code != effective.CodeAdoptNamespace ||
		!strings.Contains(p.Problems[0].Message, `environment edge does not list namespace "apps"`) ||
		!strings.Contains(p.Problems[0].Fix, "the admin of its cluster") {
		t.Fatalf("%+v\n%s", p.Problems, actions(p))
	}
	permits := func(want ...string) {
		t.Helper()
		if got := h.project("acme", "acme.edge").SourceNamespaces; !slices.Equal(got, want) {
			t.Errorf("the AppProject permits %v, want %v", got, want)
		}
	}
	permits()
	p = h.apply(inAgent(h.files, "more, apps"))
	if len(p.Quarantined) > 0 || !strings.Contains(actions(p), "create Application first@edge") {
		t.Fatalf("%v\n%s", p.Quarantined, actions(p))
	}
	permits("apps", "more")
	h.work()

	p = h.apply(inAgent(h.files, "apps"))
	if len(p.Problems) > 0 {
		t.Errorf("without the unused namespace: %v", p.Problems)
	}
	permits("apps")
	p = h.apply(inAgent(h.files, ""))
	if !slices.ContainsFunc(p.Problems, func(problem fleet.Problem) bool {
		return problem.Code == "engine-in-use" && problem.Path == edgePath &&
			problem.Field == "spec.agent.applicationNamespaces"
	}) {
		t.Errorf("the namespace of an adopted Application: %v", p.Problems)
	}
	permits("apps")
	h.apply(h.files.without(firstFile))
	permits("apps") // during the release
	h.work()
	p = h.apply(inAgent(h.files, ""))
	if len(p.Problems) > 0 {
		t.Errorf("after the release: %v", p.Problems)
	}
	permits()
}
