package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/agentruntime"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

// place holds the flags of the commands that work on a cluster: the cluster, the namespace, and the
// way to the control plane.
type place struct {
	kubeconfig, kubeContext string
	install                 edge.Install
	caFile                  string
}

// agentCommand groups the commands for clusters that dial out: those for people at the control
// plane, and those that run on the cluster.
func agentCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Agents on clusters that dial out: their tokens, installation and identity",
		Long: "A cluster behind a firewall joins with one command and a one-time token; from\n" +
			"then on its agent dials out over https. Create the token where the control plane\n" +
			"can be reached (token create), then run join on the cluster. See\n" +
			"`argosy get agents`.",
		Example: "  argosy agent token create acme/edge\n" +
			"  argosy agent join --check https://argosy.example.com\n" +
			"  argosy agent join https://argosy.example.com --token-file token",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(agentTokenCommand(a), agentRevoke(a), agentJoin(a), agentManifest(a),
		agentRun(a), releaseDeletionsCommand(a), agentHoldCommand(a),
		renamed("approve-deletions", "release-deletions"))
	return cmd
}

func agentTokenCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Manage the one-time tokens with which clusters join",
		Example: "  argosy agent token create acme/edge --ttl 1h\n" +
			"  argosy agent token list\n" +
			"  argosy agent token revoke 01J8Z",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(agentTokenCreate(a), agentTokenList(a), agentTokenRevoke(a))
	return cmd
}

// tokenWish holds the flags of `agent token create`.
type tokenWish struct {
	engine, file string
	ttl          time.Duration
	legacy       bool
}

func agentTokenCreate(a *app) *cobra.Command {
	var w tokenWish
	cmd := &cobra.Command{
		Use: "create [TENANT/ENV]", Short: "Create a one-time token; only stdout ever shows it",
		Long: "The token is for one environment with spec.agent, or with --engine for an engine\n" +
			"with connection.agent (platform). Exactly one cluster joins with it. With\n" +
			"--from-file you provide the token, which is already on the cluster, and the\n" +
			"command prints nothing.",
		Example: "  argosy agent token create acme/edge\n" +
			"  argosy agent token create acme/edge --ttl 15m > token\n" +
			"  argosy agent token create --engine eu-edge\n" +
			"  openssl rand -hex 32 > token && argosy agent token create acme/edge --from-file token",
		Args: atMost("TENANT/ENV"),
	}
	cmd.Flags().StringVar(&w.engine, "engine", "", "for this engine instead of an environment")
	cmd.Flags().DurationVar(&w.ttl, "ttl", time.Hour, "validity, 1m to 720h")
	cmd.Flags().StringVar(&w.file, "from-file", "",
		"file with a token of your own, for a cluster that is set up by hand (- for stdin)")
	cmd.Flags().BoolVar(&w.legacy, "legacy", false,
		"also allow the older route of applications, if it is enabled")
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
		return a.printToken(c, w, made)
	}
	return cmd
}

