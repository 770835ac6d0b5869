package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"
)

func TestMergeTakesFilesAsAWhole(t *testing.T) {
	o := newOrigin(t)
	for _, name := range []string{"ours", "theirs", "both", "alike", "gone-here", "gone-there",
		"gone", "changed-gone", "gone-changed"} {
		o.write("tenants/acme/deployments/"+name+".yaml", "0")
	}
	o.write("README.md", "0")
	base := o.commit("base")
	at := func(values map[string]string) map[string]string {
		out := map[string]string{}
		for name, text := range values {
			out["tenants/acme/deployments/"+name+".yaml"] = text
		}
		return out
	}
	theirs := at(map[string]string{"theirs": "1", "both": "1", "alike": "2", "gone-there": "",
		"gone": "", "changed-gone": "", "gone-changed": "1", "new": "1", "new-both": "1",
		"new-alike": "2"})
	theirs["README.md"] = "1"
	pull := o.propose(7, base, theirs)
	for path, text := range at(map[string]string{"ours": "2", "both": "2", "alike": "2",
		"gone-here": "", "gone": "", "changed-gone": "2", "gone-changed": "", "new-both": "2",
		"new-alike": "2"}) {
		if text == "" {
			o.git("rm", "-q", path)
		} else {
			o.write(path, text)
		}
	}
	o.write("README.md", "2")
	head := o.commit("ours")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	out := merge(t, m, head, pull)
	want := `tenants/acme/deployments/gone-there.yaml removed
tenants/acme/deployments/new.yaml = 1
tenants/acme/deployments/theirs.yaml = 1
tenants/acme/deployments/both.yaml conflicts
tenants/acme/deployments/changed-gone.yaml conflicts
tenants/acme/deployments/gone-changed.yaml conflicts
tenants/acme/deployments/new-both.yaml conflicts`
	if d := cmp.Diff(want, summary(t, m, out)); d != "" || out.Base != base {
		t.Errorf("base %s\n%s", out.Base, d)
	}
	for name, c := range map[string]struct {
		into, head Hash
	}{"into what it came from": {base, pull}, "of what is there already": {head, base},
		"of itself": {head, head}} {
		out := merge(t, m, c.into, c.head)
		diff, err := m.Diff(t.Context(), base, pull)
		if err != nil {
			t.Fatal(err)
		}
		if c.head != pull {
			diff = nil
		}
		if d := cmp.Diff(diff, out.Changes); d != "" || len(out.Conflicts) != 0 {
			t.Errorf("the merge %s: %s %v", name, d, out.Conflicts)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Merge(ctx, head, pull); !errors.Is(err, context.Canceled) {
		t.Errorf("it continues without a caller: %v", err)
	}
}

func TestAMergeOfUnrelatedHistoriesIsRefused(t *testing.T) {
	o := newOrigin(t)
	head := o.set("fleet/fleet.yaml", "1")
	o.git("checkout", "-q", "--orphan", "other")
	o.write("fleet/fleet.yaml", "other")
	o.git("add", "-A")
	o.git("commit", "-q", "-m", "another root")
	o.git("push", "-q", "origin", "HEAD:refs/pull/7/head")
	pull := Hash(o.git("rev-parse", "HEAD"))
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	if _, err := m.Merge(t.Context(), head, pull); !errors.Is(err, ErrUnrelated) ||
		!strings.Contains(err.Error(), "no commit in common") {
		t.Error(err)
	}
	if _, err := m.MergeBases(t.Context(), head, Hash(strings.Repeat("1", 40))); !errors.Is(err,
		ErrNotFound) {
		t.Error(err)
	}
}

// TestMergeAgainstGit merges random histories of one-line files, which git too can only merge as a
// whole. Its rename detection is off.
func TestMergeAgainstGit(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o, r := newOrigin(t), rand.New(rand.NewPCG(seed, 3))
			edit := func() {
				for range 1 + r.IntN(4) {
					path := fmt.Sprintf("tenants/t%d/deployments/d%d.yaml", r.IntN(3), r.IntN(4))
					if r.IntN(4) == 0 {
						o.git("rm", "-q", "-f", "--ignore-unmatch", path)
					} else {
						o.write(path, fmt.Sprint(r.IntN(3)))
					}
				}
				o.git("add", "-A")
				o.clock++
				o.git("commit", "-q", "--allow-empty", "-m", "edit")
			}
			for range 5 {
				edit()
			}
			base := o.push()
			for range 1 + r.IntN(3) {
				edit()
			}
			head := o.push()
			o.git("checkout", "-q", "-b", "pull", string(base))
			for range 1 + r.IntN(3) {
				edit()
			}
			o.git("push", "-q", "-f", "origin", "HEAD:refs/pull/7/head")
			pull := Hash(o.git("rev-parse", "HEAD"))
			m := open(t, t.TempDir(), newGitServer(t, o).url())
			fetch(t, m)
			fetchPull(t, m, 7, pull)
			out := merge(t, m, head, pull)
			if want := Hash(o.git("merge-base", string(head), string(pull))); out.Base != want {
				t.Errorf("base %s, want %s", out.Base, want)
			}
			tree, conflicts := o.mergeTree(head, pull)
			if !slices.Equal(conflicts, out.Conflicts) {
				t.Errorf("conflicts: %v, want %v", out.Conflicts, conflicts)
			}
			var got, want []string
			for _, c := range out.Changes {
				got = append(got, c.Path+" "+string(c.New.Blob))
			}
			for line := range strings.Lines(o.git("diff-tree", "-r", "--no-renames",
				string(head)+"^{tree}", tree)) {
				f := strings.Fields(line) // :mode mode id id status path
				if slices.Contains(conflicts, f[5]) {
					continue // git writes conflict markers there
				}
				want = append(want, f[5]+" "+strings.TrimLeft(f[3], "0"))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// mergeTree returns the tree of git's merge, and the paths that git cannot merge.
func (o *origin) mergeTree(into, head Hash) (string, []string) {
	o.t.Helper()
	// It exits with 1 when there are conflicts.
	out := o.git("-c",
		"alias.mt=!git -c merge.renames=false merge-tree --write-tree --name-only --no-messages "+
			string(into)+" "+string(head)+" || true", "mt")
	lines := strings.Split(out, "\n")
	conflicts := slices.DeleteFunc(lines[1:], func(l string) bool { return l == "" })
	slices.Sort(conflicts)
	return lines[0], slices.Compact(conflicts)
}

// TestMergeIsDecidedPathByPath holds for any three trees, including all modes and names that are a
// file on one side and a directory on the other: the walks of the three determine the result of
// each path.
func TestMergeIsDecidedPathByPath(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 9))
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), s.url())
	p := new(fakePack)
	grow := forest(random, func(kind plumbing.ObjectType, data []byte) plumbing.Hash {
		_, id := p.object(kind, data)
		return id
	})
	commit := func(root plumbing.Hash, parent plumbing.Hash) plumbing.Hash {
		line := ""
		if !parent.IsZero() {
			line = "parent " + parent.String() + "\n"
		}
		_, id := p.object(plumbing.CommitObject,
			fmt.Appendf(nil, "tree %s\n%sauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\n%d\n",
				root, line, random.Uint64()))
		return id
	}
	var all [][3]plumbing.Hash
	for range 600 {
		base := grow(nil)
		from := commit(base.id, plumbing.ZeroHash)
		all = append(all, [3]plumbing.Hash{from, commit(grow(base).id, from),
			commit(grow(base).id, from)})
		s.tip = from
	}
	pack := packets(p.bytes())
	s.pack = func(w io.Writer) { w.Write(pack) }
	fetch(t, m)
	seen := map[string]int{}
	for _, sides := range all {
		from, into, head := sides[sideBase], sides[sideInto], sides[sideHead]
		out := merge(t, m, publicHash(into), publicHash(head))
		changes, conflicts := decided(walked(t, m, publicHash(from)),
			walked(t, m, publicHash(into)), walked(t, m, publicHash(head)))
		if !slices.Equal(conflicts, out.Conflicts) {
			t.Fatalf("conflicts: %v, want %v", out.Conflicts, conflicts)
		}
		got := map[string]Entry{}
		for _, c := range out.Changes {
			if _, twice := got[c.Path]; twice || c.Old == c.New {
				t.Fatalf("%+v", c)
			}
			got[c.Path] = c.New
		}
		if d := cmp.Diff(changes, got); d != "" {
			t.Fatalf("changes: %s\nconflicts %v", d, conflicts)
		}
		seen["changes"] += len(changes)
		seen["conflicts"] += len(conflicts)
	}
	if seen["changes"] < 2000 || seen["conflicts"] < 200 {
		t.Errorf("too little was tried: %v", seen)
	}
}

