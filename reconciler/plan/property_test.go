package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/place"
)

var seed = flag.Uint64("seed", 0, "of the one random history to run; 0: some fixed ones")

// editor makes random edits to a tree like people do, mistakes included.
type editor struct {
	r     *rand.Rand
	files tree
}

func (e *editor) pick(names ...string) string { return names[e.r.IntN(len(names))] }

func (e *editor) tenant() string { return e.pick("acme", "globex", "initech") }

func (e *editor) put(path, text string) { e.files = e.files.with(path, text) }

func (e *editor) edit() {
	t := e.tenant()
	base := "tenants/" + t + "/"
	env := e.pick("prod", "staging", "dev", "edge")
	dep := e.pick("a", "b", "c", "d", "e")
	switch e.r.IntN(25) {
	case 20:
		e.put(base+"defaults.yaml", defaultsFile("  "+e.pick("deletionPolicy: Orphan",
			"sync: {mode: manual}", "sync: {prune: false}\n  revisionHistoryLimit: 3")+"\n"))
	case 21:
		e.files = e.files.without(base + "defaults.yaml")
	case 22, 23:
		name := e.pick("first", "second")
		e.put(base+"sets/"+name+".yaml", e.set(t, name))
	case 24:
		e.files = e.files.without(base + "sets/" + e.pick("first", "second") + ".yaml")
	case 0, 1, 2:
		e.put(base+"environments/"+env+".yaml", e.environment(t, env))
	case 3:
		e.files = e.files.without(base + "environments/" + env + ".yaml")
	case 4, 5, 6, 7, 8:
		text := e.deployment(t, dep)
		if e.r.IntN(4) == 0 {
			text = severalSources(text, e.pick("shared/charts", t+"/"+dep, t+"/a.git"))
		}
		e.put(base+"deployments/"+dep+".yaml", text)
	case 9, 10:
		e.files = e.files.without(base + "deployments/" + dep + ".yaml")
	case 11:
		repo := e.pick("shared/charts", t+"/"+dep, t+"/a", t+"/", "shared/")
		e.put(base+"credentials/"+dep+".yaml", credentialFile(dep, repo))
	case 12:
		e.files = e.files.without(base + "credentials/" + dep + ".yaml")
	case 13:
		name := fmt.Sprintf("run-%d", e.r.IntN(6))
		e.put(base+"syncs/"+name+".yaml",
			syncFile(
				name, fmt.Sprintf("deployment: %s, revision: v9, hold: %v", dep, e.r.IntN(2) == 0)))
	case 14:
		e.files = e.files.without(base + "syncs/" + fmt.Sprintf("run-%d", e.r.IntN(6)))
	case 15:
		e.put("fleet/tenants/"+t+".yaml",
			tenantFile(
				t,
				e.pick("", "  placement: {dedicated: true}\n",
					"  clusterResources: [{group: \"\", kind: Namespace}]\n",
					"  placement: {regions: [eu]}\n")))
	case 16:
		name := e.pick("eu-1", "eu-2", "us-1")
		text := engineFile(
			name, name[:2],
			e.pick("", "  state: Cordoned\n", "  state: Draining\n", "  dedicatedTo: [acme]\n",
				"  taints: [{key: gpu}]\n"))
		if e.r.IntN(3) == 0 {
			text = strings.Replace(text, "applications: 1000, environments: 100",
				"applications: 6, environments: 3", 1)
		}
		if e.r.IntN(6) == 0 {
			text = strings.Replace(text, "kubeconfigRef: {name: "+name+"}", "agent: {}", 1)
		}
		if e.r.IntN(4) == 0 {
			text = strings.Replace(text, "namespace: argocd-", "namespace: other-", 1)
		}
		e.put("fleet/engines/"+name+".yaml", text)
	case 17:
		e.files = e.files.without("fleet/engines/" + e.pick("eu-1", "eu-2", "us-1") + ".yaml")
	case 18:
		if e.r.IntN(3) == 0 {
			e.files = e.files.without(base, "fleet/tenants/"+t+".yaml")
		} else {
			e.put("fleet/tenants/"+t+".yaml", tenantFile(t, ""))
		}
	case 19:
		e.put("fleet/fleet.yaml",
			fleetFile(
				loose+e.pick("", "  defaults: {sync: {mode: manual}}\n",
					"  defaults: {sync: {prune: false}}\n")))
	}
}

