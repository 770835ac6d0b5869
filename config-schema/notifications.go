package configschema

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

var (
	formatChannelURL = &format{code: codeInvalidURL, what: "an https:// URL without user and " +
		"fragment", pattern: `^https://[^\s#@]+$`, check: fleet.CheckChannelURL}
	formatAllowedHost = &format{code: codeInvalidURL, what: "an exact host, host:port when it is " +
		"not 443, or .domain for every host below it", pattern: `^[a-z0-9.:-]+$`,
		check: fleet.CheckAllowedHost}
	formatEmailDomain = &format{code: codeInvalidValue, what: "a domain in lower case",
		pattern: `^[a-z0-9.-]+$`, check: fleet.CheckEmailDomain}
	formatEmailAddress = &format{code: codeInvalidValue, what: "an e-mail address without a " +
		"name, its domain in lower case", pattern: `^[^@\s<>]+@[a-z0-9.-]+$`,
		check: fleet.CheckEmailAddress}
	formatTimeOfDay = &format{code: codeInvalidValue, what: "a time of the day in quotes, from " +
		"\"00:00\" to \"23:59\"", pattern: `^[0-2][0-9]:[0-5][0-9]$`, check: fleet.CheckTimeOfDay}
)

var kindNotifications = describe(kind{
	name: fleet.KindTenantNotifications, place: "tenants/<tenant>/notifications.yaml",
	doc: "The messages that Argosy sends about the tenant's Applications, and their receivers " +
		"(`docs/notifications.md`), and the statuses of commits (`docs/commit-statuses.md`). There is at most one, named `notifications`.",
}, object(channels("this tenant"), subscriptions(subscription(true)), commitStatuses()).
	checked(channelsExist), func(d *fleet.Declaration, s *fleet.NotificationSettings) {
	d.Notifications = s
})

// channels are the receivers of messages. of names whose secret it is.
func channels(of string) field {
	return field{
		name: "channels", doc: "The receivers of messages.", first: true,
		example: "[{name: payments, slack: {credentialsRef: {name: slack}}}]",
		value: listOf(object(
			field{name: "name", doc: "The name that subscriptions refer to.", example: "payments",
				required: true, value: textOf(formatName)},
			field{name: "slack", doc: "An incoming webhook of Slack.", value: hook(of, "slack")},
			field{name: "teams", doc: "A workflow of Microsoft Teams that posts what a webhook " +
				"receives.", value: hook(of, "teams")},
			field{
				name: "email", doc: "E-mail, by the Fleet's server.", value: object(field{
					name: "to", doc: "Addresses in domains that the Fleet allows.",
					example: "[payments@example.com]", required: true,
					value: listOf(textOf(formatEmailAddress).atMost(254)).
						atMost(fleet.MaxAddresses)})},
			field{
				name: "webhook", doc: "A receiver of signed CloudEvents.", value: object(
					field{name: "url", doc: "Where it receives.",
						example: "https://alerts.example.com/argosy", required: true,
						value: textOf(formatChannelURL).atMost(1024)},
					field{
						name: "credentialsRef",
						doc: "A secret of " + of + " with the key `signingKey`, which signs each " +
							"message, and, if the receiver wants one, the key `bearerToken`.",
						example: "{name: alerts}", required: true,
						value: secretRef("The secret's name.", "alerts")})},
		).exactlyOneOf("slack", "teams", "email", "webhook")).by("name").
			atMost(fleet.MaxChannels)}
}

// commitStatuses are reports on the repositories of Applications.
func commitStatuses() field {
	return field{
		name: "commitStatuses",
		doc: "Reports how the commits of Applications are deployed, as commit statuses on the Git " +
			"host of their repositories (`docs/commit-statuses.md`). An Application takes the " +
			"first entry that covers its repository and environment.",
		example: "[{name: github, repositories: [\"https://github.com/acme/\"], api: GitHub, " +
			"credentialsRef: {name: github-statuses}}]",
		value: listOf(object(
			field{name: "name", doc: "The name, for people.", example: "github", required: true,
				value: textOf(formatName)},
			field{
				name: "repositories", required: true,
				doc: "Repositories of Applications, or with a trailing slash everything below a " +
					"folder. Argosy writes to those that a deployment of the tenant names, and to " +
					"no others.",
				example: `["https://github.com/acme/"]`,
				value:   listOf(textOf(formatGrant)).atMost(fleet.MaxStatusRepositories)},
			field{
				name: "api",
				doc: "The API of the repositories' host, which Argosy calls at the host itself; that of " +
					"`github.com` at `api.github.com`. The Fleet lists the host in " +
					"`notifications.allowedHosts`.",
				example: string(fleet.CommitHostGitHub), required: true,
				value: wordOf(string(fleet.CommitHostGitHub), string(fleet.CommitHostGitea))},
			field{name: "deployments", doc: "Deployments of GitHub too, one for each commit and " +
				"environment. With `GitHub` alone.", example: "true", fallback: "false",
				value: boolean()},
			field{
				name: "environmentSelector", doc: "Selects environments by label. Left out: all.",
				example: "{matchLabels: {tier: prod}}",
				value: selector("Label keys and exact values; all must match.",
					"{tier: prod}")},
			field{
				name: "credentialsRef",
				doc: "A secret of this tenant whose key `token` may write commit statuses, and " +
					"deployments if they are on.",
				example: "{name: github-statuses}", required: true,
				value: secretRef("The secret's name.", "github-statuses")},
		).checked(deploymentsOfGitHub)).by("name").atMost(fleet.MaxCommitStatuses)}
}

