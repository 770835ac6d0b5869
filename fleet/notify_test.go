package fleet

import (
	"strings"
	"testing"
)

func TestANotificationNeedsAGrantOfItsRecipients(t *testing.T) {
	grants := []NotificationGrant{{Service: "slack", Recipients: []string{"acme-a", "acme-b"}},
		{Service: "email"}}
	slack := func(recipients ...string) Notification {
		return Notification{Service: "slack", Recipients: recipients}
	}
	for name, c := range map[string]struct {
		n    Notification
		want bool
	}{
		"granted":             {slack("acme-b"), true},
		"one of two":          {slack("acme-a", "x"), false},
		"a beginning":         {slack("acme"), false},
		"without a recipient": {slack(), false},
		"any of a service": {Notification{Service: "email",
			Recipients: []string{"a@example.com"}}, true},
		"another service": {Notification{Service: "teams"}, false},
	} {
		if got := NotificationGranted(grants, c.n); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Argo CD splits keys at dots and recipients at semicolons.
func TestANotificationIsOneKeyAndItsRecipients(t *testing.T) {
	for name, c := range map[string]struct {
		n  Notification
		ok bool
	}{
		"trigger and service": {Notification{Trigger: "on-sync-failed", Service: "slack"}, true},
		"default triggers":    {Notification{Service: "slack", Recipients: []string{"#a"}}, true},
		"no service":          {Notification{Trigger: "on-sync-failed"}, false},
		"a dot":               {Notification{Service: "on-failed.slack"}, false},
		"a semicolon":         {Notification{Service: "s", Recipients: []string{"a;b"}}, false},
		"a blank":             {Notification{Service: "s", Recipients: []string{"a b"}}, false},
		"an empty recipient":  {Notification{Service: "s", Recipients: []string{""}}, false},
		"63 characters": {Notification{Trigger: strings.Repeat("t", 26),
			Service: strings.Repeat("s", 26)}, true},
		"64 characters": {Notification{Trigger: strings.Repeat("t", 26),
			Service: strings.Repeat("s", 27)}, false},
	} {
		if err := c.n.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWatchedPathsArePlain(t *testing.T) {
	for p, want := range map[string]bool{".": true, "/": true, "base": true, "/shared/base": true,
		"": false, "../base": false, "/../base": false, "*.yaml": false, "a;b": false, "//a": false,
		"/a/": false, "./a": false, " a": false, "/.": false, "a/.git": false} {
		if err := CheckWatchPath(p); (err == nil) != want {
			t.Errorf("%q: %v", p, err)
		}
	}
}