const loose = "  guards: {maxDeletes: 100000, maxDeletePercent: 100, alwaysAllowed: 100000}\n"

func (e *editor) environment(tenant, name string) string {
	text := environmentFile(name, e.pick("eu", "eu", "us"), "tier: "+e.pick("prod", "dev"),
		e.pick("app", "app, other", "app, sub-", "app, sub-", "sub-", "other"))
	if e.r.IntN(5) > 0 { // otherwise the tenants want one namespace of one cluster
		text = strings.Replace(text, "https://", "https://"+tenant+"-", 1)
	}
	if e.r.IntN(5) == 0 {
		text += "  clusterResources: true\n"
	}
	switch e.r.IntN(10) {
	case 0, 1:
		text = withAgent(text, "{}")
	case 2:
		text = withAgent(text, "{mode: autonomous}")
	case 3:
		text = withAgent(text, "{argocdNamespace: gitops}")
	}
	if e.r.IntN(6) == 0 {
		text = strings.Replace(text, "example.com:6443", "moved.example.com:6443", 1)
	}
	return text
}

func (e *editor) deployment(tenant, name string) string {
	destination := e.pick("environments: [prod]", "environments: [prod, staging]",
		"environments: [dev, edge, prod]", "environmentSelector: {matchLabels: {tier: prod}}",
		"environmentSelector: {matchLabels: {tier: dev}}", "environments: [nowhere]")
	text := deploymentFile(
		name, e.pick(tenant+"/"+name, tenant+"/a", "shared/charts", "shared/charts.git"),
		destination, e.pick("", "  deletionPolicy: Orphan\n", "  sync: {mode: manual}\n",
			"  overrides: [{environment: prod, source: {targetRevision: v3}}]\n",
			"  overrides: [{selector: {matchLabels: {tier: dev}}, namespace: other}]\n",
			"  overrides: [{selector: {matchExpressions: [{key: tier, operator: Exists}]}, "+
				"sync: {mode: manual}}]\n"))
	text = strings.Replace(text, "path: deploy", "path: "+e.pick("deploy", "deploy",
		`"deploy/${environment.labels.tier}"`, `"deploy/${environment.region}"`), 1)
	switch e.r.IntN(6) {
	case 0:
		text = strings.Replace(text, "namespace: app", "namespace: sub-"+e.pick("a", "b"), 1)
	case 1:
		text += "  sync: {createNamespace: true}\n"
	}
	return strings.Replace(text, "targetRevision: v1", "targetRevision: "+e.pick("v1", "v2"), 1)
}

// set is a set of up to three deployments, of which one may not decode.
func (e *editor) set(tenant, name string) string {
	var items strings.Builder
	for range 1 + e.r.IntN(3) {
		fmt.Fprintf(&items, "    - {name: %s, revision: %s, environment: %s}\n",
			e.pick("a", "b", "d", "e"), e.pick("v1", "v2", "..", "main"),
			e.pick("prod", "staging", "dev"))
	}
	return `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeploymentSet
metadata: {name: ` + name + `}
spec:
  list:
` + items.String() + `  template:
    metadata: {name: "${item.name}"}
    spec:
      source:
        repoURL: https://git.example.com/` + tenant + `/${item.name}
        path: deploy
        targetRevision: ${item.revision}
      destination: {environments: ["${item.environment}"], namespace: app}
`
}

func startingTree() tree {
	files := tree{
		"fleet/fleet.yaml":        fleetFile(loose),
		"fleet/engines/eu-1.yaml": engineFile("eu-1", "eu", ""),
		"fleet/engines/eu-2.yaml": engineFile("eu-2", "eu", ""),
		"fleet/engines/us-1.yaml": engineFile("us-1", "us", "")}
	for _, t := range []string{"acme", "globex", "initech"} {
		files["fleet/tenants/"+t+".yaml"] = tenantFile(t, "")
	}
	return files
}

func TestIncrementalEqualsFromScratch(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = nil
		for n := range uint64(60) {
			seeds = append(seeds, n+1)
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) { randomHistory(t, s) })
	}
}

