package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func (a *app) agentTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "One-time tokens that clusters join with",
		Example: "  argosy agent token create acme/edge --ttl 1h\n  argosy agent token list\n  " +
			"argosy agent token revoke 01J8Z",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.agentTokenCreate(), a.agentTokenList(), a.agentTokenRevoke())
	return cmd
}

// tokenWish is what the flags of `agent token create` say.
type tokenWish struct {
	engine, file string
	ttl          time.Duration
	legacy       bool
}

func (a *app) agentTokenCreate() *cobra.Command {
	var w tokenWish
	cmd := &cobra.Command{
		Use:   "create [TENANT/ENV]",
		Short: "Make a one-time token; stdout is the only place that ever shows it",
		Long: "The token is for one environment with spec.agent, or with --engine for an engine " +
			"with connection.agent (platform). Exactly one cluster joins with\n" +
			"it. With --from-file the token is one that you have put on the cluster yourself, " +
			"and nothing is printed.",
		Example: "  argosy agent token create acme/edge\n  argosy agent token create acme/edge " +
			"--ttl 15m > token\n" +
			"  argosy agent token create --engine eu-edge\n  openssl rand -hex 32 > token && " +
			"argosy agent token create acme/edge --from-file token",
		Args: atMost("TENANT/ENV"),
	}
	cmd.Flags().StringVar(&w.engine, "engine", "", "for this engine, instead of an environment")
	cmd.Flags().DurationVar(&w.ttl, "ttl", time.Hour, "how long it is valid, 1m to 720h")
	cmd.Flags().StringVar(&w.file, "from-file", "",
		"a token that you bring, for a cluster that is set up by hand (- for stdin)")
	cmd.Flags().BoolVar(&w.legacy, "legacy", false,
		"it may also read the older route of applications, where that is switched on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ask, err := a.tokenRequest(w, args)
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		made, err := c.CreateAgentToken(cmd.Context(), ask)
		if err != nil {
			return err
		}
		return a.sayToken(c, w, made)
	}
	return cmd
}

func (a *app) tokenRequest(w tokenWish, args []string) (wire.AgentTokenRequest, error) {
	ask := wire.AgentTokenRequest{Engine: fleet.EngineName(w.engine), TTL: w.ttl.String(),
		Legacy: w.legacy}
	switch {
	case (w.engine == "") == (len(args) == 0):
		return ask, fmt.Errorf("say for what the token is: TENANT/ENV, or --engine NAME")
	case w.engine == "":
		tenant, environment, err := twoParts("environment", args[0])
		if err != nil {
			return ask, err
		}
		ask.Tenant, ask.Environment = tenant, fleet.EnvironmentName(environment)
	}
	if w.file == "" {
		return ask, nil
	}
	token, err := a.readToken(w.file)
	ask.Token = token
	return ask, err
}

// readToken reads a token from a file, or from stdin for "-".
func (a *app) readToken(file string) (string, error) {
	from := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, maxToken+1))
	switch token := strings.TrimSpace(string(b)); {
	case err != nil:
		return "", err
	case len(b) > maxToken:
		return "", fmt.Errorf("%s holds more than a token", file)
	case token == "":
		return "", fmt.Errorf("%s holds no token", file)
	default:
		return token, nil
	}
}

// sayToken prints the token alone on stdout, and on stderr what to do with it.
func (a *app) sayToken(c *client.Client, w tokenWish, made wire.CreatedAgentToken) error {
	t := made.Token
	name := agentName(view.Agent{Engine: t.Engine, Tenant: t.Tenant,
		Environment: t.Environment})
	a.hint("token %s for %s, valid for %s", t.ID, name,
		fleet.Age(time.Until(t.ExpiresAt).Round(time.Second)))
	if w.file != "" {
		a.hint(
			"the cluster joins with it when it is there as registrationToken in the Secret " +
				"argosy-agent: see `argosy agent manifest --help`")
		return nil
	}
	a.hint(
		"it is shown this once. On the cluster, with its kubeconfig:\n\n  argosy agent join %s "+
			"--token-file FILE\n", cmp.Or(made.Hub, c.Server()))
	_, err := fmt.Fprintln(a.out, made.Plaintext)
	return err
}

func (a *app) agentTokenList() *cobra.Command {
	var q query
	cmd := &cobra.Command{Use: "list", Short: "Tokens without their plaintext, the newest first",
		Args:    exactly(),
		Example: "  argosy agent token list\n  argosy agent token list --tenant acme -o json"}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&q.tenant, "tenant", "", filterHelp["tenant"])
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		tokens, err := c.AgentTokens(cmd.Context(), q.filter(), 0)
		if err != nil {
			return err
		}
		switch out.value {
		case "json":
			return writeJSON(a.out, map[string]any{"items": tokens})
		case "yaml":
			return writeYAML(a.out, map[string]any{"items": tokens})
		}
		if len(tokens) == 0 {
			a.hint("no tokens; make one with `argosy agent token create TENANT/ENV`")
			return nil
		}
		return tabulate(tokens, agentTokenColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

func (a *app) agentTokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a token; what has joined with it stays",
		Example: "  argosy agent token revoke 01J8Z", Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeAgentToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.say("revoked %s", args[0])
		},
	}
}

func (a *app) agentRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TENANT/ENV|ENGINE",
		Short: "End an agent's identity: it is cut off within seconds, and its cluster keeps " +
			"what it has",
		Long: "The agent can do nothing any more, and its streams are cut on every replica. " +
			"Workloads on its cluster go on as they are. To have the cluster back,\n" +
			"make a new token and join again.",
		Example: "  argosy agent revoke acme/edge\n  argosy agent revoke eu-edge",
		Args:    exactly("TENANT/ENV|ENGINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := servedEngine(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeAgent(cmd.Context(), engine); err != nil {
				return err
			}
			return a.say("revoked the agent of %s", args[0])
		},
	}
}
