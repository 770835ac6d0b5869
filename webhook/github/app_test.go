package github

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

func TestInstallation(t *testing.T) {
	t.Run("is looked up, and its token kept", func(t *testing.T) {
		s := newStage(t, true)
		f := s.forge()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, _, err := f.Repository(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.server.Count("POST /app/installations/"); n != 1 {
			t.Errorf("%d tokens were asked for", n)
		}
	})
	t.Run("is the one that is configured", func(t *testing.T) {
		s := newStage(t, true)
		c := s.config()
		c.Auth.App.InstallationID = s.app.Install(githubtest.Everything(), s.repo)
		if _, _, err := s.with(c).Repository(t.Context()); err != nil ||
			s.server.Count("GET /repos/acme/fleet/installation") != 0 {
			t.Errorf("it is looked up (%v)", err)
		}
	})
	t.Run("gets another token when the Git host forgets the one it has", func(t *testing.T) {
		s := newStage(t, true)
		f := s.forge()
		if _, err := f.SetComment(t.Context(), s.opened(), 0, marker, "one"); err != nil {
			t.Fatal(err)
		}
		s.app.Expire()
		if _, err := f.SetComment(t.Context(), 1, 0, marker, "two"); err != nil {
			t.Fatal(err)
		}
		if got := s.repo.Comments(1); len(got) != 1 || got[0] != marker+"\ntwo" {
			t.Errorf("the conversation is %q", got)
		}
	})
}

func TestInstallationThatIsLost(t *testing.T) {
	t.Run("by a suspension", func(t *testing.T) {
		s := newStage(t, true)
		f := s.forge()
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.app.Suspend()
		for what, f := range map[string]*Forge{"with a token": f, "without": s.forge()} {
			for name, call := range calls(s, f, fleet.Revision(strings.Repeat("a", 40))) {
				err := call(t.Context())
				check(t, s, name, err)
				if err == nil || !strings.Contains(err.Error(), "suspended") {
					t.Errorf("%s %s gives %v", name, what, err)
				}
			}
		}
	})
	t.Run("as it was never made", func(t *testing.T) {
		s := newStage(t, true)
		other := s.server.App("other")
		c := s.config()
		c.Auth.App.ID = other.ID
		if _, _, err := s.with(c).Repository(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "not installed") {
			t.Errorf("an App that is not installed gives %v", err)
		}
	})
	t.Run("to another App", func(t *testing.T) {
		s := newStage(t, true)
		s.server.Break("GET /repos/acme/fleet/installation", githubtest.JSON(`{"id":5,"app_id":1}`))
		if _, _, err := s.forge().Repository(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "another App") {
			t.Errorf("it gives %v", err)
		}
	})
	t.Run("in the middle of a call", func(t *testing.T) {
		s := newStage(t, true)
		f := s.forge()
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.server.Break("GET /repos/acme/fleet/installation", githubtest.Reply(http.StatusNotFound,
			"Not Found"))
		s.server.Watch("GET /users/alice", s.app.Expire)
		_, err := f.Owner(t.Context(), "alice")
		check(t, s, "Owner", err)
	})
}

func TestInstallationKeepsToItsGrant(t *testing.T) {
	t.Run("uses no more than it was granted", func(t *testing.T) {
		s := newStage(t, true)
		less := githubtest.Everything()
		delete(less, "members")
		less["checks"] = "read"
		c := s.config()
		c.Auth.App.InstallationID = s.app.Install(less, s.repo)
		f := s.with(c)
		if _, err := f.Pull(t.Context(), s.opened()); err != nil {
			t.Fatal(err)
		}
		_, err := f.Owner(t.Context(), "acme/leads")
		if err == nil || errors.Is(err, forge.ErrNoSuchOwner) || !strings.Contains(err.Error(),
			"Members: read") || !strings.Contains(err.Error(), "members=read") {
			t.Errorf("without the permission to read members a team gives %v", err)
		}
		err = f.ReportChecks(t.Context(), fleet.Revision(s.repo.Pull(1).Head), []forge.Check{
			{Name: "argosy/plan", State: forge.CheckSuccess}})
		if err == nil || !strings.Contains(err.Error(), "checks=write") {
			t.Errorf("without the permission to write checks marking gives %v", err)
		}
	})
	t.Run("has a token for the one repository", func(t *testing.T) {
		s := newStage(t, true)
		secret := s.server.Repository(s.server.Organization("other"), "secret", false)
		c := s.config()
		c.RepositoryID = 0
		c.Auth.App.InstallationID = s.app.Install(githubtest.Everything(), s.repo, secret)
		f := s.with(c)
		if _, _, err := f.Repository(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.get(t.Context(), in(secret.Name), nil); !isGone(err) {
			t.Errorf("another repository of the installation is read: %v", err)
		}
	})
}

func (s *stage) opened() int {
	number, _ := s.Open(s.cast.Writer, "Add a file")
	return number
}

func TestPrivateKey(t *testing.T) {
	s := newStage(t, true)
	keys := githubtest.Keys(t)
	key, failure := keys[1], error(nil)
	c := s.config()
	c.Auth.App.Key = func(context.Context) ([]byte, error) { return key, failure }
	f := s.with(c)
	_, _, err := f.Repository(t.Context())
	check(t, s, "with another App's key Repository", err)
	if err == nil || !strings.Contains(err.Error(), "could not be decoded") {
		t.Errorf("with another App's key: %v", err)
	}
	key = keys[0] // rotated
	if _, _, err := f.Repository(t.Context()); err != nil {
		t.Errorf("with the right key: %v", err)
	}
	s.app.Expire()
	for what, broken := range map[string]string{
		"nothing": "",
		"text":    "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n",
		"no PEM":  "c2VjcmV0"} {
		key = []byte(broken)
		_, _, err = f.Repository(t.Context())
		check(t, s, "with a key of "+what+" Repository", err)
		if err == nil || strings.Contains(err.Error(), "c2VjcmV0") || !strings.Contains(err.Error(),
			"private key") {
			t.Errorf("with a key of %s: %v", what, err)
		}
	}
	failure = errors.New("no such file")
	if _, _, err := f.Repository(t.Context()); !errors.Is(err, failure) {
		t.Errorf("a key that cannot be read gives %v", err)
	}
}

func TestToken(t *testing.T) {
	s := newStage(t, false)
	s.opened()
	f := s.forge()
	if _, err := f.Pull(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.server.Revoke(s.token)
	for what, call := range calls(s, f, fleet.Revision(strings.Repeat("a", 40))) {
		err := call(t.Context())
		check(t, s, what, err)
		if err == nil || !strings.Contains(err.Error(), "revoked or has expired") {
			t.Errorf("with a token that was revoked %s gives %v", what, err)
		}
	}
	s.token = s.server.Token(s.self, "ghp_rotated0123")
	if _, err := f.Pull(t.Context(), 1); err != nil {
		t.Errorf("with a new token: %v", err)
	}
	for _, broken := range []string{"", " ", "ghp_with\nline feed", "ghp_with space", "short",
		"ghp_ünïcode", strings.Repeat("x", 5000)} {
		s.token = broken
		_, err := f.Pull(t.Context(), 1)
		check(t, s, "with a broken token Pull", err)
	}
	c := s.config()
	failure := errors.New("no such file")
	c.Auth.Token = func(context.Context) (string, error) { return "", failure }
	if _, _, err := s.with(c).Repository(t.Context()); !errors.Is(err, failure) {
		t.Errorf("a token that cannot be read gives %v", err)
	}
}

// A comment with our marker by another account, or by another App under our bot's name, is not
// ours.
func TestWhoWeAre(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	other := s.server.App("argosy2")
	s.repo.CommentThrough(1, s.people[s.cast.Writer.ID], s.app, "through our App, and bob's")
	s.repo.CommentThrough(1, s.self, other, "as our bot, through another App")
	s.repo.CommentThrough(1, s.self, s.app, "ours")
	gone := s.server.User("gone")
	s.repo.Comment(1, gone, "of one who left")
	s.server.Leave(gone)
	comments, _, err := s.forge().Conversation(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comments {
		if c.Own != (c.Body == "ours") {
			t.Errorf("%q is ours: %t", c.Body, c.Own)
		}
	}
	if last := comments[3].Author; last != (forge.Person{Login: "ghost"}) {
		t.Errorf("one who left is %+v", last)
	}
	s.server.Break("GET /app", githubtest.JSON(`{"id":1,"slug":"somebody"}`))
	if _, _, err := s.forge().Conversation(t.Context(), 1); err == nil ||
		!strings.Contains(err.Error(), "takes us for") {
		t.Errorf("a forge that takes us for another App gives %v", err)
	}
}

// A clock that is wrong gets a token for each minute, and not for each request.
func TestTokenOfAWrongClock(t *testing.T) {
	for name, expires := range map[string]time.Time{
		"in the past": time.Now().Add(-24 * time.Hour), "in a year": time.Now().AddDate(1, 0, 0),
		"never": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, true)
			f := s.forge()
			if _, _, err := f.Repository(t.Context()); err != nil {
				t.Fatal(err)
			}
			token := f.grant.current
			s.server.Break("POST /app/*", func(w http.ResponseWriter, r *http.Request) {
				githubtest.JSON(`{"token":"`+token+`","expires_at":"`+expires.UTC().Format(
					time.RFC3339)+`"}`)(w, r)
			})
			f.grant.forget()
			before := s.server.Count("POST /app/")
			for range 3 {
				if _, _, err := f.Repository(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.server.Count("POST /app/") - before; n != 1 {
				t.Errorf("%d tokens were asked for", n)
			}
			if left := time.Until(f.grant.until); left < 50*time.Second || left > time.Hour {
				t.Errorf("the token is kept for %s", left)
			}
		})
	}
}
