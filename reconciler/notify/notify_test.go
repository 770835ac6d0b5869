package notify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// memory is what a store keeps between decisions.
type memory struct {
	settings Settings
	facts    mirror.NotifyFacts
	open     map[string]mirror.Incident
}

func newMemory(subs ...fleet.Subscription) *memory {
	tenant := &fleet.NotificationSettings{Subscriptions: subs}
	return &memory{open: map[string]mirror.Incident{}, settings: Settings{
		Tenant:     func(fleet.TenantName) *fleet.NotificationSettings { return tenant },
		Deployment: func(fleet.DeploymentID) *fleet.DeploymentSpec { return nil },
		Labels: func(id fleet.EnvironmentID) map[string]string {
			return map[string]string{"tier": strings.Split(string(id.Name), "-")[0]}
		}}}
}

// decide takes one decision now and remembers what a store would.
func (w *memory) decide() []mirror.Notification {
	w.facts.Now = time.Now()
	w.facts.Open = nil
	for _, k := range slices.Sorted(maps.Keys(w.open)) {
		w.facts.Open = append(w.facts.Open, w.open[k])
	}
	step := Decide(w.facts, w.settings)
	for _, i := range step.Drop {
		delete(w.open, identity(&i))
	}
	for _, i := range step.Put {
		w.open[identity(&i)] = i
	}
	return step.Send
}

func (w *memory) app(health mirror.HealthState) {
	w.facts.Applications = []mirror.NotifyApplication{appOf("web", "prod-eu", health)}
}

func appOf(deployment, env string, health mirror.HealthState) mirror.NotifyApplication {
	return mirror.NotifyApplication{ID: fleet.ApplicationID{Tenant: "acme",
		Deployment: fleet.DeploymentName(deployment), Environment: fleet.EnvironmentName(env)},
		Engine: "eu-1", Health: health, Phase: "Succeeded", ObservedAt: time.Now()}
}

func sub(name string, when ...fleet.TriggerSetting) fleet.Subscription {
	return fleet.Subscription{Name: name, Channels: []string{"chat"}, Triggers: when}
}

func when(t fleet.Trigger, wait time.Duration) fleet.TriggerSetting {
	return fleet.TriggerSetting{When: t, For: fleet.Duration(wait)}
}

func wantTitles(t *testing.T, got []mirror.Notification, want ...string) {
	t.Helper()
	var titles []string
	for _, n := range got {
		titles = append(titles, n.Channel+": "+title(n))
	}
	if !slices.Equal(titles, want) {
		t.Fatalf("messages\n%q, want\n%q", titles, want)
	}
}

func TestADegradedApplicationIsOneMessageAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 5*time.Minute),
			when(fleet.TriggerHealthyAgain, 0)))
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide())
		time.Sleep(5*time.Minute - time.Second)
		wantTitles(t, w.decide())
		time.Sleep(time.Second)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
		time.Sleep(time.Hour)
		wantTitles(t, w.decide())
		w.app(mirror.HealthProgressing)
		wantTitles(t, w.decide())
		w.app(mirror.HealthHealthy)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is well again")
		wantTitles(t, w.decide())
		if len(w.open) != 0 {
			t.Error("incidents are kept for good:", w.open)
		}
	})
}

func TestAStateThatEndsBeforeItsTimeIsNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 5*time.Minute),
			when(fleet.TriggerHealthyAgain, 0)))
		for range 10 {
			w.app(mirror.HealthDegraded)
			wantTitles(t, w.decide())
			time.Sleep(4 * time.Minute)
			w.app(mirror.HealthProgressing)
			wantTitles(t, w.decide())
			time.Sleep(2 * time.Minute)
		}
	})
}

func TestAFlappingApplicationIsOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0),
			when(fleet.TriggerHealthyAgain, 10*time.Minute)))
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
		for range 5 {
			w.app(mirror.HealthHealthy)
			wantTitles(t, w.decide())
			time.Sleep(9 * time.Minute)
			w.app(mirror.HealthDegraded)
			wantTitles(t, w.decide())
		}
		w.app(mirror.HealthHealthy)
		wantTitles(t, w.decide())
		time.Sleep(10 * time.Minute)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is well again")
	})
}

