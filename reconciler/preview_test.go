package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/test/stack"
)

// Merge is reconciler.Pulls, as cmd/argosy/server has it.
func (m *gitSource) Merge(ctx context.Context, ref string, base, head fleet.Revision,
	visit func(reconciler.File) error) (reconciler.Merged, error) {
	_, err := m.FetchRef(ctx, ref, gitrepo.Hash(head))
	if err != nil {
		return reconciler.Merged{}, err
	}
	merged, err := m.Mirror.Merge(ctx, gitrepo.Hash(base), gitrepo.Hash(head))
	if errors.Is(err, gitrepo.ErrUnrelated) {
		return reconciler.Merged{}, fmt.Errorf("%w: %w", mirror.ErrUnmergeable, err)
	}
	if err != nil {
		return reconciler.Merged{}, err
	}
	out := reconciler.Merged{Base: fleet.Revision(merged.Base), Shown: map[string]string{},
		Conflicts: merged.Conflicts}
	for _, c := range merged.Shown {
		out.Shown[c.Path] = string(c.New.Blob)
	}
	return out, m.visit(ctx, merged.Changes, visit)
}

func (h *house) git(args ...string) string {
	h.t.Helper()
	out, err := h.repo.Git(context.Background(), args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// propose makes a pull request from a commit: files with an empty text are removed.
func (h *house) propose(number int, from fleet.Revision,
	files map[string]string) reconciler.PreviewRequest {
	h.t.Helper()
	branch := fmt.Sprintf("proposal-%d", number)
	h.git("update-ref", "refs/heads/"+branch, string(from))
	c := stack.Change{Message: branch, Branch: branch, Write: map[string]string{}}
	for path, text := range files {
		if text == "" {
			c.Remove = append(c.Remove, path)
		} else {
			c.Write[path] = text
		}
	}
	head, err := h.repo.Apply(context.Background(), c)
	if err != nil {
		h.t.Fatal(err)
	}
	ref := fmt.Sprintf("refs/pull/%d/head", number)
	h.git("update-ref", ref, head)
	return reconciler.PreviewRequest{Ref: ref, Head: fleet.Revision(head)}
}

// merge merges a pull request into the branch, as a forge does.
func (h *house) merge(r reconciler.PreviewRequest) fleet.Revision {
	h.t.Helper()
	main := h.git("rev-parse", "refs/heads/main")
	tree := h.git("-c", "merge.renames=false", "merge-tree", "--write-tree", main, string(r.Head))
	head := h.git("-c", "user.name=Forge", "-c", "user.email=forge@example.com", "commit-tree",
		tree, "-p", main, "-p", string(r.Head), "-m", "merge "+r.Ref)
	h.git("update-ref", "refs/heads/main", head, main)
	return fleet.Revision(head)
}

// preview asks until the branch is settled.
func (h *house) preview(r *replica, request reconciler.PreviewRequest) reconciler.Preview {
	h.t.Helper()
	var out reconciler.Preview
	h.eventually("a preview is made", func() (err error) {
		if out, err = r.Preview(context.Background(), request); err != nil &&
			!errors.Is(err, mirror.ErrNotReady) && !errors.Is(err, mirror.ErrNotLeader) {
			h.t.Fatal(err)
		}
		return err
	})
	return out
}

// atRest waits until the engines hold what the head asks for and three reconciles in a row have
// recorded nothing, so that every deletion is proven and planned.
func (h *house) atRest(r *replica) {
	h.t.Helper()
	h.eventually("the fleet is at rest", func() error {
		h.eventually("it converges", h.converged)
		recorded := r.store.asked("record")
		h.passes(r, 3)
		if n := r.store.asked("record"); n != recorded {
			return fmt.Errorf("recorded %d more revisions", n-recorded)
		}
		return h.converged()
	})
}

// effects are those of a record.
func effects(r mirror.Record) map[fleet.ObjectKey]string {
	out := map[fleet.ObjectKey]string{}
	for _, row := range r.Rows {
		if out[row.Key] = row.Manifest.Hash; row.Unwanted {
			out[row.Key] = "goes"
		}
	}
	for _, k := range r.Held {
		out[k] = "goes"
	}
	return out
}

func planned(p reconciler.Preview) map[fleet.ObjectKey]string {
	out := map[fleet.ObjectKey]string{}
	for _, e := range p.Plan.Effects() {
		if out[e.Key] = e.Hash; e.Deletes {
			out[e.Key] = "goes"
		}
	}
	return out
}

func TestAPreviewIsWhatIsRecordedAfterTheMerge(t *testing.T) {
	for _, seed := range []uint64{1, 2, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			m := &author{random: rand.New(rand.NewPCG(seed, 5)), tree: small()}
			m.house = newHouse(t, m.tree)
			m.replica = m.start("a", options{poll: 30 * time.Millisecond})
			m.atRest(m.replica)
			conflicts := 0
			for n := range 10 {
				conflicts += m.reviewOne(n)
			}
			if conflicts == 10 {
				t.Error("nothing was ever merged")
			}
		})
	}
}