// deploymentsOfGitHub refuses deployments on another Git host.
func deploymentsOfGitHub(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.CommitStatuses)
	if s.Deployments && s.API != fleet.CommitHostGitHub {
		d.problem(at, codeInvalidValue, "deployments: a "+string(s.API)+" server has none",
			"remove deployments")
	}
}

// hook is an incoming webhook whose URL is secret.
func hook(of, name string) value {
	return object(field{
		name:    "credentialsRef",
		doc:     "A secret of " + of + " whose key `url` is the webhook's URL.",
		example: "{name: " + name + "}", required: true,
		value: secretRef("The secret's name.", name)})
}

func subscriptions(item value) field {
	return field{
		name: "subscriptions", doc: "Which events are sent to which channels.",
		value: listOf(item).by("name").atMost(fleet.MaxSubscriptions)}
}

// deploymentSubscriptions are those of one deployment, to the tenant's channels.
func deploymentSubscriptions() field {
	f := subscriptions(subscription(false).checked(eventsOfChannels))
	f.doc = "Which events of this deployment are sent to which channels of the tenant's " +
		"`notifications.yaml` (`docs/notifications.md`), besides the tenant's subscriptions. One " +
		"with the name of a tenant's replaces it."
	return f
}

// subscription sends events to channels. A deployment may have one with neither.
func subscription(whole bool) value {
	to, doc := listOf(textOf(formatName)).atMost(fleet.MaxChannels), "Names of channels."
	if !whole {
		to = to.mayBeEmpty()
		doc += " `[]`: the deployment does not have the tenant's subscription of this name."
	}
	return object(
		field{name: "name", doc: "The name, for people.", example: "production", required: true,
			value: textOf(formatName)},
		field{name: "channels", doc: doc, example: "[payments]", required: true, value: to},
		field{
			name: "triggers", doc: "The events.", required: whole,
			example: "[{when: Degraded, for: 5m}, {when: HealthyAgain}]",
			value: listOf(object(
				field{
					name: "when",
					doc: "`Degraded`: the Application's health is Degraded. `SyncFailed`: its last " +
						"sync failed. `HealthyAgain`: it is Healthy after one of the two was sent. " +
						"`RolloutHalted`: a wave failed or waits for a person. `Held`: a change " +
						"waits for an approval. `EngineSilent`, `EnvironmentUnreachable`: one message " +
						"for all the Applications there, and one when it ends.",
					example: string(fleet.TriggerDegraded), required: true, value: triggerWords()},
				field{
					name: "for", doc: "How long the state lasts before the message: up to 24h.",
					example: "5m", value: value{shape: shapeDuration, least: int64(time.Second),
						most: int64(24 * time.Hour)}},
				field{name: "urgent", doc: "The message waits neither for the end of quiet hours " +
					"nor for a digest.", example: "true", fallback: "false", value: boolean()},
			)).by("when").atMost(int64(len(fleet.Triggers)))},
		field{
			name: "environmentSelector", doc: "Selects environments by label. Left out: all.",
			example: "{matchLabels: {tier: prod}}",
			value:   selector("Label keys and exact values; all must match.", "{tier: prod}")},
		field{
			name: "quietHours", doc: "A part of each day in which messages wait.",
			value: object(
				field{name: "from", doc: "When it begins.", example: `"22:00"`, required: true,
					value: textOf(formatTimeOfDay)},
				field{name: "to", doc: "When it ends; before `from`: on the next day.",
					example: `"07:00"`, required: true, value: textOf(formatTimeOfDay)},
				field{name: "timeZone", doc: "The time zone, by its name in the IANA database.",
					example: "Europe/Berlin", fallback: "UTC", value: textOf(formatTimeZone)})},
		field{
			name: "digest",
			doc: "Messages wait for the next full period and are sent together: a duration from 1m " +
				"to 24h. Left out: they do not wait.", example: "1h",
			value: value{shape: shapeDuration, least: int64(time.Minute),
				most: int64(24 * time.Hour)}},
	)
}

