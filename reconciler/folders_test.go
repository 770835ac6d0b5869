package reconciler_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
)

// planter makes commits that git itself would not, in the bare repository.
type planter struct{ *house }

// git runs git with an input.
func (p planter) git(in io.Reader, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin = p.repo.Dir, in
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=Mallory", "GIT_AUTHOR_EMAIL=mallory@evil.example",
		"GIT_COMMITTER_NAME=Mallory", "GIT_COMMITTER_EMAIL=mallory@evil.example")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("git %v: %v: %s", args, err, problem.String())
	}
	return strings.TrimSpace(string(out))
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (p planter) blob(in io.Reader) string { return p.git(in, "hash-object", "-w", "--stdin") }

// tree makes a tree object of lines "mode name", each with the id that follows it.
func (p planter) tree(entries ...string) string {
	var b bytes.Buffer
	for i := 0; i < len(entries); i += 2 {
		b.WriteString(entries[i] + "\x00")
		id, err := hex.DecodeString(entries[i+1])
		if err != nil {
			p.t.Fatal(err)
		}
		b.Write(id)
	}
	return p.git(&b, "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
}

// put makes a commit in which path is another tree or file.
func (p planter) put(path, mode, id, message string) fleet.Revision {
	p.t.Helper()
	commit := p.commit(path, mode, id, message)
	p.git(nil, "update-ref", "refs/heads/main", string(commit))
	return commit
}

// commit is put without moving the branch.
func (p planter) commit(path, mode, id, message string) fleet.Revision {
	p.t.Helper()
	parent, name, nested := strings.Cut(path, "/")
	at := "main"
	if nested {
		at = "main:" + parent
	} else {
		parent, name = "", parent
	}
	kind := map[string]string{"40000": "tree", "100644": "blob"}[mode]
	lines := strings.Split(p.git(nil, "ls-tree", at), "\n")
	var kept []string
	for _, l := range lines {
		if l != "" && !strings.HasSuffix(l, "\t"+name) {
			kept = append(kept, l)
		}
	}
	kept = append(kept, fmt.Sprintf("%06s %s %s\t%s", mode, kind, id, name))
	tree := p.git(strings.NewReader(strings.Join(kept, "\n")+"\n"), "mktree", "--missing")
	if parent != "" {
		return p.commit(parent, "40000", tree, message)
	}
	return fleet.Revision(p.git(strings.NewReader(message), "commit-tree", tree, "-p", "main"))
}

// with is the tree of evil's folder and one entry more.
func (p planter) with(folder, mode, name, id string) string {
	var entries []string
	for l := range strings.Lines(p.git(nil, "ls-tree", "main:"+folder)) {
		f := strings.Fields(l)
		entries = append(entries, strings.TrimLeft(f[0], "0")+" "+f[3], f[2])
	}
	return p.tree(append(entries, mode+" "+name, id)...)
}

// narrow is the budget of those who are to find a folder too large.
var narrow = gitrepo.Budget{Files: 10_000}

// hostile are folders that cannot be read, or hold what cannot be.
var hostile = map[string]func(p planter, folder string) (tree, problem string){
	"a file of 65 MiB": func(p planter, folder string) (string, string) {
		return p.with(folder, "40000", "syncs",
			p.tree("100644 zz.yaml", p.blob(io.LimitReader(zeros{}, 65<<20)))), "68157440 bytes"
	},
	"a tree bomb": func(p planter, folder string) (string, string) {
		mode, id := "100644", p.blob(strings.NewReader("x"))
		for range 6 {
			var entries []string
			for i := range 10 {
				entries = append(entries, fmt.Sprintf("%s n%d", mode, i), id)
			}
			mode, id = "40000", p.tree(entries...)
		}
		return p.with(folder, "40000", "zz", id), "source.maxFiles"
	},
	"12,000 entries": func(p planter, folder string) (string, string) {
		blob := p.blob(strings.NewReader("x"))
		var entries []string
		for i := range 12_000 {
			entries = append(entries, fmt.Sprintf("100644 n%06d", i), blob)
		}
		return p.with(folder, "40000", "zz", p.tree(entries...)), "source.maxFiles"
	},
	"an entry ..": func(p planter, folder string) (string, string) {
		return p.with(folder, "40000", "..", p.tree()), "an entry is named .."
	},
	"an entry .git": func(p planter, folder string) (string, string) {
		return p.with(folder, "100644", ".git", p.blob(strings.NewReader("x"))), "means .git"
	},
	"a name with a slash": func(p planter, folder string) (string, string) {
		return p.with(folder, "100644", "../acme/deployments/x.yaml",
			p.blob(strings.NewReader("x"))), "contains a slash"
	},
	"an entry twice": func(p planter, folder string) (string, string) {
		id := p.blob(strings.NewReader("x"))
		return p.tree("100644 zz", id, "100644 zz", id), "two entries have the same name"
	},
	"entries out of order": func(p planter, folder string) (string, string) {
		return p.with(folder, "40000", "aa", p.tree()), "not in order"
	},
}

func evil(revision string) map[string]string {
	return together(tenant("evil", "prod"), deployment("evil", "job", revision, "Delete", "prod"))
}

// reports waits until a problem at a path is reported to a tenant.
func (h *house) reports(tenant fleet.TenantName, path, what string) {
	h.t.Helper()
	h.eventually("the problem is reported", func() error {
		problems, _, err := h.store.Views.Problems(context.Background(), view.Scope{Tenant: tenant},
			view.Filter{}, view.Page{Limit: 100})
		if err != nil {
			return err
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Path, path) && strings.Contains(p.Message, what) {
				return nil
			}
		}
		return fmt.Errorf("no problem at %s contains %q: %v", path, what, problems)
	})
}

