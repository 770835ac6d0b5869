package gitrepo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

func relation(t *testing.T, m *Mirror, applied, head Hash, want mirror.Relation) {
	t.Helper()
	if got, err := m.Relation(t.Context(), applied, head); got != want || err != nil {
		t.Errorf("%s to %s: %q %v, want %q", applied.Short(), head.Short(), got, err, want)
	}
}

func TestForcePushToAnOlderCommit(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	o.set("fleet/fleet.yaml", "2")
	third := o.set("fleet/fleet.yaml", "3")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url())
	fetch(t, m)
	o.git("reset", "-q", "--hard", string(first))
	o.push()
	for range 3 { // no loop of "object not found": each fetch succeeds
		if h := fetch(t, m); h.Commit != first {
			t.Fatal(h)
		}
		relation(t, m, third, first, mirror.RelationOlder)
	}
	t.Run("after the mirror was lost the applied commit is unknown", func(t *testing.T) {
		o.in(o.dir, "reflog", "expire", "--expire=now", "--all")
		o.in(o.dir, "gc", "-q", "--prune=now")
		fresh := open(t, t.TempDir(), s.url())
		relation(t, fresh, third, fetch(t, fresh).Commit, mirror.RelationUnknown)
	})
	t.Run("after a restart it is still known", func(t *testing.T) {
		m.Close()
		again := open(t, dir, s.url())
		relation(t, again, third, fetch(t, again).Commit, mirror.RelationOlder)
	})
}

func TestRewrittenHistory(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "1")
	old := o.set("fleet/fleet.yaml", "2")
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	fetch(t, m)
	o.git("reset", "-q", "--hard", string(base))
	rewritten := o.set("fleet/fleet.yaml", "two")
	if h := fetch(t, m); h.Commit != rewritten {
		t.Fatal(h)
	}
	relation(t, m, old, rewritten, mirror.RelationRewritten)
	relation(t, m, base, rewritten, mirror.RelationDescendant)
	t.Run("another root", func(t *testing.T) {
		o.git("checkout", "-q", "--orphan", "other")
		orphan := o.set("fleet/fleet.yaml", "other")
		fetch(t, m)
		relation(t, m, old, orphan, mirror.RelationRewritten)
		if changes, err := m.Diff(t.Context(), old, orphan); err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
	})
}

// TestRelationAgainstGit compares with git merge-base on a history with merges and clocks that run
// backwards.
func TestRelationAgainstGit(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "0")
	for i := range 12 {
		o.clock += []int{100, -5000, 1, 40000, -1}[i%5]
		o.git("checkout", "-q", "-b", fmt.Sprintf("side%d", i), fmt.Sprintf("HEAD~%d", min(i, i%3)))
		o.write(fmt.Sprintf("fleet/tenants/s%d.yaml", i), "x")
		o.git("add", "-A")
		o.git("commit", "-q", "-m", fmt.Sprint("side", i))
		o.git("checkout", "-q", "main")
		if i%2 == 0 {
			o.git("merge", "-q", "--no-ff", "-m", "merge", fmt.Sprintf("side%d", i))
		}
		o.set("fleet/fleet.yaml", fmt.Sprint(i))
	}
	for i := range 12 { // fetch the unmerged sides too, so that the mirror has every commit
		o.git("merge", "-q", "-s", "ours", "-m", "all", fmt.Sprintf("side%d", i))
	}
	o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	commits := strings.Fields(o.git("rev-list", "HEAD"))
	ancestor := map[[2]string]bool{}
	for _, c := range commits {
		for _, a := range strings.Fields(o.git("rev-list", c)) {
			ancestor[[2]string{a, c}] = true
		}
	}
	for _, a := range commits {
		for _, b := range commits {
			want := mirror.RelationRewritten
			switch {
			case a == b:
				want = mirror.RelationSame
			case ancestor[[2]string{a, b}]:
				want = mirror.RelationDescendant
			case ancestor[[2]string{b, a}]:
				want = mirror.RelationOlder
			}
			relation(t, m, Hash(a), Hash(b), want)
		}
	}
}

