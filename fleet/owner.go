package fleet

import (
	"errors"
	"fmt"
	"strings"
)

// Owner is an owner of a tenant or of the platform: a person or a team of the config repo's Git
// host, or a group of the identity provider. Exactly one of the two is set.
type Owner struct {
	Forge string // a login, "alice", or a team, "acme/leads"
	Group string
}

// String is the owner as it is written in a declaration.
func (o Owner) String() string {
	if o.Group != "" {
		return "group:" + o.Group
	}
	return "github:" + o.Forge
}

// Team returns the organization and the team of the owner; ok is false for a person and for a
// group.
func (o Owner) Team() (organization, team string, ok bool) { return strings.Cut(o.Forge, "/") }

const (
	mostLogin = 100 // characters; GitHub's own limit is 39 for a login and 100 for a team
	mostGroup = 200
)

// ParseOwner parses `github:<login>`, `github:<organization>/<team>` or `group:<name>`. The error
// contains the correct spelling.
func ParseOwner(s string) (Owner, error) {
	kind, name, found := strings.Cut(s, ":")
	switch {
	case !found || kind != "github" && kind != "group":
		return Owner{}, ownerWithoutKind(s, kind, found)
	case kind == "group":
		return groupOwner(name)
	case strings.HasPrefix(name, "@"):
		return Owner{}, fmt.Errorf("an owner is written without '@': github:%s",
			strings.TrimPrefix(name, "@"))
	}
	organization, team, isTeam := strings.Cut(name, "/")
	switch {
	case strings.Contains(team, "/"):
		return Owner{}, fmt.Errorf("a team is github:<organization>/<team>; %q has more parts",
			name)
	case !accountName(organization):
		return Owner{},
			fmt.Errorf(
				"%q is no account of a forge: 1 to %d letters, digits, '-', '_' and '.', "+
					"beginning with a letter or digit", organization, mostLogin)
	case isTeam && !accountName(team):
		return Owner{},
			fmt.Errorf(
				"%q is no team of a forge: 1 to %d letters, digits, '-', '_' and '.', as its "+
					"page's address names it", team, mostLogin)
	}
	return Owner{Forge: name}, nil
}

func ownerWithoutKind(s, kind string, found bool) error {
	bare := strings.TrimPrefix(s, "@")
	switch {
	case !found && accountName(strings.Replace(bare, "/", "", 1)):
		return fmt.Errorf(
			"an owner needs its kind: github:%s, or group:%s for a group that people sign in with",
			bare, bare)
	case found && (kind == "user" || kind == "team" || kind == "org" || kind == "gitea"):
		return fmt.Errorf(
			"people and teams of the forge are written github:<login> and "+
				"github:<organization>/<team>, not %q", kind)
	}
	return errors.New("an owner is github:<login>, github:<organization>/<team> or group:<name>")
}

func groupOwner(name string) (Owner, error) {
	if name == "" || len(name) > mostGroup || !alphanumeric(name[0]) || !onlyOf(name, "-_./:@") {
		return Owner{},
			fmt.Errorf(
				"a group is 1 to %d letters, digits, '-', '_', '.', '/', ':' and '@', beginning "+
					"with a letter or digit", mostGroup)
	}
	return Owner{Group: name}, nil
}

func accountName(s string) bool {
	return s != "" && len(s) <= mostLogin && alphanumeric(s[0]) && alphanumeric(s[len(s)-1]) &&
		onlyOf(s, "-_.")
}

// onlyOf reports whether s contains nothing but letters, digits and the given bytes.
func onlyOf(s, others string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
