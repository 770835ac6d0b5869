// Package example puts the fleet of examples/config-repo onto real parts: two clusters, an Argo CD
// on each, a Git server with the config repo and the application repositories, and the secrets that
// they refer to. The demo and the end-to-end tests use it.
//
// The example names hosts that do not exist (api.eu-1.example.com, git.example.com). The pushed
// files differ from the folder in these addresses and the clusters' CA only.
package example

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/test/stack"
)

// Place is a cluster with its Argo CD, as the example names them.
type Place struct {
	Engine  string // eu-1
	Host    string // api.eu-1.example.com
	Version string // of Argo CD
	Cluster *stack.Cluster
	ArgoCD  *stack.ArgoCD
}

// Fleet is the running example.
type Fleet struct {
	Dir    string
	Places []*Place
	Git    *stack.GitServer
	Config *stack.Repo            // the config repo
	Apps   map[string]*stack.Repo // by "acme/checkout"
	Edge   *Edge                  // nil unless asked for
	// The secrets are in all three places: the tokens of acme and globex and the engines'
	// kubeconfigs in a directory, initech's token in its namespace on the cluster of eu-1, the
	// password of acme's private repository in a *.sops.yaml of the config repo.
	Secrets   string
	AgeFile   string
	Recipient string
}

// GitUser and GitPassword open the private repository acme/checkout.
const (
	GitUser     = "argosy"
	GitPassword = "demo-password"
)

// Options of Start.
type Options struct {
	Root    string        // of the source tree, where examples/ is
	Dir     string        // for data and logs
	Refresh time.Duration // of Argo CD
	// Version is that of every Argo CD. Empty: eu-1 has 2.14, us-1 and the edge have 3.5.
	Version string
	// Installed leaves the Argo CDs' processes to StartArgoCDs.
	Installed bool
	Audit     bool // write the API servers' audit logs to Dir/<engine>.audit
	Edge      bool // a third cluster, behind a firewall
	// TrustedCAs are PEM certificates that every Argo CD trusts, by host name without the port.
	TrustedCAs map[string][]byte
	Progress   func(format string, args ...any)
	// of the config repo's files before they are pushed; nil: as they are
	Edit func(path, content string) string
}

// accounts are the tenants' environments: which cluster, which namespaces.
var accounts = []struct {
	tenant, environment, engine string
	namespaces                  []string
}{
	{"acme", "staging", "eu-1", []string{"acme-staging"}},
	{"acme", "prod-eu", "eu-1", []string{"acme-checkout", "acme-storefront"}},
	{"globex", "prod-eu", "eu-1", []string{"globex-billing", "globex-web"}},
	{"globex", "prod-us", "us-1", []string{"globex-billing", "globex-web"}},
	{"initech", "prod-us", "us-1", []string{"initech-portal"}},
}

// apps are the application repositories with the tag that the example refers to.
var apps = map[string]string{
	"acme/checkout": "v1.4.0", "acme/plc": "v1.0.0", "acme/storefront": "v2.0.1",
	"globex/billing": "", "globex/web": "", "initech/portal": "v1.0.0",
}

// Start brings everything up but Argosy itself. Stop ends what was started, also when Start failed
// half way.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	f := &Fleet{Dir: o.Dir, Apps: map[string]*stack.Repo{},
		Secrets: filepath.Join(o.Dir, "secrets")}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	for _, place := range []*Place{
		{Engine: "eu-1", Host: "api.eu-1.example.com", Version: "2.14"},
		{Engine: "us-1", Host: "api.us-1.example.com", Version: "3.5"},
	} {
		if o.Version != "" {
			place.Version = o.Version
		}
		if err := f.startPlace(ctx, o, place); err != nil {
			return nil, err
		}
	}
	o.Progress("starting a Git server with the config repo and %d application repositories",
		len(apps))
	if f.Git, err = stack.StartGit(ctx, filepath.Join(o.Dir, "git")); err != nil {
		return nil, err
	}
	if err := f.pushApps(ctx, o.Root); err != nil {
		return nil, err
	}
	if err := f.writeSecrets(ctx); err != nil {
		return nil, err
	}
	if o.Edge {
		if f.Edge, err = f.StartEdge(ctx, o); err != nil {
			return nil, err
		}
	}
	return f, f.pushConfig(ctx, o)
}

func (f *Fleet) startPlace(ctx context.Context, o Options, p *Place) (err error) {
	f.Places = append(f.Places, p)
	o.Progress("starting a Kubernetes API with its controllers for %s", p.Engine)
	options := stack.ClusterOptions{Name: p.Engine, Dir: filepath.Join(o.Dir, p.Engine)}
	if o.Audit {
		options.AuditLog = filepath.Join(o.Dir, p.Engine+".audit")
	}
	if p.Cluster, err = stack.StartCluster(ctx, options); err != nil {
		return err
	}
	p.ArgoCD, err = o.argoCD(ctx, "as engine "+p.Engine, stack.ArgoOptions{
		Cluster: p.Cluster, Version: p.Version, Namespace: "argocd-" + p.Engine,
		InstallationID: p.Engine, Dir: filepath.Join(o.Dir, "argocd-"+p.Engine),
	})
	return err
}

// argoCD installs an Argo CD, and starts it unless StartArgoCDs will.
func (o Options) argoCD(ctx context.Context, where string, a stack.ArgoOptions) (*stack.ArgoCD,
	error) {
	a.Refresh, a.TrustedCAs = o.Refresh, o.TrustedCAs
	if o.Installed {
		o.Progress("installing Argo CD %s %s", a.Version, where)
		return stack.InstallArgoCD(ctx, a)
	}
	o.Progress("starting Argo CD %s %s", a.Version, where)
	return stack.StartArgoCD(ctx, a)
}