// author commits and proposes what people do, at random.
type author struct {
	*house
	random  *rand.Rand
	tree    map[string]string // at the head
	replica *replica
}

// change commits files and keeps the tree.
func (m *author) change(what string, files map[string]string) {
	for path, text := range files {
		if text == "" {
			delete(m.tree, path)
		} else {
			m.tree[path] = text
		}
	}
	m.commit(what, files)
	m.replica.Wake()
}

func (m *author) deployments() []string {
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(m.tree)) {
		if tenantOf, name := split(path); tenantOf != "" && name != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// split is the tenant and name of a deployment's path.
func split(path string) (tenant, name string) {
	for _, t := range []string{"acme", "globex"} {
		prefix := "tenants/" + t + "/deployments/"
		if len(path) > len(prefix) && path[:len(prefix)] == prefix {
			return t, path[len(prefix) : len(path)-len(".yaml")]
		}
	}
	return "", ""
}

func (m *author) somewhere(tenant string) []string {
	if tenant == "globex" {
		return []string{"prod"}
	}
	return [][]string{{"prod"}, {"staging"}, {"prod", "staging"}}[m.random.IntN(3)]
}

func (m *author) some(tenant, name string) map[string]string {
	policy := []string{"Delete", "Orphan"}[m.random.IntN(2)]
	return deployment(tenant, name, fmt.Sprintf("v%d", m.random.IntN(1000)), policy,
		m.somewhere(tenant)...)
}

func (m *author) any() (path, tenant, name string, ok bool) {
	all := m.deployments()
	if len(all) == 0 {
		return "", "", "", false
	}
	path = all[m.random.IntN(len(all))]
	tenant, name = split(path)
	return path, tenant, name, true
}

func (m *author) approveAll() {
	holds, _, err := m.store.Views.Holds(context.Background(), view.Scope{}, view.Filter{},
		view.Page{
			Limit: 100})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, hold := range holds {
		if _, err := m.store.Decisions.Approve(context.Background(), mirror.Approval{
			Revision: hold.Revision,
			By:       "token:test"}); err != nil {
			m.t.Fatal(err)
		}
	}
	if len(holds) > 0 {
		m.replica.Wake()
	}
}

// fix replaces undecodable files.
func (m *author) fix() {
	files := map[string]string{}
	for _, path := range m.deployments() {
		if tenant, name := split(path); m.tree[path][:5] == "kind:" {
			maps.Copy(files, m.some(tenant, name))
		}
	}
	maps.Copy(files, m.some("acme", "last"))
	m.change("fix", files)
}

// reviewOne proposes, lets the branch move on now and then, previews, merges and compares.
func (m *author) reviewOne(n int) (conflicts int) {
	m.t.Helper()
	from := m.head()
	files := m.edits()
	if m.random.IntN(2) == 0 {
		m.change("meanwhile", m.edits())
		m.atRest(m.replica)
	}
	request := m.propose(n, from, files)
	preview := m.preview(m.replica, request)
	if preview.Base != m.head() || preview.Behind {
		m.t.Fatalf("previewed on %s, behind %v; the head is %s", preview.Base, preview.Behind,
			m.head())
	}
	if len(preview.Conflicts) > 0 {
		return 1
	}
	merged := m.merge(request)
	for path, text := range files {
		if m.tree[path] = text; text == "" {
			delete(m.tree, path)
		}
	}
	var got mirror.Record
	m.eventually("the merge is recorded", func() error {
		m.replica.Wake()
		m.replica.store.mu.Lock()
		defer m.replica.store.mu.Unlock()
		if got = m.replica.store.last; got.Revision != merged || got.Base != preview.Base {
			return fmt.Errorf("recorded: %s from %s", got.Revision.Short(), got.Base.Short())
		}
		return nil
	})
	if d := cmp.Diff(planned(preview), effects(got)); d != "" {
		m.t.Fatalf("pull request %d: the reviewed effects are not those that were recorded:\n%s", n,
			d)
	}
	if len(got.Held) == 0 && got.PlanHash != preview.Plan.Record().PlanHash {
		m.t.Fatalf("pull request %d: another hash", n)
	}
	m.approveAll()
	m.fixQuietly()
	m.atRest(m.replica)
	return 0
}

// edits are a few changes that people make, a mistake now and then.
func (m *author) edits() map[string]string {
	files := map[string]string{}
	for range 1 + m.random.IntN(3) {
		tenant := []string{"acme", "globex"}[m.random.IntN(2)]
		switch m.random.IntN(6) {
		case 0, 1:
			maps.Copy(files, m.some(tenant, fmt.Sprintf("app-%d", m.random.IntN(8))))
		case 2:
			if _, tenant, name, ok := m.any(); ok {
				maps.Copy(files, m.some(tenant, name))
			}
		case 3:
			if path, _, _, ok := m.any(); ok && len(m.tree) > 12 {
				files[path] = ""
			}
		case 4:
			if path, _, _, ok := m.any(); ok {
				files[path] = fmt.Sprintf("kind: [%d", m.random.IntN(1000))
			}
		case 5:
			files["fleet/tenants/"+tenant+".yaml"] = strings.Replace(
				small()["fleet/tenants/"+tenant+".yaml"], "deployments: 300",
				fmt.Sprintf("deployments: %d", 300+m.random.IntN(9)), 1)
		}
	}
	maps.DeleteFunc(files, func(path, text string) bool { return m.tree[path] == text })
	if len(files) == 0 {
		maps.Copy(files, m.some("acme", "always"))
	}
	return files
}

// fixQuietly makes the branch good again if it is not.
func (m *author) fixQuietly() {
	for _, path := range m.deployments() {
		if m.tree[path][:5] == "kind:" {
			m.fix()
			return
		}
	}
}

func TestAPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.atRest(r)
	before, at := h.rows(), h.head()
	records := r.store.asked("record")
	request := h.propose(7, at, together(deployment("acme", "new", "v1", "Delete", "prod"),
		deployment("acme", "web", "v2", "Delete", "prod"),
		gone(deployment("globex", "shop", "v1", "Orphan", "prod"))))
	p := h.preview(r, request)
	if c := p.Plan.Counts; c.Created != 1 || c.Changed != 1 || c.Deleted+c.Held != 2 ||
		p.Base != at || p.Head != request.Head || p.Behind || len(p.Conflicts) != 0 ||
		len(p.Files) != 3 {
		t.Errorf("%+v", p)
	}
	report, err := p.Plan.Report()
	if err != nil || len(report.Tenants) != 2 || len(report.Tenants[0].Engines[0].Changes) == 0 {
		t.Errorf("%+v %v", report, err)
	}
	if p.Catalog.Tenant("acme") == nil {
		t.Error("the catalog of the base knows no tenant")
	}
	h.passes(r, 3)
	if d := cmp.Diff(before, h.rows()); d != "" || r.store.asked("record") != records {
		t.Errorf("something was recorded: %s", d)
	}
	if s, _ := h.store.Views.Source(t.Context()); s.Applied != at || s.Head != at {
		t.Errorf("%+v", s)
	}
}