func (h *house) applied(revision fleet.Revision) {
	h.t.Helper()
	h.eventually("the revision is applied", func() error {
		source, err := h.store.Views.Source(context.Background())
		if err == nil && source.Applied != revision {
			err = fmt.Errorf("%s is applied, not %s: %s", source.Applied.Short(), revision.Short(),
				source.Error)
		}
		return err
	})
}

// revisionOf is the wanted revision of an Application.
func (h *house) revisionOf(id, want string) {
	h.t.Helper()
	h.eventually(id+" is at "+want, func() error {
		if got := h.application(id).TargetRevision; got != want {
			return fmt.Errorf("it is at %q", got)
		}
		return nil
	})
}

func TestOneTenantsFolderStopsNoOther(t *testing.T) {
	for name, make := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, together(small(), evil("v1")))
			p := planter{h}
			h.start("a", options{budget: narrow})
			h.eventually("the fleet is in sync", h.converged)
			tree, problem := make(p, "tenants/evil")
			h.applied(p.put("tenants/evil", "40000", tree, "a bomb"))
			h.reports("evil", "tenants/evil/", problem)

			h.applied(h.commit("good", deployment("acme", "web", "v2", "Delete", "prod",
				"staging")))
			h.revisionOf("acme/web@prod", "v2")
			h.revisionOf("evil/job@prod", "v1")
			h.reports("evil", "tenants/evil/", problem)

			// A new replica without a mirror reads the same.
			r := h.start("b", options{budget: narrow})
			head, err := r.source.Fetch(t.Context())
			if err != nil || head.Revision != h.head() {
				t.Fatal(head, err)
			}

			good := h.git("rev-parse", "main~2:tenants/evil")
			p.put("tenants/evil", "40000", good, "healed")
			h.applied(h.commit("and on", evil("v2")))
			h.revisionOf("evil/job@prod", "v2")
			h.eventually("the fleet is in sync again", h.converged)
			if problems, _, err := h.store.Views.Problems(t.Context(), view.Scope{}, view.Filter{},
				view.Page{Limit: 10}); err != nil || len(problems) != 0 {
				t.Error(problems, err)
			}
		})
	}
}

func TestAHealedFolderLosesWhatWasRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), evil("v1"), deployment("evil", "old", "v1", "Delete",
		"prod")))
	p := planter{h}
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.applied(p.put("tenants/evil", "40000", p.with("tenants/evil", "40000", "..", p.tree()),
		"a bomb"))
	h.git("update-ref", "refs/heads/good", "main~1")
	tree := h.git("rev-parse", "good:tenants/evil")
	p.put("tenants/evil", "40000", tree, "healed")
	h.commit("less", map[string]string{"tenants/evil/deployments/old.yaml": ""})
	h.eventually("the removal counts", h.converged)
	if a := h.application("evil/old@prod"); a.Deployment != "" {
		t.Error(a)
	}
}

func TestThePlatformsFolderStopsNoTenant(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	p := planter{h}
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.applied(p.put("fleet", "40000", p.with("fleet", "40000", "..", p.tree()), "a bomb"))
	h.applied(h.commit("good", deployment("acme", "web", "v2", "Delete", "prod", "staging")))
	h.revisionOf("acme/web@prod", "v2")
	h.eventually("it is in sync", h.converged)
}

func TestUnreadableFilesOutsideTheFoldersStopNoTenant(t *testing.T) {
	for name, make := range map[string]func(p planter){
		"a file of 65 MiB": func(p planter) {
			p.put("video", "100644", p.blob(io.LimitReader(zeros{}, 65<<20)), "m")
		},
		"two versions of a large file": func(p planter) {
			p.put("video", "100644", p.blob(io.LimitReader(zeros{}, 65<<20)), "m")
			p.put("video", "100644",
				p.blob(io.MultiReader(io.LimitReader(zeros{}, 65<<20), strings.NewReader("more"))),
				"m")
		},
		"a message of 65 MiB": func(p planter) {
			// git stores the second as a delta of the first
			for _, end := range []string{"one", "two"} {
				message, err := io.ReadAll(io.MultiReader(io.LimitReader(letters{}, 65<<20),
					strings.NewReader(end)))
				if err != nil {
					p.t.Fatal(err)
				}
				p.put("note", "100644", p.blob(strings.NewReader(end)), string(message))
			}
			p.git(nil, "repack", "-adfq")
		},
		"an entry .. in the root": func(p planter) {
			p.put("docs", "40000", p.tree("40000 ..", p.tree()), "m")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, small())
			h.start("a", options{})
			h.eventually("the fleet is in sync", h.converged)
			make(planter{h})
			h.commit("good", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
			h.eventually("the commit after it is applied", h.converged)
		})
	}
}

type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

func TestAPullRequestShowsTheProblemOfItsFolder(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), evil("v1")))
	p := planter{h}
	r := h.start("a", options{budget: narrow})
	h.eventually("the fleet is in sync", h.converged)
	for name, make := range hostile {
		if name == "a file of 65 MiB" {
			continue // more than a pull request may bring
		}
		tree, problem := make(p, "tenants/evil")
		head := p.commit("tenants/evil", "40000", tree, "a bomb")
		h.git("update-ref", "refs/pull/7/head", string(head))
		out := h.preview(r, reconciler.PreviewRequest{Ref: "refs/pull/7/head", Head: head})
		found := false
		for _, pr := range out.Problems {
			found = found || strings.HasPrefix(pr.Path, "tenants/evil/") &&
				strings.Contains(pr.Message, problem)
		}
		if !found || len(out.Files) == 0 || !strings.HasPrefix(out.Files[0], "tenants/evil/") {
			t.Errorf("%s: %v %v", name, out.Files, out.Problems)
		}
	}
}
