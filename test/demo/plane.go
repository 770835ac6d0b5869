package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// plane is the control plane: `argosy serve` with a PostgreSQL of its own, and the command line that asks it.
type plane struct {
	process *stack.Process
	binary  string
	url     string
	token   string
}

func startPlane(ctx context.Context, root string, f *example.Fleet) (*plane, error) {
	p := &plane{binary: filepath.Join(root, "bin", "argosy"), token: "argosy-demo-" + rand.Text() + rand.Text()}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p.url = "http://" + listen
	tokenFile := filepath.Join(f.Dir, "bootstrap-token")
	if err := os.WriteFile(tokenFile, []byte(p.token), 0o600); err != nil {
		return nil, err
	}
	config := filepath.Join(f.Dir, "argosy.yaml")
	text := f.Settings(fmt.Sprintf("{embedded: %q}", filepath.Join(f.Dir, "pg")), listen, ops) + fmt.Sprintf("bootstrapTokenFile: %q\n", tokenFile)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	step("starting argosy serve with a PostgreSQL of its own")
	p.process, err = stack.StartProcess(stack.Command{Name: "argosy", Path: p.binary, Args: []string{"serve", "-f", config}, Log: filepath.Join(f.Dir, "argosy.log")})
	if err != nil {
		return nil, err
	}
	return p, p.process.Await(ctx, func(ctx context.Context) error { return ready(ctx, "http://"+ops+"/readyz") })
}

func (p *plane) stop() { p.process.Stop() }

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

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// command is argosy as a user at this terminal would run it.
func (p *plane) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.binary, args...)
	c.Env = append(os.Environ(), "ARGOSY_SERVER="+p.url, "ARGOSY_TOKEN="+p.token)
	c.Stderr = os.Stderr
	return c
}

// print shows a command and what it prints. Exit code 1 says that there are findings, which is what the demo wants to show.
func (p *plane) print(ctx context.Context, args ...string) {
	fmt.Printf("$ argosy %s\n", strings.Join(args, " "))
	c := p.command(ctx, args...)
	c.Stdout = os.Stdout
	if err := c.Run(); err != nil && c.ProcessState.ExitCode() != 1 {
		fmt.Println("argosy:", err)
	}
}

// applications asks for all of them.
func (p *plane) applications(ctx context.Context) ([]fleet.ApplicationView, error) {
	out, err := p.command(ctx, "get", "applications", "-o", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("argosy get applications: %w", err)
	}
	var list []fleet.ApplicationView
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("argosy get applications -o json: %w", err)
	}
	return list, nil
}

// await asks until done says so, and shows how far things are whenever that changes.
func (p *plane) await(ctx context.Context, what string, limit time.Duration, done func([]fleet.ApplicationView) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := ""
	for {
		list, err := p.applications(ctx)
		if err == nil {
			if now := standing(list); now != last {
				step("%s", now)
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

// standing is one line: how many Applications of each engine are Synced and Healthy.
func standing(list []fleet.ApplicationView) string {
	var engines []fleet.EngineName
	all, good := map[fleet.EngineName]int{}, map[fleet.EngineName]int{}
	for _, a := range list {
		if all[a.Engine] == 0 {
			engines = append(engines, a.Engine)
		}
		all[a.Engine]++
		if healthy(a) {
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

func healthy(a fleet.ApplicationView) bool {
	return a.Sync == fleet.SyncSynced && a.Health == fleet.HealthHealthy && a.Apply == fleet.ApplyApplied
}
