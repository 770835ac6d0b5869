package fleet

import (
	"strings"
	"testing"
)

func TestAnOwnerIsReadExactly(t *testing.T) {
	for text, want := range map[string]Owner{
		"github:alice":           {Forge: "alice"},
		"github:acme/leads":      {Forge: "acme/leads"},
		"github:alice_acme":      {Forge: "alice_acme"},
		"github:acme/on-call.eu": {Forge: "acme/on-call.eu"},
		"group:acme-admins":      {Group: "acme-admins"},
		"group:acme/admins":      {Group: "acme/admins"},
	} {
		got, err := ParseOwner(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if org, team, ok := (Owner{Forge: "acme/leads"}).Team(); org != "acme" || team != "leads" ||
		!ok {
		t.Errorf("the team is %q of %q, %v", team, org, ok)
	}
	if _, _, ok := (Owner{Forge: "alice"}).Team(); ok {
		t.Error("a person is a team")
	}
}

func TestTheErrorForAnInvalidOwnerNamesTheFix(t *testing.T) {
	for text, want := range map[string]string{
		"alice":                              "github:alice, or group:alice",
		"@acme/leads":                        "github:acme/leads, or group:acme/leads",
		"github:@alice":                      "without '@': github:alice",
		"github:":                            "is no account",
		"github:/leads":                      "is no account",
		"github:acme/":                       "is no team",
		"github:acme/a/b":                    "has more parts",
		"github:al ice":                      "is no account",
		"github:alice-":                      "is no account",
		"github:..":                          "is no account",
		"github:alícia":                      "is no account",
		"github:" + strings.Repeat("a", 101): "is no account",
		"user:alice":                         `not "user"`,
		"team:acme/leads":                    `not "team"`,
		"group:":                             "a group is",
		"group:-a":                           "a group is",
		"group:a b":                          "a group is",
		"alice@example.com":                  "an owner is github:<login>",
		"":                                   "an owner is github:<login>",
		"GitHub:alice":                       "an owner is github:<login>",
	} {
		if got, err := ParseOwner(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, got, err, want)
		}
	}
}
