package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/cmd/argosy/agentruntime"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

// Namespaces of the plant.
const (
	argocdNamespace = "argocd"
	agentNamespace  = "argosy-agent"
	floorNamespace  = "floor"
	writesAtOnce    = 32 // as `argosy agent run`
)

// plant is a cluster with the CRDs of an Argo CD that does not run, and the whole agent on it. Its
// connection to the hub can be slowed down.
type plant struct {
	cluster *stack.Cluster
	outlet  *stack.Outlet
	mirror  *fixture
	hub     *hubProcess
	conn    *pgx.Conn // to read
	place   observe.Place
	cancel  context.CancelFunc
	ended   chan error
}

func newPlant(ctx context.Context, g *ground) (_ *plant, err error) {
	p := &plant{ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop(ctx))
		}
	}()
	progress("starting an API server")
	if p.cluster, err = stack.StartCluster(ctx, stack.ClusterOptions{
		Name: "bench-agents"}); err != nil {
		return nil, err
	}
	if err := p.furnish(ctx); err != nil {
		return nil, err
	}
	if p.mirror, err = newFixture(ctx, g.postgres, "storm", argocdNamespace, 1); err != nil {
		return nil, err
	}
	if p.conn, err = pgx.Connect(ctx, p.mirror.url); err != nil {
		return nil, err
	}
	var open *stack.Firewall // none: the way alone counts
	if p.outlet, err = open.Outlet("127.0.0.1:0", nil); err != nil {
		return nil, err
	}
	if p.hub, err = g.startHub(ctx, hubConfig{Database: p.mirror.url,
		Public: "https://" + p.outlet.Address}); err != nil {
		return nil, err
	}
	p.outlet.Add(p.hub.Address)
	return p, p.employ(ctx, g)
}

// furnish gives the cluster the objects of an Argo CD, and the floor a namespace of its own.
func (p *plant) furnish(ctx context.Context) error {
	if err := p.cluster.InstallArgoCRDs(ctx, "3.5"); err != nil {
		return err
	}
	for _, name := range []string{argocdNamespace, agentNamespace, floorNamespace} {
		if err := p.cluster.CreateNamespace(ctx, name); err != nil {
			return err
		}
	}
	server, err := observe.NewServer(p.cluster.REST())
	if err != nil {
		return err
	}
	p.place = observe.Place{Server: server, Namespace: argocdNamespace}
	named := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": argocdNamespace}
	}
	return p.cluster.Apply(ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": named("argocd-cm"),
			"data":     map[string]any{"application.resourceTrackingMethod": "annotation"}}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1",
			"kind": "AppProject", "metadata": named("default"),
			"spec": map[string]any{"sourceRepos": []any{}, "destinations": []any{}}}})
}

// employ joins the agent by a token in its Secret, as for a cluster that is set up by hand, and
// runs it.
func (p *plant) employ(ctx context.Context, g *ground) error {
	_, token, err := p.mirror.store.Agents.CreateAgentToken(ctx, tokenOf(environment(0)), "")
	if err != nil {
		return err
	}
	secret := edge.SecretStore(p.cluster.Client(), agentNamespace, edge.Name)
	if _, err := secret.Save(ctx, map[string][]byte{edge.RegistrationToken: []byte(token)},
		""); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(g.dir, "agent.log"))
	if err != nil {
		return err
	}
	a, err := agentruntime.New(agentruntime.Config{Hub: p.hub.Public, Namespace: agentNamespace,
		ArgoCDNamespace: argocdNamespace, CA: g.ca, MaxDeletions: 20, InFlight: writesAtOnce,
		Cluster: p.cluster.REST(), Version: "v1.0.0", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return err
	}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() { p.ended <- errors.Join(a.Run(ctx), log.Close()) }()
	return nil
}

func (p *plant) stop(ctx context.Context) error {
	if p.cancel != nil {
		p.cancel()
		if err := <-p.ended; err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "the agent ended:", err)
		}
	}
	if p.hub != nil {
		p.hub.Stop()
	}
	if p.outlet != nil {
		p.outlet.Close()
	}
	var errs []error
	if p.conn != nil {
		errs = append(errs, p.conn.Close(ctx))
	}
	if p.mirror != nil {
		p.mirror.store.Close()
	}
	if p.cluster != nil {
		errs = append(errs, p.cluster.Stop())
	}
	return errors.Join(errs...)
}

// unknown counts the Applications of n that the hub does not know as applied, with this health if
// one is given.
func (p *plant) unknown(ctx context.Context, n int, health string) (int, error) {
	var known int
	err := p.conn.QueryRow(ctx, `
		SELECT count(*) FROM argosy.desired d JOIN argosy.status s USING (engine, kind, name)
		WHERE d.kind = 'Application' AND s.seq = d.seq AND s.state = 'Applied' AND ($1 = '' OR s.health = $1)`, health).Scan(&known)
	return n - known, err
}

// awaitKnown waits until the hub knows all of them, and returns how many it still does not know
// then.
func (p *plant) awaitKnown(ctx context.Context, n int, health string,
	limit time.Duration) (missing int,
	err error) {
	late := time.Now().Add(limit)
	for {
		missing, err = p.unknown(ctx, n, health)
		if err != nil || missing == 0 || time.Now().After(late) {
			return missing, err
		}
		if !pacing.Sleep(ctx, 20*time.Millisecond) {
			return missing, ctx.Err()
		}
	}
}

// setHealth writes an Application's status, as Argo CD's controller does.
func (p *plant) setHealth(ctx context.Context, name, health string) error {
	body := fmt.Appendf(nil, `{"status":{"sync":{"status":"Synced"},"health":{"status":%q}}}`,
		health)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch,
		p.place.Server.Base+observe.Collection(argocdNamespace, "applications")+"/"+name,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := p.place.Server.Client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status of %s: %s", name, answer.Status)
	}
	return nil
}

// name is the d-th Application's.
func name(d int) string {
	in := environment(0)
	return fleet.ApplicationName(fleet.ApplicationID{Tenant: in.Tenant, Environment: in.Name,
		Deployment: fleet.DeploymentName(fmt.Sprintf("svc-%06d", d))})
}
