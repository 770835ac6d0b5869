package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/agent/edge/edgetest"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

const (
	perTenant    = 1000 // environments with an agent
	perAgent     = 2    // Applications
	agentVersion = "v1.0.0"
	joinAtOnce   = 12
)

// herd is agents with identities of their own. They follow the hub as an agent does, and apply no
// rows.
type herd struct {
	hub     string
	ca      []byte // PEM
	members []*edge.IdentityStore
	end     context.CancelFunc
	all     sync.WaitGroup
}

// newHerd declares n environments, joins their agents at the store, and has the first replica
// answer agents.
func newHerd(b *testing.B, w *setup, n int) *herd {
	h := &herd{members: make([]*edge.IdentityStore, n), end: func() {}}
	h.serveTLS(b, w)
	w.commit("agents", stack.Change{Write: agentFiles(n)})
	w.waitFor("the environments of the agents are recorded", 5*time.Minute, func() error {
		return w.zero(`SELECT abs(count(*) - $1) FROM desired
			WHERE kind = 'Application' AND tenant LIKE 'edge-%'`, n*perAgent)
	})
	options := postgres.Options{Connections: postgres.Connections{Workers: joinAtOnce}}
	store := must(postgres.Open(w.ctx, *w.direct.Load(), options))(b)
	defer store.Close()
	slots, errs := make(chan struct{}, joinAtOnce), make(chan error, n)
	for i := range h.members {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			var err error
			h.members[i], err = h.join(w.ctx, store, agentOf(i))
			errs <- err
		}()
	}
	for range h.members {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	return h
}

func agentOf(i int) fleet.EnvironmentID {
	return fleet.EnvironmentID{
		Tenant: fleet.TenantName(fmt.Sprintf("edge-%02d", i/perTenant)),
		Name:   fleet.EnvironmentName(fmt.Sprintf("e-%03d", i%perTenant)),
	}
}

// agentFiles are n environments with an agent, and what is deployed to each.
func agentFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		in := agentOf(i)
		if i%perTenant == 0 {
			path := fmt.Sprintf("fleet/tenants/%s.yaml", in.Tenant)
			files[path] = document("Tenant", string(in.Tenant), fmt.Sprintf(
				"owners: [\"group:%s\"]\n  quota: {environments: %d, deployments: %d, "+
					"applications: %d}\n"+
					"  repositories: [\"https://git.example.com/%[1]s/\"]\n  placement: "+
					"{regions: [eu]}",
				in.Tenant, perTenant, perAgent, perAgent*perTenant))
			for d := range perAgent {
				name := fmt.Sprintf("site-%d", d)
				path := fmt.Sprintf("tenants/%s/deployments/%s.yaml", in.Tenant, name)
				files[path] = document("GitOpsDeployment", name, fmt.Sprintf(
					"source: {repoURL: \"https://git.example.com/%s/%s\", path: deploy, "+
						"targetRevision: v1}\n"+
						"  destination: {environmentSelector: {matchLabels: {tier: edge}}, "+
						"namespace: apps}",
					in.Tenant, name))
			}
		}
		files[fmt.Sprintf("tenants/%s/environments/%s.yaml", in.Tenant, in.Name)] = fmt.Sprintf(
			"apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\n"+
				"metadata: {name: %s, labels: {tier: edge}}\n"+
				"spec: {agent: {argocdNamespace: argocd}, namespaces: [apps], region: eu}\n",
			in.Name)
	}
	return files
}

// serveTLS restarts the first replica with a certificate and a URL for agents.
func (h *herd) serveTLS(b *testing.B, w *setup) {
	r := w.replicas[0]
	cert, key := filepath.Join(w.dir, "hub.crt"), filepath.Join(w.dir, "hub.key")
	h.ca = certify(b, cert, key)
	address := strings.TrimPrefix(r.address, "http://")
	h.hub = "https://" + address
	text := string(must(os.ReadFile(r.config))(b))
	listen := fmt.Sprintf("listen: {certFile: %q, keyFile: %q, publicURL: %q, ", cert, key, h.hub)
	text = strings.Replace(text, "listen: {", listen, 1)
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	r.process.Stop()
	w.start(r)
	trust(b, h.ca)
	r.address = h.hub
	r.client = must(client.New(r.address, bootstrap, "chaos"))(b)
	w.waitFor("the replica answers", 5*time.Minute, func() error {
		_, err := r.client.Source(w.ctx)
		return err
	})
}

