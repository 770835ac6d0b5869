// Package access decides who may do what. It is the only place that does.
//
// A person, or the token of a machine, has at most one role of the platform and one of each tenant.
// The files of fleet/ that are in effect grant the roles: fleet/access.yaml those of the platform,
// and each Tenant its own by owners, members and viewers. Roles.Decide compares a role with the
// table of verbs, which docs/roles.md shows.
//
// Rules of this package:
//   - pure: values in, values out;
//   - what no entry grants is refused;
//   - only the entries of files grant roles, never a name that an identity provider sends: a group
//     named "admin" is the group that an entry `group:admin` names, and nothing else;
//   - the Git host's number of an account or team decides, where the Git host has pinned one.
package access

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Role is what a person may do in the platform or in one tenant. Role "" is none.
type Role string

// Roles of the platform and of a tenant, each with all rights of those before it.
const (
	Viewer   Role = "viewer"   // of the platform, and of a tenant
	Member   Role = "member"   // of a tenant
	Owner    Role = "owner"    // of a tenant
	Operator Role = "operator" // of the platform
	Admin    Role = "admin"    // of the platform
)

// rank orders the roles of the platform, and those of a tenant.
func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Member, Operator:
		return 2
	case Owner, Admin:
		return 3
	}
	return 0
}

// covers reports whether the role includes the rights of another one of the same scope.
func (r Role) covers(least Role) bool { return least != "" && r.rank() >= least.rank() }

// Person is what an identity provider has proven of a person.
type Person struct {
	Issuer  string   // name of the identity provider in the settings, e.g. corp
	Subject string   // the issuer's unchangeable key of the person
	Name    string   // username, for people and records
	Groups  []string // of the issuer, as `group:` entries name them
	Account Account  // of the Git host; empty: none is proven
	Teams   []Account
}

// Account is an account, or a team, of the config repo's Git host.
type Account struct {
	Name string // a login, or organization/team
	ID   int64  // the Git host's number; 0: unknown, as in a question about somebody else
}

// Actor names the person in every record: "github:<login>" if the issuer has proven the account on
// the Git host, else "user:<issuer>/<name>".
func (p Person) Actor() string {
	if p.Account.Name != "" {
		return fleet.Owner{Forge: strings.ToLower(p.Account.Name)}.String()
	}
	return "user:" + p.Issuer + "/" + p.Name
}

// PersonOf is somebody with exactly the given entries: a login, teams and groups.
func PersonOf(entries ...string) (Person, error) {
	var p Person
	for _, e := range entries {
		o, err := fleet.ParseOwner(e)
		if err != nil {
			return p, err
		}
		_, _, team := o.Team()
		switch {
		case o.Group != "":
			p.Groups = append(p.Groups, o.Group)
		case team:
			p.Teams = append(p.Teams, Account{Name: o.Forge})
		default:
			p.Account = Account{Name: o.Forge}
		}
	}
	return p, nil
}

