package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/printable"
)

// joining is what the flags of `agent join` say.
type joining struct {
	place
	check            bool
	token, tokenFile string
}

func (a *app) agentJoin() *cobra.Command {
	var j joining
	cmd := &cobra.Command{
		Use: "join URL",
		Short: "Join this cluster: make a key on it, swap the token for an identity, install " +
			"the agent",
		Long: "Run it with the kubeconfig of an admin of the cluster, where the control plane " +
			"at URL is reached from. It looks first whether everything is as it has\n" +
			"to be, and changes nothing while it is not; with --check it does only that. The " +
			"private key is made on the cluster and never leaves it. It may be run\n" +
			"again, after whatever it ended at, with the same token. The token is read from " +
			"--token-file, or from stdin.\n\n" +
			"Without --image everything but the Deployment is applied, for an agent that is run " +
			"some other way: `argosy agent run`.",
		Example: "  argosy agent join --check https://argosy.example.com\n  argosy agent join " +
			"https://argosy.example.com --token-file token --image " +
			"registry.example.com/argosy:v0.4.0\n" +
			"  argosy agent token create acme/edge | argosy agent join " +
			"https://argosy.example.com --kubeconfig edge.kubeconfig --image " +
			"registry.example.com/argosy:v0.4.0",
		Args: exactly("URL"),
	}
	cmd.Flags().BoolVar(&j.check, "check", false, "look at everything, and change nothing")
	cmd.Flags().StringVar(&j.token, "token", "",
		"one-time token (better: --token-file or stdin, which no list of processes shows)")
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

// checkSite looks at everything that joining needs. What will not work is a finding.
func (a *app) checkSite(ctx context.Context, j joining, s edge.Settings,
	config *rest.Config) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	checks := edge.Checks{Settings: s, Cluster: &edge.ClusterCheck{
		Client: kube, Install: j.install}}
	results := checks.Run(ctx, a.sayResult)
	if edge.Failed(results) {
		return findings{"it would not work as it is; nothing was changed"}
	}
	return nil
}

// sayResult prints one result as `argosy doctor` does, and below it who has to do what.
func (a *app) sayResult(r edge.Result) {
	mark := map[edge.Level]string{edge.LevelOK: "ok  ", edge.LevelWarn: "warn",
		edge.LevelFail: "BAD "}[r.Level]
	fmt.Fprintf(a.out, "%s %-16s %s\n", mark, printable.Line(r.Check), printable.Line(r.Found))
	if r.Next != "" {
		fmt.Fprintf(a.out, "     %-16s -> %s\n", "", printable.Line(r.Next))
	}
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
	if err := a.say("joined: this cluster serves engine %s as agent %s", id.Engine,
		id.Agent); err != nil {
		return err
	}
	if last == nil {
		a.hint(
			"no --image was given, so that nothing runs yet; run it with: argosy agent run "+
				"--hub %s --namespace %s", j.install.Hub, j.install.Namespace)
		return nil
	}
	if err := apply.apply(ctx, last, a.hint); err != nil {
		return err
	}
	a.hint(
		"the agent is installed in namespace %s; it shows in `argosy get agents` once it is "+
			"connected", j.install.Namespace)
	return nil
}

// joinToken is the token from wherever it is said to be. A person who put it on the command line is
// told that others may have seen it.
func (a *app) joinToken(j joining) (string, error) {
	switch {
	case j.token != "":
		a.hint(
			"warning: a token on the command line is seen by everybody on this machine who " +
				"lists processes, and stays in the shell's history; use --token-file")
		return strings.TrimSpace(j.token), nil
	case j.tokenFile != "":
		return a.readToken(j.tokenFile)
	case isTerminal(a.in):
		return "",
			errors.New(
				"where is the token? name a file with --token-file, or pipe it in: argosy agent " +
					"token create TENANT/ENV | argosy agent join URL")
	}
	return a.readToken("-")
}

func identity(ctx context.Context, j joining, s edge.Settings, config *rest.Config,
	token string) (edge.Identity, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return edge.Identity{}, err
	}
	keeper := edge.NewIdentityStore(edge.SecretStore(kube, j.install.Namespace, edge.Name))
	client, err := edge.NewClient(s, keeper)
	if err != nil {
		return edge.Identity{}, err
	}
	defer client.Close()
	uid, err := edge.ClusterUID(ctx, kube)
	if err != nil {
		return edge.Identity{}, err
	}
	return keeper.Join(ctx, s.Hub, client, token, uid, s.Version)
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

// applier applies objects as `kubectl apply --server-side` does.
type applier struct {
	client *dynamic.DynamicClient
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

const joinManager = "argosy-agent-join" // field manager

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

// apply applies one object. A kind that the API server does not serve is left out and said: the
// check has warned of what that means.
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
		hint("warning: this cluster does not serve %s; %s is left out", kind.Kind, u.GetName())
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, u.GetName(), err)
	}
	var to dynamic.ResourceInterface = p.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		to = p.client.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	if _, err := to.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: joinManager,
		Force: true}); err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, u.GetName(), err)
	}
	return nil
}