func (a *app) tokenRequest(w tokenWish, args []string) (wire.AgentTokenRequest, error) {
	ask := wire.AgentTokenRequest{Engine: fleet.EngineName(w.engine), TTL: w.ttl.String(),
		Legacy: w.legacy}
	switch {
	case (w.engine == "") == (len(args) == 0):
		return ask, fmt.Errorf("name TENANT/ENV or --engine NAME for the token")
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

// printToken prints the token alone on stdout, and its use on stderr.
func (a *app) printToken(c *client.Client, w tokenWish, made wire.CreatedAgentToken) error {
	t := made.Token
	name := agentName(
		view.Agent{Engine: t.Engine, Tenant: t.Tenant, Environment: t.Environment})
	a.hint("token %s for %s, valid for %s", t.ID, name,
		fleet.Age(time.Until(t.ExpiresAt).Round(time.Second)))
	if w.file != "" {
		a.hint(
			"the cluster joins with it as registrationToken of the Secret argosy-agent: see " +
				"`argosy agent manifest --help`")
		return nil
	}
	a.hint(
		"it is shown only once. On the cluster, with its kubeconfig:\n\n  argosy agent join %s "+
			"--token-file FILE\n", cmp.Or(made.Hub, c.Server()))
	_, err := fmt.Fprintln(a.out, made.Plaintext)
	return err
}

func agentTokenList(a *app) *cobra.Command {
	var q query
	cmd := &cobra.Command{Use: "list", Short: "List tokens without their plaintext, newest first",
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
		if done, err := a.structured(out, map[string]any{"items": tokens}); done {
			return err
		}
		if len(tokens) == 0 {
			a.hint("no tokens; create one with `argosy agent token create TENANT/ENV`")
			return nil
		}
		return tabulate(tokens, agentTokenColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

func agentTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token; a cluster that joined with it stays joined",
		Example: "  argosy agent token revoke 01J8Z", Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeAgentToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.printLine("revoked %s", args[0])
		},
	}
}

func agentRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TENANT/ENV|ENGINE",
		Short: "Revoke an agent's identity: its connections end within seconds, and its cluster " +
			"keeps its workloads",
		Long: "The agent can no longer connect, and every replica closes its streams. Workloads\n" +
			"on its cluster keep running. To let the cluster join again, create a new token\n" +
			"and run join.",
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
			return a.printLine("revoked the agent of %s", args[0])
		},
	}
}

// joining holds the flags of `agent join`.
type joining struct {
	place
	check            bool
	token, tokenFile string
}

func agentJoin(a *app) *cobra.Command {
	var j joining
	cmd := &cobra.Command{
		Use: "join URL",
		Short: "Join this cluster: create a key, exchange the token for an identity, install " +
			"the agent",
		Long: "Run it with the kubeconfig of an admin of the cluster, on a machine that reaches\n" +
			"the control plane at URL. It first checks every precondition and changes nothing\n" +
			"if one fails; --check does only that. The private key is created on the cluster\n" +
			"and never leaves it. After any failure, run the command again with the same\n" +
			"token. It reads the token from --token-file or stdin.\n\n" +
			"Without --image it applies everything except the Deployment, for an agent that\n" +
			"runs in another way: `argosy agent run`.",
		Example: "  argosy agent join --check https://argosy.example.com\n" +
			"  argosy agent join https://argosy.example.com --token-file token --image " +
			"registry.example.com/argosy:v0.4.0\n" +
			"  argosy agent token create acme/edge | argosy agent join " +
			"https://argosy.example.com --kubeconfig edge.kubeconfig --image " +
			"registry.example.com/argosy:v0.4.0",
		Args: exactly("URL"),
	}
	cmd.Flags().BoolVar(&j.check, "check", false, "check the preconditions and change nothing")
	cmd.Flags().StringVar(&j.token, "token", "",
		"one-time token (better: --token-file or stdin, which the process list does not show)")
	cmd.Flags().StringVar(&j.tokenFile, "token-file", "",
		"file with the one-time token (- for stdin)")
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
	j.kubeFlags(cmd)
	j.installFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := j.settings(args[0])
		if err != nil {
			return err
		}
		config, err := j.cluster()
		if err != nil {
			return err
		}
		config.UserAgent = "argosy/" + s.Version
		if j.check {
			return a.checkSite(cmd.Context(), j, s, config)
		}
		return a.join(cmd.Context(), j, s, config)
	}
	return cmd
}

