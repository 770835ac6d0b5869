package helm

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// digest is what the registry has as Argo CD v3.5.7.
var digest = strings.Repeat("0123", 16)

// values of the releases.
func (w *setup) values() map[string]string {
	within := func(indent string) string {
		return strings.ReplaceAll(strings.TrimSpace(string(w.ca)), "\n", "\n"+indent)
	}
	return map[string]string{
		"argosy": fmt.Sprintf(`
config:
  source: {url: %q, poll: 1s}
  listen: {publicURL: %q}
  engines: {poll: 1s}
credentials:
  database: {existingSecret: argosy-database}
  bootstrapToken: {existingSecret: argosy-bootstrap}
  sourceCA: {existingConfigMap: git-ca}
  tls: {existingSecret: argosy-tls}
secrets: {kubernetes: {tenants: [acme, globex]}}
database: {migrations: external}
`, w.config.URL, w.hubURL()),
		"eu-1": `
installationID: eu-1
access: {serviceAccounts: [{name: argosy, namespace: ` + hubSpace + `}]}
argocd:
  digest: sha256:` + digest + `
  settings: {timeout.reconciliation: 3600s, timeout.reconciliation.jitter: 0s}
  tlsCerts:
    127.0.0.1: |
      ` + within("      ") + "\n",
		"edge": fmt.Sprintf(`
installationID: edge
pattern: controller
hub:
  repoServer: {address: %q, existingTLSSecret: argocd-repo-server-tls}
  redis: {address: %q, existingSecret: argocd-redis}
workloads: {namespaces: [{namespace: `+workSpace+`}]}
argocd:
  settings: {timeout.reconciliation: 3600s, timeout.reconciliation.jitter: 0s}
`, w.repoServer.address, w.redis.address),
		// As in the README, and for the cluster's second Argo CD.
		"plant": fmt.Sprintf(`
installationID: plant
crds: {install: false}
registration: {enabled: true}
agent:
  namespaceOverride: `+plantSpace+`
  hub:
    url: %q
    caBundle: |
      %s
argocd:
  settings: {timeout.reconciliation: 3600s, timeout.reconciliation.jitter: 0s}
  tlsCerts:
    127.0.0.1: |
      %s
`, w.hubURL(), within("      "), within("      ")),
		"argosy-agent": `
hub:
  url: ` + w.hubURL() + `
  caBundle: |
    ` + within("    ") + `
argocd: {namespace: ` + edgeArgo + "}\n",
	}
}

// helm runs the tool on a place, and returns what it printed.
func (w *setup) helm(p place, args ...string) string {
	w.t.Helper()
	tool := must(filepath.Abs("../../../.cache/bin/helm"))(w.t)
	var errs bytes.Buffer
	cmd := exec.CommandContext(w.t.Context(), tool,
		append(args, "--kubeconfig", p.cluster.Kubeconfig)...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out)
}

// install installs a chart, or upgrades the release, and waits until its Pods are there.
func (w *setup) install(p place, release, chart, namespace string, set ...string) {
	w.t.Helper()
	file := filepath.Join(w.dir, release+".yaml")
	check(w.t, os.WriteFile(file, []byte(w.values()[release]), 0o600))
	args := []string{"upgrade", "--install", release, filepath.Join(w.charts(), chart),
		"--namespace", namespace, "--create-namespace", "--values", file, "--wait"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	w.helm(p, args...)
}

// charts are copies without the bound on the version of Kubernetes: the lab's API server is built
// without the flags that set its version.
func (w *setup) charts() string {
	dir := filepath.Join(w.dir, "charts")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	for _, chart := range []string{"argosy", "argosy-agent", "argosy-engine"} {
		check(w.t, os.CopyFS(filepath.Join(dir, chart),
			os.DirFS(filepath.Join("../../../charts", chart))))
		file := filepath.Join(dir, chart, "Chart.yaml")
		lines := slices.DeleteFunc(strings.Split(string(must(os.ReadFile(file))(w.t)), "\n"),
			func(line string) bool { return strings.HasPrefix(line, "kubeVersion:") })
		check(w.t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	}
	return dir
}

// hook makes the objects of a release that helm makes for a hook and removes again: those with the
// name.
func (w *setup) hook(p place, release, namespace, name string) {
	w.t.Helper()
	made := 0
	for d := yaml.NewYAMLOrJSONDecoder(
		strings.NewReader(w.helm(p, "get", "hooks", release, "--namespace", namespace)), 4096); ; {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		check(w.t, err)
		if o.GetName() != name {
			continue
		}
		o.SetNamespace(namespace)
		check(w.t, p.cluster.Apply(w.t.Context(), o))
		made++
	}
	if made == 0 {
		w.t.Fatalf("the release %s has no hook %s", release, name)
	}
}

// prepare makes what the charts want to find: namespaces, and the Secrets that their values name.
// It returns the first platform token.
func (w *setup) prepare() string {
	w.t.Helper()
	bootstrap := rand.Text() + rand.Text()
	for _, n := range []string{hubSpace, argoSpace, acmeSpace, globexSpace} {
		check(w.t, w.hub.cluster.CreateNamespace(w.t.Context(), n))
	}
	for _, n := range []string{edgeArgo, plantArgo, workSpace} {
		check(w.t, w.edge.cluster.CreateNamespace(w.t.Context(), n))
	}
	tenant := must(w.hub.cluster.TenantToken(w.t.Context(), "acme-prod", workSpace))(w.t)
	w.secret(w.hub, hubSpace, "argosy-database", map[string]string{"url": w.database})
	w.secret(w.hub, hubSpace, "argosy-bootstrap", map[string]string{"token": bootstrap})
	pair := map[string]string{"tls.crt": string(w.cert), "tls.key": string(w.key)}
	w.secret(w.hub, hubSpace, "argosy-tls", pair)
	pair["ca.crt"] = string(w.ca)
	w.secret(w.hub, argoSpace, "argocd-repo-server-tls", pair)
	w.secret(w.edge, edgeArgo, "argocd-repo-server-tls", pair)
	w.secret(w.hub, acmeSpace, "plant", map[string]string{
		"token": must(w.edge.cluster.TenantToken(w.t.Context(), "acme-plant", plantWork))(w.t)})
	w.secret(w.hub, globexSpace, "idle", map[string]string{"token": tenant})
	w.secret(w.hub, acmeSpace, "prod", map[string]string{"token": tenant})
	w.secret(w.hub, acmeSpace, "web-git", map[string]string{"username": gitUser,
		"password": gitPassword})
	check(w.t, w.hub.cluster.Apply(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "git-ca", Namespace: hubSpace}, Data: map[string]string{
			"ca.crt": string(w.ca)}}))
	return bootstrap
}

func (w *setup) secret(p place, namespace, name string, data map[string]string) {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	check(w.t, p.cluster.Apply(w.t.Context(), s))
}
