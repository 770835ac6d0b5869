package main

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

// fixture is a database with environments whose clusters have agents, and the one who records
// changes in it.
type fixture struct {
	url       string
	store     *postgres.Store
	lease     mirror.Lease
	revisions int
	namespace string // of every environment's Argo CD
}

const perTenant = 100 // environments

// newMirror has n environments with one Application each.
func newFixture(ctx context.Context, p *stack.Postgres, name, namespace string, n int) (_ *fixture,
	err error) {
	m := &fixture{namespace: namespace}
	if m.url, err = p.NewDatabase(ctx, name); err != nil {
		return nil, err
	}
	if _, err := postgres.Migrate(ctx, m.url); err != nil {
		return nil, err
	}
	if m.store, err = postgres.Open(ctx, m.url, postgres.Options{Connections: postgres.Connections{
		Workers: 16}, Application: "bench"}); err != nil {
		return nil, err
	}
	var ok bool
	if m.lease, ok, err = m.store.Leases.Acquire(ctx, "reconciler", "bench",
		time.Hour); err != nil ||
		!ok {
		return nil, fmt.Errorf("lease: %v, %w", ok, err)
	}
	go m.confirm(ctx)
	return m, m.declare(ctx, n)
}

// confirm plays the loop's part for who waits until the rows are confirmed by the config repo.
func (m *fixture) confirm(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at, err := m.store.Mirror(ctx)
		if err != nil || at.Wanted <= at.Confirmed {
			continue
		}
		if ok, err := m.store.Plans.Confirm(ctx, m.lease, at); err != nil || !ok {
			continue // the mirror has moved on; the next tick tries again
		}
		_ = m.store.Notify(ctx, "") // waiters poll too
	}
}

func (m *fixture) declare(ctx context.Context, n int) error {
	progress("%d environments with an agent each", n)
	var declared []fleet.Declaration
	var rows []mirror.Row
	for i := range n {
		id := environment(i)
		if i%perTenant == 0 {
			declared = append(declared, fleet.Declaration{
				Key:  fleet.Key{Kind: fleet.KindTenant, Name: string(id.Tenant)},
				Path: "fleet/tenants/" + string(id.Tenant) + ".yaml", Blob: "1",
				Tenant: &fleet.TenantSpec{Owners: []string{"group:" + string(id.Tenant)},
					Quota: fleet.Quota{Environments: perTenant, Deployments: 100_000,
						Applications: 100_000}}})
		}
		declared = append(declared, fleet.Declaration{
			Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant,
				Name: string(id.Name)},
			Path: "tenants/" + string(id.Tenant) + "/environments/" + string(id.Name) + ".yaml",
			Blob: "1",
			Environment: &fleet.EnvironmentSpec{Region: "eu", Namespaces: []string{"apps"},
				Agent: &fleet.AgentSpec{ArgoCDNamespace: m.namespace}}})
		row, err := m.application(id, 0, first)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return m.record(ctx, func(r *mirror.Record) { r.Declarations, r.Rows = declared, rows })
}

// environment is the i-th.
func environment(i int) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: fleet.TenantName(fmt.Sprintf("t-%04d", i/perTenant)),
		Name: fleet.EnvironmentName(fmt.Sprintf("e-%02d", i%perTenant))}
}

// record commits a revision and notifies, as the loop does.
func (m *fixture) record(ctx context.Context, fill func(*mirror.Record)) error {
	if err := m.commit(ctx, fill); err != nil {
		return err
	}
	return m.store.Notify(ctx, "")
}

func (m *fixture) commit(ctx context.Context, fill func(*mirror.Record)) error {
	m.revisions++
	r := mirror.Record{Revision: revision(m.revisions), PlanHash: fmt.Sprint(m.revisions),
		Summary: mirror.Summary{Author: "Ann <ann@example.com>", Subject: "a change",
			CommittedAt: time.Now()}}
	if m.revisions > 1 {
		r.Base = revision(m.revisions - 1)
	}
	fill(&r)
	_, err := m.store.Plans.Record(ctx, m.lease, r)
	return err
}

func revision(n int) fleet.Revision { return fleet.Revision(fmt.Sprintf("%040x", n)) }

const first = "v1.0.0" // the release that everything begins with

// application is an environment's d-th, as the control plane renders it: some 900 bytes.
func (m *fixture) application(in fleet.EnvironmentID, d int, release string) (mirror.Row, error) {
	id := fleet.ApplicationID{Tenant: in.Tenant, Environment: in.Name,
		Deployment: fleet.DeploymentName(fmt.Sprintf("svc-%06d", d))}
	base := "https://git.example.com/" + string(id.Tenant) + "/" + string(id.Deployment)
	image := "registry.example.com/" + string(id.Tenant) + "/" + string(id.Deployment) + ":" +
		release
	o := fleet.Object{
		Key: fleet.ObjectKey{Engine: fleet.AgentEngine(in), Kind: fleet.ObjectApplication,
			Name: fleet.ApplicationName(id)},
		Application: &fleet.Application{ID: id, Name: fleet.ApplicationName(id),
			Project: fleet.ProjectName(id.Tenant),
			Sources: []fleet.Source{{RepoURL: base, Path: "overlays/production",
				TargetRevision: release, Kustomize: &fleet.KustomizeSource{
					Images: []string{image}}}},
			Destination:    fleet.Destination{Server: fleet.InClusterServer, Namespace: "apps"},
			Sync:           fleet.Sync{Automated: true, Prune: true, SelfHeal: true},
			DeletionPolicy: fleet.DeletionDelete}}
	manifest, err := argocd.Renderer{}.Render(m.engine(), o)
	return mirror.Row{Key: o.Key, Tenant: id.Tenant, Environment: id.Environment,
		Deployment: id.Deployment, Deletion: fleet.DeletionDelete, Manifest: manifest}, err
}

// project is what an environment's Applications belong to.
func (m *fixture) project(in fleet.EnvironmentID) (mirror.Row, error) {
	o := fleet.Object{Key: fleet.ObjectKey{Engine: fleet.AgentEngine(in), Kind: fleet.ObjectProject,
		Name: fleet.ProjectName(in.Tenant)},
		Project: &fleet.Project{Tenant: in.Tenant, Name: fleet.ProjectName(in.Tenant),
			SourceRepos:  []string{"https://git.example.com/" + string(in.Tenant) + "/svc-000000"},
			Destinations: []fleet.Destination{{Server: fleet.InClusterServer, Namespace: "apps"}}}}
	manifest, err := argocd.Renderer{}.Render(m.engine(), o)
	return mirror.Row{Key: o.Key, Tenant: in.Tenant, Manifest: manifest}, err
}

func (m *fixture) engine() fleet.EngineSpec {
	return fleet.AgentSpec{ArgoCDNamespace: m.namespace}.Engine("", "eu")
}

// release changes an environment's Applications from to until.
func (m *fixture) release(ctx context.Context, in fleet.EnvironmentID, from, until int,
	release string) error {
	rows := make([]mirror.Row, 0, until-from)
	for d := from; d < until; d++ {
		row, err := m.application(in, d, release)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return m.record(ctx, func(r *mirror.Record) { r.Rows = rows })
}
