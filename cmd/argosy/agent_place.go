package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/fleet/agent/edge"
)

// place is what the flags of the commands that work on a cluster say: which cluster, where on it,
// and how the hub is reached from there.
type place struct {
	kubeconfig, kubeContext string
	install                 edge.Install
	caFile                  string
}

// kubeFlags say which cluster.
func (p *place) kubeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.kubeconfig, "kubeconfig", "",
		"of the cluster (default: KUBECONFIG, ~/.kube/config)")
	cmd.Flags().StringVar(&p.kubeContext, "kube-context", "", "context of the kubeconfig")
	p.namespaceFlag(cmd)
}

func (p *place) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.install.Namespace, "namespace", edge.Name,
		"of the agent itself; one of its own")
}

// runFlags say how an agent runs.
func (p *place) runFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.install.ArgoCDNamespace, "argocd-namespace", "argocd",
		"of the cluster's Argo CD")
	cmd.Flags().StringVar(&p.caFile, "ca-file", "",
		"certificates (PEM) that are trusted for the hub beside the system's, such as a "+
			"TLS-inspecting proxy's")
	cmd.Flags().StringVar(&p.install.Proxy, "proxy", "",
		"URL of the proxy to the hub (default: HTTPS_PROXY, NO_PROXY)")
	cmd.Flags().BoolVar(&p.install.PublicOnly, "no-secrets", false,
		"leave the Secrets of Argo CD's namespace alone: enough where every repository is public")
	cmd.Flags().IntVar(&p.install.MaxDeletions, "max-deletions", 20,
		"Applications deleted within an hour without an approval on the cluster")
}

// installFlags say what is installed.
func (p *place) installFlags(cmd *cobra.Command) {
	p.runFlags(cmd)
	cmd.Flags().StringVar(&p.install.Image, "image", "",
		"of the agent: this program in a container")
	cmd.Flags().StringVar(&p.install.NoProxy, "no-proxy", "",
		"hosts that the agent reaches without the proxy")
	cmd.Flags().BoolVar(&p.install.EgressOnly, "egress-only", false,
		"add a NetworkPolicy: nothing in, and out only to DNS, the hub and the API server")
}

// settings are how the hub is reached.
func (p *place) settings(hub string) (edge.Settings, error) {
	p.install.Hub = hub
	s := edge.Settings{Hub: hub, Version: versionText()}
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

// cluster is the person's own way to the cluster.
func (p *place) cluster() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: p.kubeContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which cluster? %w; name its kubeconfig with --kubeconfig", err)
	}
	return config, nil
}

// here is the agent's own way to the cluster that it runs on. It never goes through a proxy: that
// one leads out.
func (p *place) here() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if p.kubeconfig != "" || p.kubeContext != "" {
		config, err = p.cluster()
	}
	if err != nil {
		return nil,
			fmt.Errorf("which cluster? %w; outside of it name a kubeconfig with --kubeconfig", err)
	}
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}
