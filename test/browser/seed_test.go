package browser_test

import (
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	opsToken  = "argosy_ops_4d3c2b1a"
	acmeToken = "argosy_acme_0a1b2c3d"
)

// hostile is what a workload may write into every text that it controls: markup, an ANSI escape
// and a right-to-left override.
const hostile = "<img src=x onerror=window.hit=1>\x1b[31m\u202egnp.exe"

var (
	now  = time.Now().UTC().Truncate(time.Second)
	head = fleet.Revision("4f1c9e2a" + strings.Repeat("0", 32))
)

func before(d time.Duration) *time.Time { t := now.Add(-d); return &t }

func commit(n int) string { return fmt.Sprintf("%08x%032x", 0xa1b2c300+n, n) }

// seeded is a fleet of three tenants as it may be on a bad day.
func seeded() apitest.Mirror {
	m := apitest.Mirror{
		Source: view.Source{URL: "https://git.example.com/platform/config", Branch: "main",
			Head: head, Applied: head, FetchedAt: before(20 * time.Second)},
		Tokens: []apitest.Token{
			{Token: view.Token{ID: "ops", Name: "ops", Role: view.RoleWrite},
				Plaintext: opsToken},
			{Token: view.Token{ID: "acme", Name: "ci", Tenant: "acme", Role: view.RoleWrite,
				Owner: "group:acme"}, Plaintext: acmeToken},
		},
		Engines: []view.Engine{
			{Name: "eu-1", Region: "eu", State: fleet.EngineActive, Reachable: true,
				Capacity: fleet.Capacity{Applications: 500, Environments: 50}, Ring: "stable",
				ArgoCD: "v3.5.7", Holder: "argosy-0", Epoch: 7, InstanceID: "f3a1",
				Load: fleet.EngineLoad{Applications: 412, Environments: 31}},
			{Name: "us-1", Region: "us", State: fleet.EngineActive, Since: before(9 * time.Minute),
				Message:  "dial tcp 10.4.0.9:6443: i/o timeout",
				Capacity: fleet.Capacity{Applications: 500, Environments: 50}, Ring: "stable",
				Load: fleet.EngineLoad{Applications: 230, Environments: 12}, Pending: 4},
		},
		Pulls: []apitest.Pull{{Pull: view.Pull{Number: 214, Title: "checkout: 1.9.0 everywhere",
			Author: "ana", State: forge.PullOpen, Head: head, Verdict: "needs an approval",
			Tenants: []fleet.TenantName{"acme"}, UpdatedAt: now.Add(-time.Hour),
			URL: "https://git.example.com/platform/config/pulls/214"}}},
		Stops: []mirror.Stop{{Scope: mirror.StopTenant, Name: "initech", By: "token:ops",
			Reason: "database migration", At: now.Add(-40 * time.Minute)}},
	}
	for _, r := range []struct{ subject, author string }{
		{"checkout: raise replicas in prod", "Ana"}, {"globex: add environment dev-2", "Ben"},
		{"remove the old cart", "Ana"}} {
		i := len(m.Revisions)
		revision := head
		if i > 0 {
			revision = fleet.Revision(commit(900 + i))
		}
		m.Revisions = append(m.Revisions, view.Revision{Revision: revision, Author: r.author,
			Subject: r.subject, CommittedAt: now.Add(-time.Duration(i+1) * 3 * time.Hour),
			RecordedAt: now.Add(-time.Duration(i+1)*3*time.Hour + time.Minute), Changed: 3 + i,
			Created: i, AppliedAt: before(time.Duration(i+1) * 3 * time.Hour)})
	}
	for _, t := range []fleet.TenantName{"acme", "globex", "initech"} {
		seedTenant(&m, t)
	}
	m.Healthy = []apitest.HealthyRevisions{{Application: fleet.ApplicationID{Tenant: "acme",
		Deployment: "checkout", Environment: "prod"}, Revisions: []mirror.HealthyRevision{
		{Revision: commit(6), FirstAt: now.Add(-26 * time.Hour), LastAt: now, Runs: true},
		{Revision: commit(5), FirstAt: now.Add(-90 * time.Hour),
			LastAt: now.Add(-26 * time.Hour)}}}}
	m.Problems = append(m.Problems, fleet.Problem{Key: fleet.Key{Kind: fleet.KindGitOpsDeployment,
		Tenant: "acme", Name: "mailer"}, Path: "tenants/acme/deployments/mailer.yaml", Line: 14,
		Column: 7, Severity: fleet.SeverityError, Code: "unknown-environment",
		Message: "environment \"stagin\" does not exist", Fix: "write staging"})
	m.Holds = append(m.Holds, mirror.Hold{Revision: head, Reason: mirror.HoldDeletions,
		Tenant: "acme", Message: "3 Applications would be deleted, more than the limit of 2",
		Since: now.Add(-25 * time.Minute), Items: []fleet.ObjectKey{{Engine: "eu-1",
			Kind: fleet.ObjectApplication, Name: "acme-oldcart-dev"}, {Engine: "eu-1",
			Kind: fleet.ObjectApplication, Name: "acme-oldcart-staging"}, {Engine: "eu-1",
			Kind: fleet.ObjectApplication, Name: "acme-oldcart-prod"}}})
	return m
}

