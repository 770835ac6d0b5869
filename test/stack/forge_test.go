package stack_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

// delivery is what a hook received.
type delivery struct {
	Event, ID, Signature string
	Body                 []byte
}

// signed reports whether the delivery was signed with the secret.
func (d delivery) signed(secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(d.Body)
	return hmac.Equal([]byte(d.Signature), []byte("sha256="+hex.EncodeToString(mac.Sum(nil))))
}

// receiver listens for deliveries. The function gives the next of an event, or of any when it is
// empty, and forgets what came before it.
func receiver(t *testing.T) (url string, next func(t *testing.T, event string) delivery) {
	t.Helper()
	got := make(chan delivery, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- delivery{r.Header.Get("X-GitHub-Event"), r.Header.Get("X-GitHub-Delivery"),
			r.Header.Get("X-Hub-Signature-256"), body}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	return server.URL, func(t *testing.T, event string) delivery {
		t.Helper()
		var others []string
		for late := time.After(2 * time.Minute); ; {
			select {
			case d := <-got:
				if event == "" || d.Event == event {
					return d
				}
				others = append(others, d.Event)
			case <-late:
				t.Fatalf("no delivery of %s in two minutes, but of %v", event, others)
			}
		}
	}
}

// must is for what a test is not about.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that the forge answered with the status.
func refused(t *testing.T, err error, status int) {
	t.Helper()
	if answer := (*stack.ForgeError)(nil); !errors.As(err, &answer) || answer.Status != status {
		t.Errorf("got %v, want an answer of status %d", err, status)
	}
}

// town is a forge with people and a private repository.
type town struct {
	*stack.Forge
	alice, bob, eve stack.Account // alice and bob may write, eve is a stranger
	repo            *stack.ForgeRepo
}

func newTown(t *testing.T) town {
	t.Helper()
	pg := must(stack.SharedPostgres(t.Context()))(t)
	database := must(pg.NewDatabase(t.Context(), "forge_"+strings.ToLower(t.Name())))(t)
	forge := must(stack.StartForge(t.Context(), stack.ForgeOptions{Database: database}))(t)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(forge.LogFile())
			t.Logf("the forge's log:\n%s", log)
		}
		ok(t, forge.Stop())
		ok(t, pg.DropDatabase(context.WithoutCancel(t.Context()),
			"forge_"+strings.ToLower(t.Name())))
	})
	w := town{Forge: forge}
	for login, account := range map[string]*stack.Account{"alice": &w.alice, "bob": &w.bob,
		"eve": &w.eve} {
		*account = must(forge.CreateUser(t.Context(), login))(t)
	}
	ok(t, forge.CreateOrg(t.Context(), "acme"))
	w.repo = must(forge.CreateRepo(t.Context(), "acme", "config", true))(t)
	ok(t, w.repo.Allow(t.Context(), w.alice, "write"))
	ok(t, w.repo.Allow(t.Context(), w.bob, "write"))
	must(w.repo.Push(t.Context(), w.Admin, stack.Change{Message: "first", Write: map[string]string{
		"README.md": "hello\n"}}))(t)
	return w
}

// open pushes a file to a branch and asks to merge it.
func (w town) open(t *testing.T, as stack.Account, branch string) (number int, head string) {
	t.Helper()
	head = must(w.repo.Push(t.Context(), as, stack.Change{Branch: branch, Message: branch,
		Write: map[string]string{branch + ".yaml": "x: 1\n"}}))(t)
	return must(w.repo.OpenPull(t.Context(), as, "Add "+branch, branch, "main"))(t), head
}

