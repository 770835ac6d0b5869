package stack

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Backup stops the cluster, keeps a copy of its etcd, and starts it again. The returned function
// brings the cluster back to that copy, at the same address, as an operator does after a loss.
func (c *Cluster) Backup(ctx context.Context) (restore func(context.Context) error, err error) {
	data, kept := filepath.Join(c.Dir, "lab"), filepath.Join(c.Dir, "backup")
	c.Process.Stop()
	if err := replaceFolder(kept, data); err != nil {
		return nil, fmt.Errorf("%s: back up: %w", c.Name, err)
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		c.Process.Stop()
		if err := replaceFolder(data, kept); err != nil {
			return fmt.Errorf("%s: restore: %w", c.Name, err)
		}
		return c.Start(ctx)
	}, nil
}

// replaceFolder copies files only: a start creates the sockets.
func replaceFolder(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(at, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, text, 0o600)
	})
}
