package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
)

func leaveCommand(a *app) *cobra.Command {
	var from instanceFlags
	var o argocd.LeaveOptions
	cmd := &cobra.Command{
		Use:   "leave ENGINE --kubeconfig FILE",
		Short: "Give every object of Argosy on an engine back to people",
		Long: "Removes Argosy's labels, annotations and field ownership from the Applications,\n" +
			"AppProjects and Secrets of an engine, and sets the finalizers that `argosy export`\n" +
			"writes. Specs, credentials and workloads stay, and Argo CD syncs nothing. Then\n" +
			"`kubectl apply` of the exported manifests changes nothing. It requires an emergency\n" +
			"stop of the engine or the fleet, or --uninstalled: a control plane that still writes\n" +
			"would report the objects as foreign. It deletes nothing, and can be run again. A dry\n" +
			"run requires no stop.",
		Example: "  argosy leave eu-1 --kubeconfig ~/.kube/config --dry-run\n" +
			"  argosy stop --engine eu-1 --reason 'leaving'\n" +
			"  argosy leave eu-1 --kubeconfig ~/.kube/config",
		Args: exactly("ENGINE"),
	}
	from.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.DryRun, "dry-run", false, "list the objects and change nothing")
	flags.BoolVar(&o.Uninstalled, "uninstalled", false,
		"every replica of the control plane has ended: needs no emergency stop")
	flags.BoolVar(&o.ExpiringTokens, "expiring-tokens", false,
		"leave cluster Secrets with tokens that nothing renews")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec, config, err := from.open(args[0])
		if err != nil {
			return err
		}
		if o.Policy, err = declaredPolicies(from.repo, fleet.EngineName(args[0])); err != nil {
			return err
		}
		e, err := argocd.Connect(fleet.EngineName(args[0]), spec, config, argocd.Options{
			Stopped: func(fleet.TenantName) bool { return true }})
		if err != nil {
			return err
		}
		all, err := e.Leave(cmd.Context(), o)
		for _, o := range all {
			text := fmt.Sprintf("%s %s", o.Kind, o.Name)
			if o.Note != "" {
				text += ": " + o.Note
			}
			if err := a.printLine("%s", text); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, argocd.ErrExpiringTokens):
			return fmt.Errorf("engine %s: %w. Declare credentials of their own for these "+
				"environments, or write other credentials into the Secrets before and use "+
				"--expiring-tokens", args[0], err)
		case errors.Is(err, argocd.ErrNotStopped):
			return fmt.Errorf("engine %s: %w; run `argosy stop --engine %s`, or uninstall the "+
				"control plane and use --uninstalled", args[0], err, args[0])
		}
		if err != nil {
			return err
		}
		if o.DryRun {
			a.hint("%s would be given back", plural(len(all), "object"))
		} else {
			a.hint("gave %s back", plural(len(all), "object"))
		}
		return nil
	}
	return cmd
}

// declaredPolicies returns the deletion policy of each live object of an engine, by kind and name.
// Adopted Applications of several engines may have one name. Without a row of the engine, where
// environments may be placed otherwise than here, it is the policy that all of the name have.
func declaredPolicies(dir string, engine fleet.EngineName) (func(fleet.ObjectKind,
	string) fleet.DeletionPolicy, error) {
	files, err := checkout.Read(dir)
	if err != nil {
		return nil, err
	}
	p, err := plan.Offline(configschema.Inputs(files), "", policy.New().Judge, argocd.Renderer{})
	if err != nil {
		return nil, err
	}
	type object struct {
		kind fleet.ObjectKind
		name string
	}
	all := map[object]map[fleet.EngineName]fleet.DeletionPolicy{}
	for _, r := range p.Rows {
		// an adopted Application keeps its name, and its namespace
		var live struct {
			Metadata struct{ Namespace, Name string }
		}
		if err := json.Unmarshal(r.Row.Manifest.Body, &live); err != nil {
			return nil, err
		}
		o := object{r.Row.Key.Kind, fleet.JoinObject(live.Metadata.Namespace, live.Metadata.Name)}
		if all[o] == nil {
			all[o] = map[fleet.EngineName]fleet.DeletionPolicy{}
		}
		all[o][r.Row.Key.Engine] = r.Row.Deletion
	}
	return func(kind fleet.ObjectKind, name string) fleet.DeletionPolicy {
		return policyOn(engine, all[object{kind, name}])
	}, nil
}

// policyOn returns the policy of the rows of one name on an engine: Delete only if no other row may
// be meant, since it makes the deletion of an Application delete its workload.
func policyOn(engine fleet.EngineName,
	all map[fleet.EngineName]fleet.DeletionPolicy) (policy fleet.DeletionPolicy) {
	if own, ok := all[engine]; ok {
		return own
	}
	for _, p := range all {
		if policy = p; p != fleet.DeletionDelete {
			return p
		}
	}
	return policy
}
