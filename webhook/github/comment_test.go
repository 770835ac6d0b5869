package github

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/webhook/github/githubtest"
)

func (s *stage) comment(f *Forge, id int64, body string) int64 {
	s.t.Helper()
	id, err := f.SetComment(s.t.Context(), 1, id, marker, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func TestSetCommentWritesOnlyChanges(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.opened()
		f := s.forge()
		id := s.comment(f, 0, "one")
		s.comment(f, id, "one")
		s.comment(f, 0, "one")
		s.comment(f, id, marker+"\none")
		if n := s.server.Count("PATCH "); n != 0 {
			t.Errorf("%d edits repeat the text", n)
		}
		s.comment(f, id, "two")
		if posts, edits := s.server.Count("POST /repos/acme/fleet/issues/"), s.server.Count(
			"PATCH "); posts != 1 || edits != 1 {
			t.Errorf("there were %d posts and %d edits", posts, edits)
		}
	})
}

// Two replicas can post in the same moment. The next to speak keeps the older one.
func TestSetCommentKeepsTheOldestOfTwo(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.opened()
		f := s.forge()
		via := s.app
		first := s.repo.CommentThrough(1, s.self, via, marker+"\nold")
		s.repo.CommentThrough(1, s.self, via, marker+"\nyounger")
		s.repo.CommentThrough(1, s.self, via, "without the marker")
		s.repo.CommentThrough(1, s.self, via, "quoting "+marker)
		if id := s.comment(f, 0, "new"); id != first.ID {
			t.Errorf("kept is %d, not %d", id, first.ID)
		}
		want := []string{marker + "\nnew", "without the marker", "quoting " + marker}
		if got := s.repo.Comments(1); !slices.Equal(got, want) {
			t.Errorf("the conversation is %q", got)
		}
	})
}

// Whatever goes wrong in a call, it posts once at most, and the next call finds what was posted.
func TestSetCommentPostsOnceWhateverFails(t *testing.T) {
	for name, where := range map[string]string{
		"reading us":           "GET /user*",
		"reading the comments": "GET /repos/acme/fleet/issues/1/comments",
		"posting":              "POST /repos/acme/fleet/issues/1/comments",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, false)
			s.opened()
			f := s.forge()
			restore := s.server.Break(where, githubtest.HTML(http.StatusBadGateway))
			if _, err := f.SetComment(t.Context(), 1, 0, marker, "hello"); err == nil {
				t.Error("it goes well")
			}
			restore()
			s.comment(f, 0, "hello")
			if got := s.repo.Comments(1); len(got) != 1 {
				t.Errorf("the conversation is %q", got)
			}
		})
	}
	t.Run("the answer to a post is lost", func(t *testing.T) {
		s := newStage(t, false)
		s.opened()
		f := s.forge()
		ctx, cancel := context.WithCancel(t.Context())
		s.server.Watch("POST /repos/acme/fleet/issues/1/comments", func() {
			s.repo.Comment(1, s.self, marker+"\nhello") // it is posted, and the response is lost
			cancel()
		})
		restore := s.server.Break("POST /repos/acme/fleet/issues/1/comments", githubtest.Silent)
		if _, err := f.SetComment(ctx, 1, 0, marker, "hello"); err == nil {
			t.Error("it goes well")
		}
		restore()
		s.comment(f, 0, "hello again")
		if got := s.repo.Comments(1); !slices.Equal(got, []string{marker + "\nhello again"}) {
			t.Errorf("the conversation is %q", got)
		}
	})
}

func TestSetCommentPostsAgainWhenOursVanishes(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	f := s.forge()
	id := s.comment(f, 0, "one")
	s.server.Watch("PATCH /repos/acme/fleet/issues/comments/"+number(id),
		func() { s.repo.DeleteComment(id) })
	if again := s.comment(f, id, "two"); again == id {
		t.Error("a comment that vanished was edited")
	}
	if got := s.repo.Comments(1); !slices.Equal(got, []string{marker + "\ntwo"}) {
		t.Errorf("the conversation is %q", got)
	}
}

func TestSetCommentRefusesInvalidComments(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	f := s.forge()
	for _, bad := range []string{"", "argosy", "<!-- argosy", "<!-- a -->\n<!-- b -->"} {
		if _, err := f.SetComment(t.Context(), 1, 0, bad, "hello"); err == nil {
			t.Errorf("the marker %q is taken", bad)
		}
	}
	longest := strings.Repeat("é", 65536-len(marker)-1)
	s.comment(f, 0, longest)
	if _, err := f.SetComment(t.Context(), 1, 0, marker, longest+"é"); err == nil {
		t.Error("a comment that is too long is taken")
	}
}
