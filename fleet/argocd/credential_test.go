package argocd

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const canary = "canary-4d1f7"

func values(kv ...string) fleet.Secret {
	m := map[string][]byte{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = []byte(kv[i+1])
	}
	return fleet.NewSecret(m)
}

// kubeconfigWith returns a kubeconfig with these fields of cluster and user, in YAML flow style.
func kubeconfigWith(cluster, user string) string {
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: "+
			"{cluster: k, user: u}}]\nclusters: [{name: k, cluster: {%s}}]\nusers: [{name: u, "+
			"user: {%s}}]\n", cluster, user)
}

const goodServer = "server: 'https://api.eu-1.example.com:6443'"

func filledCluster(t *testing.T, s fleet.Secret) (v1alpha1.ClusterConfig, error) {
	t.Helper()
	w, err := prepare(rowOf(t, clusterObject(prodEU, exampleServer), 1), s, mirror.Lease{Epoch: 1})
	if err != nil {
		return v1alpha1.ClusterConfig{}, err
	}
	raw, err := dataValue(child(w.tree, "data"), "config")
	if err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.ClusterConfig
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c, nil
}

func TestOnlyTheClusterCredentialIsCopied(t *testing.T) {
	cert, key := certificate(t)
	b64 := base64.StdEncoding.EncodeToString
	cases := map[string]struct {
		secret fleet.Secret
		want   v1alpha1.ClusterConfig
	}{
		"a token": {values("token", canary+"\n"), v1alpha1.ClusterConfig{
			BearerToken: canary}},
		"a certificate": {values("cert", string(cert), "key", string(key)), v1alpha1.ClusterConfig{
			TLSClientConfig: v1alpha1.TLSClientConfig{CertData: cert, KeyData: key}}},
		"a kubeconfig": {values("kubeconfig", kubeconfigWith(goodServer, "token: "+canary)),
			v1alpha1.ClusterConfig{BearerToken: canary}},
		"a kubeconfig's CA": {
			values("kubeconfig", kubeconfigWith(goodServer+", certificate-authority-data: "+
				b64(cert), "client-certificate-data: "+b64(cert)+", client-key-data: "+b64(key))),
			v1alpha1.ClusterConfig{TLSClientConfig: v1alpha1.TLSClientConfig{
				CAData: cert, CertData: cert, KeyData: key}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := filledCluster(t, c.secret)
			if err != nil {
				t.Fatal(err)
			}
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(c.want)
			if !bytes.Equal(g, w) {
				t.Errorf("config is %s, want %s", g, w)
			}
		})
	}
}

func TestClusterCredentialKeepsTheDeclaredCA(t *testing.T) {
	declared, _ := certificate(t)
	other, _ := certificate(t)
	o := clusterObject(prodEU, exampleServer)
	o.Cluster.CAData = base64.StdEncoding.EncodeToString(declared)
	secret := values("kubeconfig", kubeconfigWith(goodServer+", certificate-authority-data: "+
		base64.StdEncoding.EncodeToString(other), "token: x"))
	w, err := prepare(rowOf(t, o, 1), secret, mirror.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := dataValue(child(w.tree, "data"), "config")
	var c v1alpha1.ClusterConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.CAData, declared) {
		t.Error("the reviewed CA gave way to the one of the secret")
	}
}

func TestTheClusterOfAnEngineNeedsItsCA(t *testing.T) {
	ca, _ := certificate(t)
	o := clusterObject(prodEU, fleet.InClusterServer)
	o.Cluster.OnEngine = testEngine
	refused(t, o, values("token", canary))
	refused(t, o, values("token", canary, "ca.crt", "no certificate"))
	w, err := prepare(rowOf(t, o, 1), values("token", "x", "ca.crt", string(ca)), mirror.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := dataValue(child(w.tree, "data"), "config")
	var c v1alpha1.ClusterConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.CAData, ca) || c.BearerToken != "x" {
		t.Errorf("the config has CA %q", c.CAData)
	}
	o.Cluster.CAData = base64.StdEncoding.EncodeToString(ca)
	if _, err := prepare(rowOf(t, o, 1), values("token", "x"), mirror.Lease{}); err != nil {
		t.Error(err)
	}
}

