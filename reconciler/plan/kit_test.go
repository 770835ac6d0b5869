package plan

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/report"
)

// jsonRenderer renders the typed objects as they are, in the engine's namespace.
type jsonRenderer struct {
	rendered int
	refuses  func(fleet.Object) bool
}

// renderedOf returns the Application of a manifest.
func renderedOf(t testing.TB, m fleet.Manifest) fleet.Application {
	t.Helper()
	var of struct {
		Spec struct {
			fleet.Application
			Source *fleet.Source
		}
	}
	unmarshal(t, m.Body, &of)
	app := of.Spec.Application
	if of.Spec.Source != nil {
		app.Sources = []fleet.Source{*of.Spec.Source}
	}
	return app
}

func (r *jsonRenderer) Render(e fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	r.rendered++
	if r.refuses != nil && r.refuses(o) {
		return fleet.Manifest{}, errors.New("refused by the renderer")
	}
	var spec any
	switch {
	case o.Project != nil:
		spec = o.Project
	case o.Cluster != nil:
		c := *o.Cluster
		c.Credential = fleet.CredentialSource{}
		spec = c
	case o.Repository != nil:
		c := *o.Repository
		c.Credential = fleet.CredentialSource{}
		spec = c
	default:
		a := *o.Application
		a.DeletionPolicy = ""
		spec = a
	}
	body, err := json.Marshal(
		map[string]any{"kind": o.Key.Kind, "namespace": e.ArgoCD.Namespace, "name": o.Key.Name,
			"spec": spec})
	if err != nil {
		return fleet.Manifest{}, err
	}
	if o.Application != nil && len(o.Application.Sources) == 1 {
		// Argo CD has one source under another name
		one, _ := json.Marshal(o.Application.Sources[0])
		body = bytes.Replace(body, fmt.Appendf(nil, `"Sources":[%s]`, one),
			fmt.Appendf(nil, `"Source":%s`, one), 1)
	}
	sum := sha256.Sum256(body)
	return fleet.Manifest{Body: body, Hash: hex.EncodeToString(sum[:])}, nil
}

var inNamespace = regexp.MustCompile(`"namespace":"[^"]*"`)

// Retarget puts the engine's namespace into a manifest.
func (r *jsonRenderer) Retarget(e fleet.EngineSpec, _ fleet.EngineName, _ fleet.TenantName,
	m fleet.Manifest) (fleet.Manifest, error) {
	at := inNamespace.FindIndex(m.Body)
	body := slices.Concat(m.Body[:at[0]], fmt.Appendf(nil, `"namespace":%q`, e.ArgoCD.Namespace),
		m.Body[at[1]:])
	sum := sha256.Sum256(body)
	return fleet.Manifest{Body: body, Hash: hex.EncodeToString(sum[:])}, nil
}

// tree is a config repo's files by path.
type tree map[string]string

func (t tree) with(path, text string) tree {
	out := maps.Clone(t)
	out[path] = text
	return out
}

func (t tree) without(prefixes ...string) tree {
	out := maps.Clone(t)
	for path := range t {
		if slices.ContainsFunc(prefixes, func(p string) bool {
			return strings.HasPrefix(path, p)
		}) {
			delete(out, path)
		}
	}
	return out
}

// edit replaces text in one file.
func (t tree) edit(path, old, with string) tree {
	if !strings.Contains(t[path], old) {
		panic(path + " does not hold " + old)
	}
	return t.with(path, strings.ReplaceAll(t[path], old, with))
}

// inputs is the difference between two trees, decoded.
func inputs(before, after tree) []catalog.Input {
	var in []catalog.Input
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		text, is := after[path]
		was, existed := before[path]
		if is && existed && text == was {
			continue
		}
		if i, ours := input(path, text); ours {
			i.Removed = !is
			if !is {
				i.Declaration, i.Problems = nil, nil
			}
			in = append(in, i)
		}
	}
	return in
}