func walked(t *testing.T, m *Mirror, c Hash) map[string]Entry {
	t.Helper()
	entries := map[string]Entry{}
	if err := m.Walk(t.Context(), c, func(e Entry) error {
		entries[e.Path] = e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return entries
}

// decided is the rule: a path that is the same in head and base, or in head and into, stays as in
// into; a path that is the same in into and base becomes head's; any other is a conflict. No path
// is both a file and a directory: then the file's path is a conflict.
func decided(base, into, head map[string]Entry) (map[string]Entry, []string) {
	changes, conflicts, merged := map[string]Entry{}, map[string]bool{}, maps.Clone(into)
	paths := maps.Clone(into)
	maps.Copy(paths, base)
	maps.Copy(paths, head)
	for path := range paths {
		b, i, h := base[path], into[path], head[path]
		switch {
		case h == i, h == b:
		case i == b:
			changes[path] = h
			if merged[path] = h; h.Kind == "" {
				delete(merged, path)
			}
		default:
			conflicts[path] = true
			merged[path] = i // the path exists, with any content
		}
	}
	for path := range merged {
		file := strings.TrimSuffix(path, "/")
		for at := strings.IndexByte(file, '/'); at >= 0; {
			if _, ok := merged[file[:at]]; ok {
				conflicts[file[:at]] = true
			}
			next := strings.IndexByte(file[at+1:], '/')
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	var results []string
	for path := range conflicts {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(conflicts)), func(above string) bool {
			return above != path && strings.HasPrefix(path, above+"/")
		}) {
			results = append(results, path)
		}
	}
	slices.Sort(results)
	for path := range changes {
		if slices.ContainsFunc(results, func(c string) bool {
			return c == path || strings.HasPrefix(path, c+"/")
		}) {
			delete(changes, path)
		}
	}
	return changes, results
}

// plant is a generated tree and its content.
type plant struct {
	id       plumbing.Hash
	branches map[string]*plant // directories
	leaves   map[string]treeEntry
}

// forest derives trees from another: most of it stays unchanged.
func forest(random *rand.Rand, object func(plumbing.ObjectType,
	[]byte) plumbing.Hash) func(*plant) *plant {
	modes := []string{"100644", "100644", "100755", "120000", "160000"}
	leaf := func(name string) treeEntry {
		mode, _ := strconv.ParseUint(modes[random.IntN(len(modes))], 8, 32)
		return treeEntry{[]byte(name), uint32(mode),
			object(plumbing.BlobObject, []byte{byte(random.IntN(3))})}
	}
	var grow func(from *plant, depth int) *plant
	grow = func(from *plant, depth int) *plant {
		next := &plant{branches: map[string]*plant{}, leaves: map[string]treeEntry{}}
		if from != nil {
			maps.Copy(next.branches, from.branches)
			maps.Copy(next.leaves, from.leaves)
		}
		for _, name := range []string{"a", "a-b", "a.b", "b", "c"} {
			if from != nil && random.IntN(3) > 0 {
				continue
			}
			was := next.branches[name]
			delete(next.leaves, name)
			delete(next.branches, name)
			switch n := random.IntN(10); {
			case n < 3:
			case n < 6 && depth < 3:
				// git writes no empty tree
				if b := grow(was, depth+1); len(b.branches)+len(b.leaves) > 0 {
					next.branches[name] = b
				}
			default:
				next.leaves[name] = leaf(name)
			}
		}
		var entries []treeEntry
		for name, b := range next.branches {
			entries = append(entries, treeEntry{[]byte(name), modeDirectory, b.id})
		}
		entries = slices.AppendSeq(entries, maps.Values(next.leaves))
		slices.SortFunc(entries, func(a, b treeEntry) int { return compareEntries(&a, &b) })
		var tree []byte
		for _, e := range entries {
			tree = append(tree, treeOf(e.id, strconv.FormatUint(uint64(e.mode), 8)+" "+
				string(e.name))...)
		}
		next.id = object(plumbing.TreeObject, tree)
		return next
	}
	return func(from *plant) *plant {
		next := &plant{branches: map[string]*plant{}}
		var root []byte
		for _, folder := range []string{"fleet", "tenants"} {
			var was *plant
			if from != nil {
				was = from.branches[folder]
			}
			next.branches[folder] = grow(was, 0)
			root = append(root, treeOf(next.branches[folder].id, "40000 "+folder)...)
		}
		next.id = object(plumbing.TreeObject, root)
		return next
	}
}

// Merging a pull request that is behind the branch costs as much as the changes on both sides, and
// not as much as the repository's size.
func TestMergeReadsOnlyTheChanges(t *testing.T) {
	o := newOrigin(t)
	o.fill(5000, false) // 20 tenants
	base := Hash(o.in(o.dir, "rev-parse", "main"))
	o.git("fetch", "-q", "origin", "main")
	pull := o.propose(7, base, map[string]string{pathOf(1000, false): "changed"})
	var head Hash
	for i := range 20 {
		head = o.change(250*3+i, i+1, false)
	}
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	count := &countingObjects{objects: m.objects}
	m.objects = count
	if out := merge(t, m, head, pull); len(out.Changes) != 1 || len(out.Conflicts) != 0 {
		t.Fatalf("%+v", out)
	}
	// 22 commits; the roots of base and head, and their differing trees; the roots of all three,
	// and the trees from the root to the two directories that differ.
	if count.reads > 22+2+8+3+14 {
		t.Errorf("%d objects read", count.reads)
	}
}

// A common commit that is newer by its clock than its own descendant is no merge base.
func TestMergeBaseWhereAClockRanBackwards(t *testing.T) {
	o := newOrigin(t)
	tree := o.git("mktree")
	commit := func(clock int, parents ...string) string {
		o.clock = 1_700_000_000 + clock
		args := []string{"commit-tree", tree, "-m", fmt.Sprint(clock)}
		for _, p := range parents {
			args = append(args, "-p", p)
		}
		return o.git(args...)
	}
	old := commit(100_000)
	parted := commit(90_000, commit(1000, old))
	a, b := commit(200_000, old, parted), commit(200_001, parted, old)
	o.git("push", "-q", "origin", commit(300_000, a, b)+":refs/heads/main")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		got, err := m.MergeBases(t.Context(), Hash(pair[0]), Hash(pair[1]))
		if want := Hash(o.git("merge-base", "--all", a, b)); err != nil ||
			!slices.Equal(got, []Hash{want}) || want != Hash(parted) {
			t.Errorf("%s %v, want %s", got, err, want)
		}
	}
}

// Two pull requests with criss-crossed histories: the second one's tree equals that of its newest
// merge base, and its merge still restores what the first one had reverted, in another tenant's
// folder.
func TestMergeRefusesCrissCrossedHistories(t *testing.T) {
	o := newOrigin(t)
	commit := func(granted, own string, parents ...Hash) Hash {
		o.clock += 3600
		o.write("fleet/tenants/evil.yaml", granted)
		o.write("tenants/evil/x.yaml", own)
		o.git("add", "-A")
		args := []string{"commit-tree", o.git("write-tree"), "-m", "c"}
		for _, p := range parents {
			args = append(args, "-p", string(p))
		}
		return Hash(o.git(args...))
	}
	start := commit("little", "e0")
	grants := commit("EVERYTHING", "e0", start)
	withdrawn := commit("little", "e0", grants)
	newest := commit("EVERYTHING", "e1", grants)
	first := commit("little", "e1", withdrawn, newest)
	main := commit("little", "e1", start, first)
	second := commit("EVERYTHING", "e1", newest, withdrawn)
	o.git("push", "-q", "origin", string(main)+":refs/heads/main",
		string(second)+":refs/pull/8/head", string(first)+":refs/pull/7/head")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, first)
	fetchPull(t, m, 8, second)

	if tree, conflicts := o.mergeTree(main, second); len(conflicts) > 0 ||
		o.git("show", tree+":fleet/tenants/evil.yaml") != "EVERYTHING" {
		t.Fatalf("git merges it otherwise: %s %v", tree, conflicts)
	}
	bases, err := m.MergeBases(t.Context(), main, second)
	if want := o.bases(main, second); err != nil || len(want) != 2 || !slices.Equal(bases, want) {
		t.Errorf("%v %v, want %v", bases, err, want)
	}
	merged, err := m.Merge(t.Context(), main, second)
	if !errors.Is(err, ErrManyBases) || len(merged.Changes) > 0 {
		t.Fatalf("it is compared with one of several bases: %+v %v", merged, err)
	}
	for _, part := range []string{"2 merge bases", bases[0].Short(), bases[1].Short(),
		"rebase onto main"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
	if out := merge(t, m, start, first); len(out.Changes) != 1 ||
		out.Changes[0].Path != "tenants/evil/x.yaml" {
		t.Errorf("a head with one base is read as ever: %+v", out)
	}
}

// bases returns git's merge bases, sorted.
func (o *origin) bases(a, b Hash) (out []Hash) {
	o.t.Helper()
	for _, id := range strings.Fields(o.in(o.dir, "-c", "alias.mb=!git merge-base --all "+string(a)+
		" "+string(b)+" || true", "mb")) {
		out = append(out, Hash(id))
	}
	slices.Sort(out)
	return out
}

// A change that the branch meanwhile contains is still a change of the head: once the branch
// reverts it, a merge restores it.
func TestMergeShowsWhatTheHeadChangesAlsoWhereTheBranchHasItToo(t *testing.T) {
	o := newOrigin(t)
	o.write("tenants/evil/a.yaml", "0")
	o.write("tenants/victim/b.yaml", "0")
	o.write("tenants/victim/gone.yaml", "0")
	base := o.commit("base")
	pull := o.propose(7, base, map[string]string{"tenants/evil/a.yaml": "1",
		"tenants/victim/b.yaml": "1", "tenants/victim/gone.yaml": "", "README.md": "1"})
	o.git("rm", "-q", "tenants/victim/gone.yaml")
	head := o.set("tenants/victim/b.yaml", "1")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	out := merge(t, m, head, pull)
	if len(out.Changes) != 1 || out.Changes[0].Path != "tenants/evil/a.yaml" {
		t.Errorf("changes: %+v", out.Changes)
	}
	want, err := m.Diff(t.Context(), base, pull)
	if d := cmp.Diff(want, out.Shown); err != nil || d != "" || len(want) != 3 {
		t.Errorf("%v %s", err, d)
	}
}

// A pull request with too many files is rejected with their count before any of them is read.
func TestMergeRefusesMoreFilesThanOnePullRequestMayChange(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "0")
	for i := range 31 {
		o.write(fmt.Sprintf("tenants/evil/deployments/d%d.yaml", i), "x")
	}
	o.clock++
	o.git("add", "-A")
	o.git("commit", "-q", "-m", "many")
	pull := Hash(o.git("rev-parse", "HEAD"))
	o.git("push", "-q", "origin", string(pull)+":refs/pull/7/head")
	url := newGitServer(t, o).url()
	for budget, part := range map[Budget]string{
		{
			PullFiles: 30}: "it changes 31 files below fleet/ and tenants/, and one pull " +
			"request may change 30; split it",
		{PullFiles: 10, Files: 20}: "unreadable", // the folder is one change
		{PullFiles: 31}:            "",
	} {
		m, err := Open(t.Context(), t.TempDir(), Source{URL: url}, AllowPlainHTTP(),
			WithBudget(budget))
		if err != nil {
			t.Fatal(err)
		}
		fetch(t, m)
		fetchPull(t, m, 7, pull)
		out, err := m.Merge(t.Context(), base, pull)
		switch {
		case part == "" && (err != nil || len(out.Shown) != 31):
			t.Errorf("%+v: %v", budget, err)
		case part == "unreadable":
			if err != nil || len(out.Shown) != 1 || len(out.Changes) != 1 ||
				out.Changes[0].New.Kind != Unreadable {
				t.Errorf("%+v: %v %v", budget, out, err)
			}
		case part != "" && (!errors.Is(err, ErrOverBudget) || !strings.Contains(err.Error(), part)):
			t.Errorf("%+v: %v", budget, err)
		}
		m.Close()
	}
}

