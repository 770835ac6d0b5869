package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

// section is one part of a description: facts, a table, or both.
type section struct {
	title string
	facts []table.Fact
	table table.Table
	text  func(io.Writer) error // what is neither
}

// description is one thing in all its forms.
type description struct {
	item     any // for JSON and YAML
	sections []section
}

type describer func(context.Context, *client.Client, string) (description, error)

func describers() map[string]describer {
	return map[string]describer{
		"applications": describeApplication, "environments": describeEnvironment,
		"deployments": describeDeployment, "tenants": describeTenant,
		"engines": describeEngine, "operations": describeOperation, "revisions": describeRevision,
		"pulls": describePull, "agents": describeAgent,
	}
}

func (a *app) describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Everything the mirror knows of one thing",
		Long: "NAME is a tenant's or engine's name, tenant/name for environments and " +
			"deployments, tenant/deployment@environment for applications,\n" +
			"an ID for operations, a full or shortened commit id for revisions, a number for " +
			"pulls, and tenant/name or an engine's name for agents.",
		Example: "  argosy describe application acme/checkout@prod-eu\n  argosy describe " +
			"environment acme/prod-eu\n  argosy describe engine eu-1 -o yaml",
		Args: exactly("KIND", "NAME"),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, err := findResource(args[0])
		if err != nil {
			return err
		}
		describe := describers()[kind.plural]
		if describe == nil {
			return fmt.Errorf("%s are listed, not described: run `argosy get %s -o wide`",
				kind.plural, kind.plural)
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		found, err := describe(cmd.Context(), c, args[1])
		if err != nil {
			return err
		}
		switch out.value {
		case "json":
			return writeJSON(a.out, found.item)
		case "yaml":
			return writeYAML(a.out, found.item)
		}
		return a.writeDescription(found)
	}
	return cmd
}

func (a *app) writeDescription(d description) error {
	for i, s := range d.sections {
		if len(s.facts) == 0 && len(s.table.Rows) == 0 && s.text == nil {
			continue
		}
		if i > 0 {
			if _, err := fmt.Fprintf(a.out, "\n%s\n", printable.Name(s.title)); err != nil {
				return err
			}
		}
		if err := table.Facts(a.out, a.colour(), s.facts); err != nil {
			return err
		}
		if len(s.table.Rows) > 0 {
			if err := s.table.Write(a.out, a.colour()); err != nil {
				return err
			}
		}
		if s.text != nil {
			if err := s.text(a.out); err != nil {
				return err
			}
		}
	}
	return nil
}

// twoParts splits tenant/name.
func twoParts(kind, name string) (fleet.TenantName, string, error) {
	tenant, rest, ok := strings.Cut(name, "/")
	if !ok || tenant == "" || rest == "" || strings.ContainsAny(rest, "/@") {
		return "", "", fmt.Errorf("%s %q: write it as tenant/name, such as acme/%s", kind, name,
			first(map[string]string{"environment": "prod-eu", "deployment": "checkout"}[kind],
				"name"))
	}
	return fleet.TenantName(tenant), rest, nil
}

func applicationID(name string) (fleet.ApplicationID, error) {
	tenant, rest, ok := strings.Cut(name, "/")
	deployment, environment, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 || tenant == "" || deployment == "" || environment == "" ||
		strings.ContainsAny(rest, "/") {
		return fleet.ApplicationID{},
			fmt.Errorf(
				"application %q: write it as tenant/deployment@environment, such as "+
					"acme/checkout@prod-eu", name)
	}
	return fleet.ApplicationID{Tenant: fleet.TenantName(tenant),
		Deployment:  fleet.DeploymentName(deployment),
		Environment: fleet.EnvironmentName(environment)}, nil
}

func describeApplication(ctx context.Context, c *client.Client, name string) (description, error) {
	id, err := applicationID(name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Application(ctx, id)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Application", Value: table.Text(id.String())},
		{Name: "Object", Value: table.Text(v.Name)},
		{Name: "UID", Value: table.Text(v.UID)},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Apply", Value: applyOf(v)},
		{Name: "", Value: table.Text(v.ApplyMessage)},
		{Name: "Deletion blocked", Value: blocked(v)},
		{Name: "Unreachable", Value: unreachable(v.Unreachable, now)},
		{Name: "Sync", Value: table.State(v.Sync)},
		{Name: "Health", Value: table.State(v.Health)},
		{Name: "Message", Value: table.Text(v.Message)},
		{Name: "Operation", Value: table.State(v.OperationPhase)},
		{Name: "Repository", Value: table.Text(v.RepoURL)},
		{Name: "Target revision", Value: table.Text(v.TargetRevision)},
		{Name: "Synced revision", Value: table.Text(v.SyncedRevision)},
		{Name: "Declared at", Value: table.Text(v.Revision)},
		{Name: "Resources", Value: table.Number(v.Resources)},
		{Name: "Created", Value: ago(&v.CreatedAt, now)},
		{Name: "Changed", Value: ago(&v.ChangedAt, now)},
		{Name: "Last report", Value: ago(v.ObservedAt, now)},
	}}}}, nil
}

