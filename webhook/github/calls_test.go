package github

import (
	"context"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

const marker = "<!-- argosy:sticky -->"

// calls are the methods of a Forge, for tests of all of them. The stage has a pull request 1 of
// bob's.
func calls(s *stage, f *Forge, head fleet.Revision) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Repository": func(ctx context.Context) error {
			_, _, err := f.Repository(ctx)
			return err
		},
		"Pull":         func(ctx context.Context) error { _, err := f.Pull(ctx, 1); return err },
		"Pull of none": func(ctx context.Context) error { _, err := f.Pull(ctx, 99); return err },
		"OpenPulls": func(ctx context.Context) error {
			_, err := f.OpenPulls(ctx, "main")
			return err
		},
		"PullsOf": func(ctx context.Context) error {
			_, err := f.PullsOf(ctx, head)
			return err
		},
		"Conversation": func(ctx context.Context) error {
			_, _, err := f.Conversation(ctx, 1)
			return err
		},
		"Owner, user": func(ctx context.Context) error {
			_, err := f.Owner(ctx, "alice")
			return err
		},
		"Owner, no user": func(ctx context.Context) error {
			_, err := f.Owner(ctx, "unknown")
			return err
		},
		"Owner, team": func(ctx context.Context) error {
			_, err := f.Owner(ctx, "acme/leads")
			return err
		},
		"Owner, no team": func(ctx context.Context) error {
			_, err := f.Owner(ctx, "acme/none")
			return err
		},
		"Permission": func(ctx context.Context) error {
			_, err := f.Permission(ctx, s.cast.Writer)
			return err
		},
		"SetComment": func(ctx context.Context) error {
			_, err := f.SetComment(ctx, 1, 0, marker, "hello")
			return err
		},
		"ReportChecks": func(ctx context.Context) error {
			return f.ReportChecks(ctx, head, []forge.Check{
				{Name: forge.CheckPlan, State: forge.CheckSuccess, Title: "fine"}})
		},
		"Missed": func(ctx context.Context) error {
			_, err := f.Missed(ctx, s.server.Clock().Add(-time.Hour))
			return err
		},
		"Redeliver": func(ctx context.Context) error { return f.Redeliver(ctx, 1) },
	}
}

// both runs a test with an App and with a token.
func both(t *testing.T, test func(*testing.T, *stage)) {
	t.Run("as an App", func(t *testing.T) { test(t, newStage(t, true)) })
	t.Run("with a token", func(t *testing.T) { test(t, newStage(t, false)) })
}
