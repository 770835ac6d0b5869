package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Dump writes a database into a file, as an operator's nightly pg_dump does.
func (p *Postgres) Dump(ctx context.Context, database, file string) error {
	return p.tool(ctx, "pg_dump", "--format=custom", "--file="+file,
		"--dbname="+p.DatabaseURL(database))
}

// Restore reads a dump into a database, in one transaction. It drops the dump's objects there
// first, despite open connections. It tries again after a lock conflict, as an operator does.
func (p *Postgres) Restore(ctx context.Context, database, file string) (err error) {
	for range 5 {
		if err = p.tool(ctx, "pg_restore", "--clean", "--if-exists", "--single-transaction",
			"--exit-on-error",
			"--dbname="+p.DatabaseURL(database), file); err == nil || ctx.Err() != nil {
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