func TestForge(t *testing.T) {
	w := newTown(t)

	t.Run("it never runs as root, and keeps strangers out of a private repository",
		func(t *testing.T) {
			status := must(os.ReadFile(filepath.Join("/proc", itoa(w.PID()), "status")))(t)
			if field(status, "Uid:") == "0" {
				t.Error("it runs as root")
			}
			if out, err := git(t, t.TempDir(), "ls-remote", w.repo.URL); err == nil {
				t.Errorf("anonymous users may read: %s", out)
			}
			if out, err := git(t, t.TempDir(), "ls-remote", w.repo.CloneURL(w.eve)); err == nil {
				t.Errorf("eve may read: %s", out)
			}
			if out := mustGit(t, t.TempDir(), "ls-remote",
				w.repo.CloneURL(w.bob)); !strings.Contains(
				out, "refs/heads/main") {
				t.Errorf("bob sees %s", out)
			}
			refused(t, w.Call(t.Context(), w.eve, http.MethodGet, "repos/acme/config", nil, nil),
				http.StatusNotFound)
		})

	t.Run("a pull request from its push to its squash, with a signed delivery of each step",
		func(t *testing.T) {
			url, next := receiver(t)
			const secret = "a secret of the hook"
			ok(t, w.repo.CreateHook(t.Context(), url, secret, "push", "pull_request",
				"pull_request_review", "status"))
			number, head := w.open(t, w.alice, "feature")
			ids := map[string]bool{}
			for _, step := range []struct {
				event string
				do    func() error
			}{
				{"push", func() error { return nil }},
				{"pull_request", func() error { return nil }},
				{"issue_comment", func() error {
					_, err := w.repo.Comment(t.Context(), w.bob, number,
						"/argosy plan")
					return err
				}},
				{"pull_request_approved", func() error {
					_, err := w.repo.Review(t.Context(), w.bob, number, stack.Approve, head, "good")
					return err
				}},
				{"status", func() error {
					return w.repo.SetStatus(t.Context(), w.bob, head, stack.ForgeStatus{
						Context: "argosy/plan", State: "success", Description: "as reviewed"})
				}},
				{"push", func() error {
					_, err := w.repo.Merge(t.Context(), w.bob, number, "squash")
					return err
				}},
			} {
				ok(t, step.do())
				d := next(t, step.event)
				if !d.signed(secret) || d.signed("another secret") {
					t.Errorf("%s: the signature is %q", step.event, d.Signature)
				}
				if d.ID == "" || ids[d.ID] {
					t.Errorf("%s: the delivery's id is %q, which is not new", step.event, d.ID)
				}
				ids[d.ID] = true
				if !strings.Contains(string(d.Body), `"full_name": "acme/config"`) {
					t.Errorf("%s: the body is %s", step.event, d.Body)
				}
			}
			p := must(w.repo.Pull(t.Context(), number))(t)
			main := must(w.repo.Git(t.Context(), w.bob, "rev-parse", "main"))(t)
			if p.State != "closed" || !p.Merged || p.MergeCommit != main || p.Head.SHA != head {
				t.Errorf("after the merge, with main at %s: %+v", main, p)
			}
			if parents := must(w.repo.Git(t.Context(), w.bob, "rev-list", "--parents", "-1",
				"main"))(
				t); len(strings.Fields(parents)) != 2 {
				t.Errorf("a squash has one parent: %s", parents)
			}
		})

	t.Run("merge and rebase end where they should", func(t *testing.T) {
		for style, parents := range map[string]int{"merge": 2, "rebase": 1} {
			number, head := w.open(t, w.alice, style)
			commit := must(w.repo.Merge(t.Context(), w.bob, number, style))(t)
			got := strings.Fields(must(w.repo.Git(t.Context(), w.bob, "rev-list", "--parents", "-1",
				"main"))(t))
			if got[0] != commit || len(got) != parents+1 {
				t.Errorf("%s of %s: %s, main is %v", style, head, commit, got)
			}
		}
	})

	t.Run("comments are posted, edited and deleted", func(t *testing.T) {
		number, _ := w.open(t, w.alice, "talk")
		first := must(w.repo.Comment(t.Context(), w.bob, number, "one"))(t)
		second := must(w.repo.Comment(t.Context(), w.alice, number, "two"))(t)
		ok(t, w.repo.EditComment(t.Context(), w.bob, first, "one and a half"))
		refused(t, w.repo.EditComment(t.Context(), w.eve, first, "not mine"), http.StatusNotFound)
		texts := func() (all []string) {
			for _, c := range must(w.repo.Comments(t.Context(), number))(t) {
				all = append(all, c.User.Login+": "+c.Body)
			}
			return all
		}
		if got := texts(); !slices.Equal(got, []string{"bob: one and a half", "alice: two"}) {
			t.Errorf("the comments are %q", got)
		}
		ok(t, w.repo.DeleteComment(t.Context(), w.alice, second))
		if got := texts(); len(got) != 1 {
			t.Errorf("after a deletion %q", got)
		}
	})

	t.Run("statuses of a commit, newest first, by those who may write", func(t *testing.T) {
		_, head := w.open(t, w.alice, "status")
		for _, state := range []string{"pending", "failure"} {
			ok(t, w.repo.SetStatus(t.Context(), w.bob, head, stack.ForgeStatus{
				Context: "argosy/validate", State: state, Description: state,
				URL: "http://127.0.0.1/x"}))
		}
		refused(t, w.repo.SetStatus(t.Context(), w.eve, head, stack.ForgeStatus{
			Context: "argosy/validate", State: "success"}), http.StatusNotFound)
		got := must(w.repo.Statuses(t.Context(), head))(t)
		if len(got) != 2 || got[0].State != "failure" || got[1].State != "pending" ||
			got[0].Creator.ID != w.bob.ID || got[0].Context != "argosy/validate" {
			t.Errorf("statuses are %+v", got)
		}
	})

	t.Run("a pull request of a fork, closed and opened again", func(t *testing.T) {
		ok(t, w.repo.Allow(t.Context(), w.eve, "read"))
		defer func() { ok(t, w.repo.Allow(t.Context(), w.eve, "")) }()
		fork := must(w.repo.Fork(t.Context(), w.eve))(t)
		head := must(fork.Push(t.Context(), w.eve, stack.Change{Branch: "theirs", Message: "theirs",
			Write: map[string]string{"theirs": "x"}}))(t)
		if _, err := w.repo.Push(t.Context(), w.eve, stack.Change{
			Branch: "theirs", Message: "theirs"}); err == nil {
			t.Error("who may only read has pushed")
		}
		number := must(w.repo.OpenPull(t.Context(), w.eve, "Theirs", "eve:theirs", "main"))(t)
		p := must(w.repo.Pull(t.Context(), number))(t)
		if p.Head.RepoID != fork.ID || p.Base.RepoID != w.repo.ID || p.Head.SHA != head ||
			p.User.ID != w.eve.ID {
			t.Errorf("%+v", p)
		}
		ok(t, w.repo.ClosePull(t.Context(), w.eve, number))
		if p := must(w.repo.Pull(t.Context(), number))(t); p.State != "closed" || p.Merged {
			t.Errorf("closed it is %+v", p)
		}
		ok(t, w.repo.ReopenPull(t.Context(), w.eve, number))
		if p := must(w.repo.Pull(t.Context(), number))(t); p.State != "open" {
			t.Errorf("opened again it is %+v", p)
		}
	})

	t.Run("a forced push moves the head, and a deleted account's login may be another's",
		func(t *testing.T) {
			number, old := w.open(t, w.alice, "moved")
			base := must(w.repo.Git(t.Context(), w.alice, "rev-parse", "main"))(t)
			now := must(w.repo.Push(t.Context(), w.alice, stack.Change{
				Branch: "moved", Message: "more",
				Write: map[string]string{"more": ""}}))(t)
			for _, head := range []string{now, old} {
				ok(t, w.repo.SetBranch(t.Context(), w.alice, "moved", head))
				eventually(t, "the head is "+head, func() bool {
					return must(w.repo.Pull(t.Context(), number))(t).Head.SHA == head
				})
			}
			ok(t, w.repo.SetBranch(t.Context(), w.alice, "spare", base))
			ok(t, w.repo.SetBranch(t.Context(), w.alice, "spare", ""))
			if out, err := w.repo.Git(t.Context(), w.alice, "rev-parse", "--verify", "--quiet",
				"spare"); err == nil {
				t.Errorf("the deleted branch is %s", out)
			}
			carol := must(w.CreateUser(t.Context(), "carol"))(t)
			ok(t, w.DeleteUser(t.Context(), "carol"))
			if again := must(w.CreateUser(t.Context(), "carol"))(t); again.ID == carol.ID ||
				again.ID == 0 {
				t.Errorf("ids are %d and %d", carol.ID, again.ID)
			}
		})

	t.Run("members of a team have its permission", func(t *testing.T) {
		dave := must(w.CreateUser(t.Context(), "dave"))(t)
		team := must(w.CreateTeam(t.Context(), "acme", "leads", "write", dave))(t)
		must(w.repo.Push(t.Context(), dave, stack.Change{Branch: "dave", Message: "dave",
			Write: map[string]string{"dave": ""}}))(t)
		ok(t, w.LeaveTeam(t.Context(), team, dave))
		refused(t, w.Call(t.Context(), dave, http.MethodGet, "repos/acme/config", nil, nil),
			http.StatusNotFound)
	})
}

func TestForgeComesBackAndGoes(t *testing.T) {
	w := newTown(t)
	number, _ := w.open(t, w.alice, "before")
	w.Kill()
	if _, err := w.repo.Pull(t.Context(), number); err == nil {
		t.Fatal("it answers after Kill")
	}
	ok(t, w.Start(t.Context()))
	if p := must(w.repo.Pull(t.Context(), number))(t); p.Title != "Add before" {
		t.Errorf("after a crash it has %+v", p)
	}
	must(w.repo.Merge(t.Context(), w.bob, number, "squash"))(t)
	ok(t, w.Stop())
	home := filepath.Dir(w.LogFile())
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	eventually(t, "no process of it is left", func() bool { return len(processesIn(t, home)) == 0 })
}

// processesIn are those that work in the folder or name it.
func processesIn(t *testing.T, dir string) (found []string) {
	t.Helper()
	for _, p := range must(filepath.Glob("/proc/[0-9]*"))(t) {
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if strings.HasPrefix(cwd, dir) || strings.Contains(string(line), dir) {
			found = append(found, string(line))
		}
	}
	return found
}
