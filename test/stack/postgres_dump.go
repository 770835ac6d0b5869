package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Dump writes a database into a file, as an operator's nightly pg_dump does.
func (p *Postgres) Dump(ctx context.Context, database, file string) error {
	return p.tool(ctx, "pg_dump", "--format=custom", "--file="+file,
		"--dbname="+p.DatabaseURL(database))
}

// Restore replaces Argosy's schema by that of a dump, in one transaction, despite open connections:
// as docs/operations.md describes. It tries again after a lock conflict.
func (p *Postgres) Restore(ctx context.Context, database, file string) error {
	script := file + ".sql"
	if err := p.tool(ctx, "pg_restore", "--file="+script, file); err != nil {
		return err
	}
	defer os.Remove(script)
	var err error
	for range 5 {
		if err = p.tool(ctx, "psql", "--quiet", "--no-psqlrc", "--single-transaction",
			"--set=ON_ERROR_STOP=1", "--dbname="+p.DatabaseURL(database),
			"--command=DROP SCHEMA IF EXISTS argosy CASCADE", "--file="+script); err == nil ||
			ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (p *Postgres) tool(ctx context.Context, name string, args ...string) error {
	bin, err := postgresBin()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, name), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w", name, errors.Join(err, errors.New(string(out))))
	}
	return nil
}
