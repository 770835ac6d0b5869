package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

func notifyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Test the channels of notifications",
		Example: "  argosy notify test payments --tenant acme\n  argosy get notifications",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(notifyTestCommand(a))
	return cmd
}

func notifyTestCommand(a *app) *cobra.Command {
	var tenant string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "test CHANNEL",
		Short: "Send a test message to a channel, and print the receiver's answer",
		Long: "The control plane sends the message as it sends any other: to the channel that is in\n" +
			"effect, with its secret. Without --tenant, the channel is one of the token's tenant\n" +
			"or of the platform.",
		Example: "  argosy notify test payments --tenant acme",
		Args:    exactly("CHANNEL"),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant of the channel")
	cmd.Flags().DurationVar(&wait, "timeout", time.Minute, "how long to wait for the answer")
	a.completeFlag(cmd, "tenant")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		asked, err := c.TestChannel(cmd.Context(), wire.TestChannelRequest{
			Tenant: fleet.TenantName(tenant), Channel: args[0]})
		if err != nil {
			return err
		}
		n, err := awaitNotification(cmd.Context(), c, asked, args[0], wait)
		switch {
		case err != nil:
			return err
		case n.State == mirror.NotificationSent:
			return a.printLine("sent to channel %s: %s", args[0], n.Answer)
		case n.State.Ended():
			return fmt.Errorf("channel %s: %s: %s", args[0], n.State, n.Answer)
		case n.Answer != "":
			return fmt.Errorf("channel %s: attempt %d failed: %s; the next one follows: see "+
				"`argosy get notifications`", args[0], n.Attempts, n.Answer)
		}
		return fmt.Errorf("channel %s: the message was not sent within %s; see `argosy get "+
			"notifications`", args[0], wait)
	}
	return cmd
}

// awaitNotification returns the notification once an attempt has ended, or as it is after the time.
func awaitNotification(ctx context.Context, c *client.Client, asked wire.TestChannelResult,
	channel string, wait time.Duration) (mirror.Notification, error) {
	for until := time.Now().Add(wait); ; {
		all, err := c.Notifications(ctx, view.Filter{Tenant: asked.Tenant, Name: channel}, 50)
		if err != nil {
			return mirror.Notification{}, err
		}
		for _, n := range all {
			if n.ID == asked.ID && (n.State.Ended() || n.Answer != "" || time.Now().After(until)) {
				return n, nil
			}
		}
		if time.Now().After(until) {
			return mirror.Notification{}, errors.New("the control plane does not list the test " +
				"message; see `argosy get notifications`")
		}
		if !pacing.Sleep(ctx, 500*time.Millisecond) {
			return mirror.Notification{}, ctx.Err()
		}
	}
}

var notificationColumns = []column[mirror.Notification]{
	{head: "CHANNEL", of: func(n mirror.Notification, _ time.Time) table.Value {
		if n.Tenant == "" {
			return table.Text(n.Channel)
		}
		return table.Text(string(n.Tenant) + "/" + n.Channel)
	}},
	{head: "EVENT", of: func(n mirror.Notification, _ time.Time) table.Value {
		if n.Over && n.Trigger != fleet.TriggerHealthyAgain {
			return table.Text(string(n.Trigger) + " (over)")
		}
		return table.Text(string(n.Trigger))
	}},
	{head: "ABOUT", of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.Text(aboutNotification(n))
	}},
	{head: "STATE", of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.State(n.State)
	}},
	{head: "TRIES", of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.Text(fmt.Sprint(n.Attempts))
	}},
	{head: "AGE", of: func(n mirror.Notification, now time.Time) table.Value {
		return age(n.At, now)
	}},
	{head: "ANSWER", of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.Text(n.Answer)
	}},
	{head: "ID", wide: true, of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.Text(n.ID)
	}},
	{head: "MESSAGE-ID", wide: true, of: func(n mirror.Notification, _ time.Time) table.Value {
		return table.Text(n.MessageID)
	}},
}

func aboutNotification(n mirror.Notification) string {
	switch {
	case n.Deployment != "" && n.Environment != "":
		return fleet.ApplicationID{Tenant: n.About, Deployment: n.Deployment,
			Environment: n.Environment}.String()
	case n.Deployment != "":
		return string(n.About) + "/" + string(n.Deployment)
	case n.Environment != "":
		return string(n.About) + "/" + string(n.Environment)
	case n.Engine != "":
		return "engine " + string(n.Engine)
	}
	return string(n.About)
}