func randomHistory(t *testing.T, seed uint64) {
	e := &editor{r: rand.New(rand.NewPCG(seed, 1)), files: startingTree()}
	h := newHouse(t)
	h.apply(e.files)
	for range 60 {
		for range 1 + e.r.IntN(4) {
			e.edit()
		}
		p := h.apply(e.files)
		if testing.Verbose() {
			t.Logf("revision %d: %s\n  memory %s", h.n, actions(p), h.w.state.Memory)
		}
		switch e.r.IntN(4) {
		case 0:
			h.work()
		case 1:
			h.restart()
		case 2:
			h.workWithRestarts()
		}
		checkState(t, h)
	}
	h.work()
	checkState(t, h)
	compareWithScratch(t, h)
}

// compareWithScratch plans the declarations in effect from nothing, with the same placements and
// sync holds. If some of them are in effect only because they were valid once, the catalog does not
// judge them again.
func compareWithScratch(t *testing.T, h *house) {
	t.Helper()
	s := h.snapshot()
	fresh := mirror.Snapshot{Placements: s.Placements, SyncHolds: s.SyncHolds,
		Memory: onlyMoved(t, s.Memory)}
	w, err := RestoreAppliedState(fresh)
	if err != nil {
		t.Fatal(err)
	}
	var in []catalog.Input
	for _, d := range h.w.state.Catalog.Effective() {
		if d.Set != nil {
			continue // its head may generate others than are in effect
		}
		if _, generated := fleet.SetOf(d.Key, d.Path); generated {
			written := *d
			written.Path = configschema.PathOf(d.Key)
			d = &written
		}
		in = append(in, catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d})
	}
	p, err := w.Compute(Request{Revision: h.w.Revision(), Files: in, Now: h.now}, &h.render)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Quarantined)+len(h.w.state.Deferred) > 0 {
		fresh.Declarations = s.Declarations
		w, p = planEverything(t, fresh, h)
	}
	scratch := map[fleet.ObjectKey]string{}
	for _, c := range p.Rows {
		scratch[c.Row.Key] = c.Row.Manifest.Hash
	}
	for k, hash := range h.desired() {
		if scratch[k] != hash {
			t.Errorf("%v: %.8s incrementally, %.8s from scratch\n%s\n%s", k, hash, scratch[k],
				h.rows[k].Manifest.Body, bodyOf(p, k))
		}
		delete(scratch, k)
	}
	for k := range scratch {
		t.Errorf("%v: only from scratch", k)
	}
	w.Commit(p)
	for id, a := range h.w.state.Placements.Base() {
		if b := w.state.Placements.Base()[id]; a.Engine != b.Engine || a.Misplaced != b.Misplaced {
			t.Errorf("placement of %s: %q (%s) incrementally, %q (%s) from scratch", id, a.Engine,
				a.Misplaced, b.Engine, b.Misplaced)
		}
	}
}

// onlyMoved returns the part of the memory that a rebuild loses and that rows come from: the former
// namespaces of Applications.
func onlyMoved(t *testing.T, memory []byte) []byte {
	t.Helper()
	var m struct {
		Moved json.RawMessage `json:"moved,omitempty"`
	}
	if len(memory) == 0 {
		return nil
	}
	unmarshal(t, memory, &m)
	if len(m.Moved) == 0 {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkState compares the AppliedState's counts with its rows and declarations.
func checkState(t *testing.T, h *house) {
	t.Helper()
	restored, err := RestoreAppliedState(h.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"loads", nonZero(h.w.state.Loads.Base()), nonZero(restored.state.Loads.Base())},
		{"rows", h.w.state.Rows.Base(), restored.state.Rows.Base()},
		{"rows on engines", h.w.state.RowsOn.Base(), restored.state.RowsOn.Base()},
		{"environments", h.w.state.Environments.Base(), restored.state.Environments.Base()},
		{"standing", h.w.state.ApplicationsIn.Base(), restored.state.ApplicationsIn.Base()},
		{"repositories", h.w.state.Repos.Base(), restored.state.Repos.Base()},
		{"readers", h.w.state.Readers.Base(), restored.state.Readers.Base()},
		{"clones", h.w.state.Clones.Base(), restored.state.Clones.Base()},
		{"private readers", h.w.state.PrivateReaders.Base(), restored.state.PrivateReaders.Base()},
		{"spellings", h.w.state.Spellings.Base(), restored.state.Spellings.Base()},
		{"read in", h.w.state.ReadIn.Base(), restored.state.ReadIn.Base()},
		{"contested", h.w.state.CredentialConflicts.Base(),
			restored.state.CredentialConflicts.Base()},
		{"namespaces", h.w.state.NamespacesIn.Base(), restored.state.NamespacesIn.Base()},
		{"creators", h.w.state.Creators.Base(), restored.state.Creators.Base()},
		{"leaving", h.w.state.Terminating.Base(), restored.state.Terminating.Base()},
		{"held", len(h.w.state.Held.Base()), len(restored.state.Held.Base())},
		{"files", h.w.state.Files, restored.state.Files},
		{"unserved", h.w.state.Unplaced.Base(), restored.state.Unplaced.Base()},
		{"slices", h.w.state.Slices.Base(), restored.state.Slices.Base()},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Fatalf("%s: %v, restored %v", c.what, c.got, c.want)
		}
	}
	for k, r := range h.w.state.Rows.Base() {
		if stored, ok := h.rows[k]; !ok || stored.Manifest.Hash != r.Hash ||
			stored.Unwanted != r.Unwanted || stored.Deletion != r.Deletion {
			t.Fatalf("%v: the index and the rows disagree", k)
		}
	}
	checkNeeds(t, h)
	checkOwnClusters(t, h)
}

