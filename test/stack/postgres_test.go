package stack_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/test/stack"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		runOrphan()
		return
	}
	code := m.Run()
	if err := stack.StopShared(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// query returns the one value that the statement gives.
func query[T any](t *testing.T, url, sql string) (T, error) {
	t.Helper()
	var value T
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return value, err
	}
	defer conn.Close(context.Background())
	return value, conn.QueryRow(t.Context(), sql).Scan(&value)
}

func TestPostgres(t *testing.T) {
	pg, err := stack.SharedPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("it answers by TCP and by socket, and never runs as root", func(t *testing.T) {
		for _, url := range []string{pg.URL, pg.SocketURL} {
			if n, err := query[int](t, url, "SELECT 6 * 7"); err != nil || n != 42 {
				t.Errorf("%s: %d, %v", url, n, err)
			}
		}
		status, err := os.ReadFile(filepath.Join("/proc", itoa(pg.PID()), "status"))
		if err != nil {
			t.Fatal(err)
		}
		if uid := field(status, "Uid:"); uid == "0" {
			t.Error("the server runs as root")
		}
	})

	t.Run("a wrong password is refused", func(t *testing.T) {
		config, err := pgx.ParseConfig(pg.URL)
		if err != nil {
			t.Fatal(err)
		}
		config.Password = "wrong"
		if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
			conn.Close(t.Context())
			t.Error("it was let in")
		}
	})

	t.Run("copies of a template have its tables and are apart", func(t *testing.T) {
		fills := 0
		for _, name := range []string{"copy_1", "copy_2"} {
			err := pg.Template(t.Context(), "filled", func(ctx context.Context, url string) error {
				fills++
				conn, err := pgx.Connect(ctx, url)
				if err != nil {
					return err
				}
				defer conn.Close(ctx)
				_, err = conn.Exec(ctx, "CREATE TABLE t AS SELECT 1 AS n")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			url, err := pg.NewDatabaseFrom(t.Context(), "filled", name)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := query[int](t, url,
				"INSERT INTO t VALUES (2) RETURNING (SELECT count(*) FROM t)"); err != nil ||
				n != 1 {
				t.Errorf("%s had %d rows, %v; want 1", name, n, err)
			}
		}
		if fills != 1 {
			t.Errorf("the template was filled %d times", fills)
		}
		if err := pg.DropDatabase(t.Context(), "copy_1"); err != nil {
			t.Error(err)
		}
	})
}

func TestPostgresKeepsItsFiles(t *testing.T) {
	dir := t.TempDir()
	start := func() *stack.Postgres {
		pg, err := stack.StartPostgresWith(t.Context(), stack.PostgresOptions{
			Dir: dir, Durable: true, Set: []string{"work_mem=7MB"}})
		if err != nil {
			t.Fatal(err)
		}
		return pg
	}
	pg := start()
	if fsync, err := query[string](t, pg.URL,
		"SELECT current_setting('fsync') || current_setting('work_mem')"); err != nil ||
		fsync != "on7MB" {
		t.Errorf("settings %q, %v", fsync, err)
	}
	if _, err := pg.NewDatabase(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := query[int](t, pg.URL, "SELECT 1"); err == nil {
		t.Error("it answers after Stop")
	}
	pg = start()
	defer pg.Stop()
	if _, err := query[int](t, pg.DatabaseURL("kept"), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

// A standby that is paused and promoted lacks what was committed after the pause,
// and an address in front of both moves to it.
func TestAPromotedStandbyLostItsTail(t *testing.T) {
	primary, err := stack.StartPostgresWith(t.Context(), stack.PostgresOptions{Replicated: true})
	if err != nil {
		t.Fatal(err)
	}
	defer primary.Stop()
	if _, err := query[int](t, primary.URL, "CREATE TABLE t AS SELECT 1 AS n"); err != nil &&
		!errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	standby, err := primary.StartStandby(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Stop()
	front, err := (*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil, primary.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	count := func(want int) {
		t.Helper()
		if n, err := query[int](t, primary.Through(front, "postgres"),
			"SELECT count(*) FROM t"); err != nil || n != want {
			t.Errorf("%d rows, %v; want %d", n, err, want)
		}
	}
	insert := func() {
		t.Helper()
		if _, err := query[int](t, primary.URL,
			"INSERT INTO t VALUES (2) RETURNING n"); err != nil {
			t.Fatal(err)
		}
	}
	insert()
	if err := standby.CaughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby.Pause()
	insert()
	count(3)
	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	front.Switch(standby.Address())
	count(2)
	if _, err := query[int](t, standby.URL, "INSERT INTO t VALUES (3) RETURNING n"); err != nil {
		t.Error("it takes no writes:", err)
	}
}
