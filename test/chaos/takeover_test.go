package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"argosy.dev/argosy/test/stack"
)

// BenchmarkTakeover measures how long the next change takes to reach its engine when the replica
// that holds the engine's lease ends: killed, or asked to stop. "undisturbed" is the same change
// without an ending replica, the floor of the same run; it includes the poll of the config repo,
// one second.
func BenchmarkTakeover(b *testing.B) {
	for _, c := range []struct {
		name string
		end  func(*replica)
	}{
		{"undisturbed", func(*replica) {}},
		{"stopped", func(r *replica) { r.process.Stop() }},
		{"killed", func(r *replica) { r.process.Kill() }},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newSetup(b, false)
			defer w.close()
			w.waitFor("the fleet begins", convergeWithin, func() error {
				_, err := w.replicas[0].client.Source(w.ctx)
				return err
			})
			took := []time.Duration{}
			w.change(b, 1)
			for n := 2; b.Loop(); n++ {
				holder := w.holder(b)
				began := time.Now()
				c.end(holder)
				w.change(b, n)
				took = append(took, time.Since(began))
				w.start(holder)
				w.waitFor("both replicas answer", 5*time.Minute, func() error {
					_, err := holder.client.Source(w.ctx)
					return err
				})
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
			b.ReportMetric(took[len(took)-1].Seconds(), "max-s")
		})
	}
}

// credentials is how many Secrets the engines' rows read in BenchmarkTakeoverWithCredentials.
const credentials = 2000

// BenchmarkTakeoverWithCredentials measures how long the next change takes after an engine's lease
// has passed on from a killed replica, where the new holder reads two thousand Secrets of a real
// API server to compare them with the engines'.
func BenchmarkTakeoverWithCredentials(b *testing.B) {
	w := newSetup(b, false)
	defer w.close()
	w.readSecretsFromCluster(b)
	w.declareCredentials(b)
	w.waitFor("every credential is applied", 10*time.Minute, func() error {
		return w.zero(
			`SELECT abs(count(*) - $1) FROM desired d JOIN status s USING (engine, kind, name)
			WHERE d.credential_name IS NOT NULL AND s.seq = d.seq AND s.state = 'Applied' AND d.tenant = 'initech'`, credentials)
	})
	took := []time.Duration{}
	w.change(b, 1)
	for n := 2; b.Loop(); n++ {
		holder := w.holder(b)
		holder.process.Kill()
		passed := make(chan time.Time, 1)
		go func() {
			w.waitFor("the lease passes on", 5*time.Minute, func() error {
				return w.zero(
					`SELECT count(*) FROM leases l JOIN placements p ON l.name = 'engine/' || p.engine
					WHERE p.tenant = 'globex' AND p.environment = 'prod' AND (l.holder = '' OR l.holder LIKE '%/' || $1 || '/%')`,
					fmt.Sprint(holder.process.PID()))
			})
			passed <- time.Now()
		}()
		w.change(b, n)
		took = append(took, max(0, time.Since(<-passed)))
		w.start(holder)
		w.waitFor("both replicas answer", 5*time.Minute, func() error {
			_, err := holder.client.Source(w.ctx)
			return err
		})
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
	b.ReportMetric(took[len(took)-1].Seconds(), "max-s")
}

// readSecretsFromCluster has the replicas read Secrets that their folders do not have from the API
// server.
func (w *setup) readSecretsFromCluster(b *testing.B) {
	kubeconfig := filepath.Join(w.dir, "control.kubeconfig")
	rest := cluster.REST()
	c := clientcmdapi.NewConfig()
	c.CurrentContext = "c"
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server: rest.Host, CertificateAuthorityData: rest.CAData}
	c.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: rest.BearerToken,
		ClientCertificateData: rest.CertData, ClientKeyData: rest.KeyData}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		b.Fatal(err)
	}
	for _, r := range w.replicas {
		text := string(must(os.ReadFile(r.config))(b))
		text = strings.Replace(text, "secrets: {",
			fmt.Sprintf("secrets: {kubernetes: {kubeconfig: %q, namespace: argosy}, ", kubeconfig),
			1)
		if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		r.process.Stop()
		w.start(r)
	}
}