// Entries are all entries of files that name the person, in lower case.
func (p Person) Entries() []string {
	var entries []string
	for _, g := range p.Groups {
		entries = append(entries, strings.ToLower(fleet.Owner{Group: g}.String()))
	}
	for _, a := range append([]Account{p.Account}, p.Teams...) {
		if a.Name != "" {
			entries = append(entries, strings.ToLower(fleet.Owner{Forge: a.Name}.String()))
		}
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// Names are the person's names on the Git host, in lower case, as they are pinned.
func (p Person) Names() []string {
	var names []string
	for _, a := range append([]Account{p.Account}, p.Teams...) {
		if a.Name != "" {
			names = append(names, strings.ToLower(a.Name))
		}
	}
	return names
}

// Grant is a role with the entry that gives it.
type Grant struct {
	Role    Role             `json:"role"`
	Tenant  fleet.TenantName `json:"tenant,omitempty"`  // empty: of the platform
	Subject string           `json:"subject,omitempty"` // the entry; empty: a token itself
	Path    string           `json:"path,omitempty"`    // of the file
	Field   string           `json:"field,omitempty"`   // e.g. spec.owners[0]
	Blob    string           `json:"-"`                 // Git's id of the file's content
}

// Roles are the roles of one caller.
type Roles struct {
	Platform Grant
	Tenants  map[fleet.TenantName]Grant
}

// Facts are the files in effect that grant roles, and the pinned names of the Git host.
type Facts struct {
	Access  *fleet.Declaration   // nil: there is none
	Tenants []*fleet.Declaration // those that may name the person
	// numbers of accounts and teams that count, by name in lower case
	Pins map[string]int64
}

// Of returns the roles of a person: of the platform, and of each tenant, the one with the most
// rights.
func (f Facts) Of(p Person) Roles {
	roles := Roles{Tenants: map[fleet.TenantName]Grant{}}
	if f.Access != nil && f.Access.Access != nil {
		a := f.Access.Access
		roles.Platform = f.first(p, f.Access, "",
			entries{Admin, "admins", a.Admins}, entries{Operator, "operators", a.Operators},
			entries{Viewer, "viewers", a.Viewers})
	}
	for _, d := range f.Tenants {
		if d.Tenant == nil {
			continue
		}
		name := fleet.TenantName(d.Key.Name)
		if g := f.first(p, d, name, entries{Owner, "owners", d.Tenant.Owners},
			entries{Member, "members", d.Tenant.Members},
			entries{Viewer, "viewers", d.Tenant.Viewers}); g.Role != "" {
			roles.Tenants[name] = g
		}
	}
	return roles
}

// entries are a field of a file that grants a role.
type entries struct {
	role  Role
	field string
	list  []string
}

// first returns the first entry that names the person.
func (f Facts) first(p Person, d *fleet.Declaration, t fleet.TenantName,
	fields ...entries) Grant {
	for _, e := range fields {
		for i, entry := range e.list {
			if f.names(entry, p) {
				return Grant{Role: e.role, Tenant: t, Subject: entry, Path: d.Path, Blob: d.Blob,
					Field: "spec." + e.field + "[" + strconv.Itoa(i) + "]"}
			}
		}
	}
	return Grant{}
}

// names reports whether an entry names the person. Names of the Git host ignore case, as the Git
// host does; groups do not.
func (f Facts) names(entry string, p Person) bool {
	o, err := fleet.ParseOwner(entry)
	if err != nil {
		return false
	}
	if o.Group != "" {
		return slices.Contains(p.Groups, o.Group)
	}
	accounts := p.Teams
	if _, _, team := o.Team(); !team {
		accounts = []Account{p.Account}
	}
	return slices.ContainsFunc(accounts, func(a Account) bool {
		if a.Name == "" || !strings.EqualFold(a.Name, o.Forge) {
			return false
		}
		pinned, ok := f.Pins[strings.ToLower(o.Forge)]
		return !ok || a.ID == 0 || pinned == a.ID
	})
}

// OfToken returns the roles of a machine's token: of the platform for tenant "", else of that
// tenant. It approves only if it is an owner's.
func OfToken(t fleet.TenantName, write, owner bool) Roles {
	g := Grant{Role: Viewer, Tenant: t}
	switch {
	case write && t == "":
		g.Role = Admin
	case write && owner:
		g.Role = Owner
	case write:
		g.Role = Member
	}
	if t == "" {
		return Roles{Platform: g}
	}
	return Roles{Tenants: map[fleet.TenantName]Grant{t: g}}
}

// None reports whether there is no role at all.
func (r Roles) None() bool { return r.Platform.Role == "" && len(r.Tenants) == 0 }

// Names are the tenants with a role of their own, sorted.
func (r Roles) Names() []fleet.TenantName { return slices.Sorted(maps.Keys(r.Tenants)) }

// Within narrows the roles to one tenant. A role of the platform becomes one of the tenant: an
// operator may do there what an owner may, and nothing of the platform.
func (r Roles) Within(t fleet.TenantName) Roles {
	own, platform := r.Tenants[t], r.Platform
	if platform.Role != "" {
		platform.Tenant = t
		if platform.Role != Viewer {
			platform.Role = Owner
		}
	}
	if platform.Role.rank() > own.Role.rank() {
		own = platform
	}
	if own.Role == "" {
		return Roles{}
	}
	return Roles{Tenants: map[fleet.TenantName]Grant{t: own}}
}