func TestAFileThatBothSidesChangedIsAConflict(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.atRest(r)
	request := h.propose(7, h.head(), together(deployment("acme", "web", "v2", "Delete", "prod"),
		deployment("acme", "new", "v1", "Delete", "prod")))
	h.commit("meanwhile", deployment("acme", "web", "v3", "Delete", "prod", "staging"))
	h.atRest(r)
	p := h.preview(r, request)
	if fmt.Sprint(p.Conflicts) != "[tenants/acme/deployments/web.yaml]" || len(p.Files) != 2 ||
		p.Plan.Counts.Created != 1 || p.Plan.Counts.Changed != 0 {
		t.Errorf("%v of %v, %+v", p.Conflicts, p.Files, p.Plan.Counts)
	}
}

func TestAPreviewIsHeldAgainstTheGuardsOfWhatIsApplied(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), deployment("acme", "a", "v1", "Delete", "prod"),
		deployment("acme", "b", "v1", "Delete", "prod"), deployment("acme", "c", "v1", "Delete",
			"prod"), deployment("acme", "d", "v1", "Delete", "prod"),
		deployment("acme", "e", "v1", "Delete", "prod")))
	r := h.start("a", options{})
	h.atRest(r)
	loose := map[string]string{"fleet/fleet.yaml": strings.Replace(small()["fleet/fleet.yaml"],
		guards, "{maxDeletes: 1000, maxDeletePercent: 100, alwaysAllowed: 1000, window: 1h}", 1)}
	four := gone(together(deployment("acme", "a", "v1", "Delete", "prod"),
		deployment("acme", "b", "v1", "Delete", "prod"), deployment("acme", "c", "v1", "Delete",
			"prod"), deployment("acme", "d", "v1", "Delete", "prod")))
	if p := h.preview(r, h.propose(7, h.head(), together(loose, four))); p.Plan.Counts.Held != 4 {
		t.Errorf("%+v", p.Plan.Counts)
	}
	one := func(name string) map[string]string {
		return gone(deployment("acme", name, "v1", "Delete", "prod"))
	}
	if p := h.preview(r, h.propose(8, h.head(), one("c"))); p.Plan.Counts.Deleted != 1 {
		t.Errorf("one is always allowed: %+v %v", p.Plan.Counts, p.Plan.Holds)
	}
	h.commit("one goes", one("a"))
	h.atRest(r)
	p := h.preview(r, h.propose(9, h.head(), one("c")))
	if p.Plan.Counts.Held != 1 || !strings.Contains(p.Plan.Holds[0].Message, "1 of them earlier") {
		t.Errorf("recent deletions do not count: %+v %v", p.Plan.Counts, p.Plan.Holds)
	}
}

