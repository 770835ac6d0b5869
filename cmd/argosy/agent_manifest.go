package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
)

func (a *app) agentManifest() *cobra.Command {
	var p place
	var hub string
	cmd := &cobra.Command{
		Use: "manifest", Short: "What to apply on a cluster so that an agent runs there",
		Long: "For clusters that are set up by hand or by other tools. The agent joins by " +
			"itself when it finds a token: make a Secret argosy-agent in its namespace with\n" +
			"the key registrationToken, and give the same token here with `argosy agent token " +
			"create TENANT/ENV --from-file FILE`.",
		Example: "  argosy agent manifest --hub https://argosy.example.com --image " +
			"registry.example.com/argosy:v0.4.0 | kubectl apply --server-side -f -\n" +
			"  argosy agent manifest --hub https://argosy.example.com --image " +
			"registry.example.com/argosy:v0.4.0 --egress-only --no-secrets",
		Args: exactly(),
	}
	cmd.Flags().StringVar(&hub, "hub", "",
		"URL of the control plane, as the cluster reaches it (required)")
	p.namespaceFlag(cmd)
	p.installFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if hub == "" {
			return errors.New(
				"--hub is required: the URL of the control plane, such as " +
					"https://argosy.example.com")
		}
		if _, err := p.settings(hub); err != nil {
			return err
		}
		text, err := p.install.Manifest()
		if err != nil {
			return err
		}
		_, err = a.out.Write(text)
		return err
	}
	return cmd
}

// shortestDigest is how many of a digest's digits say which deletions are meant.
const shortestDigest = 8

func (a *app) agentApprove() *cobra.Command {
	var p place
	var digest string
	cmd := &cobra.Command{
		Use:   "approve-deletions",
		Short: "Deletions that wait for the cluster's own admin: show them, approve them",
		Args:  exactly(),
		Long: "An agent deletes no more than --max-deletions Applications within an hour, " +
			"whatever the control plane asks for. Beyond that all wait for somebody with the\n" +
			"cluster's kubeconfig. It shows what waits and asks; without a terminal, --digest " +
			"says that exactly what was shown is approved.",
		Example: "  argosy agent approve-deletions --kubeconfig edge.kubeconfig\n  argosy agent " +
			"approve-deletions --digest 9f2c51d04a7b",
	}
	p.kubeFlags(cmd)
	cmd.Flags().StringVar(&digest, "digest", "", "of what was shown")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := p.cluster()
		if err != nil {
			return err
		}
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		cell := edge.ConfigMapStore(kube, p.install.Namespace, edge.DeletionsName)
		held, err := edge.ReadHeld(cmd.Context(), cell)
		switch {
		case err != nil:
			return err
		case len(held.Names) == 0:
			a.hint("nothing waits")
			return nil
		case digest == "":
			if err := a.showHeld(held); err != nil {
				return err
			}
		case len(digest) < shortestDigest || !strings.HasPrefix(held.Digest, digest):
			return edge.ErrHeldChanged
		}
		if err := edge.ApproveHeld(cmd.Context(), cell, held.Digest,
			first(a.getenv("USER"), a.getenv("LOGNAME"), "unknown")); err != nil {
			return err
		}
		err = a.say("approved %s", plural(len(held.Names), "deletion"))
		a.hint(
			"the agent begins within seconds; what it deletes takes its workload along where " +
				"the declaration says so")
		return err
	}
	return cmd
}

// showHeld shows what waits, and asks on a terminal whether it is all to go. Elsewhere that is a
// finding.
func (a *app) showHeld(held edge.HeldDeletions) error {
	for _, name := range held.Names {
		if err := a.say("%s", name); err != nil {
			return err
		}
	}
	sum := fmt.Sprintf("%s for %s", waiting(len(held.Names)), fleet.Age(time.Since(held.Since)))
	if !isTerminal(a.in) {
		return findings{
			fmt.Sprintf("%s. If they are all to go: argosy agent approve-deletions --digest %.12s",
				sum, held.Digest)}
	}
	a.hint("%s. Are they all to go? Write yes:", sum)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return findings{"nothing was approved"}
	}
	return nil
}

func waiting(n int) string {
	if n == 1 {
		return "1 deletion waits"
	}
	return fmt.Sprintf("%d deletions wait", n)
}