func (a *app) join(ctx context.Context, j joining, s edge.Settings, config *rest.Config) error {
	token, err := a.joinToken(j)
	if err != nil {
		return err
	}
	if err := a.checkSite(ctx, j, s, config); err != nil {
		return err
	}
	apply, err := newApplier(config)
	if err != nil {
		return err
	}
	before, last, err := parts(j.install)
	if err != nil {
		return err
	}
	for _, o := range before {
		if err := apply.apply(ctx, o, a.hint); err != nil {
			return err
		}
	}
	id, err := identity(ctx, j, s, config, token)
	if err != nil {
		return err
	}
	if err := a.printLine("joined: this cluster serves engine %s as agent %s", id.Engine,
		id.Agent); err != nil {
		return err
	}
	if last == nil {
		a.hint(
			"without --image nothing runs yet; run the agent with: argosy agent run --hub %s "+
				"--namespace %s", j.install.Hub, j.install.Namespace)
		return nil
	}
	if err := apply.apply(ctx, last, a.hint); err != nil {
		return err
	}
	a.hint(
		"the agent is installed in namespace %s; `argosy get agents` lists it when it is connected",
		j.install.Namespace)
	return nil
}

// joinToken returns the token from the flag, the file or stdin. It warns that a token on the
// command line is visible to others.
func (a *app) joinToken(j joining) (string, error) {
	switch {
	case j.token != "":
		a.hint(
			"warning: every user of this machine can see a token on the command line in the " +
				"process list, and the shell's history keeps it; use --token-file")
		return strings.TrimSpace(j.token), nil
	case j.tokenFile != "":
		return a.readToken(j.tokenFile)
	case isTerminal(a.in):
		return "",
			errors.New(
				"no token: name a file with --token-file, or pipe it in: argosy agent token " +
					"create TENANT/ENV | argosy agent join URL")
	}
	return a.readToken("-")
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
		return "", fmt.Errorf("%s is longer than a token", file)
	case token == "":
		return "", fmt.Errorf("%s holds no token", file)
	default:
		return token, nil
	}
}

// checkSite checks every precondition of joining. A failed one is a finding.
func (a *app) checkSite(ctx context.Context, j joining, s edge.Settings,
	config *rest.Config) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	checks := edge.Checks{
		Settings: s, Cluster: &edge.ClusterCheck{Client: kube, Install: j.install}}
	results := checks.Run(ctx, a.printResult)
	if edge.Failed(results) {
		return findings{"joining would fail; nothing was changed"}
	}
	return nil
}

// printResult prints one result as `argosy doctor` does, with the next step below it.
func (a *app) printResult(r edge.Result) {
	mark := map[edge.Level]string{
		edge.LevelOK: "ok  ", edge.LevelWarn: "warn", edge.LevelFail: "BAD "}[r.Level]
	fmt.Fprintf(a.out, "%s %-16s %s\n", mark, printable.Line(r.Check), printable.Line(r.Found))
	if r.Next != "" {
		fmt.Fprintf(a.out, "     %-16s -> %s\n", "", printable.Line(r.Next))
	}
}

// applier applies objects as `kubectl apply --server-side` does.
type applier struct {
	client *dynamic.DynamicClient
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{
		client, restmapper.NewDeferredDiscoveryRESTMapper(
			memory.NewMemCacheClient(kube.Discovery()))}, nil
}

// parts are the objects to be applied before the cluster joins, and the Deployment after it; nil
// without an image.
func parts(in edge.Install) (before []runtime.Object, last runtime.Object, err error) {
	runs := in.Image != ""
	if !runs {
		in.Image = "none" // of the Deployment, which is left out
	}
	all, err := in.Objects()
	if err != nil {
		return nil, nil, err
	}
	before, last = all[:len(all)-1], all[len(all)-1]
	if !runs {
		last = nil
	}
	return before, last, nil
}

const joinManager = "argosy-agent-join" // field manager

// apply applies one object. It skips a kind that the API server does not serve, with a warning: the
// check has explained the consequence.
func (p *applier) apply(ctx context.Context, o runtime.Object, hint func(string, ...any)) error {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: tree}
	unstructured.RemoveNestedField(tree, "status")
	kind := u.GroupVersionKind()
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		hint("warning: this cluster does not serve %s; skipping %s", kind.Kind, u.GetName())
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, u.GetName(), err)
	}
	var to dynamic.ResourceInterface = p.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		to = p.client.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	if _, err := to.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{
		FieldManager: joinManager, Force: true}); err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, u.GetName(), err)
	}
	return nil
}