func nonZero(loads map[fleet.EngineName]fleet.EngineLoad) map[fleet.EngineName]fleet.EngineLoad {
	out := map[fleet.EngineName]fleet.EngineLoad{}
	for e, l := range loads {
		if l != (fleet.EngineLoad{}) {
			out[e] = l
		}
	}
	return out
}

// checkNeeds checks that no workload is orphaned: every existing Application, wanted or
// terminating, has its cluster with its namespace, and a project that permits its destination and
// source. Both are wanted and in effect.
func checkNeeds(t *testing.T, h *house) {
	t.Helper()
	for k, r := range h.rows {
		if k.Kind != fleet.ObjectApplication {
			continue
		}
		if k.Engine.OfEnvironment() {
			checkAgentNeeds(t, h, k, r)
			continue
		}
		cluster, ok := h.rows[fleet.ObjectKey{
			Engine: k.Engine, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: r.Tenant, Name: r.Environment})}]
		if !ok || cluster.Unwanted {
			t.Fatalf("application %s/%s@%s exists (absent %v) without its cluster", r.Tenant,
				r.Deployment, r.Environment, r.Unwanted)
		}
		project, ok := h.rows[fleet.ObjectKey{
			Engine: k.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(r.Tenant)}]
		if !ok || project.Unwanted {
			t.Fatalf("application %s/%s@%s exists (absent %v) without its project", r.Tenant,
				r.Deployment, r.Environment, r.Unwanted)
		}
		app := renderedOf(t, r.Manifest)
		var proj struct{ Spec fleet.Project }
		var clus struct{ Spec fleet.Cluster }
		unmarshal(t, project.Manifest.Body, &proj)
		unmarshal(t, cluster.Manifest.Body, &clus)
		if !slices.Contains(proj.Spec.Destinations, app.Destination) ||
			!containsAll(proj.Spec.SourceRepos, app.Sources) {
			t.Fatalf(
				"application %s (absent %v) goes to %v from %s, which its project does not "+
					"permit: %v", app.ID, r.Unwanted, app.Destination,
				fleet.RepoURLsOf(app.Sources), proj.Spec)
		}
		if clus.Spec.Server != app.Destination.Server ||
			!slices.Contains(clus.Spec.Namespaces, app.Destination.Namespace) {
			t.Fatalf("application %s (absent %v) goes to %v, its cluster is %s with %v",
				app.ID, r.Unwanted, app.Destination, clus.Spec.Server,
				clus.Spec.Namespaces)
		}
	}
}

