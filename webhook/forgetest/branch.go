package forgetest

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

// Rules is what people set on the pages about Cast.Base and about merges into it. The zero Rules
// are those of a repository that was just made, with every style allowed that they name.
type Rules struct {
	Checks       []string // required, from any source
	PullRequests bool     // only Pushers may push
	Pusher       forge.Person
	PushingTeam  string // "org/team"
	Stale        bool   // a new commit dismisses approvals
	Everybody    bool   // administrators are bound, too
	NoRebase     bool   // no style that rebases
}

// protection reads the protection of the base. An unknown rule must name the missing permission.
func (s *scene) protection() forge.Protection {
	s.Helper()
	p, err := s.forge.Protection(s.ctx, s.Base)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// same fails unless the fact is as it was set, or unread.
func (s *scene) same(what string, got, want bool, unread string) {
	s.Helper()
	if got && !want || got != want && unread == "" {
		s.Errorf("%s is reported as %v, not %v (unread: %q)", what, got, want, unread)
	}
}

func unprotected(s *scene) {
	p := s.protection()
	if p.Host == "" || len(p.Checks) > 0 || p.PullRequests || p.DismissesStale || p.RefusesForce ||
		len(p.Pushers) > 0 || p.Queue != nil {
		s.Errorf("a branch without protection is reported as %+v", p)
	}
	if p.Unread.Rules != "" {
		s.Errorf("every account may learn that a branch has no protection, and reading it takes %s",
			p.Unread.Rules)
	}
	s.same("rebase", p.Styles[forge.MergeRebase], true, p.Unread.Settings)
	if _, err := s.forge.Protection(s.ctx, "no-such-branch"); err == nil {
		s.Error("a branch that does not exist has a protection")
	}
}

func protected(s *scene) {
	s.Protect(Rules{
		Checks:       []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners, "ci"},
		PullRequests: true, Stale: true, Everybody: true, NoRebase: true,
	})
	p := s.protection()
	for _, name := range []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners, "ci"} {
		s.same(name, slices.Contains(p.Checks, forge.RequiredCheck{Name: name}), true,
			p.Unread.Rules)
	}
	s.same("that pull requests are required", p.PullRequests, true, p.Unread.Rules)
	s.same("that approvals are dismissed", p.DismissesStale, true, p.Unread.Rules)
	s.same("that force pushes are refused", p.RefusesForce, true, p.Unread.Rules)
	s.same("that deletion is refused", p.RefusesDeletion, true, p.Unread.Rules)
	if len(p.Pushers)+len(p.Overriders) > 0 {
		s.Errorf("exempt are %+v and %+v, want no account", p.Pushers, p.Overriders)
	}
	for _, style := range []forge.MergeStyle{forge.MergeRebase, forge.MergeRebaseMerge,
		forge.MergeManual} {
		s.same(string(style), p.Styles[style], false, p.Unread.Settings)
	}
	for part, unread := range map[string]string{"rules": p.Unread.Rules, "exempt": p.Unread.Exempt,
		"settings": p.Unread.Settings} {
		if unread != "" && !strings.Contains(unread, "permission") && !strings.Contains(unread,
			"administrator") {
			s.Errorf("of the %s that are not read, %q names no permission", part, unread)
		}
	}
}

func exempted(s *scene) {
	s.Protect(Rules{Checks: []string{forge.CheckPlan}, PullRequests: true, Pusher: s.Writer,
		PushingTeam: s.Team})
	p := s.protection()
	if p.Unread.Exempt != "" && len(p.Pushers) == 0 {
		return
	}
	var login, team, admins bool
	for _, e := range p.Pushers {
		login = login || strings.EqualFold(e.User.Login, s.Writer.Login) &&
			(e.User.ID == 0 || e.User.ID == s.Writer.ID)
		team = team || strings.EqualFold(e.Team, s.Team)
	}
	for _, e := range p.Overriders {
		admins = admins || strings.Contains(e.Name, "administrators") || strings.Contains(e.Name,
			"admin")
	}
	if !login || !team || !admins {
		s.Errorf("%s, %s and the administrators are exempt, and reported are %+v and %+v",
			s.Writer.Login, s.Team, p.Pushers, p.Overriders)
	}
}
