package argocd

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// Keys of a secret's values.
const (
	keyToken        = "token"
	keyCert         = "cert"
	keyKey          = "key"
	keyKubeconfig   = "kubeconfig"
	keyCA           = "ca.crt" // as Kubernetes names it in a service account's Secret
	keyUsername     = "username"
	keyPassword     = "password"
	keySSH          = "sshPrivateKey"
	keyAppID        = "githubAppID"
	keyInstallation = "githubAppInstallationID"
	keyAppKey       = "githubAppPrivateKey"
)

func unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", engine.ErrCredential, fmt.Sprintf(format, args...))
}

// fill adds the credential to the data of a Secret's manifest, in place. The data must not be
// shared.
func fill(kind fleet.ObjectKind, data map[string]any, secret fleet.Secret) error {
	if kind == fleet.ObjectCluster && authenticatesInCloud(data) {
		if !secret.IsZero() {
			return unusable("the cluster has an identity of a cloud and takes no secret")
		}
		return nil
	}
	if secret.IsZero() {
		return unusable("it is empty")
	}
	if kind == fleet.ObjectCluster {
		return fillCluster(data, secret)
	}
	return fillRepository(data, secret)
}

// fillCluster adds the token or client certificate to the cluster's config, and nothing else: no
// exec, no awsAuth, no proxy, no insecure.
func fillCluster(data map[string]any, secret fleet.Secret) error {
	var config v1alpha1.ClusterConfig
	raw, err := dataValue(data, "config")
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	server, serverErr := dataValue(data, "server")
	if err != nil || serverErr != nil {
		return fmt.Errorf("the manifest of a cluster has no server or config")
	}
	given, err := clusterCredential(secret, string(server))
	if err != nil {
		return err
	}
	config.BearerToken, config.CertData, config.KeyData = given.token, given.cert, given.key
	if len(config.CAData) == 0 {
		config.CAData = given.ca
	}
	if url, _, _ := strings.Cut(string(server), "?"); url == fleet.InClusterServer &&
		len(config.CAData) == 0 {
		return unusable("it has no %s, and the environment no caData: no system trusts the CA of "+
			"the engine's own cluster", keyCA)
	}
	filled, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("cluster config cannot be written")
	}
	data["config"] = base64.StdEncoding.EncodeToString(filled)
	return nil
}

func dataValue(data map[string]any, name string) ([]byte, error) {
	text, _ := data[name].(string)
	return base64.StdEncoding.DecodeString(text)
}

// clusterCredential returns the only credential in the secret: a token, a certificate with its key,
// or a kubeconfig for the declared server.
func clusterCredential(secret fleet.Secret, serverKey string) (kubeconfig, error) {
	var k kubeconfig
	switch {
	case secret.Has(keyKubeconfig):
		if secret.Has(keyToken) || secret.Has(keyCert) || secret.Has(keyKey) {
			return k, unusable("it contains a kubeconfig and another credential; keep one")
		}
		var err error
		if k, err = readKubeconfig(secret.Value(keyKubeconfig)); err != nil {
			return k, err
		}
		declared, _, _ := strings.Cut(serverKey, "?")
		if strings.TrimSuffix(k.server, "/") != declared {
			return kubeconfig{},
				unusable("the kubeconfig is for another server than the declared %s", declared)
		}
	default:
		k.token, k.cert, k.key = strings.TrimSpace(string(secret.Value(keyToken))),
			secret.Value(keyCert), secret.Value(keyKey)
		if secret.Has(keyCA) {
			if err := fleet.CheckCA(secret.Value(keyCA)); err != nil {
				return k, unusable("%s %v", keyCA, err)
			}
			k.ca = secret.Value(keyCA)
		}
	}
	return k, checkClusterCredential(k)
}

func checkClusterCredential(k kubeconfig) error {
	hasPair := len(k.cert) > 0 || len(k.key) > 0
	switch {
	case k.token != "" && hasPair:
		return unusable("it contains a token and a certificate; keep one")
	case k.token == "" && !hasPair:
		return unusable("it contains none of %s, %s with %s, %s", keyToken, keyCert, keyKey,
			keyKubeconfig)
	case k.token != "":
		return checkText(keyToken, k.token, 16<<10)
	}
	if _, err := tls.X509KeyPair(k.cert, k.key); err != nil {
		return unusable("%s and %s are not a PEM certificate and its key", keyCert, keyKey)
	}
	return nil
}

// checkText rejects text that could break out of a header or an environment variable.
func checkText(name, s string, most int) error {
	if s == "" || len(s) > most {
		return unusable("%s is empty or longer than %d bytes", name, most)
	}
	for _, r := range s {
		if r <= ' ' || r >= 0x7f {
			return unusable("%s contains a blank or a control character", name)
		}
	}
	return nil
}

// fillRepository adds one kind of access to a repository Secret.
func fillRepository(data map[string]any, secret fleet.Secret) error {
	set := func(name string, value []byte) { data[name] = base64.StdEncoding.EncodeToString(value) }
	app := secret.Has(keyAppID) || secret.Has(keyInstallation) || secret.Has(keyAppKey)
	password := bytes.TrimRight(secret.Value(keyPassword), "\r\n")
	if len(password) == 0 {
		password = bytes.TrimRight(secret.Value(keyToken), "\r\n")
	}
	ways := 0
	for _, is := range []bool{app, len(password) > 0, secret.Has(keySSH)} {
		if is {
			ways++
		}
	}
	if kind, err := dataValue(data, "type"); err != nil ||
		string(kind) != string(fleet.RepositoryGit) && (app || secret.Has(keySSH)) {
		return unusable("a Helm repository or registry takes %s (with %s) or %s", keyPassword,
			keyUsername, keyToken)
	}
	if ways != 1 {
		return unusable(
			"it must contain exactly one of %s (with %s), %s, %s, or a GitHub App's %s, %s and %s",
			keyPassword, keyUsername, keyToken, keySSH, keyAppID, keyInstallation, keyAppKey)
	}
	switch {
	case app:
		return fillApp(set, secret)
	case secret.Has(keySSH):
		if block, _ := pem.Decode(secret.Value(keySSH)); block == nil ||
			!strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return unusable("%s is not a PEM private key", keySSH)
		}
		set(keySSH, secret.Value(keySSH))
		return nil
	}
	if bytes.ContainsAny(password, "\x00\r\n") || len(password) > 16<<10 {
		return unusable("%s has several lines or more than 16 KiB", keyPassword)
	}
	user := bytes.TrimRight(secret.Value(keyUsername), "\r\n")
	if len(user) == 0 {
		// Git hosts accept any user name with a token, but basic authentication requires one
		user = []byte("argosy")
	}
	if bytes.ContainsAny(user, "\x00\r\n:") || len(user) > 256 {
		return unusable("%s has several lines, a colon or more than 256 bytes", keyUsername)
	}
	set(keyUsername, user)
	set(keyPassword, password)
	return nil
}

func fillApp(set func(string, []byte), secret fleet.Secret) error {
	for _, name := range []string{keyAppID, keyInstallation} {
		number := strings.TrimSpace(string(secret.Value(name)))
		if n, err := strconv.ParseInt(number, 10, 64); err != nil || n <= 0 {
			return unusable("%s is not a positive number", name)
		}
		set(name, []byte(number))
	}
	if block, _ := pem.Decode(secret.Value(keyAppKey)); block == nil ||
		!strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return unusable("%s is not a PEM private key", keyAppKey)
	}
	set(keyAppKey, secret.Value(keyAppKey))
	return nil
}

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
