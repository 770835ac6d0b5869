package forgetest

import (
	"errors"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

func owned(s *scene) {
	for _, p := range []forge.Person{s.Admin, s.Stranger} {
		for _, name := range []string{p.Login, strings.ToUpper(p.Login)} {
			owner, err := s.forge.Owner(s.ctx, name)
			if err != nil || owner.ID != p.ID || !slices.Equal(owner.People, []forge.Person{p}) {
				s.Errorf("%s is %+v (%v)", name, owner, err)
			}
		}
	}
	for _, name := range []string{s.Team, s.TeamAs} {
		if name == "" {
			continue
		}
		owner, err := s.forge.Owner(s.ctx, name)
		if err != nil || owner.ID != s.TeamID || len(owner.People) != 2 ||
			!slices.Contains(owner.People, s.Admin) || !slices.Contains(owner.People, s.Writer) {
			s.Errorf("%s is %+v (%v), not number %d", name, owner, err, s.TeamID)
		}
	}
}

func unowned(s *scene) {
	org, _, _ := strings.Cut(s.Team, "/")
	for _, name := range []string{"nobody-of-that-name", org + "/no-such-team", "..", "a/b/c", "",
		org + "/..", "a b"} {
		if people, err := s.forge.Owner(s.ctx, name); !errors.Is(err, forge.ErrNoSuchOwner) {
			s.Errorf("%q is %+v (%v)", name, people, err)
		}
	}
}

func permitted(s *scene) {
	for want, p := range map[forge.Permission]forge.Person{
		forge.PermissionAdmin: s.Admin, forge.PermissionWrite: s.Writer,
		forge.PermissionRead: s.Stranger,
	} {
		if got, err := s.forge.Permission(s.ctx, p); got != want || err != nil {
			s.Errorf("the permission of %s is %q (%v), not %q", p.Login, got, err, want)
		}
	}
	// An account that took a login gains none of its rights, and a renamed account keeps its own.
	if got, err := s.forge.Permission(s.ctx, forge.Person{
		ID: s.Stranger.ID, Login: s.Admin.Login}); err == nil && got != forge.PermissionRead {
		s.Errorf("under the administrator's login the stranger's permission is %q", got)
	}
	if got, err := s.forge.Permission(s.ctx, forge.Person{
		ID: 1 << 40, Login: s.Admin.Login}); err == nil && got != forge.PermissionNone {
		s.Errorf("the permission of an account that does not exist is %q", got)
	}
	if got, err := s.forge.Permission(s.ctx, forge.Person{Login: s.Admin.Login}); err == nil {
		s.Errorf("the permission of no account is %q", got)
	}
}
