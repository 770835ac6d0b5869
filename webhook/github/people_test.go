package github

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

func TestOwnerIsProven(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		f := s.forge()
		s.server.Team("acme", "hidden", "", s.self)
		s.server.Hide("acme", "hidden")
		for name, absent := range map[string]bool{"acme": true, "acme/hidden": true,
			"globex/leads": false, "nowhere/leads": true} {
			if name == "globex/leads" {
				s.server.Organization("globex")
				s.server.Team("globex", "leads", "")
			}
			people, err := f.Owner(t.Context(), name)
			if err == nil || errors.Is(err, forge.ErrNoSuchOwner) != absent {
				t.Errorf("%s is %+v (%v)", name, people, err)
			}
			if !absent && (err == nil || !strings.Contains(err.Error(), "Members: read")) {
				t.Errorf("%s does not name the missing permission: %v", name, err)
			}
		}
		for what, fault := range map[string]githubtest.Fault{
			"another account": githubtest.JSON(`{"id":5,"login":"eve"}`),
			"no id":           githubtest.JSON(`{"login":"alice"}`),
		} {
			restore := s.server.Break("GET /users/alice", fault)
			_, err := f.Owner(t.Context(), "alice")
			check(t, s, "Owner answered with "+what, err)
			restore()
		}
	})
}

func TestPermissionFollowsTheAccount(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		f := s.forge()
		alice := s.people[s.cast.Admin.ID]
		s.server.Rename(alice, "alice-2")
		thief := s.server.User("alice")
		if got, err := f.Permission(t.Context(), s.cast.Admin); got != forge.PermissionAdmin ||
			err != nil {
			t.Errorf("of one who was renamed it is %q (%v)", got, err)
		}
		if got, err := f.Permission(t.Context(), forge.Person{
			ID: thief.ID, Login: "alice"}); got != forge.PermissionRead || err != nil {
			t.Errorf("of one who took the login it is %q (%v)", got, err)
		}
		s.server.Leave(alice)
		if got, err := f.Permission(t.Context(), s.cast.Admin); err == nil {
			t.Errorf("of one who left it is %q", got)
		}
	})
}

func TestPermissionLevels(t *testing.T) {
	s := newStage(t, false)
	f := s.forge()
	for role, want := range map[string]forge.Permission{
		"triage": forge.PermissionRead, "read": forge.PermissionRead,
		"write": forge.PermissionWrite, "maintain": forge.PermissionWrite,
		"admin": forge.PermissionAdmin,
	} {
		s.repo.Grant(s.people[s.cast.Reader.ID], role)
		if got, err := f.Permission(t.Context(), s.cast.Reader); got != want || err != nil {
			t.Errorf("%s is %q (%v)", role, got, err)
		}
	}
	c := s.config()
	private := s.server.Repository(s.self, "private", false)
	c.Repository, c.RepositoryID = private.Name, private.ID
	if got, err := s.with(c).Permission(t.Context(),
		s.cast.Stranger); got != forge.PermissionNone || err != nil {
		t.Errorf("in a private repository a stranger's is %q (%v)", got, err)
	}
	for what, answer := range map[string]string{
		"another account's": `{"permission":"admin","user":{"id":1,"login":"carol"}}`,
		"nobody's":          `{"permission":"admin","user":null}`,
		"a new kind": `{"permission":"root","user":{"id":` + number(s.cast.Reader.ID) +
			`,"login":"carol"}}`, "none at all": `{"user":{"id":` + number(s.cast.Reader.ID) +
			`,"login":"carol"}}`,
	} {
		restore := s.server.Break("GET /repos/acme/fleet/collaborators/*", githubtest.JSON(answer))
		if got, err := f.Permission(t.Context(), s.cast.Reader); err == nil || got != "" {
			t.Errorf("%s is %q", what, got)
		}
		restore()
	}
}

func TestPermissionThatMayNotBeAsked(t *testing.T) {
	s := newStage(t, false)
	s.repo.Grant(s.self, "read")
	if got, err := s.forge().Permission(t.Context(), s.cast.Admin); err == nil ||
		!strings.Contains(err.Error(), "may not ask") {
		t.Errorf("asked by one who only reads it is %q (%v)", got, err)
	}
}

// Reviews of every state by any account; an unknown state is an error.
func TestReviewStates(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	p := s.repo.Pull(1)
	for _, state := range []string{"APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED",
		"PENDING"} {
		p.Review(s.people[s.cast.Admin.ID], state)
	}
	f := s.forge()
	_, reviews, err := f.Conversation(t.Context(), 1)
	want := []forge.ReviewState{forge.ReviewApproved, forge.ReviewChanges, forge.ReviewCommented,
		forge.ReviewDismissed}
	if err != nil || len(reviews) != len(want) {
		t.Fatalf("the reviews are %+v (%v)", reviews, err)
	}
	for i := range want {
		if reviews[i].State != want[i] || string(reviews[i].Head) != p.Head {
			t.Errorf("review %d is %+v", i, reviews[i])
		}
	}
	s.server.Break("GET /repos/acme/fleet/pulls/1/reviews",
		githubtest.JSON(`[{"id":1,"state":"TAKEN_BACK","user":{"id":1,"login":"alice"}}]`))
	_, _, err = f.Conversation(t.Context(), 1)
	check(t, s, "a review of an unknown state", err)
}

