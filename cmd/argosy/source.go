package main

import (
	"context"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/view"
)

// source lists the one config repo.
//
//nolint:revive // the shape of a method expression
func source(c *client.Client, ctx context.Context, _ view.Filter, _ int) ([]view.Source, error) {
	s, err := c.Source(ctx)
	if err != nil {
		return nil, err
	}
	return []view.Source{s}, nil
}

var sourceColumns = []column[view.Source]{
	{head: "REPOSITORY", of: func(s view.Source, _ time.Time) table.Value {
		return table.Text(s.URL)
	}},
	{head: "BRANCH", of: func(s view.Source, _ time.Time) table.Value {
		return table.Text(s.Branch)
	}},
	{head: "HEAD", of: func(s view.Source, _ time.Time) table.Value {
		return table.Text(s.Head.Short())
	}},
	{head: "APPLIED", of: func(s view.Source, _ time.Time) table.Value {
		return table.Text(s.Applied.Short())
	}},
	{head: "READ", of: func(s view.Source, now time.Time) table.Value {
		return agePtr(s.FetchedAt, now)
	}},
	{head: "ERROR", of: func(s view.Source, now time.Time) table.Value {
		v := table.Text(s.Error)
		if s.Error != "" {
			v.Tone = table.Bad
			v.Text = "for " + agePtr(s.Since, now).Text + ": " + s.Error
		}
		return v
	}},
}
