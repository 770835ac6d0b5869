package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/diff"
)

func (a *app) renderCommand() *cobra.Command {
	var engine string
	cmd := &cobra.Command{
		Use:   "render [DIR]",
		Short: "The exact objects that each engine would get, from the declarations alone",
		Long: "Reads fleet/ and tenants/ below DIR (here, if it is left out). Environments are " +
			"placed as if nothing had been placed before, so a running\n" +
			"control plane may have them on other engines. Declarations with problems are left " +
			"out, and make the exit code 1.",
		Example: "  argosy render\n  argosy render path/to/config-repo --engine eu-1 -o json",
		Args:    atMost("DIR"),
	}
	cmd.Flags().StringVar(&engine, "engine", "",
		"only what this engine gets; TENANT.ENVIRONMENT is an environment's own cluster with an agent")
	out := addFormat(cmd, "yaml", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		files, err := checkout.Read(dirOf(args))
		if err != nil {
			return err
		}
		inputs := declared(files)
		p, err := plan.Offline(inputs, fleet.EngineName(engine), policy.New().Judge,
			argocd.Renderer{})
		if err != nil {
			return err
		}
		if err := a.writeObjects(p.Rows, namespaces(inputs), out.value); err != nil {
			return err
		}
		texts := map[string][]byte{}
		for _, f := range files {
			texts[f.Path] = f.Bytes
		}
		configschema.Place(p.Problems, func(path string) []byte { return texts[path] })
		return a.leftOut(p)
	}
	return cmd
}

// leftOut tells what did not make it into the objects, on stderr: stdout is for the objects.
func (a *app) leftOut(p *plan.Plan) error {
	if err := configschema.WriteText(a.err, p.Problems, false); err != nil {
		return err
	}
	for _, pl := range p.Placements {
		if pl.Engine == "" {
			a.hint("environment %s is not placed: %s", pl.Environment, pl.Reason)
		}
	}
	if len(p.Quarantined) > 0 {
		return findings{
			fmt.Sprintf("%s with errors left out", plural(len(p.Quarantined), "declaration"))}
	}
	return nil
}

// object is one object of one engine, as the engine gets it.
type object struct {
	Engine    fleet.EngineName `json:"engine"`
	Namespace string           `json:"namespace"` // that it is applied to
	Hash      string           `json:"hash"`
	Manifest  json.RawMessage  `json:"manifest"`
}

// namespaces are those of the engines' Argo CDs, own clusters with an agent among them.
func namespaces(inputs []catalog.Input) map[fleet.EngineName]string {
	of := map[fleet.EngineName]string{}
	for _, in := range inputs {
		switch d := in.Declaration; {
		case d == nil:
		case d.Engine != nil:
			of[fleet.EngineName(in.Key.Name)] = d.Engine.ArgoCD.Namespace
		case d.Environment != nil && d.Environment.Agent != nil:
			of[fleet.AgentEngine(fleet.EnvironmentID{Tenant: in.Key.Tenant,
				Name: fleet.EnvironmentName(in.Key.Name)})] = d.Environment.Agent.Namespace()
		}
	}
	return of
}

func (a *app) writeObjects(rows []diff.RowChange, namespace map[fleet.EngineName]string,
	format string) error {
	if format == "json" {
		objects := make([]object, len(rows))
		for i, r := range rows {
			objects[i] = object{r.Row.Key.Engine, namespace[r.Row.Key.Engine], r.Row.Manifest.Hash,
				r.Row.Manifest.Body}
		}
		return writeJSON(a.out, map[string]any{"items": objects})
	}
	var out bytes.Buffer
	for _, r := range rows {
		text, err := toYAML(json.RawMessage(r.Row.Manifest.Body))
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Row.Key.Kind, r.Row.Key.Name, err)
		}
		fmt.Fprintf(&out, "---\n# engine %s, namespace %s\n%s", r.Row.Key.Engine,
			namespace[r.Row.Key.Engine], text)
	}
	_, err := out.WriteTo(a.out)
	return err
}
