package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"
)

// NotificationSettings are what Argosy itself sends about a tenant's Applications, and where
// (tenants/<tenant>/notifications.yaml). The engines' own notifications are
// DeploymentSpec.Notifications.
type NotificationSettings struct {
	Channels      []Channel      `json:"channels,omitempty"`
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
	// on the repositories of the Applications
	CommitStatuses []CommitStatuses `json:"commitStatuses,omitempty"`
}

// TenantNotificationsName is the name of a tenant's NotificationSettings, and of their file without
// ".yaml".
const TenantNotificationsName = "notifications"

// FleetNotifications are what the platform allows to the channels of tenants, and its own channels.
type FleetNotifications struct {
	// hosts that receive messages: "host", "host:port", or ".domain" for every host below it
	AllowedHosts []string `json:"allowedHosts,omitempty"`
	// hosts ("host" or "host:port", exact) that may have an address of a private network
	PrivateHosts []string `json:"privateHosts,omitempty"`
	// domains of e-mail addresses; exact
	EmailDomains []string `json:"emailDomains,omitempty"`
	// the server that sends e-mail; nil: no channel sends any
	SMTP *SMTPServer `json:"smtp,omitempty"`
	// messages of one tenant in an hour; default 60. More wait and are sent together.
	PerHour int `json:"perHour,omitempty"`
	// the platform's own
	Channels      []Channel      `json:"channels,omitempty"`
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
}

// DefaultMessagesPerHour is the default of FleetNotifications.PerHour.
const DefaultMessagesPerHour = 60

// Hourly returns how many messages of one tenant are sent in an hour.
func (n *FleetNotifications) Hourly() int {
	if n == nil {
		return DefaultMessagesPerHour
	}
	return cmp.Or(n.PerHour, DefaultMessagesPerHour)
}

// AllowsHost reports whether messages may go to a host, with its port unless it is 443.
func (n *FleetNotifications) AllowsHost(authority string) bool {
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.AllowedHosts, func(allowed string) bool {
		if strings.HasPrefix(allowed, ".") {
			return strings.HasSuffix(authority, allowed) && !strings.Contains(authority, ":")
		}
		return authority == allowed
	})
}

// AllowsPrivate reports whether a host may have an address of a private network.
func (n *FleetNotifications) AllowsPrivate(authority string) bool {
	return n != nil && slices.Contains(n.PrivateHosts, authority)
}

// AllowsAddress reports whether messages may go to an e-mail address.
func (n *FleetNotifications) AllowsAddress(address string) bool {
	_, domain, _ := strings.Cut(address, "@")
	return n != nil && slices.Contains(n.EmailDomains, domain)
}

// SMTPServer is the server that sends the platform's e-mail. The connection is always encrypted.
type SMTPServer struct {
	Host string `json:"host"`
	Port int    `json:"port,omitempty"` // default 587, or 465 with ImplicitTLS
	// default StartTLS
	TLS  SMTPEncryption `json:"tls,omitempty"`
	From string         `json:"from"`
	// a secret of the platform with the keys username and password; nil: no authentication
	CredentialsRef *SecretRef `json:"credentialsRef,omitempty"`
}

// SMTPEncryption is how the connection to an SMTP server is encrypted.
type SMTPEncryption string

// Encryptions of a connection: from the STARTTLS command on, or from its beginning.
const (
	SMTPStartTLS    SMTPEncryption = "StartTLS"
	SMTPImplicitTLS SMTPEncryption = "ImplicitTLS"
)

// Authority is the server's host and port.
func (s *SMTPServer) Authority() string {
	port := 587
	if s.TLS == SMTPImplicitTLS {
		port = 465
	}
	return fmt.Sprintf("%s:%d", s.Host, cmp.Or(s.Port, port))
}

// ChannelKind is what receives the messages of a channel.
type ChannelKind string

// Kinds of channels.
const (
	ChannelSlack   ChannelKind = "Slack"
	ChannelTeams   ChannelKind = "Teams"
	ChannelEmail   ChannelKind = "Email"
	ChannelWebhook ChannelKind = "Webhook"
)

// Channel is a receiver of messages. Exactly one of the pointers is set.
type Channel struct {
	Name    string          `json:"name"`
	Slack   *HookChannel    `json:"slack,omitempty"`
	Teams   *HookChannel    `json:"teams,omitempty"`
	Email   *EmailChannel   `json:"email,omitempty"`
	Webhook *WebhookChannel `json:"webhook,omitempty"`
}

// HookChannel is an incoming webhook of Slack or Teams, whose URL is its credential.
type HookChannel struct {
	CredentialsRef SecretRef `json:"credentialsRef"` // with the key url
}

// EmailChannel is a list of addresses.
type EmailChannel struct {
	To []string `json:"to"`
}

// WebhookChannel takes CloudEvents.
type WebhookChannel struct {
	URL string `json:"url"` // https, without user
	// with the key signingKey and, if the receiver wants one, the key bearerToken
	CredentialsRef SecretRef `json:"credentialsRef"`
}

// Kind is the kind of the channel.
func (c *Channel) Kind() ChannelKind {
	switch {
	case c.Slack != nil:
		return ChannelSlack
	case c.Teams != nil:
		return ChannelTeams
	case c.Email != nil:
		return ChannelEmail
	}
	return ChannelWebhook
}

// Secret is the secret of the channel; nil: it has none.
func (c *Channel) Secret() *SecretRef {
	switch {
	case c.Slack != nil:
		return &c.Slack.CredentialsRef
	case c.Teams != nil:
		return &c.Teams.CredentialsRef
	case c.Webhook != nil:
		return &c.Webhook.CredentialsRef
	}
	return nil
}

