package argocd

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/reach"
	"argosy.dev/argosy/test/stack"
)

const (
	neighbours       = 4
	hangingClusters  = 6
	hangingPerServer = 8
	hangingWindow    = 60 * time.Second
)

// silentServer accepts connections and never responds: either not even to the TLS handshake, or to
// no request after it.
func silentServer(b testing.TB, handshake bool) (server string, ca []byte) {
	b.Helper()
	over := make(chan struct{})
	answering := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-over
	}))
	b.Cleanup(func() { close(over); answering.CloseClientConnections(); answering.Close() })
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: answering.Certificate().Raw})
	if handshake {
		return answering.URL, ca
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return "https://" + listener.Addr().String(), ca
}

// gaps returns the intervals between reconciliations of the Applications, from their status during
// the window.
func (w *argoLab) gaps(keys []fleet.ObjectKey, window time.Duration) []time.Duration {
	w.Helper()
	start := time.Now()
	last := map[fleet.ObjectKey]time.Time{}
	var all []time.Duration
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for time.Since(start) < window {
		<-tick.C
		for _, key := range keys {
			app, err := w.applications().Get(w.Context(), key.Name, metav1.GetOptions{})
			if err != nil {
				w.Fatal(err)
			}
			text, _, _ := unstructured.NestedString(app.Object, "status", "reconciledAt")
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				w.Fatal(err)
			}
			if before, seen := last[key]; seen && at.After(before) {
				all = append(all, at.Sub(before))
			}
			last[key] = at
		}
	}
	for _, at := range last {
		// the current interval counts, or a complete stall would be invisible
		all = append(all, time.Since(at))
	}
	slices.Sort(all)
	return all
}

// BenchmarkNeighboursOfClustersThatNeverAnswer measures the intervals between reconciliations of
// one tenant's Applications, at a refresh of 3 s: alone; beside another tenant's 48 Applications on
// 6 clusters that accept connections and never respond; and once these are parked. One round is
// enough:
//
//	go test ./fleet/argocd -run '^$' -bench NeverAnswer -benchtime 1x -timeout 30m
func BenchmarkNeighboursOfClustersThatNeverAnswer(b *testing.B) {
	for _, open := range []bool{true, false} {
		for _, handshake := range []bool{false, true} {
			name := fmt.Sprintf("published=%t/handshake=%t", open, handshake)
			b.Run(name, func(b *testing.B) {
				for range b.N {
					suffix := fmt.Sprintf("hang-%t-%t", open, handshake)
					w := newArgoLabWith(b, suffix, stack.ArgoOptions{Version: "3.5", Open: open})
					w.benchmarkNeighbours(b, handshake, !open)
				}
			})
		}
	}
}

func (w *argoLab) benchmarkNeighbours(b *testing.B, handshake, park bool) {
	files := map[string]string{}
	for i := range neighbours {
		files[fmt.Sprintf("n%d/cm.yaml", i)] = configMap(fmt.Sprintf("n%d", i), "v")
	}
	w.commit(files)
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	for _, row := range w.foundation(prodEU, w.spaceA) {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	var keys []fleet.ObjectKey
	for i := range neighbours {
		id := fleet.ApplicationID{
			Tenant: acme, Deployment: fleet.DeploymentName(fmt.Sprintf("n%d", i)),
			Environment: prodEU.Name}
		app := w.app(id, fmt.Sprintf("n%d", i), w.spaceA, fleet.DeletionOrphan, nil)
		w.apply(app, fleet.Secret{})
		keys = append(keys, app.Key)
	}
	for _, key := range keys {
		w.observed("Synced: "+key.Name, key, synced)
	}
	report(b, "alone", w.gaps(keys, hangingWindow/3))
	w.hang(handshake)
	report(b, "beside", w.gaps(keys, hangingWindow))
	if !park {
		return // with its default settings, Argo CD reports nothing about endless waits
	}
	limits := reach.Defaults
	limits.Patience, limits.Share = 5*time.Second, 1
	w.watchReach(limits)
	w.until("all are parked", func() bool {
		n := 0
		for i := range hangingClusters {
			n += w.parked(silentEnvironment(i))
		}
		return n == hangingClusters*hangingPerServer
	})
	report(b, "parked", w.gaps(keys, hangingWindow))
}

const hangingTenant fleet.TenantName = "globex"

func silentEnvironment(i int) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: hangingTenant,
		Name: fleet.EnvironmentName(fmt.Sprintf("silent-%d", i))}
}

// hang declares the clusters that never respond, and Applications on them.
func (w *argoLab) hang(handshake bool) {
	const evil = hangingTenant
	project := projectObject(evil)
	project.Project.SourceRepos, project.Project.ClusterResources, project.Project.Destinations =
		[]string{w.repo.URL}, nil, nil
	var environments []fleet.EnvironmentID
	var servers []string
	var clusters []mirror.Row
	for i := range hangingClusters {
		env := silentEnvironment(i)
		server, ca := silentServer(w.TB, handshake)
		cluster := clusterObject(env, server)
		cluster.Cluster.Namespaces, cluster.Cluster.CAData = []string{"shop"},
			base64.StdEncoding.EncodeToString(ca)
		clusters = append(clusters, w.row(cluster, ""))
		project.Project.Destinations = append(project.Project.Destinations, fleet.Destination{
			Server: fleet.ServerKey(server, env), Namespace: "shop"})
		environments, servers = append(environments, env), append(servers, server)
	}
	w.apply(w.row(project, ""), fleet.Secret{})
	for _, row := range clusters {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte("none")}))
	}
	for i, env := range environments {
		for j := range hangingPerServer {
			id := fleet.ApplicationID{
				Tenant: evil, Deployment: fleet.DeploymentName(fmt.Sprintf("d%d", j)),
				Environment: env.Name}
			w.apply(w.app(id, "n0", "shop", fleet.DeletionOrphan, func(a *fleet.Application) {
				a.Destination.Server = fleet.ServerKey(servers[i], env)
			}), fleet.Secret{})
		}
	}
}

func report(b *testing.B, what string, gaps []time.Duration) {
	at := func(share float64) float64 { return gaps[int(share*float64(len(gaps)-1))].Seconds() }
	b.ReportMetric(at(0.5), "s-p50-"+what)
	b.ReportMetric(at(0.95), "s-p95-"+what)
	b.ReportMetric(at(1), "s-max-"+what)
	b.ReportMetric(float64(len(gaps)), "n-"+what)
}
