package example

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// Plane is the control plane: `argosy serve` with a PostgreSQL of its own, and the command line
// that asks it.
type Plane struct {
	Process *stack.Process
	URL     string
	Ops     string
	Token   string
	Config  string // its argosy.yaml

	binary   string
	env      []string
	progress func(string, ...any)
}

// PlaneOptions of StartPlane.
type PlaneOptions struct {
	Binary   string   // argosy
	Name     string   // of the replica, for its files; "argosy" when empty
	Database string   // the value of `database:` in argosy.yaml; a PostgreSQL of its own when empty
	Source   string   // the value of `source:`; the Git server's config repo when empty
	Listen   string   // the address of the API; a free one when empty
	More     string   // further lines of argosy.yaml
	Env      []string // further variables of the process, as NAME=value
	Progress func(format string, args ...any)
}

// StartPlane runs `argosy serve` for this fleet and returns when it is ready.
func (f *Fleet) StartPlane(ctx context.Context, o PlaneOptions) (*Plane, error) {
	if o.Name == "" {
		o.Name = "argosy"
	}
	if o.Database == "" {
		o.Database = fmt.Sprintf("{embedded: %q}", filepath.Join(f.Dir, "pg"))
	}
	if o.Source == "" {
		o.Source = fmt.Sprintf("{url: %q, allowHTTP: true, poll: 1s}", f.Config.URL)
	}
	listen := o.Listen
	if listen == "" {
		var err error
		if listen, err = stack.FreeAddress(); err != nil {
			return nil, err
		}
	}
	ops, err := stack.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &Plane{binary: o.Binary, env: o.Env, URL: "http://" + listen, Ops: "http://" + ops,
		Config: filepath.Join(f.Dir, o.Name+".yaml"), progress: o.Progress}
	token := filepath.Join(f.Dir, "bootstrap-token")
	if p.Token, err = bootstrapToken(token); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`source: %s
database: %s
dataDir: %q
secrets:
  directory: %q
  kubernetes: {kubeconfig: %q, namespace: argosy}
  age: {identityFile: %q}
listen: {address: %q, ops: %q%s}
engines: {poll: 1s}
bootstrapTokenFile: %q
%s`, o.Source, o.Database, filepath.Join(f.Dir, o.Name+"-data"), f.Secrets, f.Place("eu-1").Cluster.Kubeconfig, f.AgeFile, listen, ops, f.public(listen), token, o.More)
	if err := os.WriteFile(p.Config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// public is the setting of the URL of the page. With an edge it is the one by which that reaches
// the replicas, which it leads to this one too.
func (f *Fleet) public(listen string) string {
	if f.Edge == nil {
		return fmt.Sprintf(", publicURL: %q", "http://"+listen)
	}
	f.Edge.Hub.Add(listen)
	return fmt.Sprintf(", publicURL: %q", f.Edge.URL)
}

// Start runs it again after Stop or a kill, with the same settings and data.
func (p *Plane) Start(ctx context.Context) (err error) {
	log := strings.TrimSuffix(p.Config, ".yaml") + ".log"
	p.Process, err = stack.StartProcess(stack.Command{Name: "argosy", Path: p.binary,
		Args: []string{"serve", "-f", p.Config}, Env: append(os.Environ(), p.env...), Log: log})
	if err != nil {
		return err
	}
	return p.Process.Await(ctx, func(ctx context.Context) error {
		return ready(ctx, p.Ops+"/readyz")
	})
}

// bootstrapToken is the one in the file, which is made by the first that asks.
func bootstrapToken(file string) (string, error) {
	if b, err := os.ReadFile(file); err == nil {
		return string(b), nil
	}
	token := "argosy-demo-" + rand.Text() + rand.Text()
	return token, os.WriteFile(file, []byte(token), 0o600)
}

// Stop ends it as an operator would.
func (p *Plane) Stop() { p.Process.Stop() }

func ready(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// Command is argosy as a user at this terminal would run it.
func (p *Plane) Command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.binary, args...)
	c.Env = append(os.Environ(), "ARGOSY_SERVER="+p.URL, "ARGOSY_TOKEN="+p.Token)
	c.Stderr = os.Stderr
	return c
}

// Print shows a command and its output. Exit code 1 reports findings, which the demo wants to show.
func (p *Plane) Print(ctx context.Context, args ...string) {
	fmt.Printf("$ argosy %s\n", strings.Join(args, " "))
	c := p.Command(ctx, args...)
	c.Stdout = os.Stdout
	if err := c.Run(); err != nil && c.ProcessState.ExitCode() != 1 {
		fmt.Println("argosy:", err)
	}
}

// Applications asks for all of them.
func (p *Plane) Applications(ctx context.Context) ([]view.Application, error) {
	out, err := p.Command(ctx, "get", "applications", "-o", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("argosy get applications: %w", err)
	}
	var list struct{ Items []view.Application }
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("argosy get applications -o json: %w", err)
	}
	return list.Items, nil
}

// Await polls until done returns true, and prints the progress whenever it changes.
func (p *Plane) Await(ctx context.Context, what string, limit time.Duration,
	done func([]view.Application) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := ""
	for {
		list, err := p.Applications(ctx)
		if err != nil {
			last = err.Error()
		} else {
			if now := progressOf(list); now != last {
				p.progress("%s", now)
				last = now
			}
			if done(list) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.Canceled {
				return context.Canceled
			}
			return fmt.Errorf("%s: not within %s; last seen: %s", what, limit, last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// progressOf is one line: how many Applications of each engine are Synced and Healthy.
func progressOf(list []view.Application) string {
	var engines []fleet.EngineName
	all, good := map[fleet.EngineName]int{}, map[fleet.EngineName]int{}
	for _, a := range list {
		if all[a.Engine] == 0 {
			engines = append(engines, a.Engine)
		}
		all[a.Engine]++
		if Healthy(a) {
			good[a.Engine]++
		}
	}
	var parts []string
	for _, e := range engines {
		parts = append(parts, fmt.Sprintf("%s %d of %d Synced and Healthy", e, good[e], all[e]))
	}
	if len(parts) == 0 {
		return "no Application yet"
	}
	return strings.Join(parts, ", ")
}

// Healthy reports whether an Application is applied, Synced and Healthy.
func Healthy(a view.Application) bool {
	return a.Sync == mirror.SyncSynced && a.Health == mirror.HealthHealthy &&
		a.Apply == mirror.ApplyApplied
}