// trust has API clients made from now on trust a certificate.
func trust(b *testing.B, ca []byte) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	shared := http.DefaultTransport.(*http.Transport)
	before := shared.TLSClientConfig
	shared.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	b.Cleanup(func() { shared.TLSClientConfig = before })
}

// certify writes a certificate for 127.0.0.1 that is its own authority.
func certify(b *testing.B, certFile, keyFile string) (ca []byte) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(b)
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Minute),
		NotAfter:  time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(b)
	secret := must(x509.MarshalECPrivateKey(key))(b)
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	err := errors.Join(os.WriteFile(certFile, ca, 0o600), os.WriteFile(keyFile, private, 0o600))
	if err != nil {
		b.Fatal(err)
	}
	return ca
}

// atStore joins agents at the store.
type atStore struct{ *postgres.Store }

// Join implements edge.Registrar.
func (s atStore) Join(
	ctx context.Context, _ agent.PrivateKeys, j agent.Join,
) (agent.Joined, error) {
	join := registry.Join{Keys: j.Keys, ClusterUID: j.ClusterUID, Version: j.Version}
	a, err := s.Agents.JoinAgent(ctx, j.Token, join)
	return agent.Joined{Agent: a.ID, Engine: a.Engine, ExpiresAt: a.ExpiresAt, Time: time.Now()},
		err
}

func (h *herd) join(
	ctx context.Context, store *postgres.Store, in fleet.EnvironmentID,
) (*edge.IdentityStore, error) {
	_, token, err := store.Agents.CreateAgentToken(ctx, registry.Token{
		Tenant: in.Tenant, Environment: in.Name, CreatedBy: "bench",
		ExpiresAt: time.Now().Add(time.Hour),
	}, "")
	if err != nil {
		return nil, err
	}
	identities := edge.NewIdentityStore(&edgetest.ObjectStore{Conflict: edge.ErrConflict})
	uid := fmt.Sprintf("uid-of-%s-%s", in.Tenant, in.Name)
	_, err = identities.Join(ctx, h.hub, atStore{store}, token, uid, agentVersion)
	return identities, err
}

// stampede ends every agent and starts them all again at once, each with a new process's memory. It
// returns when the replica has sent the first of them away for a while: more ask than it lets in.
func (h *herd) stampede(b *testing.B, w *setup) error {
	h.stop()
	if err := w.until(5*time.Minute, func() error {
		n, err := h.metric(w, "argosy_agent_connected")
		if err == nil && n > 0 {
			err = fmt.Errorf("%.0f agents are still connected", n)
		}
		return err
	}); err != nil {
		return err
	}
	before, err := h.metric(w, sentAway)
	if err != nil {
		return err
	}
	if err := h.start(b, w); err != nil {
		return err
	}
	return w.until(5*time.Minute, func() error {
		n, err := h.metric(w, sentAway)
		if err == nil && n == before && len(h.members) > 0 {
			err = errors.New("no agent was sent away")
		}
		return err
	})
}

func (h *herd) start(b *testing.B, w *setup) error {
	ctx, end := context.WithCancel(w.ctx)
	h.end = end
	silent := slog.New(slog.DiscardHandler)
	settings := edge.Settings{Hub: h.hub, CA: h.ca, Version: agentVersion, Log: silent}
	for _, identities := range h.members {
		c, err := edge.NewClient(settings, identities)
		if err != nil {
			return err
		}
		f := edge.NewFollower(edge.FollowerConfig{
			Client: c, Namespace: "argocd", Version: agentVersion, Log: silent,
		})
		h.all.Go(func() {
			defer c.Close()
			if err := f.Run(ctx); ctx.Err() == nil {
				b.Errorf("an agent has ended: %v", err)
			}
		})
	}
	return nil
}

// sentAway counts the requests of agents that are to come back later.
const sentAway = `argosy_agent_refusals_total{code="busy"}`

func (h *herd) metric(w *setup, metric string) (float64, error) {
	m, err := observe.Scrape(w.ctx, w.replicas[0].ops+"/metrics")
	return m[metric], err
}

func (h *herd) stop() {
	h.end()
	h.all.Wait()
}