func ago(t *time.Time, now time.Time) table.Cell {
	if t == nil || t.IsZero() {
		return table.Cell{Text: "never"}
	}
	return table.Cell{Text: fleet.Age(now.Sub(*t)) + " ago (" + t.UTC().Format(time.RFC3339) + ")"}
}

func describeEnvironment(ctx context.Context, c *client.Client, name string) (description, error) {
	tenant, short, err := twoParts("environment", name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Environment(ctx, fleet.EnvironmentID{
		Tenant: tenant, Name: fleet.EnvironmentName(short)})
	if err != nil {
		return description{}, err
	}
	apps, err := shownApplications(c, ctx, view.Filter{Tenant: tenant, Environment: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	facts := []table.Fact{
		{Name: "Environment", Value: table.Text(name)},
		{Name: "Server", Value: servedBy(v)},
		{Name: "Unreachable", Value: unreachable(v.Unreachable, time.Now())},
		{Name: "Message", Value: unreachableMessage(v.Unreachable)},
		{Name: "Namespaces", Value: table.Text(strings.Join(v.Namespaces, ", "))},
		{Name: "Region", Value: table.Text(v.Region)},
		{Name: "Labels", Value: table.Text(labels(v.Labels))},
		{Name: "Problems", Value: count(v.Problems)},
		{Name: "Healthy", Value: healthOf(v.Counts)},
	}
	return description{item: v, sections: []section{
		{facts: append(facts, placementFacts(v.Placement)...)},
		{title: "Applications", table: tabulate(apps, shownColumns(), false, time.Now())},
	}}, nil
}

// servedBy is the cluster of an environment: its API server, or that it deploys to itself.
func servedBy(v view.Environment) table.Cell {
	if v.Agent == "" {
		return table.Text(v.Server)
	}
	return table.Cell{Text: "by its agent, " + string(v.Agent)}
}

func placementFacts(p fleet.Placement) []table.Fact {
	return []table.Fact{
		{Name: "Engine", Value: placedOn(p.Engine)},
		{Name: "Because", Value: table.Text(p.Reason)},
		{Name: "Misplaced", Value: table.Cell{Text: p.Misplaced, Tone: table.Busy}},
		{Name: "Decided at", Value: table.Text(p.Revision)},
	}
}

func describeDeployment(ctx context.Context, c *client.Client, name string) (description, error) {
	tenant, short, err := twoParts("deployment", name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Deployment(ctx, fleet.DeploymentID{
		Tenant: tenant, Name: fleet.DeploymentName(short)})
	if err != nil {
		return description{}, err
	}
	apps, err := c.Applications(ctx, view.Filter{Tenant: tenant, Deployment: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Deployment", Value: table.Text(name)},
		{Name: "Repository", Value: table.Text(v.Source.RepoURL)},
		{Name: "Path", Value: table.Text(v.Source.Path)},
		{Name: "Chart", Value: table.Text(v.Source.Chart)},
		{Name: "Target revision", Value: table.Text(v.Source.TargetRevision)},
		{Name: "Namespace", Value: table.Text(v.Namespace)},
		{Name: "Labels", Value: table.Text(labels(v.Labels))},
		{Name: "Environments", Value: table.Text(commas(v.Environments))},
		{Name: "Problems", Value: count(v.Problems)},
		{Name: "Healthy", Value: healthOf(v.Counts)},
	}}, {title: "Applications", table: tabulate(apps, applicationColumns, false, time.Now())}}}, nil
}

// shortest is how few digits may stand for a revision.
const shortest = 7

// pick is the one revision that begins with the digits.
func pick[T any](digits string, items []T, revision func(T) fleet.Revision) (fleet.Revision,
	error) {
	if len(digits) < shortest || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", fmt.Errorf("revision %q: give at least %d hexadecimal digits of it", digits,
			shortest)
	}
	var found fleet.Revision
	for _, item := range items {
		r := revision(item)
		if !strings.HasPrefix(string(r), digits) || r == found {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("revision %s could be %s or %s: give more digits", digits, found,
				r)
		}
		found = r
	}
	if found == "" {
		return "", errNoRevision
	}
	return found, nil
}

var errNoRevision = errors.New("no such revision")
