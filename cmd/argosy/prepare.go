package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/argocd/prepare"
)

// instanceFlags select the Argo CD of an engine.
type instanceFlags struct{ repo, kubeconfig, kubeContext string }

func (f *instanceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", ".", "folder of the config repo that declares the engine")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig of the cluster with the Argo CD (required)")
	flags.StringVar(&f.kubeContext, "context", "", "context of the kubeconfig")
	_ = cmd.MarkFlagRequired("kubeconfig")
}

// open returns the declared engine and a connection to its cluster.
func (f *instanceFlags) open(name string) (fleet.EngineSpec, *rest.Config, error) {
	spec, err := declaredEngine(f.repo, name)
	if err != nil {
		return spec, nil, err
	}
	config, err := original.Kubeconfig(f.kubeconfig, f.kubeContext)
	return spec, config, err
}

func prepareCommand(a *app) *cobra.Command {
	var from instanceFlags
	var clusters, leaveOut []string
	var dryRun, undo bool
	cmd := &cobra.Command{
		Use:   "prepare ENGINE --kubeconfig FILE",
		Short: "Prepare a running Argo CD to become an engine, without a sync",
		Long: "Gives the Argo CD of a declared engine what Argosy needs: resource tracking by\n" +
			"annotation, the installationID and a locked AppProject default. It reads\n" +
			"everything, does one step, lets Argo CD compare all Applications, verifies that\n" +
			"every resource is still tracked and that no sync began, and continues. It stops,\n" +
			"with names and the next step, before a step that is not safe. It deletes nothing.\n" +
			"It can be interrupted and run again; --undo restores the settings before.\n" +
			"Resources on other clusters are annotated with the credentials of Argo CD's\n" +
			"cluster Secrets. Exit code 1: steps remain (--dry-run), or it stopped.",
		Example: "  argosy prepare eu-1 --kubeconfig ~/.kube/config --dry-run\n" +
			"  argosy prepare eu-1 --kubeconfig ~/.kube/config\n" +
			"  argosy prepare eu-1 --kubeconfig ~/.kube/config --cluster prod=prod-admin\n" +
			"  argosy prepare eu-1 --kubeconfig ~/.kube/config --undo",
		Args: exactly("ENGINE"),
	}
	from.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "print the steps and change nothing")
	flags.BoolVar(&undo, "undo", false, "restore the settings before, and remove the annotations")
	flags.StringSliceVar(&clusters, "cluster", nil,
		"NAME=CONTEXT: reach this cluster of Argo CD by a context of the kubeconfig")
	flags.StringSliceVar(&leaveOut, "leave-out", nil,
		"Application without automation whose resources may be untracked: NAME or NAMESPACE/NAME")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec, config, err := from.open(args[0])
		if err != nil {
			return err
		}
		o := prepare.Options{Engine: args[0], Namespace: spec.ArgoCD.Namespace,
			InstallationID: spec.ArgoCD.InstallationID, Config: config, LeaveOut: leaveOut,
			DryRun: dryRun, Undo: undo, Clusters: map[string]*rest.Config{}}
		for _, entry := range clusters {
			name, of, found := strings.Cut(entry, "=")
			if !found || name == "" || of == "" {
				return fmt.Errorf("--cluster %s: write NAME=CONTEXT", entry)
			}
			if o.Clusters[name], err = original.Kubeconfig(from.kubeconfig, of); err != nil {
				return fmt.Errorf("--cluster %s: %w", entry, err)
			}
		}
		return a.prepare(cmd.Context(), spec, o)
	}
	return cmd
}

// declaredEngine is the spec of an engine of a config repo.
func declaredEngine(dir, name string) (spec fleet.EngineSpec, err error) {
	files, err := checkout.Read(dir)
	if err != nil {
		return spec, err
	}
	for _, in := range configschema.Inputs(files) {
		if in.Declaration != nil && in.Declaration.Engine != nil && in.Key.Name == name {
			return *in.Declaration.Engine, nil
		}
	}
	return spec, fmt.Errorf(
		"%s declares no valid Engine %s; write fleet/engines/%s.yaml, and check "+
			"it with `argosy validate %s`",
		dir,
		name,
		name,
		dir,
	)
}

func (a *app) prepare(ctx context.Context, spec fleet.EngineSpec, o prepare.Options) error {
	engine, err := argocd.Connect(fleet.EngineName(o.Engine), spec, o.Config, argocd.Options{
		Stopped: func(fleet.TenantName) bool { return true }})
	if err != nil {
		return err
	}
	report, err := engine.Preflight(ctx)
	if err != nil {
		return err
	}
	var failed error
	o.Version = report.Version
	o.Print = func(format string, args ...any) {
		failed = errors.Join(failed, a.printLine(format, args...))
	}
	err = prepare.Run(ctx, o)
	var blocked *prepare.BlockedError
	switch {
	case errors.As(err, &blocked):
		return findings{blocked.Error()}
	case errors.Is(err, prepare.ErrSteps):
		return findings{"run it without --dry-run to take these steps"}
	case err != nil || failed != nil || o.Undo || o.DryRun:
		return errors.Join(err, failed)
	}
	if report, err = engine.Preflight(ctx); err != nil {
		return err
	}
	for _, f := range report.Findings {
		if f.Blocks || f.Blind {
			o.Print("Still to do: %s; %s", f.Message, f.Fix)
		}
	}
	return failed
}
