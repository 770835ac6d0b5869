package argocd

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// InCluster returns the configuration of the Pod's own service account.
func InCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil,
			fmt.Errorf(
				"connection inCluster: %w; set a kubeconfigRef if the control plane does not "+
					"run in the engine's cluster", err)
	}
	return config, nil
}

// Kubeconfig reads an engine's kubeconfig. As with a tenant's, it takes only the server, its CA and
// a token or client certificate, and rejects plug-ins, files, proxies and disabled TLS
// verification.
func Kubeconfig(content []byte) (*rest.Config, error) {
	k, err := readKubeconfig(content)
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: k.server, BearerToken: k.token, TLSClientConfig: rest.TLSClientConfig{
		CAData: k.ca, CertData: k.cert, KeyData: k.key}}, nil
}

// kubeconfig holds the only fields that are taken from a kubeconfig.
type kubeconfig struct {
	server, token string
	ca, cert, key []byte
}

// readKubeconfig reads the current context. Its errors never repeat the content, which parsers
// quote.
func readKubeconfig(content []byte) (kubeconfig, error) {
	bad := func(text string) (kubeconfig, error) {
		return kubeconfig{}, fmt.Errorf("%w: kubeconfig: %s", engine.ErrCredential, text)
	}
	c, err := clientcmd.Load(content)
	if err != nil {
		return bad("it is not valid YAML of kind Config")
	}
	context := c.Contexts[c.CurrentContext]
	if context == nil {
		return bad("current-context names no context")
	}
	cluster, user := c.Clusters[context.Cluster], c.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return bad("the current context names no cluster or no user")
	}
	if err := errors.Join(checkCluster(cluster), checkUser(user)); err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return bad(text)
	}
	return kubeconfig{server: cluster.Server, token: user.Token,
		ca: cluster.CertificateAuthorityData, cert: user.ClientCertificateData,
		key: user.ClientKeyData}, nil
}

func checkCluster(c *api.Cluster) error {
	switch {
	case c.InsecureSkipTLSVerify:
		return errors.New(
			"insecure-skip-tls-verify is refused: put the CA into certificate-authority-data")
	case c.CertificateAuthority != "":
		return errors.New(
			"certificate-authority names a file: put its content into certificate-authority-data")
	case c.ProxyURL != "":
		return errors.New("proxy-url is refused")
	case c.TLSServerName != "":
		return errors.New(
			"tls-server-name is refused: the server's certificate must name the host of its URL")
	case len(c.CertificateAuthorityData) > 0:
		if err := fleet.CheckCA(c.CertificateAuthorityData); err != nil {
			return fmt.Errorf("certificate-authority-data %w", err)
		}
	}
	return nil
}

func checkUser(u *api.AuthInfo) error {
	switch {
	case u.Exec != nil:
		return errors.New("exec is refused: it would run a program; use a service account's token")
	case u.AuthProvider != nil:
		return errors.New("auth-provider is refused; use a service account's token")
	case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
		return errors.New(
			"a file is named: put its content into token, client-certificate-data and " +
				"client-key-data")
	case u.Username != "" || u.Password != "":
		return errors.New("user name and password are refused; use a service account's token")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 ||
		len(u.ImpersonateUserExtra) > 0:
		return errors.New("impersonation is refused")
	}
	return nil
}