// StartArgoCDs starts the processes of every Argo CD that does not run.
func (f *Fleet) StartArgoCDs(ctx context.Context) error {
	for _, p := range f.Places {
		if err := p.ArgoCD.Start(ctx); err != nil {
			return err
		}
	}
	if f.Edge == nil {
		return nil
	}
	return f.Edge.ArgoCD.Start(ctx)
}

func (f *Fleet) pushApps(ctx context.Context, root string) error {
	for name, tag := range apps {
		repo, err := f.Git.CreateRepo(ctx, name)
		if err != nil {
			return err
		}
		f.Apps[name] = repo
		files, err := readTree(filepath.Join(root, "examples", "app-repos",
			filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if _, err := repo.Commit(ctx, "first version", files); err != nil {
			return err
		}
		if tag != "" {
			if _, err := repo.Git(ctx, "tag", tag, "main"); err != nil {
				return err
			}
		}
	}
	f.Apps["acme/checkout"].RequireAuth(GitUser, GitPassword)
	return nil
}

// writeSecrets makes a restricted token for each environment and writes it below secrets.directory.
func (f *Fleet) writeSecrets(ctx context.Context) error {
	for _, a := range accounts {
		token, err := f.Place(a.engine).Cluster.TenantToken(ctx, a.tenant+"-"+a.environment,
			a.namespaces...)
		if err != nil {
			return err
		}
		if a.tenant == "initech" {
			err = f.writeKubernetesSecret(ctx, a.tenant, a.environment, token)
		} else {
			err = f.WriteSecret(a.tenant, a.environment, "token", token)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range f.Places {
		kubeconfig, err := os.ReadFile(p.ArgoCD.Kubeconfig)
		if err != nil {
			return err
		}
		if err := f.WriteSecret("_fleet", "engine-"+p.Engine, "kubeconfig",
			string(kubeconfig)); err != nil {
			return err
		}
	}
	return f.sealKey()
}

// sealKey makes the operator's age identity, which opens the *.sops.yaml files of the config repo.
func (f *Fleet) sealKey() error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	f.Recipient, f.AgeFile = id.Recipient().String(), filepath.Join(f.Dir, "age.txt")
	return os.WriteFile(f.AgeFile, []byte(id.String()+"\n"), 0o600)
}

// Encrypt writes values as `argosy encrypt` does, for one path of the config repo.
func (f *Fleet) Encrypt(tenant fleet.TenantName, folder, name string,
	values map[string]string) ([]byte, error) {
	return secrets.Encrypt(fleet.CredentialSource{Tenant: tenant, Folder: folder, Name: name},
		[]string{f.Recipient}, values)
}

// writeKubernetesSecret puts a token into the tenant's own namespace of the control plane's
// cluster, which is eu-1.
func (f *Fleet) writeKubernetesSecret(ctx context.Context, tenant, name, token string) error {
	namespace := "argosy-tenant-" + tenant
	if err := f.Place("eu-1").Cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	return f.Place("eu-1").Cluster.Apply(ctx, &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string][]byte{"token": []byte(token)},
	})
}

// WriteSecret writes one key of a secret below secrets.directory.
func (f *Fleet) WriteSecret(tenant, name, key, value string) error {
	dir := filepath.Join(f.Secrets, tenant, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600)
}

func (f *Fleet) pushConfig(ctx context.Context, o Options) error {
	files, err := readTree(filepath.Join(o.Root, "examples", "config-repo"))
	if err != nil {
		return err
	}
	for path, content := range files {
		if o.Edit != nil {
			content = o.Edit(path, content)
		}
		files[path] = f.Rewrite(content)
	}
	git, err := f.Encrypt("acme", "credentials", "checkout-git", map[string]string{
		"username": GitUser, "password": GitPassword})
	if err != nil {
		return err
	}
	files["tenants/acme/credentials/checkout-git.sops.yaml"] = string(git)
	if f.Config, err = f.Git.CreateRepo(ctx, "platform/config"); err != nil {
		return err
	}
	_, err = f.Config.Commit(ctx, "the fleet", files)
	return err
}

var caData = regexp.MustCompile(`caData: \S+`)

// Rewrite puts the running addresses in place of the example's.
func (f *Fleet) Rewrite(content string) string {
	content = strings.ReplaceAll(content, "https://git.example.com", f.Git.URL)
	content = strings.ReplaceAll(content, "- git.example.com\n",
		fmt.Sprintf("- %s\n  clusterHosts:\n    - 127.0.0.1\n", f.Git.URL))
	for _, p := range f.Places {
		url := "https://" + p.Host + ":6443"
		if strings.Contains(content, url) {
			content = strings.ReplaceAll(content, url, p.Cluster.Server)
			content = caData.ReplaceAllString(content, "caData: "+base64.StdEncoding.EncodeToString(
				p.Cluster.CA))
		}
	}
	return content
}

// Place is the place of an engine.
func (f *Fleet) Place(engine string) *Place {
	for _, p := range f.Places {
		if p.Engine == engine {
			return p
		}
	}
	panic("no engine " + engine)
}

// Stop ends everything.
func (f *Fleet) Stop() error {
	var errs []error
	if f.Edge != nil {
		errs = append(errs, f.Edge.Stop())
	}
	for _, p := range f.Places {
		if p.ArgoCD != nil {
			errs = append(errs, p.ArgoCD.Stop())
		}
		if p.Cluster != nil {
			errs = append(errs, p.Cluster.Stop())
		}
	}
	if f.Git != nil {
		errs = append(errs, f.Git.Stop())
	}
	return errors.Join(errs...)
}

func readTree(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(rel)] = string(content)
		return err
	})
	return files, err
}