func TestRelationReadsOnlyTheHistoryBetween(t *testing.T) {
	o := newOrigin(t)
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "commit refs/heads/main\ncommitter B <b@x> %d +0000\ndata 1\nx\n",
			1_700_000_000+i)
		fmt.Fprintf(&b, "M 100644 inline fleet/fleet.yaml\ndata 4\n%04d\n", i)
	}
	o.feed(o.dir, b.String(), "fast-import", "--quiet")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	head := fetch(t, m).Commit
	count := &countingObjects{objects: m.objects}
	m.objects = count
	relation(t, m, Hash(o.in(o.dir, "rev-parse", "main~5")), head, mirror.RelationDescendant)
	relation(t, m, head, Hash(o.in(o.dir, "rev-parse", "main~5")), mirror.RelationOlder)
	if count.reads > 40 {
		t.Fatalf("%d commits read for a distance of five", count.reads)
	}
}

func TestBranchDeletedOrRenamed(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	for _, version0 := range []bool{false, true} {
		s := newGitServer(t, o)
		s.version0.Store(version0)
		m := open(t, t.TempDir(), s.url())
		fetch(t, m)
		o.in(o.dir, "branch", "-m", "main", "trunk")
		fails(t, m, ErrBranchGone)
		if got := files(t, m, first)["fleet/fleet.yaml"]; got != "1" {
			t.Fatalf("last good state: %q", got)
		}
		fails(t, open(t, t.TempDir(), s.url()), ErrBranchGone)
		o.in(o.dir, "branch", "-m", "trunk", "main")
		fetch(t, m)
	}
	t.Run("a repository without any commit", func(t *testing.T) {
		fails(t, open(t, t.TempDir(), newGitServer(t, newOrigin(t)).url()), ErrBranchGone)
	})
	t.Run("another branch whose name begins the same", func(t *testing.T) {
		o.in(o.dir, "branch", "-m", "main", "main2")
		defer o.in(o.dir, "branch", "-m", "main2", "main")
		fails(t, open(t, t.TempDir(), newGitServer(t, o).url()), ErrBranchGone)
	})
}

func TestTagAndBranchOfOneName(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "tagged")
	o.git("tag", "v1")
	// a tag named like the branch's full name
	o.git("tag", "-a", "-m", "x", "refs/heads/v1")
	second := o.set("fleet/fleet.yaml", "branch")
	o.git("push", "-q", "origin", "--tags")
	o.in(o.dir, "update-ref", "refs/heads/v1", string(second))
	for _, version0 := range []bool{false, true} {
		s := newGitServer(t, o)
		s.version0.Store(version0)
		m, err := Open(t.Context(), t.TempDir(), Source{URL: s.url(), Branch: "refs/heads/v1"},
			AllowPlainHTTP())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if h := fetch(t, m); h.Commit != second {
			t.Fatalf("got %s, not the branch (tag is at %s)", h.Commit, first)
		}
		o.git("tag", "-f", "v1", string(second)) // a moved tag changes nothing here
		o.git("push", "-q", "-f", "origin", "refs/tags/v1")
		if h := fetch(t, m); h.Moved {
			t.Fatal(h)
		}
	}
}

func TestBranchNamesThatAreRefused(t *testing.T) {
	for _, branch := range []string{"main", "heads/main", "refs/tags/v1", "refs/heads/",
		"refs/heads/../../config", "refs/heads/../x", "refs/heads/a/../b",
		"refs/heads/.hidden", "refs/heads/a.lock", "refs/heads/a/b.lock/c", "refs/heads/a b",
		"refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b",
		"refs/heads/a?", "refs/heads/*", "refs/heads/[a]", "refs/heads/a\\b", "refs/heads/a@{1}",
		"refs/heads/@", "refs/heads//a", "refs/heads/a/",
		"refs/heads/a.", "refs/heads/-a", "refs/heads/a\nb", "refs/heads/a\x00b",
		"refs/heads/" + strings.Repeat("a", 300)} {
		_, err := Open(t.Context(), t.TempDir(), Source{URL: "https://git.example.com/a",
			Branch: branch})
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", branch, err)
		}
	}
	for _, branch := range []string{"", "refs/heads/main", "refs/heads/release/1.2",
		"refs/heads/" + strings.Repeat("a1", 20), "refs/heads/ünï"} {
		m, err := Open(t.Context(), t.TempDir(), Source{URL: "https://git.example.com/a",
			Branch: branch})
		if err != nil {
			t.Errorf("%q: %v", branch, err)
			continue
		}
		m.Close()
	}
}

