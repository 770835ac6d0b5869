package notify

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
)

// Text is a notification for people. Every string is one printable line; Untrusted strings come
// from a workload, and hold no link that a client would follow or turn into one.
type Text struct {
	Title  string
	Fields []Field
	Link   string // to the page; "": the address of the page is not configured
	Next   string // what to do
}

// Field is one fact of a Text.
type Field struct {
	Name, Value string
	Untrusted   bool
}

// maxMessage limits the characters of a workload's text in a message.
const maxMessage = 700

// Describe returns the text of a notification. public is the address of the page, or "".
func Describe(n mirror.Notification, public string) Text {
	t := Text{Title: title(n)}
	add := func(name, value string, untrusted bool) {
		if value != "" {
			t.Fields = append(t.Fields, Field{name, value, untrusted})
		}
	}
	if !n.Over {
		add("Message", Sanitize(n.Message, maxMessage), true)
	}
	if n.Trigger != fleet.TriggerTest {
		add("Since", n.Since.UTC().Format("2006-01-02 15:04:05 UTC"), false)
	}
	if n.Over && !n.Since.IsZero() && n.At.After(n.Since) {
		add("Lasted", fleet.Duration(n.At.Sub(n.Since).Round(time.Second)).Short(), false)
	}
	if n.Applications > 0 {
		add("Applications", fmt.Sprintf("%d; no further messages about them are sent meanwhile",
			n.Applications), false)
	}
	add("Commit", Sanitize(n.Commit, 64), true)
	add("Config commit", n.Revision.Short(), false)
	if n.Deployment != "" || n.Environment != "" {
		add("Engine", string(n.Engine), false)
	}
	if path := page(n); public != "" && path != "" {
		t.Link = strings.TrimSuffix(public, "/") + path
	}
	t.Next = next(n)
	return t
}

func title(n mirror.Notification) string {
	app := fleet.ApplicationID{Tenant: n.About, Deployment: n.Deployment,
		Environment: n.Environment}.String()
	env := fleet.EnvironmentID{Tenant: n.About, Name: n.Environment}.String()
	switch n.Trigger {
	case fleet.TriggerDegraded:
		return app + " is Degraded"
	case fleet.TriggerSyncFailed:
		return "the sync of " + app + " failed"
	case fleet.TriggerHealthyAgain:
		return app + " is well again"
	case fleet.TriggerHalted:
		return "the rollout of " + string(n.About) + "/" + string(n.Deployment) + " has halted"
	case fleet.TriggerHeld:
		switch {
		case n.Deployment != "":
			return "the rollout of " + string(n.About) + "/" + string(n.Deployment) +
				" waits for an approval"
		case n.About != "":
			return "a change of tenant " + string(n.About) + " waits for an approval"
		}
		return "a change of the fleet waits for an approval"
	case fleet.TriggerSilent:
		if n.Over {
			return "engine " + string(n.Engine) + " is followed again"
		}
		return "engine " + string(n.Engine) + " is silent"
	case fleet.TriggerUnreachable:
		if n.Over {
			return "environment " + env + " is reachable again"
		}
		return "environment " + env + " is unreachable"
	}
	return "test message of Argosy"
}

func page(n mirror.Notification) string {
	e := url.PathEscape
	switch {
	case n.Deployment != "" && n.Environment != "":
		return "/tenants/" + e(string(n.About)) + "/applications/" + e(string(n.Deployment)) + "/" +
			e(string(n.Environment))
	case n.Deployment != "":
		return "/tenants/" + e(string(n.About)) + "/rollouts/" + e(string(n.Deployment))
	case n.Environment != "":
		return "/tenants/" + e(string(n.About)) + "/environments/" + e(string(n.Environment))
	case n.Engine != "" && n.Tenant == "":
		return "/engines/" + e(string(n.Engine))
	case n.About != "":
		return "/tenants/" + e(string(n.About))
	}
	return "/"
}

func next(n mirror.Notification) string {
	if n.Over {
		return ""
	}
	tenant := ""
	if n.About != "" {
		tenant = " --tenant " + string(n.About)
	}
	switch n.Trigger {
	case fleet.TriggerDegraded, fleet.TriggerSyncFailed:
		return "argosy describe application " + fleet.ApplicationID{Tenant: n.About,
			Deployment: n.Deployment, Environment: n.Environment}.String()
	case fleet.TriggerHalted:
		return "argosy describe rollout " + string(n.About) + "/" + string(n.Deployment)
	case fleet.TriggerHeld:
		if n.Deployment != "" {
			return "argosy rollouts approve " + string(n.About) + "/" + string(n.Deployment)
		}
		return "argosy get holds" + tenant
	case fleet.TriggerSilent:
		if n.Tenant == "" {
			return "argosy describe engine " + string(n.Engine)
		}
		return "argosy get applications" + tenant
	case fleet.TriggerUnreachable:
		return "argosy describe environment " + fleet.EnvironmentID{Tenant: n.About,
			Name: n.Environment}.String()
	}
	return ""
}

// Sanitize returns text of a workload on one line of at most n characters. Characters that are not
// printed are escaped, and "://" is written "[:]//", so that no client makes a link of it.
func Sanitize(s string, n int) string {
	if len(s) > 4*n+utf8.UTFMax { // more bytes are never shown
		s = s[:4*n+utf8.UTFMax]
	}
	s = strings.ReplaceAll(printable.Line(strings.ToValidUTF8(s, "\uFFFD")), "://", "[:]//")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// Subject is the one line of several notifications.
func Subject(all []mirror.Notification) string {
	if len(all) == 1 {
		return title(all[0])
	}
	counts := map[fleet.Trigger]int{}
	var order []fleet.Trigger
	for _, n := range all {
		if counts[n.Trigger] == 0 {
			order = append(order, n.Trigger)
		}
		counts[n.Trigger]++
	}
	var parts []string
	for _, t := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[t], t))
	}
	return fmt.Sprintf("%d events: %s", len(all), strings.Join(parts, ", "))
}
