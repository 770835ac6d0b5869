package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

var pullColumns = []column[view.Pull]{
	{head: "PULL", of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text("#" + strconv.Itoa(p.Number))
	}},
	{head: "STATE", of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(p.State)
	}},
	{head: "AUTHOR", of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(p.Author)
	}},
	{head: "HEAD", of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(p.Head.Short())
	}},
	{head: "VERDICT", of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(p.Verdict)
	}},
	{head: "TENANTS", wide: true, of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(whose(p.Tenants))
	}},
	{head: "UPDATED", wide: true, of: func(p view.Pull, now time.Time) table.Cell {
		return age(p.UpdatedAt, now)
	}},
	{head: "TITLE", wide: true, of: func(p view.Pull, _ time.Time) table.Cell {
		return table.Text(p.Title)
	}},
}

// whose names tenants, and the platform.
func whose(tenants []fleet.TenantName) string {
	var names []string
	for _, t := range tenants {
		names = append(names, first(string(t), "the platform"))
	}
	return strings.Join(names, ", ")
}

func describePull(ctx context.Context, c *client.Client, name string) (description, error) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	if err != nil || number <= 0 {
		return description{}, fmt.Errorf("pull request %q: write its number, such as 7", name)
	}
	v, err := c.Pull(ctx, number)
	if err != nil {
		return description{}, err
	}
	plan, err := c.PullPlan(ctx, number)
	var refusal *wire.Refusal
	planned := err == nil
	if err != nil && (!errors.As(err, &refusal) || refusal.Status != 404) {
		return description{}, err
	}
	item := struct {
		view.Pull
		Plan *report.Report `json:"plan,omitempty"`
	}{Pull: v}
	sections := []section{{facts: []table.Fact{
		{Name: "Pull request", Value: table.Text("#" + strconv.Itoa(v.Number))},
		{Name: "Title", Value: table.Text(v.Title)},
		{Name: "Author", Value: table.Text(v.Author)},
		{Name: "State", Value: table.Text(v.State)},
		{Name: "Verdict", Value: table.Text(v.Verdict)},
		{Name: "Changes files of", Value: table.Text(whose(v.Tenants))},
		{Name: "Head", Value: table.Text(v.Head)},
		{Name: "Planned on", Value: table.Text(v.Base)},
		{Name: "URL", Value: table.Text(v.URL)},
	}}}
	if planned {
		item.Plan = &plan
		sections = append(sections, section{title: "What its reviewers see",
			text: plan.WriteText})
	}
	return description{item: item, sections: sections}, nil
}
