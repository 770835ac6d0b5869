package reconciler_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

// The parts that all tests of the loop share: one PostgreSQL server with a migrated template, one
// Git server.
var (
	database *stack.Postgres
	gitHost  *stack.GitServer
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// testsAtOnce run at the same time: each has a repository and a database of its own, and waits for
// ticks and leases most of its time.
const testsAtOnce = "4"

func run(m *testing.M) int {
	ctx := context.Background()
	err := flag.Set("test.parallel", testsAtOnce)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if database, err = stack.SharedPostgres(ctx); err == nil {
		defer stack.StopShared()
		err = database.Template(ctx, "mirror", func(ctx context.Context, url string) error {
			_, err := postgres.Migrate(ctx, url)
			return err
		})
	}
	if err == nil {
		if gitHost, err = stack.StartGit(ctx, ""); err == nil {
			defer gitHost.Stop()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