func input(path, text string) (catalog.Input, bool) {
	sum := sha1.Sum([]byte(text))
	doc := configschema.Decode(
		configschema.File{Path: path, Blob: hex.EncodeToString(sum[:]), Bytes: []byte(text),
			Listings: listedIn(text)})
	return catalog.Input{Key: doc.Key, Path: path, Blob: doc.Blob, Declaration: doc.Declaration,
		Problems: doc.Problems}, doc.Key.Kind != ""
}

// house is an AppliedState with the tree that is applied to it, maintained like the loop and the
// store do.
type house struct {
	t      testing.TB
	w      *AppliedState
	files  tree
	n      int // revisions
	now    time.Time
	log    []mirror.Deletion
	rows   map[fleet.ObjectKey]mirror.Row
	render jsonRenderer
	last   mirror.Record
	kept   map[string]fleet.Manifest // by hash, that rollouts may return to
}

func newHouse(t testing.TB) *house {
	return &house{
		t: t, w: NewAppliedState(), files: tree{},
		now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), rows: map[fleet.ObjectKey]mirror.Row{}}
}

func revision(n int) fleet.Revision {
	return fleet.Revision(fmt.Sprintf("%08x%032x", 0xa0000000+n, n))
}

// compute plans the tree as the next revision.
func (h *house) compute(files tree, options ...func(*Request)) *Plan {
	h.t.Helper()
	r := Request{Revision: revision(h.n + 1), Files: inputs(h.files, files), Recent: h.log,
		Now: h.now, Explain: true}
	for _, o := range options {
		o(&r)
	}
	p, err := h.w.Compute(r, &h.render)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// apply plans the tree, records it and commits.
func (h *house) apply(files tree, options ...func(*Request)) *Plan {
	h.t.Helper()
	p := h.compute(files, options...)
	h.commit(p)
	h.n++
	if p.RevisionHold == nil {
		h.files = files
	}
	return p
}

func (h *house) commit(p *Plan) {
	h.t.Helper()
	r := p.Record()
	h.once(p, r)
	for _, d := range r.Deletions {
		d.At = h.now
		h.log = append(h.log, d)
	}
	if p.RevisionHold == nil {
		for _, c := range p.Rows {
			h.record(c)
		}
	}
	h.w.Commit(p)
}

// once behaves like the store, which skips a plan with the key of the last record: then both
// records must be equal.
func (h *house) once(p *Plan, r mirror.Record) {
	h.t.Helper()
	same := r.Revision == h.last.Revision && r.PlanHash == h.last.PlanHash
	if !p.Empty() && !r.RevisionHeld && same {
		was := h.last
		if was.Base = r.Base; !reflect.DeepEqual(was, r) {
			h.t.Fatalf("the store takes one record for another:\n%s", cmp.Diff(was, r))
		}
	}
	if !r.RevisionHeld {
		h.last = r
	}
}

func (h *house) record(c diff.RowChange) {
	h.t.Helper()
	stored, exists := h.rows[c.Row.Key]
	switch c.Action {
	case report.Create:
		if exists && !stored.Unwanted {
			h.t.Fatalf("%s is created though it exists", c.Row.Key.Name)
		}
		h.rows[c.Row.Key] = c.Row
	case report.Update:
		if !exists || stored.Unwanted {
			h.t.Fatalf("%s is updated though it does not exist", c.Row.Key.Name)
		}
		h.rows[c.Row.Key] = c.Row
	case report.Delete, report.Depart:
		stored.Unwanted, stored.Deletion = true, c.Row.Deletion
		h.rows[c.Row.Key] = stored
	}
}

// again plans the applied revision again, with approvals and deleted objects.
func (h *house) again(options ...func(*Request)) *Plan {
	h.t.Helper()
	p := h.compute(
		h.files, append(
			[]func(*Request){
				func(r *Request) {
					r.Revision, r.Relation = h.w.Revision(), mirror.RelationSame
				}}, options...)...)
	h.commit(p)
	return p
}

// work lets the engines catch up: they delete unwanted objects and the planner gets the report,
// until nothing is left to delete.
func (h *house) work() {
	h.t.Helper()
	for range 10 {
		gone := h.vanish()
		if len(gone) == 0 {
			return
		}
		h.again(func(r *Request) { r.Deleted = gone })
	}
	h.t.Fatal("something never leaves")
}

// workWithRestarts is work by replicas that end whenever all unwanted objects are deleted and no
// plan is recorded since: the next replica finds what the store has.
func (h *house) workWithRestarts() {
	h.t.Helper()
	for range 10 {
		proven := len(h.vanish()) > 0
		h.restart()
		gone := h.w.Terminating()
		p := h.again(func(r *Request) { r.Deleted = gone })
		// a change that is still deferred has its problem recorded again
		if !proven && len(p.Rows)+len(p.Declarations)+len(p.Placements) == 0 {
			return
		}
	}
	h.t.Fatal("something never leaves")
}

// vanish deletes every unwanted object and its row, and returns their keys.
func (h *house) vanish() []fleet.ObjectKey {
	h.t.Helper()
	gone := h.w.Terminating()
	for _, k := range gone {
		if r, ok := h.rows[k]; ok && !r.Unwanted {
			h.t.Fatalf("%s is terminating, but its row is wanted", k.Name)
		}
		delete(h.rows, k)
	}
	return gone
}

// desired returns the wanted rows by key, with their hashes.
func (h *house) desired() map[fleet.ObjectKey]string {
	out := map[fleet.ObjectKey]string{}
	for k, r := range h.rows {
		if !r.Unwanted {
			out[k] = r.Manifest.Hash
		}
	}
	return out
}

// snapshot returns the state that the store has at a start.
func (h *house) snapshot() mirror.Snapshot {
	s := mirror.Snapshot{Applied: h.w.state.Revision, Memory: h.w.state.Memory}
	for _, d := range h.w.state.Catalog.Effective() {
		s.Declarations = append(s.Declarations, *d)
	}
	for _, q := range h.w.state.Catalog.Quarantines() {
		s.Quarantines = append(s.Quarantines, fleet.Quarantine{
			Key: q.Key, Path: q.Path, Blob: q.Blob, Declaration: q.Declaration,
			Problems: q.Problems, HasLastGood: q.HasLastGood, Removed: q.Removed})
	}
	for _, p := range h.w.state.Placements.Base() {
		s.Placements = append(s.Placements, p)
	}
	for _, sh := range h.w.state.SyncHolds.Base() {
		s.SyncHolds = append(s.SyncHolds, sh)
	}
	s.Rollouts = h.w.Rollouts()
	for k, r := range h.rows {
		s.Objects = append(
			s.Objects, mirror.Indexed{Key: k, Hash: r.Manifest.Hash, Tenant: r.Tenant,
				Environment: r.Environment, Deployment: r.Deployment, Credential: r.Credential,
				Deletion: r.Deletion, Unwanted: r.Unwanted})
	}
	return s
}

// restart continues from the stored state.
func (h *house) restart() {
	h.t.Helper()
	w, err := RestoreAppliedState(h.snapshot())
	if err != nil {
		h.t.Fatal(err)
	}
	h.w = w
}

// Files for tests, written short.

func fleetFile(guards string) string {
	return "apiVersion: argosy.dev/v1alpha1\nkind: Fleet\nmetadata: {name: fleet}\nspec:\n  " +
		"gitHosts: [git.example.com]\n" + guards
}

func engineFile(name, region, rest string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: Engine\nmetadata: {name: %[1]s}\nspec:\n  "+
			"argocd: {namespace: argocd-%[1]s, installationID: %[1]s}\n  connection: "+
			"{kubeconfigRef: {name: %[1]s}}\n  region: %[2]s\n  capacity: {applications: 1000, "+
			"environments: 100}\n%[3]s", name, region, rest)
}

