package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Notifications returns the settings of a tenant that are in effect; nil: it has none.
func (v *View) Notifications(t fleet.TenantName) *fleet.NotificationSettings {
	if d := v.Declaration(NotificationsKey(t)); d != nil {
		return d.Notifications
	}
	return nil
}

// Subscribed reports whether a subscription of the platform, a tenant or a deployment has the
// trigger. It reads the declarations that have subscriptions, and no others.
func (v *View) Subscribed(t fleet.Trigger) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	has := func(all []fleet.Subscription) bool {
		for i := range all {
			if _, ok := all[i].On(t); ok {
				return true
			}
		}
		return false
	}
	if d := v.st.get(fleetKey()); d != nil && d.Fleet.Notifications != nil &&
		has(d.Fleet.Notifications.Subscriptions) {
		return true
	}
	for _, of := range []term{{what: notifying}, {what: subscribing}} {
		for k := range v.st.index.each(of) {
			d := v.st.get(k)
			switch {
			case d == nil:
			case d.Notifications != nil && has(d.Notifications.Subscriptions),
				d.Deployment != nil && has(d.Deployment.Subscriptions):
				return true
			}
		}
	}
	return false
}

// ReportingCommits returns the tenants with commit statuses, sorted. It reads the declarations of
// notifications, and no others.
func (v *View) ReportingCommits() (all []fleet.TenantName) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for k := range v.st.index.each(term{what: notifying}) {
		if d := v.st.get(k); d != nil && d.Notifications != nil &&
			len(d.Notifications.CommitStatuses) > 0 {
			all = append(all, k.Tenant)
		}
	}
	slices.Sort(all)
	return all
}

// notificationsOf returns what a Fleet allows to channels.
func notificationsOf(d *fleet.Declaration) *notificationGrants {
	if d == nil {
		return nil
	}
	g := &notificationGrants{}
	if n := d.Fleet.Notifications; n != nil {
		g.allowed, g.domains, g.mail = n.AllowedHosts, n.EmailDomains, n.SMTP != nil
	}
	return g
}

// notificationGrants are the fields of a Fleet that decide about channels.
type notificationGrants struct {
	allowed, domains []string
	mail             bool
}

// checkChannels refuses receivers that the platform does not allow.
func (ch *checker) checkChannels(e *entry, spec *fleet.NotificationSettings) (
	problems []fleet.Problem) {
	var allowed *fleet.FleetNotifications
	if d := ch.st.get(fleetKey()); d != nil {
		allowed = d.Fleet.Notifications
	}
	for i, c := range spec.Channels {
		field := fmt.Sprintf("spec.channels[%d]", i)
		if c.Webhook != nil {
			host, err := fleet.ChannelURL(c.Webhook.URL)
			if err == nil && !allowed.AllowsHost(host) {
				problems = append(problems, e.problem(field+".webhook.url", codeReceiver,
					"ask the platform to add it to spec.notifications.allowedHosts of "+
						"fleet/fleet.yaml", "the Fleet allows no messages to %s", host))
			}
		}
		if c.Email == nil {
			continue
		}
		if allowed == nil || allowed.SMTP == nil {
			problems = append(problems, e.problem(field+".email", codeReceiver,
				"ask the platform to declare spec.notifications.smtp in fleet/fleet.yaml",
				"the Fleet has no server that sends e-mail"))
		}
		for j, to := range c.Email.To {
			if !allowed.AllowsAddress(to) {
				problems = append(problems, e.problem(fmt.Sprintf("%s.email.to[%d]", field, j),
					codeReceiver, "write an address of an allowed domain, or ask the platform to add "+
						"the domain to spec.notifications.emailDomains of fleet/fleet.yaml",
					"the Fleet allows no messages to %s", to))
			}
		}
	}
	return append(problems, checkCommitHosts(e, allowed, spec.CommitStatuses)...)
}

// checkCommitHosts refuses repositories on Git hosts that the platform does not allow to receive
// anything.
func checkCommitHosts(e *entry, allowed *fleet.FleetNotifications,
	all []fleet.CommitStatuses) (problems []fleet.Problem) {
	for i, c := range all {
		for j, repository := range c.Repositories {
			field := fmt.Sprintf("spec.commitStatuses[%d].repositories[%d]", i, j)
			one := repository
			if strings.HasSuffix(one, "/") { // any repository of the folder has the same host
				one += "owner/name"
			}
			u, err := fleet.ParseRepoURL(one)
			if err == nil {
				u.Path = "/owner/name"
				one = u.String()
			}
			host, err := fleet.CommitHostOf(one, c.API)
			switch {
			case err != nil:
				problems = append(problems, e.problem(field, codeReceiver,
					"write the https or ssh URL of a Git repository, or of a folder of them",
					"no status can be reported there: %v", err))
			case !allowed.AllowsHost(host.Authority):
				problems = append(problems, e.problem(field, codeReceiver,
					"ask the platform to add it to spec.notifications.allowedHosts of "+
						"fleet/fleet.yaml", "the Fleet allows no messages to %s", host.Authority))
			}
		}
	}
	return problems
}

// warnSubscriptions reports subscriptions of a deployment to channels that the tenant does not
// have. The channels are of another file, so that none is an error.
func (ch *checker) warnSubscriptions(e *entry, spec *fleet.DeploymentSpec) (
	problems []fleet.Problem) {
	if len(spec.Subscriptions) == 0 {
		return nil
	}
	var names []string
	if d := ch.st.get(NotificationsKey(e.key.Tenant)); d != nil {
		for _, c := range d.Notifications.Channels {
			names = append(names, c.Name)
		}
	}
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	for i, s := range spec.Subscriptions {
		for j, name := range s.Channels {
			if !known[name] {
				problems = append(problems, e.warning(
					fmt.Sprintf("spec.subscriptions[%d].channels[%d]", i, j), codeNoChannel,
					didYouMean(name, names, "declare it in channels of tenants/"+
						string(e.key.Tenant)+"/notifications.yaml"),
					"the tenant has no channel %q: its messages are not sent", name))
			}
		}
	}
	return problems
}
