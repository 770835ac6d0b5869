// Command demo shows Argosy's main job on real parts: three Kubernetes API servers with an Argo CD
// each, one of them behind a firewall, PostgreSQL, a Git server with the example config repo. It
// commits live and shows what happens. `make demo` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"argosy.dev/argosy/test/example"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "argosy-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// run by root, PostgreSQL is another user and passes through
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	started := time.Now()
	builds := exec.CommandContext(ctx, "scripts/parts.sh", "redis", "argocd-3.5", "kustomize",
		"helm-4")
	builds.Stderr = os.Stderr
	if err := builds.Start(); err != nil {
		return err
	}
	fleet, err := example.Start(ctx, example.Options{Root: root, Dir: dir, Refresh: 3 * time.Second,
		Edge: true, Version: "3.5", Installed: true, Progress: step})
	if err != nil {
		return err
	}
	defer func() {
		headline("stopping everything")
		if err := fleet.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	}()
	step("starting argosy serve with a PostgreSQL of its own")
	binary := filepath.Join(root, "bin", "argosy")
	plane, err := fleet.StartPlane(ctx, example.PlaneOptions{Binary: binary, Progress: step})
	if err != nil {
		return err
	}
	defer plane.Stop()
	show := &show{ctx: ctx, plane: plane, fleet: fleet, binary: binary}
	defer func() { show.agent.Stop() }()
	if err := show.recorded(); err != nil {
		return err
	}
	if err := builds.Wait(); err != nil {
		return fmt.Errorf("scripts/parts.sh: %w", err)
	}
	step("starting Argo CD 3.5 on all three clusters")
	if err := fleet.StartArgoCDs(ctx); err != nil {
		return err
	}
	for _, p := range fleet.Places {
		if err := p.ArgoCD.ForwardRedis(ctx); err != nil { // Argosy reads the resources there
			return err
		}
	}
	if err := show.run(); err != nil {
		return fmt.Errorf("%w; the logs are in %s until the demo ends", err, dir)
	}
	headline("all of this took %s", time.Since(started).Round(time.Second))
	if os.Getenv("ONCE") != "" {
		return nil
	}
	show.invite()
	<-ctx.Done()
	return nil
}

func step(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

func headline(format string, args ...any) { fmt.Printf("\n== "+format+"\n", args...) }
