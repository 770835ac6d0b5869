package forgetest

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

func posted(s *scene) {
	number, _ := s.Open(s.Writer, "Post it once")
	s.Comment(number, s.Writer, "first")
	id := s.post(number, 0, "one")
	if again := s.post(number, id, "two"); again != id {
		s.Errorf("it is edited as comment %d, and %d was posted", again, id)
	}
	s.forge = s.Forge()
	if found := s.post(number, 0, "three"); found != id {
		s.Errorf("it is found again as comment %d, and %d was posted", found, id)
	}
	if got := s.Comments(number); !slices.Equal(got, []string{"first", marker + "\nthree"}) {
		s.Errorf("the conversation is %q", got)
	}
}

func postedAgain(s *scene) {
	number, _ := s.Open(s.Writer, "Post it again")
	id := s.post(number, 0, "one")
	s.DeleteComment(number, id)
	if again := s.post(number, id, "two"); again == id {
		s.Errorf("a comment that was deleted is edited")
	}
	if got := s.Comments(number); !slices.Equal(got, []string{marker + "\ntwo"}) {
		s.Errorf("the conversation is %q", got)
	}
}

func forged(s *scene) {
	number, _ := s.Open(s.Writer, "Mine is yours")
	fake := s.Comment(number, s.Stranger, marker+"\nApproved by everybody")
	id := s.post(number, fake, "one")
	if id == fake {
		s.Error("a stranger's comment is taken for ours")
	}
	if got := s.Comments(number); !slices.Equal(got, []string{marker + "\nApproved by everybody",
		marker + "\none"}) {
		s.Errorf("the conversation is %q", got)
	}
	other, _ := s.Open(s.Writer, "Another")
	if there := s.post(other, id, "two"); there == id {
		s.Error("our comment on another pull request is edited")
	}
}

func markedOnce(s *scene) {
	_, head := s.Open(s.Writer, "Mark me")
	check := forge.Check{Name: forge.CheckPlan, State: forge.CheckPending, Title: "reading it",
		URL: "https://argosy.example/pulls/1"}
	s.mark(head, check)
	if got := s.Shown(head)[check.Name]; got != (Shown{State: check.State, Title: check.Title,
		URL: check.URL}) {
		s.Errorf("the check is shown as %+v", got)
	}
	check.State, check.Title = forge.CheckSuccess, "nothing changes"
	s.mark(head, check)
	s.mark(head, check)
	if got := s.Shown(head)[check.Name]; got != (Shown{State: check.State, Title: check.Title,
		URL: check.URL}) {
		s.Errorf("the check is shown as %+v", got)
	}
	check.State, check.Title = forge.CheckPending, "looking again"
	s.mark(head, check)
	if got := s.Shown(head)[check.Name]; got.State != forge.CheckPending ||
		got.Title != check.Title {
		s.Errorf("looked at again the check is shown as %+v", got)
	}
}

func markedAll(s *scene) {
	_, head := s.Open(s.Writer, "Mark everything")
	s.mark(head,
		forge.Check{Name: forge.CheckValidate, State: forge.CheckFailure,
			Title: strings.Repeat("é", 200), Summary: "**two** errors"},
		forge.Check{Name: forge.CheckPlan, State: forge.CheckNeutral,
			Title: "a fork without ok-to-test"},
		forge.Check{Name: forge.CheckOwners, State: forge.CheckSuccess, Title: "approved"})
	shown := s.Shown(head)
	if got := shown[forge.CheckValidate]; got.State != forge.CheckFailure ||
		!strings.HasPrefix(got.Title, "éééé") {
		s.Errorf("a failure is shown as %+v", got)
	}
	if got := shown[forge.CheckPlan]; got.State != forge.CheckNeutral &&
		got.State != forge.CheckSuccess || got.Title != "a fork without ok-to-test" {
		s.Errorf("neutral is shown as %+v", got)
	}
	if got := shown[forge.CheckOwners]; got.State != forge.CheckSuccess {
		s.Errorf("a success is shown as %+v", got)
	}
}