func TestAPreviewHasTheLinesOfProblems(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.atRest(r)
	path := "tenants/acme/deployments/web.yaml"
	p := h.preview(r, h.propose(7, h.head(), deployment("acme", "web", "v2", "Delete", "prod",
		"nowhere")))
	if len(p.Problems) != 1 || p.Problems[0].Path != path || p.Problems[0].Line == 0 ||
		p.Problems[0].Severity != fleet.SeverityError {
		t.Errorf("%+v", p.Problems)
	}
	t.Run("parsed alone, a file shows only its own problems", func(t *testing.T) {
		out, err := r.Parse(t.Context(),
			h.propose(8, h.head(), together(deployment("acme", "web", "v2", "Delete", "nowhere"),
				map[string]string{"tenants/acme/deployments/bad.yaml": "kind: [",
					"tenants/acme/notes.txt": "x"})))
		if err != nil || out.Plan != nil || len(out.Files) != 3 {
			t.Fatalf("%+v %v", out, err)
		}
		var paths []string
		for _, problem := range out.Problems {
			paths = append(paths, problem.Path)
		}
		slices.Sort(paths)
		if got := strings.Join(slices.Compact(paths),
			" "); got != "tenants/acme/deployments/bad.yaml tenants/acme/notes.txt" {
			t.Errorf("%s", got)
		}
	})
}

