package access

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// facts are a fleet with one entry for each role.
func facts() Facts {
	tenant := func(name string, spec fleet.TenantSpec) *fleet.Declaration {
		return &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindTenant, Name: name},
			Path: "fleet/tenants/" + name + ".yaml", Tenant: &spec}
	}
	return Facts{
		Access: &fleet.Declaration{Key: fleet.AccessKey(), Path: "fleet/access.yaml",
			Access: &fleet.AccessSpec{Admins: []string{"group:platform"},
				Operators: []string{"group:on-call", "github:Bob"},
				Viewers:   []string{"github:acme/auditors"}}},
		Tenants: []*fleet.Declaration{
			tenant("acme", fleet.TenantSpec{Owners: []string{"github:alice", "group:acme"},
				Members: []string{"group:acme-dev"}, Viewers: []string{"group:support"}}),
			tenant("globex", fleet.TenantSpec{Owners: []string{"group:globex"}}),
		},
		Pins: map[string]int64{"alice": 7, "acme/auditors": 70},
	}
}

func person(t *testing.T, entries string) Person {
	t.Helper()
	p, err := PersonOf(strings.Split(entries, ",")...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRolesComeFromEntriesOfFiles(t *testing.T) {
	for _, c := range []struct{ who, roles string }{
		{"group:platform", "admin of "},
		{"github:bob", "operator of "}, // Git hosts ignore case
		{"github:acme/auditors", "viewer of "},
		{"github:ALICE", "owner of acme"},
		{"group:acme-dev", "member of acme"},
		{"group:support", "viewer of acme"},
		{"group:acme,group:support,group:globex", "owner of acme, owner of globex"},
		{"group:Platform", ""}, // groups have a case
		{"github:mallory", ""},
		{"github:acme", ""},   // a person is no team
		{"group:admin", ""},   // a role's name
		{"group:admins", ""},  // a field's name
		{"group:alice", ""},   // a login
		{"github:acme-x", ""}, // a prefix
	} {
		t.Run(c.who, func(t *testing.T) {
			r := facts().Of(person(t, c.who))
			var got []string
			if r.Platform.Role != "" {
				got = append(got, fmt.Sprintf("%s of ", r.Platform.Role))
			}
			for _, n := range r.Names() {
				got = append(got, fmt.Sprintf("%s of %s", r.Tenants[n].Role, n))
			}
			if strings.Join(got, ", ") != c.roles {
				t.Errorf("%v, not %s", got, c.roles)
			}
		})
	}
}

// A login that was given up and taken by a stranger has another number.
func TestTheNumberOfAPinnedNameDecides(t *testing.T) {
	f := facts()
	for id, want := range map[int64]Role{7: Owner, 8: ""} {
		p := Person{Account: Account{Name: "alice", ID: id}}
		if got := f.Of(p).Tenants["acme"].Role; got != want {
			t.Errorf("number %d has the role %q", id, got)
		}
	}
	p := Person{Teams: []Account{{Name: "acme/auditors", ID: 71}}}
	if got := f.Of(p).Platform.Role; got != "" {
		t.Errorf("another team has the role %q", got)
	}
}

func TestADecisionNamesTheEntryThatGrantsIt(t *testing.T) {
	d := facts().Decide(person(t, "group:acme"), Approve, Thing{Kind: Tenant, Tenant: "acme"})
	if !d.Allowed || d.Grant.Path != "fleet/tenants/acme.yaml" ||
		d.Grant.Field != "spec.owners[1]" {
		t.Errorf("%+v", d)
	}
	d = facts().Decide(person(t, "group:acme-dev"), Approve, Thing{Kind: Tenant, Tenant: "acme"})
	if d.Allowed || d.Needs != Owner || !strings.Contains(d.Why, "role owner of tenant acme") {
		t.Errorf("%+v", d)
	}
}

// Each cell of the table: the least role may, the role below may not, and no role of another tenant
// or of none may.
func TestEachVerbTakesExactlyItsRole(t *testing.T) {
	tenants := []Role{"", Viewer, Member, Owner}
	platform := []Role{"", Viewer, Operator, Admin}
	for _, rule := range Table() {
		for _, kind := range rule.Kinds {
			thing := Thing{Kind: kind}
			if kind.OfTenant() {
				thing.Tenant = "acme"
			}
			for _, role := range tenants {
				grants := map[fleet.TenantName]Grant{"acme": {Role: role, Tenant: "acme"}}
				want := kind.OfTenant() && rule.Tenant != "" && role.rank() >= rule.Tenant.rank()
				if d := (Roles{Tenants: grants}).Decide(rule.Verb, thing); d.Allowed != want {
					t.Errorf("%s %s as %q of the tenant: %+v", rule.Verb, thing, role, d)
				}
				other := map[fleet.TenantName]Grant{"globex": {Role: role, Tenant: "globex"}}
				if d := (Roles{Tenants: other}).Decide(rule.Verb, thing); d.Allowed {
					t.Errorf("%s %s as %q of another tenant: %+v", rule.Verb, thing, role, d)
				}
			}
			for _, role := range platform {
				want := role.rank() >= rule.Platform.rank()
				if d := (Roles{Platform: Grant{Role: role}}).Decide(rule.Verb,
					thing); d.Allowed != want {
					t.Errorf("%s %s as %q of the platform: %+v", rule.Verb, thing, role, d)
				}
			}
		}
	}
}

// An operator who chooses a tenant decides there as an owner, and nothing of the platform.
func TestAChosenTenantEndsTheRightsOfThePlatform(t *testing.T) {
	all := facts().Of(person(t, "group:on-call,group:support"))
	r := all.Within("acme")
	if d := r.Decide(Stop, Thing{Kind: Engine}); d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := r.Decide(View, Thing{Kind: Tenant, Tenant: "globex"}); d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := r.Decide(Approve, Thing{Kind: Tenant, Tenant: "acme"}); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if r := facts().Of(person(t, "group:support")).Within("globex"); !r.None() {
		t.Errorf("%+v", r)
	}
}

func TestTokensHaveTheRolesThatTheyAlwaysHad(t *testing.T) {
	for _, c := range []struct {
		tenant       fleet.TenantName
		write, owner bool
		want         Role
	}{{"", true, false, Admin}, {"", false, false, Viewer}, {"acme", true, false, Member},
		{"acme", true, true, Owner}, {"acme", false, true, Viewer}} {
		r := OfToken(c.tenant, c.write, c.owner)
		if got := max(r.Platform.Role, r.Tenants[c.tenant].Role); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestAPersonHasOneNameInRecords(t *testing.T) {
	for want, p := range map[string]Person{
		"user:corp/alice": {Issuer: "corp", Subject: "x", Name: "alice"},
		"github:alice":    {Issuer: "git", Name: "Alice", Account: Account{Name: "Alice", ID: 7}},
	} {
		if got := p.Actor(); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func FuzzThings(f *testing.F) {
	for _, s := range []string{"fleet", "engine/eu-1", "tenant/acme", "application/acme/web@prod",
		"tenant/", "fleet/x", "x", "application/../web"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		thing, err := ParseThing(s)
		if err != nil {
			return
		}
		again, err := ParseThing(thing.String())
		if err != nil || again != thing {
			t.Errorf("%q is %+v, and then %+v, %v", s, thing, again, err)
		}
		if thing.Kind.OfTenant() && thing.Tenant == "" {
			t.Errorf("%q is of no tenant", s)
		}
	})
}

func FuzzEntries(f *testing.F) {
	for _, s := range []string{"github:alice", "group:platform", "github:acme/leads", "group:",
		"group:a:b@c", "github:a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := PersonOf(s)
		if err != nil {
			return
		}
		f := Facts{Access: &fleet.Declaration{Access: &fleet.AccessSpec{Viewers: []string{s}}}}
		if f.Of(p).Platform.Role != Viewer {
			t.Errorf("%q does not name itself", s)
		}
		if !facts().Of(p).None() != named(s) {
			t.Errorf("%q has a role", s)
		}
	})
}

// named reports whether the entry is one of the facts.
func named(s string) bool {
	for _, e := range []string{"group:platform", "group:on-call", "group:acme", "group:acme-dev",
		"group:support", "group:globex"} {
		if e == s {
			return true
		}
	}
	return strings.EqualFold(s, "github:bob") || strings.EqualFold(s, "github:alice") ||
		strings.EqualFold(s, "github:acme/auditors")
}

// The table of the documentation is that of the code.
func TestTheDocumentedTableIsThatOfTheCode(t *testing.T) {
	var want strings.Builder
	for _, r := range Table() {
		tenant := string(r.Tenant)
		if tenant == "" {
			tenant = "-"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", r.Verb, r.Doc, words(r.Kinds), tenant,
			r.Platform)
	}
	doc, err := os.ReadFile("../../docs/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("docs/roles.md needs these rows:\n%s", want.String())
	}
}