// Trigger is an event that a subscription sends to its channels.
type Trigger string

// Triggers. A message about a silent engine or an unreachable environment is followed by one when
// that ends.
const (
	TriggerDegraded     Trigger = "Degraded"
	TriggerHealthyAgain Trigger = "HealthyAgain" // after Degraded or SyncFailed
	TriggerSyncFailed   Trigger = "SyncFailed"
	TriggerHalted       Trigger = "RolloutHalted"
	TriggerHeld         Trigger = "Held" // a change waits for an approval
	TriggerSilent       Trigger = "EngineSilent"
	TriggerUnreachable  Trigger = "EnvironmentUnreachable"
	TriggerTest         Trigger = "Test" // of argosy notify test; no subscription has it
)

// Triggers lists the triggers that a subscription may have.
var Triggers = []Trigger{TriggerDegraded, TriggerHealthyAgain, TriggerSyncFailed, TriggerHalted,
	TriggerHeld, TriggerSilent, TriggerUnreachable}

// Subscription sends messages about events to channels.
type Subscription struct {
	Name string `json:"name"`
	// empty: the deployment has no subscription of this name, although the tenant has one
	Channels []string         `json:"channels"`
	Triggers []TriggerSetting `json:"triggers,omitempty"`
	// environments by their labels; nil: all. Events without an environment pass.
	EnvironmentSelector *LabelSelector `json:"environmentSelector,omitempty"`
	QuietHours          *QuietHours    `json:"quietHours,omitempty"`
	// messages wait for the next full period and are sent together; 0: they do not wait
	Digest Duration `json:"digest,omitempty"`
}

// TriggerSetting is a trigger of a subscription.
type TriggerSetting struct {
	When Trigger `json:"when"`
	// how long the state lasts before the message
	For Duration `json:"for,omitempty"`
	// the message waits neither for the end of quiet hours nor for a digest
	Urgent bool `json:"urgent,omitempty"`
}

// QuietHours are a part of each day in which messages wait.
type QuietHours struct {
	From     string `json:"from"` // "22:00"
	To       string `json:"to"`   // "07:00"; before From: of the next day
	TimeZone string `json:"timeZone,omitempty"`
}

// Limits of notification settings.
const (
	MaxChannels      = 20
	MaxSubscriptions = 20
	MaxAddresses     = 20
)

// On returns the subscription's setting of a trigger.
func (s *Subscription) On(t Trigger) (TriggerSetting, bool) {
	for _, set := range s.Triggers {
		if set.When == t {
			return set, true
		}
	}
	return TriggerSetting{}, false
}

// Covers reports whether the subscription is about environments with these labels.
func (s *Subscription) Covers(labels map[string]string) bool {
	return s.EnvironmentSelector == nil || s.EnvironmentSelector.Matches(labels)
}

// SubscriptionsOf returns the subscriptions for events of a deployment: its own ones, and those of
// the tenant that it neither replaces nor mutes. They are ordered by name.
func SubscriptionsOf(tenant []Subscription, deployment *DeploymentSpec) []Subscription {
	var all []Subscription
	own := map[string]bool{}
	if deployment != nil {
		for _, s := range deployment.Subscriptions {
			own[s.Name] = true
			if len(s.Channels) > 0 {
				all = append(all, s)
			}
		}
	}
	for _, s := range tenant {
		if !own[s.Name] {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Subscription) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ChannelURL returns the host, with its port unless it is 443, of a URL that receives messages, or
// why it cannot.
func ChannelURL(raw string) (authority string, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return "", errors.New("it is no URL")
	case u.Scheme != "https":
		return "", errors.New("it does not begin with https://")
	case u.User != nil:
		return "", errors.New("it has a user, which belongs in credentialsRef")
	case u.Fragment != "":
		return "", errors.New("it has a fragment")
	case len(raw) > maxURL:
		return "", fmt.Errorf("it is %d bytes long; at most %d are allowed", len(raw), maxURL)
	}
	authority = strings.TrimSuffix(strings.ToLower(u.Host), ":443")
	return authority, checkHostPort(authority, "443")
}

// CheckChannelURL returns what is wrong with the URL of a webhook.
func CheckChannelURL(raw string) error {
	_, err := ChannelURL(raw)
	return err
}

// CheckAllowedHost accepts an entry of FleetNotifications.AllowedHosts.
func CheckAllowedHost(s string) error {
	if domain, below := strings.CutPrefix(s, "."); below {
		return checkHost(domain)
	}
	return checkHostPort(s, "443")
}

// CheckEmailDomain accepts the domain of e-mail addresses.
func CheckEmailDomain(s string) error { return checkHost(s) }

// CheckEmailAddress accepts an e-mail address without a name, its domain in lower case.
func CheckEmailAddress(s string) error {
	a, err := mail.ParseAddress(s)
	local, domain, _ := strings.Cut(s, "@")
	if err != nil || a.Address != s || len(s) > 254 || !only(local, alnum+".!#$%&'*+/=?^_{}~-") {
		return errors.New("it is no e-mail address such as team@example.com")
	}
	return checkHost(domain)
}

// CheckTimeOfDay accepts a time of the day, such as 07:00.
func CheckTimeOfDay(s string) error {
	if _, err := time.Parse("15:04", s); err != nil || len(s) != 5 {
		return errors.New("it is no time of the day from 00:00 to 23:59")
	}
	return nil
}