// Random histories with merges of up to three parents and arbitrary commit dates.
func TestMergeBasesAgainstGit(t *testing.T) {
	const histories, commits = 12, 16
	o, random := newOrigin(t), rand.New(rand.NewPCG(5, 7))
	var stream strings.Builder
	parents := map[int][]int{} // by fast-import mark
	for h := range histories {
		for i := range commits {
			mark := h*commits + i + 1
			fmt.Fprintf(&stream,
				"commit refs/heads/h%d\nmark :%d\ncommitter A <a@x> %d +0000\ndata 4\n%04d\n", mark,
				mark,
				1_700_000_000+random.IntN(40), mark)
			for range 1 + random.IntN(3) {
				at := mark - 1 - random.IntN(min(i, 5)+1)
				if i == 0 || at < h*commits+1 || slices.Contains(parents[mark], at) {
					continue
				}
				fmt.Fprintf(&stream, "%s :%d\n", map[bool]string{
					true: "from", false: "merge"}[len(parents[mark]) == 0], at)
				parents[mark] = append(parents[mark], at)
			}
		}
	}
	fmt.Fprintf(&stream,
		"commit refs/heads/main\nmark :%d\ncommitter A <a@x> 1800000000 +0000\ndata 0\n",
		histories*commits+1)
	for mark := range histories * commits {
		fmt.Fprintf(&stream, "%s :%d\n", map[bool]string{true: "from", false: "merge"}[mark == 0],
			mark+1)
	}
	marks := filepath.Join(t.TempDir(), "marks")
	o.feed(o.dir, stream.String(), "fast-import", "--quiet", "--export-marks="+marks)
	ids := map[int]Hash{}
	written, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(written)) {
		mark, id, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, ":")), " ")
		n, err := strconv.Atoi(mark)
		if err != nil {
			t.Fatal(err)
		}
		ids[n] = Hash(id)
	}
	ancestors := map[int]map[int]bool{} // of each commit, itself included
	for mark := 1; mark <= histories*commits; mark++ {
		ancestors[mark] = map[int]bool{mark: true}
		for _, p := range parents[mark] {
			maps.Copy(ancestors[mark], ancestors[p])
		}
	}
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	sizes := map[int]int{}
	for h := range histories {
		for range commits * commits {
			a, b := h*commits+1+random.IntN(commits), h*commits+1+random.IntN(commits)
			var want []Hash
			for c := range ancestors[a] {
				best := ancestors[b][c]
				for other := range ancestors[a] {
					best = best && !(other != c && ancestors[b][other] && ancestors[other][c])
				}
				if best {
					want = append(want, ids[c])
				}
			}
			slices.Sort(want)
			got, err := m.MergeBases(t.Context(), ids[a], ids[b])
			if len(want) == 0 != errors.Is(err, ErrUnrelated) || len(want) > 0 && err != nil ||
				!slices.Equal(got, want) {
				t.Fatalf("%s and %s: %v %v, want %v", ids[a], ids[b], got, err, want)
			}
			if sizes[len(want)]++; sizes[len(want)] <= 25 && !slices.Equal(o.bases(ids[a], ids[b]),
				want) {
				t.Fatalf("%s and %s: git has %v, not %v", ids[a], ids[b], o.bases(ids[a], ids[b]),
					want)
			}
		}
	}
	if sizes[2] < 100 || sizes[3] == 0 {
		t.Errorf("too few pairs have several bases: %v", sizes)
	}
}

// A head with too many criss-cross merges is rejected before all candidates are compared.
func TestMergeBasesAreBounded(t *testing.T) {
	o := newOrigin(t)
	tree := o.git("mktree")
	commit := func(parents ...string) string {
		o.clock++
		args := []string{"commit-tree", tree, "-m", fmt.Sprint(o.clock)}
		for _, p := range parents {
			args = append(args, "-p", p)
		}
		return o.git(args...)
	}
	var many []string
	for range maxCandidates + 1 {
		many = append(many, commit())
	}
	a, b := commit(many...), commit(many...)
	o.git("push", "-q", "origin", commit(a, b)+":refs/heads/main")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	var over *Error
	if _, err := m.MergeBases(t.Context(), Hash(a), Hash(b)); !errors.As(err, &over) ||
		!errors.Is(err, ErrOverBudget) || over.Budget != "common ancestors" {
		t.Error(err)
	}
}
