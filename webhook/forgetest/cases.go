package forgetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/forge"
)

var cases = map[string]func(*scene){
	"returns a pull request as it was opened":                      opened,
	"knows what strangers can have made":                           forked,
	"follows a pull request to its merge":                          merged,
	"distinguishes closed from merged":                             closed,
	"proves that there is no such pull request":                    missing,
	"lists the open pull requests of the branch":                   listed,
	"returns the author, verdict and validity of a review":         discussed,
	"binds a review to the commit that it is of":                   reviewed,
	"resolves users and teams":                                     owned,
	"does not know an owner that is none":                          unowned,
	"reads permissions by account":                                 permitted,
	"keeps to one comment":                                         posted,
	"posts its comment again once it is deleted":                   postedAgain,
	"edits nothing of a stranger's":                                forged,
	"marks a commit, and marks it again only for a change":         markedOnce,
	"proposes a change once, and changes its proposal":             proposed,
	"marks every state":                                            markedAll,
	"believes nothing of a repository that took the name":          replaced,
	"finds undelivered events, or reports that it cannot":          delivered,
	"distinguishes a branch without protection from one unread":    unprotected,
	"returns the rules that the protection of the branch enforces": protected,
	"returns the accounts exempt from the protection":              exempted,
}

func opened(s *scene) {
	number, head := s.Open(s.Writer, "Add a <b>file</b>")
	p := s.pull(number)
	if p.Number != number || p.Head != head || p.Base != s.Base || p.State != forge.PullOpen ||
		p.Fork || p.Draft || p.MergeCommit != "" {
		s.Errorf("it is reported as %+v", p)
	}
	if p.Author != s.Writer || p.Title != "Add a <b>file</b>" || !strings.HasPrefix(p.URL,
		"http") || p.UpdatedAt.IsZero() {
		s.Errorf("it is reported as %+v", p)
	}
	if next := s.Push(number); s.pull(number).Head != next || next == head {
		s.Errorf("after a push to %s its head is %s", next, s.pull(number).Head)
	}
}

func forked(s *scene) {
	number, head := s.Open(s.Stranger, "Let me in")
	if p := s.pull(number); !p.Fork || p.Author != s.Stranger || p.Head != head {
		s.Errorf("a pull request of a fork is reported as %+v", p)
	}
}

func merged(s *scene) {
	other, _ := s.Open(s.Writer, "Something else")
	number, head := s.Open(s.Writer, "Merge me")
	commit := s.Merge(number)
	p := s.pull(number)
	if p.State != forge.PullMerged || p.MergeCommit != commit || p.Head != head {
		s.Errorf("merged as %s it is reported as %+v", commit, p)
	}
	of, err := s.forge.PullsOf(s.ctx, commit)
	if err != nil || !slices.Equal(of, []int{number}) {
		s.Errorf("the commit of pull request %d is of %v (%v)", number, of, err)
	}
	open, err := s.forge.OpenPulls(s.ctx, s.Base)
	if err != nil || len(open) != 1 || open[0].Number != other {
		s.Errorf("open is only %d, and %+v are listed (%v)", other, open, err)
	}
	of, err = s.forge.PullsOf(s.ctx, s.pull(other).Head)
	if err != nil || len(of) != 0 {
		s.Errorf("a commit that is not merged is of %v (%v)", of, err)
	}
}

func closed(s *scene) {
	number, _ := s.Open(s.Writer, "Never mind")
	s.Close(number)
	if p := s.pull(number); p.State != forge.PullClosed || p.MergeCommit != "" {
		s.Errorf("closed it is reported as %+v", p)
	}
}

func missing(s *scene) {
	s.Open(s.Writer, "The only one")
	if _, err := s.forge.Pull(s.ctx, 4711); !errors.Is(err, forge.ErrNoSuchPull) {
		s.Errorf("a pull request that does not exist gives %v", err)
	}
	if _, _, err := s.forge.Conversation(s.ctx, 4711); !errors.Is(err, forge.ErrNoSuchPull) {
		s.Errorf("the conversation of one that does not exist gives %v", err)
	}
}

func listed(s *scene) {
	var want []int
	for range 3 {
		number, _ := s.Open(s.Writer, "One of three")
		want = append(want, number)
	}
	var got []int
	open, err := s.forge.OpenPulls(s.ctx, s.Base)
	for _, p := range open {
		if p != s.pull(p.Number) {
			s.Errorf("pull request %d is listed as %+v and reported as %+v", p.Number, p,
				s.pull(p.Number))
		}
		got = append(got, p.Number)
	}
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		s.Errorf("%v are open, and %v are listed (%v)", want, got, err)
	}
	none, err := s.forge.OpenPulls(s.ctx, "no-such-branch")
	if err != nil || len(none) != 0 {
		s.Errorf("into a branch that does not exist %+v are open (%v)", none, err)
	}
}

func discussed(s *scene) {
	number, _ := s.Open(s.Writer, "Talk to me")
	first := s.Comment(number, s.Stranger, "/argosy lock")
	ours := s.post(number, 0, "plan")
	second := s.Comment(number, s.Admin, "fine")
	s.Edit(number, first, s.Stranger, "/argosy ok-to-test")
	comments, _ := s.conversation(number)
	if len(comments) != 3 || comments[0].ID != first || comments[1].ID != ours ||
		comments[2].ID != second {
		s.Fatalf("the conversation is %+v", comments)
	}
	for i, want := range []forge.Comment{
		{ID: first, Author: s.Stranger, Edited: true, Body: "/argosy ok-to-test"},
		{ID: ours, Author: s.Self, Own: true, Body: marker + "\nplan"},
		{ID: second, Author: s.Admin, Body: "fine"},
	} {
		got := comments[i]
		if got.At.IsZero() || time.Since(got.At) < -time.Hour {
			s.Errorf("comment %d was posted at %s", i, got.At)
		}
		if got.At = (time.Time{}); got != want {
			s.Errorf("comment %d is reported as %+v, not %+v", i, got, want)
		}
	}
}