func identity(ctx context.Context, j joining, s edge.Settings, config *rest.Config,
	token string) (edge.Identity, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return edge.Identity{}, err
	}
	identities := edge.NewIdentityStore(edge.SecretStore(kube, j.install.Namespace, edge.Name))
	client, err := edge.NewClient(s, identities)
	if err != nil {
		return edge.Identity{}, err
	}
	defer client.Close()
	uid, err := edge.ClusterUID(ctx, kube)
	if err != nil {
		return edge.Identity{}, err
	}
	return identities.Join(ctx, s.Hub, client, token, uid, s.Version)
}

func agentManifest(a *app) *cobra.Command {
	var p place
	var hub string
	cmd := &cobra.Command{
		Use: "manifest", Short: "Print the manifest of an agent",
		Long: "For clusters that are set up by hand or by other tools. The agent joins by\n" +
			"itself when it finds a token: create a Secret argosy-agent in its namespace with\n" +
			"the key registrationToken, and register the same token here with\n" +
			"`argosy agent token create TENANT/ENV --from-file FILE`.",
		Example: "  argosy agent manifest --hub https://argosy.example.com --image " +
			"registry.example.com/argosy:v0.4.0 | kubectl apply --server-side -f -\n" +
			"  argosy agent manifest --hub https://argosy.example.com --image " +
			"registry.example.com/argosy:v0.4.0 --egress-only --no-secrets",
		Args: exactly(),
	}
	cmd.Flags().StringVar(
		&hub, "hub", "", "URL of the control plane, as the cluster reaches it (required)")
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

// installFlags adds the flags of the installation.
func (p *place) installFlags(cmd *cobra.Command) {
	p.runFlags(cmd)
	cmd.Flags().StringVar(&p.install.Image, "image", "",
		"image of the agent, which runs this program")
	cmd.Flags().StringVar(&p.install.NoProxy, "no-proxy", "",
		"hosts that the agent reaches without the proxy")
	cmd.Flags().BoolVar(&p.install.InstallArgoCD, "install-argocd", false,
		"let the control plane install and upgrade the Argo CD of the namespace (docs/rings.md)")
	cmd.Flags().BoolVar(&p.install.EgressOnly, "egress-only", false,
		"add a NetworkPolicy: no ingress, and egress only to DNS, the control plane and the API server")
}

// writesAtOnce is how many objects an agent writes at a time to its own Argo CD.
const writesAtOnce = 32

func agentRun(a *app) *cobra.Command {
	var p place
	var hub, ops string
	var within time.Duration
	log := settings.Log{Level: "info", Format: "text"}
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent on its cluster", Args: exactly(),
		Long: "Follows the control plane and applies the declared objects to the cluster's own\n" +
			"Argo CD, until it gets SIGTERM or Ctrl-C. `argosy agent join` installs it as a\n" +
			"Deployment. It waits for an identity, from join or from a registrationToken in\n" +
			"its Secret. While the control plane is unreachable, nothing changes on the\n" +
			"cluster. It exits with a message when it needs a person to act first.",
		Example: "  argosy agent run --hub https://argosy.example.com\n" +
			"  argosy agent run --hub https://argosy.example.com --kubeconfig edge.kubeconfig " +
			"--ops 127.0.0.1:8081",
	}
	cmd.Flags().StringVar(&hub, "hub", "", "URL of the control plane (or ARGOSY_HUB)")
	cmd.Flags().StringVar(&ops, "ops", "127.0.0.1:8081",
		"host:port of /healthz, /readyz and /metrics; empty: none")
	cmd.Flags().DurationVar(&within, "session-within", agentruntime.SessionWithin,
		"with --self-upgrade: time for the first session of a new version, before the agent "+
			"returns to the version before")
	cmd.Flags().StringVar(&log.Level, "log-level", log.Level, "debug, info, warn or error")
	cmd.Flags().StringVar(&log.Format, "log-format", log.Format, "text or json")
	p.kubeFlags(cmd)
	p.runFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if hub = first(hub, a.getenv("ARGOSY_HUB")); hub == "" {
			return errors.New(
				"--hub is required: the URL of the control plane, such as " +
					"https://argosy.example.com")
		}
		if within <= 0 {
			return fmt.Errorf("--session-within is %s; it must be above 0", within)
		}
		if err := log.Check(); err != nil {
			return err
		}
		s, err := p.settings(hub)
		if err != nil {
			return err
		}
		cluster, err := p.here()
		if err != nil {
			return err
		}
		made, err := agentruntime.New(agentruntime.Config{
			Hub: hub, Namespace: p.install.Namespace, ArgoCDNamespace: p.install.ArgoCDNamespace,
			ApplicationNamespaces: p.install.ApplicationNamespaces, CA: s.CA, Proxy: s.Proxy,
			MaxDeletions: p.install.MaxDeletions,
			NoSecrets:    p.install.PublicOnly, SelfUpgrade: p.install.SelfUpgrade,
			Reads: p.install.Reads, ReadNamespaces: p.install.ReadNamespaces,
			Restarts: p.install.Restarts,
			Upgrade:  a.getenv(agentruntime.EnvUpgrade), SessionWithin: within,
			InFlight: writesAtOnce, Cluster: cluster, Ops: ops,
			Version: s.Version, Log: log.Logger(a.err),
		})
		if err != nil {
			return err
		}
		return verdictOf(made.Run(cmd.Context()))
	}
	return cmd
}

