package server

import (
	"context"
	"log/slog"
	"os"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/reconciler/postgres"
)

// Migrate brings the schema up to this version and returns that.
func Migrate(ctx context.Context, s settings.Database, log *slog.Logger) (int64, error) {
	d, err := openDatabase(ctx, s, log)
	if err != nil {
		return 0, err
	}
	defer d.close()
	return postgres.Migrate(ctx, d.url)
}

// Reset empties the mirror.
func Reset(ctx context.Context, s settings.Database, log *slog.Logger) error {
	d, err := openDatabase(ctx, s, log)
	if err != nil {
		return err
	}
	defer d.close()
	store, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Reset(ctx)
}

// scratchDir is a folder that goes when its user is done.
type scratchDir struct{ path string }

func scratch() (scratchDir, error) {
	path, err := os.MkdirTemp("", "argosy-")
	return scratchDir{path}, err
}

// a temporary folder: the system deletes leftovers
func (d scratchDir) remove() { _ = os.RemoveAll(d.path) }
