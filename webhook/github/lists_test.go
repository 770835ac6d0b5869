package github

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

const many = 120 // more than two pages of anything that people write

// populate gives the stage many of everything.
func populate(s *stage) {
	for i := range many {
		s.Open(s.cast.Writer, fmt.Sprintf("Change %d", i))
	}
	for i := range many {
		s.Comment(1, s.cast.Reader, fmt.Sprintf("comment %d", i))
		s.Review(1, s.cast.Reader, forge.ReviewCommented)
	}
	var members []*githubtest.Account
	for i := range 2 * many {
		members = append(members, s.server.User(fmt.Sprintf("member-%d", i)))
		s.server.Team("acme", fmt.Sprintf("team-%d", i), "")
	}
	s.server.Team("acme", "large", "", members...)
}

func TestListsAreReadToTheirEnd(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		populate(s)
		f := s.forge()
		open, err := f.OpenPulls(t.Context(), "main")
		if len(open) != many || err != nil {
			t.Errorf("%d of %d pull requests are listed (%v)", len(open), many, err)
		}
		comments, reviews, err := f.Conversation(t.Context(), 1)
		if len(comments) != many || len(reviews) != many || err != nil {
			t.Errorf("%d comments and %d reviews of %d are listed (%v)", len(comments),
				len(reviews), many, err)
		}
		for i, c := range comments {
			if c.Body != fmt.Sprintf("comment %d", i) {
				t.Fatalf("comment %d is %q", i, c.Body)
			}
		}
		members, err := f.Owner(t.Context(), "acme/large")
		if len(members.People) != 2*many || err != nil {
			t.Errorf("%d of %d members are listed (%v)", len(members.People), 2*many, err)
		}
		if _, err := f.Owner(t.Context(), "acme/none"); !errors.Is(err, forge.ErrNoSuchOwner) {
			t.Errorf("a team that is on none of three pages gives %v", err)
		}
		// Ours is on the third page.
		id, err := f.SetComment(t.Context(), 1, 0, marker, "ours")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := f.SetComment(t.Context(), 1, 0, marker, "ours"); again != id ||
			err != nil {
			t.Errorf("found again is %d, not %d (%v)", again, id, err)
		}
	})
}

// An unreadable page fails the list, whatever the others hold.
func TestPageTwoFails(t *testing.T) {
	pages := map[string]struct {
		path string
		call string
	}{
		"pull requests":      {"/repos/acme/fleet/pulls", "OpenPulls"},
		"comments":           {"/repos/acme/fleet/issues/1/comments", "Conversation"},
		"reviews":            {"/repos/acme/fleet/pulls/1/reviews", "Conversation"},
		"comments, to set":   {"/repos/acme/fleet/issues/1/comments", "SetComment"},
		"teams, for absence": {"/orgs/acme/teams", "Owner, no team"},
	}
	faults := map[string]githubtest.Fault{
		"fails":         githubtest.HTML(http.StatusBadGateway),
		"is not found":  githubtest.Reply(http.StatusNotFound, "Not Found"),
		"is empty HTML": githubtest.HTML(http.StatusOK), "is nothing": githubtest.JSON(""),
		"is limited":        githubtest.SecondaryLimit(1),
		"is another host's": githubtest.Redirect(http.StatusFound, "http://127.0.0.1:1/"),
	}
	s := newStage(t, true)
	populate(s)
	head := fleet.Revision(s.repo.Pull(1).Head)
	for list, c := range pages {
		for name, fault := range faults {
			t.Run(list+", page 2 "+name, func(t *testing.T) {
				restore := s.server.Break("GET "+c.path+"?page=2", fault)
				defer restore()
				before := s.repo.Comments(1)
				check(t, s, c.call, calls(s, s.forge(), head)[c.call](t.Context()))
				if after := s.repo.Comments(1); !slices.Equal(before, after) {
					t.Errorf("something was written: %q", after[len(before):])
				}
			})
		}
	}
}

