package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/test/bench/corpus"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

// plane is one control plane under measurement: the argosy binary with a database, a config repo
// and an arena of its own.
//
// It polls its branch once an hour, so that only signed pushes wake it.
type plane struct {
	ground *ground
	arena  *arena
	corpus corpus.Corpus
	repo   *stack.Repo
	dir    string
	n      int // deployments in the repo
	starts int

	argosy   *stack.Process
	database string
	url, ops string
	listen   string // URL of the API
	notify   *pgx.Conn
	releases map[int]string // of deployments that are not at first
	inFlight int            // requests to an engine; 0: the default
	// of a token of the platform for the command line; empty: none
	tokenFile string
}

const first = "v1.0.0" // the release that every deployment begins with

func (g *ground) newPlane(ctx context.Context, flat bool) (*plane, error) {
	p, err := g.preparePlane(ctx, flat)
	if err != nil {
		return nil, err
	}
	return p, p.start(ctx, g.host, time.Hour)
}

// preparePlane makes everything that a control plane needs, and does not start it.
func (g *ground) preparePlane(ctx context.Context, flat bool) (*plane, error) {
	a, err := g.arena(ctx)
	if err != nil {
		return nil, err
	}
	p := &plane{ground: g, arena: a, corpus: corpus.Corpus{Engines: a.engines, Flat: flat},
		dir: filepath.Join(g.dir, a.name), releases: map[int]string{}}
	if p.repo, err = g.git.CreateRepo(ctx, a.name); err != nil {
		return nil, err
	}
	if _, err := p.repo.Commit(ctx, "the platform", p.corpus.Base()); err != nil {
		return nil, err
	}
	for i, e := range a.engines {
		if err := writeFile(a.kubeconfigs[i], p.dir, "secrets", "_fleet", "engine-"+e.Name,
			"kubeconfig"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// start runs the control plane with an empty mirror, and returns when it reaches its engines.
// Without a host every push counts as reviewed.
func (p *plane) start(ctx context.Context, host *gitHost, poll time.Duration) (err error) {
	p.starts++
	p.database = fmt.Sprintf("%s_%d", p.arena.name, p.starts)
	if p.url, err = p.ground.postgres.NewDatabase(ctx, p.database); err != nil {
		return err
	}
	listen, err := stack.FreeAddress()
	if err != nil {
		return err
	}
	if p.ops, err = stack.FreeAddress(); err != nil {
		return err
	}
	p.listen = "http://" + listen
	settings := fmt.Sprintf(
		"source: {url: %q, allowHTTP: true, poll: %s}\ndatabase: {url: %q}\ndataDir: data-%d\n"+
			"secrets: {directory: secrets}\nlisten: {address: %q, ops: %q}\n", p.repo.URL, poll,
		p.url,
		p.starts, listen, p.ops)
	if p.inFlight > 0 {
		settings += fmt.Sprintf("engines: {inFlight: %d}\n", p.inFlight)
	}
	if p.tokenFile != "" {
		settings += fmt.Sprintf("bootstrapTokenFile: %q\n", p.tokenFile)
	}
	if host != nil {
		more, files := host.settings()
		settings += more
		for name, content := range files {
			if err := writeFile([]byte(content), p.dir, name); err != nil {
				return err
			}
		}
	}
	file := filepath.Join(p.dir, "argosy.yaml")
	if err := writeFile([]byte(settings), file); err != nil {
		return err
	}
	binary, err := filepath.Abs(argosyBinary)
	if err != nil {
		return err
	}
	p.argosy, err = stack.StartProcess(stack.Command{Name: "argosy", Path: binary, Args: []string{
		"serve", "-f", file}, Log: filepath.Join(p.dir, "argosy.log")})
	if err != nil {
		return err
	}
	if p.notify, err = pgx.Connect(ctx, p.url); err != nil {
		return err
	}
	return p.argosy.Await(ctx, p.reachesEngines)
}

func (p *plane) reachesEngines(ctx context.Context) error {
	m, err := p.metrics(ctx)
	if err != nil {
		return err
	}
	for _, e := range p.arena.engines {
		if m[`argosy_engine_connected{engine="`+e.Name+`"}`] != 1 {
			return fmt.Errorf("engine %s is not reached", e.Name)
		}
	}
	return nil
}

// stop ends the process and drops its database.
func (p *plane) stop(ctx context.Context) error {
	if p.notify != nil {
		_ = p.notify.Close(ctx) // the database goes next
		p.notify = nil
	}
	if p.argosy != nil {
		p.argosy.Stop()
		p.argosy = nil
	}
	return p.ground.postgres.DropDatabase(ctx, p.database)
}

// end stops the plane. Its data goes with the ground.
func (p *plane) end(ctx context.Context) error {
	return errors.Join(p.stop(ctx), os.RemoveAll(p.dir))
}

// grow commits deployments until there are n, and the credentials of their environments.
func (p *plane) grow(ctx context.Context, n int) error {
	for _, environment := range p.corpus.Credentials(n) {
		tenant, name := filepath.Split(environment)
		if err := writeFile([]byte("token-of-"+name), p.dir, "secrets", tenant, name,
			"token"); err != nil {
			return err
		}
	}
	err := p.commit(ctx, fmt.Sprintf("%d deployments", n), p.corpus.Files(p.n, n, first))
	p.n = n
	return err
}

// release commits another release of deployment i and names its Application for a watch.
func (p *plane) release(ctx context.Context, i int, release string) (key string, err error) {
	err = p.commit(ctx, "release", map[string]string{
		p.corpus.Path(i): p.corpus.Deployment(i, release)})
	p.releases[i] = release
	w := p.corpus.Wanted(i, release)
	return w.Namespace + "/" + w.Key(), err
}

// verify compares the engines with the repo. A difference makes the run void.
func (p *plane) verify(ctx context.Context) error {
	wanted := make([]corpus.Wanted, p.n)
	for i := range wanted {
		release := first
		if r, ok := p.releases[i]; ok {
			release = r
		}
		wanted[i] = p.corpus.Wanted(i, release)
	}
	return observe.Check(ctx, wanted, p.arena.watched...)
}

// applied waits until the mirror holds the head of the branch.
func (p *plane) applied(ctx context.Context) error {
	head, err := p.repo.Head(ctx, "main")
	if err != nil {
		return err
	}
	for {
		var applied string
		if err := p.notify.QueryRow(ctx, `SELECT applied FROM mirror`).Scan(&applied); err != nil {
			return err
		}
		if applied == head {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the mirror holds %.8q, not the head %.8s", applied, head)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *plane) metrics(ctx context.Context) (map[string]float64, error) {
	return observe.Scrape(ctx, "http://"+p.ops+"/metrics")
}

// cpu is what argosy and PostgreSQL have used.
func (p *plane) cpu() (time.Duration, error) {
	return observe.CPU(p.argosy.PID(), p.ground.postgres.PID())
}

func (p *plane) requests(ctx context.Context) (observe.Requests, error) {
	return observe.CountRequests(ctx, p.ground.admins...)
}

// diagnose describes a control plane that failed, and saves its log before its folder is deleted.
func (p *plane) diagnose() string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := p.notify.Query(ctx,
		`SELECT kind || ' ' || state || ' ' || state_message, count(*), min(name) FROM status GROUP BY 1 ORDER BY 2 DESC LIMIT 10`)
	if err == nil {
		var state, name string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&state, &n, &name}, func() error {
			fmt.Fprintf(&b, "\n  %d %s (e.g. %s)", n, state, name)
			return nil
		})
	}
	if err != nil {
		fmt.Fprintf(&b, "\n  its state is not read: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(p.dir, "argosy.log"))
	file := filepath.Join(os.TempDir(), p.arena.name+"-argosy.log")
	if err == nil {
		err = os.WriteFile(file, content, 0o600)
	}
	if err != nil {
		return b.String() + "\n  its log is not saved: " + err.Error()
	}
	return b.String() + "\n  its log is " + file
}