// runFlags adds the flags of a running agent.
func (p *place) runFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.install.ArgoCDNamespace, "argocd-namespace", "argocd",
		"namespace of the cluster's Argo CD")
	cmd.Flags().StringSliceVar(&p.install.ApplicationNamespaces, "application-namespaces", nil,
		"further namespaces in which Applications may be adopted, if they are declared too")
	cmd.Flags().StringVar(&p.caFile, "ca-file", "",
		"more trusted certificates (PEM) for the control plane, such as a TLS-inspecting proxy's")
	cmd.Flags().StringVar(&p.install.Proxy, "proxy", "",
		"URL of the proxy to the control plane (default: HTTPS_PROXY, NO_PROXY)")
	cmd.Flags().BoolVar(&p.install.PublicOnly, "no-secrets", false,
		"do not touch the Secrets of Argo CD's namespace: enough if every repository is public")
	cmd.Flags().BoolVar(&p.install.SelfUpgrade, "self-upgrade", false,
		"let the control plane change the image of the agent's own Deployment, within its "+
			"repository (docs/rings.md)")
	cmd.Flags().BoolVar(&p.install.Reads, "reads", false,
		"let people with access to an Application see its resources, from Argo CD's cache "+
			"(docs/resources.md)")
	cmd.Flags().StringSliceVar(&p.install.ReadNamespaces, "read-namespaces", nil,
		"with --reads: namespaces of workloads whose Pods, logs and events they see too")
	cmd.Flags().BoolVar(&p.install.Restarts, "restarts", false,
		"with --read-namespaces: let people restart the workloads of Applications there, with the "+
			"right to change Deployments, StatefulSets and DaemonSets (docs/actions.md)")
	cmd.Flags().IntVar(&p.install.MaxDeletions, "max-deletions", 20,
		"Applications that may be deleted within an hour without a release on the cluster")
}

