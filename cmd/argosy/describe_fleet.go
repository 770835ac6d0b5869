package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func labels(m map[string]string) string {
	var pairs []string
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ", ")
}

func describeTenant(ctx context.Context, c *client.Client, name string) (description, error) {
	v, err := c.Tenant(ctx, fleet.TenantName(name))
	if err != nil {
		return description{}, err
	}
	of := view.Filter{Tenant: v.Name}
	environments, err := c.Environments(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	deployments, err := c.Deployments(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	problems, err := c.Problems(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	holds, err := c.Holds(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: v, sections: []section{
		{facts: []table.Fact{
			{Name: "Tenant", Value: table.Text(v.Name)},
			{Name: "Owners", Value: table.Text(strings.Join(v.Owners, ", "))},
			{Name: "Stopped", Value: stopped(v.Stopped)},
			{Name: "Environments", Value: used(v.Used.Environments, v.Quota.Environments)},
			{Name: "Deployments", Value: used(v.Used.Deployments, v.Quota.Deployments)},
			{Name: "Applications", Value: used(v.Used.Applications, v.Quota.Applications)},
			{Name: "Healthy", Value: healthOf(v.Counts)},
		}},
		{title: "Holds", table: tabulate(holds, holdColumns, false, now)},
		{title: "Problems", table: tabulate(problems, problemColumns, false, now)},
		{title: "Environments", table: tabulate(environments, environmentColumns[1:], false, now)},
		{title: "Deployments", table: tabulate(deployments, deploymentColumns[1:], false, now)},
	}}, nil
}

func describeEngine(ctx context.Context, c *client.Client, name string) (description, error) {
	v, err := c.Engine(ctx, fleet.EngineName(name))
	if err != nil {
		return description{}, err
	}
	environments, err := c.Environments(ctx, view.Filter{Engine: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	holder := ""
	if v.Holder != "" {
		holder = fmt.Sprintf("%s, epoch %d", v.Holder, v.Epoch)
	}
	return description{item: v, sections: []section{
		{facts: []table.Fact{
			{Name: "Engine", Value: table.Text(v.Name)},
			{Name: "Region", Value: table.Text(v.Region)},
			{Name: "State", Value: table.State(v.State)},
			{Name: "Stopped", Value: stopped(v.Stopped)},
			{Name: "Reachable", Value: reach(v, now)},
			{Name: "Message", Value: table.Text(v.Message)},
			{Name: "Argo CD", Value: table.Text(v.ArgoCD)},
			{Name: "Installation ID", Value: table.Text(v.InstanceID)},
			{Name: "Ring", Value: table.Text(v.Ring)},
			{Name: "Applications", Value: used(v.Load.Applications, v.Capacity.Applications)},
			{Name: "Environments", Value: used(v.Load.Environments, v.Capacity.Environments)},
			{Name: "Healthy", Value: healthOf(v.Counts)},
			{Name: "Behind", Value: table.Number(v.Pending)},
			{Name: "Held by", Value: table.Text(holder)},
			{Name: "Strays", Value: waits(v.Orphans)},
			{Name: "Unreachable", Value: unreadOf(v)},
			{Name: "Went back", Value: agePtr(v.WentBackAt, now)},
			{Name: "Went back by", Value: table.Text(v.WentBack)},
		}},
		{title: "Environments", table: tabulate(environments, environmentColumns, false, now)},
	}}, nil
}

// unreadOf counts the environments whose clusters an engine cannot read.
func unreadOf(v view.Engine) table.Cell {
	if v.Unreachable == 0 {
		return table.Cell{}
	}
	return table.Cell{Text: fmt.Sprintf("%d environments; %d Applications are parked",
		v.Unreachable, v.Parked), Tone: table.Bad}
}

func describeOperation(ctx context.Context, c *client.Client, id string) (description, error) {
	v, err := c.Operation(ctx, id)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	ended := table.Cell{}
	if v.EndedAt != nil {
		ended = ago(v.EndedAt, now)
	}
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Operation", Value: table.Text(v.ID)},
		{Name: "Kind", Value: table.Text(v.Kind)},
		{Name: "Subject", Value: table.Text(v.Subject)},
		{Name: "State", Value: table.State(v.State)},
		{Name: "Done", Value: done(v)},
		{Name: "Message", Value: table.Text(v.Message)},
		{Name: "Tenant", Value: table.Text(v.Tenant)},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Revision", Value: table.Text(v.Revision)},
		{Name: "Requested by", Value: table.Text(v.RequestedBy)},
		{Name: "Started", Value: ago(&v.StartedAt, now)},
		{Name: "Ended", Value: ended},
	}}}}, nil
}

// recent is how many revisions are looked through for a shortened one.
const recent = 1000

func describeRevision(ctx context.Context, c *client.Client, digits string) (description, error) {
	revision := fleet.Revision(digits)
	if len(digits) < 40 {
		all, err := c.Revisions(ctx, view.Filter{}, recent)
		if err != nil {
			return description{}, err
		}
		if revision, err = pick(digits, all, func(r view.Revision) fleet.Revision {
			return r.Revision
		}); err != nil {
			return description{}, fmt.Errorf("revision %s: %w; see `argosy get revisions`", digits,
				err)
		}
	}
	v, err := c.Revision(ctx, revision)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Revision", Value: table.Text(v.Revision)},
		{Name: "Subject", Value: table.Text(v.Subject)},
		{Name: "Author", Value: table.Text(v.Author)},
		{Name: "Committed", Value: ago(&v.CommittedAt, now)},
		{Name: "Recorded", Value: ago(&v.RecordedAt, now)},
		{Name: "Applied", Value: ago(v.AppliedAt, now)},
		{Name: "Created", Value: table.Number(v.Created)},
		{Name: "Changed", Value: table.Number(v.Changed)},
		{Name: "Deleted", Value: table.Number(v.Deleted)},
		{Name: "Held", Value: count(v.Held)},
		{Name: "Problems", Value: count(v.Problems)},
		{Name: "Pending", Value: table.Number(v.Pending)},
	}}}}, nil
}
