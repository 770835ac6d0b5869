package main

import (
	"time"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/view"
)

// freezeOwner is the tenant whose freeze it is, or the fleet.
func freezeOwner(v view.Freeze) string {
	if v.Tenant == "" {
		return "the fleet"
	}
	return string(v.Tenant)
}

const freezeTime = "Mon 2006-01-02 15:04 UTC"

var freezeColumns = []column[view.Freeze]{
	{head: "OF", of: func(v view.Freeze, _ time.Time) table.Value {
		return table.Text(freezeOwner(v))
	}},
	{head: "NAME", of: func(v view.Freeze, _ time.Time) table.Value { return table.Text(v.Name) }},
	{head: "NOW", of: func(v view.Freeze, _ time.Time) table.Value {
		if v.Until == nil {
			return table.Text("no")
		}
		return table.Value{Text: "until " + v.Until.UTC().Format(freezeTime), Tone: table.Busy}
	}},
	{head: "NEXT", of: func(v view.Freeze, _ time.Time) table.Value {
		if v.Next == nil {
			return table.Text("")
		}
		return table.Text(v.Next.UTC().Format(freezeTime))
	}},
	{head: "ENVIRONMENTS", wide: true, of: func(v view.Freeze, _ time.Time) table.Value {
		if v.EnvironmentSelector == "" {
			return table.Text("all")
		}
		return table.Text(v.EnvironmentSelector)
	}},
	{head: "KINDS", wide: true, of: func(v view.Freeze, _ time.Time) table.Value {
		return table.Text(commas(v.Kinds))
	}},
	{head: "SCHEDULE", wide: true, of: func(v view.Freeze, _ time.Time) table.Value {
		return table.Text(v.Schedule + " for " + v.Duration.Short() + ", " +
			v.TimeZone)
	}},
	{head: "REASON", wide: true, of: func(v view.Freeze, _ time.Time) table.Value {
		return table.Text(v.Reason)
	}},
}