// checkAgentNeeds checks the same on an environment's own cluster: there is no Cluster, and the
// project permits only the cluster itself.
func checkAgentNeeds(t *testing.T, h *house, k fleet.ObjectKey, r mirror.Row) {
	t.Helper()
	if want := fleet.AgentEngine(
		fleet.EnvironmentID{Tenant: r.Tenant, Name: r.Environment}); k.Engine != want {
		t.Fatalf("application %s/%s@%s exists on %s, not on its own cluster %s", r.Tenant,
			r.Deployment, r.Environment, k.Engine, want)
	}
	project, ok := h.rows[fleet.ObjectKey{
		Engine: k.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(r.Tenant)}]
	if !ok || project.Unwanted {
		t.Fatalf("application %s/%s@%s exists (absent %v) without its project", r.Tenant,
			r.Deployment, r.Environment, r.Unwanted)
	}
	app := renderedOf(t, r.Manifest)
	var proj struct{ Spec fleet.Project }
	unmarshal(t, project.Manifest.Body, &proj)
	if app.Destination.Server != fleet.InClusterServer ||
		!slices.Contains(proj.Spec.Destinations, app.Destination) ||
		!containsAll(proj.Spec.SourceRepos, app.Sources) {
		t.Fatalf("application %s (absent %v) goes to %v from %s; its project: %v", app.ID,
			r.Unwanted, app.Destination, fleet.RepoURLsOf(app.Sources), proj.Spec)
	}
}

// checkOwnClusters compares every placement with its declaration: exactly the environments with an
// agent are on their own clusters.
func checkOwnClusters(t *testing.T, h *house) {
	t.Helper()
	for id, p := range h.w.state.Placements.Base() {
		if env := h.w.state.Catalog.Environment(id.In()); env == nil ||
			p.Engine != "" && !env.Environment.ReachedBy(p.Engine) ||
			p.Engine.OfEnvironment() && p.Engine != fleet.AgentEngine(id.In()) {
			t.Fatalf("environment %s is placed on %q: %+v", id, p.Engine, env)
		}
	}
	for id, p := range h.w.state.Placements.Base() {
		for _, dep := range h.w.state.Catalog.DeploymentsIn(id.In()) {
			removing := h.w.state.Deferred[applied.EnvironmentKey(id.In())].Removing
			if r, ok := h.rows[applied.ApplicationKey(
				p.Engine, applied.ApplicationID(dep, id.In()))]; p.Engine.OfEnvironment() &&
				!removing && (!ok || r.Unwanted) {
				t.Fatalf("%s has no Application on the own cluster %s", dep, p.Engine)
			}
		}
	}
	for k, r := range h.rows {
		if !k.Engine.OfEnvironment() {
			continue
		}
		if k.Kind == fleet.ObjectCluster {
			t.Fatalf("%v: an own cluster needs no Cluster", k)
		}
		for id, p := range h.w.state.Placements.Base() {
			if p.Engine == k.Engine && !r.Unwanted &&
				h.w.state.Catalog.Environment(id.In()).Environment.Agent.Autonomous() {
				t.Fatalf("%v exists on the cluster of the autonomous environment %s", k, id)
			}
		}
	}
}

// planEverything plans every environment and Application of declarations that the catalog does not
// judge again.
func planEverything(t *testing.T, s mirror.Snapshot, h *house) (*AppliedState, *Plan) {
	t.Helper()
	w, err := RestoreAppliedState(s)
	if err != nil {
		t.Fatal(err)
	}
	w.state.Deferred, w.state.Restored = h.w.state.Deferred, false
	o := &outcome{base: w, request: Request{Revision: h.w.Revision(), Now: h.now},
		render: &h.render}
	o.admission = effective.Admit(w.state, o.request.arrival())
	o.declared = effective.Compute(effective.Input{Applied: w.state, Resume: true},
		effective.NewLimits())
	in := place.Input{Applied: w.state, Declared: o.declared, Revision: o.request.Revision}
	for _, tenant := range o.declared.After.Tenants() {
		in.Environments = append(in.Environments, o.declared.After.EnvironmentsOf(tenant)...)
	}
	if o.placed, err = place.Compute(in); err != nil {
		t.Fatal(err)
	}
	o.diff, err = diff.Compute(
		diff.Input{Applied: w.state, Declared: o.declared, Placed: o.placed, Revision: in.Revision,
			Renderer: o.render})
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	return w, p
}

func bodyOf(p *Plan, k fleet.ObjectKey) []byte {
	for _, c := range p.Rows {
		if c.Row.Key == k {
			return c.Row.Manifest.Body
		}
	}
	return nil
}

// containsAll reports whether a project permits the repository of every source.
func containsAll(repos []string, sources []fleet.Source) bool {
	for url := range fleet.RepoURLsOf(sources).All() {
		if !slices.Contains(repos, url) {
			return false
		}
	}
	return true
}