func triggerWords() value {
	var words []string
	for _, t := range fleet.Triggers {
		words = append(words, string(t))
	}
	return wordOf(words...)
}

// eventsOfChannels refuses a subscription of a deployment that has channels and no event.
func eventsOfChannels(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Subscription)
	if len(s.Channels) > 0 && child(at, "triggers") == nil {
		d.problem(at, codeMissingField, "subscription "+quoted(s.Name)+" has no triggers",
			"add triggers, or write channels: []")
	}
}

// channelsExist refuses a subscription to a channel that the same file does not declare.
func channelsExist(d *decoder, into reflect.Value, at node) {
	var known []string
	var subs []fleet.Subscription
	switch s := into.Addr().Interface().(type) {
	case *fleet.NotificationSettings:
		subs = s.Subscriptions
		for _, c := range s.Channels {
			known = append(known, c.Name)
		}
	case *fleet.FleetNotifications:
		subs = s.Subscriptions
		for _, c := range s.Channels {
			known = append(known, c.Name)
		}
	}
	list := child(at, "subscriptions")
	for i, s := range subs {
		if list == nil || i >= len(list.Content) {
			return
		}
		names := child(list.Content[i], "channels")
		for j, name := range s.Channels {
			if slices.Contains(known, name) || names == nil || j >= len(names.Content) {
				continue
			}
			fix := "declare it in channels, which has " + strings.Join(known, ", ")
			if len(known) == 0 {
				fix = "declare it in channels, which has none"
			}
			if meant := fleet.Closest(name, known); meant != "" {
				fix = "did you mean " + quoted(meant) + "?"
			}
			d.steps = append(d.steps, step{"subscriptions", -1}, step{"", i},
				step{"channels", -1}, step{"", j})
			d.problem(names.Content[j], codeUnknownChannel,
				"there is no channel "+quoted(name), fix)
			d.steps = d.steps[:len(d.steps)-4]
		}
	}
}

// fleetNotifications are what the platform allows, and its own channels.
func fleetNotifications() field {
	return field{
		name: "notifications",
		doc: "Where messages of tenants may go, the server that sends e-mail, and the platform's " +
			"own channels (`docs/notifications.md`). Left out: no tenant has a channel.",
		value: object(
			field{
				name: "allowedHosts",
				doc: "Hosts that receive messages: exact, with `:port` when it is not 443, or " +
					"`.domain` for every host below it. Their addresses are public unless " +
					"`privateHosts` lists the host.",
				example: "[hooks.slack.com, .environment.api.powerplatform.com]",
				value:   listOf(textOf(formatAllowedHost)).atMost(100)},
			field{
				name: "privateHosts",
				doc: "Hosts, exactly, that may have an address of a private network: loopback, " +
					"link-local, 10/8, 172.16/12, 192.168/16, 100.64/10 and their like.",
				example: "[alerts.internal.example.com]",
				value:   listOf(textOf(formatAllowedHost)).atMost(100)},
			field{name: "emailDomains", doc: "Domains of the addresses of `Email` channels; exact.",
				example: "[example.com]", value: listOf(textOf(formatEmailDomain)).atMost(100)},
			field{
				name: "smtp",
				doc: "The server that sends e-mail. An unencrypted connection is never used. With " +
					"an address of a private network, `privateHosts` lists `host:port`.",
				value: object(
					field{name: "host", doc: "Its name.", example: "smtp.example.com",
						required: true, value: textOf(formatEmailDomain)},
					field{name: "port", doc: "Its port.", example: "587",
						fallback: "587, or 465 with `ImplicitTLS`", value: integer(1, 65535)},
					field{
						name: "tls", doc: "`StartTLS`: the connection is encrypted by the STARTTLS " +
							"command. `ImplicitTLS`: it is from its beginning.",
						example: string(fleet.SMTPStartTLS), fallback: string(fleet.SMTPStartTLS),
						value: wordOf(string(fleet.SMTPStartTLS), string(fleet.SMTPImplicitTLS))},
					field{name: "from", doc: "The sender's address.", example: "argosy@example.com",
						required: true, value: textOf(formatEmailAddress).atMost(254)},
					field{
						name:    "credentialsRef",
						doc:     "A secret of the platform with the keys `username` and `password`. Left out: none.",
						example: "{name: smtp}", value: secretRef("The secret's name.", "smtp")},
				)},
			field{
				name: "perHour",
				doc: "Messages of one tenant in an hour. Further events wait and are sent together " +
					"in one message.",
				example: "60", fallback: "60", value: integer(1, 10000)},
			channels("the platform"), subscriptions(subscription(true)),
		).checked(channelsExist)}
}