// declareCredentials makes a tenant with an environment for each credential, and their Secrets.
func (w *setup) declareCredentials(b *testing.B) {
	const namespace = "argosy-tenant-initech"
	core := cluster.Client().CoreV1()
	if _, err := core.Namespaces().Create(w.ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = core.Namespaces().Delete(context.Background(), namespace,
			metav1.DeleteOptions{})
	})
	files := map[string]string{"fleet/tenants/initech.yaml": document("Tenant", "initech",
		fmt.Sprintf(
			"owners: [\"group:initech\"]\n  quota: {environments: %d, deployments: 1, "+
				"applications: "+
				"1}\n  repositories: [\"https://git.example.com/initech/\"]\n  clusters: "+
				"[.initech.example.com]\n  placement: {regions: [eu]}",
			credentials))}
	for name, e := range w.engines {
		files["fleet/engines/"+name+".yaml"] = document("Engine", name, fmt.Sprintf(
			"argocd: {namespace: %s, installationID: %s}\n  connection: {kubeconfigRef: {name: "+
				"engine-%s}}\n  region: eu\n  capacity: {applications: 500, environments: %d}",
			e.Namespace, e.InstallationID, name, credentials))
	}
	for i := range credentials {
		name := fmt.Sprintf("e-%04d", i)
		files["tenants/initech/environments/"+name+".yaml"] = document("ManagedEnvironment", name,
			fmt.Sprintf(
				"cluster: {server: \"https://%s.initech.example.com:6443\", credentialsRef: {name: "+
					"%s}}\n  namespaces: [web]\n  region: eu", name, name))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{
			"token": []byte(canary("initech"))}}
		if _, err := core.Secrets(namespace).Create(w.ctx, secret,
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	w.commit("credentials", stack.Change{Write: files})
}

// zero returns an error for a count that is not 0.
func (w *setup) zero(sql string, args ...any) error {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	var n int
	if err := conn.QueryRow(w.ctx, sql, args...).Scan(&n); err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%d are not there yet", n)
}

// change commits one Application at a version and waits until it lives.
func (w *setup) change(b *testing.B, version int) {
	w.model.set("globex", "web", version, "prod")
	path, text := deployment("globex", "web", version, "Delete", []string{"prod"})
	w.commit(fmt.Sprintf("version %d", version), stack.Change{Write: map[string]string{path: text}})
	w.waitFor("the change arrives", 5*time.Minute, func() error {
		live, err := w.live()
		if err != nil {
			return err
		}
		for _, o := range live[app{"globex", "web", "prod"}] {
			if got, _, _ := unstructured.NestedString(o.Object, "spec", "source",
				"targetRevision"); got == fmt.Sprintf("v%d", version) {
				return nil
			}
		}
		return fmt.Errorf("v%d does not live", version)
	})
}

// holder is the replica with the lease of the engine that has the Application. The lease may be
// passing on.
func (w *setup) holder(b *testing.B) *replica {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	var found *replica
	w.waitFor("a replica holds the lease", 5*time.Minute, func() error {
		var name string
		err := conn.QueryRow(w.ctx,
			`SELECT l.holder FROM leases l JOIN placements p ON l.name = 'engine/' || p.engine
			WHERE p.tenant = 'globex' AND p.environment = 'prod'`).Scan(&name)
		for _, r := range w.replicas {
			if err == nil && strings.Contains(name, fmt.Sprintf("/%d/", r.process.PID())) {
				found = r
				return nil
			}
		}
		return fmt.Errorf("%q is no replica, %w", name, cmp.Or(err, errNone))
	})
	return found
}

var errNone = errors.New("no replica holds it")
