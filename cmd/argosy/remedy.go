package main

import (
	"time"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

var remedyColumns = []column[mirror.Remedy]{
	{head: "ENGINE", of: func(r mirror.Remedy, _ time.Time) table.Value {
		return table.Text(r.Engine)
	}},
	{head: "RESTARTS", of: func(r mirror.Remedy, _ time.Time) table.Value {
		return table.Text(r.Restarts.Label())
	}},
	{head: "FAULT", of: func(r mirror.Remedy, _ time.Time) table.Value {
		return table.Text(r.Fault)
	}},
	{head: "STATE", of: func(r mirror.Remedy, _ time.Time) table.Value {
		return remedyState(r)
	}},
	{head: "AGE", of: func(r mirror.Remedy, now time.Time) table.Value {
		return age(r.RequestedAt, now)
	}},
	{head: "MESSAGE", of: func(r mirror.Remedy, _ time.Time) table.Value {
		return table.Text(r.Message)
	}},
	{head: "ID", wide: true, of: func(r mirror.Remedy, _ time.Time) table.Value {
		return table.Text(r.ID)
	}},
}

func remedyState(r mirror.Remedy) table.Value {
	v := table.Text(r.State)
	switch r.State {
	case mirror.RemedyDidNotHelp, mirror.RemedyFailed:
		v.Tone = table.Bad
	case mirror.RemedyHelped, mirror.RemedyUnneeded:
		v.Tone = table.Good
	}
	return v
}

// remedyOf describes the last remedy of an engine that does not work; empty without one.
func remedyOf(r *mirror.Remedy, now time.Time) table.Value {
	if r == nil {
		return table.Value{}
	}
	v := remedyState(*r)
	v.Text += " for " + fleet.Age(now.Sub(r.Since)) + ": restart of the " +
		r.Restarts.Label() + " against " + string(r.Fault)
	if r.Message != "" {
		v.Text += "; " + r.Message
	}
	return v
}
