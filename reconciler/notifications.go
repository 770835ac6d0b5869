package reconciler

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/notify"
)

// notifyPoll is between decisions about notifications.
const notifyPoll = 5 * time.Second

// NotificationStore keeps what is sent about the fleet.
type NotificationStore interface {
	// NotifyFacts returns what decides; syncs adds Applications whose last sync failed.
	NotifyFacts(ctx context.Context, syncs bool) (mirror.NotifyFacts, error)
	// TakeNotifyStep records a decision and its messages, and jobs for what is due;
	// mirror.ErrFenced when the lease has passed on.
	TakeNotifyStep(ctx context.Context, lease mirror.Lease, step mirror.NotifyStep) error
	// Work calls send for each channel with messages that are due, until ctx ends.
	Work(ctx context.Context, send func(context.Context, fleet.TenantName, string) error) error
	// ClaimMessage takes the next message of a channel; false: there is none now.
	ClaimMessage(ctx context.Context, tenant fleet.TenantName, channel string,
		perHour int) (mirror.NotifyMessage, bool, error)
	// SettleMessage records the outcome of an attempt.
	SettleMessage(ctx context.Context, m mirror.NotifyMessage, o mirror.NotifyOutcome) error
	// DropChannel ends the messages of a channel that is not declared.
	DropChannel(ctx context.Context, tenant fleet.TenantName, channel string) error
	// Tidy deletes old messages.
	Tidy(ctx context.Context) (int64, error)
}

// Sender delivers messages.
type Sender interface {
	Send(ctx context.Context, r notify.Delivery) (answer string, err error)
}

// Notifier is what sends notifications; the zero Notifier sends none.
type Notifier struct {
	Store  NotificationStore
	Sender Sender
	// Secret reads the secret of a channel.
	Secret func(context.Context, fleet.CredentialSource) (fleet.Secret, error)
	Public string // address of the page
	// Count counts attempts by their outcome: Sent, Pending (another attempt follows), Failed
	Count func(kind fleet.ChannelKind, outcome mirror.NotificationState)

	// Commits and Reporter report the commits of Applications on their repositories; nil: none is
	Commits  CommitStore
	Reporter CommitReporter
	// CountCommit counts reports by their outcome, as Count does
	CountCommit func(api fleet.CommitHostAPI, outcome mirror.NotificationState)
}

// notify takes decisions while this replica leads.
func (l *Loop) notify(ctx context.Context) {
	if l.Notifier.Store == nil {
		return
	}
	var tidied time.Time
	commits := commitReviews{after: -1}
	for {
		if at := l.at.Load(); at != nil && at.revision != "" && !l.recovery.Pending() {
			if err := l.decideNotifications(ctx, at); err != nil && ctx.Err() == nil &&
				!errors.Is(err, mirror.ErrFenced) {
				l.Log.Warn("failed to decide about notifications; trying again", "error", err)
			}
			if l.Notifier.Commits != nil {
				if err := l.decideCommits(ctx, at, &commits); err != nil && ctx.Err() == nil &&
					!errors.Is(err, mirror.ErrFenced) {
					l.Log.Warn("failed to decide about commit statuses; trying again", "error", err)
				}
			}
		}
		if time.Since(tidied) > time.Hour {
			if _, err := l.Notifier.Store.Tidy(ctx); err != nil && ctx.Err() == nil {
				l.Log.Warn("failed to tidy notifications; trying again in an hour", "error", err)
			}
			tidied = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(l.Poll, notifyPoll)):
		}
	}
}

func (l *Loop) decideNotifications(ctx context.Context, at *basis) error {
	view := &at.state.Catalog().View
	settings := notifySettings(view)
	facts, err := l.Notifier.Store.NotifyFacts(ctx, failedSyncs(view))
	if err != nil {
		return err
	}
	known := facts.Silent[:0]
	for _, e := range facts.Silent {
		if view.Engine(e.Engine) != nil || len(e.Applications) > 0 { // else it was removed
			known = append(known, e)
		}
	}
	facts.Silent = known
	return l.Notifier.Store.TakeNotifyStep(ctx, at.lease, notify.Decide(facts, settings))
}

func notifySettings(view *catalog.View) notify.Settings {
	f := view.Fleet()
	return notify.Settings{
		Fleet:  f.Notifications,
		Tenant: view.Notifications,
		Deployment: func(id fleet.DeploymentID) *fleet.DeploymentSpec {
			if d := view.Deployment(id); d != nil {
				return d.Deployment
			}
			return nil
		},
		Labels: func(id fleet.EnvironmentID) map[string]string {
			if d := view.Environment(id); d != nil {
				return d.Labels
			}
			return nil
		},
	}
}

