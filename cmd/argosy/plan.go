package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/report"
)

func planCommand(a *app) *cobra.Command {
	var repo, base, head string
	cmd := &cobra.Command{
		Use: "plan",
		Short: "Compare two revisions: list the objects created, changed and deleted, with " +
			"engine and reason",
		Long: "Reads both revisions from Git's object database and ignores uncommitted changes.\n" +
			"It places environments as if BASE were the first revision ever, so a running\n" +
			"control plane may have them on other engines. Exit code 1: there are changes.\n" +
			listingHelp,
		Example: "  argosy plan --base origin/main --head HEAD\n" +
			"  argosy plan --repo path/to/config-repo --base v1 --head v2 -o markdown",
		Args: exactly(),
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "folder of the config repo")
	cmd.Flags().StringVar(&base, "base", "HEAD~1", "revision to compare with")
	cmd.Flags().StringVar(&head, "head", "HEAD", "revision to plan")
	folders := addListings(cmd)
	out := addFormat(cmd, "text", "json", "markdown", "sarif")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		listings, err := checkout.Listings(*folders)
		if err != nil {
			return err
		}
		h, err := openHistory(repo)
		if err != nil {
			return err
		}
		h.listings = listings
		defer h.mirror.Close()
		p, err := compare(cmd.Context(), h, base, head)
		if err != nil {
			return err
		}
		if err := a.writePlan(p, out.value); err != nil {
			return err
		}
		if !p.Empty() || len(p.Problems) > 0 {
			return findings{}
		}
		return nil
	}
	return cmd
}

// history is a config repo in Git.
type history struct {
	mirror   *gitrepo.Mirror
	listings fleet.Listings
}

func openHistory(dir string) (history, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return history{}, err
	}
	mirror, err := gitrepo.OpenLocal(dir, gitrepo.Budget{})
	return history{mirror: mirror}, err
}

// compare plans head against a state in which base is applied.
func compare(ctx context.Context, h history, base, head string) (*plan.Plan, error) {
	state := plan.NewAppliedState()
	var previous fleet.Revision
	var p *plan.Plan
	for _, rev := range []string{base, head} {
		revision, err := h.resolve(ctx, rev)
		if err != nil {
			return nil, err
		}
		files, err := h.changed(ctx, previous, revision)
		if err != nil {
			return nil, fmt.Errorf("revision %s: %w", rev, err)
		}
		if p, err = state.Compute(
			plan.Request{Revision: revision, Files: files, Now: time.Now(),
				Explain: previous != ""}, argocd.Renderer{}); err != nil {
			return nil, fmt.Errorf("revision %s: %w", rev, err)
		}
		if previous == "" {
			state.Commit(p)
			// the policies of base judge head; base itself is accepted unchecked
			state.Judging(policy.New().Judge)
		}
		previous = revision
	}
	return p, h.place(ctx, previous, p.Problems)
}

func (h history) resolve(ctx context.Context, rev string) (fleet.Revision, error) {
	id, err := h.mirror.Resolve(ctx, rev)
	return fleet.Revision(id), err
}

