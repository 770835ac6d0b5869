// Command page measures the page and its reads in a real browser, over a real PostgreSQL with a
// whole fleet in it, beside floors of the same run: an empty page and a bare SELECT. `make
// bench-page` runs it.
//
//	page                              everything: 25,000 Applications, 200 people
//	page -tenants 20 -deployments 5 -viewers 20 -changes 100 -runs 3
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
	"argosy.dev/argosy/test/bench/report"
)

// treeOf is the Application with the large tree.
var treeOf = fleet.ApplicationID{Tenant: tenantName(0), Deployment: deploymentName(0),
	Environment: "prod"}

// bench is one run.
type bench struct {
	size       fleetSize
	store      *postgres.Store
	server     string
	token      string // of the platform
	postmaster int    // process of PostgreSQL
}

func main() {
	var size fleetSize
	var viewers, n, runs, nodes int
	var took time.Duration
	var database, out, only string
	flag.IntVar(&size.tenants, "tenants", 200, "tenants")
	flag.IntVar(&size.engines, "engines", 40, "engines")
	flag.IntVar(&size.deployments, "deployments", 25, "deployments of a tenant, in 5 environments")
	flag.IntVar(&viewers, "viewers", 200, "people with the page open")
	flag.IntVar(&n, "changes", 5000, "changes of status in the storm")
	flag.DurationVar(&took, "storm", 20*time.Second, "duration of the storm")
	flag.IntVar(&runs, "runs", 15, "loads of each page")
	flag.IntVar(&nodes, "nodes", 2000, "resources of the large tree")
	flag.StringVar(&database, "serve", "", "run a replica over this database (of the run itself)")
	flag.StringVar(&out, "out", filepath.Join(".cache", "bench"), "folder for JSON")
	flag.StringVar(&only, "only", "browser,storm", "what to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if database != "" {
		err = serve(ctx, database, treeOf, nodes)
	} else {
		err = run(ctx, size, nodes, out, func(ctx context.Context, b *bench) error {
			var failed error
			if strings.Contains(only, "browser") {
				failed = errors.Join(failed, show(b.browserFigure(ctx, runs))(out))
			}
			if strings.Contains(only, "storm") {
				failed = errors.Join(failed, show(b.stormFigure(ctx, viewers, n, took))(out))
			}
			return failed
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-page:", err)
		os.Exit(1)
	}
}

// show prints a figure and writes it into a folder.
func show(f *report.Figure, err error) func(string) error {
	return func(dir string) error {
		if err != nil {
			return err
		}
		f.Print(os.Stdout)
		return f.Write(dir)
	}
}

// run starts PostgreSQL and a replica, and fills the database.
func run(ctx context.Context, size fleetSize, nodes int, out string,
	measure func(context.Context, *bench) error) error {
	dir, err := os.MkdirTemp("", "argosy-bench-page-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	server, err := embedded.StartWith(ctx, filepath.Join(dir, "db"), embedded.Options{
		Set: []string{"max_wal_size=4GB", "shared_buffers=256MB"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	if _, err := postgres.Migrate(ctx, server.URL); err != nil {
		return err
	}
	b := &bench{size: size}
	if b.postmaster, err = postmasterOf(dir); err != nil {
		return err
	}
	if b.store, err = postgres.Open(ctx, server.URL, postgres.Options{}); err != nil {
		return err
	}
	defer b.store.Close()
	began := time.Now()
	if err := seed(ctx, b.store, size); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := analyze(ctx, server.URL); err != nil {
		return err
	}
	fmt.Printf("%d Applications of %d tenants on %d engines, recorded in %s\n",
		size.applications(), size.tenants, size.engines, time.Since(began).Round(time.Second))
	if b.token, err = b.newToken(ctx, ""); err != nil {
		return err
	}
	ended, err := b.startReplica(ctx, server.URL, nodes)
	if err != nil {
		return err
	}
	defer ended()
	return measure(ctx, b)
}

// postmasterOf reads the process of a PostgreSQL from its folder.
func postmasterOf(dir string) (pid int, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "postmaster.pid" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Sscan(string(text), &pid)
		return err
	})
	return pid, err
}

// analyze gathers the statistics that autovacuum gathers within minutes.
func analyze(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// newToken creates a token: each has a limit of streams.
func (b *bench) newToken(ctx context.Context, tenant fleet.TenantName) (string, error) {
	_, plaintext, err := b.store.Tokens.CreateToken(ctx, view.Token{Name: "bench",
		Tenant: tenant, Role: view.RoleRead, CreatedBy: "bench"})
	return plaintext, err
}

// startReplica starts this program again as the replica.
func (b *bench) startReplica(ctx context.Context, database string, nodes int) (func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self, "-serve", database, "-nodes", fmt.Sprint(nodes))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	printed, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the replica printed no address: %w", err)
	}
	b.server = strings.TrimSpace(line)
	return func() {
		_ = in.Close()
		_ = child.Wait()
	}, nil
}

func (b *bench) counters(ctx context.Context) (c counters, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server+countersPath, nil)
	if err != nil {
		return c, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	return c, json.NewDecoder(answer.Body).Decode(&c)
}

// viewer signs a person in: half of them watch the overview of the platform, half the Applications
// of a tenant of theirs.
func (b *bench) viewer(ctx context.Context, i int) (*viewer, error) {
	v := &viewer{server: b.server, page: "/", hashes: map[string]string{},
		late: map[fleet.ApplicationID]time.Time{}}
	if i%2 == 1 {
		v.page, v.tenant = "/applications", tenantName(i%b.size.tenants)
	}
	token, err := b.newToken(ctx, v.tenant)
	if err != nil {
		return nil, err
	}
	if v.client, err = signIn(b.server, token); err != nil {
		return nil, err
	}
	return v, v.fetch(ctx)
}

// settle waits until every stream is open and no renewal is under way.
func (b *bench) settle(ctx context.Context, watching []*viewer) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Second):
		return nil
	}
}

// databaseCPU is the CPU time of the processes of the run's PostgreSQL so far. Their sessions last
// as long as the pools.
func (b *bench) databaseCPU() (total time.Duration) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range found {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, parent := 0, 0
		_, rest, _ := strings.Cut(string(raw), ") ")
		if _, err := fmt.Sscanf(file, "/proc/%d/stat", &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%1s %d", new(string), &parent); err == nil &&
			(pid == b.postmaster || parent == b.postmaster) {
			total += cpuOf(pid)
		}
	}
	return total
}
