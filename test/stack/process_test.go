package stack_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

func itoa(n int) string { return strconv.Itoa(n) }

// field is the first word after the name on its line.
func field(text []byte, name string) string {
	_, rest, _ := strings.Cut(string(text), name)
	return strings.Fields(rest + " -")[0]
}

// alive reports whether the process exists and is not a zombie.
func alive(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	return err == nil && field(status, "State:") != "Z"
}

func shell(t *testing.T, script string) *stack.Process {
	t.Helper()
	p, err := stack.StartProcess(stack.Command{
		Name: "probe", Path: "/bin/sh", Args: []string{"-c", script},
		Log: filepath.Join(t.TempDir(), "probe.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatal("it did not happen in two minutes: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestProcess(t *testing.T) {
	t.Run("one that ends before it is ready is an error with its last words and its log's name",
		func(t *testing.T) {
			p := shell(t, "echo the last words; exit 3")
			err := p.Await(t.Context(), func(context.Context) error { return errors.New("no") })
			if err == nil || !strings.Contains(err.Error(), "the last words") ||
				!strings.Contains(err.Error(), p.LogFile()) ||
				!strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("got %v", err)
			}
		})

	t.Run("one that is never ready fails with the reason when the time is over",
		func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			reason := errors.New("still loading")
			err := shell(t, "sleep 60").Await(ctx, func(context.Context) error { return reason })
			if !errors.Is(err, reason) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})

	t.Run("Stop ends the children too", func(t *testing.T) {
		p := shell(t, "sleep 60 & echo child $!; wait")
		var child int
		eventually(t, "the child's id is in the log", func() bool {
			text, _ := os.ReadFile(p.LogFile())
			child, _ = strconv.Atoi(field(text, "child"))
			return child != 0
		})
		p.Stop()
		eventually(t, "the child has ended", func() bool { return !alive(child) })
		p.Stop() // again is harmless
	})
}

// orphanVariable makes this test binary start the parts and wait to be killed.
const orphanVariable = "ARGOSY_STACK_ORPHAN"

func runOrphan() {
	pg, err := stack.StartPostgres(context.Background(), os.Getenv(orphanVariable))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("pid", pg.PID(), "socket", pg.SocketURL)
	select {}
}

func TestPartsDieWithAKilledParent(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parent := exec.Command(os.Args[0])
	parent.Env, parent.Stdout = append(os.Environ(), orphanVariable+"="+filepath.Join(dir, "pg")),
		file
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	eventually(t, "the part runs", func() bool {
		text, _ := os.ReadFile(out)
		child, _ = strconv.Atoi(field(text, "pid"))
		if socket, err := url.Parse(field(text, "socket")); err == nil && child != 0 {
			t.Cleanup(func() { os.RemoveAll(socket.Query().Get("host")) })
		}
		return child != 0
	})
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, "the part has ended", func() bool { return !alive(child) })
	if _, err := os.Stat(filepath.Join(dir, "pg", "pg", "data", "postmaster.pid")); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("it did not shut down: postmaster.pid: %v", err)
	}
}

func TestAPausedProcessGoesOnWhereItWas(t *testing.T) {
	p := shell(t, "sleep 1000 & wait; exit 3")
	state := func() string {
		status, err := os.ReadFile(filepath.Join("/proc", itoa(p.PID()), "status"))
		if err != nil {
			t.Skip("this system has no /proc")
		}
		return field(status, "State:")
	}
	eventually(t, "it waits for its child", func() bool { return state() == "S" })
	p.Pause()
	eventually(t, "it is stopped", func() bool { return state() == "T" })
	p.Resume()
	eventually(t, "it goes on", func() bool { return state() == "S" })
}