var services = []fleet.DeploymentName{"cart", "catalog", "checkout", "mailer", "search", "web"}

func seedTenant(m *apitest.Mirror, t fleet.TenantName) {
	environments := []fleet.EnvironmentName{"dev", "staging", "prod"}
	tenant := view.Tenant{Name: t, Owners: []string{"group:" + string(t)},
		Quota: fleet.Quota{Applications: 40, Environments: 10, Deployments: 20},
		Used:  fleet.Quota{Applications: 18, Environments: 3, Deployments: 6}}
	if t == "acme" {
		tenant.Problems, tenant.Held = 1, 3
	}
	tenant.Stopped = t == "initech"
	for i, e := range environments {
		engine := fleet.EngineName("eu-1")
		if t == "globex" && e == "prod" {
			engine = "us-1"
		}
		m.Environments = append(m.Environments, view.Environment{Tenant: t, Name: e,
			Server: fmt.Sprintf("https://%s-%s.example.com", t, e), Region: "eu", Engine: engine,
			Namespaces: []string{"shop"}, Counts: view.Counts{Applications: 6, Synced: 5,
				Healthy: 5}, Placement: fleet.Placement{Engine: engine, Reason: "least loaded",
				Revision: head, Applications: 6}})
		for j, d := range services {
			m.Applications = append(m.Applications, seedApplication(t, d, e, engine, i, j))
		}
	}
	for _, d := range services {
		m.Deployments = append(m.Deployments, view.Deployment{Tenant: t, Name: d,
			Environments: environments, Namespace: "shop", Source: fleet.Source{
				RepoURL: "https://github.com/" + string(t) + "/" + string(d), Path: "deploy",
				TargetRevision: "main"}, Counts: view.Counts{Applications: 3, Synced: 2,
				Healthy: 3}})
	}
	tenant.Counts = view.Counts{Applications: 18, Synced: 16, Healthy: 16, Failed: 1}
	m.Tenants = append(m.Tenants, tenant)
	m.Operations = append(m.Operations, mirror.Operation{ID: "op-" + string(t),
		Kind: mirror.OperationSync, State: mirror.OperationSucceeded, Tenant: t,
		Subject: string(t) + "/checkout@prod", RequestedBy: "token:" + string(t) + "/ci",
		StartedAt: now.Add(-2 * time.Hour), EndedAt: before(119 * time.Minute)})
}

func seedApplication(t fleet.TenantName, d fleet.DeploymentName, e fleet.EnvironmentName,
	engine fleet.EngineName, i, j int) view.Application {
	a := view.Application{Tenant: t, Environment: e, Deployment: d,
		Name: fmt.Sprintf("%s-%s-%s", t, d, e), Engine: engine, Revision: head,
		RepoURL: "https://github.com/" + string(t) + "/" + string(d), TargetRevision: "main",
		Apply: mirror.ApplyApplied, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
		SyncedRevision: commit(j*3 + (2-i)/2), Resources: 9,
		CreatedAt: now.Add(-90 * 24 * time.Hour), ChangedAt: now.Add(-3 * time.Hour),
		ObservedAt: before(time.Minute),
		UID:        fmt.Sprintf("uid-%s-%s-%s", t, d, e)}
	switch {
	case t == "acme" && d == "checkout" && e == "prod":
		a.Health, a.Sync = mirror.HealthDegraded, mirror.SyncOutOfSync
		a.Message = "Deployment checkout exceeded its progress deadline"
	case t == "acme" && d == "mailer" && e == "dev":
		a.Apply, a.ApplyMessage = mirror.ApplyFailed, "admission webhook denied the request: "+
			hostile
	case t == "globex" && d == "web" && e == "staging":
		a.Health = mirror.HealthProgressing
	case engine == "us-1":
		a.Sync, a.Health = mirror.SyncUnknown, mirror.HealthUnknown
		a.LastSeenAt = before(9 * time.Minute)
	}
	return a
}

