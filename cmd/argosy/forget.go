package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func forgetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Stop waiting for an engine or a cluster that never returns",
		Example: "  argosy forget engine eu-1 --confirm-gone eu-1 --reason 'the site burned'\n" +
			"  argosy forget cluster acme/prod-eu --confirm-gone acme/prod-eu " +
			"--reason 'the cluster is scrapped'",
	}
	cmd.AddCommand(forgetEngineCommand(a), forgetClusterCommand(a))
	return cmd
}

func forgetEngineCommand(a *app) *cobra.Command {
	var r mirror.EngineForgetting
	cmd := &cobra.Command{
		Use:   "engine ENGINE --confirm-gone ENGINE --reason REASON",
		Short: "Stop waiting for an evacuated engine that never returns",
		Long: "Argosy no longer waits for the proof that the engine's objects are deleted, and\n" +
			"the engine's file can be removed from the config repo. `argosy get unproven`\n" +
			"lists the objects until they are proven gone. The engine stays evacuated: if it\n" +
			"returns in spite of the decision, Argosy freezes and removes them.",
		Example: "  argosy evacuate engine eu-1 --confirm-gone eu-1\n" +
			"  argosy forget engine eu-1 --confirm-gone eu-1 --reason 'the site burned'\n" +
			"  argosy get unproven --engine eu-1",
		Args: exactly("ENGINE"),
	}
	cmd.Flags().StringVar((*string)(&r.ConfirmGone), "confirm-gone", "",
		"the engine's name again: it never returns")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, for the record (required)")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Engine = fleet.EngineName(args[0])
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := c.ForgetEngine(cmd.Context(), r)
		if err != nil {
			return err
		}
		unproven := 0
		if done.Evacuation != nil {
			unproven = done.Evacuation.Unproven
		}
		err = a.printLine("forgot engine %s: the deletion of %d objects is not proven", r.Engine,
			unproven)
		a.hint("now remove the engine's file from the config repo;\n"+
			"`argosy get unproven --engine %s` lists the objects", r.Engine)
		return err
	}
	return cmd
}

func forgetClusterCommand(a *app) *cobra.Command {
	var r mirror.ClusterForgetting
	cmd := &cobra.Command{
		Use:   "cluster TENANT/ENVIRONMENT --confirm-gone TENANT/ENVIRONMENT --reason REASON",
		Short: "Remove the Applications of a removed environment whose cluster never returns",
		Long: "Argo CD deletes an Application with its workload only while the cluster answers.\n" +
			"The command removes the Applications that wait for the cluster of an environment\n" +
			"without it, and lists their workloads as unproven: see `argosy get unproven`.\n" +
			"Remove the environment and its deployments from the config repo first.",
		Example: "  argosy get applications --tenant acme --apply Deleting\n" +
			"  argosy forget cluster acme/prod-eu --confirm-gone acme/prod-eu " +
			"--reason 'the cluster is scrapped'\n" +
			"  argosy get unproven --tenant acme --environment prod-eu",
		Args: exactly("TENANT/ENVIRONMENT"),
	}
	cmd.Flags().StringVar(&r.ConfirmGone, "confirm-gone", "",
		"the environment's name again: its cluster never returns")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, for the record (required)")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tenant, name, err := twoParts("environment", args[0])
		if err != nil {
			return err
		}
		r.Tenant, r.Environment = tenant, fleet.EnvironmentName(name)
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := c.ForgetCluster(cmd.Context(), r)
		if err != nil {
			return err
		}
		err = a.printLine("forgot the cluster of environment %s: %d objects are not proven to be "+
			"gone", r.ID(), done.Unproven)
		a.hint("`argosy get unproven --tenant %s --environment %s` lists them", r.Tenant,
			r.Environment)
		return err
	}
	return cmd
}

func resolveUnprovenCommand(a *app) *cobra.Command {
	var r mirror.UnprovenResolution
	var environment string
	cmd := &cobra.Command{
		Use:   "resolve-unproven [ID...] --reason REASON",
		Short: "Take objects off the list of the unproven ones, once you have proven them gone",
		Long: "Select the objects by their IDs, as `argosy get unproven` shows them, or all of an\n" +
			"engine or an environment. The decision is recorded with your token's name. Once\n" +
			"an engine without a declaration has no unproven object, Argosy no longer tries to\n" +
			"reach it.",
		Example: "  argosy get unproven\n" +
			"  argosy resolve-unproven 12 13 --reason 'the namespace is empty'\n" +
			"  argosy resolve-unproven --engine eu-1 --reason 'its disks are destroyed'",
	}
	cmd.Flags().StringVar((*string)(&r.Engine), "engine", "", "all objects of this engine")
	cmd.Flags().StringVar(&environment, "environment", "",
		"all objects of this environment: TENANT/ENVIRONMENT")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, for the record (required)")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			id, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				return fmt.Errorf("%s: write an ID, as in `argosy get unproven`", arg)
			}
			r.IDs = append(r.IDs, id)
		}
		if environment != "" {
			tenant, name, err := twoParts("environment", environment)
			if err != nil {
				return err
			}
			r.Tenant, r.Environment = tenant, fleet.EnvironmentName(name)
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := c.ResolveUnproven(cmd.Context(), r)
		if err != nil {
			return err
		}
		return a.printLine("resolved %d unproven objects", done.Objects)
	}
	return cmd
}

var unprovenColumns = []column[view.Unproven]{
	{head: "ID", of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(strconv.FormatInt(v.ID, 10))
	}},
	{head: "OBJECT", of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(string(v.Engine) + "/" + string(v.Kind) + "/" + v.Name)
	}},
	{head: "LOST", of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.Lost)
	}},
	{head: "SEEN", of: func(v view.Unproven, now time.Time) table.Value {
		return agePtr(v.SeenAt, now)
	}},
	{head: "FORGOTTEN", of: func(v view.Unproven, now time.Time) table.Value {
		return age(v.ForgottenAt, now)
	}},
	{head: "RISK", of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.Risk)
	}},
	{head: "ENVIRONMENT", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		if v.Environment == "" {
			return table.Text(v.Tenant)
		}
		return table.Text(string(v.Tenant) + "/" + string(v.Environment))
	}},
	{head: "SERVER", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.Server)
	}},
	{head: "NAMESPACE", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.Namespace)
	}},
	{head: "UID", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.UID)
	}},
	{head: "BY", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.ForgottenBy)
	}},
	{head: "REASON", wide: true, of: func(v view.Unproven, _ time.Time) table.Value {
		return table.Text(v.Reason)
	}},
}
