package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
)

var server *embedded.Server

// quick are unsafe settings: these tests need no durability across a power failure.
var quick = []string{"fsync=off", "full_page_writes=off", "synchronous_commit=off",
	"max_connections=300", "shared_buffers=128MB"}

func TestMain(m *testing.M) {
	os.Exit(withServer(m.Run))
}

func withServer(run func() int) int {
	dir, err := os.MkdirTemp("", "argosy-postgres-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o711)
	}
	if err == nil {
		server, err = embedded.StartWith(context.Background(), dir+"/db", embedded.Options{
			Set: quick})
	}
	if err == nil {
		defer server.Stop()
		_, err = postgres.Migrate(context.Background(), server.URL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

var databases atomic.Int64

// newDatabase is a migrated database for one test.
func newDatabase(t testing.TB) string { return newDatabaseFrom(t, "argosy") }

func newDatabaseFrom(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	exec(t, databaseURL(t, "postgres"), `CREATE DATABASE `+name+` TEMPLATE `+template)
	t.Cleanup(func() { exec(t, databaseURL(t, "postgres"), `DROP DATABASE `+name+` WITH (FORCE)`) })
	return databaseURL(t, name)
}

func databaseURL(t testing.TB, name string) string {
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	return openWith(t, url, postgres.Options{})
}

func openWith(t testing.TB, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newStore(t testing.TB) *postgres.Store { return open(t, newDatabase(t)) }

func exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["search_path"] = "argosy"
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func one[T any](t testing.TB, url, sql string, args ...any) (v T) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hold takes a lease that lasts as long as the test.
func hold(t testing.TB, s *postgres.Store, name string) mirror.Lease {
	t.Helper()
	l, ok, err := s.Leases.Acquire(t.Context(), name, "replica-1", time.Hour)
	if err != nil || !ok {
		t.Fatalf("lease %s: %v, %v", name, ok, err)
	}
	return l
}

func revision(n int) fleet.Revision { return fleet.Revision(fmt.Sprintf("%040x", n)) }

// application is a row with a body of the usual size.
func application(engine, tenant, deployment, environment, targetRevision string) mirror.Row {
	id := fleet.ApplicationID{Tenant: fleet.TenantName(tenant),
		Deployment:  fleet.DeploymentName(deployment),
		Environment: fleet.EnvironmentName(environment)}
	body := fmt.Sprintf(
		`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"annotations":{"filler":%q},"name":%q},`+
			`"spec":{"source":{"path":"deploy","repoURL":"https://git.example.com/%s/%s","targetRevision":%q}}}`,
		strings.Repeat("x", 700), fleet.ApplicationName(id), tenant, deployment, targetRevision)
	return mirror.Row{
		Key: fleet.ObjectKey{Engine: fleet.EngineName(engine), Kind: fleet.ObjectApplication,
			Name: fleet.ApplicationName(id)},
		Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
		Deletion: fleet.DeletionDelete,
		Manifest: manifest(body),
	}
}

func manifest(body string) fleet.Manifest {
	sum := sha256.Sum256([]byte(body))
	return fleet.Manifest{Body: []byte(body), Hash: hex.EncodeToString(sum[:])}
}

func tenantDeclaration(name string) fleet.Declaration {
	return fleet.Declaration{Key: fleet.Key{Kind: fleet.KindTenant, Name: name},
		Path: "fleet/tenants/" + name + ".yaml", Blob: "t-" + name,
		Tenant: &fleet.TenantSpec{Owners: []string{"group:" + name}, Quota: fleet.Quota{
			Environments: 5, Deployments: 10, Applications: 50}}}
}

func environmentDeclaration(tenant, name string) fleet.Declaration {
	return fleet.Declaration{
		Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: fleet.TenantName(tenant),
			Name: name},
		Path: "tenants/" + tenant + "/environments/" + name + ".yaml", Blob: "e-" + name,
		Labels: map[string]string{"tier": name},
		Environment: &fleet.EnvironmentSpec{Region: "eu", Namespaces: []string{"checkout"},
			Cluster: &fleet.ClusterSpec{Server: "https://" + name + ".example.com"}}}
}

func deploymentDeclaration(tenant, name string,
	environments ...fleet.EnvironmentName) fleet.Declaration {
	return fleet.Declaration{
		Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: fleet.TenantName(tenant),
			Name: name},
		Path: "tenants/" + tenant + "/deployments/" + name + ".yaml", Blob: "d-" + name,
		Deployment: &fleet.DeploymentSpec{
			Source: fleet.Source{RepoURL: "https://git.example.com/" + tenant + "/" + name,
				TargetRevision: "v1"},
			Destination: fleet.Destinations{Environments: environments, Namespace: "checkout"}}}
}

func engineDeclaration(name string) fleet.Declaration {
	return fleet.Declaration{Key: fleet.Key{Kind: fleet.KindEngine, Name: name},
		Path: "fleet/engines/" + name + ".yaml", Blob: "g-" + name,
		Engine: &fleet.EngineSpec{Region: "eu", Capacity: fleet.Capacity{
			Applications: 100, Environments: 10},
			ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd-" + name, InstallationID: name}}}
}

func placement(tenant, environment, engine string) fleet.Placement {
	return fleet.Placement{Environment: fleet.EnvironmentID{Tenant: fleet.TenantName(tenant),
		Name: fleet.EnvironmentName(environment)},
		Engine: fleet.EngineName(engine), Reason: "the only one of region eu",
		Alternatives: []fleet.Alternative{{Engine: "us-1", Reason: "region us"}}}
}

// step is a record from one revision to the next.
func step(base, head int, fill func(*mirror.Record)) mirror.Record {
	r := mirror.Record{Revision: revision(head), PlanHash: fmt.Sprintf("plan-%d", head),
		Summary: mirror.Summary{
			Author: "Ann <ann@example.com>", Subject: "change " + fmt.Sprint(head),
			CommittedAt: time.Date(2026, 11, 20, 12, 0, head, 0, time.UTC)}}
	if base > 0 {
		r.Base = revision(base)
	}
	fill(&r)
	return r
}

func applied(rows []mirror.Row) []mirror.Ack {
	var acks []mirror.Ack
	for _, r := range rows {
		acks = append(acks, mirror.Ack{Key: r.Key, Seq: r.Seq, State: mirror.ApplyApplied,
			Removed: r.Unwanted})
	}
	return acks
}