func TestForkThatIsGone(t *testing.T) {
	s := newStage(t, true)
	fork := s.server.Repository(s.people[s.cast.Stranger.ID], "fleet", true)
	s.repo.Open(s.people[s.cast.Stranger.ID], "From a fork", fork)
	fork.Delete()
	p, err := s.forge().Pull(t.Context(), 1)
	if err != nil || !p.Fork {
		t.Errorf("a pull request of a fork that is gone is %+v (%v)", p, err)
	}
	open, err := s.forge().OpenPulls(t.Context(), "main")
	if err != nil || len(open) != 1 || !open[0].Fork {
		t.Errorf("listed it is %+v (%v)", open, err)
	}
}

// A repository that was renamed is the same one; another of the same name is not.
func TestRenamedRepository(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		f := s.forge()
		s.opened()
		s.repo.Rename("acme/navy")
		id, name, err := f.Repository(t.Context())
		if id != s.repo.ID || name != "acme/navy" || err != nil {
			t.Errorf("it is now %s, %d (%v)", name, id, err)
		}
		if p, err := f.Pull(t.Context(), 1); err != nil || p.Number != 1 {
			t.Errorf("its pull request is %+v (%v)", p, err)
		}
		if _, err := f.SetComment(t.Context(), 1, 0, marker, "hello"); err != nil ||
			len(s.repo.Comments(1)) != 1 {
			t.Errorf("the comments are %q (%v)", s.repo.Comments(1), err)
		}
	})
}

func TestWriteIsNotRedirected(t *testing.T) {
	s := newStage(t, false)
	s.opened()
	s.server.Break("POST /repos/*", githubtest.Redirect(http.StatusFound,
		s.server.URL+"repos/acme/fleet"))
	_, err := s.forge().SetComment(t.Context(), 1, 0, marker, "hello")
	if err == nil || !strings.Contains(err.Error(), "redirects a write") {
		t.Errorf("a write that is redirected gives %v", err)
	}
}

// The first repository that answers is the one, where none is pinned.
func TestRepositoryIsPinnedByItsFirstAnswer(t *testing.T) {
	s := newStage(t, false)
	c := s.config()
	c.RepositoryID = 0
	f := s.with(c)
	if _, _, err := f.Repository(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Replace()
	if _, _, err := f.Repository(t.Context()); err == nil || !strings.Contains(err.Error(),
		"nothing is believed") {
		t.Errorf("another one gives %v", err)
	}
}

func TestPullOfAnotherRepositoryIsNotBelieved(t *testing.T) {
	s := newStage(t, false)
	s.opened()
	s.server.Break("GET /repos/acme/fleet/pulls/1",
		githubtest.JSON(`{"number":1,"state":"open","head":{"sha":"`+strings.Repeat("a", 40)+
			`","label":"x:y"},"base":{"ref":"main","repo":{"id":666,"full_name":"eve/fleet"}}}`))
	if _, err := s.forge().Pull(t.Context(), 1); err == nil || !strings.Contains(err.Error(),
		"another one") {
		t.Errorf("a pull request of another repository gives %v", err)
	}
}

func TestPullThatMakesNoSenseIsAnError(t *testing.T) {
	sha := `"` + strings.Repeat("a", 40) + `"`
	base := `"base":{"ref":"main","repo":{"id":0,"full_name":"acme/fleet"}}`
	for name, answer := range map[string]string{
		"a merge commit that is none": `{"number":1,"state":"closed","merged":true,"merge_commit_sha":"main","head":{"sha":` + sha + `,"label":"x"},` + base + `}`,
		"a head that is none":         `{"number":1,"state":"open","head":{"sha":"refs/heads/main","label":"x"},` + base + `}`,
		"another number": `{"number":2,"state":"open","head":{"sha":` + sha +
			`,"label":"x"},` + base + `}`,
		"another state": `{"number":1,"state":"draft","head":{"sha":` + sha +
			`,"label":"x"},` + base + `}`,
		"no base": `{"number":1,"state":"open","head":{"sha":` + sha +
			`,"label":"x"}}`,
	} {
		s := newStage(t, false)
		s.server.Break("GET /repos/acme/fleet/pulls/1",
			githubtest.JSON(strings.Replace(answer, `"id":0`, `"id":`+number(s.repo.ID), 1)))
		if p, err := s.forge().Pull(t.Context(), 1); err == nil {
			t.Errorf("with %s it is %+v", name, p)
		}
	}
}

func TestPullsOfARebase(t *testing.T) {
	s := newStage(t, true)
	f := s.forge()
	s.opened()
	s.opened()
	for _, commit := range s.repo.Pull(2).Merge(3) {
		if of, err := f.PullsOf(t.Context(), fleet.Revision(commit)); err != nil || len(of) != 1 ||
			of[0] != 2 {
			t.Errorf("commit %s is of %v (%v)", commit, of, err)
		}
	}
	if _, err := f.PullsOf(t.Context(), "main"); err == nil {
		t.Error("a branch is taken for a commit")
	}
}