func TestClusterCredentialRejectsAmbiguousSecrets(t *testing.T) {
	cert, key := certificate(t)
	_, otherKey := certificate(t)
	b64 := base64.StdEncoding.EncodeToString
	k := func(cluster, user string) fleet.Secret {
		return values("kubeconfig", kubeconfigWith(cluster, user))
	}
	cases := map[string]fleet.Secret{
		"nothing":                   {},
		"a name that is not known":  values("password", canary),
		"an empty token":            values("token", ""),
		"a blank token":             values("token", " \n"),
		"a token with a line break": values("token", canary+"\nx"),
		"a token and a certificate": values("token", canary, "cert", string(cert), "key",
			string(key)),
		"a certificate without its key": values("cert", string(cert)),
		"a certificate and another key": values("cert", string(cert), "key", string(otherKey)),
		"a kubeconfig and a token": values("token", canary, "kubeconfig",
			kubeconfigWith(goodServer, "token: x")),
		"a kubeconfig that is no YAML": values("kubeconfig", "token: ["+canary),
		"a kubeconfig without a context": values("kubeconfig",
			"apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: "+canary+"}}]\n"),
		"exec": k(goodServer,
			"exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ["+canary+
				"], interactiveMode: Never}"),
		"auth-provider": k(goodServer,
			"auth-provider: {name: oidc, config: {id-token: "+canary+"}}"),
		"a token file": k(goodServer,
			"tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
		"a certificate file": k(goodServer,
			"client-certificate: /etc/x, client-key-data: "+b64(key)),
		"a key file": k(goodServer, "client-certificate-data: "+b64(cert)+
			", client-key: /etc/x"),
		"a CA file": k(goodServer+", certificate-authority: /etc/passwd",
			"token: "+canary),
		"a CA that is a key": k(goodServer+", certificate-authority-data: "+b64(key),
			"token: "+canary),
		"a proxy": k(goodServer+", proxy-url: 'http://evil'",
			"token: "+canary),
		"no TLS verification": k(goodServer+", insecure-skip-tls-verify: true",
			"token: "+canary),
		"another TLS name":       k(goodServer+", tls-server-name: x", "token: "+canary),
		"user name and password": k(goodServer, "username: a, password: "+canary),
		"impersonation":          k(goodServer, "token: "+canary+", as: system:admin"),
		"another server": k("server: 'https://kubernetes.default.svc'",
			"token: "+canary),
		"a server that only begins alike": k(
			"server: 'https://api.eu-1.example.com:6443.evil.example.com'", "token: "+canary),
		"no user at all": k(goodServer, ""),
	}
	for name, s := range cases {
		t.Run(name, func(t *testing.T) { refused(t, clusterObject(prodEU, exampleServer), s) })
	}
}

func TestRepositoryCredentialsMapToSecretKeys(t *testing.T) {
	_, key := certificate(t)
	ok := map[string]struct {
		secret fleet.Secret
		want   map[string]string
	}{
		"user name and password": {values("username", "git\n", "password", canary+"\n"),
			map[string]string{"username": "git", "password": canary}},
		"a token alone": {values("token", canary), map[string]string{"username": "argosy",
			"password": canary}},
		"a token with a user": {values("username", "oauth2", "token", canary),
			map[string]string{"username": "oauth2", "password": canary}},
		"an ssh key": {values("sshPrivateKey", string(key)), map[string]string{
			"sshPrivateKey": string(key)}},
		"a GitHub App": {values("githubAppID", "12\n", "githubAppInstallationID", "34",
			"githubAppPrivateKey", string(key)), map[string]string{
			"githubAppID": "12", "githubAppInstallationID": "34",
			"githubAppPrivateKey": string(key)}},
		"names that are not read": {values("token", canary, "proxy", "http://evil", "insecure",
			"true", "project", ""), map[string]string{"username": "argosy", "password": canary}},
	}
	for name, c := range ok {
		t.Run(name, func(t *testing.T) {
			w, err := prepare(rowOf(t, repositoryObject(acme), 1), c.secret, mirror.Lease{})
			if err != nil {
				t.Fatal(err)
			}
			data := child(w.tree, "data")
			want := map[string]string{"type": "git", "url": "https://git.example.com/acme/checkout",
				"project": fleet.ProjectName(acme)}
			for k, v := range c.want {
				want[k] = v
			}
			if len(data) != len(want) {
				t.Errorf("data has %d values, want %d", len(data), len(want))
			}
			for k, v := range want {
				if got, err := dataValue(data, k); err != nil || string(got) != v {
					t.Errorf("%s is wrong", k)
				}
			}
		})
	}
	bad := map[string]fleet.Secret{
		"nothing":                   {},
		"a user name alone":         values("username", "git"),
		"an empty password":         values("username", "git", "password", "\n"),
		"a password of two lines":   values("username", "git", "password", canary+"\nx: y"),
		"a user name with a colon":  values("username", "a:b", "password", canary),
		"an ssh key that is none":   values("sshPrivateKey", canary),
		"a password and an ssh key": values("password", canary, "sshPrivateKey", string(key)),
		"a GitHub App without its key": values("githubAppID", "12", "githubAppInstallationID",
			"34"),
		"a GitHub App that is a path": values("githubAppID", "../"+canary,
			"githubAppInstallationID", "34", "githubAppPrivateKey", string(key)),
		"a kubeconfig": values("kubeconfig", canary),
	}
	for name, s := range bad {
		t.Run("refuses "+name, func(t *testing.T) { refused(t, repositoryObject(acme), s) })
	}
	charts := repositoryOf(fleet.RepositoryHelm, "https://charts.example.com")
	t.Run("refuses an ssh key for charts", func(t *testing.T) {
		refused(t, charts, values("sshPrivateKey", string(key)))
	})
}

func refused(t *testing.T, o fleet.Object, s fleet.Secret) {
	t.Helper()
	_, err := prepare(rowOf(t, o, 1), s, mirror.Lease{})
	if !errors.Is(err, engine.ErrCredential) {
		t.Fatalf("error is %v", err)
	}
	if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "PRIVATE") {
		t.Errorf("the error shows the secret: %v", err)
	}
	if !strings.Contains(err.Error(), o.Key.Name) || !strings.Contains(err.Error(),
		rowOf(t, o, 1).Credential.Name) {
		t.Errorf("the error names neither the object nor the secret: %v", err)
	}
}

func TestEngineKubeconfig(t *testing.T) {
	config, err := Kubeconfig([]byte(kubeconfigWith(goodServer, "token: "+canary)))
	if err != nil || config.Host != exampleServer || config.BearerToken != canary {
		t.Fatalf("%v, %v", config, err)
	}
	for _, bad := range []string{kubeconfigWith(goodServer, "exec: {command: x}"),
		kubeconfigWith(goodServer+", insecure-skip-tls-verify: true", "token: "+canary), canary} {
		if _, err := Kubeconfig([]byte(bad)); !errors.Is(err, engine.ErrCredential) ||
			strings.Contains(err.Error(), canary) {
			t.Errorf("error is %v", err)
		}
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfigWith(goodServer, "token: x")))
	f.Add([]byte(kubeconfigWith(goodServer, "exec: {command: x}")))
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := Kubeconfig(content)
		if err != nil {
			return
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.Insecure ||
			config.BearerTokenFile != "" || config.CAFile != "" || config.CertFile != "" ||
			config.KeyFile != "" || config.Proxy != nil {
			t.Errorf("something else was taken over: %v", config)
		}
	})
}
