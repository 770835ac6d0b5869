package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/example"
)

// A chart that prints the version of Helm renders differently under Argo CD 3.5, which has Helm 4.
// The shadow finds it before the ring moves, and finds nothing else. The ring waits until the
// owners approve exactly that difference. The next repo-server asks its clients for a certificate.
func TestTheShadowFindsAChartThatTheNextArgoCDRendersDifferently(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	eu := f.Place("eu-1")
	f.allHealthy(t, f.charted(t, "staging", "acme-staging"))

	fleetFile, engineFile := f.exampleFile(t, "fleet/fleet.yaml"),
		f.exampleFile(t, "fleet/engines/eu-1.yaml")
	files, rings := ringVersions(t)
	for minor, ring := range rings {
		rings[minor] = looserGuards("fleet/fleet.yaml", fleetFile) + "  rings:\n" +
			"    - name: canary\n" + ring + "      soak: 5s\n      gates: {within: 1m}\n"
	}
	installRights(t, eu)
	runner := runPods(t, eu)
	runner.clientCA = mutualTLS(t, eu)
	f.commit(t, "the manifests of Argo CD", files)
	f.commit(t, "Argosy takes over an Argo CD", map[string]string{
		"fleet/fleet.yaml": rings["2.14"],
		"fleet/engines/eu-1.yaml": strings.NewReplacer("  region:", "  ring: canary\n  region:",
			"    installationID:", "    managed: true\n    installationID:").Replace(engineFile)})
	f.ringIs(t, "canary", mirror.RingDone, "2.14.21")
	untouched := f.untouched(t, eu.Cluster, "acme-staging")

	began := time.Now()
	f.commit(t, "canary gets 3.5", map[string]string{"fleet/fleet.yaml": rings["3.5"]})
	f.ringIs(t, "canary", mirror.RingDiffers, "3.5.7")
	t.Logf("the shadow has compared after %s", time.Since(began).Round(time.Second))
	f.logLines(t, "Applications compared")
	if v := runner.runs(); v != "2.14" {
		t.Errorf("eu-1 runs %s before the approval", v)
	}
	r := f.ringNamed(t, "canary")
	if s := r.Engines[0].Shadow; s == nil || s.Differences != 1 || s.Pending != 1 ||
		s.Applications < 2 || s.Unrendered != 0 {
		t.Errorf("shadow %+v", s)
	}
	if !strings.Contains(r.Message, "of acme") {
		t.Errorf("message %q", r.Message)
	}
	found := list[mirror.Difference](t, f, "differences")
	if len(found) != 1 || found[0].Deployment != "charted" || len(found[0].Resources) != 2 {
		t.Fatalf("differences %+v", found)
	}
	config, secret := found[0].Resources[0], found[0].Resources[1]
	if config.Kind != "ConfigMap" || len(config.Fields) != 1 ||
		config.Fields[0].Path != "data.helm" ||
		!strings.HasPrefix(config.Fields[0].Before, "v3.") ||
		!strings.HasPrefix(config.Fields[0].After, "v4.") {
		t.Errorf("ConfigMap %+v", config)
	}
	if text, err := json.Marshal(secret); err != nil || secret.Kind != "Secret" ||
		strings.Contains(string(text), "hunter2") {
		t.Errorf("Secret %s, %v", text, err)
	}
	if out := f.must(t, "rings", "differences", "canary"); !strings.Contains(out,
		"acme/charted@staging on eu-1 under 3.5.7: pending") {
		t.Errorf("rings differences:\n%s", out)
	}

	f.must(t, "rings", "approve", "canary", "--tenant", "acme", "--reason", "only the version")
	f.ringIs(t, "canary", mirror.RingDone, "3.5.7")
	if v := runner.runs(); v != "3.5" {
		t.Errorf("eu-1 runs %s", v)
	}
	untouched("after the upgrade")
	eventually(t, "the shadow is gone", func() string {
		if _, err := eu.Cluster.Client().AppsV1().Deployments(eu.ArgoCD.Namespace).Get(t.Context(),
			instance.Shadow, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})

	// as before
	f.commit(t, "canary gets 2.14 again, whatever it renders", map[string]string{
		"fleet/fleet.yaml": strings.Replace(rings["2.14"], "within: 1m",
			"within: 1m, skipShadow: true", 1)})
	f.ringIs(t, "canary", mirror.RingDone, "2.14.21")
	f.commit(t, "Argosy gives it back", map[string]string{"fleet/engines/eu-1.yaml": engineFile,
		"fleet/fleet.yaml": looserGuards("fleet/fleet.yaml", fleetFile)})
	eventually(t, "no ring is left", func() string {
		if all := list[mirror.Ring](t, f, "rings"); len(all) > 0 {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	f.remove(t, "no chart", chartedFile)
	f.allHealthy(t)
}

const chartedFile = "tenants/acme/deployments/charted.yaml"

// charted deploys a chart that prints the version of Helm.
func (f *system) charted(t *testing.T, environment, namespace string) (id string) {
	t.Helper()
	f.commit(t, "a chart", map[string]string{chartedFile: f.chartedIn(t, environment, namespace)})
	return "acme/charted@" + environment
}

// chartedIn is the deployment of a chart that prints the version of Helm.
func (f *system) chartedIn(t *testing.T, environment, namespace string) string {
	t.Helper()
	f.chart(t, "chart", "{{ .Capabilities.HelmVersion.Version }}")
	return strings.NewReplacer("v2.0.1", "main", "path: deploy", "path: chart").Replace(
		f.deployment("charted", environment, namespace, ""))
}

// chart commits a chart to the storefront whose ConfigMap and Secret, named for the release, have a
// text of the template.
func (f *system) chart(t *testing.T, path, text string) {
	t.Helper()
	const object = "apiVersion: v1\nkind: %s\nmetadata: {name: \"{{ .Release.Name }}\"}\n"
	_, err := f.Apps["acme/storefront"].Commit(t.Context(), "a chart", map[string]string{
		path + "/Chart.yaml":  "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		path + "/values.yaml": "greeting: hello\n",
		path + "/templates/config.yaml": fmt.Sprintf(object, "ConfigMap") +
			"data:\n  greeting: {{ .Values.greeting }}\n  helm: \"" + text + "\"\n" +
			"  apps: {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" | quote }}\n" +
			"  kubernetes: {{ .Capabilities.KubeVersion.Version | quote }}\n",
		path + "/templates/secret.yaml": fmt.Sprintf(object, "Secret") +
			"stringData: {password: \"hunter2-" + text + "\"}\n",
	})
	check(t, err)
}

// logLines copies the control plane's lines with a text into the test's log.
func (f *system) logLines(t *testing.T, text string) {
	t.Helper()
	all, err := os.ReadFile(strings.TrimSuffix(f.plane.Config, ".yaml") + ".log")
	check(t, err)
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, text) {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// reach makes the Pods of an Argo CD reachable by port forwards: those of its own processes, and
// the shadow's, whose repo-server it starts.
func (r *podRunner) reach(ctx context.Context) error {
	client := r.place.Cluster.Client()
	pods, err := client.CoreV1().Pods(r.place.ArgoCD.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil // the next one
	}
	repo, redis, _ := r.place.ArgoCD.Internal()
	shadow := ""
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		port, address := "8081", ""
		switch p.Labels["app.kubernetes.io/name"] {
		case "argocd-repo-server":
			address = repo
		case "argocd-redis":
			port, address = "6379", redis
		case instance.Shadow:
			shadow = minorOfPod(p)
			if err := r.startShadow(ctx, shadow); err != nil {
				return err
			}
			address = r.shadow.Address
		}
		mark := "lab.argosy.dev/forward-" + port
		if address == "" || p.Annotations[mark] == address {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, mark, address)
		if _, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if shadow == "" {
		return r.stopShadow()
	}
	return nil
}

func (r *podRunner) startShadow(ctx context.Context, version string) (err error) {
	if r.shadow != nil && r.shadowOf == version {
		return nil
	}
	if err := r.stopShadow(); err != nil {
		return err
	}
	r.shadow, err = r.place.ArgoCD.StartRepoServer(ctx, version, r.clientCA)
	r.shadowOf = version
	return err
}

func (r *podRunner) stopShadow() error {
	if r.shadow == nil {
		return nil
	}
	err := r.shadow.Stop()
	r.shadow = nil
	return err
}

func minorOfPod(p corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == "argocd-repo-server" {
			_, tag, _ := strings.Cut(c.Image, ":v")
			return strings.Join(strings.Split(tag, ".")[:2], ".")
		}
	}
	return ""
}

// mutualTLS creates the Secret from which Argo CD's components mount the certificates of the
// repo-server's clients, and returns the file with the CA.
func mutualTLS(t *testing.T, p *example.Place) (clientCA string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageClientAuth},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	clientCA = filepath.Join(t.TempDir(), "client-ca.crt")
	check(t, os.WriteFile(clientCA, cert, 0o600))
	secrets := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace)
	const name = "argocd-repo-server-mtls"
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string][]byte{"client-ca.crt": cert, "client.crt": cert,
			"client.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}},
		metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		if err := secrets.Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return clientCA
}

// openInternal gives the control plane what a real installation has: the password of Redis, and a
// repo-server whose parameters are those of one without TLS.
func openInternal(t *testing.T, p *example.Place) {
	t.Helper()
	client, in := p.Cluster.Client(), p.ArgoCD.Namespace
	_, _, password := p.ArgoCD.Internal()
	_, err := client.CoreV1().Secrets(in).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-redis"},
		StringData: map[string]string{"auth": password}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	const params = "argocd-cmd-params-cm"
	patch := []byte(`{"data":{"reposerver.disable.tls":"true"}}`)
	_, err = client.CoreV1().ConfigMaps(in).Patch(t.Context(), params, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.CoreV1().ConfigMaps(in).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: params, Labels: map[string]string{
				"app.kubernetes.io/part-of": "argocd"}},
			Data: map[string]string{"reposerver.disable.tls": "true"}}, metav1.CreateOptions{})
	}
	check(t, err)
}
