package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// shadowCounts is how many Applications of an engine the next version renders differently.
func shadowCounts(s *mirror.Shadow) string {
	switch {
	case s == nil:
		return ""
	case s.ComparedAt == nil:
		return string(s.State) + " " + s.Version
	}
	return fmt.Sprintf("%d/%d under %s, %d pending", s.Differences, s.Applications, s.Version,
		s.Pending)
}

var differenceColumns = []column[mirror.Difference]{
	{head: "APPLICATION", of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(applicationOf(d))
	}},
	{head: "RING", of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(d.Ring)
	}},
	{head: "ENGINE", of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(d.Engine)
	}},
	{head: "VERSION", of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(d.Version)
	}},
	{head: "RESOURCES", of: func(d mirror.Difference, _ time.Time) table.Value {
		if d.Error != "" {
			return table.Text("not rendered")
		}
		return table.Text(strconv.Itoa(len(d.Resources) + d.MoreResources))
	}},
	{head: "APPROVED", of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(d.ApprovedBy)
	}},
	{head: "AGE", of: func(d mirror.Difference, now time.Time) table.Value {
		return age(d.FoundAt, now)
	}},
	{head: "HASH", wide: true, of: func(d mirror.Difference, _ time.Time) table.Value {
		return table.Text(d.Hash)
	}},
}

// chosen selects differences of a ring.
type chosen struct {
	tenant       string
	applications []string
}

func (o *chosen) flags(a *app, cmd *cobra.Command) {
	a.completeOne(cmd, "rings")
	cmd.Flags().StringVar(&o.tenant, "tenant", "", "only of this tenant")
	cmd.Flags().StringSliceVar(&o.applications, "application", nil,
		"only of this Application: tenant/deployment@environment")
	a.completeFlag(cmd, "tenant")
}

// find returns the chosen differences. An Application without one is an error.
func (o *chosen) find(ctx context.Context, c *client.Client, ring string) ([]mirror.Difference,
	error) {
	all, err := c.Differences(ctx, view.Filter{Name: ring, Tenant: fleet.TenantName(o.tenant)}, 0)
	if err != nil || len(o.applications) == 0 {
		return all, err
	}
	for _, name := range o.applications {
		if !slices.ContainsFunc(all, func(d mirror.Difference) bool {
			return applicationOf(d) == name
		}) {
			return nil, fmt.Errorf("ring %s shows no difference of Application %s; see `argosy rings "+
				"differences %s`", ring, name, ring)
		}
	}
	return slices.DeleteFunc(all, func(d mirror.Difference) bool {
		return !slices.Contains(o.applications, applicationOf(d))
	}), nil
}

func applicationOf(d mirror.Difference) string {
	return fleet.ApplicationID{Tenant: d.Tenant, Deployment: d.Deployment,
		Environment: d.Environment}.String()
}

func ringDifferencesCommand(a *app) *cobra.Command {
	o := chosen{}
	cmd := &cobra.Command{
		Use: "differences RING", Short: "List what a ring's version renders differently",
		Long: "Before a ring changes an engine, the declared version renders each of its\n" +
			"Applications beside the present one. A tenant sees its own. `argosy get differences\n" +
			"-o json` prints them for programs.",
		Example: "  argosy rings differences canary --tenant acme", Args: exactly("RING"),
	}
	o.flags(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		all, err := o.find(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return a.printDifferences(args[0], all)
	}
	return cmd
}

func (a *app) printDifferences(ring string, all []mirror.Difference) error {
	pending := 0
	for _, d := range all {
		for _, line := range differenceLines(d) {
			if err := a.printLine("%s", line); err != nil {
				return err
			}
		}
		if d.ApprovedAt == nil {
			pending++
		}
	}
	switch {
	case len(all) == 0:
		a.hint("no difference is known; `argosy describe ring %s` shows what was compared", ring)
	case pending > 0:
		a.hint("%d of %d are pending; approve them with `argosy rings approve %s --tenant TENANT "+
			"--reason REASON`", pending, len(all), ring)
	}
	return nil
}

func differenceLines(d mirror.Difference) []string {
	approval := "pending"
	if d.ApprovedAt != nil {
		approval = "approved by " + d.ApprovedBy + ": " + d.Reason
	}
	lines := []string{fmt.Sprintf("%s on %s under %s: %s", applicationOf(d), d.Engine, d.Version,
		approval)}
	if d.Error != "" {
		lines = append(lines, "  it is not rendered: "+d.Error)
	}
	for _, r := range d.Resources {
		kind := strings.TrimSuffix(r.Kind+"."+r.Group, ".")
		lines = append(lines, fmt.Sprintf("  %-7s %s %s", r.Change, kind,
			strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")))
		for _, f := range r.Fields {
			lines = append(lines, fmt.Sprintf("    %s: %s -> %s", f.Path,
				cmp.Or(f.Before, "(none)"), cmp.Or(f.After, "(none)")))
		}
		if r.MoreFields > 0 {
			lines = append(lines, fmt.Sprintf("    and %d more fields", r.MoreFields))
		}
	}
	if d.MoreResources > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more resources", d.MoreResources))
	}
	return lines
}

func ringApproveCommand(a *app) *cobra.Command {
	o, reason := chosen{}, ""
	cmd := &cobra.Command{
		Use: "approve RING", Short: "Approve what a ring's version renders differently",
		Long: "It prints the differences and approves exactly these. Another difference of the\n" +
			"same Application needs another approval. It takes a\n" +
			"token of an owner of the tenant, or one of the platform.",
		Example: "  argosy rings approve canary --tenant acme --reason 'only a label'\n" +
			"  argosy rings approve canary --application acme/checkout@prod-eu --reason 'expected'",
		Args: exactly("RING"),
	}
	o.flags(a, cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.tenant == "" && len(o.applications) == 0 {
			return errors.New("name what you approve: --tenant or --application")
		}
		if reason == "" {
			return errors.New("give a --reason, for the record")
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		all, err := o.find(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(d mirror.Difference) bool { return d.ApprovedAt != nil })
		if len(all) == 0 {
			return a.printLine("no difference of ring %s is pending", args[0])
		}
		for part := range slices.Chunk(all, 1000) {
			if err := a.approveDifferences(cmd.Context(), c, args[0], reason, part); err != nil {
				return err
			}
		}
		return a.printLine("approved %s of ring %s", plural(len(all), "difference"), args[0])
	}
	return cmd
}

func (a *app) approveDifferences(ctx context.Context, c *client.Client, ring, reason string,
	all []mirror.Difference) error {
	approval := mirror.DifferenceApproval{Ring: ring, Reason: reason}
	for _, d := range all {
		for _, line := range differenceLines(d) {
			if err := a.printLine("%s", line); err != nil {
				return err
			}
		}
		approval.Differences = append(approval.Differences, mirror.DifferenceChoice{
			Tenant: d.Tenant, Application: d.Application, Hash: d.Hash})
	}
	_, err := c.ApproveDifferences(ctx, approval)
	return err
}