func TestAPreviewIsRefusedWhileItWouldBeWrong(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	h := newHouse(t, small())
	r := h.start("a", options{fail: failFor(&failing, "record")})
	h.atRest(r)
	first := h.head()
	request := h.propose(7, first, deployment("acme", "new", "v1", "Delete", "prod"))
	h.preview(r, request)
	is := func(r *replica, request reconciler.PreviewRequest, want error) {
		t.Helper()
		h.eventually("it is refused", func() error {
			if _, err := r.Preview(t.Context(), request); !errors.Is(err, want) {
				return fmt.Errorf("%w", err)
			}
			return nil
		})
	}
	t.Run("by a replica that does not lead", func(t *testing.T) {
		b := h.start("b", options{})
		is(b, request, mirror.ErrNotLeader)
		if _, err := b.Parse(t.Context(), request); !errors.Is(err, mirror.ErrNotLeader) {
			t.Error(err)
		}
		if _, _, err := b.Base(); !errors.Is(err, mirror.ErrNotLeader) {
			t.Error(err)
		}
		b.stop()
	})
	t.Run("when its ref has moved on", func(t *testing.T) {
		is(r, reconciler.PreviewRequest{Ref: request.Ref, Head: first}, mirror.ErrMoved)
	})
	t.Run("when it has nothing in common with the branch", func(t *testing.T) {
		orphan := h.git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree",
			string(first)+"^{tree}", "-m", "another root")
		h.git("update-ref", "refs/pull/9/head", orphan)
		_, err := r.Preview(t.Context(), reconciler.PreviewRequest{Ref: "refs/pull/9/head",
			Head: fleet.Revision(orphan)})
		if !errors.Is(err, mirror.ErrUnmergeable) || !strings.Contains(err.Error(),
			"no commit in common") {
			t.Error(err)
		}
	})
	t.Run("when it has more problems than anybody reads", func(t *testing.T) {
		files := map[string]string{}
		for i := range 60 {
			text :=
				"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: " +
					"x}\nspec:\n"
			for f := range 51 {
				text += fmt.Sprintf("  unknown%d: 1\n", f)
			}
			files[fmt.Sprintf("tenants/acme/deployments/x%d.yaml", i)] = text
		}
		for name, read := range map[string]func(context.Context, reconciler.PreviewRequest) (
			reconciler.Preview, error){"planned": r.Preview, "parsed": r.Parse} {
			_, err := read(t.Context(), h.propose(10, first, files))
			if !errors.Is(err, mirror.ErrUnmergeable) || !strings.Contains(err.Error(),
				"one pull request may have 1000; fix them with argosy validate") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("while the branch's head is not recorded", func(t *testing.T) {
		failing.Store(true)
		second := h.commit("not recorded", deployment("acme", "web", "v2", "Delete", "prod",
			"staging"))
		is(r, request, mirror.ErrNotReady)
		failing.Store(false)
		if p := h.preview(r, request); p.Base != second {
			t.Errorf("previewed on %s", p.Base)
		}
		if applied, includes, err := r.Includes(t.Context(), first); err != nil || !includes ||
			applied != second {
			t.Errorf("%s %v %v", applied, includes, err)
		}
		if _, includes, err := r.Includes(t.Context(), request.Head); err != nil || includes {
			t.Errorf("the pull request is merged: %v %v", includes, err)
		}
	})
	t.Run("but not while the branch's head waits for an approval", func(t *testing.T) {
		applied := h.head()
		h.git("update-ref", "refs/heads/main", string(first))
		h.eventually("it waits", func() error { return h.held(first, mirror.HoldOlder) })
		var p reconciler.Preview
		h.eventually("it is behind", func() (err error) {
			if p, err = r.Preview(t.Context(), request); err == nil && !p.Behind {
				err = errors.New("not behind")
			}
			return err
		})
		if p.Base != applied || p.Plan.Counts.Created != 1 {
			t.Errorf("%s %+v", p.Base, p.Plan.Counts)
		}
	})
}

// Previews are made by many at once while the branch moves; each is of one revision that was
// applied, and neither waits for the other for good.
func TestPreviewsDuringABusyLoop(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: 10 * time.Millisecond})
	h.atRest(r)
	request := h.propose(7, h.head(), together(deployment("acme", "new", "v1", "Delete", "prod"),
		gone(deployment("globex", "shop", "v1", "Orphan", "prod"))))
	applied := sync.Map{}
	applied.Store(h.head(), true)
	ctx, cancel := context.WithCancel(t.Context())
	var made atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				p, err := r.Preview(ctx, request)
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, mirror.ErrNotReady) {
						t.Error(err)
						return
					}
					continue
				}
				report, err := p.Plan.Report()
				if _, ok := applied.Load(p.Base); err != nil || !ok || report.Base != p.Base ||
					p.Plan.Counts.Created != 1 || len(p.Plan.Effects()) < 2 {
					t.Errorf("%s of %s: %+v %v", p.Head, p.Base, p.Plan.Counts, err)
				}
				made.Add(1)
			}
		})
	}
	for n := range 15 {
		from := made.Load()
		head := h.commit("busy", deployment("acme", "web", fmt.Sprintf("v%d", n), "Delete", "prod",
			"staging"))
		applied.Store(head, true)
		h.eventually("it is applied, and previews go on", func() error {
			if s, err := h.store.Views.Source(ctx); err != nil || s.Applied != head ||
				made.Load() == from {
				return fmt.Errorf("%+v %w", s, err)
			}
			return nil
		})
	}
	cancel()
	wg.Wait()
}