// changed returns the decoded changes from base to head; an empty base is an empty tree.
func (h history) changed(ctx context.Context, base, head fleet.Revision) ([]catalog.Input, error) {
	changes, err := h.mirror.Diff(ctx, gitrepo.Hash(base), gitrepo.Hash(head))
	if err != nil {
		return nil, err
	}
	var files []configschema.File
	var removed []catalog.Input
	for _, c := range changes {
		if c.Old.Kind == gitrepo.Unreadable && c.New.Kind != gitrepo.Unreadable {
			continue // the files of the head follow
		}
		if c.New.Kind == "" {
			if key, ours, _ := configschema.Classify(c.Path); ours {
				removed = append(removed, catalog.Input{Key: key, Path: c.Path, Removed: true})
			}
			continue
		}
		f, err := h.file(ctx, c.New)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return append(configschema.Inputs(files), removed...), nil
}

func (h history) file(ctx context.Context, e gitrepo.Entry) (configschema.File, error) {
	f := configschema.File{Path: e.Path, Blob: string(e.Blob), Listings: h.listings}
	if f.Unreadable = e.Why; f.Unreadable != "" {
		return f, nil
	}
	if e.Kind != gitrepo.File {
		f.Irregular = string(e.Kind)
		return f, nil
	}
	var err error
	f.Bytes, err = h.mirror.Blob(ctx, e.Blob)
	var over *gitrepo.Error
	if errors.As(err, &over) && errors.Is(err, gitrepo.ErrOverBudget) {
		// one file's fault: the others of the commit proceed
		f.Size, err = cmp.Or(over.Size, -1), nil
	}
	return f, err
}

// place finds the lines of problems that name a field only.
func (h history) place(ctx context.Context, head fleet.Revision, problems []fleet.Problem) error {
	wanted := map[string]gitrepo.Hash{}
	for _, p := range problems {
		if p.Line == 0 {
			wanted[p.Path] = ""
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	err := h.mirror.Walk(ctx, gitrepo.Hash(head), func(e gitrepo.Entry) error {
		if _, ok := wanted[e.Path]; ok && e.Kind == gitrepo.File {
			wanted[e.Path] = e.Blob
		}
		return nil
	})
	if err != nil {
		return err
	}
	configschema.Place(problems, func(path string) []byte {
		if wanted[path] == "" {
			return nil
		}
		text, err := h.mirror.Blob(ctx, wanted[path])
		if err != nil {
			return nil // report the problem without its line
		}
		return text
	})
	return nil
}

func (a *app) writePlan(p *plan.Plan, format string) error {
	switch format {
	case "json":
		return p.WriteJSON(a.out)
	case "markdown":
		return p.WriteMarkdown(a.out)
	case "sarif":
		return configschema.WriteSARIF(a.out, append(notes(p), p.Problems...), versionText())
	}
	return p.WriteText(a.out)
}

// notes reports each changed object at the declaration that it comes from.
func notes(p *plan.Plan) []fleet.Problem {
	words := map[report.Action]string{report.Create: "is created", report.Update: "is changed",
		report.Delete: "is deleted", report.Hold: "would be deleted, and is held",
		report.Depart: "moves to another engine",
		report.Freeze: "is created or changed, once a freeze ends",
		report.Wave:   "is created or changed, in its wave"}
	all := make([]fleet.Problem, 0, len(p.Rows))
	paths := map[fleet.Key]string{} // of changed declarations, generated ones included
	for _, c := range p.Declarations {
		if d := cmp.Or(c.After, c.Before); d != nil {
			paths[c.Key] = d.Path
		}
	}
	for _, c := range p.Rows {
		k := declaredBy(c.Row)
		all = append(all, fleet.Problem{
			Key: k, Path: cmp.Or(paths[k], configschema.PathOf(k)), Severity: fleet.SeverityNote,
			Code: "plan-" + string(c.Action),
			Message: fmt.Sprintf("%s %s %s on engine %s", c.Row.Key.Kind, c.Subject,
				words[c.Action], c.Row.Key.Engine),
		})
	}
	return all
}

// declaredBy returns the most likely declaration behind a change of the object.
func declaredBy(r mirror.Row) fleet.Key {
	switch {
	case r.Deployment != "":
		return fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: r.Tenant,
			Name: string(r.Deployment)}
	case r.Environment != "":
		return fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: r.Tenant,
			Name: string(r.Environment)}
	default:
		return fleet.Key{Kind: fleet.KindTenant, Name: string(r.Tenant)}
	}
}

func renderCommand(a *app) *cobra.Command {
	var engine string
	cmd := &cobra.Command{
		Use:   "render [DIR]",
		Short: "Print the exact objects for each engine, from the declarations alone",
		Long: "Reads fleet/ and tenants/ below DIR (default: the current folder). It places\n" +
			"environments as if none were placed yet, so a running control plane may have\n" +
			"them on other engines. Declarations with problems are skipped; then the exit\n" +
			"code is 1. " + listingHelp,
		Example: "  argosy render\n  argosy render path/to/config-repo --engine eu-1 -o json",
		Args:    atMost("DIR"),
	}
	cmd.Flags().StringVar(&engine, "engine", "",
		"only for this engine; TENANT.ENVIRONMENT for an environment with an agent")
	listings := addListings(cmd)
	out := addFormat(cmd, "yaml", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		files, err := readFiles(dirOf(args), *listings)
		if err != nil {
			return err
		}
		inputs := configschema.Inputs(files)
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

// object is one object of one engine, as the engine gets it.
type object struct {
	Engine    fleet.EngineName `json:"engine"`
	Namespace string           `json:"namespace"` // of the engine's Argo CD
	Hash      string           `json:"hash"`
	Manifest  json.RawMessage  `json:"manifest"`
}

func (a *app) writeObjects(rows []diff.RowChange, namespace map[fleet.EngineName]string,
	format string) error {
	if format == "json" {
		objects := make([]object, len(rows))
		for i, r := range rows {
			objects[i] = object{r.Row.Key.Engine, namespaceOf(r.Row.Manifest.Body,
				namespace[r.Row.Key.Engine]), r.Row.Manifest.Hash, r.Row.Manifest.Body}
		}
		return writeJSON(a.out, map[string]any{"items": objects})
	}
	var out bytes.Buffer
	for _, r := range rows {
		text, err := configschema.YAML(json.RawMessage(r.Row.Manifest.Body))
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Row.Key.Kind, r.Row.Key.Name, err)
		}
		fmt.Fprintf(&out, "---\n# engine %s, namespace %s\n%s", r.Row.Key.Engine,
			namespaceOf(r.Row.Manifest.Body, namespace[r.Row.Key.Engine]), text)
	}
	_, err := out.WriteTo(a.out)
	return err
}

// namespaceOf returns the namespace of an object: that of the engine's Argo CD, or the one that an
// adopted Application keeps.
func namespaceOf(body []byte, argocd string) string {
	var o struct{ Metadata struct{ Namespace string } }
	if err := json.Unmarshal(body, &o); err != nil || o.Metadata.Namespace == "" {
		return argocd
	}
	return o.Metadata.Namespace
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
			of[fleet.AgentEngine(
				fleet.EnvironmentID{
					Tenant: in.Key.Tenant, Name: fleet.EnvironmentName(in.Key.Name)})] =
				d.Environment.Agent.Namespace()
		}
	}
	return of
}

// leftOut reports everything without an object on stderr: stdout is for the objects.
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
			fmt.Sprintf("skipped %s with errors", plural(len(p.Quarantined), "declaration"))}
	}
	return nil
}