func TestRepositoryNameRegisteredByAnotherOwner(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "ours")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url(), WithIdentity("1001"))
	fetch(t, m)
	m.Close()

	m = open(t, dir, s.url(), WithIdentity("1001"))
	if h, ok := m.Head(); !ok || h.Commit != first {
		t.Fatal("the mirror of the same repository was not used again")
	}
	m.Close()

	m = open(t, dir, s.url(), WithIdentity("2002"))
	if _, ok := m.Head(); ok {
		t.Fatal("the mirror of another repository was used")
	}
	o.git("checkout", "-q", "--orphan", "stranger")
	theirs := o.set("fleet/fleet.yaml", "theirs")
	relation(t, m, first, fetch(t, m).Commit, mirror.RelationUnknown)
	relation(t, m, theirs, theirs, mirror.RelationSame)
}

func TestMirrorOfAnotherURLIsNotUsed(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	a.set("fleet/fleet.yaml", "a")
	b.set("fleet/fleet.yaml", "b")
	dir := t.TempDir()
	m := open(t, dir, a.dir)
	fetch(t, m)
	m.Close()
	m = open(t, dir, b.dir)
	if _, ok := m.Head(); ok || len(m.store.packs) != 0 {
		t.Fatal("something of the other repository is left")
	}
	if got := files(t, m, fetch(t, m).Commit)["fleet/fleet.yaml"]; got != "b" {
		t.Fatal(got)
	}
}

func TestCommitAndLog(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	o.write("fleet/fleet.yaml", "2")
	o.git("add", "-A")
	o.git("commit", "-q", "--author", "Zoë \x1b[31m<zoe@example.com>", "-m",
		"second: «what»\x1b[0m\n\nand why\n")
	second := o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	log, err := m.Log(t.Context(), second, 10)
	if err != nil || len(log) != 2 {
		t.Fatal(log, err)
	}
	c := log[0]
	if c.ID != second || c.Subject != "second: «what»[0m" || c.Author.Name != "Zoë [31m" ||
		c.Author.Email != "zoe@example.com" ||
		c.Committer.Name != "Bob" || !c.Author.When.Equal(time.Unix(int64(o.clock), 0)) ||
		!slices.Equal(c.Parents, []Hash{log[1].ID}) {
		t.Fatalf("%+v", c)
	}
	if log, err := m.Log(t.Context(), second, 1); err != nil || len(log) != 1 {
		t.Fatal(log, err)
	}
	for _, id := range []Hash{Hash(strings.Repeat("0", 40)), "main", second[:10],
		Hash(strings.ToUpper(string(second)))} {
		if _, err := m.Commit(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestParseCommit(t *testing.T) {
	const id = "0123456789012345678901234567890123456789"
	const who = "author A <a@x> 1 +0000\ncommitter B <b@x> 2 -0730\n"
	for text, want := range map[string]string{
		"":                                            "has no tree",
		"tree 12\n" + who + "\nx":                     "has no tree",
		"parent " + id + "\n":                         "has no tree",
		"tree " + id + "\nparent 1\n" + who:           "has a parent that is no object id",
		"tree " + id + "\ncommitter B <b> 1":          "has no author",
		"tree " + id + "\nauthor B <b> 1":             "has no committer",
		"tree " + id + "\n" + who + "\nx":             "",
		"tree " + id + "\n" + who:                     "",
		"tree " + id + "\nauthor \ncommitter <<>\n\n": "",
	} {
		_, err := parseCommit(text)
		if (err == nil) != (want == "") || (err != nil && err.Error() != want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c, _ := parseCommit("tree " + id + "\n" + who + "\nx")
	if _, offset := c.Committer.When.Zone(); offset != -(7*3600 + 30*60) {
		t.Errorf("zone %d", offset)
	}
}