// settings are how the hub is reached.
func (p *place) settings(hub string) (edge.Settings, error) {
	p.install.Hub = hub
	s := edge.Settings{Hub: hub, Version: versionText()}
	if err := p.install.CheckNamespaces(); err != nil {
		return s, err
	}
	if p.caFile != "" {
		pem, err := os.ReadFile(p.caFile)
		if err != nil {
			return s, fmt.Errorf("--ca-file: %w", err)
		}
		s.CA, p.install.CA = pem, pem
	}
	if p.install.Proxy != "" {
		proxy, err := edge.ParseProxy(p.install.Proxy)
		if err != nil {
			return s, fmt.Errorf("--proxy: %w", err)
		}
		s.Proxy = proxy
	}
	return s, nil
}

// here connects the agent to its own cluster, never through a proxy: the proxy leads out of the
// cluster.
func (p *place) here() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if p.kubeconfig != "" || p.kubeContext != "" {
		config, err = p.cluster()
	}
	if err != nil {
		return nil,
			fmt.Errorf("no cluster: %w; outside a cluster, name a kubeconfig with --kubeconfig",
				err)
	}
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}

// verdictOf is how a run ended: an identity that is refused is not allowed rather than wrong.
func verdictOf(err error) error {
	var ended *edge.TerminalError
	switch {
	case errors.As(err, &ended):
		return notAllowed{ended}
	case errors.Is(err, context.Canceled):
		return nil
	}
	return err
}

// shortestDigest is the minimum number of digits that identify a list of held deletions.
const shortestDigest = 8

func releaseDeletionsCommand(a *app) *cobra.Command {
	var p place
	var digest string
	cmd := &cobra.Command{
		Use:   "release-deletions",
		Short: "Show and release the deletions that the agent holds for the cluster's admin",
		Args:  exactly(),
		Long: "An agent deletes at most --max-deletions Applications within an hour, whatever\n" +
			"the control plane asks for. It holds all further ones for a person with the\n" +
			"cluster's kubeconfig. The command lists them and asks; without a terminal,\n" +
			"--digest releases exactly the list with that digest.",
		Example: "  argosy agent release-deletions --kubeconfig edge.kubeconfig\n" +
			"  argosy agent release-deletions --digest 9f2c51d04a7b",
	}
	p.kubeFlags(cmd)
	cmd.Flags().StringVar(&digest, "digest", "", "digest of the list")
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
			a.hint("no deletion is held")
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
		err = a.printLine("released %s", plural(len(held.Names), "deletion"))
		a.hint(
			"the agent starts within seconds; each Application's deletionPolicy decides about " +
				"its workload")
		return err
	}
	return cmd
}

// kubeFlags adds the flags that choose the cluster.
func (p *place) kubeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.kubeconfig, "kubeconfig", "",
		"kubeconfig of the cluster (default: KUBECONFIG, ~/.kube/config)")
	cmd.Flags().StringVar(&p.kubeContext, "kube-context", "", "context of the kubeconfig")
	p.namespaceFlag(cmd)
}

func (p *place) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.install.Namespace, "namespace", edge.Name,
		"namespace of the agent itself, with nothing else in it")
}

// cluster is the person's own way to the cluster.
func (p *place) cluster() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: p.kubeContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: %w; name its kubeconfig with --kubeconfig", err)
	}
	return config, nil
}

// showHeld lists the held deletions, and asks on a terminal whether to release them all. Without a
// terminal that is a finding.
func (a *app) showHeld(held edge.HeldDeletions) error {
	for _, name := range held.Names {
		if err := a.printLine("%s", name); err != nil {
			return err
		}
	}
	sum := fmt.Sprintf("%s for %s", waiting(len(held.Names)), fleet.Age(time.Since(held.Since)))
	if !isTerminal(a.in) {
		return findings{
			fmt.Sprintf("%s. To delete them all: argosy agent release-deletions --digest %.12s",
				sum, held.Digest)}
	}
	a.hint("%s. Delete them all? Type yes:", sum)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return findings{"nothing was released"}
	}
	return nil
}

func waiting(n int) string {
	if n == 1 {
		return "1 deletion waits"
	}
	return fmt.Sprintf("%d deletions wait", n)
}