func tenantFile(name, rest string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: Tenant\nmetadata: {name: %[1]s}\nspec:\n  "+
			"owners: [\"group:%[1]s\"]\n  quota: {environments: 100, deployments: 500, "+
			"applications: 1000}\n  repositories: [\"https://git.example.com/%[1]s/\", "+
			"\"https://git.example.com/shared/\"]\n  clusters: [.example.com]\n  namespaces: "+
			"[app, web, shop, other, bad]\n%[2]s", name, rest)
}

func environmentFile(name, region, labels, namespaces string) string {
	if labels != "" {
		labels = ", labels: {" + labels + "}"
	}
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\nmetadata: {name: "+
			"%[1]s%[3]s}\nspec:\n  cluster: {server: \"https://%[1]s.example.com:6443\", "+
			"credentialsRef: {name: %[1]s}}\n  namespaces: [%[4]s]\n  region: %[2]s\n", name,
		region, labels, namespaces)
}

// withAgent is an environment's file with an agent instead of its cluster.
func withAgent(text, agent string) string {
	before, rest, ok := strings.Cut(text, "  cluster: ")
	_, after, _ := strings.Cut(rest, "\n")
	if !ok {
		panic("the environment has no cluster: " + text)
	}
	return before + "  agent: " + agent + "\n" + after
}