func reviewed(s *scene) {
	number, old := s.Open(s.Writer, "Review me")
	s.Review(number, s.Admin, forge.ReviewApproved)
	s.Review(number, s.Reader, forge.ReviewCommented)
	head := s.Push(number)
	s.Review(number, s.Reader, forge.ReviewChanges)
	_, reviews := s.conversation(number)
	want := []forge.Review{
		{Author: s.Admin, State: forge.ReviewApproved, Head: old},
		{Author: s.Reader, State: forge.ReviewCommented, Head: old},
		{Author: s.Reader, State: forge.ReviewChanges, Head: head},
	}
	s.compare(reviews, want)
	s.Dismiss(number, s.Admin)
	want[0].State = forge.ReviewDismissed
	_, reviews = s.conversation(number)
	s.compare(reviews, want)
}

// compare compares reviews but for their times.
func (s *scene) compare(got, want []forge.Review) {
	s.Helper()
	for i := range got {
		if got[i].At.IsZero() {
			s.Errorf("review %d was given at no time", i)
		}
		got[i].At = time.Time{}
	}
	if !slices.Equal(got, want) {
		s.Errorf("the reviews are %+v, not %+v", got, want)
	}
}

func replaced(s *scene) {
	number, head := s.Open(s.Writer, "Before")
	s.pull(number)
	s.Replace()
	for what, call := range map[string]func() error{
		"Repository": func() error { _, _, err := s.forge.Repository(s.ctx); return err },
		"Pull":       func() error { _, err := s.forge.Pull(s.ctx, number); return err },
		"no Pull":    func() error { _, err := s.forge.Pull(s.ctx, 4711); return err },
		"OpenPulls":  func() error { _, err := s.forge.OpenPulls(s.ctx, s.Base); return err },
		"PullsOf":    func() error { _, err := s.forge.PullsOf(s.ctx, head); return err },
		"Conversation": func() error {
			_, _, err := s.forge.Conversation(s.ctx, number)
			return err
		},
		"Owner": func() error {
			_, err := s.forge.Owner(s.ctx, "nobody-of-that-name")
			return err
		},
		"Permission": func() error {
			_, err := s.forge.Permission(s.ctx, s.Stranger)
			return err
		},
		"SetComment": func() error {
			_, err := s.forge.SetComment(s.ctx, number, 0, marker, "hello")
			return err
		},
		"ReportChecks": func() error { return s.forge.ReportChecks(s.ctx, head, nil) },
		"Protection":   func() error { _, err := s.forge.Protection(s.ctx, s.Base); return err },
	} {
		err := call()
		if err == nil || !strings.Contains(err.Error(), "is now another one") {
			s.Errorf("%s of the repository that took the name gives %v", what, err)
		}
		if errors.Is(err, forge.ErrNoSuchPull) || errors.Is(err, forge.ErrNoSuchOwner) {
			s.Errorf("%s reads absence out of it: %v", what, err)
		}
	}
}

func delivered(s *scene) {
	missed, err := s.forge.Missed(s.ctx, time.Now().Add(-time.Hour))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		s.Errorf("what was missed is %+v (%v)", missed, err)
	}
}

func proposed(s *scene) {
	const path, branch = "tenants/acme/deployments/shop.yaml", "argosy-rollback-acme-shop-1"
	from := s.Write(path, "revision: v2 # ä\n")
	p := forge.Proposal{Base: s.Base, From: from, Branch: branch, Path: path,
		Text: []byte("revision: v1 # ä\n"), Title: "Keep shop at v1", Body: "It was rolled back."}
	propose := func(what string) forge.Proposed {
		s.Helper()
		done, err := s.forge.Propose(s.ctx, p)
		if err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		if text, _ := s.File(branch, path); text != string(p.Text) {
			s.Errorf("%s: the branch has %q", what, text)
		}
		return done
	}
	first := propose("a proposal")
	got := s.pull(first.Number)
	if got.State != forge.PullOpen || got.Title != p.Title || got.Author != s.Self || got.Fork ||
		got.Base != s.Base || got.URL != first.URL {
		s.Errorf("it is %+v, proposed as %+v", got, first)
	}
	if propose("the same again") != first || s.pull(first.Number).Head != got.Head {
		s.Errorf("proposed again, it has another commit")
	}
	p.Text, p.Title, p.Body = []byte("revision: v0\n"), "Keep shop at v0", "Rolled back again."
	if again := propose("a changed one"); again != first || s.pull(first.Number).Title != p.Title {
		s.Errorf("changed, it is %+v", s.pull(again.Number))
	}
	if text, _ := s.File(s.Base, path); text != "revision: v2 # ä\n" {
		s.Errorf("the base has %q", text)
	}
	missing := p
	missing.Path, missing.Branch = "tenants/acme/deployments/gone.yaml", branch+"0"
	if done, err := s.forge.Propose(s.ctx, missing); err == nil {
		s.Errorf("a change of no file is %+v", done)
	}
	for range 2 {
		if err := s.forge.Withdraw(s.ctx, first.Number, branch); err != nil {
			s.Errorf("withdraw: %v", err)
		}
	}
	if _, there := s.File(branch, path); there || s.pull(first.Number).State != forge.PullClosed {
		s.Errorf("withdrawn, it is %+v, its branch is there: %v", s.pull(first.Number), there)
	}
	if err := s.forge.Withdraw(s.ctx, 4711, branch); err != nil {
		s.Errorf("withdraw one that does not exist: %v", err)
	}
}
