//go:build unix

package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/reconciler/postgres/embedded"
)

const orphanDir = "ARGOSY_TEST_ORPHAN_DIR"

// TestMain also plays the process that is killed while its server runs.
func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanDir); dir != "" {
		s, err := embedded.Start(context.Background(), dir)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("started", s.URL)
		select {}
	}
	os.Exit(m.Run())
}

// folder returns a folder that the server's user may enter, unlike t.TempDir.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("", "argosy-embedded-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "db")
}

func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.StartWith(t.Context(), dir, embedded.Options{Set: []string{"fsync=off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

func ask[T any](t *testing.T, url, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestServerKeepsItsFolder(t *testing.T) {
	dir := folder(t)
	s := start(t, dir)
	if got := ask[string](t, s.URL, "SELECT current_setting('listen_addresses')"); got != "" {
		t.Errorf("it listens on %q beside its socket", got)
	}
	pid := serverPID(t, dir)
	if uid := ask[string](t, s.URL, "SELECT current_user"); uid != "argosy" {
		t.Errorf("user %s", uid)
	}
	if owner := processUID(t, pid); owner == 0 {
		t.Error("the server runs as root")
	}
	run(t, s.URL, "CREATE TABLE kept AS SELECT 42 AS v")
	if _, err := embedded.Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(),
		"another process has it open") {
		t.Errorf("a second server in one folder: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	again := start(t, dir)
	if v := ask[int](t, again.URL, "SELECT v FROM kept"); v != 42 {
		t.Errorf("the folder held %d", v)
	}
}

func TestServerAsksForItsPassword(t *testing.T) {
	s := start(t, folder(t))
	config, err := pgx.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		conn.Close(context.Background())
		t.Fatal("a guessed password is let in")
	}
}

func TestFolderOfAnotherMajorVersionIsRefused(t *testing.T) {
	dir := folder(t)
	if err := start(t, dir).Stop(); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(dir, "data", "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "made by PostgreSQL 9") ||
		!strings.Contains(err.Error(), "ARGOSY_POSTGRES_BIN") {
		t.Fatalf("got %v", err)
	}
}

func TestAMissingPostgresIsNamed(t *testing.T) {
	t.Setenv("ARGOSY_POSTGRES_BIN", "/nonexistent")
	_, err := embedded.Start(t.Context(), folder(t))
	if err == nil || !strings.Contains(err.Error(), "apt install postgresql") {
		t.Fatalf("got %v", err)
	}
}

func TestInterruptedInitdbLeavesNothingHalfMade(t *testing.T) {
	dir := folder(t)
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, start(t, dir).URL, "SELECT 1"); n != 1 {
		t.Fatal(n)
	}
}

func TestKilledParentLeavesNoServerForLong(t *testing.T) {
	dir := folder(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanDir+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, _ := out.Read(line)
	if !bytes.HasPrefix(line[:n], []byte("started")) {
		t.Fatalf("the parent printed %s", line[:n])
	}
	pid := serverPID(t, dir)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	for end := time.Now().Add(2 * time.Minute); syscall.Kill(pid, 0) == nil; {
		if time.Now().After(end) {
			t.Fatalf("server %d outlives its parent", pid)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	ask[int](t, start(t, dir).URL, "SELECT 1")
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func serverPID(t *testing.T, dir string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(raw), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func processUID(t *testing.T, pid int) uint32 {
	t.Helper()
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		out, err := exec.Command("ps", "-o", "uid=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		return uint32(uid)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}