func TestAPreviewIsMadeFromTheFirstRevisionOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	loop := h.alone()
	request := h.propose(7, h.head(), deployment("acme", "new", "v1", "Delete", "prod"))
	h.eventually("it is made", func() error {
		_, err := loop.Preview(t.Context(), request)
		return err
	})
}

func TestAPreviewWaitsForEnginesThatWereNotReadYet(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.engines["eu-2"].hidden.Store(true)
	r := h.start("a", options{})
	h.eventually("the first revision is recorded", func() error {
		if s, err := h.store.Views.Source(t.Context()); err != nil || s.Applied != h.head() {
			return fmt.Errorf("%+v %w", s, err)
		}
		return nil
	})
	h.passes(r, 3)
	request := h.propose(7, h.head(), deployment("acme", "new", "v1", "Delete", "prod"))
	if _, err := r.Preview(t.Context(), request); !errors.Is(err, mirror.ErrNotReady) {
		t.Errorf("environments would be placed where they may not be: %v", err)
	}
	h.engines["eu-2"].hidden.Store(false)
	if p := h.preview(r, request); p.Plan.Counts.Created != 1 {
		t.Errorf("%+v", p.Plan.Counts)
	}
}

// After a rebuild one engine takes long to read. The environments of the other engines are found
// there, their commits are applied and their pull requests are planned. The slow engine is read
// once, to its end.
func TestASlowEngineDelaysNoOtherEnvironmentAfterARebuild(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	r.stop()
	placed := h.placements()
	slow := h.engines["eu-1"]
	if h.engineOf("acme", "prod") == slow {
		slow = h.engines["eu-2"]
	}
	h.newDatabase()
	read := make(chan struct{})
	slow.slow.Store(&read)
	b := h.start("b", options{})
	h.eventually("what is found is where it was", func() error {
		if got := h.placements()["acme/prod"]; got != placed["acme/prod"] {
			return fmt.Errorf("acme/prod is on %q, want %s", got, placed["acme/prod"])
		}
		return nil
	})
	web := fleet.ObjectKey{Engine: placed["acme/prod"], Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme", Deployment: "web",
			Environment: "prod"})}
	for n := 2; n < 6; n++ {
		version := fmt.Sprintf("v%d", n)
		head := h.commit("change", deployment("acme", "web", version, "Delete", "prod", "staging"))
		began := time.Now()
		h.eventually("a commit is applied meanwhile", func() error {
			row, _, err := h.store.Work.Row(ctx, web)
			if err != nil || row.Revision != head || row.Apply != mirror.ApplyApplied {
				return fmt.Errorf("at %s: %s, %w", row.Revision.Short(), row.Apply, err)
			}
			return nil
		})
		if took := time.Since(began); n > 2 && took > time.Minute {
			t.Errorf("a commit waits %s for the slow engine", took)
		}
	}
	known := h.propose(7, h.head(), deployment("acme", "api", "v1", "Delete", "prod"))
	if p := h.preview(b, known); p.Plan.Counts.Created != 1 {
		t.Errorf("a pull request about what is found: %+v", p.Plan.Counts)
	}
	unknown := h.propose(8, h.head(), tenant("initech", "prod"))
	if _, err := b.Preview(ctx, unknown); !errors.Is(err, mirror.ErrNotReady) {
		t.Errorf("a pull request whose placement is not known yet: %v", err)
	}
	close(read)
	h.eventually("everything is where it was", func() error {
		if got := h.placements(); !maps.Equal(got, placed) {
			return fmt.Errorf("%v, want %v", got, placed)
		}
		return h.converged()
	})
	if p := h.preview(b, unknown); len(p.Plan.Placements) != 1 {
		t.Errorf("%+v", p.Plan.Placements)
	}
}
