package catalog

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

func notifications(tenant fleet.TenantName, set fleet.NotificationSettings) Input {
	return declare(fleet.Declaration{Key: NotificationsKey(tenant), Notifications: &set})
}

func toMail(address string) fleet.NotificationSettings {
	return fleet.NotificationSettings{Channels: []fleet.Channel{{Name: "mail",
		Email: &fleet.EmailChannel{To: []string{address}}}}}
}

func toHook(url string) fleet.NotificationSettings {
	return fleet.NotificationSettings{Channels: []fleet.Channel{{Name: "hook",
		Webhook: &fleet.WebhookChannel{URL: url}}}}
}

func toCommits(api fleet.CommitHostAPI, repository string) fleet.NotificationSettings {
	return fleet.NotificationSettings{CommitStatuses: []fleet.CommitStatuses{{Name: "git", API: api,
		Repositories: []string{repository}}}}
}

func TestChannelsGoWhereTheFleetAllows(t *testing.T) {
	allows := func(d *fleet.Declaration) {
		d.Fleet.Notifications = &fleet.FleetNotifications{
			AllowedHosts: []string{"alerts.example.com", ".hooks.example.com",
				"h.example.com:8443"},
			EmailDomains: []string{"example.com"},
			SMTP:         &fleet.SMTPServer{Host: "smtp.example.com"}}
	}
	for _, c := range []struct {
		name string
		set  fleet.NotificationSettings
		want string
	}{
		{"an address of the domain", toMail("team@example.com"), ""},
		{"an address below the domain", toMail("team@mail.example.com"), "channels[0].email.to[0]"},
		{"an address of another domain", toMail("team@example.org"), "channels[0].email.to[0]"},
		{"an exact host", toHook("https://alerts.example.com/x"), ""},
		{"another port of the host", toHook("https://alerts.example.com:8443/x"),
			"channels[0].webhook.url"},
		{"the port that is allowed", toHook("https://h.example.com:8443/x"), ""},
		{"a host below the domain", toHook("https://a.hooks.example.com/x"), ""},
		{"the domain itself", toHook("https://hooks.example.com/x"), "channels[0].webhook.url"},
		{"commits on an allowed host", toCommits("Gitea", "ssh://git@alerts.example.com:2222/acme/"),
			""},
		{"commits on another host", toCommits("GitHub", "https://github.com/acme/"),
			"commitStatuses[0].repositories[0]"},
		{"commits of an OCI artifact", toCommits("GitHub", "oci://alerts.example.com/acme/"),
			"commitStatuses[0].repositories[0]"},
		{"a name that ends alike", toHook("https://evilhooks.example.com/x"),
			"channels[0].webhook.url"},
	} {
		t.Run(c.name, func(t *testing.T) {
			catalog := New()
			good(t, catalog, remake(theFleet(), allows), tenant("acme"))
			problems := catalog.Prepare([]Input{notifications("acme", c.set)}).Problems()
			got := ""
			if len(problems) > 0 {
				got = problems[0].Field
			}
			if c.want != "" {
				c.want = "spec." + c.want
			}
			if got != c.want || len(problems) > 1 {
				t.Errorf("problems %+v, want one of %q", problems, c.want)
			}
		})
	}
}

func TestANarrowerFleetKeepsTheChannelsThatWereGood(t *testing.T) {
	catalog := New()
	wide := remake(theFleet(), func(d *fleet.Declaration) {
		d.Fleet.Notifications = &fleet.FleetNotifications{AllowedHosts: []string{"a.example.com"}}
	})
	good(t, catalog, wide, tenant("acme"), notifications("acme", toHook("https://a.example.com/")))
	next := catalog.Prepare([]Input{theFleet()})
	if p := next.Problems(); len(p) != 1 || p[0].Code != codeReceiver ||
		p[0].Key != NotificationsKey("acme") {
		t.Fatalf("%+v", p)
	}
	next.Commit()
	if set := catalog.Notifications("acme"); set == nil || len(set.Channels) != 1 {
		t.Errorf("the last good version is not in effect: %+v", set)
	}
	if p := catalog.Prepare([]Input{wide}).Problems(); len(p) != 0 {
		t.Errorf("the file stays rejected after its host is allowed: %+v", p)
	}
}

func TestASubscriptionToAMissingChannelIsAWarning(t *testing.T) {
	catalog := New()
	web := remake(deployment("acme/web", "prod"), func(d *fleet.Declaration) {
		d.Deployment.Subscriptions = []fleet.Subscription{{Name: "own", Channels: []string{"hok"},
			Triggers: []fleet.TriggerSetting{{When: fleet.TriggerDegraded}}}}
	})
	good(t, catalog, remake(theFleet(), func(d *fleet.Declaration) {
		d.Fleet.Notifications = &fleet.FleetNotifications{AllowedHosts: []string{"a.example.com"}}
	}), engine("eu-1"), tenant("acme"), environment("acme/prod"))
	first := catalog.Prepare([]Input{web})
	if p := first.Problems(); len(p) != 1 || p[0].Code != codeNoChannel ||
		p[0].Severity != fleet.SeverityWarning {
		t.Fatalf("%+v", p)
	}
	first.Commit()
	set := toHook("https://a.example.com/")
	set.Channels[0].Name = "hok"
	if p := catalog.Prepare([]Input{notifications("acme", set)}).Problems(); len(p) != 0 {
		t.Errorf("the warning stays although the channel exists: %+v", p)
	}
}
