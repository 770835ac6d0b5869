package main

import (
	"cmp"
	"time"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/view"
)

var credentialColumns = []column[view.Credential]{
	{head: "CREDENTIAL", of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(c.ID().String())
	}},
	{head: "REPOSITORY", of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(c.RepoURL)
	}},
	{head: "STATE", of: func(c view.Credential, _ time.Time) table.Value {
		if c.State == "" {
			return table.Text("not needed")
		}
		return table.State(c.State)
	}},
	{head: "MESSAGE", of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(c.Message)
	}},
	{head: "SECRET", wide: true, of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(c.Secret)
	}},
	{head: "TYPE", wide: true, of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(string(c.Type))
	}},
	{head: "ENGINES", wide: true, of: func(c view.Credential, _ time.Time) table.Value {
		return table.Text(joined(c.Engines, ", "))
	}},
}

var policyColumns = []column[view.Policy]{
	{head: "POLICY", of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(p.Name)
	}},
	{head: "SEVERITY", of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(string(p.Severity))
	}},
	{head: "MESSAGE", of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(cmp.Or(p.Message, p.MessageExpression))
	}},
	{head: "KINDS", wide: true, of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(joined(p.Kinds, ", "))
	}},
	{head: "TENANTS", wide: true, of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(cmp.Or(joined(p.Tenants, ", "), "all"))
	}},
	{head: "RULE", wide: true, of: func(p view.Policy, _ time.Time) table.Value {
		return table.Text(p.Rule)
	}},
}