// seededResources has the resources of acme/checkout@prod, and of acme/web@prod a tree of that
// many.
func seededResources(many int) *apitest.Inspector {
	checkout := fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
	inspector := apitest.NewInspector(nil)
	pod := func(n int, health mirror.HealthState, reason string, restarts int) mirror.TreeNode {
		return mirror.TreeNode{ResourceRef: mirror.ResourceRef{Kind: "Pod", Namespace: "shop",
			Name: fmt.Sprintf("checkout-7d9f8b6c5-%05d", n), UID: fmt.Sprint("pod-", n)},
			Version: "v1", Parent: 4, Depth: 2, Health: health, Reason: reason, Restarts: restarts,
			Ready: "0/1", CreatedAt: before(50 * time.Minute), Images: []string{"checkout:1.9.0"}}
	}
	top := func(group, kind, name string, health mirror.HealthState) mirror.TreeNode {
		return mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: group, Kind: kind,
			Namespace: "shop", Name: name, UID: kind + name}, Version: "v1", Parent: -1,
			Managed: true, Sync: mirror.SyncSynced, Health: health,
			CreatedAt: before(90 * 24 * time.Hour)}
	}
	deployment := top("apps", "Deployment", "checkout", mirror.HealthDegraded)
	deployment.Sync, deployment.Message = mirror.SyncOutOfSync, "exceeded its progress deadline"
	set := mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: "apps", Kind: "ReplicaSet",
		Namespace: "shop", Name: "checkout-7d9f8b6c5", UID: "rs"}, Parent: 3, Depth: 1,
		Health: mirror.HealthProgressing, Revision: "12", CreatedAt: before(time.Hour)}
	crash := pod(1, mirror.HealthDegraded, "CrashLoopBackOff", 14)
	crash.Message = "back-off 5m0s restarting failed container " + hostile
	good := pod(2, mirror.HealthHealthy, "Running", 0)
	good.Ready = "1/1"
	diff := "--- live\n+++ desired\n@@ -12,7 +12,7 @@\n     spec:\n       containers:\n       - name: app\n" +
		"-        image: checkout:1.8.4\n+        image: checkout:1.9.0\n         ports:\n         - containerPort: 8080\n" +
		"@@ -40,3 +40,4 @@\n         resources:\n           limits:\n             memory: 256Mi\n+            cpu: 500m # " + hostile + "\n"
	lines := make([]mirror.LogLine, 0, 60)
	for i := range 60 {
		lines = append(lines, mirror.LogLine{At: before(time.Minute), Text: fmt.Sprintf(
			"2026-11-28T23:%02d:12Z level=info msg=\"order %d paid\" took=%dms", i, 4000+i, 7+i)})
	}
	lines = append(lines, mirror.LogLine{Text: "panic: " + hostile})
	inspector.Set(checkout, apitest.Resources{
		Tree: mirror.Tree{ComparedAt: before(2 * time.Minute), Nodes: []mirror.TreeNode{
			top("", "ConfigMap", "checkout-settings", ""),
			top("", "Service", "checkout", mirror.HealthHealthy),
			top("networking.k8s.io", "Ingress", "checkout", mirror.HealthHealthy), deployment, set,
			crash, good, pod(3, mirror.HealthProgressing, "ContainerCreating", 0)}},
		Details: []mirror.ResourceDetail{{ResourceRef: crash.ResourceRef, Version: "v1",
			Live: "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    note: " +
				hostile + "\n",
			Containers: []mirror.Container{{Name: "app", Image: "checkout:1.9.0", Restarts: 14,
				State: "Waiting", Reason: "CrashLoopBackOff", Last: "Error, exit code 2"}}},
			{ResourceRef: deployment.ResourceRef, Version: "v1", Diff: diff,
				Live: "apiVersion: apps/v1\nkind: Deployment\n"}},
		Diff: mirror.ApplicationDiff{Same: 7, Resources: []mirror.ResourceDiff{{
			ResourceRef: deployment.ResourceRef, Change: mirror.ResourceUpdated, Diff: diff}}},
		Events: []mirror.ResourceEvent{{Resource: crash.ResourceRef, Type: "Warning",
			Reason: "BackOff", Message: "Back-off restarting failed container " + hostile,
			Count: 61, LastAt: before(40 * time.Second), Source: "kubelet"},
			{Resource: set.ResourceRef, Type: "Normal", Reason: "SuccessfulCreate", Count: 1,
				Message: "Created pod: checkout-7d9f8b6c5-00003",
				LastAt:  before(50 * time.Minute)}},
		Logs: map[string][]mirror.LogLine{crash.Name + "/app": lines},
		Syncs: []mirror.PastSync{{ID: 12, Revisions: []string{commit(6)}, By: "ana@example.com",
			Phase: "Failed", Message: "one or more objects failed to apply", StartedAt: before(
				time.Hour), FinishedAt: before(59 * time.Minute), Results: []mirror.SyncResult{{
				ResourceRef: deployment.ResourceRef, Status: "SyncFailed", Message: hostile}}},
			{ID: 11, Revisions: []string{commit(5)}, Automated: true, Phase: "Succeeded",
				StartedAt: before(26 * time.Hour), FinishedAt: before(26*time.Hour -
					42*time.Second)}}})
	large := mirror.Tree{ComparedAt: before(time.Minute)}
	for i := range many {
		n := top("apps", "Deployment", fmt.Sprintf("web-%04d", i), mirror.HealthHealthy)
		if i%4 != 0 {
			n = pod(i, mirror.HealthHealthy, "", 0)
			n.Ready, n.Depth, n.Parent = "1/1", 1, i-i%4
		}
		large.Nodes = append(large.Nodes, n)
	}
	inspector.Set(fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"},
		apitest.Resources{Tree: large})
	return inspector
}