// When a comment is deleted while the pages are read, another slips from one page to the one before
// it and is on neither.
func TestListThatMovesIsReadAgain(t *testing.T) {
	s := newStage(t, true)
	populate(s)
	f := s.forge()
	var once atomic.Bool
	s.server.Watch("GET /repos/acme/fleet/issues/1/comments?page=2", func() {
		if once.CompareAndSwap(false, true) {
			s.repo.DeleteComment(s.repo.CommentID(1, "comment 3"))
		}
	})
	comments, _, err := f.Conversation(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range comments {
		got = append(got, c.Body)
	}
	if want := s.repo.Comments(1); !slices.Equal(got, want) {
		t.Errorf("%d comments are returned of %d; missing is %v", len(got), len(want),
			missing(want, got))
	}
}

func missing(want, got []string) (out []string) {
	for _, w := range want {
		if !slices.Contains(got, w) {
			out = append(out, w)
		}
	}
	return out
}

func TestAListThatKeepsChangingIsAnError(t *testing.T) {
	s := newStage(t, true)
	populate(s)
	n := 0
	s.server.Watch("GET /repos/acme/fleet/issues/1/comments?page=3", func() {
		s.repo.DeleteComment(s.repo.CommentID(1, fmt.Sprintf("comment %d", n)))
		n++
	})
	if _, _, err := s.forge().Conversation(t.Context(), 1); err == nil ||
		!strings.Contains(err.Error(), "changes faster") {
		t.Errorf("a list that changes while it is read gives %v", err)
	}
}

// The links between pages must be consistent.
func TestPagesThatLeadAstray(t *testing.T) {
	for name, link := range map[string]string{
		"back":     `<http://x/?page=1>; rel="next"`,
		"far":      `<http://x/?page=7>; rel="next"`,
		"a cursor": `<http://x/?page=abc>; rel="next"`,
		"no page":  `<http://x/>; rel="next"`,
		"garbage":  `;;;<>; rel="next"`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, false)
			s.server.Break("GET /repos/acme/fleet/pulls",
				func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Link", link)
					githubtest.JSON("[]")(w, r)
				})
			if _, err := s.forge().OpenPulls(t.Context(), "main"); err == nil ||
				!strings.Contains(err.Error(), "goes on") {
				t.Errorf("the list gives %v", err)
			}
			if n := s.server.Count("GET /repos/acme/fleet/pulls"); n != 1 {
				t.Errorf("%d pages were read", n)
			}
		})
	}
}

func TestListWithoutEndIsAnError(t *testing.T) {
	s := newStage(t, false)
	s.server.Break("GET /repos/acme/fleet/pulls", func(w http.ResponseWriter, r *http.Request) {
		page := 1
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		w.Header().Set("Link", fmt.Sprintf(`<http://x/?page=%d>; rel="next"`, page+1))
		githubtest.JSON("[]")(w, r)
	})
	if _, err := s.forge().OpenPulls(t.Context(), "main"); err == nil ||
		!strings.Contains(err.Error(), "longer than") {
		t.Errorf("a list without end gives %v", err)
	}
}

// Reading an unchanged list again costs nothing, and an ETag is sent with its own credential alone:
// the server checks that.
func TestUnchangedAnswersAreKeptByCredential(t *testing.T) {
	s := newStage(t, false)
	s.Open(s.cast.Writer, "Add a file")
	s.Comment(1, s.cast.Writer, "hello")
	f := s.forge()
	look := func() {
		t.Helper()
		if _, err := f.Pull(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if c, _, err := f.Conversation(t.Context(), 1); len(c) != 1 || err != nil {
			t.Fatal(c, err)
		}
	}
	look()
	before, asked := s.server.Unchanged(), len(s.server.Asked())
	look()
	if same, all := s.server.Unchanged()-before, len(s.server.Asked())-asked; same != all ||
		all == 0 {
		t.Errorf("%d of %d answers were unchanged", same, all)
	}
	s.token = s.server.Token(s.self, "ghp_fedcba9876543210")
	before = s.server.Unchanged()
	look()
	// the repository is read twice with the new token
	if n := s.server.Unchanged() - before; n > 2 {
		t.Errorf("%d answers to the new token were unchanged", n)
	}
	s.Push(1)
	if p, err := f.Pull(t.Context(), 1); err != nil || string(p.Head) != s.repo.Pull(1).Head {
		t.Errorf("after a push the head is %s (%v)", p.Head, err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(100, 40)
	ask := func(name string) *http.Request {
		r, err := http.NewRequest(http.MethodGet, "http://x/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	keep := func(name string, size int) {
		r := ask(name)
		key, _ := c.find(r)
		c.keep(key, r, &http.Response{StatusCode: http.StatusOK, Header: http.Header{
			"Etag": {name}}}, make([]byte, size))
	}
	has := func(name string) bool { _, a := c.find(ask(name)); return a != nil }
	keep("large", 41)
	keep("a", 40)
	keep("b", 40)
	has("a")
	keep("c", 40)
	if has("large") || !has("a") || has("b") || !has("c") || c.bytes != 80 || c.order.Len() != 2 ||
		len(c.byKey) != 2 {
		t.Errorf("kept are %d bytes in %d answers; large %t, a %t, b %t, c %t", c.bytes,
			c.order.Len(), has("large"), has("a"), has("b"), has("c"))
	}
	keep("a", 1)
	if c.bytes != 41 {
		t.Errorf("an answer that was replaced leaves %d bytes", c.bytes)
	}
}
