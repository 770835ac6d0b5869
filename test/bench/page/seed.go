package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

// fleetSize is the fleet of the run.
type fleetSize struct {
	tenants, engines, deployments int // deployments of each tenant
}

var environments = []fleet.EnvironmentName{"dev", "test", "qa", "staging", "prod"}

func (f fleetSize) applications() int { return f.tenants * f.deployments * len(environments) }

func (f fleetSize) engineOf(tenant, environment int) fleet.EngineName {
	return fleet.EngineName(fmt.Sprintf("engine-%02d", (tenant+environment)%f.engines))
}

func tenantName(t int) fleet.TenantName { return fleet.TenantName(fmt.Sprintf("tenant-%03d", t)) }

// deploymentName repeats across tenants, as the names of services do.
func deploymentName(d int) fleet.DeploymentName {
	words := []string{"cart", "checkout", "catalog", "payment", "search"}
	return fleet.DeploymentName(fmt.Sprintf("%s-%02d", words[d%len(words)], d))
}

const benchRevision = fleet.Revision("4f1c9e2a00000000000000000000000000000001")

// seed records the fleet as the loop does, and reports it as the workers do: everything is applied,
// Synced and Healthy.
func seed(ctx context.Context, s *postgres.Store, f fleetSize) error {
	if _, err := s.Plans.Record(ctx, lease(ctx, s, "reconciler"), recordOf(f)); err != nil {
		return err
	}
	for e := range f.engines {
		engine := fleet.EngineName(fmt.Sprintf("engine-%02d", e))
		held := lease(ctx, s, "engine/"+string(engine))
		rows, err := s.Work.Changed(ctx, engine, 0, 1<<20)
		if err != nil {
			return err
		}
		var acks []mirror.Ack
		var seen []mirror.Observation
		for _, r := range rows {
			acks = append(acks, mirror.Ack{Key: r.Key, Seq: r.Seq, State: mirror.ApplyApplied,
				Hash: r.Manifest.Hash})
			seen = append(seen, observed(r.Key, r.Tenant, r.Deployment, mirror.HealthHealthy))
		}
		if err := s.Work.Acknowledge(ctx, held, acks); err != nil {
			return err
		}
		for part := range slices.Chunk(seen, 100) {
			if err := s.Work.Observe(ctx, held, part); err != nil {
				return err
			}
		}
		if err := s.Work.ReportEngine(ctx, held, mirror.EngineReport{Engine: engine,
			Reachable: true, ArgoCD: "v3.5.0"}); err != nil {
			return err
		}
	}
	return nil
}

func observed(key fleet.ObjectKey, tenant fleet.TenantName, deployment fleet.DeploymentName,
	health mirror.HealthState) mirror.Observation {
	return mirror.Observation{Key: key, UID: "uid-" + key.Name, Sync: mirror.SyncSynced,
		Health: health, SyncedRevision: "0123456789abcdef0123456789abcdef01234567", Resources: 12,
		Images: mirror.ImagesOf([]string{fmt.Sprintf("ghcr.io/%s/%s:v1.4.%d", tenant, deployment,
			len(key.Name)), "envoyproxy/envoy:v1.31.0"})}
}

// lease takes a lease for longer than the run.
func lease(ctx context.Context, s *postgres.Store, name string) mirror.Lease {
	held, _, err := s.Leases.Acquire(ctx, name, "bench", 24*time.Hour)
	if err != nil {
		panic(err) // the next write fails by it
	}
	return held
}

func recordOf(f fleetSize) mirror.Record {
	r := mirror.Record{Revision: benchRevision, PlanHash: "bench",
		Summary: mirror.Summary{Author: "Ann <ann@example.com>", Subject: "the whole fleet",
			CommittedAt: time.Now().Add(-time.Hour)}}
	for e := range f.engines {
		name := fmt.Sprintf("engine-%02d", e)
		r.Declarations = append(r.Declarations, fleet.Declaration{
			Key:  fleet.Key{Kind: fleet.KindEngine, Name: name},
			Path: "fleet/engines/" + name + ".yaml", Blob: name,
			Engine: &fleet.EngineSpec{Region: "eu", Capacity: fleet.Capacity{Applications: 1000,
				Environments: 50}, ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd",
				InstallationID: name}}})
	}
	for t := range f.tenants {
		addTenant(&r, f, t)
	}
	r.Created = len(r.Rows)
	return r
}

func addTenant(r *mirror.Record, f fleetSize, t int) {
	tenant := tenantName(t)
	folder := "tenants/" + string(tenant)
	r.Declarations = append(r.Declarations, fleet.Declaration{
		Key:  fleet.Key{Kind: fleet.KindTenant, Name: string(tenant)},
		Path: "fleet/tenants/" + string(tenant) + ".yaml", Blob: string(tenant),
		Tenant: &fleet.TenantSpec{Owners: []string{"group:" + string(tenant)},
			Quota: fleet.Quota{Environments: 10, Deployments: 50, Applications: 500}}})
	for e, environment := range environments {
		engine := f.engineOf(t, e)
		r.Declarations = append(r.Declarations, fleet.Declaration{
			Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: tenant,
				Name: string(environment)},
			Path: folder + "/environments/" + string(environment) + ".yaml",
			Blob: string(tenant) + string(environment), Labels: map[string]string{
				"tier": string(environment)},
			Environment: &fleet.EnvironmentSpec{Region: "eu", Namespaces: []string{"shop"},
				Cluster: &fleet.ClusterSpec{Server: "https://" + string(tenant) + "-" +
					string(environment) + ".example.com"}}})
		r.Placements = append(r.Placements, fleet.Placement{
			Environment: fleet.EnvironmentID{Tenant: tenant, Name: environment}, Engine: engine,
			Reason: "least loaded of region eu"})
	}
	for d := range f.deployments {
		name := deploymentName(d)
		r.Declarations = append(r.Declarations, fleet.Declaration{
			Key:  fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: tenant, Name: string(name)},
			Path: folder + "/deployments/" + string(name) + ".yaml",
			Blob: string(tenant) + string(name), Labels: map[string]string{"team": "a"},
			Deployment: &fleet.DeploymentSpec{Source: sourceOf(tenant, name),
				Destination: fleet.Destinations{Environments: environments, Namespace: "shop"}}})
		for e, environment := range environments {
			r.Rows = append(r.Rows, rowOf(f.engineOf(t, e), fleet.ApplicationID{Tenant: tenant,
				Deployment: name, Environment: environment}))
		}
	}
}

func sourceOf(tenant fleet.TenantName, name fleet.DeploymentName) fleet.Source {
	return fleet.Source{RepoURL: "https://git.example.com/" + string(tenant) + "/" +
		string(name), Path: "deploy", TargetRevision: "v1.4.0"}
}

// rowOf is a row with a body of the usual size.
func rowOf(engine fleet.EngineName, id fleet.ApplicationID) mirror.Row {
	name := fleet.ApplicationName(id)
	body := fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{`+
		`"annotations":{"filler":%q},"name":%q},"spec":{"source":{"path":"deploy","repoURL":%q,`+
		`"targetRevision":"v1.4.0"}}}`, strings.Repeat("x", 700), name,
		sourceOf(id.Tenant, id.Deployment).RepoURL)
	sum := sha256.Sum256([]byte(body))
	return mirror.Row{Key: fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication,
		Name: name}, Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
		Deletion: fleet.DeletionDelete,
		Manifest: fleet.Manifest{Body: []byte(body), Hash: hex.EncodeToString(sum[:])}}
}