func deploymentFile(name, repo, destination, rest string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: %s}\nspec:\n "+
			" source: {repoURL: \"https://git.example.com/%s\", path: deploy, targetRevision: "+
			"v1}\n  destination: {%s, namespace: app}\n%s", name, repo, destination, rest)
}

// severalSources returns a deployment's file with a source of another repository beside its own.
func severalSources(text, repo string) string {
	source, rest, _ := strings.Cut(text, "\n  destination:")
	before, source, _ := strings.Cut(source, "  source: ")
	return before + "  sources:\n    - " + source + "\n    - {ref: values, repoURL: " +
		"\"https://git.example.com/" + repo + "\", targetRevision: main}\n  destination:" + rest
}

func credentialFile(name, repo string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: RepositoryCredential\nmetadata: {name: "+
			"%[1]s}\nspec: {repoURL: \"https://git.example.com/%[2]s\", credentialsRef: {name: "+
			"%[1]s}}\n", name, repo)
}

func defaultsFile(spec string) string {
	return "apiVersion: argosy.dev/v1alpha1\nkind: TenantDefaults\nmetadata: {name: defaults}\n" +
		"spec:\n" + spec
}

func syncFile(name, rest string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: SyncRun\nmetadata: {name: %s}\nspec: {%s}\n", name,
		rest)
}

// small is two engines in one region and acme with two environments and two deployments.
func small() tree {
	return tree{
		"fleet/fleet.yaml":        fleetFile(""),
		"fleet/engines/eu-1.yaml": engineFile("eu-1", "eu", ""),
		"fleet/engines/eu-2.yaml": engineFile("eu-2", "eu", ""),
		"fleet/tenants/acme.yaml": tenantFile("acme", ""),
		"tenants/acme/environments/prod.yaml": environmentFile("prod", "eu", "tier: prod",
			"app, other"),
		"tenants/acme/environments/staging.yaml": environmentFile("staging", "eu", "tier: dev",
			"app"),
		"tenants/acme/deployments/checkout.yaml": deploymentFile("checkout", "acme/checkout",
			"environments: [prod, staging]", ""),
		"tenants/acme/deployments/cart.yaml": deploymentFile("cart", "acme/cart",
			"environmentSelector: {matchLabels: {tier: prod}}", ""),
		"tenants/acme/credentials/checkout.yaml": credentialFile("checkout", "acme/checkout"),
	}
}

func actions(p *Plan) string {
	var lines []string
	for _, c := range p.Rows {
		lines = append(lines, fmt.Sprintf("%s %s %s", c.Action, c.Row.Key.Kind, c.Subject))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func wantActions(t testing.TB, p *Plan, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := actions(p); got != strings.Join(want, "\n") {
		t.Errorf("rows:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	for _, problem := range p.Problems {
		t.Log(problem)
	}
}

func unmarshal(t testing.TB, body []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatal(err)
	}
}