func TestASilentEngineIsOneMessageAndItsApplicationsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0),
			when(fleet.TriggerHealthyAgain, 0), when(fleet.TriggerSilent, 0)))
		w.settings.Fleet = &fleet.FleetNotifications{Subscriptions: []fleet.Subscription{
			sub("platform", when(fleet.TriggerSilent, 0))}}
		var apps []mirror.NotifyApplication
		for i := range 500 {
			a := appOf(fmt.Sprintf("web-%d", i), "prod-eu", mirror.HealthDegraded)
			a.Unknown = true
			apps = append(apps, a)
		}
		w.facts.Applications = apps
		w.facts.Silent = []mirror.SilentEngine{{Engine: "eu-1", Since: time.Now(),
			Applications: map[fleet.TenantName]int{"acme": 500}}}
		got := w.decide()
		wantTitles(t, got, "chat: engine eu-1 is silent", "chat: engine eu-1 is silent")
		if got[0].Tenant != "" || got[1].Tenant != "acme" || got[1].Applications != 500 {
			t.Errorf("owners %q and %q, %d Applications", got[0].Tenant, got[1].Tenant,
				got[1].Applications)
		}
		time.Sleep(time.Hour)
		wantTitles(t, w.decide())
		w.facts.Silent, w.facts.Applications = nil, nil
		wantTitles(t, w.decide(), "chat: engine eu-1 is followed again",
			"chat: engine eu-1 is followed again")
		wantTitles(t, w.decide())
	})
}

func TestAnIncidentOutlastsTheSilenceOfItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0),
			when(fleet.TriggerHealthyAgain, 0)))
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
		w.facts.Applications[0].Unknown = true
		w.facts.Applications[0].Health = mirror.HealthHealthy
		wantTitles(t, w.decide())
		w.facts.Applications[0].Unknown = false
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is well again")
	})
}

func TestTheEndGoesToTheChannelsThatGotTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := sub("late", when(fleet.TriggerDegraded, time.Hour),
			when(fleet.TriggerHealthyAgain, 0))
		late.Channels = []string{"mail"}
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0),
			when(fleet.TriggerHealthyAgain, 0)), late)
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
		w.app(mirror.HealthHealthy)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is well again")
	})
}

func TestADeletedApplicationIsNotWellAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0),
			when(fleet.TriggerHealthyAgain, 0)))
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
		w.facts.Applications = nil
		wantTitles(t, w.decide())
		if len(w.open) != 0 {
			t.Error("the incident is kept:", w.open)
		}
	})
}

func TestADeploymentReplacesAndMutesSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("noise", when(fleet.TriggerDegraded, 0)),
			sub("slow", when(fleet.TriggerDegraded, time.Hour)))
		own := sub("slow", when(fleet.TriggerDegraded, time.Minute))
		own.Channels = []string{"own"}
		w.settings.Deployment = func(id fleet.DeploymentID) *fleet.DeploymentSpec {
			return &fleet.DeploymentSpec{Subscriptions: []fleet.Subscription{{Name: "noise"}, own}}
		}
		w.app(mirror.HealthDegraded)
		wantTitles(t, w.decide())
		time.Sleep(time.Minute)
		wantTitles(t, w.decide(), "own: acme/web@prod-eu is Degraded")
	})
}

func TestASelectorNarrowsASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sub("prod", when(fleet.TriggerDegraded, 0))
		s.EnvironmentSelector = &fleet.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}
		w := newMemory(s)
		w.facts.Applications = []mirror.NotifyApplication{
			appOf("web", "prod-eu", mirror.HealthDegraded),
			appOf("web", "test-eu", mirror.HealthDegraded)}
		wantTitles(t, w.decide(), "chat: acme/web@prod-eu is Degraded")
	})
}

func TestAHeldChangeIsOneMessageWhileCommitsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerHeld, 0), when(fleet.TriggerHalted, 0)))
		w.facts.Holds = []mirror.Hold{{Revision: "a", Reason: mirror.HoldDeletions, Tenant: "acme",
			Message: "40 Applications", Since: time.Now()},
			{Revision: "z", Reason: mirror.HoldDeletions, Tenant: "acme",
				Since: time.Now().Add(-time.Hour)},
			{Revision: "a", Reason: mirror.HoldFrozen, Tenant: "acme", Since: time.Now()}}
		w.facts.Rollouts = []mirror.Rollout{{ID: "r1", Tenant: "acme", Deployment: "web",
			State: mirror.RolloutFailed, BegunAt: time.Now()}}
		wantTitles(t, w.decide(), "chat: the rollout of acme/web has halted",
			"chat: a change of tenant acme waits for an approval")
		w.facts.Holds[0].Revision = "b"
		w.facts.Rollouts[0].State = mirror.RolloutReturning
		wantTitles(t, w.decide())
		w.facts.Holds, w.facts.Rollouts = nil, nil
		wantTitles(t, w.decide())
		if len(w.open) != 0 {
			t.Error("incidents are kept:", w.open)
		}
	})
}

func TestADecisionTakenTwiceIsOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemory(sub("all", when(fleet.TriggerDegraded, 0)))
		w.app(mirror.HealthDegraded)
		w.facts.Now = time.Now()
		first := Decide(w.facts, w.settings).Send
		second := Decide(w.facts, w.settings).Send
		if len(first) != 1 || first[0].ID != second[0].ID || len(first[0].ID) != 32 {
			t.Errorf("IDs of one event: %v and %v", first, second)
		}
	})
}

func TestMessagesWaitForTheEndOfQuietHoursAndForTheDigest(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	night := &fleet.QuietHours{From: "22:00", To: "07:00", TimeZone: "Europe/Berlin"}
	noon := &fleet.QuietHours{From: "12:00", To: "13:00"}
	for _, c := range []struct {
		name, now, want string
		quiet           *fleet.QuietHours
		digest          time.Duration
		urgent          bool
	}{
		{"by day", "2026-06-10T10:00:00Z", "2026-06-10T10:00:00Z", night, 0, false},
		{"before midnight", "2026-06-10T21:30:00Z", "2026-06-11T05:00:00Z", night, 0, false},
		{"after midnight", "2026-06-11T03:00:00Z", "2026-06-11T05:00:00Z", night, 0, false},
		{"in winter", "2026-12-10T21:30:00Z", "2026-12-11T06:00:00Z", night, 0, false},
		{"the night of the change", "2026-03-28T23:00:00Z", "2026-03-29T05:00:00Z", night, 0,
			false},
		{"at the end", "2026-06-11T05:00:00Z", "2026-06-11T05:00:00Z", night, 0, false},
		{"urgent", "2026-06-11T03:00:00Z", "2026-06-11T03:00:00Z", night, time.Hour, true},
		{"at noon", "2026-06-11T12:59:59Z", "2026-06-11T13:00:00Z", noon, 0, false},
		{"digest", "2026-06-11T10:20:00Z", "2026-06-11T11:00:00Z", nil, time.Hour, false},
		{"digest into the quiet hours", "2026-06-11T11:20:00Z", "2026-06-11T13:00:00Z", noon,
			time.Hour, false},
	} {
		s := fleet.Subscription{QuietHours: c.quiet, Digest: fleet.Duration(c.digest)}
		got := due(at(c.now), s, fleet.TriggerSetting{Urgent: c.urgent})
		if !got.Equal(at(c.want)) {
			t.Errorf("%s: due at %s, want %s", c.name, got.UTC(), c.want)
		}
	}
}

func TestTextsOfWorkloadsAreSanitize(t *testing.T) {
	evil := "<!channel> <@U123> [free](https://evil.example.com) \u202egnp.exe \x1b[31m\nsecond line " +
		strings.Repeat("x", 10_000)
	text := Describe(mirror.Notification{Trigger: fleet.TriggerDegraded, About: "acme",
		Deployment: "web", Environment: "prod", Message: evil, Since: time.Now(), At: time.Now(),
		Commit: "https://evil.example.com"}, "https://argosy.example.com/")
	for _, f := range text.Fields {
		if strings.ContainsAny(f.Value, "\u202e\x1b\n") || strings.Contains(f.Value, "://") {
			t.Errorf("%s: %q", f.Name, f.Value)
		}
		if n := len([]rune(f.Value)); n > maxMessage {
			t.Errorf("%s has %d characters", f.Name, n)
		}
	}
	if text.Link != "https://argosy.example.com/tenants/acme/applications/web/prod" ||
		text.Next != "argosy describe application acme/web@prod" {
		t.Errorf("link %q, next %q", text.Link, text.Next)
	}
}

func FuzzSanitize(f *testing.F) {
	for _, s := range []string{"", "a", "\u202e", "http://x", "\xff\xfe", "<@U1>", ":://",
		"\U000e0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Sanitize(s, 50)
		if strings.Contains(got, "://") || len([]rune(got)) > 50 ||
			strings.ContainsAny(got, "\n\r\x1b\u202e") {
			t.Errorf("%q gives %q", s, got)
		}
	})
}
