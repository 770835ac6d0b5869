package main

import (
	"time"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

var commitStatusColumns = []column[mirror.CommitStatus]{
	{head: "APPLICATION", of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(c.Of().String())
	}},
	{head: "COMMIT", of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(fleet.Revision(c.Commit).Short())
	}},
	{head: "STATE", of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.State(c.State)
	}},
	{head: "REPORT", of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.State(c.Delivery)
	}},
	{head: "AGE", of: func(c mirror.CommitStatus, now time.Time) table.Value {
		return age(c.ChangedAt, now)
	}},
	{head: "ANSWER", of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(c.Answer)
	}},
	{head: "REPOSITORY", wide: true, of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(c.Repository)
	}},
	{head: "SETTINGS", wide: true, of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(c.Settings)
	}},
	{head: "REPLACED-BY", wide: true, of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(fleet.Revision(c.ReplacedBy).Short())
	}},
	{head: "MESSAGE", wide: true, of: func(c mirror.CommitStatus, _ time.Time) table.Value {
		return table.Text(c.Message)
	}},
}
