package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/report"
)

func (a *app) planCommand() *cobra.Command {
	var repo, base, head string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "What one revision changes against another: created, changed, deleted, where and why",
		Long: "Reads both revisions from Git's object database; what is not committed does not " +
			"count. Environments are placed as if BASE were the first\n" +
			"revision ever, so a running control plane may have them on other engines. Exit " +
			"code 1: there are changes.",
		Example: "  argosy plan --base origin/main --head HEAD\n  argosy plan --repo " +
			"path/to/config-repo --base v1 --head v2 -o markdown",
		Args: exactly(),
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "folder of the config repo")
	cmd.Flags().StringVar(&base, "base", "HEAD~1", "revision to compare with")
	cmd.Flags().StringVar(&head, "head", "HEAD", "revision to plan")
	out := addFormat(cmd, "text", "json", "markdown", "sarif")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := openHistory(repo)
		if err != nil {
			return err
		}
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

// compare plans head against a world in which base is applied.
func compare(ctx context.Context, h history, base, head string) (*plan.Plan, error) {
	world := plan.NewAppliedState()
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
		if p, err = world.Compute(plan.Request{Revision: revision, Files: files, Now: time.Now(),
			Explain: previous != ""}, argocd.Renderer{}); err != nil {
			return nil, fmt.Errorf("revision %s: %w", rev, err)
		}
		if previous == "" {
			world.Commit(p)
			// head is judged by the policies of base, which is taken as it stands
			world.Judging(policy.New().Judge)
		}
		previous = revision
	}
	return p, h.place(ctx, previous, p.Problems)
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

// notes tells of each changed object at the declaration that it comes from.
func notes(p *plan.Plan) []fleet.Problem {
	words := map[report.Action]string{report.Create: "is created", report.Update: "is changed",
		report.Delete: "is deleted", report.Hold: "would be deleted, and waits for an approval"}
	all := make([]fleet.Problem, 0, len(p.Rows))
	for _, c := range p.Rows {
		k := declaredBy(c.Row)
		all = append(all, fleet.Problem{
			Key: k, Path: configschema.PathOf(k), Severity: fleet.SeverityNote,
			Code: "plan-" + string(c.Action),
			Message: fmt.Sprintf("%s %s %s on engine %s", c.Row.Key.Kind, c.Subject,
				words[c.Action], c.Row.Key.Engine),
		})
	}
	return all
}

// declaredBy is the declaration whose change people look at first for the object.
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