// failedSyncs reports whether a subscription has the trigger SyncFailed.
func failedSyncs(view *catalog.View) bool {
	return view.Subscribed(fleet.TriggerSyncFailed)
}

// sendNotifications sends while this replica leads.
func (l *Loop) sendNotifications(ctx context.Context) {
	if l.Notifier.Store == nil {
		return
	}
	if err := l.Notifier.Store.Work(ctx, l.sendTo); err != nil && ctx.Err() == nil {
		l.Log.Error("notifications are not sent until this replica leads again", "error", err)
	}
}

// sendTo sends the messages of one channel, until it has none or one fails.
func (l *Loop) sendTo(ctx context.Context, tenant fleet.TenantName, name string) error {
	if settings, ok := statusesIn(name); ok && l.Notifier.Commits != nil {
		return l.sendCommits(ctx, tenant, settings)
	}
	for {
		at := l.at.Load()
		if at == nil {
			return errors.New("the declarations are not loaded yet")
		}
		view := &at.state.Catalog().View
		channel := channelOf(view, tenant, name)
		if channel == nil {
			return l.Notifier.Store.DropChannel(ctx, tenant, name)
		}
		allowed := view.Fleet().Notifications
		m, ok, err := l.Notifier.Store.ClaimMessage(ctx, tenant, name, allowed.Hourly())
		if err != nil || !ok {
			return err
		}
		o := l.attempt(ctx, view, *channel, m)
		if o.State != mirror.NotificationSent {
			l.Log.Warn("a message was not sent", "tenant", tenant, "channel", name, "kind",
				channel.Kind(), "message", m.ID, "attempt", m.Attempts, "state", o.State, "error",
				o.Answer)
		}
		if l.Notifier.Count != nil {
			l.Notifier.Count(channel.Kind(), o.State)
		}
		// a message that was sent is recorded although the replica stops
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err = l.Notifier.Store.SettleMessage(settle, m, o)
		cancel()
		if err != nil || o.State != mirror.NotificationSent {
			return err
		}
	}
}

// attempt sends one message once.
func (l *Loop) attempt(ctx context.Context, view *catalog.View, c fleet.Channel,
	m mirror.NotifyMessage) mirror.NotifyOutcome {
	r := notify.Delivery{Channel: c, Fleet: view.Fleet().Notifications, Public: l.Notifier.Public,
		MessageID: m.ID, Events: m.Events, More: m.More, At: m.At}
	var answer string
	err := l.channelSecrets(ctx, view, m.Tenant, &r)
	if err == nil {
		answer, err = l.Notifier.Sender.Send(ctx, r)
	}
	var refused *notify.Refused
	var busy *notify.Busy
	switch {
	case err == nil:
		return mirror.NotifyOutcome{State: mirror.NotificationSent, Answer: answer}
	case errors.As(err, &refused):
		// another attempt helps if the platform allows the receiver meanwhile
		return notify.Outcome(m.Attempts, err.Error(), notify.AttemptsRefused, 0)
	case errors.As(err, &busy):
		return notify.Outcome(m.Attempts, err.Error(), notify.Attempts, busy.After)
	}
	return notify.Outcome(m.Attempts, err.Error(), notify.Attempts, 0)
}

// channelSecrets reads what a channel needs: nothing is kept.
func (l *Loop) channelSecrets(ctx context.Context, view *catalog.View, tenant fleet.TenantName,
	r *notify.Delivery) (err error) {
	if ref := r.Channel.Secret(); ref != nil {
		r.Secret, err = l.Notifier.Secret(ctx, ownSecret(view, tenant, ref.Name))
		if err != nil {
			return err
		}
	}
	if r.Channel.Email != nil && r.Fleet != nil && r.Fleet.SMTP != nil &&
		r.Fleet.SMTP.CredentialsRef != nil {
		r.SMTP, err = l.Notifier.Secret(ctx, ownSecret(view, "", r.Fleet.SMTP.CredentialsRef.Name))
	}
	return err
}

// ownSecret is a secret of the tenant, or of the platform. An encrypted file of a tenant is beside
// its credentials.
func ownSecret(view *catalog.View, tenant fleet.TenantName, name string) fleet.CredentialSource {
	s := fleet.CredentialSource{Tenant: tenant, Name: name}
	if tenant == "" {
		return s
	}
	s.Folder = fleet.ObjectRepository.CredentialFolder()
	if sealed := view.Sealed(tenant, s.Folder, name); sealed != nil {
		s.Sealed = sealed.Blob
	}
	return s
}

func channelOf(view *catalog.View, tenant fleet.TenantName, name string) *fleet.Channel {
	var all []fleet.Channel
	if tenant == "" {
		if n := view.Fleet().Notifications; n != nil {
			all = n.Channels
		}
	} else if set := view.Notifications(tenant); set != nil {
		all = set.Channels
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}
